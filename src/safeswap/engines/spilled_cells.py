"""Count cells out of memory: each cell is two words, spilled by their first bits and counted part by part.

Each part fits the cache when it is counted, however many records there are, so time grows linearly with records. The
first cells, and with few attributes that is all of them, are counted in memory at once.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays import keyed
from safeswap.arrays.cells import JointCounts
from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Counts, Flags, Int64s, Rows, Words
from safeswap.errors import InternalError, OutputError
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.microdata import column_blocks

# Compiled counting of cells, each identified by two random words, in a hash table that grows on request.
#
# The words of a cell are as good as random numbers, so their own bits serve as the hash. The two lowest bits of the
# second word are replaced by a flag of the record: 0 stayed, 1 left the cell, 2 entered it.

STAYED, LEFT, ENTERED = 0, 1, 2
SMALL = 32
"""Counts below this are tallied in an array."""

_KIND = np.uint64(3)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def mark(words, touched):  # type: ignore[no-untyped-def]
    """Flag each record as stayed or left; overwrites the lowest bits of its second word."""
    for i in range(touched.size):
        words[i, 1] = (words[i, 1] & ~_KIND) | np.uint64(touched[i])


@njit(cache=True, nogil=True)
def count_words(entries, slots, names, counts, found, rest):  # type: ignore[no-untyped-def]
    """Count entries into a table; entries of new cells without room go to ``rest``.

    ``counts`` holds, per cell, the records before, after, and those that stayed. Returns the number of cells now in the
    table, and the number of entries left over.
    """
    mask = np.uint64(slots.size - 1)
    left = 0
    for i in range(entries.shape[0]):
        high, low = entries[i, 0], entries[i, 1] & ~_KIND
        kind = entries[i, 1] & _KIND
        slot = high & mask
        while slots[slot] != 0 and (names[slots[slot] - 1, 0] != high or names[slots[slot] - 1, 1] != low):
            slot = (slot + _ONE) & mask
        if slots[slot] == 0:
            if found == names.shape[0]:
                rest[left, 0], rest[left, 1] = high, entries[i, 1]
                left += 1
                continue
            names[found, 0], names[found, 1] = high, low
            counts[found, 0] = counts[found, 1] = counts[found, 2] = 0
            found += 1
            slots[slot] = found
        place = slots[slot] - 1
        counts[place, 0] += kind != 2
        counts[place, 1] += kind != 1
        counts[place, 2] += kind == 0
    return found, left


@njit(cache=True, nogil=True)
def insert_cells(names, found, slots):  # type: ignore[no-untyped-def]
    """Enter the cells of a table into empty slots, more than the old ones."""
    mask = np.uint64(slots.size - 1)
    for j in range(found):
        slot = names[j, 0] & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1


@njit(cache=True, nogil=True)
def spread(entries, shift, out):  # type: ignore[no-untyped-def]
    """Group entries by the top bits of their first word; return the number in each group."""
    sizes = np.zeros(np.int64(_ONE << (np.uint64(64) - shift)), np.int64)
    for i in range(entries.shape[0]):
        sizes[entries[i, 0] >> shift] += 1
    cursor = np.cumsum(sizes) - sizes
    for i in range(entries.shape[0]):
        part = entries[i, 0] >> shift
        out[cursor[part], 0], out[cursor[part], 1] = entries[i, 0], entries[i, 1]
        cursor[part] += 1
    return sizes


@njit(cache=True, nogil=True)
def tally_cells(counts, cells, stayed):  # type: ignore[no-untyped-def]
    """Tally cells by their counts before and after, where both are small; return the positions of the others."""
    large = np.empty(counts.shape[0], np.int64)
    others = 0
    for i in range(counts.shape[0]):
        before, after = counts[i, 0], counts[i, 1]
        if before < SMALL and after < SMALL:
            cells[before, after] += 1
            stayed[before, after] += counts[i, 2]
        else:
            large[others] = i
            others += 1
    return large[:others]


@njit(cache=True, nogil=True)
def mix_codes(words, codes, table):  # type: ignore[no-untyped-def]
    """Add (XOR) to the words of each record those that the table has for its code."""
    for i in range(codes.size):
        words[i, 0] ^= table[codes[i], 0]
        words[i, 1] ^= table[codes[i], 1]


@njit(cache=True, nogil=True)
def mix_runs(words, ends, texts):  # type: ignore[no-untyped-def]
    """Add (XOR) to the words of each record those of the run that it is in."""
    run = 0
    for i in range(words.shape[0]):
        run += i == ends[run]
        words[i, 0] ^= texts[run, 0]
        words[i, 1] ^= texts[run, 1]


@njit(cache=True, nogil=True)
def name_cells(packed, kinds, entries):  # type: ignore[no-untyped-def]
    """Write entries of cells named by two numbers, the second one below 2⁶²; the first word is a hash of both.

    Either step of the hash can be undone, so unequal names have unequal words.
    """
    for i in range(kinds.size):
        mixed = packed[1, i] * np.uint64(0x9E3779B97F4A7C15)
        mixed = packed[0, i] ^ mixed ^ (mixed >> np.uint64(32))
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        entries[i, 0] = mixed ^ (mixed >> np.uint64(33))
        entries[i, 1] = (packed[1, i] << np.uint64(2)) | np.uint64(kinds[i])


def column_keys(key: bytes, columns: int) -> list[bytes]:
    """Derive a key for each column."""
    return [keyed.derive(key, "column", number) for number in range(columns)]


def record_words(columns: Sequence[pa.Array], keys: Sequence[bytes]) -> Words:
    """Return the XOR, over the columns, of the cipher texts of the values, each column having its own key.

    Equal records have equal words. Unequal ones differ in some column, whose two cipher texts are independent of
    everything else, so their words are equal with probability 2⁻¹²⁸: below 2⁻⁷⁰ for all pairs of 10⁸ records together,
    even if two bits are ignored. So cells can be counted without holding their values. Words of some columns are the
    sum of their common and their different parts.

    >>> keys = column_keys(bytes(32), 2)
    >>> one, two, three = record_words([pa.array(["a", "a", "b"]), pa.array([1, 1, None])], keys).tolist()
    >>> one == two, one == three
    (True, False)
    >>> same = record_words([pa.array(["a", "a", "b"]).dictionary_encode(), pa.array([1, 1, None])], keys)
    >>> same[2].tolist() == three
    True
    """
    words = np.zeros((len(columns[0]) if columns else 0, 2), dtype=np.uint64)
    for column, key in zip(columns, keys, strict=True):
        _mix(words, column, key)
    return words


def _mix(words: Words, column: pa.Array, key: bytes) -> None:
    column = _decode_wide(column)
    if pa.types.is_dictionary(column.type):
        # Few distinct values: encrypt each once; the entry after the last is for missing values.
        table = np.append(_texts(column.dictionary, key), np.zeros((1, 2), dtype=np.uint64), axis=0)
        codes = column.indices
        if codes.null_count:
            codes = codes.cast(pa.int32()).fill_null(len(table) - 1)
        mix_codes(words, codes.to_numpy(zero_copy_only=False), table)
    elif column.type == pa.int8() and not column.null_count:
        table = _texts(pa.array(np.arange(256, dtype=np.uint8).view(np.int8)), key)
        mix_codes(words, column.to_numpy().view(np.uint8), table)
    elif pa.types.is_integer(column.type):  # an area of a sorted file is encrypted once
        runs = pc.run_end_encode(column)
        mix_runs(words, runs.run_ends.to_numpy(), _texts(runs.values, key))
    else:
        words ^= _texts(column, key)


def _decode_wide(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary, if that has missing or more values than there are records."""
    if pa.types.is_dictionary(column.type) and (column.dictionary.null_count or len(column.dictionary) > len(column)):
        return column.cast(column.type.value_type)
    return column


