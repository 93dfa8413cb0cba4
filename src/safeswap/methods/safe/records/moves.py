"""Moves of records: ways out of small cells, the passes that make tables safe, and the last resort."""

from __future__ import annotations

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Int64s
from safeswap.methods.safe.records.state import (
    LONG,
    NEVER,
    PER_WANT,
    copy_levels,
    gain,
    make,
    move,
    near_cells,
    price,
    take_back,
    want,
)

# Ways out of a cell that change two or more variables, for records that no single change makes safe.

_PROFILES = 64
_FAR_PARTNERS = 4000
_MOST_PAIRS = 1 << 16  # pairs of levels of two variables up to which all are tried
_NOBODY = np.int64(-1)


@njit(cache=True, nogil=True)
def move_far(state, ties, journal, r, table, focus):  # type: ignore[no-untyped-def]
    """Move a record out by changing two variables, or all in which another record differs; untied variables only."""
    best = NEVER
    found = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], found)
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], target)
    for v in range(state.levels.size):
        if state.strides[table, v] == 0 or state.fixed[v] or ties.tied[v]:
            continue
        for new in range(state.levels[v]):
            if new == state.codes[r, v]:
                continue
            target[v] = new
            for u in range(state.levels.size):
                if u == v or state.fixed[u] or ties.tied[u] or state.levels[v] * state.levels[u] > _MOST_PAIRS:
                    continue
                for other in range(state.levels[u]):
                    if other == state.codes[r, u]:
                        continue
                    target[u] = other
                    wants = gain(state, r, target, focus)
                    if wants < NEVER:
                        cost = price(state, r, target) + PER_WANT * wants
                        if cost < best:
                            best = cost
                            copy_levels(target, found)
                target[u] = state.codes[r, u]
        target[v] = state.codes[r, v]
    if best == NEVER:
        records = state.codes.shape[0]
        for number in range(min(_PROFILES, records)):
            like = np.int64(state.noise[(r + 7919 * number) % state.noise.size] * records)
            for v in range(state.levels.size):
                free = not (state.fixed[v] or ties.tied[v])
                target[v] = state.codes[like, v] if free else state.codes[r, v]
            wants = gain(state, r, target, focus)
            if wants < NEVER and _leaves(state, r, table, target):
                cost = price(state, r, target) + PER_WANT * wants
                if cost < best:
                    best = cost
                    copy_levels(target, found)
    if best == NEVER or not make(state, journal, r, found):
        return NEVER
    return best


@njit(cache=True, nogil=True)
def exchange_far(state, ties, journal, r, table, focus):  # type: ignore[no-untyped-def]
    """Exchange two variables at once with a partner that agrees in everything kept together with them."""
    best, found, first, second = NEVER, _NOBODY, _NOBODY, _NOBODY
    mine, theirs = np.empty(state.levels.size, dtype=np.int32), np.empty(state.levels.size, dtype=np.int32)
    length = journal.length[0]
    records = state.codes.shape[0]
    start = np.int64(state.noise[r % state.noise.size] * records)
    for number in range(min(records, _FAR_PARTNERS)):
        other = (start + number) % records
        for v in range(state.levels.size):
            if state.strides[table, v] == 0 or state.fixed[v] or state.codes[r, v] == state.codes[other, v]:
                continue
            for u in range(state.levels.size):
                if u == v or state.fixed[u] or not _may_exchange(state, ties, r, other, v, u):
                    continue
                _write_exchange(state, r, other, v, u, mine)
                _write_exchange(state, other, r, v, u, theirs)
                wants = gain(state, r, mine, focus)
                if wants == NEVER or price(state, r, mine) + PER_WANT * wants >= best:
                    continue
                cost = price(state, r, mine) + PER_WANT * wants
                if not make(state, journal, r, mine):
                    return NEVER
                wants = gain(state, other, theirs, focus)
                cost = NEVER if wants == NEVER else cost + price(state, other, theirs) + PER_WANT * wants
                take_back(state, journal, length)
                if cost < best:
                    best, found, first, second = cost, np.int64(other), np.int64(v), np.int64(u)
    if found >= 0:
        _write_exchange(state, r, found, first, second, mine)
        _write_exchange(state, found, r, first, second, theirs)
        if make(state, journal, r, mine) and make(state, journal, found, theirs):
            return best
        take_back(state, journal, length)
    return NEVER


