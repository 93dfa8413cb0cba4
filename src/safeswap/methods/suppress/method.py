"""Local suppression: blank the fewest values, or the least important ones, that leave no combination of keys unsafe.

Sources: Hundepool & Willenborg 1996 (ARGUS); Willenborg & de Waal 2001. Integer programmes improve a greedy answer,
part by part; if time runs out first, the remaining gap is proved. Among identical records, the key decides which are
blanked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays.combinations import decode_mask, group_records, mask_of
from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Int64s, Rows
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.key_cells import key_classes
from safeswap.measures.risk.risky import Risky, risky
from safeswap.methods.by_household import MatesAgree
from safeswap.methods.suppress.households import HouseholdProblem, NothingUnsafeOfHouseholds, blank_households
from safeswap.methods.suppress.problem import (
    Blanking,
    Meaning,
    Problem,
    apply_blanking,
    blank_everything,
    unsafe_classes,
)
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
from safeswap.model.evidence import Evidence
from safeswap.model.households import check_constant
from safeswap.model.invariant import AttributesPromise, Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.scenario import ScenarioName, as_scenario, fill_in
from safeswap.model.schema import Schema, household_attributes, level_texts, require_household
from safeswap.model.score import proved_bound
from safeswap.model.spec import MaskSpec
from safeswap.model.text import plural

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
        Field(description="what a combination counts: the persons, or the households with a member that has it"),
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
            raise ValueError("importance counts only with the objective weight")
        if self.unit == "household" and self.weight is not None:
            raise ValueError("households are counted, not weighted: leave out weight, or set unit to person")
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


# Promises of local suppression.
#
# ::
#
#     OnlyBlanks               values became missing, and nothing else happened to them
#     NothingUnsafe            no combination of keys singles out too few records
#     EnoughByPublishedKeys    no record is singled out by its published keys
#
# All counts are recomputed from the columns of the output, sharing no code with the search for blanks.

_SHORT = 1e-9  # largest rounding error of a sum of weights, as a share
_WORDS = {
    "none": "a missing value matching nothing",
    "own": "a missing value being a value of its own",
    "any": "a record counting by the keys that it has",
    "vouching": "a missing value matching every value and counting for others",
}


@dataclass(frozen=True)
class OnlyBlanks(AttributesPromise):
    """Every value that differs from the original is missing."""

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return f"Values of {', '.join(self.attributes)} were blanked; none was changed in any other way."

    def problem(self, evidence: Evidence) -> str:
        """Describe the first attribute in which a value became another one."""
        for name in self.attributes:
            flags = evidence.changed(name)
            if flags is None:
                continue
            wrong = int(np.count_nonzero(flags & evidence.after.table.column(name).is_valid().to_numpy()))
            if wrong:
                return plural(wrong, f"value of {name} has become another", f"values of {name} have become others")
        return ""


@dataclass(frozen=True)
class NothingUnsafe(Invariant):
    """Every combination of values that occurs has at least the tolerance, under the stated meaning of missing."""

    is_about_result: ClassVar[bool] = True

    combinations: tuple[tuple[Names, float], ...]
    missing: Missing
    weight: str | None = None

    @property
    def sentence(self) -> str:
        """The promise in words."""
        least = {tolerance for _, tolerance in self.combinations}
        number = f"{min(least):g}" if len(least) == 1 else "as many as its tolerance"
        unit = "records" if self.weight is None else f"units of {self.weight}"
        names = ", ".join(dict.fromkeys(name for keys, _ in self.combinations for name in keys))
        one = len(self.combinations) == 1
        lists = f"values of {names}" if one else f"values in {len(self.combinations):,} combinations of {names}"
        together = " together" if one and len(self.combinations[0][0]) > 1 else ""
        return f"No {lists}{together} are shared by fewer than {number} {unit}, {_WORDS[self.missing]}."

    def problem(self, evidence: Evidence) -> str:
        """Count the unsafe combinations of values, and name the keys of the first list that has some."""
        if gone := _describe_lost_weight(evidence.after, self.weight):
            return gone
        unsafe = {keys: left for keys, left in recount_unsafe(evidence.after, self) if left}
        if not unsafe:
            return ""
        first = " × ".join(next(iter(unsafe)))
        found = plural(sum(unsafe.values()), "combination of values is", "combinations of values are")
        return f"{found} unsafe, for instance some of {first}"

    def for_users_of(self, names: Names) -> Invariant | None:
        """Restrict the promise to combinations whose keys are all released."""
        if self.weight is not None and self.weight not in names:
            return None
        left = tuple(each for each in self.combinations if set(each[0]) <= set(names))
        return NothingUnsafe(left, self.missing, self.weight) if left else None


@dataclass(frozen=True)
class EnoughByPublishedKeys(Invariant):
    """Every record shares its published key values with enough records that have all these keys."""

    is_about_result: ClassVar[bool] = True

    keys: Names
    tolerance: float
    weight: str | None = None

    @property
    def sentence(self) -> str:
        """The promise in words."""
        unit = "records" if self.weight is None else f"units of {self.weight}"
        return (
            f"Every record shares all values that are published of its keys ({', '.join(self.keys)}) with records that "
            f"have them too: at least {self.tolerance:g} {unit}, its own included."
        )

    def problem(self, evidence: Evidence) -> str:
        """Count the records below the tolerance."""
        if gone := _describe_lost_weight(evidence.after, self.weight):
            return gone
        below = self.records_below(evidence.after)
        return f"{plural(below, 'record is', 'records are')} below {self.tolerance:g}" if below else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Restrict the promise to the released keys: records that agree in more keys agree in fewer."""
        if self.weight is not None and self.weight not in names:
            return None
        left = tuple(name for name in self.keys if name in names)
        return EnoughByPublishedKeys(left, self.tolerance, self.weight) if left else None

    def records_below(self, data: Microdata) -> int:
        """Count the records below the tolerance on their published keys."""
        columns = [_codes(data, name, stated=True) for name in self.keys]
        weights = None if self.weight is None else to_numbers(data, self.weight)
        cells, sizes, members = _cells(columns, weights)
        least = self.tolerance if weights is None else self.tolerance * (1 - _SHORT)
        is_low = _published_sizes(cells, sizes, np.arange(len(cells))) < least
        return int(members[is_low & (cells >= 0).any(axis=1)].sum())  # without a key there is nothing to agree in


