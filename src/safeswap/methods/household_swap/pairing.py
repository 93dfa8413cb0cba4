"""Pair households that must move with each other and with donors, nearest first.

Two households *may swap* if they agree in the profile and their areas differ at level ``min(q, q', L - 1)``, with q
the topmost level at which a household must leave its area (L: it need not move). Areas nest, so one comparison serves
both, and no swap is a no-op.

Claim: within one profile cell and scope, the households of one required level form a complete multipartite graph of
their areas. With R of them and m in the largest area, R - max(2m - R, R mod 2) are paired with each other; those left
over lie in one area and take donors outside it. What is still left over is for :mod:`search`.

Every choice depends on keyed draws, never on codes or row order, so that neither names, rows nor threads matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safeswap.arrays.compiled import inner, njit
from safeswap.arrays.types import Int32s, Int64s, Integers, UInt8s, UInt64s

FREE, FIXED = -1, -2
"""In place of a partner: none so far; never one."""

BY_RISK, RISKY_FIRST, UNIFORM = np.int64(0), np.int64(1), np.int64(2)
"""How donors are taken: in proportion to their risk, the same with risky ones first, or all alike.

NumPy's integers, as Numba would compile kernels once more for each literal one. For the same reason, places that
kernels hand on begin as ``np.int64(0)``, and kernels that only kernels call are made by ``inner``.
"""

_TOP_BIT = np.uint64(1 << 63)
_LARGEST_CELL = (1 << 24) - 1  # with the 40 upper bits of a draw, the product fits 64 bits
_STEPS_PER_CELL = 20_000_000


class Ground(NamedTuple):
    """The facts about each household and area that the kernels use; ``partner`` is what they change."""

    required: UInt8s  # topmost level at which it must leave its area; the number of levels if it need not
    area: Int32s  # numbers in the order of the paths: an area of any level is one range of them
    levels: Int32s  # [level, area]: the area of that level; the last row is the country
    draw: UInt64s
    smallest: Int32s  # bottom cell of a member
    partner: Int32s


class Profile(NamedTuple):
    """Households sorted by cell of a similarity profile and area: by cell × areas + area.

    ``starts`` has the first place of each such key; of too many keys, ``keys`` has those of the households instead.
    """

    cell: Integers
    order: Int32s
    starts: Int32s
    keys: Int64s


class Reach(NamedTuple):
    """One pass: households of a required level look for partners in the areas of a scope."""

    level: int
    scope: int  # a level, or the number of levels for the country
    level_starts: Int64s
    scope_starts: Int64s
    donors: bool
    taken: np.int64  # BY_RISK, RISKY_FIRST or UNIFORM
    crowd: int
    spread: int


@njit(cache=True, nogil=True)
def may_swap(g: Ground, one: int, other: int) -> bool:
    """Return whether two households of one cell lie in different areas at the level that matters."""
    level = min(g.required[one], g.required[other], g.levels.shape[0] - 2)
    return bool(g.levels[level, g.area[one]] != g.levels[level, g.area[other]])


@njit(cache=True, nogil=True)
def find_key(p: Profile, key: int) -> int:
    """Return the place of the first household whose cell and area have this key or a larger one."""
    if len(p.starts):
        return int(p.starts[key])
    low, high = 0, len(p.keys)
    while low < high:
        middle = (low + high) // 2
        if p.keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _priority(g, household):  # type: ignore[no-untyped-def]
    """Return draw × smallest cell: ascending order is a sample in proportion to 1 / cell."""
    return (g.draw[household] >> np.uint64(24)) * np.uint64(min(g.smallest[household], _LARGEST_CELL))


@njit(cache=True, nogil=True)
def choose(risky: Int32s, level: int, g: Ground, p: Profile) -> tuple[Int32s, UInt64s]:
    """Return those that have no partner, of one required level; and a number for each one's cell and area of it."""
    todo, group, number = np.empty_like(risky), np.empty(len(risky), np.uint64), 0
    for household in risky:
        if g.partner[household] == FREE:
            todo[number] = household
            group[number] = np.int64(p.cell[household]) * g.levels.shape[1] + g.levels[level, g.area[household]]
            number += 1
    return todo[:number], group[:number]


