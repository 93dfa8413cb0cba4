"""The effect of a swap, by level of the geography: for the analyst, never published.

Risk before and after, who is rare and still in the true area, how far partners live apart, how tables changed, and how
often an intruder would name the true area of a household that was moved for its risk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from safeswap.arrays.compiled import njit, python_if_little
from safeswap.arrays.types import Flags, Int32s, Int64s, Integers
from safeswap.methods.household_swap.households import Households
from safeswap.methods.household_swap.pairing import FIXED, pair_risky
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import STEPS_PER_PERSON, Population, Swapped

_KEYS_PER_HOUSEHOLD = 4  # of more, households are sorted instead of counted


def describe_swap(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    """Return the figures by level and profile, as plain values."""
    with python_if_little(STEPS_PER_PERSON * len(found.numbers), pair_risky):
        return _describe(found, spec, done)


def _describe(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    people, levels = found.population, found.population.areas.levels
    old, new = people.ranks, done.move(people.ranks)
    heads = np.flatnonzero(done.partner >= 0)
    heads = heads[heads < done.partner[heads]]
    crossing = {
        name: float(np.mean(levels[place, old[heads]] != levels[place, new[heads]])) if len(heads) else 0.0
        for place, name in enumerate(spec.geography)
    }
    facts: dict[str, Any] = {"crossing": crossing, "by_profile": _by_profile(found, spec, done, heads)}
    before, after, true = (dict.fromkeys(spec.geography, 0) for _ in range(3))
    if spec.k and spec.risk_variables:
        known = done.risk.rare
        was = people.count_rare(spec.k, old)[0] if known is None else np.cumsum(known)
        for name, *counts in zip(spec.geography, was.tolist(), *people.count_rare(spec.k, new), strict=False):
            before[name], after[name], true[name] = map(int, counts)
    facts |= {"rare_before": before, "rare_after": after, "rare_and_true": true}
    facts["undoing"] = undoing_chance(people, done, new)
    facts["misplaced"] = dict(zip(spec.geography, people.misplaced(new), strict=True))
    facts["by_level"] = [
        {
            "level": name,
            "partners in another area": round(crossing[name], 4),
            "rare persons before": before[name],
            "rare persons after": after[name],
            "rare and in the true area": true[name],
            "share of the table misplaced": round(facts["misplaced"][name], 5),
        }
        for name in spec.geography
    ]
    return facts


def _by_profile(found: Households, spec: HouseholdSwapSpec, done: Swapped, heads: Int64s) -> list[dict[str, Any]]:
    """Count the pairs of households by the strictest profile in which they agree."""
    waiting = np.ones(len(heads), dtype=np.bool_)
    rows = []
    for names, cell in zip(spec.profiles, found.population.profiles, strict=True):
        agree = waiting & (cell[heads] == cell[done.partner[heads]])
        common = (*names, *(["number of persons"] if spec.match_size else []))
        rows.append({"partners agree in": ", ".join(common) or "nothing", "pairs": int(np.count_nonzero(agree))})
        waiting &= ~agree
    return rows


def undoing_chance(people: Population, done: Swapped, new: Int32s) -> dict[str, float | None]:
    """Return how often an intruder who knows all but the key names the true area of a household moved for its risk.

    The intruder sees the swapped file and knows the rules: partners agree in the loosest profile, live in another area
    at the level that had to be left, and are sought in the next wider area first. For a household with a partner at
    risk, every household at risk of its cell in the narrowest such scope is a candidate, and the area in which most of
    them are shown is the guess; ``intruder`` is the mean chance that the true one is drawn from the candidates.
    ``baseline`` is that of naming an area at random among all households of the cell, and ``households`` the number of
    those moved for their risk. ``new`` are the areas shown.
    """
    cell, areas, number = people.profiles[-1], people.areas, people.areas.levels.shape[1]
    is_risky = (done.required < areas.depth) & (done.partner >= 0)
    if not is_risky.any():
        return {"intruder": None, "baseline": None, "households": 0}
    first, shown, true = cell[is_risky] * np.int64(number), new[is_risky], people.ranks[is_risky]

    def share(candidates: Flags, scopes: Iterable[int]) -> float:
        below = _count_below(cell, new, candidates, number)

        def count(begin: Any, end: Any) -> Integers:  # an area of any level is a range of areas
            return below(first + end) - below(first + begin)

        total = count(0, number)
        for scope in scopes:
            area, starts = areas.levels[scope, shown], areas.starts[scope]
            total = np.where(area == areas.levels[scope, true], count(starts[area], starts[area + 1]), total)
        return float((count(true, true + 1) / np.maximum(total - count(shown, shown + 1), 1)).mean())

    widest_first = range(areas.depth)  # so that the narrowest one counts
    chances = {"intruder": share(is_risky, widest_first), "baseline": share(done.partner != FIXED, ())}
    return {**chances, "households": int(np.count_nonzero(is_risky))}


def _count_below(cell: Integers, area: Int32s, counted: Flags, areas: int) -> Callable[[Any], Integers]:
    """Return a function that counts the households whose cell × areas + area is below each of some numbers.

    >>> cell, area = np.array([1, 0, 1, 0], np.uint16), np.array([1, 1, 1, 0], np.int32)
    >>> _count_below(cell, area, np.array([True, True, True, False]), 2)(np.array([0, 2, 3, 9])).tolist()
    [0, 1, 1, 3]
    """
    above = (int(cell.max(initial=0)) + 1) * areas
    if above > _KEYS_PER_HOUSEHOLD * len(cell):
        ordered = np.sort(cell[counted] * np.int64(areas) + area[counted])
        return lambda numbers: np.searchsorted(ordered, numbers)
    sums = np.zeros(above + 1, dtype=np.int32)
    _count_keys(cell, area, counted, areas, sums)
    np.cumsum(sums, out=sums)
    return lambda numbers: sums[np.minimum(numbers, above)]


@njit(cache=True, nogil=True)
def _count_keys(cell, area, counted, areas, counts):  # type: ignore[no-untyped-def]
    for i in range(len(cell)):
        counts[np.int64(cell[i]) * areas + area[i] + 1] += counted[i]