def _describe_lost_weight(data: Microdata, weight: str | None) -> str:
    """Say that sums of weights cannot be counted, if the weight is missing; empty if they can."""
    lost = weight is not None and bool(np.isnan(to_numbers(data, weight)).any())
    return f"{weight} is missing, so that its sums cannot be counted" if lost else ""


def recount_unsafe(data: Microdata, promise: NothingUnsafe) -> Iterable[tuple[Names, int]]:
    """Yield each combination of keys with its number of unsafe combinations of values."""
    names = dict.fromkeys(name for keys, _ in promise.combinations for name in keys)
    # Codes that mean "no answer" are missing, unless missing values are values of their own.
    columns = {name: _codes(data, name, stated=promise.missing != "own") for name in names}
    weights = None if promise.weight is None else to_numbers(data, promise.weight)
    distinct, totals, _ = _cells(list(columns.values()), weights)
    places = {name: place for place, name in enumerate(names)}
    for keys, tolerance in promise.combinations:
        cells, sizes, _ = _cells([distinct[:, places[key]] for key in keys], totals)
        if promise.missing == "none":
            complete = (cells >= 0).all(axis=1)
            cells, sizes = cells[complete], sizes[complete]
        least = tolerance if weights is None else tolerance * (1 - _SHORT)
        low = sizes < least
        if promise.missing in ("any", "vouching") and low.any():
            matched = _matching_sizes if promise.missing == "vouching" else _published_sizes
            low[low] = matched(cells, sizes, np.flatnonzero(low)) < least
        yield keys, int(np.count_nonzero(low))


def _codes(data: Microdata, name: str, *, stated: bool) -> Int64s:
    """Encode the column as integers, −1 where a value is missing."""
    column = data.table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type) or not len(column):
        return np.full(len(column), -1, np.int64)
    encoded = column.dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks])
    if stated and data.schema[name].missing:
        texts = level_texts(encoded.chunk(0).dictionary)
        blank = np.array([*(text in data.schema[name].missing for text in texts), True])
        codes[blank[codes]] = -1
    return codes


