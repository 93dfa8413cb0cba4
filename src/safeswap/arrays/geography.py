"""Nested areas: cut a file into them, and check that the areas of a file are nested."""

from __future__ import annotations

import numba
import numpy as np
from numba import njit

from safeswap.arrays.counter_random import item_state, odds, uniform
from safeswap.arrays.threads import run_all, spans
from safeswap.arrays.types import Codes, Int64s

# Whether the areas of one level lie each within one area of a coarser level.


@numba.njit(cache=True, nogil=True)
def straddling(fine: Codes, coarse: Codes, areas: int) -> int:
    """How many of the finer areas (codes below ``areas``) lie in more than one coarser area.

    Codes of ``areas`` and above stand for an unknown area and are passed over.

    >>> straddling(np.array([0, 0, 1, 2], np.uint8), np.array([0, 1, 1, 0], np.uint8), 2)
    1
    """
    parent = np.full(areas, -1, np.int64)
    twice = np.zeros(areas, np.bool_)
    for i in range(fine.size):
        area = fine[i]
        if area >= areas:
            continue
        if parent[area] < 0:
            parent[area] = coarse[i]
        elif parent[area] != coarse[i]:
            twice[area] = True
    return int(np.sum(twice))


@njit(cache=True, nogil=True)
def cut(sizes: Int64s, parts: Int64s, roots: int, seed: int) -> Int64s:
    """Return the sizes of ``parts[i]`` areas into which area i is cut; none is empty, and they add up to ``sizes[i]``.

    Weights are powers of log-logistic draws, the 2**(1 − roots)-th: with ``roots`` 1 a few areas hold most (as towns
    do), with 3 all are of about one size (as tracts are).

    >>> cut(np.array([1000, 3]), np.array([4, 3]), 2, 1990).tolist()[4:]
    [1, 1, 1]
    """
    out = np.empty(parts.sum(), dtype=np.int64)
    first = 0
    for area in range(len(sizes)):
        number = parts[area]
        weights = np.empty(number)
        state = item_state(seed, area)
        for j in range(number):
            weight = odds(uniform(state, j))
            for _ in range(roots - 1):
                weight = np.sqrt(weight)
            weights[j] = weight
        total = weights.sum()
        # Everyone gets one; the rest goes by cumulative weight, rounded down, so that nothing is lost on the way.
        rest = sizes[area] - number
        reached = 0.0
        given = 0
        for j in range(number):
            reached += weights[j]
            upto = rest if j == number - 1 else min(rest, np.int64(rest * (reached / total)))
            out[first + j] = 1 + upto - given
            given = upto
        first += number
    return out


def parents(fine: Codes, coarse: Codes, areas: int) -> Int64s | None:
    """For each fine area the coarse one in which it lies, −1 where it does not occur; None if one lies in two.

    >>> parents(np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 0], np.uint8), 3).tolist()
    [0, 0, 1]
    >>> parents(np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8), 3) is None
    True
    """
    runs = spans(fine.size)
    found = np.full((len(runs), areas), -1, dtype=np.int64)
    nested = np.ones(len(runs), dtype=np.bool_)

    def look(number: int) -> None:
        run = slice(*runs[number])
        nested[number] = _parents_of_run(fine[run], coarse[run], found[number])

    run_all(look, range(len(runs)))
    lowest = np.where(found < 0, np.iinfo(np.int64).max, found).min(axis=0, initial=np.iinfo(np.int64).max)
    highest = found.max(axis=0, initial=-1)
    agree = bool(((lowest == highest) | (highest < 0)).all())
    return highest if agree and bool(nested.all()) else None


@njit(cache=True, nogil=True)
def _parents_of_run(fine: Codes, coarse: Codes, found: Int64s) -> bool:
    for i in range(len(fine)):
        parent = np.int64(coarse[i])
        known = found[fine[i]]
        if known != parent:
            if known >= 0:
                return False
            found[fine[i]] = parent
    return True


@njit(cache=True, nogil=True)
def in_one_area(groups: Codes, areas: Codes, number: int) -> Int64s:
    """Return the rows of those of the ``number`` groups whose records all lie in one area.

    >>> in_one_area(np.array([0, 1, 0, 1], np.uint8), np.array([5, 6, 5, 7], np.uint8), 2).tolist()
    [0, 2]
    """
    first = np.full(number, -1, dtype=np.int64)
    several = np.zeros(number, dtype=np.bool_)
    for i in range(len(groups)):
        known = first[groups[i]]
        if known < 0:
            first[groups[i]] = areas[i]
        elif known != np.int64(areas[i]):
            several[groups[i]] = True
    rows = np.empty(len(groups), dtype=np.int64)
    found = 0
    for i in range(len(groups)):
        rows[found] = i
        found += not several[groups[i]]
    return rows[:found].copy()
