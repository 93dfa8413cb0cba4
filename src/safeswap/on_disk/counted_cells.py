"""The cells of a large file before and after, counted from coded columns and the few changed records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

import numpy as np

from safeswap.arrays import cells, sparse
from safeswap.arrays import sparse as hashing
from safeswap.arrays.cells import JointCounts, count_dense, is_dense
from safeswap.arrays.compiled import njit
from safeswap.arrays.geography import find_parents
from safeswap.arrays.names import Names
from safeswap.arrays.threads import run_all, split_runs
from safeswap.arrays.types import Codes, Int64s, Rows, UInt64s
from safeswap.measures.base import require_cells
from safeswap.model.schema import Schema
from safeswap.model.score import CountedCells

# Compiled counting of cells before and after.
#
# Every record is spread over partitions by its scrambled code and counted there in a table that fits the cache, as in
# :mod:`safeswap.arrays.sparse`; if the file is already in the order of its cells, as one sorted by area is by their
# leading part, its stretches are the partitions. Nothing is kept per record: of each cell only how many records it
# holds, how many took part, and how many left and entered, and of these only what risk and distortion need.

_ONE = np.uint64(1)
_FIRST_TABLE = 1 << 10
_PARTITION_RECORDS = 1 << 13
_MOST_BITS = 12
_MOST_ORDERED, _ORDERED_RECORDS = 1 << 16, 1 << 11  # without spreading, partitions may be many and small
_UNEVEN = 32


@dataclass(frozen=True, eq=False)
class CellChanges:
    """Counts before and after as of :func:`safeswap.arrays.cells.count_changed_cells`, and the small cells after.

    ``cells[s]`` is the number of cells that hold s records after, ``untouched[s]`` the number of these records that
    took no part; both for s below a limit.
    """

    joint: JointCounts
    cells: Int64s
    untouched: Int64s


def cell_changes(codes: Codes, possible: int, rows: Int64s, now: Codes, limit: int, *, inner: int = 1) -> CellChanges:
    """Return the changes when the records ``rows``, which took part, move to the cells ``now``.

    ``codes`` names the cell of every record before, one of ``possible``; sizes from 1 to ``limit - 1`` are small.
    ``inner`` is the number of cells per value of the leading attribute, by which the file may be sorted.

    >>> found = cell_changes(np.array([0, 1, 1, 2], np.uint8), 3, np.array([0, 1]), np.array([1, 0], np.uint8), 3)
    >>> found.joint.before.tolist(), found.joint.after.tolist()
    ([1, 2, 1], [1, 2, 1])
    >>> found.cells.tolist(), found.untouched.tolist()
    ([0, 2, 1], [0, 1, 1])
    """
    was = codes[rows].astype(np.uint64)
    now = now.astype(np.uint64)
    moved = was != now
    movements = (was[moved], now[moved], was[~moved])
    if is_dense(possible, codes.size):
        return _dense(codes, possible, movements, limit)
    return _sparse(codes, possible, movements, limit, inner)


def _dense(codes: Codes, possible: int, movements: tuple[UInt64s, UInt64s, UInt64s], limit: int) -> CellChanges:
    before = count_dense(codes, possible)
    left, entered, stayed = (count_dense(each, possible) for each in movements)
    after = before - left + entered
    occupied = np.flatnonzero(before | after)
    first, second = (counts[occupied].astype(np.int64) for counts in (before, after))
    joint = JointCounts(occupied.astype(np.uint64), first, second, possible)
    small = np.flatnonzero((after > 0) & (after < limit))
    sizes = after[small]
    cells = np.bincount(sizes, minlength=limit)
    untouched = np.zeros(limit, np.int64)
    np.add.at(untouched, sizes, before[small] - left[small] - stayed[small])
    return CellChanges(joint, cells, untouched)


def _sparse(
    codes: Codes, possible: int, movements: tuple[UInt64s, UInt64s, UInt64s], limit: int, inner: int
) -> CellChanges:
    in_order = _find_order(codes, possible, inner)
    if in_order is None:
        bits = min(_MOST_BITS, max(1, int(codes.size // _PARTITION_RECORDS).bit_length()))
        shift = np.uint64(64 - bits)
        records, record_starts = _spread(codes, shift, bits)
        left, entered, stayed = (_spread(each, shift, bits) for each in movements)
    else:
        record_starts, width = in_order
        records = codes
        left, entered, stayed = (_spread_in_order(each, width, record_starts.size - 1) for each in movements)
    begins = left[1] + entered[1]  # output offset of each partition's changed cells
    most = int(begins[-1])
    names, before, after = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.int64)
    found = np.zeros(begins.size - 1, np.int64)
    parts = sparse.split_partitions(record_starts, split_runs(codes.size))
    small = np.zeros((len(parts), 2, limit), np.int64)

    def count(s: int) -> None:
        _count_partitions(
            *parts[s],
            (records, record_starts),
            in_order is not None,
            left,
            entered,
            stayed,
            (begins, found, names, before, after),
            small[s],
        )

    run_all(count, range(len(parts)))
    places = np.repeat(begins[:-1], found) + np.arange(found.sum()) - np.repeat(np.cumsum(found) - found, found)
    cells = sparse.unscramble(names[places])
    order = np.argsort(cells)
    places = places[order]
    rest = codes.size - int(before[places].sum())
    joint = JointCounts(
        np.append(cells[order], np.uint64(possible)),
        np.append(before[places], rest),
        np.append(after[places], rest),
        possible,
    )
    total = small.sum(axis=0)
    return CellChanges(joint, total[0], total[1])


def _find_order(codes: Codes, possible: int, inner: int) -> tuple[Int64s, np.uint64] | None:
    """Return the starts of partitions of adjacent cells, and their width, if the records are in cell order.

    A file sorted by area is: its records are in place and need not be spread. None if they are not, or if most of them
    would be in one partition.
    """
    leading = -(-possible // inner)
    parts = min(leading, _MOST_ORDERED, max(1, codes.size // _ORDERED_RECORDS))
    width = inner * -(-leading // parts)
    starts = np.zeros(-(-possible // width) + 1, np.int64)
    if not _ascend(codes, np.uint64(width), starts) or np.diff(starts).max() > _UNEVEN * _PARTITION_RECORDS:
        return None
    return starts, np.uint64(width)


def _spread_in_order(codes: UInt64s, width: np.uint64, parts: int) -> tuple[UInt64s, Int64s]:
    """Return the scrambled codes by partition, each of ``width`` adjacent cells, and the start of each partition."""
    starts, keys = np.zeros(parts + 1, np.int64), np.empty(codes.size, np.uint64)
    _deal_in_order(codes, width, starts, keys)
    return keys, starts


def _spread(codes: Codes, shift: np.uint64, bits: int) -> tuple[UInt64s, Int64s]:
    """Return the scrambled codes by partition, and the start of each partition."""
    runs = split_runs(codes.size)
    sizes = np.zeros((len(runs), 1 << bits), np.int64)
    run_all(lambda r: hashing.partition_sizes(codes[slice(*runs[r])], shift, sizes[r]), range(len(runs)))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.sum(axis=0))])
    cursors = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    keys = np.empty(codes.size, np.uint64)
    run_all(lambda r: hashing.spread_run(codes[slice(*runs[r])], shift, cursors[r], keys), range(len(runs)))
    return keys, starts


@njit(cache=True, nogil=True)
def _ascend(codes, width, starts):  # type: ignore[no-untyped-def]
    """Return True if the records come partition by partition; then ``starts`` holds the start of each."""
    part = np.int64(0)
    lowest, above = np.uint64(0), width
    for i in range(codes.size):
        code = np.uint64(codes[i])
        if code < lowest:
            return False
        if code >= above:  # one division per partition, none per record
            here = np.int64(code // width)
            starts[part + 1 : here + 1] = i
            part = here
            lowest = np.uint64(here) * width
            above = lowest + width
    starts[part + 1 :] = codes.size
    return True


@njit(cache=True, nogil=True)
def _deal_in_order(codes, width, starts, keys):  # type: ignore[no-untyped-def]
    for code in codes:
        starts[code // width + _ONE] += 1
    for part in range(1, starts.size):
        starts[part] += starts[part - 1]
    cursor = starts.copy()
    for code in codes:
        part = code // width
        keys[cursor[part]] = hashing.scramble(code)
        cursor[part] += 1


@njit(cache=True, nogil=True)
def _count_partitions(first, last, records, is_plain, left, entered, stayed, out, small):  # type: ignore[no-untyped-def]
    begins, found, names, before, after = out
    limit = small.shape[1]
    slots = np.zeros(_FIRST_TABLE, np.int32)  # number + 1; 0 is an empty slot
    keys, counts = np.empty(_FIRST_TABLE // 2, np.uint64), np.zeros(_FIRST_TABLE // 2, np.int32)
    changes = np.zeros((_FIRST_TABLE // 2, 3), np.int32)  # left, entered, took part and stayed
    for part in range(first, last):
        slots[:] = 0
        used = 0
        for i in range(records[1][part], records[1][part + 1]):
            key = hashing.scramble(records[0][i]) if is_plain else np.uint64(records[0][i])
            slot = _place(slots, keys, key)
            if slots[slot] == 0:
                if used == keys.size:
                    slots, keys, counts, changes = _grow(keys, counts, changes)
                    slot = _place(slots, keys, key)
                keys[used], counts[used] = key, 0
                used += 1
                slots[slot] = used
            counts[slots[slot] - 1] += 1
        changes[:used] = 0
        for kind in range(3):
            source = left if kind == 0 else entered if kind == 1 else stayed
            for i in range(source[1][part], source[1][part + 1]):
                key = source[0][i]
                slot = _place(slots, keys, key)
                if slots[slot] == 0:
                    if used == keys.size:
                        slots, keys, counts, changes = _grow(keys, counts, changes)
                        slot = _place(slots, keys, key)
                    keys[used], counts[used] = key, 0
                    changes[used] = 0
                    used += 1
                    slots[slot] = used
                changes[slots[slot] - 1, kind] += 1
        put = begins[part]
        for j in range(used):
            now = counts[j] - changes[j, 0] + changes[j, 1]
            if 0 < now < limit:
                small[0, now] += 1
                small[1, now] += counts[j] - changes[j, 0] - changes[j, 2]
            if changes[j, 0] + changes[j, 1] > 0:
                names[put], before[put], after[put] = keys[j], counts[j], now
                put += 1
        found[part] = put - begins[part]


@njit(cache=True, nogil=True, inline="always")
def _place(slots, keys, key):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    slot = key & mask
    while slots[slot] != 0 and keys[slots[slot] - 1] != key:
        slot = (slot + _ONE) & mask
    return slot


@njit(cache=True, nogil=True)
def _grow(keys, counts, changes):  # type: ignore[no-untyped-def]
    """Double the room for keys, and re-enter the existing ones."""
    more = 2 * keys.size
    slots, more_keys = np.zeros(2 * more, np.int32), np.empty(more, np.uint64)
    more_counts, more_changes = np.zeros(more, np.int32), np.zeros((more, 3), np.int32)
    more_keys[: keys.size], more_counts[: keys.size], more_changes[: keys.size] = keys, counts, changes
    for j in range(keys.size):
        slots[_place(slots, more_keys, keys[j])] = j + 1
    return slots, more_keys, more_counts, more_changes


_TRIED = 10_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingColumn:
    """A column as codes: of all records before, and of those that took part after; None if unchanged."""

    before: Codes
    after: Codes | None
    cardinality: int


def cell_attributes(schema: Schema, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the attributes that form the cells; refuse an empty list, or the identifier."""
    return require_cells(schema, schema.categorical if attributes is None else tuple(attributes))