@njit(cache=True, nogil=True)
def _may_exchange(state, ties, r, other, v, u):  # type: ignore[no-untyped-def]
    """Return True if exchanging v and u keeps every margin: both records agree in all that is tied to either."""
    agree = r != other
    for w in range(state.levels.size):
        if w not in (v, u) and ((ties.tied[v] and ties.context[v, w]) or (ties.tied[u] and ties.context[u, w])):
            agree &= state.codes[r, w] == state.codes[other, w]
    return agree


@njit(cache=True, nogil=True)
def _write_exchange(state, r, other, v, u, target):  # type: ignore[no-untyped-def]
    copy_levels(state.codes[r], target)
    target[v] = state.codes[other, v]
    target[u] = state.codes[other, u]


@njit(cache=True, nogil=True)
def _leaves(state, r, table, target):  # type: ignore[no-untyped-def]
    left = False
    for v in range(state.levels.size):
        left |= state.strides[table, v] != 0 and target[v] != state.codes[r, v]
    return left


# Make every table safe by moving few records: each small cell is emptied or filled, whichever is cheaper.
#
# A move changes one variable of a record if that suffices, two otherwise. A variable in a kept margin is exchanged with
# a partner that agrees in the rest of that margin, so that the margin stays exact.

_PARTNER = 1100.0  # usual cost of a partner: a record with one value changed


@njit(cache=True, nogil=True)
def _partner(state, ties, r, v, level, focus, looks, target):  # type: ignore[no-untyped-def]
    """Find the cheapest record to give ``level`` of variable v to record r and take r's own; −1 if there is none.

    Called after r has moved: the partner gets r's old level. ``target`` receives the partner's new levels.
    """
    own = target[v]  # the level that r had
    code = np.int64(level)
    for u in range(state.levels.size):
        if ties.context[v, u]:
            code += state.codes[r, u] * ties.strides[v, u]
    low, high = ties.group_starts[v], ties.group_starts[v + 1]
    last = high
    while low < high:
        middle = (low + high) // 2
        if ties.groups[middle] < code:
            low = middle + 1
        else:
            high = middle
    best, found, looked = NEVER, _NOBODY, 0
    if low < last and ties.groups[low] == code:
        for place in range(ties.begins[low], ties.begins[low + 1]):
            other = np.int64(ties.members[place])
            if other == r or state.codes[other, v] != level or not _same_context(state, ties, v, r, other):
                continue
            looked += 1
            if looked > looks:
                break
            copy_levels(state.codes[other], target)
            target[v] = own
            wants = gain(state, other, target, focus)
            if wants < NEVER:
                cost = price(state, other, target) + PER_WANT * wants
                if cost < best:
                    best, found = cost, other
    if found >= 0:
        copy_levels(state.codes[found], target)
        target[v] = own
    return found, best


@njit(cache=True, nogil=True)
def _same_context(state, ties, v, r, other):  # type: ignore[no-untyped-def]
    for u in range(state.levels.size):
        if ties.context[v, u] and state.codes[r, u] != state.codes[other, u]:
            return False
    return True


@njit(cache=True, nogil=True)
def _with_partner(state, ties, journal, r, v, target, focus, looks, most):  # type: ignore[no-untyped-def]
    """Move r in variable v, with a partner where v is tied; return the cost, NEVER if it is not below ``most``.

    A move that costs ``most`` at the usual price of a partner is not tried: the search for partners takes longest.
    """
    wants = gain(state, r, target, focus)
    if wants == NEVER:
        return NEVER
    cost = price(state, r, target) + PER_WANT * wants
    if cost + _PARTNER * ties.tied[v] >= most:
        return NEVER
    length = journal.length[0]
    own = state.codes[r, v]
    if not make(state, journal, r, target):
        return NEVER
    if ties.tied[v]:
        theirs = np.empty(target.size, dtype=np.int32)
        theirs[v] = own
        other, more = _partner(state, ties, r, v, target[v], focus, looks, theirs)
        if other < 0 or not make(state, journal, other, theirs):
            take_back(state, journal, length)
            return NEVER
        cost += more
    return cost