def _texts(column: pa.Array, key: bytes) -> Words:
    """Return the cipher text of each value, and zero for missing ones."""
    texts = keyed.encrypt(column_blocks(column.drop_null(), key), key)
    if not column.null_count:
        return texts
    all_texts = np.zeros((len(column), 2), dtype=np.uint64)
    all_texts[np.asarray(column.is_valid())] = texts
    return all_texts


@dataclass(frozen=True, eq=False, kw_only=True)
class TalliedCells:
    """Numbers of cells by their counts: the basis of all measures that are sums over cells."""

    joint: JointCounts
    small_cells: Int64s
    small_untouched: Int64s


def tally_kinds(kinds: Iterable[tuple[int, int, int, int]], *, limit: int) -> TalliedCells:
    """Build the tally from kinds of cells as (count before, count after, untouched records, number of such cells).

    Cells whose count did not change are merged; small ones are listed by their size up to ``limit``.

    >>> found = tally_kinds([(2, 3, 1, 5), (4, 4, 16, 4)], limit=5)
    >>> found.joint.before.tolist(), found.joint.after.tolist(), found.joint.alike.tolist()
    ([2, 16], [3, 16], [5, 1])
    >>> found.small_cells.tolist(), found.small_untouched.tolist()
    ([0, 0, 0, 5, 4, 0], [0, 0, 0, 1, 16, 0])
    """
    before, after, untouched, number = np.array(sorted(kinds), dtype=np.int64).reshape(-1, 4).T
    moved = before != after
    rest = int((before * number)[~moved].sum())
    small = (after > 0) & (after <= limit)
    sizes = {"minlength": limit + 1}
    return TalliedCells(
        joint=JointCounts(
            codes=np.arange(np.count_nonzero(moved) + 1, dtype=np.uint64),
            before=np.append(before[moved], rest),
            after=np.append(after[moved], rest),
            cells=int(number.sum()),
            alike=np.append(number[moved], 1),
        ),
        small_cells=np.bincount(after[small], weights=number[small], **sizes).astype(np.int64),
        small_untouched=np.bincount(after[small], weights=untouched[small], **sizes).astype(np.int64),
    )


