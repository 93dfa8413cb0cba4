"""Records that agree with some others in all but one of their keys, found in one pass over the file.

The keys are dealt into three parts. Two records that differ in one key agree in two of the parts, so that it suffices
to look for records that agree with a wanted one in two parts, and among these for the ones that agree in all keys but
one. What records agree in is known by a weighted sum of their codes; a bitmap tells which sums are wanted. A few
records too many are found, and none too few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from safeswap.kernels.counter_random import item_state
from safeswap.kernels.threads import run_all, spans
from safeswap.kernels.types import Codes, Flags, Rows, UInt32s

_BLOCK = 1 << 13  # sums made at a time: they stay in the cache from one column to the next
_BITS_PER_SUM = 64  # one wanted sum in so many bits: few records are found that should not be


def agree_but_one(fixed: Sequence[Codes], keys: Sequence[Codes], wanted: Rows, skipped: Flags) -> Rows:
    """The rows, but for the skipped ones, that may agree with a wanted one in ``fixed`` and in all but one of the keys.

    >>> keys = [np.array(column, np.uint8) for column in ([0, 0, 1, 1], [2, 3, 3, 4], [5, 5, 5, 6])]
    >>> agree_but_one([], keys, np.array([0]), np.array([True, False, False, False])).tolist()
    [1]
    """
    columns = [*fixed, *keys]
    pattern = [column[wanted] for column in columns]
    in_three = _Wanted(pattern, [-1] * len(fixed) + [i % 3 for i in range(len(keys))])
    one_by_one = _Wanted(pattern, [-1] * len(fixed) + list(range(len(keys))))
    runs = spans(len(skipped))
    found: list[list[Rows]] = [[np.zeros(0, dtype=np.int64)] for _ in runs]

    def look(number: int) -> None:
        for start in range(runs[number][0], runs[number][1], _BLOCK):
            block = slice(start, min(start + _BLOCK, runs[number][1]))
            near = in_three.among([column[block] for column in columns], skipped[block]) + start
            found[number].append(near[one_by_one.among([column[near] for column in columns])])

    run_all(look, range(len(runs)))
    return np.concatenate([rows for part in found for rows in part])


class _Wanted:
    """Which records agree with a pattern in all parts but one; column i belongs to part ``parts[i]``, −1 to all."""

    def __init__(self, pattern: Sequence[Codes], parts: Sequence[int]) -> None:
        self.parts = parts
        sums = self._sums(pattern)
        bits = min(32, max(12, (_BITS_PER_SUM * sums.size).bit_length()))
        self.shift = np.uint32(32 - bits)
        self.marks = np.zeros(1 << (bits - 3), dtype=np.uint8)
        _mark(sums, self.marks, self.shift)

    def among(self, columns: Sequence[Codes], skipped: Flags | None = None) -> Rows:
        """The positions of the records that agree."""
        passed_over = np.zeros(len(columns[0]), dtype=np.bool_) if skipped is None else skipped
        found: Rows = _marked(self._sums(columns), self.marks, self.shift, passed_over)
        return found

    def _sums(self, columns: Sequence[Codes]) -> UInt32s:
        """Per part the weighted sum of its codes, and in the last row that of all."""
        sums = np.zeros((max(self.parts) + 2, len(columns[0])), dtype=np.uint32)
        for number, (column, part) in enumerate(zip(columns, self.parts, strict=True)):
            weight = np.uint32(item_state(0, number) >> np.uint64(32)) | np.uint32(1)
            _add(column, weight, sums[-1])
            if part >= 0:
                _add(column, weight, sums[part])
        return sums


@njit(cache=True, nogil=True)
def _add(column, weight, sums):  # type: ignore[no-untyped-def]
    for i in range(column.size):
        sums[i] += np.uint32(column[i]) * weight


@njit(cache=True, nogil=True, inline="always")
def _bit_without(sums, part, i, shift):  # type: ignore[no-untyped-def]
    """The bit of the sum without one part; the number of the part enters, or parts left out would look alike."""
    # Numba widens 32-bit arithmetic to 64 bits: what is meant to wrap around is cut off by hand.
    rest = np.uint32(sums[sums.shape[0] - 1, i] - sums[part, i] + np.uint32(part) * np.uint32(0x9E3779B1))
    mixed = np.uint32((rest ^ (rest >> np.uint32(15))) * np.uint32(0x85EBCA6B))
    return np.uint32(mixed >> shift)


@njit(cache=True, nogil=True)
def _mark(sums, marks, shift):  # type: ignore[no-untyped-def]
    for part in range(sums.shape[0] - 1):
        for i in range(sums.shape[1]):
            bit = _bit_without(sums, part, i, shift)
            marks[bit >> np.uint32(3)] |= np.uint8(1) << np.uint8(bit & np.uint32(7))


@njit(cache=True, nogil=True)
def _marked(sums, marks, shift, skipped):  # type: ignore[no-untyped-def]
    rows = np.empty(sums.shape[1], np.int64)
    found = 0
    for i in range(sums.shape[1]):
        hit = np.uint8(0)
        for part in range(sums.shape[0] - 1):
            bit = _bit_without(sums, part, i, shift)
            hit |= marks[bit >> np.uint32(3)] >> np.uint8(bit & np.uint32(7))
        rows[found] = i
        found += (hit & np.uint8(1)) != 0 and not skipped[i]
    return rows[:found].copy()
