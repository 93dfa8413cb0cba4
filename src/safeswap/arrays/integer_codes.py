"""Number the distinct integers of a column in the order in which they first appear, a batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import njit
from safeswap.arrays.sparse import scramble
from safeswap.arrays.types import Int64s

_FIRST_TABLE = 1 << 12
_ONE = np.uint64(1)


class IntegerCodes:
    """The numbers assigned so far.

    >>> numbers = IntegerCodes()
    >>> numbers.code(np.array([7, 7, -2])).tolist(), numbers.code(np.array([5, -2])).tolist()
    ([0, 0, 1], [2, 1])
    >>> numbers.levels.tolist()
    [7, -2, 5]
    """

    def __init__(self, known: npt.NDArray[Any] | None = None, *, most: int = 0) -> None:
        # Number + 1, so that 0 is an empty slot; None while levels ascend.
        self._slots: npt.NDArray[np.int32] | None = None
        # With room for ``most`` levels at once: what is not filled is never touched, and copying would cost more.
        self._levels = np.empty(max(most, _FIRST_TABLE // 2), np.int64)
        self._found = 0
        self._short: npt.NDArray[np.int32] | None = None
        if known is not None:  # distinct values, numbered in this order
            self.code(known)

    @property
    def levels(self) -> Int64s:
        """The distinct integers, indexed by their number."""
        return self._levels[: self._found]

    def take_levels(self) -> Int64s:
        """Return the distinct integers without a copy; nothing can be numbered afterwards."""
        levels, self._levels = self._levels, np.empty(0, np.int64)
        levels.resize(self._found, refcheck=False)
        return levels

    def code(self, values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the number of each integer (any width up to 64 bits, signed); written to ``out`` if given."""
        codes = np.empty(values.size, np.uint32) if out is None else out
        if values.dtype.itemsize <= 2:
            return self._code_short(values, codes)
        done = 0
        while self._slots is None:  # as in a file sorted by area: a value above the last level is new
            done, self._found = _number_ascending(values, codes, done, self._levels, self._found)
            if done == values.size:
                return codes
            self._grow(with_slots=self._found < self._levels.size)
        while True:
            room = self._levels[: self._slots.size // 2]
            done, self._found = _number(values, codes, done, self._slots, room, self._found)
            if done == values.size:
                return codes
            self._grow(with_slots=True)

    def count(self, values: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        """Add each integer that has a number to the count of that number; others are left out.

        >>> numbers, counts = IntegerCodes(np.array([7, -2])), np.zeros(2, np.int32)
        >>> numbers.count(np.array([-2, 5, -2, 7]), counts)
        >>> counts.tolist()
        [1, 2]
        """
        if self._short is not None:
            number = self._short[values.astype(np.int64) & 0xFFFF]
            np.add.at(counts, number[number >= 0], 1)
            return
        if self._slots is None:
            _count_ascending(values, self.levels, counts)
        else:
            _count_known(values, self._slots, self._levels, counts)

    def _code_short(self, values: npt.NDArray[Any], codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Number short integers by a table over all possible values instead of a hash. All batches must be short."""
        if self._short is None:
            self._short = np.full(1 << 16, -1, np.int32)
            self._levels = np.empty(1 << 16, np.int64)
        self._found = _number_short(values, codes, self._short, self._levels, self._found)
        return codes

    def _grow(self, *, with_slots: bool) -> None:
        """Make room for more levels if there is none left; with slots, twice as many as levels that have room."""
        if self._found == self._levels.size:
            levels = np.empty(4 * self._levels.size, np.int64)
            levels[: self._found] = self.levels
            self._levels = levels
        if with_slots:
            size = _FIRST_TABLE
            while size <= 2 * self._found:
                size *= 4
            self._slots = np.zeros(size, np.int32)
            _enter(self._levels, self._found, self._slots)


def look_up(table: npt.NDArray[Any], places: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Write ``table[places]`` to ``out``.

    >>> out = np.zeros(3, np.uint8)
    >>> look_up(np.array([7, 9], np.uint32), np.array([1, 1, 0], np.int32), out)
    >>> out.tolist()
    [9, 9, 7]
    """
    if places.size and not 0 <= places.min() <= places.max() < table.size:
        raise IndexError("a place is not in the table")
    take(np.ascontiguousarray(table, dtype=out.dtype), places, out)


MISSING_TEXT = np.int64(-(1 << 63))
"""What no text is packed to."""

_FIRST_SIGN, _LAST_SIGN = ord("+"), ord("9")  # between them: , - . / and the digits


@njit(cache=True, nogil=True)
def pack_texts(offsets, content, words):  # type: ignore[no-untyped-def]
    """Pack each text into a word of its own; return False if one cannot be packed.

    Up to eight ASCII characters are their bytes, and the highest bit is 0. Up to fifteen digits, signs and points are
    four bits each, none of them 0, and the highest bit is 1.
    """
    for i in range(words.size):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        word = np.uint64(0)
        if size <= 8:
            for j in range(size):
                byte = content[start + j]
                if byte == 0 or byte > 127:
                    return False
                word |= np.uint64(byte) << np.uint64(8 * j)
        elif size <= 15:
            for j in range(size):
                byte = content[start + j]
                if byte < _FIRST_SIGN or byte > _LAST_SIGN:
                    return False
                word |= np.uint64(byte - _FIRST_SIGN + 1) << np.uint64(4 * j)
            word |= np.uint64(1 << 63)
        else:
            return False
        words[i] = np.int64(word)
    return True


@njit(cache=True, nogil=True)
def mark(flags, places):  # type: ignore[no-untyped-def]
    """Set the flags at some places, which must exist."""
    for i in range(places.size):
        flags[places[i]] = True


@njit(cache=True, nogil=True)
def take(table, places, out):  # type: ignore[no-untyped-def]
    """Write the values of a table at some places, which must exist."""
    for i in range(places.size):
        out[i] = table[places[i]]


@njit(cache=True, nogil=True)
def _number_ascending(values, codes, start, levels, found):  # type: ignore[no-untyped-def]
    """Number the values from ``start``, as long as none is below the last level and there is room."""
    for i in range(start, values.size):
        value = np.int64(values[i])
        if found == 0 or value != levels[found - 1]:
            if found == levels.size or (found > 0 and value < levels[found - 1]):
                return i, found
            levels[found] = value
            found += 1
        codes[i] = found - 1
    return values.size, found


@njit(cache=True, nogil=True)
def _number(values, codes, start, slots, levels, found):  # type: ignore[no-untyped-def]
    """Number the values from ``start``, as far as the table has room."""
    mask = np.uint64(slots.size - 1)
    last, number = np.int64(0), np.int64(-1)
    for i in range(start, values.size):
        value = np.int64(values[i])
        if value == last and number >= 0:  # runs are frequent: files are often sorted by area
            codes[i] = number
        elif number + 1 < found and levels[number + 1] == value:  # and so is the next level in order
            last, number = value, number + 1
            codes[i] = number
        else:
            slot = scramble(value) & mask
            while slots[slot] != 0 and levels[slots[slot] - 1] != value:
                slot = (slot + _ONE) & mask
            if slots[slot] == 0:
                if found == levels.size:
                    return i, found
                levels[found] = value
                found += 1
                slots[slot] = found
            last, number = value, np.int64(slots[slot] - 1)
            codes[i] = number
    return values.size, found


@njit(cache=True, nogil=True)
def _count_known(values, slots, levels, counts):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    number = np.int64(-1)
    for i in range(values.size):
        value = np.int64(values[i])
        if i == 0 or value != values[i - 1]:  # else as for the one before
            slot = scramble(value) & mask
            while slots[slot] != 0 and levels[slots[slot] - 1] != value:
                slot = (slot + _ONE) & mask
            number = np.int64(slots[slot]) - 1
        if number >= 0:
            counts[number] += 1


@njit(cache=True, nogil=True)
def _count_ascending(values, levels, counts):  # type: ignore[no-untyped-def]
    place = 0  # of the first level that is not below the value
    for value in values:
        if place < levels.size and levels[place] < value and (place + 1 == levels.size or levels[place + 1] >= value):
            place += 1  # the next level: most files are sorted alike
        elif (place < levels.size and levels[place] < value) or (place > 0 and levels[place - 1] >= value):
            place = np.searchsorted(levels, value)
        if place < levels.size and levels[place] == value:
            counts[place] += 1


@njit(cache=True, nogil=True)
def _number_short(values, codes, table, levels, found):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        value = np.int64(values[i])
        number = table[value & 0xFFFF]
        if number < 0:
            number = found
            table[value & 0xFFFF] = number
            levels[found] = value
            found += 1
        codes[i] = number
    return found


@njit(cache=True, nogil=True)
def _enter(levels, found, slots):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for j in range(found):
        slot = scramble(levels[j]) & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1