def make_entries(before: Words, touched: Flags, after: Words) -> Words:
    """Return the words of all records before, and of those that took part after, with the flags that counting needs."""
    entries = np.concatenate([before, after])
    mark(entries[: len(before)], touched)
    mark(entries[len(before) :], np.full(len(after), ENTERED, dtype=np.uint8))
    return entries


def count_entries(entries: Words) -> Counts:
    """Return rows of counts before and after, records that stayed in such cells, and the number of such cells.

    >>> before, after = np.array([[1, 4], [1, 4], [2, 8]], np.uint64), np.array([[2, 8]], np.uint64)
    >>> count_entries(make_entries(before, np.array([True, False, False]), after)).tolist()
    [[1, 2, 1, 1], [2, 1, 1, 1]]
    """
    return count_parts([entries])


def count_parts(parts: Iterable[Words]) -> Counts:
    """Return what :func:`count_entries` does, for parts that have no cell in common, each used up before the next."""
    found, table = _Kinds(), _Table(1)
    for entries in parts:
        found.add(table.recount([entries]).counts)
    return found.merge()


_HELD = 1 << 21  # entries of 16 bytes buffered before they are spilled
_PART = 1 << 17  # entries of a part, whose table then fits the second-level cache
_MOST_BITS = 12
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_AT_ONCE = 1 << 13  # cells counted without spilling
_NOWHERE: Words = np.empty((0, 2), dtype=np.uint64)


