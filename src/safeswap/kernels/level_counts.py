"""Records counted by level as they pass by, and levels by the one around them, with an array for each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels import hashing
from safeswap.kernels.types import Codes

_MOST = 1 << 62
_ONE = np.uint64(1)
_NOWHERE = np.uint32(2**32 - 1)


class LevelCounts:
    """How many records have each code.

    >>> counts = LevelCounts()
    >>> counts.add(np.array([1, 3], np.uint32), 4)
    >>> counts.add(np.array([5, 1], np.uint32), 6)
    >>> counts.total([1, 5, 99])
    3
    """

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, codes: Codes, bound: int) -> None:
        """Count records, all of whose codes are below ``bound``."""
        self._counts = _grown(self._counts, bound, 0)
        _count(codes, self._counts)

    def total(self, codes: list[int]) -> int:
        """How many records have one of these codes."""
        known = [code for code in codes if code < len(self._counts)]
        return int(self._counts[known].sum())


class Nesting:
    """Which area of a coarser level each area of a finer one lies in, and which lie in several.

    >>> nesting = Nesting()
    >>> nesting.add(np.array([1, 2], np.uint32), np.array([1, 1], np.uint32), 3)
    >>> nesting.add(np.array([2, 2], np.uint32), np.array([1, 2], np.uint32), 3)
    >>> nesting.straddling
    1
    """

    def __init__(self) -> None:
        self._around: npt.NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        self._straddles: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def add(self, fine: Codes, coarse: Codes, bound: int) -> None:
        """Look at records; the codes of their areas of the finer level are below ``bound``."""
        self._around = _grown(self._around, bound, _NOWHERE)
        self._straddles = _grown(self._straddles, bound, 0)
        _look_around(fine, coarse, self._around, self._straddles)

    @property
    def straddling(self) -> int:
        """How many areas of the finer level lie in more than one of the coarser."""
        return int(np.count_nonzero(self._straddles))


class Among:
    """Which records have one of some combinations of codes, without looking at more columns than need be.

    >>> among = Among([3, 9], np.array([[1, 2], [2, 8]]))
    >>> among.flags([np.array([1, 1, 2], np.uint32), np.array([2, 8, 8], np.uint32)]).tolist()
    [True, False, True]
    """

    def __init__(self, bounds: Sequence[int], combinations: npt.NDArray[np.int64]) -> None:
        # Columns that together make a number; those beyond are left to others.
        fit = [i for i in range(len(bounds) + 1) if prod(bounds[:i]) < _MOST]
        self._bounds = [int(bound) for bound in bounds[: fit[-1]]]
        wanted = np.zeros(len(combinations), dtype=np.uint64)
        for column, bound in zip(combinations.T, self._bounds, strict=False):
            wanted = wanted * np.uint64(bound) + column.astype(np.uint64)
        self._wanted = np.unique(wanted)
        self._slots = np.zeros(1 << (4 * len(self._wanted) + 1).bit_length(), dtype=np.int32)
        hashing.enter(self._wanted, self._slots)

    def flags(self, columns: Sequence[Codes]) -> npt.NDArray[np.bool_]:
        """Of each record whether it may have one: never False where it has, and right unless there are 2⁶² and more."""
        packed = np.zeros(len(columns[0]), dtype=np.uint64)
        for column, bound in zip(columns, self._bounds, strict=False):
            packed *= np.uint64(bound)
            packed += column
        flags = np.empty(len(packed), dtype=np.bool_)
        _look_up(packed, self._wanted, self._slots, flags)
        return flags


def _grown(array: npt.NDArray[Any], bound: int, filling: Any) -> npt.NDArray[Any]:
    """An array of at least ``bound`` entries; it grows by so much at a time that growing costs little."""
    if len(array) >= bound:
        return array
    more = np.full(max(bound, len(array) + len(array) // 2) - len(array), filling, dtype=array.dtype)
    return np.concatenate([array, more])


@numba.njit(cache=True, nogil=True)
def _count(codes, counts):  # type: ignore[no-untyped-def]
    for code in codes:
        counts[code] += 1


@numba.njit(cache=True, nogil=True)
def _look_around(fine, coarse, around, straddles):  # type: ignore[no-untyped-def]
    for i in range(fine.size):
        if around[fine[i]] == _NOWHERE:
            around[fine[i]] = coarse[i]
        elif around[fine[i]] != coarse[i]:
            straddles[fine[i]] = 1


@numba.njit(cache=True, nogil=True)
def _look_up(packed, wanted, slots, flags):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for i in range(packed.size):
        slot = hashing.scramble(packed[i]) & mask
        while slots[slot] != 0 and wanted[slots[slot] - 1] != packed[i]:
            slot = (slot + _ONE) & mask
        flags[i] = slots[slot] != 0
