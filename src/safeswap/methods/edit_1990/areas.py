"""Areas and keys of households in memory: samples, partners, and remedies for those without one.

Partners have the same code in another area: first within the sample, then among all others.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import cells, order, sparse
from safeswap.arrays.cells import CellSet
from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.counter_random import item_state
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Int64s, Integers, Rows, UInt8s, UInt32s, UInt64s
from safeswap.engines.base import KEEP
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.columns import rank_column
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.schema import Kind, Schema, level_texts

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
    """Separate sampled records from others while they are read: those of small blocks have their own limit.

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


_SIMULATED = 1_000_000  # households in all samples from which an average is taken
_SAMPLES = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class HouseholdAreas:
    """By record: the code a partner must share, and the area in which it must differ; and the blocks."""

    matched: Codes
    across: Codes
    blocks: Codes | None
    is_small: Flags | None
    block_sizes: npt.NDArray[np.int32] | None

    @property
    def small_households(self) -> int:
        """The number of households in small blocks."""
        if self.is_small is None or self.block_sizes is None:
            return 0
        return int(self.block_sizes[self.is_small].sum())


def household_areas(data: Microdata, spec: Edit1990Spec) -> HouseholdAreas:
    """Prepare a file whose levels are known to nest."""
    across, _ = _number_areas(data, spec.area(spec.across_level))
    matched, _ = cells.pack(*data.coded_columns(spec.matched))
    blocks = is_small = block_sizes = None
    if spec.small_block_rate is not None:
        blocks, count = _number_areas(data, spec.area(spec.geography[-1]))
        block_sizes = cells.count_dense(blocks, count)
        is_small = (block_sizes > 0) & (block_sizes < spec.small_block_units)
    return HouseholdAreas(
        matched=matched,
        across=across,
        blocks=blocks,
        is_small=is_small,
        block_sizes=block_sizes,
    )


def expected_moved(areas: HouseholdAreas, spec: Edit1990Spec) -> float:
    """Return the mean number of households that move, partners included, over samples drawn without the key.

    A large file needs one sample only: its parts average out.
    """
    rates = np.full(len(areas.matched), spec.rate)
    if areas.blocks is not None and areas.is_small is not None:
        rates[areas.is_small[areas.blocks]] = spec.small_block_rate or 0.0
    random = np.random.default_rng(0)
    samples = 1 + _SIMULATED // max(len(rates), _SIMULATED // _SAMPLES)
    moved = [count_moved(areas.matched, areas.across, random.random(len(rates)) < rates) for _ in range(samples)]
    return float(np.mean(moved))


def _number_areas(data: Microdata, names: Names) -> tuple[Codes, int]:
    """Number the areas named by some attributes together, with few unused numbers."""
    codes, number = cells.pack(*data.coded_columns(names))
    if cells.is_dense(number, len(data)):
        return codes, number
    ranks, number = sparse.rank_codes(codes)
    return ranks, number


# Records that agree with some others in all but one of their keys, found in one pass over the file.
#
# The keys are split into three parts. Two records that differ in one key agree in two of the parts, so it suffices to
# look for records that agree with a wanted one in two parts, and to keep those that agree in all keys but one.
# Agreement is tested by a weighted sum of codes; a bitmap marks the wanted sums. There may be false positives, but no
# false negatives.

_BLOCK = 1 << 15  # sums computed at a time, to stay in the cache from one column to the next
_BITS_PER_SUM = 64  # bits per wanted sum: few false positives


def agree_but_one(fixed: Sequence[Codes], keys: Sequence[Codes], wanted: Rows, skipped: Flags) -> Rows:
    """Return the unskipped rows that may agree with a wanted one in ``fixed`` and in all but one of the keys.

    >>> keys = [np.array(column, np.uint8) for column in ([0, 0, 1, 1], [2, 3, 3, 4], [5, 5, 5, 6])]
    >>> agree_but_one([], keys, np.array([0]), np.array([True, False, False, False])).tolist()
    [1]
    """
    columns = [*fixed, *keys]
    pattern = [column[wanted] for column in columns]
    in_three = _Wanted(pattern, [-1] * len(fixed) + [i % 3 for i in range(len(keys))])
    one_by_one = _Wanted(pattern, [-1] * len(fixed) + list(range(len(keys))))
    runs = split_runs(len(skipped))
    found: list[list[Rows]] = [[np.zeros(0, dtype=np.int64)] for _ in runs]

    def look(number: int) -> None:
        for start in range(runs[number][0], runs[number][1], _BLOCK):
            block = slice(start, min(start + _BLOCK, runs[number][1]))
            near = in_three.find_rows([column[block] for column in columns], skipped[block]) + start
            found[number].append(near[one_by_one.find_rows([column[near] for column in columns])])

    run_all(look, range(len(runs)))
    return np.concatenate([rows for part in found for rows in part])


