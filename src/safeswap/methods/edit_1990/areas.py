"""Areas and keys of households in memory: samples, partners, and remedies for those without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import cells, sparse
from safeswap.arrays.compiled import njit
from safeswap.arrays.counter_random import item_state
from safeswap.arrays.names import Names
from safeswap.arrays.threads import run_all, split_runs
from safeswap.arrays.types import Codes, Flags, Rows, UInt32s
from safeswap.methods.edit_1990.same_key import count_matched, count_moved
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.columns import rank_column
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.schema import Kind, Schema, level_texts

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

_BLOCK = 1 << 13  # sums computed at a time, to stay in the cache from one column to the next
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
            near = in_three.among([column[block] for column in columns], skipped[block]) + start
            found[number].append(near[one_by_one.among([column[near] for column in columns])])

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

    def among(self, columns: Sequence[Codes], skipped: Flags | None = None) -> Rows:
        """Return the positions of the records that agree."""
        passed_over = np.zeros(len(columns[0]), dtype=np.bool_) if skipped is None else skipped
        found: Rows = _find_marked(self._sums(columns), self.marks, self.shift, passed_over)
        return found

    def _sums(self, columns: Sequence[Codes]) -> UInt32s:
        """Return the weighted sum of codes of each part, and in the last row that of all."""
        sums = np.zeros((max(self.parts) + 2, len(columns[0])), dtype=np.uint32)
        for number, (column, part) in enumerate(zip(columns, self.parts, strict=True)):
            weight = np.uint32(item_state(0, number) >> np.uint64(32)) | np.uint32(1)
            _add(column, weight, sums[-1])
            if part >= 0:
                _add(column, weight, sums[part])
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
