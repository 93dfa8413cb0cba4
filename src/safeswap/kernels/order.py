"""Records in the order of their keyed draws, a prefix of it at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.kernels import keyed
from safeswap.kernels.types import Rows, Words

_WORTH_BUCKETS = 20_000


def prefix(identity: npt.NDArray[np.int64] | Words, key: bytes, share: float) -> Rows:
    """The rows whose draw is among the lowest ``share`` of all possible draws, in the order of their draws.

    >>> rows = prefix(np.arange(1000), bytes(32), 1.0)
    >>> sorted(rows.tolist()) == list(range(1000)), len(prefix(np.arange(1000), bytes(32), 0.1)) < 200
    (True, True)
    """
    threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    rows: list[Rows] = []
    values: list[Words] = []
    for start, draws in keyed.draw_chunks(identity, key):
        found = np.flatnonzero(draws <= threshold)
        rows.append(found + start)
        values.append(draws[found])
    if not rows:
        return np.zeros(0, dtype=np.int64)
    return _sorted(np.concatenate(rows), np.concatenate(values), identity, key)


def weighted(identity: npt.NDArray[np.int64] | Words, key: bytes, weights: npt.NDArray[np.float64]) -> Rows:
    """All rows in the order of a weighted draw without replacement (an exponential race).

    At every step a record is drawn with probability proportional to its weight among those not yet drawn
    (Efraimidis & Spirakis 2006).
    """
    draws = np.concatenate([values.copy() for _, values in keyed.draw_chunks(identity, key)])
    arrival = arrivals(draws, weights)
    order: Rows = np.argsort(arrival)
    if (np.diff(arrival[order]) == 0).any():
        full = keyed.encrypt(_blocks(identity), key)
        order = np.lexsort((full[:, 1], full[:, 0], arrival))
    return order


def arrivals(draws: Words, weights: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
    """When each record arrives in the race: an exponential time from its draw, the sooner the heavier it is.

    >>> arrivals(np.array([0, 2**63], np.uint64), 2.0).round(4).tolist()
    [0.0, 0.3466]
    """
    uniform = (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53
    times: npt.NDArray[np.float64] = -np.log1p(-uniform) / weights
    return times


def sortable(times: npt.NDArray[np.float64]) -> Words:
    """Times, none of which is negative, as integers in the same order, for engines that sort integers.

    >>> sortable(np.array([0.0, 0.25, 3.0])).argsort().tolist()
    [0, 1, 2]
    """
    return np.ascontiguousarray(times).view(np.uint64)


def _blocks(identity: npt.NDArray[np.int64] | Words) -> Words:
    return keyed.integer_blocks(identity.view(np.int64)) if identity.ndim == 1 else identity.view(np.uint64)


def _sorted(rows: Rows, values: Words, identity: npt.NDArray[np.int64] | Words, key: bytes) -> Rows:
    if len(rows) < _WORTH_BUCKETS:
        order = np.argsort(values)
        ordered: Rows = rows[order]
        met = bool((np.diff(values[order]) == 0).any())
    else:
        ordered, met = bucket_sort(rows, values)
    if met:
        # Two draws of 64 bits met; the whole cipher text, which is unique, decides. Row numbers must not.
        full = keyed.encrypt(_blocks(identity[rows]), key)
        ordered = rows[np.lexsort((full[:, 1], full[:, 0], values))]
    return ordered


@njit(cache=True, nogil=True)
def bucket_sort(rows: Rows, values: Words) -> tuple[Rows, bool]:
    """Rows by their values, and whether two values are equal.

    Draws are uniform, so dealing them into buckets by their leading bits leaves a handful in each: linear time. Values
    that are not uniform are sorted just as correctly, only slower.
    """
    n = len(rows)
    largest = values.max()
    shift = np.uint64(0)
    while (largest >> shift) >= np.uint64(n // 4 + 2):  # two at least: a word cannot be shifted by all of its 64 bits
        shift += np.uint64(1)
    start = np.zeros((largest >> shift) + np.uint64(2), dtype=np.int64)
    for value in values:
        start[(value >> shift) + np.uint64(1)] += 1
    for b in range(1, len(start)):
        start[b] += start[b - 1]
    place = start[:-1].copy()
    sorted_rows = np.empty_like(rows)
    sorted_values = np.empty_like(values)
    for i in range(n):
        bucket = values[i] >> shift
        sorted_rows[place[bucket]] = rows[i]
        sorted_values[place[bucket]] = values[i]
        place[bucket] += 1
    met = False
    for b in range(len(start) - 1):
        met |= _insertion_sort(sorted_rows, sorted_values, start[b], start[b + 1])
    return sorted_rows, met


@njit(cache=True, nogil=True)
def _insertion_sort(rows: Rows, values: Words, start: int, end: int) -> bool:
    met = False
    for i in range(start + 1, end):
        value, row = values[i], rows[i]
        j = i - 1
        while j >= start and values[j] > value:
            values[j + 1] = values[j]
            rows[j + 1] = rows[j]
            j -= 1
        values[j + 1] = value
        rows[j + 1] = row
        met |= j >= start and values[j] == value
    return met
