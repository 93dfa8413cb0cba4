"""What a swap did, by level of the geography: for the analyst, never published.

Risk before and after, who is rare and still in the true area, how far partners live apart, how tables changed, and how
often an intruder would name the true area of a household that was moved for its risk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from safeswap.arrays import sparse
from safeswap.arrays.types import Floats, Int64s, UInt64s
from safeswap.methods.household_swap.households import Households
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import Swapped


def describe_swap(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    """Return the figures by level and profile, as plain values."""
    people, levels = found.population, found.population.areas.levels
    old, new = people.ranks, people.ranks[done.new_households]
    heads = np.flatnonzero((done.partner >= 0) & (np.arange(len(old)) < done.partner))
    crossing = {
        name: float(np.mean(levels[place, old[heads]] != levels[place, new[heads]])) if len(heads) else 0.0
        for place, name in enumerate(spec.geography)
    }
    facts: dict[str, Any] = {"crossing": crossing, "by_profile": _by_profile(found, spec, done, heads)}
    before, after, true = (dict.fromkeys(spec.geography, 0) for _ in range(3))
    if spec.k and spec.risk_variables:
        was, _ = people.rarity(spec.k)
        now, _ = people.rarity(spec.k, new)
        for place, name in enumerate(spec.geography):
            rare = people.household[now <= place]
            before[name] = int(np.count_nonzero(was <= place))
            after[name] = len(rare)
            true[name] = int(np.count_nonzero(levels[place, old[rare]] == levels[place, new[rare]]))
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
    people = found.population
    levels, depth = people.areas.levels, people.areas.depth
    old, new = people.ranks, people.ranks[done.new_households]
    cell = people.profiles[-1]
    risky = np.flatnonzero((done.required < depth) & (done.partner >= 0))
    if not len(risky):
        return {"intruder": None, "baseline": None}
    everyone = np.flatnonzero(done.partner != -2)
    baseline = _share_in_area(cell.take, new, risky, old, everyone)
    best = np.zeros(len(risky))
    known = np.zeros(len(risky), dtype=np.bool_)
    for scope in range(depth - 1, -1, -1):
        inside = levels[scope, new[risky]] == levels[scope, old[risky]]
        here = np.flatnonzero(inside & ~known)
        if len(here):
            number, areas = int(levels[scope].max()) + 1, levels[scope]
            joint = partial(_join_scope, cell, number, areas, new)
            best[here] = _share_in_area(joint, new, risky[here], old, risky)
            known[here] = True
    rest = np.flatnonzero(~known)
    if len(rest):
        best[rest] = _share_in_area(cell.take, new, risky[rest], old, risky)
    return {"intruder": float(best.mean()), "baseline": float(baseline.mean())}


def _join_scope(cell: Int64s, number: int, areas: Any, shown: Any, some: Int64s) -> Int64s:
    """Return the cell and the area of a level of some households, as one number."""
    joined: Int64s = cell[some] * number + areas[shown[some]]
    return joined


def _share_in_area(
    group: Callable[[Int64s], Int64s], shown: Any, asked: Int64s, true: Any, candidates: Int64s
) -> Floats:
    """Return, of the candidates of each household's group shown elsewhere, the share shown in its true area."""
    place, groups = sparse.rank_codes(np.concatenate([group(candidates), group(asked)]).view(np.uint64))
    mine, own = place[: len(candidates)], place[len(candidates) :]
    wanted = np.zeros(groups, dtype=np.bool_)
    wanted[own] = True
    kept = np.flatnonzero(wanted[mine])
    candidates, mine = candidates[kept], mine[kept]
    areas = np.uint64(int(shown.max()) + 1)
    pairs = [(mine, shown[candidates]), (own, shown[asked]), (own, true[asked])]
    keys = [each * areas + where.astype(np.uint64) for each, where in pairs]
    ranks, number = sparse.rank_codes(np.concatenate(keys))
    listed, here, home = np.split(ranks.view(np.int64), np.cumsum([len(each) for each in keys[:2]]))
    counts = np.bincount(listed, minlength=number)
    total = np.bincount(mine.view(np.int64), minlength=groups)[own]
    shares: Floats = counts[home] / np.maximum(total - counts[here], 1)
    return shares
