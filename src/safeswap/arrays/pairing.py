"""Pair records along a keyed order.

Records come in the order of their draws. The first record waits, the second is paired with it, the third waits again,
and so on. A pair is valid if the two are in one stratum and differ in every coordinate. Either all records share one
waiting place, so that consecutive records of the whole order are paired, or each stratum has its own, so that
consecutive records of a stratum are.

Claim: pairs come out in the order of the later of their two draws. So the first k valid pairs depend on a prefix of the
order only, and a longer prefix never changes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Flags, Int64s, Rows, UInt32s


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


WINDOW = 50
"""So many eligible records are looked at for the best partner."""

_REACH = 2_000  # further records are not looked at, even if fewer than WINDOW were eligible


class Choice(NamedTuple):
    """The criteria for partners, in keyed order: weights, values to be exchanged, and which of these are categories.

    Without values the nearest weight is best; with them, the smallest product of the differences of weights and values.
    """

    weights: Int64s
    values: Int64s
    are_categories: Flags


@njit(cache=True, nogil=True)
def walk_best(strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, choice: Choice) -> Rows:
    """Pair each record of the order with the best of the next eligible ones of its stratum, greedily.

    Eligible is who is not paired yet and differs in every coordinate. Of equally good ones the first is taken. Returns
    the pairs as positions, in the order of their first records.
    """
    records = coordinates.shape[0]
    after = np.full(records + 1, records, dtype=np.int64)  # the next record of the stratum that may be free
    latest = np.full(max(number_of_strata, 1), records, dtype=np.int64)
    for i in range(records - 1, -1, -1):
        stratum = strata[i] if len(strata) else np.uint32(0)
        after[i] = latest[stratum]
        latest[stratum] = i
    is_taken = np.zeros(records + 1, dtype=np.bool_)
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    made = 0
    for i in range(records):
        if made == len(pairs):
            break
        if is_taken[i]:
            continue
        best = -1
        least = np.int64(0)
        seen = 0
        last, j = i, after[i]
        for _ in range(_REACH):
            while j < records and is_taken[j]:
                j = after[j]
            after[last] = j  # what is taken stays so: the next search passes over it at once
            if j >= records or seen == WINDOW:
                break
            if _is_different(coordinates, i, j):
                seen += 1
                cost = _cost(choice, i, j)
                if best < 0 or cost < least:
                    best, least = j, cost
            last, j = j, after[j]
        if best >= 0:
            is_taken[i] = True
            is_taken[best] = True
            pairs[made, 0] = i
            pairs[made, 1] = best
            made += 1
    return pairs[:made]


@njit(cache=True, nogil=True, inline="always")
def _cost(choice: Choice, a: int, b: int) -> np.int64:
    apart: np.int64 = abs(choice.weights[a] - choice.weights[b])
    if choice.values.shape[1] == 0:
        return apart
    total = np.int64(0)
    for v in range(choice.values.shape[1]):
        gap = abs(choice.values[a, v] - choice.values[b, v])
        total += min(gap, np.int64(1)) if choice.are_categories[v] else gap
    cost: np.int64 = apart * total
    return cost


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


def exchange(values: Any, pairs: Rows, *, directed: bool = False) -> None:
    """Exchange the values of each pair, in place, one pair after the other.

    If ``directed``, the first of each pair takes the value that the second had before all of them.
    """
    if directed:
        values[pairs[:, 0]] = values[pairs[:, 1]]
        return
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
