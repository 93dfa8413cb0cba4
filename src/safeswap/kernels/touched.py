"""The records that a candidate touches: the first pairs of a walk along the keyed order, and the cells they change.

Records stand in keyed order, a row of labels each, so that a walk reads memory from front to back and stops as soon as
it has its pairs. The pairs are those of :func:`safeswap.kernels.pairing.walk`; here they are found from the labels of
the attributes themselves, without a packed code per choice of attributes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safeswap.kernels.types import Codes, Int64s, UInt32s


@njit(cache=True, nogil=True)
def gather(labels: Codes, rows: Int64s, strides: Int64s) -> tuple[Codes, Int64s]:
    """The labels of some rows, in that order, and the cell of each: the sum of labels times strides."""
    found = np.empty((len(rows), labels.shape[1]), dtype=labels.dtype)
    cells = np.empty(len(rows), dtype=np.int64)
    for i in range(len(rows)):
        cell = 0
        for a in range(labels.shape[1]):
            label = labels[rows[i], a]
            found[i, a] = label
            cell += np.int64(label) * strides[a]
        cells[i] = cell
    return found, cells


@njit(cache=True, nogil=True)
def first_pairs(
    labels: Codes,
    strata: UInt32s,
    number_of_strata: int,
    swapped: Int64s,
    every: bool,
    differ: Int64s,
    wanted: int,
    by_stratum: bool,
) -> Int64s:
    """The first ``wanted`` pairs that count, as positions in the order; fewer where the records end before.

    A pair counts if it differs in any attribute of ``swapped`` (in all of them where ``every``) and in all of
    ``differ``, within a stratum. ``strata`` is empty where there is one stratum. With ``by_stratum`` the consecutive
    records of each stratum are paired, else those of the whole order.
    """
    records = labels.shape[0]
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    waiting = np.full(max(number_of_strata, 1), -1, dtype=np.int64)
    made = 0
    i = 0
    while i < records and made < wanted:
        stratum = np.int64(strata[i]) if len(strata) else 0
        place = stratum if by_stratum else 0
        other = waiting[place]
        if other < 0:
            waiting[place] = i
        else:
            waiting[place] = -1
            if (not len(strata) or strata[other] == strata[i]) and _counts(labels, other, i, swapped, every, differ):
                pairs[made, 0] = other
                pairs[made, 1] = i
                made += 1
        i += 1
    return pairs[:made]


@njit(cache=True, nogil=True, inline="always")
def _counts(labels: Codes, a: int, b: int, swapped: Int64s, every: bool, differ: Int64s) -> bool:
    different = 0
    for s in swapped:
        different += labels[a, s] != labels[b, s]
    if different < (len(swapped) if every else 1):
        return False
    for d in differ:  # noqa: SIM110  (a loop that Numba compiles)
        if labels[a, d] == labels[b, d]:
            return False
    return True


@njit(cache=True, nogil=True)
def moves(labels: Codes, cells: Int64s, pairs: Int64s, swapped: Int64s, strides: Int64s) -> tuple[Int64s, Int64s]:
    """The cell of each touched record before and after; the records of pair i stand at 2i and 2i + 1."""
    old = np.empty(2 * len(pairs), dtype=np.int64)
    new = np.empty(2 * len(pairs), dtype=np.int64)
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        shift = 0
        for s in swapped:
            shift += (np.int64(labels[b, s]) - np.int64(labels[a, s])) * strides[s]
        old[2 * i] = cells[a]
        old[2 * i + 1] = cells[b]
        new[2 * i] = cells[a] + shift
        new[2 * i + 1] = cells[b] - shift
    return old, new