def counted_cells(
    schema: Schema, names: Names, columns: Mapping[str, ChangingColumn], rows: Rows, *, limit: int, only_numbers: bool
) -> CountedCells:
    """Count the cells of the attributes ``names``; ``rows`` are the records that took part, in ascending order."""
    records = len(columns[names[0]].before)
    was, now, possible, inner = pack_cells([columns[name] for name in names], rows)
    found = cell_changes(was, possible, rows, now, limit, inner=inner)
    return CountedCells(
        schema=schema,
        attributes=names,
        changed=frozenset(name for name in names if _changes(columns[name], rows)),
        joint=found.joint,
        small_cells=found.cells,
        small_untouched=found.untouched,
        untouched=records - len(rows),
        moved=int(np.count_nonzero(was[rows] != now)),
        only_numbers=only_numbers,
    )


def pack_cells(columns: Sequence[ChangingColumn], rows: Rows) -> tuple[Codes, Codes, int, int]:
    """Return the cells of all records before and of ``rows`` after, the number possible, and that per leading value.

    If there are too many cells, areas determined by the code of a finer one are left out.
    """
    kept = list(columns)
    if prod(each.cardinality for each in kept) > cells.MOST_CELLS:
        kept = _drop_determined(kept, rows)
    sizes = [each.cardinality for each in kept]
    after = [each.before[rows] if each.after is None else each.after for each in kept]
    if prod(sizes) <= cells.MOST_CELLS:
        was, possible = cells.pack([each.before for each in kept], sizes)
        return was, cells.pack(after, sizes)[0], possible, max(1, prod(sizes[1:]))
    # Ranks are comparable within one call only, so both sides are packed in one.
    both = [np.concatenate([each.before, now]) for each, now in zip(kept, after, strict=True)]
    codes, possible = cells.pack(both, sizes)
    return codes[: -len(rows) or None], codes[len(codes) - len(rows) :], possible, 1


