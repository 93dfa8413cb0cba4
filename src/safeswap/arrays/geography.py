"""Nested areas: divide records into them, and check that the areas of a file nest."""

from __future__ import annotations

import numpy as np

from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.counter_random import item_state, odds, uniform
from safeswap.arrays.types import Codes, Int64s


@njit(cache=True, nogil=True)
def count_straddling(fine: Codes, coarse: Codes, areas: int) -> int:
    """Count the finer areas (codes below ``areas``) that lie in more than one coarser area.

    Codes of ``areas`` and above mean an unknown area and are skipped.

    >>> count_straddling(np.array([0, 0, 1, 2], np.uint8), np.array([0, 1, 1, 0], np.uint8), 2)
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
def divide_areas(sizes: Int64s, parts: Int64s, roots: int, seed: int) -> Int64s:
    """Divide area i into ``parts[i]`` non-empty areas and return their sizes, which add up to ``sizes[i]``.

    Weights are powers of log-logistic draws, the 2**(1 − roots)-th: with ``roots`` 1 a few areas hold most records (as
    towns do), with 3 all areas have about the same size (as tracts do).

    >>> divide_areas(np.array([1000, 3]), np.array([4, 3]), 2, 1990).tolist()[4:]
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
        # Each part gets one; the rest is allotted by cumulative weight, rounded down, so that nothing is lost.
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


def find_parents(fine: Codes, coarse: Codes, areas: int) -> Int64s | None:
    """Return the coarse area of each fine area, −1 where it does not occur; None if a fine area lies in two.

    >>> find_parents(np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 0], np.uint8), 3).tolist()
    [0, 0, 1]
    >>> find_parents(np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8), 3) is None
    True
    """
    runs = split_runs(fine.size)
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
def find_groups_in_one_area(groups: Codes, areas: Codes, number: int) -> Int64s:
    """Return the rows of the groups (of ``number``) whose records all lie in one area.

    >>> find_groups_in_one_area(np.array([0, 1, 0, 1], np.uint8), np.array([5, 6, 5, 7], np.uint8), 2).tolist()
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
