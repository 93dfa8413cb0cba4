"""Pair records along a keyed order.

Records come in the order of their draws. The first record waits, the second is paired with it, the third waits again,
and so on. A pair is valid if the two are in one stratum and differ in every coordinate. Either all records share one
waiting place, so that consecutive records of the whole order are paired, or each stratum has its own, so that
consecutive records of a stratum are.

Claim: pairs come out in the order of the later of their two draws. So the first k valid pairs depend on a prefix of the
order only, and a longer prefix never changes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Rows, UInt32s


def walk(
    strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    """Pair along the order until ``wanted`` pairs are valid or the records end.

    ``strata`` holds a label below ``number_of_strata`` per record (or is empty: one stratum), ``coordinates`` one row
    per record. With ``by_stratum`` each stratum has its own waiting place. Returns the valid pairs as positions in the
    order, the number of records visited, and the number of pairs formed.
    """
    find = _walk if is_worth_compiling(8 * len(coordinates)) else _walk_in_numpy
    return find(strata, number_of_strata, coordinates, wanted, by_stratum)


def _walk_in_numpy(
    strata: UInt32s, _: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    """Form all pairs at once, put them in the order of their later record, and stop at the last one wanted."""
    records = len(coordinates)
    labels = strata if len(strata) else np.zeros(records, dtype=np.uint32)
    order = np.argsort(labels, kind="stable") if by_stratum else np.arange(records)
    ends = np.flatnonzero(np.diff(labels[order])) + 1 if by_stratum else np.zeros(0, dtype=np.int64)
    starts = np.r_[0, ends].astype(np.int64)
    rank = np.arange(records) - np.repeat(starts, np.diff(np.r_[starts, records]))
    second = np.flatnonzero(rank % 2)
    pairs = np.stack([order[second - 1], order[second]], axis=1)
    pairs = pairs[np.argsort(pairs[:, 1])]
    first, later = pairs.T
    is_valid = (coordinates[first] != coordinates[later]).all(axis=1) & (labels[first] == labels[later])
    valid = np.flatnonzero(is_valid)
    if len(valid) < wanted:
        return pairs[valid], records, len(pairs)
    if not wanted:
        return pairs[:0], 0, 0
    last = int(valid[wanted - 1])
    return pairs[valid[:wanted]], int(later[last]) + 1, last + 1


@njit(cache=True, nogil=True)
def _walk(
    strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    records = coordinates.shape[0]
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    waiting = np.full(max(number_of_strata, 1), -1, dtype=np.int64)
    made = 0
    formed = 0
    i = 0
    while i < records and made < wanted:
        stratum = strata[i] if len(strata) else np.uint32(0)
        place = stratum if by_stratum else np.uint32(0)
        other = waiting[place]
        if other < 0:
            waiting[place] = i
        else:
            waiting[place] = -1
            formed += 1
            if (not len(strata) or strata[other] == stratum) and _is_different(coordinates, other, i):
                pairs[made, 0] = other
                pairs[made, 1] = i
                made += 1
        i += 1
    return pairs[:made], i, formed


@njit(cache=True, nogil=True, inline="always")
def _is_different(coordinates: UInt32s, a: int, b: int) -> bool:
    for j in range(coordinates.shape[1]):  # noqa: SIM110  (a loop that Numba compiles)
        if coordinates[a, j] == coordinates[b, j]:
            return False
    return True


@njit(cache=True, nogil=True)
def assign_moves(class_of: UInt32s, moves: Rows, number_of_classes: int) -> Rows:
    """Assign moves between classes to records: move (a, b, x) pairs the next x records of a with the next x of b.

    ``class_of`` is in keyed order, so "next" is random. Returns positions in that order, a row per pair.
    """
    first = np.zeros(number_of_classes + 1, dtype=np.int64)
    for c in class_of:
        first[c + 1] += 1
    for c in range(number_of_classes):
        first[c + 1] += first[c]
    place = first[:-1].copy()
    members = np.empty(len(class_of), dtype=np.int64)
    for i in range(len(class_of)):
        members[place[class_of[i]]] = i
        place[class_of[i]] += 1
    pairs = np.empty((moves[:, 2].sum(), 2), dtype=np.int64)
    made = 0
    for m in range(len(moves)):
        a, b = moves[m, 0], moves[m, 1]
        for _ in range(moves[m, 2]):
            pairs[made, 0] = members[first[a]]
            pairs[made, 1] = members[first[b]]
            first[a] += 1
            first[b] += 1
            made += 1
    return pairs


def exchange(values: Any, pairs: Rows) -> None:
    """Exchange the values of each pair, in place, one pair after the other."""
    if is_worth_compiling(50 * len(pairs)):
        _exchange(values, pairs)
        return
    for a, b in pairs.tolist():
        values[a], values[b] = values[b], values[a]


@njit(cache=True, nogil=True)
def _exchange(values: Any, pairs: Rows) -> None:
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        values[a], values[b] = values[b], values[a]
