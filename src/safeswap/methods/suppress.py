"""Local suppression: blank the fewest values, or the least important ones, that leave no combination of keys unsafe.

Sources: Hundepool & Willenborg 1996 (ARGUS); Willenborg & de Waal 2001. The cheapest blanks are found by integer
programmes, part by part, from a greedy answer on; where time runs out first, what is proved is a gap. Which records of
those that are alike are blanked is drawn by the key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.engines.base import Engine
from safeswap.engines.key_classes import key_classes
from safeswap.engines.risky import Risky, risky
from safeswap.errors import InfeasibleError, SpecError
from safeswap.kernels import blanking
from safeswap.kernels.blanking import Blanking, Meaning, Problem
from safeswap.kernels.blanking_solver import Answer, blank_least
from safeswap.kernels.blanking_wildcards import blank_least_wildcards
from safeswap.kernels.combinations import classes, mask_of, positions
from safeswap.kernels.types import Rows
from safeswap.methods.value_change import ValuePlan, masked_by, record_words
from safeswap.model.audit import Replacement
from safeswap.model.combination import MOST_COMBINATIONS, Missing, as_combinations, check_combinations
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.proved import proved_bound
from safeswap.model.suppress_invariants import EnoughByPublishedKeys, NothingUnsafe, OnlyBlanks
from safeswap.model.suppress_spec import SuppressSpec

Masks = tuple[tuple[int, float], ...]  # combinations as bits, with their tolerances

UNSAFE, BLANKED = "unsafe_combinations", "blanked_by_attribute"
"""Facts of the audit that are tables: what was unsafe before and after, and what was blanked where."""

BELOW = "records_still_below_tolerance"
"""The fact that counts the records still below the tolerance on the keys that are published of them."""


class Suppress:
    """Blank what must be blanked, and no more."""

    name: ClassVar[str] = "suppress"
    title: ClassVar[str] = "Local suppression of unsafe combinations of keys"
    spec_type: ClassVar[type[SuppressSpec]] = SuppressSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Hundepool & Willenborg 1996, μ- and τ-ARGUS: software for statistical disclosure control",
        "Willenborg & de Waal 2001, Elements of Statistical Disclosure Control, Lecture Notes in Statistics 155",
    )

    def plan(self, data: Microdata, spec: SuppressSpec, *, engine: Engine) -> ValuePlan:
        """How much is unsafe, and whether blanking can make it safe."""
        found = risky(data, as_combinations(spec))
        left = () if not found.unsafe else _never_safe(data, spec)
        text = found.sentence
        if left:
            text += f"; {_listed(left)} cannot be made safe by blanking {', '.join(spec.blankable)}"
        feasible = 0 if left else found.unsafe_records
        return ValuePlan(
            method=self.name, records=len(data), asked=found.unsafe_records, feasible=feasible, binds=left, text=text
        )

    def apply(self, data: Microdata, spec: SuppressSpec, *, key: Key, engine: Engine, replicate: int = 0) -> Masked:
        """Find the blanks, draw the records, blank them."""
        plan = self.plan(data, spec, engine=engine)
        if not plan.is_feasible:
            raise InfeasibleError(
                f"{_listed(plan.binds)} cannot be made safe: with every value of {', '.join(spec.blankable)} blanked "
                "there would still be combinations with too few records",
                code="cannot-be-safe",
                hint="keep fewer attributes, recode first, or lower the tolerance",
                combinations=list(plan.binds),
            )
        problem, of_record = problem_of(data, spec)
        answer = _answer(problem, spec)
        draws = record_words(data, key, self.name, "records", replicate=replicate)[:, 0]
        rows = _drawn_rows(answer.blanking, of_record, draws)
        changes = {
            name: _blanked(data, name, rows[j]) for j, name in enumerate(spec.names) if j in rows and rows[j].size
        }
        masked = masked_by(data, spec, plan, changes, key=key, replicate=replicate)
        facts = {**masked.audit.facts, **_facts(masked, answer)}
        return replace(masked, audit=replace(masked.audit, facts=facts))

    def invariants(self, data: Microdata, spec: SuppressSpec) -> tuple[Invariant, ...]:
        """Only blanks, other columns untouched, and nothing unsafe left by an independent count.

        Where all keys are protected in every combination, no record is below the tolerance on what is published of it.
        """
        stated = check_combinations(spec, data.schema, records=len(data))
        others = tuple(name for name in data.attributes if name not in spec.blankable)
        return (
            SameRows(),
            *((UntouchedColumns(others),) if others else ()),
            OnlyBlanks(spec.blankable),
            NothingUnsafe(stated, spec.missing, spec.weight),
            *((published_keys(spec),) if spec.guards_published_keys else ()),
            ReplaysFromAudit(),
        )


def problem_of(data: Microdata, spec: SuppressSpec) -> tuple[Problem, Rows]:
    """What is to be solved, and the class of each record.

    Where weights are summed, records with different weights are in different classes, so that it plays no part which
    of a class are blanked.
    """
    stated = check_combinations(spec, data.schema, records=len(data))
    names, costs = spec.names, spec.costs
    meaning: Meaning = "none" if spec.missing == "any" else spec.missing
    found = key_classes(data, names, missing=spec.missing, weight=spec.weight)
    if spec.weight is not None:
        found = _by_weight(data, spec.weight, found)
    combinations = tuple((mask_of([names.index(key) for key in keys]), tolerance) for keys, tolerance in stated)
    problem = Problem(
        classes=found,
        members=np.bincount(found.of_record, minlength=len(found)).astype(np.int64),
        combinations=_decisive(combinations, spec.missing),
        costs=np.array([costs[name] for name in names], np.float64),
        allowed=mask_of([names.index(name) for name in spec.blankable]),
        meaning=meaning,
    )
    return problem, found.of_record.astype(np.int64)


def _decisive(stated: Masks, missing: Missing) -> Masks:
    """The combinations that are constraints, under the stated meaning of a missing value.

    A record that lacks keys of a combination is counted by those that it has (``any``): then each part of a combination
    is one in which a missing value matches nothing. Who agrees in more keys agrees in fewer: where a blank is a value,
    or matches all, a combination is safe if one that contains it is. Where a blank matches nothing that does not hold,
    for a record may be blank in the further keys.
    """
    if missing == "none":
        return stated
    return _with_parts(stated) if missing == "any" else _not_implied(stated)


def _with_parts(stated: Masks) -> Masks:
    """The combinations and all parts of them, each with the highest tolerance of those that it is part of."""
    found: dict[int, float] = {}
    for mask, tolerance in stated:
        found[mask] = max(tolerance, found.get(mask, 0.0))
    for size in range(max(mask.bit_count() for mask in found), 1, -1):
        for mask in [mask for mask in found if mask.bit_count() == size]:
            for key in positions(mask):
                part = mask ^ 1 << key
                found[part] = max(found[mask], found.get(part, 0.0))
        if len(found) > MOST_COMBINATIONS:
            raise SpecError(
                f"these combinations have more than {MOST_COMBINATIONS:,} parts",
                code="too-many-combinations",
                hint='name combinations of fewer keys, or take missing="none"',
            )
    return tuple(found.items())


def _not_implied(stated: Masks) -> Masks:
    """The combinations that are not part of another one with at least their tolerance."""
    masks = np.array([mask for mask, _ in stated], np.int64)
    tolerances = np.array([tolerance for _, tolerance in stated])
    return tuple(
        (mask, tolerance)
        for mask, tolerance in stated
        if not ((masks & mask == mask) & (masks != mask) & (tolerances >= tolerance)).any()
    )


def _by_weight(data: Microdata, weight: str, found: Any) -> Any:
    from safeswap.model.value_order import numbers

    weights = numbers(data, weight)
    levels, ranks = np.unique(weights, return_inverse=True)
    columns = [column[found.of_record] for column in found.columns]
    return classes(
        [*columns, ranks.astype(np.uint32)],
        [*found.cardinalities, levels.size + 1],
        [*found.blanks, levels.size],
        weights,
    )


def _never_safe(data: Microdata, spec: SuppressSpec) -> tuple[str, ...]:
    """The combinations that are unsafe even with everything blanked that may be."""
    problem, _ = problem_of(data, spec)
    whole, _, _ = blanking.after(problem, blanking.everything(problem))
    if not blanking.unsafe_classes(problem, whole).any():
        return ()
    found = []
    for keys, tolerance in spec.stated():
        alone = ((mask_of([spec.names.index(key) for key in keys]), tolerance),)
        one = replace(problem, combinations=_with_parts(alone) if spec.missing == "any" else alone)
        if blanking.unsafe_classes(one, whole).any():
            found.append(" × ".join(keys))
    return tuple(found)


def _answer(problem: Problem, spec: SuppressSpec) -> Answer:
    solve = blank_least_wildcards if spec.missing == "vouching" else blank_least
    answer = solve(problem, seconds=spec.time_limit, gap=spec.gap, exact=spec.solver == "optimal")
    return replace(answer, bound=proved_bound(answer.bound, answer.cost))


def _drawn_rows(answer: Blanking, of_record: Rows, draws: Any) -> dict[int, Rows]:
    """For each key the rows in which it is blanked: of the records of a class those with the least draws."""
    rows: dict[int, list[Rows]] = {}
    involved = np.flatnonzero(np.isin(of_record, answer.classes))
    order = involved[np.lexsort((involved, draws[involved], of_record[involved]))]
    starts = np.searchsorted(of_record[order], answer.classes)
    # Sets of keys blanked in one class are neighbours in the answer: each takes the records after the one before.
    before = np.concatenate([[0], np.cumsum(answer.numbers)])[:-1]
    _, first, of_entry = np.unique(answer.classes, return_index=True, return_inverse=True)
    offset = before - before[first][of_entry]
    for start, skipped, number, mask in zip(starts, offset, answer.numbers, answer.masks, strict=True):
        taken = order[start + skipped : start + skipped + number]
        for key in range(int(mask).bit_length()):
            if int(mask) >> key & 1:
                rows.setdefault(key, []).append(taken)
    return {key: np.sort(np.concatenate(found)) for key, found in rows.items()}


def _blanked(data: Microdata, name: str, rows: Rows) -> Change:
    column = data.table.column(name)
    gone = np.zeros(len(data), np.bool_)
    gone[rows] = True
    before = column.take(pa.array(rows)).combine_chunks()
    if isinstance(before, pa.ChunkedArray):
        before = pa.concat_arrays(before.chunks)
    kept = column.take(pa.array(np.arange(len(data)), mask=gone))  # no place to take from: no value
    return Change(column=kept, replacement=Replacement(attribute=name, rows=rows, before=before))


def _proved(answer: Answer) -> str:
    """How good an answer is, in words."""
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
        "answer": _proved(answer),
        "least_possible": float(answer.bound),
        "gap": float(answer.gap) or None,
        "greedy_answer": float(answer.greedy_cost) if answer.greedy_cost > answer.cost else None,
        UNSAFE: _by_dimension(before, after),
        BLANKED: [
            {"attribute": name, "values": blanked.get(name, 0), "importance": costs[name]} for name in spec.blankable
        ],
    }


def published_keys(spec: SuppressSpec) -> EnoughByPublishedKeys:
    """The count of records by the keys that are published of them, at the lowest tolerance that is stated."""
    return EnoughByPublishedKeys(spec.names, min(tolerance for _, tolerance in spec.stated()), spec.weight)


def _by_dimension(before: Risky, after: Risky) -> list[dict[str, Any]]:
    lists = [len(each.keys) for each in before.combinations]
    return [
        {"keys": size, "lists": lists.count(size), "before": number, "after": after.by_dimension[size]}
        for size, number in before.by_dimension.items()
    ]


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