@njit(cache=True, nogil=True)
def _best_way_out(state, ties, lines, journal, r, table, focus, variables, looks):  # type: ignore[no-untyped-def]
    """Move a record out of a cell of a table in the cheapest way; return the cost, NEVER if there is none."""
    best, chosen, level = NEVER, _NOBODY, 0
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], target)
    near = np.empty(LONG, dtype=np.int64)
    length = journal.length[0]
    for turn in range(2 * state.levels.size):  # moves without a partner come first and limit the others
        v = turn % state.levels.size
        if state.strides[table, v] == 0 or state.fixed[v] or ties.tied[v] != (turn >= state.levels.size):
            continue
        own = state.codes[r, v]
        for place in range(near_cells(state, lines, table, v, focus, False, near)):
            new = own + (state.keys[near[place]] - state.keys[focus]) // state.strides[table, v]
            target[v] = new
            if ties.tied[v]:
                cost = _with_partner(state, ties, journal, r, v, target, focus, looks, best)
                take_back(state, journal, length)
            else:
                wants = gain(state, r, target, focus)
                cost = NEVER if wants == NEVER else price(state, r, target) + PER_WANT * wants
            if cost < best:
                best, chosen, level = cost, np.int64(v), new
        target[v] = own
    if chosen >= 0:
        target[chosen] = level
        return _with_partner(state, ties, journal, r, chosen, target, focus, looks, NEVER)
    if variables < 2:
        return NEVER
    cost = move_far(state, ties, journal, r, table, focus)
    return cost if cost < NEVER else exchange_far(state, ties, journal, r, table, focus)


@njit(cache=True, nogil=True)
def _empty(state, ties, lines, journal, table, slot, variables, looks):  # type: ignore[no-untyped-def]
    """Move every record out of a cell; return the cost, or NEVER with nothing moved."""
    start = journal.length[0]
    cost = 0.0
    while state.counts[slot] > 0:
        r = np.int64(state.heads[slot])  # one integer type: each other one would be compiled separately
        if r < 0:
            take_back(state, journal, start)
            return NEVER
        inside = state.counts[slot]
        more = _best_way_out(state, ties, lines, journal, r, table, slot, variables, looks)
        if more == NEVER or state.counts[slot] >= inside:  # a partner may have entered as the record left
            take_back(state, journal, start)
            return NEVER
        cost += more
    return cost


@njit(cache=True, nogil=True)
def _fill(state, ties, lines, journal, table, slot, looks, most):  # type: ignore[no-untyped-def]
    """Bring records of neighbouring cells into a cell until it is safe; return the cost, or NEVER with nothing moved.

    Give up as soon as the cost reaches ``most``.
    """
    start = journal.length[0]
    cost = 0.0
    inside = np.int64(state.heads[slot])
    if inside < 0:
        return NEVER
    target = np.empty(state.levels.size, dtype=np.int32)
    near = np.empty(LONG, dtype=np.int64)
    while state.counts[slot] < state.tolerance:
        best, donor, chosen = NEVER, _NOBODY, _NOBODY
        for turn in range(2 * state.levels.size):
            v = turn % state.levels.size
            if state.strides[table, v] == 0 or state.fixed[v] or ties.tied[v] != (turn >= state.levels.size):
                continue
            wanted = state.codes[inside, v]
            for place in range(near_cells(state, lines, table, v, slot, True, near)):
                neighbour = near[place]
                if state.counts[neighbour] == state.tolerance:
                    continue
                r, looked = np.int64(state.heads[neighbour]), 0
                while r >= 0 and looked < looks:
                    looked += 1
                    following = np.int64(state.links[table, r, 1])  # trying a move reorders the list
                    copy_levels(state.codes[r], target)
                    target[v] = wanted
                    length = journal.length[0]
                    if ties.tied[v]:
                        price_of = _with_partner(state, ties, journal, r, v, target, slot, looks, best)
                        take_back(state, journal, length)
                    else:
                        wants = gain(state, r, target, slot)
                        price_of = NEVER if wants == NEVER else price(state, r, target) + PER_WANT * wants
                    if price_of < best:
                        best, donor, chosen = price_of, r, np.int64(v)
                    r = following
        if donor < 0 or cost + best >= most:
            take_back(state, journal, start)
            return NEVER
        copy_levels(state.codes[donor], target)
        target[chosen] = state.codes[inside, chosen]
        number = state.counts[slot]
        _with_partner(state, ties, journal, donor, chosen, target, slot, looks, NEVER)
        if state.counts[slot] <= number:
            take_back(state, journal, start)
            return NEVER
        cost += best
    return cost