@njit(cache=True, nogil=True)
def pair_risky(todo: Int32s, g: Ground, p: Profile, reach: Reach) -> Int32s:
    """Pair ``todo``, sorted by cell and area of their level, within the areas of the scope; return who is left.

    Below the country, risky households are paired with each other only in a crowd: each has at least ``crowd`` risky
    candidates, in at least ``spread`` other areas. Otherwise they wait for donors, or for a wider scope.
    """
    left = np.empty(len(todo), todo.dtype)
    number = 0
    start = np.int64(0)
    while start < len(todo):
        stop, low, most, groups = _find_scope(todo, start, g, p, reach)
        is_country = reach.scope == g.levels.shape[0] - 1
        if not is_country and (stop - start - most < reach.crowd or groups <= reach.spread):
            if reach.donors:
                _hide_among_donors(todo, start, stop, g, p, reach)
        else:
            _pair_areas(todo, start, stop, low, low + most, g)
            if reach.donors:
                _give_donors(todo, low, low + most, g, p, reach, reach.taken)
        for i in range(start, stop):
            if g.partner[todo[i]] == FREE:
                left[number] = todo[i]
                number += 1
        start = stop
    return left[:number]


@inner
def _find_scope(todo, start, g, p, reach):  # type: ignore[no-untyped-def]
    """Return the end of the run of one cell and scope, the largest area's start and size, and the number of areas."""
    cell, scope = p.cell[todo[start]], g.levels[reach.scope, g.area[todo[start]]]
    stop, low, most, groups = start, start, np.int64(0), 0
    while stop < len(todo) and p.cell[todo[stop]] == cell and g.levels[reach.scope, g.area[todo[stop]]] == scope:
        end = _end_of_area(todo, stop, len(todo), g, p, reach.level)
        if end - stop > most:
            low, most = stop, end - stop
        groups += 1
        stop = end
    return stop, low, most, groups


@inner
def _end_of_area(todo, start, stop, g, p, level):  # type: ignore[no-untyped-def]
    cell, area = p.cell[todo[start]], g.levels[level, g.area[todo[start]]]
    end = start
    while end < stop and p.cell[todo[end]] == cell and g.levels[level, g.area[todo[end]]] == area:
        end += 1
    return end


@inner
def _join(g, one, other):  # type: ignore[no-untyped-def]
    g.partner[one] = other
    g.partner[other] = one


@inner
def _pair_areas(todo, start, stop, low, high, g):  # type: ignore[no-untyped-def]
    """Pair position i with i + R/2, or everyone with the largest area, low to high, if that holds more than half."""
    if 2 * (high - low) > stop - start:
        place = low
        for i in range(start, stop):
            if i < low or i >= high:
                _join(g, todo[i], todo[place])
                place += 1
        return
    skipped = high - 1 if (stop - start) % 2 else -1  # of an odd number, the last of the largest area waits
    half = (stop - start) // 2
    one, other, seen = start, start, 0
    while seen < half:
        seen += other != skipped
        other += 1
    for _ in range(half):
        one += one == skipped
        other += other == skipped
        _join(g, todo[one], todo[other])
        one += 1
        other += 1


@inner
def _hide_among_donors(todo, start, stop, g, p, reach):  # type: ignore[no-untyped-def]
    """Give donors, all alike, to the households of each area: too few are at risk to hide among each other."""
    low = start
    while low < stop:
        high = _end_of_area(todo, low, stop, g, p, reach.level)
        _give_donors(todo, low, high, g, p, reach, UNIFORM)
        low = high


