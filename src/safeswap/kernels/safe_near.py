"""The occupied cells that differ from a cell in one variable only: where its records could go, or others come from.

Such cells form a line. Of a line of up to ``LONG`` cells all are looked at. Of a longer one, an attribute of thousands
of levels, only a few: some that want records themselves and some that are safe, the nearest where levels are ordered.
So the work for a cell does not grow with the number of levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safeswap.kernels.safe_state import State
from safeswap.kernels.types import Int32s, Int64s

LONG = 256
"""Cells up to which a line is looked at as a whole."""

_NEAR = 32  # cells looked at, at most, of a longer line: of those that want records and of those that are safe
_PROBES = 4096  # cells passed over, at most, on the way to these


class Lines(NamedTuple):
    """The lines of all tables along all of their variables, numbered through, and the cells on them, ascending.

    ``first[t, v]`` is where the lines of the slots of table t along variable v begin in ``line``.
    """

    first: Int64s
    line: Int32s  # of each slot of a table, variable after variable
    begins: Int64s  # where each line begins in ``slots``, and where the last one ends
    slots: Int32s
    wanting: Int32s  # slots that want records, line by line
    wanting_lines: Int32s  # their lines, ascending


def lines_of(state: State) -> Lines:
    """All lines of a state. Which slots want records is not known yet."""
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


def with_wanting(lines: Lines, state: State, slots: Int64s) -> Lines:
    """The lines with these slots noted as those that want records."""
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

    Of a long line those that taking a record, or ``giving`` one, brings nearer to being safe or leaves safe; where
    there are none, any that want records.
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
    if giving:  # a cell of up to half the tolerance is nearer to being safe with a record less
        number = _outwards(state, lines.wanting, low, high, v, slot, 1, tolerance // 2, out, number)
        number = _outwards(state, lines.slots, begin, end, v, slot, tolerance + 1, most, out, number)
    else:
        number = _outwards(state, lines.wanting, low, high, v, slot, (tolerance + 1) // 2, tolerance - 1, out, number)
        number = _outwards(state, lines.slots, begin, end, v, slot, tolerance, most, out, number)
    if number == 0:
        number = _outwards(state, lines.wanting, low, high, v, slot, 1, tolerance - 1, out, number)
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
def _outwards(state, slots, low, high, v, slot, least, most, out, number):  # type: ignore[no-untyped-def]
    """Add slots that hold ``least`` to ``most`` records: the nearest, or from anywhere where levels have no order."""
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
