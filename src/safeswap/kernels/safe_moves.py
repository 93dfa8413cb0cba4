"""Make every table safe by moving few records: cell by cell, emptied or filled, whichever is cheaper.

A move changes one variable of a record where that will do, two where not. A variable in a kept margin is exchanged with
a partner that agrees in the rest of that margin, so that the margin stays exact.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safeswap.kernels.safe_far import far_exchange, far_way_out
from safeswap.kernels.safe_journal import PER_WANT, make, take_back
from safeswap.kernels.safe_near import LONG, near_cells
from safeswap.kernels.safe_state import NEVER, copy_levels, gain, move, price, want

_NOBODY = np.int64(-1)
_PARTNER = 1100.0  # what a partner costs as a rule: a record with one value changed


@njit(cache=True, nogil=True)
def _partner(state, ties, r, v, level, focus, looks, target):  # type: ignore[no-untyped-def]
    """The cheapest record to give ``level`` of variable v to record r and take r's own; −1 where there is none.

    Called after r has moved: r's old level is what the partner gets. ``target`` gets the partner's new levels.
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
    """Make a move of r in variable v, with a partner where v is tied; its cost, NEVER if it cannot be made for less.

    A move that with the usual price of a partner costs ``most`` is not tried: looking for partners takes longest.
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
    """Move a record out of a cell of a table in the cheapest way; its cost, NEVER if there is none."""
    best, chosen, level = NEVER, _NOBODY, 0
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], target)
    near = np.empty(LONG, dtype=np.int64)
    length = journal.length[0]
    for turn in range(2 * state.levels.size):  # what needs no partner comes first and is a limit for what does
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
    cost = far_way_out(state, ties, journal, r, table, focus)
    return cost if cost < NEVER else far_exchange(state, ties, journal, r, table, focus)


@njit(cache=True, nogil=True)
def _empty(state, ties, lines, journal, table, slot, variables, looks):  # type: ignore[no-untyped-def]
    """Move every record out of a cell; the cost of it, or NEVER with nothing moved."""
    start = journal.length[0]
    cost = 0.0
    while state.counts[slot] > 0:
        r = np.int64(state.heads[slot])  # one type of integers: each further one is compiled anew
        if r < 0:
            take_back(state, journal, start)
            return NEVER
        inside = state.counts[slot]
        more = _best_way_out(state, ties, lines, journal, r, table, slot, variables, looks)
        if more == NEVER or state.counts[slot] >= inside:  # a partner may have come in where the record left
            take_back(state, journal, start)
            return NEVER
        cost += more
    return cost


@njit(cache=True, nogil=True)
def _fill(state, ties, lines, journal, table, slot, looks, most):  # type: ignore[no-untyped-def]
    """Bring records of neighbouring cells into a cell until it is safe; the cost of it, or NEVER with nothing moved.

    It is given up as soon as it costs ``most``.
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
                    following = np.int64(state.links[table, r, 1])  # trying a move puts the record first in its list
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
    """Treat the unsafe slots in this order; how many are left. ``tables`` is the table of each slot of the order.

    ``looks`` is how many partners, and donors of each neighbouring cell, are looked at.
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
