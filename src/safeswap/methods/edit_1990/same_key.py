"""Find partners of the same code in another area: first within the sample, then among all others.

Claim 1, inside the sample. Of a group of n sampled records of one code, at most m of which lie in one area,
min(n // 2, n − m) pairs are made, the most possible. Records come in the order of their draws. A record waits as long
as its successors lie in its own area, and so do these; each record of another area is paired with a waiting one. So all
records left over in the end lie in one area a. While there are two of them, a pair with neither record in a is opened,
and each of its two records gets one from a. This ends with at most one record left over, or with a record from a in
every pair.

Claim 2, outside. The records left over lie in one area, so all of them want the same partners and the order of choice
does not matter: as many are placed as there are others of the code outside that area. One case remains: a single
record, and all others of the code lie in its own area a. Then a pair with neither record in a is opened: one of its
records takes the record left over, the other takes one from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np

from safeswap.arrays import cells, order, sparse
from safeswap.arrays.cell_set import CellSet
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Int64s, Integers, UInt8s, UInt64s
from safeswap.engines.base import KEEP

SAMPLED, OUTSIDE = 0, 1
"""The two kinds of records, in the order in which a group is sorted."""

_TOP = (1 << 64) - 1


def draw_limit(rate: float) -> np.uint64:
    """Return the number below which this share of all possible draws lies.

    >>> int(draw_limit(0.0)), int(draw_limit(0.5)) == 2**63
    (0, True)
    """
    return np.uint64(min(int(rate * 2.0**64), _TOP))


RESERVED_FROM = np.uint64(_TOP) - draw_limit(1 / 32)
"""Draws from this value up are a reserve of possible partners, unless they are in the sample."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """Tell sampled records from others while they are read: those of small blocks have a limit of their own.

    Unless ``whole`` groups are read, of the others only those with the highest draws are kept.
    """

    limit: np.uint64
    small_limit: np.uint64
    small_blocks: CellSet
    whole: bool = False
    adds: ClassVar[Names] = ("kind", "small", KEEP)

    def __call__(self, draws: UInt64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return the kind of each record, whether its block is small, and whether to keep it."""
        small = np.zeros(len(draws), dtype=np.bool_)
        if len(self.small_blocks.rows):
            small = self.small_blocks.flags([columns[name] for name in self.small_blocks.names])
        sampled = draws < np.where(small, self.small_limit, self.limit)
        kept = sampled | self.whole | (draws >= RESERVED_FROM)
        kinds = np.where(sampled, SAMPLED, OUTSIDE).astype(np.uint8)
        return {"kind": kinds, "small": small.astype(np.uint8), KEEP: kept.view(np.uint8)}