class _Wanted:
    """Finds records that agree with a pattern in all parts but one; column i is in part ``parts[i]``, −1 in all."""

    def __init__(self, pattern: Sequence[Codes], parts: Sequence[int]) -> None:
        self.parts = parts
        sums = self._sums(pattern)
        bits = min(32, max(12, (_BITS_PER_SUM * sums.size).bit_length()))
        self.shift = np.uint32(32 - bits)
        self.marks = np.zeros(1 << (bits - 3), dtype=np.uint8)
        _mark(sums, self.marks, self.shift)

    def find_rows(self, columns: Sequence[Codes], skipped: Flags | None = None) -> Rows:
        """Return the positions of the records that agree."""
        passed_over = np.zeros(len(columns[0]), dtype=np.bool_) if skipped is None else skipped
        found: Rows = _find_marked(self._sums(columns), self.marks, self.shift, passed_over)
        return found

    def _sums(self, columns: Sequence[Codes]) -> UInt32s:
        """Return the weighted sum of codes of each part, and in the last row that of all."""
        sums = np.zeros((max(self.parts) + 2, len(columns[0])), dtype=np.uint32)
        for number, (column, part) in enumerate(zip(columns, self.parts, strict=True)):
            weight = np.uint32(item_state(0, number) >> np.uint64(32)) | np.uint32(1)
            _add(column, weight, sums[part])  # of those in all parts to the last row
        for own in sums[:-1]:
            np.add(sums[-1], own, out=sums[-1])
        return sums


@njit(cache=True, nogil=True)
def _add(column, weight, sums):  # type: ignore[no-untyped-def]
    for i in range(column.size):
        sums[i] += np.uint32(column[i]) * weight


@njit(cache=True, nogil=True, inline="always")
def _bit_without(sums, part, i, shift):  # type: ignore[no-untyped-def]
    """Return the bit of the sum without one part; the part number enters, so that different omissions differ."""
    # Numba widens 32-bit arithmetic to 64 bits: truncate by hand what should wrap around.
    rest = np.uint32(sums[sums.shape[0] - 1, i] - sums[part, i] + np.uint32(part) * np.uint32(0x9E3779B1))
    mixed = np.uint32((rest ^ (rest >> np.uint32(15))) * np.uint32(0x85EBCA6B))
    return np.uint32(mixed >> shift)


@njit(cache=True, nogil=True)
def _mark(sums, marks, shift):  # type: ignore[no-untyped-def]
    for part in range(sums.shape[0] - 1):
        for i in range(sums.shape[1]):
            bit = _bit_without(sums, part, i, shift)
            marks[bit >> np.uint32(3)] |= np.uint8(1) << np.uint8(bit & np.uint32(7))


@njit(cache=True, nogil=True)
def _find_marked(sums, marks, shift, skipped):  # type: ignore[no-untyped-def]
    rows = np.empty(sums.shape[1], np.int64)
    found = 0
    for i in range(sums.shape[1]):
        hit = np.uint8(0)
        for part in range(sums.shape[0] - 1):
            bit = _bit_without(sums, part, i, shift)
            hit |= marks[bit >> np.uint32(3)] >> np.uint8(bit & np.uint32(7))
        rows[found] = i
        found += (hit & np.uint8(1)) != 0 and not skipped[i]
    return rows[:found].copy()


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of one key, and how many more households would find a partner by it."""

    key: str
    change: str
    more: int


def list_remedies(
    data: Microdata, spec: Edit1990Spec, areas: HouseholdAreas, *, alone: Rows, used: Rows
) -> list[Remedy]:
    """Rank the changes that would help the households left alone, most helpful first.

    Partners are unused households: neither in the sample nor in a pair. A key that the others determine, such as one of
    several counts with a given sum, cannot help by itself.
    """
    keys = tuple(name for name in spec.matched if name not in spec.geography)
    if not len(alone) or not keys:
        return []
    fixed = tuple(name for name in spec.matched if name in spec.geography)
    taken = np.zeros(len(data), dtype=np.bool_)
    taken[used] = True
    taken[alone] = True
    columns, sizes = data.coded_columns((*fixed, *keys))
    near = agree_but_one(columns[: len(fixed)], columns[len(fixed) :], alone, taken)
    rows = np.concatenate([alone, near])
    across = areas.across[rows]
    some = [column[rows] for column in columns]
    found = []
    for place, name in enumerate(keys, start=len(fixed)):
        for change, new_codes in _changes(data, name):
            changed = [*some[:place], new_codes[some[place]], *some[place + 1 :]]
            matched = count_matched(cells.pack(changed, sizes)[0], across, len(alone))
            found.append(Remedy(key=name, change=change, more=matched))
    return sorted(found, key=lambda remedy: -remedy.more)


def _changes(data: Microdata, name: str) -> Iterator[tuple[str, Codes]]:
    """Yield the key dropped and, where possible, coarsened: a description, and the new code of each code."""
    attribute, coded = data.schema[name], data.coded(name)
    kind = smallest_code_type(coded.cardinality)
    yield f"drop {name}", np.zeros(coded.cardinality, dtype=kind)
    if attribute.hierarchy:
        texts = [attribute.hierarchy[0].get(text, text) for text in level_texts(coded.levels)]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        coarse = [*(numbers[text] for text in texts), coded.cardinality - 1][: coded.cardinality]
        yield f"coarsen {name} to its parent categories", np.array(coarse, dtype=kind)
    elif attribute.kind is Kind.ORDINAL and len(coded.levels) > 2:
        levels = Microdata(pa.table({name: coded.levels}), Schema(attributes=(attribute,)))
        coarse = [*(rank_column(levels, name)[0] // 2).tolist(), coded.cardinality - 1][: coded.cardinality]
        yield f"coarsen {name}, neighbouring categories in twos", np.array(coarse, dtype=kind)
