"""Sort records by an integer code: byte by byte, stable, in linear time and on all cores.

Codes come with the number of possible ones, so only the bytes that can differ are looked at. Every run of records has
its own counts and its own places to write to, computed beforehand: the result depends neither on the number of threads
nor on their timing, and records of one code stay in the order in which they came.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from safeswap.kernels.threads import run_all, spans
from safeswap.kernels.types import Codes, UInt32s

_BITS = 8  # 256 streams to write to: as many as the address cache holds; wider digits were slower in every trial
_MOST_RECORDS = 1 << 31


def sort_rows(codes: Codes, cells: int, rows: UInt32s | None = None) -> tuple[Codes, UInt32s]:
    """The codes in ascending order, and the row from which each came.

    ``cells`` is above every code. ``rows`` says where the records stand to begin with, which is how ties are broken:
    in file order, unless another one is given.

    >>> codes, rows = sort_rows(np.array([2, 0, 2, 1], np.uint8), 3)
    >>> codes.tolist(), rows.tolist()
    ([0, 1, 2, 2], [1, 3, 0, 2])
    >>> sort_rows(np.array([2, 0, 2, 1], np.uint8), 3, np.array([3, 2, 1, 0], np.uint32))[1].tolist()
    [1, 3, 2, 0]
    """
    if codes.size >= _MOST_RECORDS:
        raise ValueError("more than 2**31 - 1 records do not fit one call")
    if rows is not None:
        codes = codes[rows]
    place = np.arange(codes.size, dtype=np.uint32) if rows is None else rows
    ordered = np.ascontiguousarray(codes, dtype=f"uint{8 * codes.dtype.itemsize}")
    for shift in range(0, max(cells - 1, 0).bit_length(), _BITS):
        ordered, place = _sorted_by_digit(ordered, place, ordered.dtype.type(shift))
    return ordered, place


def _sorted_by_digit(codes: Codes, rows: UInt32s, shift: np.unsignedinteger[Any]) -> tuple[Codes, UInt32s]:
    runs = spans(codes.size)
    mask = codes.dtype.type((1 << _BITS) - 1)
    counts = np.zeros((len(runs), 1 << _BITS), np.int64)
    run_all(lambda r: _count_digit(codes[slice(*runs[r])], shift, mask, counts[r]), range(len(runs)))
    totals = counts.sum(axis=0)
    places = np.cumsum(totals) - totals + np.cumsum(counts, axis=0) - counts
    moved, moved_rows = np.empty_like(codes), np.empty_like(rows)

    def move(r: int) -> None:
        run = slice(*runs[r])
        _move(codes[run], rows[run], shift, mask, places[r], moved, moved_rows)

    run_all(move, range(len(runs)))
    return moved, moved_rows


@numba.njit(cache=True, nogil=True)
def _count_digit(codes, shift, mask, counts):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        counts[(codes[i] >> shift) & mask] += 1


@numba.njit(cache=True, nogil=True)
def _move(codes, rows, shift, mask, places, moved, moved_rows):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        digit = (codes[i] >> shift) & mask
        place = places[digit]
        moved[place] = codes[i]
        moved_rows[place] = rows[i]
        places[digit] = place + 1
