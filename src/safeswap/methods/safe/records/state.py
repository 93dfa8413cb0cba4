"""The state of the search: records that may move, counts of every table, and lines of neighbouring cells.

The occupied cells that differ from a cell in one variable form a line: where its records could go, or others come from.
Lines of up to ``LONG`` cells are searched completely. Of longer ones, for an attribute of thousands of levels, only a
few cells are considered: some that want records and some that are safe, the nearest if levels are ordered. So the work
for a cell does not grow with the number of levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Flags, Floats, Int32s, Int64s

# Records have a level of each variable. A table is a subset of the variables; its occupied cells are *slots*, numbered
# across all tables. A move gives a record other levels, which takes it from slot to slot in every affected table.

NEVER = 1e18


class State(NamedTuple):
    """Everything a search looks at; records are numbered in the order of their keyed draws."""

    codes: Int32s  # record × variable: the levels as they are
    original: Int32s  # as they were
    levels: Int64s  # number of levels of each variable
    steps: Floats  # per variable: cost of one rank; 0 if levels are unordered
    strides: Int64s  # table × variable: 0 where the table does not have it
    keys: Int64s  # the codes of the occupied cells, ascending within each table
    starts: Int64s  # first slot of each table, and the end of the last
    direct: Int32s  # slot of each possible code, for small tables; −1 for none
    direct_starts: Int64s  # start of a table's part of ``direct``; −1 if slots are searched among the keys
    counts: Int64s  # number of records of the file in each slot
    heads: Int32s  # first record of each slot that may move; −1 for none
    links: Int32s  # table × record × (slot, next record of the slot, previous one)
    fixed: Flags  # variables that never change
    noise: Floats  # in [0, 1), from the secret key: breaks ties
    tolerance: int


@njit(cache=True, nogil=True)
def slot_of(state, table, code):  # type: ignore[no-untyped-def]
    """Return the slot of a cell, or −1 if the file has no record in it."""
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
    """Return the code of a cell."""
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
    """Copy the levels of a record; a loop, because slice assignment takes seconds to compile."""
    for v in range(target.size):
        target[v] = source[v]


@njit(cache=True, nogil=True)
def want(count, tolerance):  # type: ignore[no-untyped-def]
    """Return the least number of records that must leave or enter a cell until it is 0 or at least the tolerance."""
    return min(count, tolerance - count) if 0 < count < tolerance else 0


@njit(cache=True, nogil=True)
def gain(state, r, target, focus):  # type: ignore[no-untyped-def]
    """Return what a move does to the wants of all slots but ``focus``; NEVER if it makes a safe cell unsafe.

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
    """Give a record these levels; update counts and lists of every slot it leaves or enters."""
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
    """Return how far a record would be from its original: values changed, and steps along ordered levels."""
    changed, far = 0, 0.0
    for v in range(state.levels.size):
        apart = abs(np.int64(state.original[r, v]) - np.int64(target[v]))
        if apart:
            changed += 1
            far += state.steps[v] * apart if state.steps[v] > 0 else 1.0
    return changed, far


@njit(cache=True, nogil=True)
def price(state, r, target):  # type: ignore[no-untyped-def]
    """Return what a move adds to the cost: records first, then values, then distance; the key breaks ties."""
    values, far = distance(state, r, target)
    values_now, far_now = distance(state, r, state.codes[r])
    cost = 1000.0 * ((values > 0) - (values_now > 0)) + 100.0 * (values - values_now) + 20.0 * (far - far_now)
    place = r
    for v in range(state.levels.size):
        place = place * 31 + target[v]
    return cost + state.noise[place % state.noise.size]


PER_WANT = 900.0
"""The saving of a record that serves a second table: nearly a record."""


class Ties(NamedTuple):
    """The variables bound by kept margins, and what they are tied to.

    ``context[v, u]``: u is in a kept margin with v. Partners of variable v are found by the packed levels of its
    context and its own: ``groups`` ascending, members from ``begins`` on in ``members``, variable after variable.
    """

    tied: Flags
    context: Flags
    strides: Int64s  # variable × variable: packs the context of v, and v itself with stride 1
    group_starts: Int64s
    groups: Int64s
    begins: Int64s
    members: Int32s


class Journal(NamedTuple):
    """The moves of one attempt, to undo or redo: record and levels before and after."""

    length: Int64s
    records: Int64s
    before: Int32s
    after: Int32s


@njit(cache=True, nogil=True)
def make(state, journal, r, target):  # type: ignore[no-untyped-def]
    """Move a record and log it; return False if the journal is full and nothing was done."""
    n = journal.length[0]
    if n >= journal.records.size:
        return False
    journal.records[n] = r
    copy_levels(state.codes[r], journal.before[n])
    copy_levels(target, journal.after[n])
    journal.length[0] = n + 1
    move(state, r, target)
    return True


@njit(cache=True, nogil=True)
def take_back(state, journal, length):  # type: ignore[no-untyped-def]
    """Undo all moves but the first ``length``, last one first."""
    for i in range(journal.length[0] - 1, length - 1, -1):
        move(state, journal.records[i], journal.before[i])
    journal.length[0] = length


