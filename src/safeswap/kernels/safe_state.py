"""The records that may move and the counts of every table, kept up to date move by move.

A record has a level of each variable. A table is some of the variables; its occupied cells are *slots*, numbered
through all tables. A move gives a record other levels, which takes it from slot to slot in every table that has one
of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safeswap.kernels.types import Flags, Floats, Int32s, Int64s

NEVER = 1e18


class State(NamedTuple):
    """Everything that a search looks at; records are numbered in the order of their keyed draws."""

    codes: Int32s  # record × variable: the levels as they are
    original: Int32s  # as they were
    levels: Int64s  # how many each variable has
    steps: Floats  # per variable: what one rank costs; 0 where levels have no order
    strides: Int64s  # table × variable: 0 where the table does not have it
    keys: Int64s  # the codes of the occupied cells, ascending within each table
    starts: Int64s  # where the slots of each table begin, and where the last ones end
    direct: Int32s  # slot of each possible code, for tables small enough; −1 where there is none
    direct_starts: Int64s  # where a table's part of ``direct`` begins; −1 where slots are searched among the keys
    counts: Int64s  # how many records of the file each slot holds
    heads: Int32s  # the first record of each slot, of those that may move; −1 for none
    links: Int32s  # table × record × (slot, next record of the slot, previous one)
    fixed: Flags  # variables that never change
    noise: Floats  # in [0, 1), from the secret key: decides among equals
    tolerance: int


@njit(cache=True, nogil=True)
def slot_of(state, table, code):  # type: ignore[no-untyped-def]
    """The slot of a cell, or −1 where the file has no record in it."""
    start = state.direct_starts[table]
    if start >= 0:
        return np.int64(state.direct[start + code])
    low, high = state.starts[table], state.starts[table + 1]
    while low < high:
        middle = (low + high) // 2
        if state.keys[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low if low < state.starts[table + 1] and state.keys[low] == code else np.int64(-1)


@njit(cache=True, nogil=True)
def table_code(state, table, levels):  # type: ignore[no-untyped-def]
    """The code of a cell."""
    code = np.int64(0)
    for v in range(state.levels.size):
        code += levels[v] * state.strides[table, v]
    return code


@njit(cache=True, nogil=True)
def _enter(state, t, r, slot):  # type: ignore[no-untyped-def]
    following = state.heads[slot]
    state.links[t, r, 0] = slot
    state.links[t, r, 1] = following
    state.links[t, r, 2] = -1
    if following >= 0:
        state.links[t, following, 2] = r
    state.heads[slot] = r


@njit(cache=True, nogil=True)
def link_all(state):  # type: ignore[no-untyped-def]
    """Enter every record into the list of its slot in every table, so that each list is in keyed order."""
    for t in range(state.strides.shape[0]):
        for r in range(state.codes.shape[0] - 1, -1, -1):
            slot = slot_of(state, t, table_code(state, t, state.codes[r]))
            _enter(state, t, r, slot)


@njit(cache=True, nogil=True)
def copy_levels(source, target):  # type: ignore[no-untyped-def]
    """Copy the levels of a record; a loop, since assigning slices takes seconds to compile."""
    for v in range(target.size):
        target[v] = source[v]


@njit(cache=True, nogil=True)
def want(count, tolerance):  # type: ignore[no-untyped-def]
    """How many records must leave or enter a cell at least, until it is 0 or at least the tolerance."""
    return min(count, tolerance - count) if 0 < count < tolerance else 0


@njit(cache=True, nogil=True)
def gain(state, r, target, focus):  # type: ignore[no-untyped-def]
    """What a move does to the wants of all slots but ``focus``; NEVER where it makes a safe cell unsafe.

    A cell without records is never entered: one record in it would be alone.
    """
    total = 0
    for t in range(state.strides.shape[0]):
        old = np.int64(state.links[t, r, 0])
        new = slot_of(state, t, table_code(state, t, target))
        if new == old:
            continue
        if new < 0 or state.counts[new] == 0 or state.counts[old] == state.tolerance:
            return NEVER
        if old != focus:
            total += want(state.counts[old] - 1, state.tolerance) - want(state.counts[old], state.tolerance)
        if new != focus:
            total += want(state.counts[new] + 1, state.tolerance) - want(state.counts[new], state.tolerance)
    return float(total)


@njit(cache=True, nogil=True)
def move(state, r, target):  # type: ignore[no-untyped-def]
    """Give a record these levels; every slot that it leaves and enters is counted and listed anew."""
    for t in range(state.strides.shape[0]):
        old = np.int64(state.links[t, r, 0])
        new = slot_of(state, t, table_code(state, t, target))
        if new == old:
            continue
        state.counts[old] -= 1
        state.counts[new] += 1
        after, before = state.links[t, r, 1], state.links[t, r, 2]
        if before >= 0:
            state.links[t, before, 1] = after
        else:
            state.heads[old] = after
        if after >= 0:
            state.links[t, after, 2] = before
        _enter(state, t, r, new)
    for v in range(state.levels.size):
        state.codes[r, v] = target[v]


@njit(cache=True, nogil=True)
def distance(state, r, target):  # type: ignore[no-untyped-def]
    """How far a record would be from what it was: the number of values changed, and steps along ordered levels."""
    changed, far = 0, 0.0
    for v in range(state.levels.size):
        apart = abs(np.int64(state.original[r, v]) - np.int64(target[v]))
        if apart:
            changed += 1
            far += state.steps[v] * apart if state.steps[v] > 0 else 1.0
    return changed, far


@njit(cache=True, nogil=True)
def price(state, r, target):  # type: ignore[no-untyped-def]
    """What a move adds to the cost: a record first, then values, then how far; the key decides among equals."""
    values, far = distance(state, r, target)
    values_now, far_now = distance(state, r, state.codes[r])
    cost = 1000.0 * ((values > 0) - (values_now > 0)) + 100.0 * (values - values_now) + 20.0 * (far - far_now)
    place = r
    for v in range(state.levels.size):
        place = place * 31 + target[v]
    return cost + state.noise[place % state.noise.size]
