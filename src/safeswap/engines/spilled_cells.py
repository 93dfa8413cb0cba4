"""Cells counted out of memory: two words stand for a record's cell, spilt by their first bits, counted part by part.

Each part of the words fits the cache when its turn comes, however many records there are, so that the time grows as the
records do. Cells that come first, and with few attributes that is all of them, are counted in memory at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from safeswap.engines.tallied_cells import TalliedCells, tallied
from safeswap.errors import InternalError, OutputError
from safeswap.kernels import word_cells
from safeswap.kernels.types import Counts, Words

_HELD = 1 << 21  # entries of 16 bytes that are gathered before they are spilt
_PART = 1 << 17  # entries of a part, of which the table then fits the second-level cache
_MOST_BITS = 12
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_AT_ONCE = 1 << 13  # cells that are counted without being spilt


class SpilledCells:
    """Counts of cells before and after, batch after batch; ``records`` is about how many there will be.

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
        entries = np.array(before)
        word_cells.mark(entries, touched)
        self._take(entries)
        entered = np.array(after)
        word_cells.mark(entered, np.full(len(entered), word_cells.ENTERED, dtype=np.uint8))
        self._take(entered)

    def tallied(self, *, limit: int) -> TalliedCells:
        """The cells by their counts, those of all batches put together."""
        return tallied([tuple(kind) for kind in self.kinds().tolist()], limit=limit)

    def kinds(self) -> Counts:
        """Counts before and after, how many records stayed in such cells, and how many cells there are: a line each."""
        found = _Kinds()
        found.add(self._first.counts)
        for part in self._parts():
            found.add(part.counts)
        self._path.unlink(missing_ok=True)
        return found.summed()

    def _take(self, entries: Words) -> None:
        for start in range(0, len(entries), len(self._held)):
            some = entries[start : start + len(self._held)]
            if self._number + len(some) > len(self._held):
                self._spill()
            self._number += self._first.count(some, self._held[self._number :])

    def _spill(self) -> None:
        if not len(self._parted):
            self._parted = np.empty_like(self._held)
        self._spilt.append(word_cells.spread(self._held[: self._number], self._shift, self._parted))
        with _room(), open(self._path, "ab", opener=_private) as file:
            file.write(self._parted[: self._number].data)
        self._number = 0

    def _parts(self) -> Iterator[_Table]:
        """Tables of cells that have nothing to do with each other."""
        if not self._spilt and self._number <= _PART:
            yield _counted([self._held[: self._number]])
            return
        if self._number:
            self._spill()
        self._held = self._parted = np.empty((0, 2), dtype=np.uint64)
        sizes = np.stack(self._spilt)
        starts = np.cumsum(sizes).reshape(sizes.shape) - sizes
        with self._path.open("rb", buffering=0) as file:
            for part in range(sizes.shape[1]):
                yield _counted(_read(file, *run) for run in zip(starts[:, part], sizes[:, part], strict=True))


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
        """Count entries; how many went to ``rest``, since there is no room for their cells."""
        self._found, left = word_cells.count(entries, self._slots, self._names, self._counts, self._found, rest)
        return int(left)

    def make_room(self, more: int) -> None:
        """Let there be room for so many cells more."""
        room = self._found + more
        if room <= len(self._names):
            return
        grown = max(room, 2 * len(self._names))
        self._names = np.concatenate([self._names, np.empty((grown - len(self._names), 2), dtype=np.uint64)])
        self._counts = np.concatenate([self._counts, np.empty((grown - len(self._counts), 3), dtype=np.int64)])
        self._slots = np.zeros(1 << (2 * grown - 1).bit_length(), dtype=np.int32)
        word_cells.enter(self._names, self._found, self._slots)


class _Kinds:
    """Cells by their counts: small ones in an array, the others in a list that is summed up now and then."""

    def __init__(self) -> None:
        size = (word_cells.SMALL, word_cells.SMALL)
        self._cells, self._stayed = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self._large: list[Counts] = []

    def add(self, counts: Counts) -> None:
        large = counts[word_cells.tally(counts, self._cells, self._stayed)]
        self._large.append(np.column_stack([large, np.ones(len(large), dtype=np.int64)]))
        if sum(map(len, self._large)) > _HELD // 4:
            self._large = [_summed(np.concatenate(self._large))]

    def summed(self) -> Counts:
        before, after = np.nonzero(self._cells)
        small = [before, after, self._stayed[before, after], self._cells[before, after]]
        return _summed(np.concatenate([np.stack(small, axis=1), *self._large]))


def _summed(kinds: Counts) -> Counts:
    """One line for each pair of counts before and after."""
    if not len(kinds):
        return kinds
    kinds = kinds[np.lexsort((kinds[:, 1], kinds[:, 0]))]
    begins = np.flatnonzero(np.r_[True, (kinds[1:, :2] != kinds[:-1, :2]).any(axis=1)])
    return np.column_stack([kinds[begins, :2], np.add.reduceat(kinds[:, 2:], begins, axis=0)])


def _counted(runs: Iterator[Words] | list[Words]) -> _Table:
    table, nowhere = _Table(1), np.empty((0, 2), dtype=np.uint64)
    for entries in runs:
        # No more at a time than a part should have: a cell with many records does not take room for many cells.
        for start in range(0, len(entries), _PART):
            some = entries[start : start + _PART]
            table.make_room(len(some))
            table.count(some, nowhere)
    return table


def _read(file: FileIO, start: int, number: int) -> Words:
    entries: Words = np.empty((number, 2), dtype=np.uint64)
    file.seek(16 * int(start))
    if number and file.readinto(entries.data) != entries.nbytes:
        raise InternalError("what was spilt cannot be read again", code="spill-lost")
    return entries


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise OutputError(
                f"what does not fit in memory could not be put down: {os.strerror(error.errno or errno.EIO)}",
                code="write-failed",
                hint="check the disk of the temporary files, or use the engine memory",
            ) from None
        raise OutputError(
            "there is no room for what does not fit in memory; nothing was left behind",
            code="disk-full",
            hint="make room among the temporary files, or use the engine memory",
        ) from None