@inner
def _give_donors(todo, low, high, g, p, reach, taken):  # type: ignore[no-untyped-def]
    """Give donors of the scope outside their area to the free households from ``low`` to ``high``, of one area."""
    wanted = np.int64(0)
    for i in range(low, high):
        wanted += g.partner[todo[i]] == FREE
    if wanted == 0:
        return
    areas = g.levels.shape[1]
    first = np.int64(p.cell[todo[low]]) * areas
    scope = g.levels[reach.scope, g.area[todo[low]]]
    own = g.levels[reach.level, g.area[todo[low]]]
    begin = find_key(p, first + reach.scope_starts[scope])
    end = find_key(p, first + reach.scope_starts[scope + 1])
    own_begin = find_key(p, first + reach.level_starts[own])
    own_end = find_key(p, first + reach.level_starts[own + 1])
    is_country = reach.scope == g.levels.shape[0] - 1
    if not is_country and own_begin - begin + end - own_end < reach.crowd:
        return
    got = _take_donors(todo[low], wanted, g, p, begin, own_begin, own_end, end, taken)
    place = 0
    for i in range(low, high):
        if g.partner[todo[i]] == FREE and place < len(got):
            _join(g, todo[i], got[place])
            place += 1


@inner
def _rank(g, donor, taken):  # type: ignore[no-untyped-def]
    if taken == UNIFORM:
        return g.draw[donor]
    last = taken == RISKY_FIRST and g.required[donor] >= g.levels.shape[0] - 1
    return (_priority(g, donor) >> np.uint64(1)) | (_TOP_BIT if last else np.uint64(0))


@inner
def _take_donors(household, wanted, g, p, begin, own_begin, own_end, end, taken):  # type: ignore[no-untyped-def]
    """Return the free households outside the own area that come first, in their order."""
    found = np.empty(own_begin - begin + end - own_end, p.order.dtype)
    number = 0
    best, best_rank = np.int64(-1), np.uint64(0)
    for i in range(begin, end):
        if own_begin <= i < own_end:
            continue
        donor = p.order[i]
        if g.partner[donor] != FREE or not may_swap(g, household, donor):
            continue
        if wanted > 1:
            found[number] = donor
            number += 1
            continue
        rank = _rank(g, donor, taken)
        if best < 0 or rank < best_rank or (rank == best_rank and g.draw[donor] < g.draw[best]):
            best, best_rank = donor, rank
    if wanted == 1:
        if best >= 0:
            found[0] = best
            number = 1
        return found[:number]
    return _first_by_rank(found[:number], wanted, g, taken)


@inner
def _first_by_rank(found, wanted, g, taken):  # type: ignore[no-untyped-def]
    ranks = np.empty(len(found), np.uint64)
    for i in range(len(found)):
        ranks[i] = _rank(g, found[i], taken)
    return found[: _sort_first(found, ranks, wanted, g)]


