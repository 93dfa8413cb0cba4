"""Count the records in each cell, with an array or a hash table depending on the number of possible cells.

A *cell* is one combination of values of a set of attributes. Columns come coded: unsigned integers below the
attribute's cardinality. Cells are numbered in mixed radix, the first attribute being the most significant.

A :class:`CellSet` is a set of cells, which flags the records that are in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays import sparse
from safeswap.arrays.compiled import is_worth_compiling, njit, run_all, run_pieces, split_runs
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Floats, Int32s, Int64s, Integers, UInt64s

MOST_CELLS = 1 << 62
"""Above this many possible cells, codes are replaced by ranks so that they still fit 64 bits."""

_BLOCK_BYTES = 1 << 18  # codes per block: they stay in the cache from one column to the next
_AT_ONCE = 4  # columns that one pass folds
_SMALL_TABLE = 1 << 16
_SORTING = 8  # passes that cost as much as sorting
_TINY_TABLE = 1 << 10  # several of them fit the first-level cache
_STREAMS = 4
_WORTH_A_TRY = 1 << 17  # records, above which a look at whether areas nest costs little beside counting
_MEMBERS = 8  # records of an area on average, below which it does not pay
_GLANCE = 1 << 12
_OUTSIDE = "a column holds a code that is not below its cardinality"


@dataclass(frozen=True, eq=False)
class CellCounts:
    """The occupied cells in ascending order of their codes, and the number of records in each."""

    codes: Codes
    counts: Int64s
    cells: int  # number of possible cells


@dataclass(frozen=True, eq=False)
class JointCounts:
    """The cells occupied before or after, in ascending order, with both counts.

    ``alike`` is the number of cells that share a row's counts; None where cells are listed one by one.
    """

    codes: Codes
    before: Int64s | Floats
    after: Int64s | Floats
    cells: int
    alike: Int64s | None = None

    @property
    def net_change(self) -> int:
        """The number of records by which the cells differ, if there are as many after as before."""
        return int((np.abs(self.after - self.before) * (1 if self.alike is None else self.alike)).sum()) // 2


def pack(
    columns: Sequence[Codes], cardinalities: Sequence[int], ranks: Sequence[Codes] | None = None
) -> tuple[Codes, int]:
    """Return one integer per record that names its cell, in the narrowest unsigned type, and the number of cells.

    Two records get the same integer if and only if they agree in every column. Where the product of the
    cardinalities exceeds 2**62, codes are replaced by their ranks among those that occur; the order of the cells
    stays the same, but the integers then have a meaning within this call only. A single column that is already as
    narrow as possible is returned as is. With ``ranks``, a table per column, each code is mapped through its table
    without rewriting the columns.

    >>> codes, cells = pack([np.array([0, 1, 1], np.uint8), np.array([2, 0, 2], np.uint8)], [2, 3])
    >>> codes.tolist(), cells, codes.dtype.name
    ([2, 3, 5], 6, 'uint8')
    >>> pack([np.array([0, 1, 1], np.uint8)], [2], [np.array([1, 0], np.uint8)])[0].tolist()
    [1, 0, 0]
    """
    columns, radices = _check_columns(columns, cardinalities)
    if ranks is not None and prod(radices) <= MOST_CELLS:
        return _pack_columns(columns, radices, ranks), prod(radices)
    if ranks is not None:
        columns = [table[column] for table, column in zip(ranks, columns, strict=True)]
    while prod(radices) > MOST_CELLS:
        if len(radices) > 1 and is_dense(radices[0] * radices[1], columns[0].size):
            columns[:2], radices[:2] = _rank_densely(columns[:2], radices[:2])
            continue
        # The longest prefix of columns that fits becomes one column of ranks, at most as many as there are records.
        fit = next(i for i in range(len(radices), 0, -1) if prod(radices[:i]) <= MOST_CELLS)
        if fit == 1 and radices[0] <= columns[0].size:
            ranked, number = sparse.rank_codes(columns[1].astype(np.uint64))
            columns[1], radices[1] = ranked, max(1, number)
            continue
        ranked, number = sparse.rank_codes(_pack_columns(columns[:fit], radices[:fit]))
        columns[:fit], radices[:fit] = [ranked], [max(1, number)]
    return _pack_columns(columns, radices), prod(radices)


def count_cells(columns: Sequence[Codes], cardinalities: Sequence[int]) -> CellCounts:
    """Count the records of each occupied cell.

    >>> counts = count_cells([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3])
    >>> counts.codes.tolist(), counts.counts.tolist(), counts.cells
    ([2, 3], [1, 2], 6)
    """
    nested = _count_nested(columns, cardinalities)
    if nested is not None:
        return nested
    codes, cells = pack(columns, cardinalities)
    return CellCounts(*_count_codes(codes, cells), cells)


def record_cell_counts(columns: Sequence[Codes], cardinalities: Sequence[int]) -> npt.NDArray[np.int32]:
    """Return, for each record, the number of records in its cell.

    >>> record_cell_counts([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3]).tolist()
    [1, 2, 2]
    """
    codes, cells = pack(columns, cardinalities)
    if not is_dense(cells, codes.size):
        return sparse.count_occurrences(codes)
    counts = count_dense(codes, cells)
    if not is_worth_compiling(codes.size):
        return counts[codes]
    out = np.empty(codes.size, np.int32)
    run_pieces(lambda run: _look_up(counts, codes[slice(*run)], out[slice(*run)]), codes.size)
    return out


def count_cells_jointly(before: Sequence[Codes], after: Sequence[Codes], cardinalities: Sequence[int]) -> JointCounts:
    """Count the cells occupied before or after, on both sides. Both sides must be coded alike.

    >>> joint = count_cells_jointly([np.array([0, 1, 1], np.uint8)], [np.array([0, 0, 2], np.uint8)], [3])
    >>> joint.codes.tolist(), joint.before.tolist(), joint.after.tolist()
    ([0, 1, 2], [1, 2, 0], [2, 0, 1])
    """
    first, second, cells = _pack_alike(before, after, cardinalities)
    if is_dense(cells, max(first.size, second.size)):
        return _count_dense_joint(first, second, cells)
    return JointCounts(*sparse.count_joint(first, second), cells)


def count_net_change(before: Sequence[Codes], after: Sequence[Codes], cardinalities: Sequence[int]) -> int:
    """Return the number of records by which the cells differ, of as many records after as before, coded alike.

    >>> count_net_change([np.array([0, 1, 1], np.uint8)], [np.array([0, 0, 2], np.uint8)], [3])
    2
    """
    if not is_worth_compiling(8 * len(before[0])):
        return _count_net_change_in_numpy(*_pack_alike(before, after, cardinalities)[:2])
    first, second, _ = _pack_alike(before, after, cardinalities)
    sides = [first, second]
    threads = min(2, len(split_runs(len(first), _SORTING)))
    run_all(lambda side: sides.__setitem__(side, np.sort(sides[side])), range(2), threads)
    return len(first) - int(_count_shared(*sides))


def _count_net_change_in_numpy(first: Codes, second: Codes) -> int:
    both = np.concatenate([first, second]).astype(np.uint64) << np.uint64(1)
    if not len(both):
        return 0
    both[: len(first)] |= np.uint64(1)  # the sides, below the cells: at most 2**62 of these
    both.sort()
    begins = np.append(0, 1 + np.flatnonzero(np.diff(both >> np.uint64(1))))
    members, came_before = np.diff(begins, append=len(both)), np.add.reduceat(both & np.uint64(1), begins)
    return int(np.abs(members - 2 * came_before.astype(np.int64)).sum()) // 2


def count_changed_cells(before: Sequence[Codes], after: Sequence[Codes], cardinalities: Sequence[int]) -> JointCounts:
    """Count the cells that some record left or entered, before and after; record i is the same on both sides.

    All other cells are merged into one last cell, whose code is one above all others and whose two counts are equal:
    sums over cells of differences between before and after are the same as over all cells. With many cells and few
    changes this takes a fraction of the time and memory of :func:`count_cells_jointly`.

    >>> joint = count_changed_cells([np.array([0, 1, 1, 2], np.uint8)], [np.array([1, 0, 1, 2], np.uint8)], [3])
    >>> joint.codes.tolist(), joint.before.tolist(), joint.after.tolist()
    ([0, 1, 3], [1, 2, 1], [1, 2, 1])
    """
    first, second, cells = _pack_alike(before, after, cardinalities)
    if first.size != second.size:
        raise ValueError("both sides hold the same records")
    differs = first != second
    codes, left, entered = sparse.count_joint(first[differs].astype(np.uint64), second[differs].astype(np.uint64))
    stayed = sparse.tally_among(first, differs, codes)
    rest = first.size - int(stayed.sum() + left.sum())
    return JointCounts(
        np.append(codes, np.uint64(cells)), np.append(stayed + left, rest), np.append(stayed + entered, rest), cells
    )


def sum_changed_cells(
    before: Sequence[Codes], after: Sequence[Codes], cardinalities: Sequence[int], masses: Floats, counted: JointCounts
) -> JointCounts:
    """Sum the records' masses over the cells that :func:`count_changed_cells` counted, in the order of the records.

    >>> sides = [np.array([0, 1, 1, 2], np.uint8)], [np.array([1, 0, 1, 2], np.uint8)], [3]
    >>> joint = sum_changed_cells(*sides, np.array([1.0, 2.0, 4.0, 8.0]), count_changed_cells(*sides))
    >>> joint.codes.tolist(), joint.before.tolist(), joint.after.tolist()
    ([0, 1, 3], [1.0, 6.0, 8.0], [2.0, 5.0, 8.0])
    """
    first, second, cells = _pack_alike(before, after, cardinalities)
    one, other = sparse.sum_among(first, second, masses, counted.codes[:-1])
    return JointCounts(counted.codes, one, other, cells)


def is_dense(cells: int, records: int) -> bool:
    """Return whether an array over all possible cells is the cheaper way to count."""
    return cells <= max(_SMALL_TABLE, 2 * records)


def count_dense(codes: Codes, cells: int) -> npt.NDArray[np.int32]:
    """Return the count of every possible cell, occupied or not.

    >>> count_dense(np.array([0, 2, 2], np.uint8), 4).tolist()
    [1, 0, 2, 0]
    """
    if not is_worth_compiling(codes.size):
        return np.bincount(codes.astype(np.intp, copy=False), minlength=cells).astype(np.int32)
    runs = split_runs(codes.size)
    if cells * len(runs) > max(_SMALL_TABLE, codes.size // 2):
        runs = [(0, codes.size)]  # a large table per thread would cost more than the threads save
    count, streams = (_count_in_streams, _STREAMS) if cells <= _TINY_TABLE else (_count, 1)
    tables = np.zeros((len(runs), streams, cells), np.int32)
    run_all(lambda r: count(codes[slice(*runs[r])], tables[r]), range(len(runs)))
    total: npt.NDArray[np.int32] = tables[0, 0]
    for table in tables.reshape(len(runs) * streams, cells)[1:]:
        total += table
    return total


def sum_dense(codes: Codes, masses: Floats, cells: int) -> Floats:
    """Return the sum of the records' masses in every possible cell, added up in the order of the records.

    >>> sum_dense(np.array([0, 2, 2], np.uint8), np.array([1.0, 2.0, 4.0]), 4).tolist()
    [1.0, 0.0, 6.0, 0.0]
    """
    if not is_worth_compiling(codes.size):
        return np.asarray(np.bincount(codes.astype(np.intp), masses, cells), dtype=np.float64)
    sums = np.zeros(cells)
    _sum(codes.astype(np.uint32, copy=False), masses, sums)
    return sums


def _count_nested(columns: Sequence[Codes], cardinalities: Sequence[int]) -> CellCounts | None:
    """Count by the last column alone if it determines all others, as a block does its tract; None if it does not."""
    plain, radices = _check_columns(columns, cardinalities)
    fine, areas, cells = plain[-1], radices[-1], prod(radices)
    if fine.size < max(_WORTH_A_TRY, _MEMBERS * areas) or is_dense(cells, fine.size) or cells > MOST_CELLS:
        return None
    heads = [column[:_GLANCE] for column in plain]
    if len(np.unique(heads[-1])) < len(np.unique(_pack_columns(heads, radices))) or fine.max() >= areas:
        return None  # most often the first records tell
    from safeswap.arrays.geography import find_parents  # large files only

    parents = find_parents(fine, _pack_columns(plain[:-1], radices[:-1]), areas)
    if parents is None:
        return None
    counts = count_dense(fine, areas)
    occupied = np.flatnonzero(counts)
    codes = parents[occupied].astype(np.uint64) * np.uint64(areas) + occupied.astype(np.uint64)
    order = np.argsort(codes)
    return CellCounts(codes[order], counts[occupied[order]].astype(np.int64), cells)


def _count_codes(codes: Codes, cells: int) -> tuple[Codes, Int64s]:
    if not is_dense(cells, codes.size):
        return sparse.count_distinct(codes)
    counts = count_dense(codes, cells)
    occupied = np.flatnonzero(counts)
    return occupied.astype(codes.dtype), counts[occupied].astype(np.int64)


def _pack_alike(
    before: Sequence[Codes], after: Sequence[Codes], cardinalities: Sequence[int]
) -> tuple[Codes, Codes, int]:
    if prod(max(1, int(c)) for c in cardinalities) <= MOST_CELLS:
        (first, cells), (second, _) = pack(before, cardinalities), pack(after, cardinalities)
        return first, second, cells
    # Ranks are only comparable within one call, so both sides are packed together.
    together = [np.concatenate(pair) for pair in zip(before, after, strict=True)]
    codes, cells = pack(together, cardinalities)
    return codes[: before[0].size], codes[before[0].size :], cells


def _count_dense_joint(before: Codes, after: Codes, cells: int) -> JointCounts:
    first, second = count_dense(before, cells), count_dense(after, cells)
    occupied = np.flatnonzero(first | second)
    return JointCounts(
        occupied.astype(before.dtype),
        first[occupied].astype(np.int64),
        second[occupied].astype(np.int64),
        cells,
    )


def _check_columns(columns: Sequence[Codes], cardinalities: Sequence[int]) -> tuple[list[Codes], list[int]]:
    if not columns or len(columns) != len(cardinalities) or len({c.size for c in columns}) != 1:
        raise ValueError("give at least one column, all of one length, and a cardinality for each")
    if columns[0].size >= 1 << 31:
        raise ValueError("more than 2**31 - 1 records do not fit one call")
    # Only a few types reach the compiled code: each combination of types costs a compilation.
    plain = [np.ascontiguousarray(c, dtype=f"uint{8 * c.dtype.itemsize}") for c in columns]
    return plain, [max(1, int(c)) for c in cardinalities]


def _rank_densely(columns: Sequence[Codes], radices: Sequence[int]) -> tuple[list[Codes], list[int]]:
    """Return the ranks of the cells that occur as one column: fewer than those possible, and found without a hash."""
    codes = _pack_columns(columns, radices)
    occurs = count_dense(codes, prod(radices)) > 0
    number = max(1, int(np.count_nonzero(occurs)))
    ranks = (np.cumsum(occurs) - 1).astype(np.min_scalar_type(number - 1))
    return [ranks[codes]], [number]


def _pack_columns(columns: Sequence[Codes], radices: Sequence[int], ranks: Sequence[Codes] | None = None) -> Codes:
    dtype = np.min_scalar_type(prod(radices) - 1)
    if ranks is None and len(columns) == 1 and columns[0].dtype == dtype and columns[0].max(initial=0) < radices[0]:
        return columns[0]
    if not is_worth_compiling(columns[0].size * len(columns)):
        return _pack_in_numpy(columns, radices, dtype, ranks)
    codes = np.empty(columns[0].size, dtype)
    # In the type of the codes: a radix that does not fit only multiplies zeros.
    factors = np.array(radices, np.uint64).astype(codes.dtype)
    tops = [c.dtype.type(min(radix - 1, np.iinfo(c.dtype).max)) for c, radix in zip(columns, radices, strict=True)]

    tables = [None] * len(columns) if ranks is None else [_as_rank_table(table, codes.dtype) for table in ranks]
    steps = _split_fours(columns, tables)
    records = _BLOCK_BYTES // codes.itemsize

    def pack_run(run: tuple[int, int]) -> None:
        for start in range(run[0], run[1], records):
            block = slice(start, min(start + records, run[1]))
            codes[block] = 0
            for first, last in steps:
                some, table = [column[block] for column in columns[first:last]], tables[first]
                if len(some) == _AT_ONCE:
                    most = np.array(tops[first:last])
                    outside = _fold_four(some[0], some[1], some[2], some[3], factors[first:last], most, codes[block])
                elif table is not None:
                    outside = _fold_ranks(some[0], factors[first], table, codes[block])
                else:
                    outside = _fold(some[0], factors[first], tops[first], codes[block])
                if outside:
                    raise ValueError(_OUTSIDE)

    run_pieces(pack_run, codes.size)
    return codes


def _split_fours(columns: Sequence[Codes], tables: Sequence[Codes | None]) -> list[tuple[int, int]]:
    """Divide the columns: four at once where their types are the same and none has a table, else one by one."""
    steps, first = [], 0
    while first < len(columns):
        some = range(first, min(first + _AT_ONCE, len(columns)))
        alike = all(columns[j].dtype == columns[first].dtype and tables[j] is None for j in some)
        steps.append((first, first + (_AT_ONCE if alike and len(some) == _AT_ONCE else 1)))
        first = steps[-1][1]
    return steps


def _pack_in_numpy(
    columns: Sequence[Codes], radices: Sequence[int], dtype: np.dtype[Any], ranks: Sequence[Codes] | None
) -> Codes:
    codes = np.zeros(columns[0].size, dtype)
    for position, (column, radix) in enumerate(zip(columns, radices, strict=True)):
        if column.max(initial=0) >= (radix if ranks is None else len(ranks[position])):
            raise ValueError(_OUTSIDE)
        # In the type of the codes, as in the compiled form: a radix that does not fit only multiplies zeros.
        codes *= np.array([radix], np.uint64).astype(dtype)
        codes += (column if ranks is None else ranks[position][column]).astype(dtype)
    return codes


@njit(cache=True, nogil=True)
def _fold(column, factor, top, codes):  # type: ignore[no-untyped-def]
    outside = False
    for i in range(column.size):
        outside |= column[i] > top
        codes[i] = codes[i] * factor + column[i]
    return outside


@njit(cache=True, nogil=True)
def _fold_four(first, second, third, fourth, factors, tops, codes):  # type: ignore[no-untyped-def]
    """Fold four columns in one pass over the codes; the largest labels tell whether one is outside."""
    a, b, c, d = factors[0], factors[1], factors[2], factors[3]
    one, two, three, four = first[0], second[0], third[0], fourth[0]
    for i in range(codes.size):
        one, two, three, four = max(one, first[i]), max(two, second[i]), max(three, third[i]), max(four, fourth[i])
        code = codes[i] * a + first[i]
        code = code * b + second[i]
        code = code * c + third[i]
        codes[i] = code * d + fourth[i]
    return one > tops[0] or two > tops[1] or three > tops[2] or four > tops[3]


def _as_rank_table(ranks: Codes, dtype: np.dtype[Any]) -> Codes | None:
    """Return the table in the type of the codes; None where every code is its own rank."""
    return None if np.array_equal(ranks, np.arange(ranks.size)) else np.ascontiguousarray(ranks, dtype=dtype)


@njit(cache=True, nogil=True)
def _fold_ranks(column, factor, table, codes):  # type: ignore[no-untyped-def]
    outside = False
    for i in range(column.size):
        known = column[i] < table.size
        outside |= not known
        codes[i] = codes[i] * factor + table[column[i] if known else 0]
    return outside


@njit(cache=True, nogil=True)
def _count(codes, tables):  # type: ignore[no-untyped-def]
    table = tables[0]
    for i in range(codes.size):
        table[codes[i]] += 1


@njit(cache=True, nogil=True)
def _count_in_streams(codes, tables):  # type: ignore[no-untyped-def]
    """Count four stretches at once, each in its own table: repeated additions to one counter would stall."""
    length = codes.size // 4
    one, two, three, four = tables[0], tables[1], tables[2], tables[3]
    for i in range(length):
        one[codes[i]] += 1
        two[codes[i + length]] += 1
        three[codes[i + 2 * length]] += 1
        four[codes[i + 3 * length]] += 1
    for i in range(4 * length, codes.size):
        one[codes[i]] += 1


@njit(cache=True, nogil=True)
def _sum(codes, masses, sums):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        sums[codes[i]] += masses[i]


@njit(cache=True, nogil=True)
def _look_up(table, codes, out):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        out[i] = table[codes[i]]


@njit(cache=True, nogil=True)
def _count_shared(one, other):  # type: ignore[no-untyped-def]
    """Count the codes that two ascending arrays have in common, each as often as both have it."""
    i, j, shared = 0, 0, 0
    while i < one.size and j < other.size:
        same = one[i] == other[j]
        shared += same
        ahead = one[i] < other[j]
        i += same or ahead
        j += same or not ahead
    return shared


_ONE = np.uint64(1)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class CellSet:
    """Combinations of the values of some columns, one a row.

    >>> some = CellSet(("a", "b"), np.array([[1, 2], [2, 8]]))
    >>> some.flags([np.array([1, 1, 2]), np.array([2, 8, 8])]).tolist()
    [True, False, True]
    """

    names: Names
    rows: Int64s

    def flags(self, columns: Sequence[Integers]) -> Flags:
        """Flag the records with one of the combinations; ``columns`` are in the order of ``names``."""
        if not len(self.rows):
            return np.zeros(len(columns[0]), dtype=np.bool_)
        words, places, slots = self._table
        found = np.empty(len(columns[0]), dtype=np.int64)
        _find(_mix(columns), words, slots, found)
        flags = found >= 0
        near = np.flatnonzero(flags)
        # A word stands for a combination only almost surely, so the combinations themselves are compared.
        known = self.rows[places[found[near]]]
        flags[near] = np.all([column[near] == known[:, i] for i, column in enumerate(columns)], axis=0)
        return flags

    @cached_property
    def _table(self) -> tuple[UInt64s, Int64s, Int32s]:
        """The words of the combinations, the row of each, and the slots that find them."""
        words, places = np.unique(_mix(list(self.rows.T)), return_index=True)
        slots = np.zeros(1 << (4 * len(words) + 1).bit_length(), dtype=np.int32)
        sparse.insert_codes(words, slots)
        return words, places, slots


def _mix(columns: Sequence[Integers]) -> UInt64s:
    """Return a word for each combination."""
    words = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        _mix_in(words, column)
    return words


@njit(cache=True, nogil=True)
def _mix_in(words, column):  # type: ignore[no-untyped-def]
    for i in range(words.size):
        words[i] = sparse.scramble(words[i] * _FACTOR + np.uint64(column[i]))


@njit(cache=True, nogil=True)
def _find(packed, words, slots, found):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for i in range(packed.size):
        slot = sparse.scramble(packed[i]) & mask
        while slots[slot] != 0 and words[slots[slot] - 1] != packed[i]:
            slot = (slot + _ONE) & mask
        found[i] = slots[slot] - 1