def _cells(
    columns: list[Int64s], weights: npt.NDArray[Any] | None
) -> tuple[Int64s, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct combinations of codes (one per row), the weight or row count of each, and its row count."""
    names = [f"c{i}" for i in range(len(columns))]
    table = pa.table(dict(zip(names, columns, strict=True)))
    if weights is not None:
        table = table.append_column("w", pa.array(weights))
    sums = [] if weights is None else [("w", "sum")]
    counted = table.group_by(names, use_threads=False).aggregate([([], "count_all"), *sums])
    numbers_of_rows = counted["count_all"].to_numpy()
    sizes = numbers_of_rows if weights is None else counted["w_sum"].to_numpy()
    return np.stack([counted[name].to_numpy() for name in names], axis=1), sizes, numbers_of_rows


def _published_sizes(cells: Int64s, sizes: npt.NDArray[Any], asked: Int64s) -> Floats:
    """Return, for the asked cells, the size of all cells that have their published keys and agree in them."""
    total = np.zeros(asked.size, np.float64)
    patterns, of_cell = np.unique(cells[asked] < 0, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        here = np.flatnonzero(of_cell.ravel() == number)
        left = cells[:, ~pattern]
        able = np.flatnonzero((left >= 0).all(axis=1))
        names = np.full(len(cells), -1, np.int64)
        names[able] = _number_rows(left[able])
        total[here] = np.bincount(names[able], sizes[able])[names[asked[here]]]
    return total


def _matching_sizes(cells: Int64s, sizes: npt.NDArray[Any], asked: Int64s) -> Floats:
    """Return, for the asked cells, the size of all cells that agree wherever neither has a missing value."""
    total = np.zeros(asked.size, np.float64)
    patterns, of_cell = np.unique(cells < 0, axis=0, return_inverse=True)
    of_cell = of_cell.ravel()
    for mine in np.unique(of_cell[asked]):
        here = np.flatnonzero(of_cell[asked] == mine)
        for other in range(len(patterns)):
            shared = np.flatnonzero(~(patterns[mine] | patterns[other]))
            there = np.flatnonzero(of_cell == other)
            names = _number_rows(np.concatenate([cells[np.ix_(asked[here], shared)], cells[np.ix_(there, shared)]]))
            by_name = np.bincount(names[here.size :], sizes[there], int(names.max()) + 1)
            total[here] += by_name[names[: here.size]]
    return total


def _number_rows(rows: Int64s) -> Int64s:
    """Number the rows of codes: equal rows get equal numbers, from 0 without gaps."""
    names = np.zeros(len(rows), np.int64)
    for column in rows.T:
        _, names = np.unique(names * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    return names.ravel().astype(np.int64)


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
        text = found.sentence + (f". {found.caution.removesuffix('.')}" if found.caution else "")
        if left:
            text += f"; {_list_names(left)} cannot be made safe by blanking {', '.join(spec.blankable)}"
        feasible = 0 if left else found.unsafe_records
        return ValuePlan(
            method=self.name, records=len(data), asked=found.unsafe_records, feasible=feasible, binds=left, text=text
        )

    def apply(self, data: Microdata, spec: SuppressSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Find the blanks, draw the records, blank them."""
        if goes_by_household(data.schema, spec):
            return _mask_households(data, spec, key=key, replicate=replicate)
        plan = self.plan(data, spec)
        if not plan.is_feasible:
            raise InfeasibleError(
                f"{_list_names(plan.binds)} cannot be made safe: with every value of {', '.join(spec.blankable)} "
                "blanked there would still be combinations with too few records",
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


def goes_by_household(schema: Schema, spec: SuppressSpec) -> bool:
    """Return whether households are blanked as one: they are the unit, or an attribute of theirs may be blanked."""
    return spec.unit == "household" or bool(set(spec.blankable) & set(household_attributes(schema)))


def _household_problem(data: Microdata, spec: SuppressSpec) -> HouseholdProblem:
    if spec.missing not in ("none", "any"):
        raise SpecError(
            f"household attributes are blanked with a missing value that matches nothing, not with {spec.missing!r}",
            code="household-not-supported",
            hint='take missing="none" or "any", or take the mark off the attribute (household = false)',
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
    text = (
        f"{plural(cells, 'combination')} of values unsafe, counting {counted}; {records:,} of "
        f"{plural(len(data), 'record')} in one; a household attribute is blanked for all members"
    )
    return ValuePlan(method=spec.method, records=len(data), asked=records, feasible=records, text=text)


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
                hint='name combinations of fewer keys, or take missing="none"',
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


def _list_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
