"""Pair the members of households that change places, in the order of their draws."""

from __future__ import annotations

from functools import partial

import numpy as np

from safeswap.arrays import order
from safeswap.arrays.compiled import inner, njit, python_if_little
from safeswap.arrays.types import Int32s, Rows, UInt64s
from safeswap.engines.base import Records
from safeswap.methods.household_swap.households import Households
from safeswap.methods.household_swap.pairing import pair_risky
from safeswap.methods.household_swap.swapping import STEPS_PER_PERSON


def pair_members(records: Records, found: Households, partner: Int32s, heads: Rows, key: bytes) -> tuple[Rows, bool]:
    """Return pairs of rows, in the order of ``heads``, and whether all partners have the same size.

    If not, a pair is a row and the one it takes from: every member has one, and those of a smaller household give to
    several. ``key`` draws the order of the members.
    """
    size, mates = found.size, partner[heads]
    even = bool((size[heads] == size[mates]).all())
    rows = np.empty(int(size[heads].sum(dtype=np.int64) + size[mates].sum(dtype=np.int64)), dtype=np.int64)
    plain = partial(python_if_little, len(found.numbers) + STEPS_PER_PERSON * len(rows), pair_risky)
    with plain():
        _list_members(found.numbers, partner, rows)
    words = records.words(rows, key)
    takers, givers = (heads, mates) if even else (np.concatenate([heads, mates]), np.concatenate([mates, heads]))
    with plain():
        ends, members = _sort_members(found.numbers, rows, words, partner, size)
        del rows, words
        return _pair(takers, givers, size, ends, members), even


def sort_heads(partner: Int32s, draw: UInt64s) -> Rows:
    """Return the household of each pair that has the lower draw, in the order of these draws."""
    heads = np.flatnonzero(partner >= 0)
    heads = heads[draw[heads] < draw[partner[heads]]]
    draws = draw[heads]
    return order.sort_by_draw(heads, draws, lambda _: np.stack([draws, draws], axis=1))  # they are distinct


@njit(cache=True, nogil=True)
def _list_members(numbers, partner, rows):  # type: ignore[no-untyped-def]
    """List the rows of all households that have a partner, ascending."""
    place = 0
    for row in range(len(numbers)):
        if numbers[row] >= 0 and partner[numbers[row]] >= 0:
            rows[place] = row
            place += 1


@njit(cache=True, nogil=True)
def _sort_members(numbers, rows, words, partner, size):  # type: ignore[no-untyped-def]
    """Return where the members of each household end, and all rows by household and draw."""
    ends, place = np.empty(len(size), np.int32), np.int64(0)  # sizes are narrow, and stay so in plain Python
    for household in range(len(size)):
        ends[household] = place
        place += size[household] if partner[household] >= 0 else 0
    by = np.empty(len(rows), np.int32)
    for i in range(len(rows)):
        household = numbers[rows[i]]
        by[ends[household]] = i
        ends[household] += 1
    for household in range(len(size)):
        if partner[household] >= 0:
            _sort_by_words(by, ends[household] - size[household], ends[household], words)
    for i in range(len(rows)):
        by[i] = rows[by[i]]
    return ends, by


@njit(cache=True, nogil=True)
def _sort_by_words(by, begin, end, words):  # type: ignore[no-untyped-def]
    """Sort some places by their words: Shell's sort, which for the few members of a home is insertion."""
    gap = 1
    while 3 * gap + 1 < end - begin:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            this, j = by[i], i
            while j >= begin + gap and _precedes(words, this, by[j - gap]):
                by[j] = by[j - gap]
                j -= gap
            by[j] = this
        gap //= 3


@inner
def _precedes(words, one, other):  # type: ignore[no-untyped-def]
    if words[one, 0] != words[other, 0]:
        return words[one, 0] < words[other, 0]
    return words[one, 1] < words[other, 1]


@njit(cache=True, nogil=True)
def _pair(takers, givers, size, ends, members):  # type: ignore[no-untyped-def]
    """Pair each member of a household with one of its partner, in the order of their draws and around again."""
    number, place = np.int64(0), 0
    for taker in takers:
        number += size[taker]
    pairs = np.empty((number, 2), np.int64)
    for i in range(len(takers)):
        one, other = takers[i], givers[i]
        first, second = ends[one] - size[one], ends[other] - size[other]
        for j in range(size[one]):
            pairs[place, 0] = members[first + j]
            pairs[place, 1] = members[second + j % size[other]]
            place += 1
    return pairs