LONG = 256
"""Cells up to which a line is searched completely."""

_NEAR = 32  # most cells considered of a longer line, wanting and safe ones each
_PROBES = 4096  # most cells skipped on the way to these


class Lines(NamedTuple):
    """The lines of all tables along all of their variables, numbered consecutively, and the cells on them, ascending.

    ``first[t, v]`` is the start in ``line`` of the lines of table t's slots along variable v.
    """

    first: Int64s
    line: Int32s  # of each slot of a table, variable after variable
    begins: Int64s  # start of each line in ``slots``, and the end of the last
    slots: Int32s
    wanting: Int32s  # slots that want records, line by line
    wanting_lines: Int32s  # their lines, ascending


def lines_of(state: State) -> Lines:
    """Return all lines of a state, before it is known which slots want records."""
    tables, variables = state.strides.shape
    first = np.full((tables, variables), -1, dtype=np.int64)
    line, begins, slots = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
    entries = number = 0
    for t, v in zip(*np.nonzero(state.strides), strict=True):
        start, end = state.starts[t : t + 2]
        keys, stride = state.keys[start:end], state.strides[t, v]
        rest = keys - keys // stride % state.levels[v] * stride
        order = np.lexsort((keys, rest))
        _, counts = np.unique(rest, return_counts=True)
        own = np.empty(len(keys), dtype=np.int32)
        own[order] = np.repeat(np.arange(number, number + len(counts)), counts)
        first[t, v] = entries
        line.append(own)
        slots.append((start + order).astype(np.int32))
        begins.append(entries + np.cumsum(counts))
        entries += len(keys)
        number += len(counts)
    nothing = np.zeros(0, dtype=np.int32)
    return Lines(first, np.concatenate(line), np.concatenate(begins), np.concatenate(slots), nothing, nothing)


def record_wanting(lines: Lines, state: State, slots: Int64s) -> Lines:
    """Return the lines with these slots recorded as wanting records."""
    tables = np.searchsorted(state.starts, slots, side="right") - 1
    found, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for t, v in zip(*np.nonzero(lines.first >= 0), strict=True):
        own = slots[tables == t]
        found.append(lines.line[lines.first[t, v] + own - state.starts[t]])
        places.append(own)
    numbers, at = np.concatenate(found), np.concatenate(places)
    order = np.lexsort((at, numbers))
    return lines._replace(wanting=at[order].astype(np.int32), wanting_lines=numbers[order])


@njit(cache=True, nogil=True)
def near_cells(state, lines, table, v, slot, giving, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with occupied slots on the line of a slot along v, and return how many.

    Of a long line, those that taking a record, or ``giving`` one, brings closer to safety or leaves safe; if there are
    none, any that want records.
    """
    line = lines.line[lines.first[table, v] + slot - state.starts[table]]
    begin, end = lines.begins[line], lines.begins[line + 1]
    number = 0
    if end - begin <= LONG:
        for place in range(begin, end):
            other = np.int64(lines.slots[place])
            if other != slot and state.counts[other] > 0:
                out[number] = other
                number += 1
        return number
    low = _place(lines.wanting_lines, 0, lines.wanting_lines.size, line)
    high = _place(lines.wanting_lines, low, lines.wanting_lines.size, line + 1)
    tolerance, most = state.tolerance, np.iinfo(np.int64).max
    if giving:  # a cell of up to half the tolerance is closer to safe with one record less
        number = _add_nearest(state, lines.wanting, low, high, v, slot, 1, tolerance // 2, out, number)
        number = _add_nearest(state, lines.slots, begin, end, v, slot, tolerance + 1, most, out, number)
    else:
        number = _add_nearest(
            state, lines.wanting, low, high, v, slot, (tolerance + 1) // 2, tolerance - 1, out, number
        )
        number = _add_nearest(state, lines.slots, begin, end, v, slot, tolerance, most, out, number)
    if number == 0:
        number = _add_nearest(state, lines.wanting, low, high, v, slot, 1, tolerance - 1, out, number)
    return number


@njit(cache=True, nogil=True)
def _place(values, low, high, value):  # type: ignore[no-untyped-def]
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _add_nearest(state, slots, low, high, v, slot, least, most, out, number):  # type: ignore[no-untyped-def]
    """Add slots that hold ``least`` to ``most`` records: the nearest, or any if levels are unordered."""
    if state.steps[v] > 0:
        right = _place(slots, low, high, slot)
    else:
        right = low + np.int64(state.noise[(slot * 2_654_435_761) % state.noise.size] * (high - low))
    left = right - 1
    full = number + _NEAR
    for _ in range(_PROBES):
        if number == full or (left < low and right >= high):
            break
        if right < high:
            other = np.int64(slots[right])
            right += 1
            if other != slot and least <= state.counts[other] <= most:
                out[number] = other
                number += 1
        if left >= low and number < full:
            other = np.int64(slots[left])
            left -= 1
            if other != slot and least <= state.counts[other] <= most:
                out[number] = other
                number += 1
    return number
