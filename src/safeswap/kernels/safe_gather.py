"""One pass over a file: the records that may have to move, and an order for levels that have none of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numba import njit

from safeswap.kernels.types import Codes, Flags, Int64s, Words

_RUN = 1 << 20
_TABLE = 1 << 26


def gather(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    draws: Iterable[tuple[int, Words]],
    wanted: Flags,
    share: float,
) -> tuple[Int64s, list[Words]]:
    """The rows that are wanted or whose draw is among the lowest ``share`` of all, and each level's lowest draw.

    >>> draws = [(0, np.array([9, 4, 1 << 63], dtype=np.uint64))]
    >>> rows, first = gather([np.array([1, 0, 1], np.uint8)], [2], draws, np.array([True, False, False]), 0.25)
    >>> rows.tolist(), first[0].tolist()
    ([0, 1], [4, 9])
    """
    threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    first = [np.full(size, np.iinfo(np.uint64).max, dtype=np.uint64) for size in sizes]
    rows = []
    for start, values in draws:
        end = start + len(values)
        for column, lowest in zip(columns, first, strict=True):
            _lowest(column[start:end], values, lowest)
        rows.append(start + np.flatnonzero(wanted[start:end] | (values <= threshold)))
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows]), first


def mark(packed: Codes, possible: int, small: Int64s, flags: Flags) -> None:
    """Flag the records whose cell is one of the ``small`` ones (ascending codes).

    >>> flags = np.zeros(3, dtype=np.bool_)
    >>> mark(np.array([4, 2, 7], np.uint8), 8, np.array([2, 7]), flags)
    >>> flags.tolist()
    [False, True, True]
    """
    if possible <= _TABLE:
        table = np.zeros(possible, dtype=np.bool_)
        table[small] = True
        _mark_by_table(packed, table, flags)
        return
    for start in range(0, len(packed), _RUN):
        part = packed[start : start + _RUN].astype(np.int64)
        place = np.minimum(np.searchsorted(small, part), len(small) - 1)
        flags[start : start + _RUN] |= small[place] == part


@njit(cache=True, nogil=True)
def _lowest(codes, draws, lowest):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        lowest[codes[i]] = min(lowest[codes[i]], draws[i])


@njit(cache=True, nogil=True)
def _mark_by_table(packed, table, flags):  # type: ignore[no-untyped-def]
    for i in range(packed.size):
        if table[packed[i]]:
            flags[i] = True
