"""What a swap did, by level of the geography: for the analyst, never published.

Risk before and after, who is rare and still in the true area, how far partners live apart, how tables changed, and how
often an intruder would name the true area of a household that was moved for its risk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeswap.arrays import sparse
from safeswap.arrays.types import Flags, Floats, Int32s, Int64s, UInt64s
from safeswap.methods.household_swap.households import Households
from safeswap.methods.household_swap.pairing import FIXED
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import Swapped


def describe_swap(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    """Return the figures by level and profile, as plain values."""
    people, levels = found.population, found.population.areas.levels
    old, new = people.ranks, done.move(people.ranks)
    heads = np.flatnonzero((done.partner >= 0) & (np.arange(len(old)) < done.partner))
    crossing = {
        name: float(np.mean(levels[place, old[heads]] != levels[place, new[heads]])) if len(heads) else 0.0
        for place, name in enumerate(spec.geography)
    }
    facts: dict[str, Any] = {"crossing": crossing, "by_profile": _by_profile(found, spec, done, heads)}
    before, after, true = (dict.fromkeys(spec.geography, 0) for _ in range(3))
    if spec.k and spec.risk_variables:
        for _, was, _ in people.rarity(spec.k):
            for place, name in enumerate(spec.geography):
                before[name] += int(np.count_nonzero(was <= place))
        for run, now, _ in people.rarity(spec.k, new):
            for place, name in enumerate(spec.geography):
                rare = people.household[run][now <= place]
                after[name] += len(rare)
                true[name] += int(np.count_nonzero(levels[place, old[rare]] == levels[place, new[rare]]))
    facts |= {"rare_before": before, "rare_after": after, "rare_and_true": true}
    facts["undoing"] = undoing_chance(found, done)
    moved = np.flatnonzero((old != new)[people.household])
    sides = [rank[people.household[moved]] for rank in (old, new)]
    cell = people.cell[moved].astype(np.uint64)
    facts["misplaced"] = {
        name: _misplaced(levels[place, sides[0]], levels[place, sides[1]], cell, found)
        for place, name in enumerate(spec.geography)
    }
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


def _by_profile(found: Households, spec: HouseholdSwapSpec, done: Swapped, heads: Int64s) -> list[int]:
    """Count the pairs of households by the strictest profile in which they agree."""
    waiting = np.ones(len(heads), dtype=np.bool_)
    counts = []
    for cell in found.population.profiles:
        agree = waiting & (cell[heads] == cell[done.partner[heads]])
        counts.append(int(np.count_nonzero(agree)))
        waiting &= ~agree
    return counts


def _misplaced(old: Any, new: Any, cell: UInt64s, found: Households) -> float:
    """Return the share of persons to be moved between the cells of area × risk variables to restore the table.

    Given are the areas and the cells of those who changed places.
    """
    changed = np.flatnonzero(old != new)
    if not len(changed):
        return 0.0
    number = np.uint64(found.population.cells)
    sides = [areas[changed].astype(np.uint64) * number + cell[changed] for areas in (old, new)]
    _, before, after = sparse.count_joint(*sides)
    return float(np.abs(before - after).sum() / 2 / max(len(found.population.cell), 1))


def undoing_chance(found: Households, done: Swapped) -> dict[str, float | None]:
    """Return how often an intruder who knows all but the key names the true area of a household moved for its risk.

    The intruder sees the swapped file and knows the rules: partners agree in the loosest profile, live in another area
    at the level that had to be left, and are sought in the next wider area first. For a household with a partner at
    risk, every household at risk of its cell in the narrowest such scope is a candidate, and the area in which most of
    them are shown is the guess; ``intruder`` is the mean chance that the true one is drawn from the candidates.
    ``baseline`` is that of naming an area at random among all households of the cell.
    """
    people, areas = found.population, found.population.areas
    old, new, cell = people.ranks, done.move(people.ranks), people.profiles[-1]
    risky = np.flatnonzero((done.required < areas.depth) & (done.partner >= 0))
    if not len(risky):
        return {"intruder": None, "baseline": None}
    number = areas.levels.shape[1]
    first, shown, true = cell[risky] * number, new[risky], old[risky]
    # An area of any level is a range of areas, hence in a cell a range of these numbers.
    ordered = np.sort(first + shown)

    def count(begin: Any, end: Any) -> Int64s:
        return np.searchsorted(ordered, first + end) - np.searchsorted(ordered, first + begin)

    total = count(0, number)
    for scope in range(areas.depth):  # the narrowest one comes last
        area, starts = areas.levels[scope, shown], areas.starts[scope]
        total = np.where(area == areas.levels[scope, true], count(starts[area], starts[area + 1]), total)
    best = count(true, true + 1) / np.maximum(total - count(shown, shown + 1), 1)
    baseline = _share_among_all(found, done.partner == FIXED, new, risky)
    return {"intruder": float(best.mean()), "baseline": float(baseline.mean())}


def _share_among_all(found: Households, skipped: Flags, shown: Int32s, asked: Int64s) -> Floats:
    """Return, of all households of the cell that are shown elsewhere, the share shown in the true area."""
    people, number = found.population, np.uint64(found.population.areas.levels.shape[1])
    cell = people.profiles[-1]
    codes = cell.view(np.uint64) * number
    places = codes[asked], codes[asked]
    for code, area in zip(places, (people.ranks[asked], shown[asked]), strict=True):
        np.add(code, area.view(np.uint32), out=code)
    np.add(codes, shown.view(np.uint32), out=codes)
    wanted, at = np.unique(np.concatenate(places), return_inverse=True)
    home, here = np.split(sparse.tally_among(codes, skipped, wanted)[at], 2)
    total = (np.bincount(cell) - np.bincount(cell[skipped], minlength=int(cell.max()) + 1))[cell[asked]]
    shares: Floats = home / np.maximum(total - here, 1)
    return shares