@dataclass(frozen=True, eq=False)
class SameKeyPartners:
    """Find partners within groups of one key, sorted by kind and draw.

    ``across`` names the area in which partners differ, ``levels`` the areas of each level of the geography: how many
    pairs lie within one is counted on the way.
    """

    across: Names
    levels: tuple[Names, ...]
    partner: ClassVar[str] = "mate"

    @cached_property
    def needs(self) -> Names:
        """The columns read."""
        return tuple(dict.fromkeys(("kind", "small", *self.across, *(name for level in self.levels for name in level))))

    @cached_property
    def adds(self) -> Names:
        """The columns added."""
        own = ("mate", "first", "outside", "inside", "sampled", "alone", "short", "in_small")
        return (*own, *(f"within{i}" for i in range(len(self.levels))))

    def __call__(self, bounds: Int64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return the partner of each record, and counts of how it was found as flags to be summed."""
        kinds = columns["kind"].astype(np.uint8, copy=False)
        mate, outside, short = find_partners(bounds, kinds, _number([columns[name] for name in self.across]))
        sampled = kinds == SAMPLED
        places = np.arange(len(kinds))
        first = sampled & (mate >= 0) & (outside | (mate > places))
        flags = {
            "first": first,
            "outside": first & outside,
            "inside": first & ~outside,
            "sampled": sampled,
            "alone": sampled & (mate < 0),
            "short": short,
            "in_small": sampled & (columns["small"] == 1),
        }
        for i, names in enumerate(self.levels):
            same = [columns[name] == columns[name][mate] for name in names]
            flags[f"within{i}"] = np.logical_and.reduce([first, *same])
        return {"mate": mate, **{name: flag.view(np.uint8) for name, flag in flags.items()}}


def _number(columns: list[Integers]) -> Int64s:
    """Return one number for each combination, comparable within this call only."""
    spans = [(int(column.min(initial=0)), int(column.max(initial=0))) for column in columns]
    widths = [most - least + 1 for least, most in spans]
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    if prod(widths) <= cells.MOST_CELLS:
        for column, (least, _), width in zip(columns, spans, widths, strict=True):
            numbers = numbers * width + (column.astype(np.int64) - least)
        return numbers
    for column in columns:
        known = [np.unique(each, return_inverse=True) for each in (numbers, column)]
        numbers = known[0][1] * len(known[1][0]) + known[1][1]
    return numbers


def count_matched(codes: Codes, areas: Codes, sampled: int) -> int:
    """Count the first ``sampled`` records that find a partner, among themselves or among the others.

    >>> count_matched(np.array([7, 7, 8, 8, 9], np.uint64), np.array([1, 2, 1, 1, 1], np.uint8), 3)
    2
    """
    mate, kinds = _pair_all(codes, areas, np.arange(len(codes)) < sampled)
    return int(np.count_nonzero(mate[kinds == SAMPLED] >= 0))


def count_moved(codes: Codes, areas: Codes, sampled: Flags) -> int:
    """Count the records that a sample would move, partners from outside included.

    >>> count_moved(np.zeros(4, np.uint64), np.array([1, 2, 1, 1], np.uint8), np.array([False, True, False, False]))
    2
    """
    return int(np.count_nonzero(_pair_all(codes, areas, sampled)[0] >= 0))


def _pair_all(codes: Codes, areas: Codes, sampled: Flags) -> tuple[Int64s, UInt8s]:
    """Return the partners of all records, sorted by code and kind, and the kinds; only their number matters."""
    groups, number = sparse.rank_codes(codes.astype(np.uint64))
    kinds = np.where(sampled, SAMPLED, OUTSIDE).astype(np.uint8)
    ordered, places = order.sort_rows(*cells.pack([groups, kinds], [max(number, 1), 2]))
    ends = np.r_[True, ordered[1:] // 2 != ordered[:-1] // 2, True] if len(codes) else np.ones(1, dtype=np.bool_)
    mate, _, _ = find_partners(np.flatnonzero(ends), kinds[places], areas[places].astype(np.int64))
    return mate, kinds[places]


@njit(cache=True, nogil=True)
def find_partners(bounds: Int64s, kinds: UInt8s, areas: Int64s) -> tuple[Int64s, Flags, Flags]:
    """Return the position of each record's partner, or −1, whether the pair reaches outside the sample, and shortage.

    Group g spans ``bounds[g]`` to ``bounds[g + 1]``: sampled records in the order of their draws, then others; those
    with the highest draws, which come last, are taken first. A group is short if it has too few others.

    >>> kinds = np.array([0, 0, 0, 1, 1], np.uint8)
    >>> mate, outside, short = find_partners(np.array([0, 5]), kinds, np.array([1, 1, 2, 1, 2]))
    >>> mate.tolist(), outside.tolist(), bool(short.any())
    ([4, 2, 1, -1, 0], [True, False, False, False, True], False)
    """
    number = len(kinds)
    mate, outside, short = np.full(number, -1, np.int64), np.zeros(number, np.bool_), np.zeros(number, np.bool_)
    wait, made = np.empty(number, np.int64), np.empty((number // 2 + 1, 2), np.int64)
    for g in range(len(bounds) - 1):
        low, high = bounds[g], bounds[g + 1]
        middle = low
        while middle < high and kinds[middle] == 0:
            middle += 1
        left = _pair_sampled(low, middle, areas, mate, wait, made)
        if left == 0:
            continue
        own, same, given, x = areas[wait[0]], -1, 0, high - 1
        while x >= middle and given < left:
            if areas[x] != own:
                alone = wait[given]
                mate[alone], mate[x] = x, alone
                outside[alone] = outside[x] = True
                given += 1
            elif same < 0:
                same = x
            x -= 1
        if given < left:
            short[low:high] = True
        if left == 1 and given == 0 and same >= 0:
            _open_pair(low, middle, wait[0], same, areas, mate, outside)
    return mate, outside, short


@njit(cache=True, nogil=True)
def _pair_sampled(low, high, areas, mate, wait, made):  # type: ignore[no-untyped-def]
    """Pair the records from ``low`` to ``high`` with each other (claim 1).

    Return the number left over, all of one area, which ``wait`` then holds in the order of their draws.
    """
    waiting, pairs = 0, 0
    for i in range(low, high):
        if waiting == 0 or areas[wait[waiting - 1]] == areas[i]:
            wait[waiting] = i
            waiting += 1
        else:
            waiting -= 1
            made[pairs, 0], made[pairs, 1] = wait[waiting], i
            pairs += 1
    opened = pairs
    while waiting >= 2 and opened > 0:
        opened -= 1
        a, b = made[opened, 0], made[opened, 1]
        area = areas[wait[0]]
        if areas[a] != area and areas[b] != area:
            waiting -= 2
            made[opened, 1] = wait[waiting]
            made[pairs, 0], made[pairs, 1] = b, wait[waiting + 1]
            pairs += 1
    for p in range(pairs):
        mate[made[p, 0]] = made[p, 1]
        mate[made[p, 1]] = made[p, 0]
    return waiting


@njit(cache=True, nogil=True)
def _open_pair(low, high, alone, same, areas, mate, outside):  # type: ignore[no-untyped-def]
    """Open a pair so that both the record left over and one of the pair find a partner (last case of claim 2)."""
    for i in range(low, high):
        j = mate[i]
        if j > i and areas[i] != areas[alone] and areas[j] != areas[alone]:
            mate[i], mate[alone] = alone, i
            mate[j], mate[same] = same, j
            outside[j] = outside[same] = True
            break