def _drop_determined(columns: list[ChangingColumn], rows: Rows) -> list[ChangingColumn]:
    """Drop the columns whose value follows from another one, before and after."""
    kept = columns
    by_size = [(each, _Tried(each)) for each in sorted(columns, key=lambda each: each.cardinality)]
    for (coarse, outer), (fine, inner) in permutations(by_size, 2):
        both_there = any(coarse is each for each in kept) and any(fine is each for each in kept)
        sizes = 1 < coarse.cardinality <= fine.cardinality
        if both_there and sizes and inner.may_determine(outer) and _determines(fine, coarse, rows):
            kept = [each for each in kept if each is not coarse]
    return kept


class _Tried:
    """A few records of a column: enough to show that most columns are unrelated."""

    def __init__(self, column: ChangingColumn) -> None:
        self.codes = column.before[:: max(1, len(column.before) // _TRIED)]
        _, self.first, self.place = np.unique(self.codes, return_index=True, return_inverse=True)

    def may_determine(self, other: _Tried) -> bool:
        """Return True if this column may determine the other one."""
        return bool((other.codes[self.first][self.place] == other.codes).all())


def _determines(fine: ChangingColumn, coarse: ChangingColumn, rows: Rows) -> bool:
    around = find_parents(fine.before, coarse.before, fine.cardinality)
    if around is None:
        return False
    if fine.after is None and coarse.after is None:
        return True
    inner, outer = (each.before[rows] if each.after is None else each.after for each in (fine, coarse))
    return bool((around[inner] == outer).all())


def _changes(column: ChangingColumn, rows: Rows) -> bool:
    return column.after is not None and not np.array_equal(column.before[rows], column.after)


def net_change(joint: cells.JointCounts) -> int:
    """Return the number of records by which the cells differ."""
    return int(np.abs(joint.after - joint.before).sum()) // 2


def take_rows(column: ChangingColumn, rows: Rows) -> ChangingColumn:
    """Return the column for some records only."""
    return replace(column, before=column.before[rows])
