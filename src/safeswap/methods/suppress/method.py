"""Local suppression: blank the fewest values, or the least important ones, that leave no combination of keys unsafe.

Sources: Hundepool & Willenborg 1996 (ARGUS); Willenborg & de Waal 2001. Integer programmes improve a greedy answer,
part by part; if time runs out first, the remaining gap is proved. Among identical records, the key decides which are
blanked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays.combinations import decode_mask, group_records, mask_of
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.key_cells import key_classes
from safeswap.measures.risk.risky import Risky, describe_unsafe, risky
from safeswap.methods.household_promises import MatesAgree
from safeswap.methods.suppress.households import HouseholdProblem, NothingUnsafeOfHouseholds, blank_households
from safeswap.methods.suppress.problem import (
    Blanking,
    Meaning,
    Problem,
    apply_blanking,
    blank_everything,
    unsafe_classes,
)
from safeswap.methods.suppress.promises import EnoughByPublishedKeys, NothingUnsafe, OnlyBlanks
from safeswap.methods.suppress.solver import Answer, blank_least
from safeswap.methods.suppress.wildcards import blank_least_wildcards
from safeswap.methods.value_change import ValuePlan, make_masked, record_words
from safeswap.model.audit import Replacement
from safeswap.model.columns import to_numbers
from safeswap.model.combination import (
    MOST_COMBINATIONS,
    CombinationFields,
    Missing,
    as_combinations,
    check_combinations,
)
from safeswap.model.effect import Blanked, Effect
from safeswap.model.households import check_constant
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.scenario import ScenarioName, as_scenario, fill_in
from safeswap.model.schema import Schema, household_attributes, require_household
from safeswap.model.score import proved_bound
from safeswap.model.spec import AddNoise, MaskSpec
from safeswap.model.text import list_names, plural

Importance = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class SuppressSpec(CombinationFields, MaskSpec):
    """Blank as little as possible so that no combination of keys is left that singles out too few records.

    >>> spec = SuppressSpec(keys=["Age", "Sex", "Town"], up_to=2, importance={"Age": 2}, keep=["Sex"])
    >>> spec.names, spec.costs
    (('Age', 'Sex', 'Town'), {'Age': 2.0, 'Sex': 1.0, 'Town': 1.0})
    """

    method: ClassVar[str] = "suppress"

    importance: Annotated[
        dict[str, Importance],
        Field(description="cost of blanking a value: the higher, the more likely it is kept; 1 if not stated"),
    ] = Field(default_factory=dict)
    keep: Annotated[Names, Field(description="attributes never blanked")] = ()
    objective: Annotated[
        Literal["weight", "values"],
        Field(description="weight: lose the least total importance; values: blank the fewest values"),
    ] = "weight"
    solver: Annotated[
        Literal["optimal", "greedy"],
        Field(description="optimal: integer programmes, with a proved gap; greedy: a quick, good answer"),
    ] = "optimal"
    time_limit: Annotated[
        float, Field(gt=0, le=86_400, allow_inf_nan=False, description="seconds after which the best answer is taken")
    ] = 60.0
    gap: Annotated[
        float, Field(ge=0, lt=1, description="stop at an answer proved to be this close to the least, as a share")
    ] = 0.0
    unit: Annotated[
        Literal["person", "household"],
        Field(description="what a combination counts: the persons, or the households with a member who has it"),
    ] = "person"
    scenario: ScenarioName = ""

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and not isinstance(values.get("scenario", ""), str):
            values = {"unit": as_scenario(values["scenario"]).unit, **values}
        return fill_in(values)

    @model_validator(mode="after")
    def _is_consistent(self) -> SuppressSpec:
        names = set(self.names)
        for field, stated in (("importance", self.importance), ("keep", self.keep)):
            if strange := [name for name in stated if name not in names]:
                raise ValueError(f"{field} names {strange[0]!r}, which is in no combination")
        if self.objective == "values" and self.importance:
            raise ValueError("importance applies only with the objective weight")
        if self.unit == "household" and self.weight is not None:
            raise ValueError("households are counted, not weighted: omit weight, or set unit to person")
        if not names - set(self.keep):
            raise ValueError("keep names every attribute: there is nothing left to blank")
        return self

    @property
    def names(self) -> Names:
        """The attributes of all combinations, each once."""
        return tuple(dict.fromkeys(name for keys, _ in self.stated() for name in keys))

    @property
    def guards_published_keys(self) -> bool:
        """True if it follows that no record is below the lowest tolerance on its published keys.

        A record that lacks keys is counted by the others, so every combination of all keys must be protected, as it is
        by default. If a missing value is a value, or could be any value of its record, all keys together suffice.
        """
        lists = {frozenset(keys) for keys, _ in self.stated()}
        if self.missing == "none":
            return len(lists) == (1 << len(self.names)) - 1
        return self.missing != "vouching" and frozenset(self.names) in lists

    @property
    def blankable(self) -> Names:
        """The attributes whose values may be blanked."""
        return tuple(name for name in self.names if name not in self.keep)

    @property
    def costs(self) -> dict[str, float]:
        """The cost of blanking a value of each attribute."""
        return {name: self.importance.get(name, 1.0) for name in self.names}


Masks = tuple[tuple[int, float], ...]  # combinations as bits, with their tolerances

UNSAFE, BLANKED = "unsafe_combinations", "blanked_by_attribute"
"""Facts of the audit that are tables: unsafe combinations before and after, and blanked values."""

BELOW = "records_still_below_tolerance"
"""The fact that counts the records still below the tolerance on their published keys."""


class Suppress:
    """Blank only what must be blanked."""

    name: ClassVar[str] = "suppress"
    title: ClassVar[str] = "Local suppression of unsafe combinations of keys"
    spec_type: ClassVar[type[SuppressSpec]] = SuppressSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Hundepool & Willenborg 1996, μ- and τ-ARGUS: software for statistical disclosure control",
        "Willenborg & de Waal 2001, Elements of Statistical Disclosure Control, Lecture Notes in Statistics 155",
    )

    takes_households: ClassVar[bool] = True  # a blank of a household attribute is one for all members

    def plan(self, data: Microdata, spec: SuppressSpec) -> ValuePlan:
        """Count what is unsafe, and check that blanking can make it safe."""
        if goes_by_household(data.schema, spec):
            return _plan_households(data, spec)
        found = risky(data, as_combinations(spec))
        left = () if not found.unsafe else _find_never_safe(data, spec)
        text = f". {found.caution.removesuffix('.')}" if found.caution else ""
        if left:
            text += f"; {list_names(left, most=3)} cannot be made safe by blanking {list_names(spec.blankable)}"
        return SuppressPlan(
            method=self.name,
            records=len(data),
            asked=found.unsafe_records,
            feasible=0 if left else found.unsafe_records,
            binds=left,
            text=text,
            unsafe=found.unsafe,
            counted=found.lists,
            least_tolerance=min((each.tolerance for each in found.combinations), default=inf),
        )

    def apply(self, data: Microdata, spec: SuppressSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Find the blanks, draw the records, blank them."""
        if goes_by_household(data.schema, spec):
            return _mask_households(data, spec, key=key, replicate=replicate)
        plan = self.plan(data, spec)
        if not plan.is_feasible:
            raise InfeasibleError(
                f"{list_names(plan.binds, most=3)} cannot be made safe: "
                f"with every value of {list_names(spec.blankable)} blanked there would still be combinations "
                "with too few records",
                code="cannot-be-safe",
                hint="keep fewer attributes, recode first, or lower the tolerance",
                combinations=list(plan.binds),
            )
        problem, of_record = problem_of(data, spec)
        answer = _solve(problem, spec)
        draws = record_words(data, key, self.name, "records", replicate=replicate)[:, 0]
        rows = _draw_rows(answer.blanking, of_record, draws)
        changes = {
            name: _blank_rows(data, name, rows[j]) for j, name in enumerate(spec.names) if j in rows and rows[j].size
        }
        masked = make_masked(data, spec, plan, changes, key=key, replicate=replicate)
        facts = {**masked.audit.facts, **_facts(masked, answer)}
        return replace(masked, audit=replace(masked.audit, facts=facts))

    def effects(self, schema: Schema, spec: SuppressSpec) -> tuple[Effect, ...]:
        """Return that values were blanked."""
        return (Blanked(spec.blankable),)

    def invariants(self, data: Microdata, spec: SuppressSpec) -> tuple[Invariant, ...]:
        """Promise only blanks, other columns untouched, and nothing unsafe left by an independent count.

        If all keys are protected in every combination, no record is below the tolerance on its published keys.
        """
        stated = check_combinations(spec, data.schema, records=len(data))
        others = tuple(name for name in data.attributes if name not in spec.blankable)
        by_household = spec.unit == "household"
        safe: list[Invariant] = [
            NothingUnsafeOfHouseholds(stated, require_household(data.schema))
            if by_household
            else NothingUnsafe(stated, spec.missing, spec.weight)
        ]
        safe += [published_keys(spec)] if spec.guards_published_keys and not by_household else []
        shared = tuple(name for name in household_attributes(data.schema) if name in spec.blankable)
        return (
            SameRows(),
            *((UntouchedColumns(others),) if others else ()),
            OnlyBlanks(spec.blankable),
            *safe,
            *((MatesAgree(shared, require_household(data.schema)),) if shared else ()),
            ReplaysFromAudit(),
        )