@njit(cache=True, nogil=True)
def make_safe(state, ties, lines, journal, spare, order, tables, variables, looks):  # type: ignore[no-untyped-def]
    """Treat the unsafe slots in this order; return how many are left. ``tables`` is the table of each slot.

    ``looks`` is the number of partners, and of donors in each neighbouring cell, to consider.
    """
    left = 0
    for position in range(order.size):
        slot, table = order[position], tables[position]
        if want(state.counts[slot], state.tolerance) == 0:
            continue
        journal.length[0] = 0
        emptied = _empty(state, ties, lines, journal, table, slot, variables, looks)
        moves = journal.length[0]
        for i in range(moves):
            spare.records[i] = journal.records[i]
            copy_levels(journal.after[i], spare.after[i])
        take_back(state, journal, 0)
        filled = _fill(state, ties, lines, journal, table, slot, looks, emptied)
        if emptied == NEVER and filled == NEVER:
            left += 1
        elif emptied < filled:
            take_back(state, journal, 0)
            for i in range(moves):
                move(state, spare.records[i], spare.after[i])
    journal.length[0] = 0
    return left


@njit(cache=True, nogil=True)
def take_back_idle(state, tied):  # type: ignore[no-untyped-def]
    """Restore the original levels of records, all or one, where every cell stays safe; return how many were restored.

    Variables ``tied`` to kept margins are left alone: their partners would have to follow.
    """
    done = 0
    target = np.empty(state.levels.size, dtype=np.int32)
    for r in range(state.codes.shape[0]):
        copy_levels(state.codes[r], target)
        changed = False
        for v in range(state.levels.size):
            if target[v] != state.original[r, v] and not tied[v]:
                target[v] = state.original[r, v]
                changed = True
        if not changed:
            continue
        if _stays_safe(state, r, target):
            move(state, r, target)
            done += 1
            continue
        for v in range(state.levels.size):
            if state.codes[r, v] != state.original[r, v] and not tied[v]:
                copy_levels(state.codes[r], target)
                target[v] = state.original[r, v]
                if _stays_safe(state, r, target):
                    move(state, r, target)
                    done += 1
    return done


@njit(cache=True, nogil=True)
def _stays_safe(state, r, target):  # type: ignore[no-untyped-def]
    wants = gain(state, r, target, np.int64(-1))
    return wants != NEVER and wants <= 0


@njit(cache=True, nogil=True)
def move_into_one(state, sink):  # type: ignore[no-untyped-def]
    """Move the records of unsafe cells to the levels of one record, repeatedly; return True if every cell is safe.

    This ends because no record moves twice, and with all records in one place every table is safe if there are enough
    of them. All records of the file must be among those that may move.
    """
    tables = state.strides.shape[0]
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[sink], target)
    there = np.zeros(state.codes.shape[0], dtype=np.bool_)
    for r in range(state.codes.shape[0]):
        there[r] = True
        for v in range(target.size):
            there[r] &= state.codes[r, v] == target[v]
    while True:
        moved = False
        unsafe = False
        for t in range(tables):
            for slot in range(state.starts[t], state.starts[t + 1]):
                if want(state.counts[slot], state.tolerance) == 0:
                    continue
                unsafe = True
                inside = np.int64(state.heads[slot])
                while inside >= 0:
                    following = np.int64(state.links[t, inside, 1])
                    if not there[inside]:
                        move(state, inside, target)
                        there[inside] = True
                        moved = True
                    inside = following
        if not unsafe:
            return True
        if not moved and not _move_one_more(state, there, target):
            return False


@njit(cache=True, nogil=True)
def _move_one_more(state, there, target):  # type: ignore[no-untyped-def]
    """Bring the next record into the sink's own cell, which is too small."""
    for r in range(there.size):
        if not there[r]:
            move(state, r, target)
            there[r] = True
            return True
    return False


def fewest_changes(counts: Int64s, tolerance: int) -> int:
    """Return the least number of records that must change until no count of a table is above 0 and below the tolerance.

    Every small cell is emptied, by records that leave, or filled, by records that enter; a record can leave one cell
    and enter another. The larger of the numbers leaving and entering is, for any λ, at least Σ min(λ·n, (1 − λ)·(Q −
    n)).

    >>> fewest_changes(np.array([1, 4, 2, 9]), 5)
    3
    """
    small = counts[(counts > 0) & (counts < tolerance)].astype(np.float64)
    best = 0.0
    for n in np.unique(small):  # the sum is concave in λ, with kinks only here
        share = (tolerance - n) / tolerance
        best = max(best, float(np.minimum(share * small, (1 - share) * (tolerance - small)).sum()))
    return int(np.ceil(best - 1e-9))