@inner
def _sort_first(found, ranks, wanted, g):  # type: ignore[no-untyped-def]
    """Bring the first households by rank, then draw, to the front, sorted; return their number.

    A heap of those kept so far, the last one on top. NumPy's sorts would take longer to compile than all the rest.
    """
    kept = min(wanted, len(found))
    if kept == 0:
        return kept
    for root in range(kept // 2 - 1, -1, -1):
        _sift_down(found, ranks, root, kept, g)
    for i in range(kept, len(found)):
        if _is_before(found, ranks, i, 0, g):
            found[0], ranks[0] = found[i], ranks[i]
            _sift_down(found, ranks, np.int64(0), kept, g)
    for end in range(kept - 1, 0, -1):
        found[0], found[end] = found[end], found[0]
        ranks[0], ranks[end] = ranks[end], ranks[0]
        _sift_down(found, ranks, np.int64(0), end, g)
    return kept


@inner
def _sift_down(found, ranks, root, end, g):  # type: ignore[no-untyped-def]
    child = 2 * root + 1
    while child < end:
        if child + 1 < end and _is_before(found, ranks, child, child + 1, g):
            child += 1
        if not _is_before(found, ranks, root, child, g):
            return
        found[root], found[child] = found[child], found[root]
        ranks[root], ranks[child] = ranks[child], ranks[root]
        root = child
        child = 2 * root + 1


@inner
def _is_before(found, ranks, one, other, g):  # type: ignore[no-untyped-def]
    if ranks[one] != ranks[other]:
        return ranks[one] < ranks[other]
    return g.draw[found[one]] < g.draw[found[other]]


@njit(cache=True, nogil=True)
def repair(left: Int32s, g: Ground, p: Profile) -> None:
    """Help households left over, sorted by cell, by the shortest rearrangements of their cell.

    A household takes x from its partner y if y need not move or finds another z. This is what nearly always helps, and
    it is cheap; :mod:`search` decides the rest, and all that exceeds the budget of a cell.
    """
    steps, cell = 0, np.int64(-1)
    areas = g.levels.shape[1]
    for household in left:
        if g.partner[household] != FREE:
            continue
        if p.cell[household] != cell:
            cell, steps = np.int64(p.cell[household]), 0
        begin, end = find_key(p, cell * areas), find_key(p, (cell + 1) * areas)
        steps += end - begin
        if steps > _STEPS_PER_CELL or _release_donor(household, g, p, begin, end):
            continue
        steps += _pass_on(household, g, p, begin, end, _STEPS_PER_CELL - steps)


@inner
def _release_donor(household, g, p, begin, end):  # type: ignore[no-untyped-def]
    """Take a household whose partner need not move; return whether there is one."""
    best, bottom = np.int64(-1), g.levels.shape[0] - 1
    for i in range(begin, end):
        x = p.order[i]
        y = g.partner[x]
        if y < 0 or g.required[y] < bottom or not may_swap(g, household, x):
            continue
        if best < 0 or g.draw[x] < g.draw[best]:
            best = x
    if best < 0:
        return False
    g.partner[g.partner[best]] = FREE
    _join(g, household, best)
    return True


@inner
def _pass_on(household, g, p, begin, end, budget):  # type: ignore[no-untyped-def]
    """Take a household whose partner finds another one; return how many households were looked at."""
    best, other, steps = -1, -1, 0
    for i in range(begin, end):
        x = p.order[i]
        y = g.partner[x]
        if y < 0 or not may_swap(g, household, x) or (best >= 0 and g.draw[x] > g.draw[best]):
            continue
        if steps > budget:
            return steps
        z = _find_free(household, y, g, p, begin, end)
        steps += end - begin
        if z >= 0:
            best, other = x, z
    if best >= 0:
        y = g.partner[best]
        _join(g, household, best)
        _join(g, y, other)
    return steps


@inner
def _find_free(but, household, g, p, begin, end):  # type: ignore[no-untyped-def]
    """Return a free household that may swap with this one, risky ones first, or −1."""
    best, bottom = np.int64(-1), g.levels.shape[0] - 1
    for i in range(begin, end):
        z = p.order[i]
        if z == but or g.partner[z] != FREE or not may_swap(g, household, z):
            continue
        is_risky, had = g.required[z] < bottom, best >= 0 and g.required[best] < bottom
        if best < 0 or (is_risky and not had) or (is_risky == had and g.draw[z] < g.draw[best]):
            best = z
    return best


@njit(cache=True, nogil=True)
def sort_by_priority(starts: Int32s, order: Int32s, short: Int64s, g: Ground) -> None:
    """Sort the households of each area that is short by priority, in place."""
    for a in range(len(starts) - 1):
        some = order[starts[a] : starts[a + 1]]
        if short[a] == 0 or len(some) < 2:
            continue
        ranks = np.empty(len(some), np.uint64)
        for i in range(len(some)):
            ranks[i] = _priority(g, some[i])
        _sort_first(some, ranks, len(some), g)


@njit(cache=True, nogil=True)
def top_up(short: Int64s, scope_starts: Int64s, g: Ground, p: Profile, starts: Int32s, order: Int32s) -> None:
    """Pair households that need not move until each area has as many swaps as it should; ``short`` says how many lack.

    The shortages of the areas of a scope are paired first, as risky households are; then two households of one cell
    are found for each pair of areas, those of small cells first. ``order`` has the households by area and priority.
    """
    head = starts[:-1].copy()
    for s in range(len(scope_starts) - 1):
        one, other = _pair_shortages(short, scope_starts[s], scope_starts[s + 1])
        for i in range(len(one)):
            if one[i] != other[i] and _swap_between(one[i], other[i], head, g, p, starts, order):
                short[one[i]] -= 1
                short[other[i]] -= 1


@inner
def _pair_shortages(short, begin, end):  # type: ignore[no-untyped-def]
    """Return pairs of areas, each area as often as it is short."""
    total, most, largest = 0, 0, -1
    for a in range(begin, end):
        total += short[a]
        if short[a] > most:
            most, largest = short[a], a
    slots = np.empty(total, np.int64)
    number, low = 0, 0
    for a in range(begin, end):
        if a == largest:
            low = number
        slots[number : number + short[a]] = a
        number += short[a]
    if 2 * most > total:
        others = np.concatenate((slots[:low], slots[low + most :]))
        return np.full(len(others), largest), others
    if total % 2:
        slots = np.concatenate((slots[: low + most - 1], slots[low + most :]))
    half = len(slots) // 2
    return slots[:half], slots[half:]


@inner
def _swap_between(one, other, head, g, p, starts, order):  # type: ignore[no-untyped-def]
    """Pair the first household of one area that has a partner in the other; return whether there is one."""
    bottom, areas = g.levels.shape[0] - 1, g.levels.shape[1]
    while head[one] < starts[one + 1] and not _need_not_move(order[head[one]], g, bottom):
        head[one] += 1
    for i in range(head[one], starts[one + 1]):
        household = order[i]
        if not _need_not_move(household, g, bottom):
            continue
        key, best = np.int64(p.cell[household]) * areas + other, np.int64(-1)
        for place in range(find_key(p, key), find_key(p, key + 1)):
            donor = p.order[place]
            if _need_not_move(donor, g, bottom) and (best < 0 or _comes_first(donor, best, g)):
                best = donor
        if best >= 0:
            _join(g, household, best)
            return True
    return False


@inner
def _need_not_move(household, g, bottom):  # type: ignore[no-untyped-def]
    return g.partner[household] == FREE and g.required[household] >= bottom


@inner
def _comes_first(one, other, g):  # type: ignore[no-untyped-def]
    first, second = _priority(g, one), _priority(g, other)
    return first < second if first != second else g.draw[one] < g.draw[other]


@njit(cache=True, nogil=True)
def open_pairs(short: Int64s, g: Ground, p: Profile, starts: Int32s, order: Int32s) -> None:
    """Help areas that are short of two or more: two of their households join the two of a pair elsewhere.

    Shortages that are left after the country was searched lie in one area, which has nobody to exchange with.
    """
    bottom, areas = g.levels.shape[0] - 1, g.levels.shape[1]
    for area in range(areas):
        i = starts[area]
        while short[area] >= 2 and i < starts[area + 1]:
            household = order[i]
            i += 1
            if not _need_not_move(household, g, bottom):
                continue
            cell = np.int64(p.cell[household])
            other = _find_other(household, g, p, cell * areas + area, bottom)
            if other < 0:
                continue
            begin, end = find_key(p, cell * areas), find_key(p, (cell + 1) * areas)
            best = _find_pair_outside(area, g, p, begin, end)
            if best >= 0:
                mate = g.partner[best]
                _join(g, household, best)
                _join(g, other, mate)
                short[area] -= 2


@inner
def _find_other(household, g, p, key, bottom):  # type: ignore[no-untyped-def]
    """Return the next household of the same cell and area that need not move, or −1."""
    best = np.int64(-1)
    for place in range(find_key(p, key), find_key(p, key + 1)):
        found = p.order[place]
        if found != household and _need_not_move(found, g, bottom) and (best < 0 or _comes_first(found, best, g)):
            best = found
    return best


@inner
def _find_pair_outside(area, g, p, begin, end):  # type: ignore[no-untyped-def]
    """Return the first of a pair that need not move and does not touch the area, the one with the lowest draw."""
    best, bottom = np.int64(-1), g.levels.shape[0] - 1
    for i in range(begin, end):
        one = p.order[i]
        other = g.partner[one]
        if other < 0 or g.required[one] < bottom or g.required[other] < bottom:
            continue
        if g.area[one] != area and g.area[other] != area and (best < 0 or g.draw[one] < g.draw[best]):
            best = one
    return best