@dataclass(frozen=True, kw_only=True)
class SuppressPlan(ValuePlan):
    """The number of unsafe combinations of values, and of records in one; ``counted`` says in which combinations."""

    unsafe: int = 0
    counted: str = ""
    least_tolerance: float = inf

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        return describe_unsafe(self.unsafe, self.asked, self.records, self.counted) + self.text

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in its totals."""
        unsafe = add(self.unsafe, "plan", self.unsafe, self.asked)
        asked, feasible = (
            add(n, "plan", self.unsafe, self.asked, most=self.records) for n in (self.asked, self.feasible)
        )
        return self._with_totals(asked, feasible, unsafe=unsafe)


class HouseholdsPlan(SuppressPlan):
    """A plan by household; ``counted`` are households or persons."""

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        return (
            f"{plural(self.unsafe, 'combination of values is', 'combinations of values are')} unsafe, counting "
            f"{self.counted}; {self.asked:,} of {plural(self.records, 'record')} are in one; a household attribute is "
            "blanked for all members"
        )


def goes_by_household(schema: Schema, spec: SuppressSpec) -> bool:
    """Return whether households are blanked as one: they are the unit, or an attribute of theirs may be blanked."""
    return spec.unit == "household" or bool(set(spec.blankable) & set(household_attributes(schema)))


def _household_problem(data: Microdata, spec: SuppressSpec) -> HouseholdProblem:
    if spec.missing not in ("none", "any"):
        raise SpecError(
            f"household attributes are blanked with a missing value that matches nothing, not with {spec.missing!r}",
            code="household-not-supported",
            hint='use missing="none" or "any", or unmark the attribute (household = false)',
            missing=spec.missing,
        )
    stated = check_combinations(spec, data.schema, records=len(data))
    check_constant(data, (name for name in household_attributes(data.schema) if name in spec.names))
    if spec.missing == "any":
        names = spec.names
        masks = _add_parts(tuple((mask_of([names.index(key) for key in keys]), least) for keys, least in stated))
        stated = tuple((tuple(names[j] for j in decode_mask(mask)), least) for mask, least in masks)
    return HouseholdProblem.of(
        data,
        stated,
        costs=spec.costs,
        allowed=spec.blankable,
        by_household=spec.unit == "household",
        weight=spec.weight,
    )


def _plan_households(data: Microdata, spec: SuppressSpec) -> ValuePlan:
    cells, records = _household_problem(data, spec).count()
    counted = "households" if spec.unit == "household" else "persons"
    return HouseholdsPlan(
        method=spec.method,
        records=len(data),
        asked=records,
        feasible=records,
        unsafe=cells,
        counted=counted,
        least_tolerance=min((stated for _, stated in as_combinations(spec).stated()), default=inf),
    )


def _mask_households(data: Microdata, spec: SuppressSpec, *, key: Key, replicate: int) -> Masked:
    """Blank household by household."""
    plan, problem = _plan_households(data, spec), _household_problem(data, spec)
    before, least = problem.by_dimension(), problem.least_cost()
    rows = blank_households(problem)
    after, sizes = problem.by_dimension(), [len(keys) for keys, _ in problem.combinations]
    changes = {name: _blank_rows(data, name, found) for name, found in rows.items()}
    masked = make_masked(data, spec, plan, changes, key=key, replicate=replicate)
    values = {name: len(found) for name, found in rows.items()}
    cost = sum(spec.costs[name] * n for name, n in values.items())
    saved = f"at most {1 - least / cost:.0%} of it could be saved" if cost > least else "no answer loses less"
    facts = {
        **masked.audit.facts,
        "protected": spec.protected,
        "households": len(problem.homes),
        "counted": "households" if spec.unit == "household" else "persons",
        "values_blanked": sum(values.values()),
        "importance_blanked": cost if spec.importance else None,
        "answer": f"greedy, household by household: {saved}, as far as was proved",
        "least_possible": least,
        UNSAFE: [
            {"keys": size, "lists": sizes.count(size), "before": before[size], "after": after[size]}
            for size in sorted(before)
        ],
        BLANKED: [
            {"attribute": name, "values": values.get(name, 0), "importance": spec.costs[name]}
            for name in spec.blankable
        ],
    }
    if spec.unit == "person":
        facts[BELOW] = published_keys(spec).records_below(masked.data)
    return replace(masked, audit=replace(masked.audit, facts=facts))


def problem_of(data: Microdata, spec: SuppressSpec) -> tuple[Problem, Rows]:
    """Return the problem to solve, and the class of each record.

    Where weights are summed, records with different weights are in different classes, so it does not matter which
    records of a class are blanked.
    """
    stated = check_combinations(spec, data.schema, records=len(data))
    names, costs = spec.names, spec.costs
    meaning: Meaning = "none" if spec.missing == "any" else spec.missing
    found = key_classes(data, names, missing=spec.missing, weight=spec.weight)
    if spec.weight is not None:
        found = _split_by_weight(data, spec.weight, found)
    combinations = tuple((mask_of([names.index(key) for key in keys]), tolerance) for keys, tolerance in stated)
    problem = Problem(
        classes=found,
        members=np.bincount(found.of_record, minlength=len(found)).astype(np.int64),
        combinations=_deciding_combinations(combinations, spec.missing),
        costs=np.array([costs[name] for name in names], np.float64),
        allowed=mask_of([names.index(name) for name in spec.blankable]),
        meaning=meaning,
    )
    return problem, found.of_record.astype(np.int64)


def _deciding_combinations(stated: Masks, missing: Missing) -> Masks:
    """Return the combinations that are constraints, under the stated meaning of a missing value.

    With ``any``, a record that lacks keys of a combination is counted by those it has: each part of a combination
    becomes one in which a missing value matches nothing. Records that agree in more keys agree in fewer: where a blank
    is a value, or matches all, a combination is safe if one that contains it is. Where a blank matches nothing this
    does not hold, because a record may be blank in the additional keys.
    """
    if missing == "none":
        return stated
    return _add_parts(stated) if missing == "any" else _drop_implied(stated)


def _add_parts(stated: Masks) -> Masks:
    """Add all parts of the combinations, each with the highest tolerance of those it is part of."""
    found: dict[int, float] = {}
    for mask, tolerance in stated:
        found[mask] = max(tolerance, found.get(mask, 0.0))
    for size in range(max(mask.bit_count() for mask in found), 1, -1):
        for mask in [mask for mask in found if mask.bit_count() == size]:
            for key in decode_mask(mask):
                part = mask ^ 1 << key
                found[part] = max(found[mask], found.get(part, 0.0))
        if len(found) > MOST_COMBINATIONS:
            raise SpecError(
                f"these combinations have more than {MOST_COMBINATIONS:,} parts",
                code="too-many-combinations",
                hint='name combinations of fewer keys, or use missing="none"',
            )
    return tuple(found.items())


def _drop_implied(stated: Masks) -> Masks:
    """Drop combinations that are part of another one with at least their tolerance."""
    masks = np.array([mask for mask, _ in stated], np.int64)
    tolerances = np.array([tolerance for _, tolerance in stated])
    return tuple(
        (mask, tolerance)
        for mask, tolerance in stated
        if not ((masks & mask == mask) & (masks != mask) & (tolerances >= tolerance)).any()
    )


def _split_by_weight(data: Microdata, weight: str, found: Any) -> Any:
    weights = to_numbers(data, weight)
    levels, ranks = np.unique(weights, return_inverse=True)
    columns = [column[found.of_record] for column in found.columns]
    return group_records(
        [*columns, ranks.astype(np.uint32)],
        [*found.cardinalities, levels.size + 1],
        [*found.blanks, levels.size],
        weights,
    )


def _find_never_safe(data: Microdata, spec: SuppressSpec) -> tuple[str, ...]:
    """Name the combinations that stay unsafe even with every allowed value blanked."""
    problem, _ = problem_of(data, spec)
    whole, _, _ = apply_blanking(problem, blank_everything(problem))
    if not unsafe_classes(problem, whole).any():
        return ()
    found = []
    for keys, tolerance in spec.stated():
        alone = ((mask_of([spec.names.index(key) for key in keys]), tolerance),)
        one = replace(problem, combinations=_add_parts(alone) if spec.missing == "any" else alone)
        if unsafe_classes(one, whole).any():
            found.append(" × ".join(keys))
    return tuple(found)


def _solve(problem: Problem, spec: SuppressSpec) -> Answer:
    solve = blank_least_wildcards if spec.missing == "vouching" else blank_least
    answer = solve(problem, seconds=spec.time_limit, gap=spec.gap, exact=spec.solver == "optimal")
    return replace(answer, bound=proved_bound(answer.bound, answer.cost))


def _draw_rows(answer: Blanking, of_record: Rows, draws: Any) -> dict[int, Rows]:
    """Return, for each key, the rows in which it is blanked: those with the lowest draws of each class."""
    rows: dict[int, list[Rows]] = {}
    involved = np.flatnonzero(np.isin(of_record, answer.classes))
    order = involved[np.lexsort((involved, draws[involved], of_record[involved]))]
    starts = np.searchsorted(of_record[order], answer.classes)
    # Sets of keys blanked in one class are adjacent in the answer: each takes the records after the previous one.
    before = np.concatenate([[0], np.cumsum(answer.numbers)])[:-1]
    _, first, of_entry = np.unique(answer.classes, return_index=True, return_inverse=True)
    offset = before - before[first][of_entry]
    for start, skipped, number, mask in zip(starts, offset, answer.numbers, answer.masks, strict=True):
        taken = order[start + skipped : start + skipped + number]
        for key in decode_mask(int(mask)):
            rows.setdefault(key, []).append(taken)
    return {key: np.sort(np.concatenate(found)) for key, found in rows.items()}


def _blank_rows(data: Microdata, name: str, rows: Rows) -> Change:
    column = data.table.column(name)
    gone = np.zeros(len(data), np.bool_)
    gone[rows] = True
    before = column.take(pa.array(rows)).combine_chunks()
    if isinstance(before, pa.ChunkedArray):
        before = pa.concat_arrays(before.chunks)
    kept = column.take(pa.array(np.arange(len(data)), mask=gone))  # null index: no value
    return Change(column=kept, replacement=Replacement(attribute=name, rows=rows, before=before))


def _describe_proof(answer: Answer) -> str:
    """Describe how good an answer is."""
    if answer.cost <= answer.bound + 1e-9 * max(1.0, answer.cost):
        return "optimal: nothing less would do"
    return f"at most {answer.gap:.2%} of it could be saved, as far as was proved"


def _facts(masked: Masked, answer: Answer) -> dict[str, Any]:
    spec = masked.spec
    assert isinstance(spec, SuppressSpec)  # noqa: S101  (it is the one that was applied)
    blanked = {each.attribute: len(each.rows) for each in masked.audit.replacements}
    before, after = (risky(data, as_combinations(spec)) for data in (masked.original, masked.data))
    costs = spec.costs
    return {
        "protected": spec.protected,
        BELOW: published_keys(spec).records_below(masked.data),
        "values_blanked": sum(blanked.values()),
        "importance_blanked": float(answer.cost) if spec.importance else None,
        "answer": _describe_proof(answer),
        "least_possible": float(answer.bound),
        "gap": float(answer.gap) or None,
        "greedy_answer": float(answer.greedy_cost) if answer.greedy_cost > answer.cost else None,
        UNSAFE: _count_by_dimension(before, after),
        BLANKED: [
            {"attribute": name, "values": blanked.get(name, 0), "importance": costs[name]} for name in spec.blankable
        ],
    }


def published_keys(spec: SuppressSpec) -> EnoughByPublishedKeys:
    """Return the check of records by their published keys, at the lowest stated tolerance."""
    return EnoughByPublishedKeys(spec.names, min(tolerance for _, tolerance in spec.stated()), spec.weight)


def _count_by_dimension(before: Risky, after: Risky) -> list[dict[str, Any]]:
    lists = [len(each.keys) for each in before.combinations]
    return [
        {"keys": size, "lists": lists.count(size), "before": number, "after": after.by_dimension[size]}
        for size, number in before.by_dimension.items()
    ]