class SpilledCells:
    """Counts of cells before and after, batch by batch; ``records`` is their approximate total.

    >>> import tempfile
    >>> cells = SpilledCells(Path(tempfile.mkdtemp()), records=3)
    >>> words = np.array([[1, 4], [1, 4], [2, 8]], np.uint64)
    >>> cells.add(words, np.array([True, False, False]), words[2:])
    >>> cells.kinds().tolist()  # before, after, of whom stayed, how many such cells
    [[1, 2, 1, 1], [2, 1, 1, 1]]
    """

    def __init__(self, work: Path, *, records: int) -> None:
        self._path = work / "cells"
        self._shift = np.uint64(64 - min(_MOST_BITS, max(1, (records // _PART).bit_length())))
        self._first = _Table(_AT_ONCE)
        self._held: Words = np.empty((min(_HELD, max(1, 2 * records)), 2), dtype=np.uint64)
        self._parted: Words = np.empty((0, 2), dtype=np.uint64)
        self._number = 0
        self._spilt: list[Counts] = []

    def add(self, before: Words, touched: npt.NDArray[np.bool_], after: Words) -> None:
        """Count records: their cells before, which of them took part, and the cells of these after."""
        self._take(make_entries(before, touched, after))

    def tally(self, *, limit: int) -> TalliedCells:
        """Return the cells of all batches by their counts."""
        return tally_kinds(self.kinds().tolist(), limit=limit)

    def kinds(self) -> Counts:
        """Return rows of counts before and after, records that stayed in such cells, and the number of such cells."""
        found = _Kinds()
        found.add(self._first.counts)
        for part in self._parts():
            found.add(part.counts)
        self._path.unlink(missing_ok=True)
        return found.merge()

    def _take(self, entries: Words) -> None:
        for start in range(0, len(entries), len(self._held)):
            some = entries[start : start + len(self._held)]
            if self._number + len(some) > len(self._held):
                self._spill()
            self._number += self._first.count(some, self._held[self._number :])

    def _spill(self) -> None:
        if not len(self._parted):
            self._parted = np.empty_like(self._held)
        self._spilt.append(spread(self._held[: self._number], self._shift, self._parted))
        with translate_write_errors(), open(self._path, "ab", opener=open_private) as file:
            file.write(self._parted[: self._number].data)
        self._number = 0

    def _parts(self) -> Iterator[_Table]:
        """Yield disjoint tables of cells, each valid until the next."""
        if not self._spilt and self._number <= _PART:
            yield _Table(1).recount([self._held[: self._number]])
            return
        if self._number:
            self._spill()
        self._held = self._parted = np.empty((0, 2), dtype=np.uint64)
        sizes = np.stack(self._spilt)
        starts = np.cumsum(sizes).reshape(sizes.shape) - sizes
        table = _Table(1)
        with self._path.open("rb", buffering=0) as file:
            for part in range(sizes.shape[1]):
                yield table.recount(_read(file, *run) for run in zip(starts[:, part], sizes[:, part], strict=True))


class CutCells:
    """Counts of cells before and after of a file that is cut into parts without a cell in common: nothing is spilled.

    >>> cells = CutCells(np.array([0, 2, 3]))
    >>> words = np.array([[1, 4], [1, 4], [2, 8]], np.uint64)
    >>> cells.add(words, np.array([True, False, False]), words[:1])
    >>> cells.kinds().tolist()
    [[1, 1, 1, 1], [2, 2, 1, 1]]
    """

    def __init__(self, cuts: Rows) -> None:
        self._sizes = iter(np.diff(cuts).tolist())
        self._size: int = next(self._sizes)
        self._held = _NOWHERE, np.zeros(0, dtype=np.bool_), _NOWHERE
        self._found, self._table = _Kinds(), _Table(1)

    def add(self, before: Words, touched: Flags, after: Words) -> None:
        """Count records: their cells before, which of them took part, and the cells of these after."""
        before, touched, after = (
            np.concatenate(both) for both in zip(self._held, (before, touched, after), strict=True)
        )
        start = entered = 0
        while self._size and start + self._size <= len(before):
            part = slice(start, start + self._size)
            some = slice(entered, entered + int(np.count_nonzero(touched[part])))
            entries = make_entries(before[part], touched[part], after[some])
            self._found.add(self._table.recount([entries]).counts)
            start, entered, self._size = part.stop, some.stop, next(self._sizes, 0)
        self._held = before[start:], touched[start:], after[entered:]

    def tally(self, *, limit: int) -> TalliedCells:
        """Return the cells of all batches by their counts."""
        return tally_kinds(self.kinds().tolist(), limit=limit)

    def kinds(self) -> Counts:
        """Return what :meth:`SpilledCells.kinds` does."""
        return self._found.merge()


ROWS_COMPARED = 1 << 18
"""Records per batch in which cells are best compared."""


class ComparedCells:
    """The cells of records that come batch by batch, before and after.

    >>> import tempfile
    >>> cells = ComparedCells(Path(tempfile.mkdtemp()), ["Sex"], records=3)
    >>> cells.add(pa.record_batch({"Sex": ["f", "m", "m"]}), np.array([True, False, False]), {"Sex": pa.array(["m"])})
    >>> cells.moved, cells.untouched, cells.tally(limit=3).small_cells.tolist()
    (1, 2, [0, 0, 0, 1])
    """

    def __init__(self, work: Path, names: Sequence[str], *, records: int, cuts: Rows | None = None) -> None:
        """Count them; no cell has records on both sides of one of the ``cuts``, if these are given."""
        self.names = tuple(names)
        keys = column_keys(secrets.token_bytes(32), len(names))  # words are comparable within one count only
        self._keys = dict(zip(names, keys, strict=True))
        self._cells = SpilledCells(work, records=records) if cuts is None else CutCells(cuts)
        self.untouched = self.moved = 0
        self.differ: set[str] = set()

    def add(self, before: pa.RecordBatch, touched: Flags, after: Mapping[str, pa.Array]) -> None:
        """Count records: which of them took part, and of these the columns that may have changed."""
        words = self._words({name: before.column(name) for name in self._keys})
        after = {name: _decode_wide(column) for name, column in after.items()}
        entered, old = words[touched], before.select(list(after)).take(pa.array(np.flatnonzero(touched)))
        self.differ |= {name for name, column in after.items() if flag_changed(old, {name: column}).any()}
        # Unchanged columns are already in the words.
        if names := [name for name in self._keys if name in after and name in self.differ]:
            change = self._words({name: old.column(name) for name in names})
            change ^= self._words({name: after[name] for name in names})
            self.moved += int(change.any(axis=1).sum())
            entered ^= change
        self.untouched += len(words) - len(entered)
        self._cells.add(words, touched, entered)

    def tally(self, *, limit: int) -> TalliedCells:
        """Return the cells of all batches by their counts."""
        return self._cells.tally(limit=limit)

    def _words(self, columns: Mapping[str, pa.Array]) -> Words:
        return record_words(list(columns.values()), [self._keys[name] for name in columns])


def flag_changed(before: pa.RecordBatch, after: Mapping[str, pa.Array]) -> Flags:
    """Flag the records in which any of the columns of ``after`` changed."""
    flags = np.zeros(before.num_rows, dtype=np.bool_)
    for name, column in after.items():
        sides = (pa.chunked_array([side]) for side in (before.column(name), column))
        flags |= flag_changes(*aligned_columns(*sides))
    return flags


class _Table:
    """Cells with their counts."""

    def __init__(self, room: int) -> None:
        self._slots = np.zeros(1 << (4 * room - 1).bit_length(), dtype=np.int32)
        self._names: Words = np.empty((room, 2), dtype=np.uint64)
        self._counts: Counts = np.empty((room, 3), dtype=np.int64)
        self._found = 0

    @property
    def counts(self) -> Counts:
        """Records before, after, and those that stayed, per cell."""
        return self._counts[: self._found]

    def count(self, entries: Words, rest: Words) -> int:
        """Count entries; return how many went to ``rest`` because there is no room for their cells."""
        self._found, left = count_words(entries, self._slots, self._names, self._counts, self._found, rest)
        return int(left)

    def recount(self, runs: Iterable[Words]) -> Self:
        """Count these entries instead of the former ones; their memory is used again."""
        self._slots[:], self._found = 0, 0
        for entries in runs:
            # At most one part at a time, so that a cell with many records does not reserve room for many cells.
            for start in range(0, len(entries), _PART):
                some = entries[start : start + _PART]
                self._make_room(len(some))
                self.count(some, _NOWHERE)
        return self

    def _make_room(self, more: int) -> None:
        """Make room for this many more cells."""
        room = self._found + more
        if room <= len(self._names):
            return
        grown = max(room, 2 * len(self._names))
        self._names = np.concatenate([self._names, np.empty((grown - len(self._names), 2), dtype=np.uint64)])
        self._counts = np.concatenate([self._counts, np.empty((grown - len(self._counts), 3), dtype=np.int64)])
        self._slots = np.zeros(1 << (2 * grown - 1).bit_length(), dtype=np.int32)
        insert_cells(self._names, self._found, self._slots)


class _Kinds:
    """Cells by their counts: small ones in an array, the others in a list that is merged from time to time."""

    def __init__(self) -> None:
        size = (SMALL, SMALL)
        self._cells, self._stayed = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self._large: list[Counts] = []

    def add(self, counts: Counts) -> None:
        large = counts[tally_cells(counts, self._cells, self._stayed)]
        self._large.append(np.column_stack([large, np.ones(len(large), dtype=np.int64)]))
        if sum(map(len, self._large)) > _HELD // 4:
            self._large = [merge_kinds(np.concatenate(self._large))]

    def merge(self) -> Counts:
        before, after = np.nonzero(self._cells)
        small = [before, after, self._stayed[before, after], self._cells[before, after]]
        return merge_kinds(np.concatenate([np.stack(small, axis=1), *self._large]))


def merge_kinds(kinds: Counts) -> Counts:
    """Merge rows of :func:`count_entries` to one for each pair of counts before and after."""
    if not len(kinds):
        return kinds
    kinds = kinds[np.lexsort((kinds[:, 1], kinds[:, 0]))]
    begins = np.flatnonzero(np.r_[True, (kinds[1:, :2] != kinds[:-1, :2]).any(axis=1)])
    return np.column_stack([kinds[begins, :2], np.add.reduceat(kinds[:, 2:], begins, axis=0)])


def _read(file: FileIO, start: int, number: int) -> Words:
    entries: Words = np.empty((number, 2), dtype=np.uint64)
    file.seek(16 * int(start))
    if number and file.readinto(entries.data) != entries.nbytes:
        raise InternalError("data spilled to disk cannot be read back", code="spill-lost")
    return entries


def open_private(path: str, flags: int) -> int:
    """Open a file that its owner alone may read."""
    return os.open(path, flags, 0o600)


@contextmanager
def translate_write_errors() -> Iterator[None]:
    """Report a disk that is full or fails while data are spilled to it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise OutputError(
                f"data that do not fit in memory could not be written to disk: {os.strerror(error.errno or errno.EIO)}",
                code="write-failed",
                hint="check the disk of the temporary files, or use the engine memory",
            ) from None
        raise OutputError(
            "no disk space for data that do not fit in memory; nothing was left behind",
            code="disk-full",
            hint="free space in the directory for temporary files, or use the engine memory",
        ) from None
