"""Pairs of records whose values are near in rank: from the lowest upwards, the partner drawn from the free ones above.

Moore 1996 (controlled data swapping). The r-th free record of a window is found by a tree of counts (Fenwick 1994), so
that a window of any width costs the logarithm of the number of records.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.kernels.order import bucket_sort
from safeswap.kernels.types import Floats, Rows, Words

_HALF = np.uint64(32)


def rank_order(values: Floats, words: Words) -> Rows:
    """Rows from the lowest value to the highest; equal values in the order of their draws (two words per record).

    Records are put in the order of their draws first, in linear time, and then sorted without disturbing it.

    >>> rank_order(np.array([2.0, 1.0, 2.0]), np.array([[5, 0], [9, 0], [3, 0]], np.uint64)).tolist()
    [1, 2, 0]
    """
    if not len(values):
        return np.empty(0, dtype=np.int64)
    by_draw, met = bucket_sort(np.arange(len(values), dtype=np.int64), np.ascontiguousarray(words[:, 0]))
    if met:  # two draws of 64 bits met: the second word decides
        by_draw = np.lexsort((words[:, 1], words[:, 0]))
    return np.asarray(by_draw[np.argsort(values[by_draw], kind="stable")])


@njit(cache=True, nogil=True)
def pairs_within(ordered: Floats, draws: Words, window: int) -> Rows:
    """Disjoint pairs of places at most ``window`` apart whose values differ.

    ``ordered`` are the values from the lowest to the highest, ``draws`` one uniform word per place. The lowest place
    without a partner takes one of the free places above it, each with the same probability, that has another value and
    lies within the window; where there is none it keeps its value.

    >>> pairs_within(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4, np.uint64), 1).tolist()
    [[0, 1], [2, 3]]
    """
    number = len(ordered)
    tree = _all_free(number)
    taken = np.zeros(number, dtype=np.bool_)
    pairs = np.empty((number // 2, 2), dtype=np.int64)
    made = 0
    behind = 0  # the first place above i with another value
    for i in range(number):
        if behind <= i:
            behind = i + 1
        while behind < number and ordered[behind] == ordered[i]:
            behind += 1
        end = min(number, i + window + 1)
        if taken[i] or behind >= end:
            continue
        below = _free_before(tree, behind)
        free = _free_before(tree, end) - below
        if free == 0:
            continue
        # The leading half of a word times a number below 2³², cut off: uniform to one part in 2³².
        drawn = int(((draws[i] >> _HALF) * np.uint64(free)) >> _HALF)
        partner = _nth_free(tree, below + drawn)
        taken[i] = taken[partner] = True
        _take(tree, i)
        _take(tree, partner)
        pairs[made, 0], pairs[made, 1] = i, partner
        made += 1
    return pairs[:made]


@njit(cache=True, nogil=True)
def _all_free(number: int) -> npt.NDArray[np.int32]:
    tree = np.empty(number + 1, dtype=np.int32)
    for i in range(number + 1):
        tree[i] = i & -i
    return tree


@njit(cache=True, nogil=True)
def _free_before(tree: npt.NDArray[np.int32], place: int) -> int:
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(cache=True, nogil=True)
def _take(tree: npt.NDArray[np.int32], place: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] -= 1
        place += place & -place


@njit(cache=True, nogil=True)
def _nth_free(tree: npt.NDArray[np.int32], n: int) -> int:
    """The place before which n places are free and which is free itself."""
    place = 0
    step = 1
    while 2 * step < len(tree):
        step *= 2
    while step:
        if place + step < len(tree) and tree[place + step] <= n:
            place += step
            n -= tree[place]
        step //= 2
    return place
