"""Files on the memory engine: only the columns that a method names are held, as codes where that loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, order
from safeswap.arrays.heap import reusing_memory
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Rows, UInt64s, Words
from safeswap.engines.base import Drawn, Need
from safeswap.engines.memory import MemoryRecords, exchange
from safeswap.engines.spilled_cells import (
    ENTERED,
    ROWS_COMPARED,
    ComparedCells,
    TalliedCells,
    count_parts,
    name_cells,
    tally_kinds,
)
from safeswap.files.coded_columns import as_column, code_file_column, equals_codes, holds_every_bit, load_coded
from safeswap.files.identifiers import check_identifier
from safeswap.files.parquet import BATCH, ParquetFiles, open_parquet
from safeswap.methods.exchange import as_exchange, count_in_vain, find_rows
from safeswap.model.audit import Audit
from safeswap.model.geography import geography_levels
from safeswap.model.invariant import Finding, Invariant, verify
from safeswap.model.microdata import Coded, Microdata, code_column
from safeswap.model.schema import Schema
from safeswap.model.score import CountedCells
from safeswap.on_disk.cells import as_counted, cell_attributes
from safeswap.on_disk.job import ChangedColumn, RewrittenFile


def load_columns(files: ParquetFiles, schema: Schema, named: set[str]) -> Microdata:
    """Load the named columns and the identifier, which is checked, in file order."""
    own = schema.identifier
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    names = [name for name in schema.names if name in named or (own is not None and name == own.name)]
    data = load_coded(files, schema, names)
    if own is not None:
        check_identifier(data.table.column(own.name), name=own.name, missing=own.missing, file=str(files.root))
    return data


class MemoryFile(RewrittenFile):
    """A file of which some columns are held, before and after the exchange."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "relevant columns in memory, all others copied on disk"
    lacks: ClassVar[Mapping[Need, str]] = MemoryRecords.lacks

    _compensating: int | None = None

    def __enter__(self) -> Self:
        # Columns are as large as those freed before. On DuckDB this would raise the peak, which is limited there.
        self._reusing = ExitStack()
        self._reusing.enter_context(reusing_memory())
        return self

    def __exit__(self, *error: object) -> None:
        """Return what is free."""
        self._reusing.close()

    def open(self, read: Names) -> None:
        """Load the columns."""
        self.before = self.after = load_columns(self.files, self.schema, set(read))
        self.records = MemoryRecords(self.before, self.job.key)

    def check_loadable(self, read: Names, copies: int) -> None:
        """Check the identifier; the columns are loaded whatever their size."""
        if self.schema.identifier is not None:
            load_columns(self.files, self.schema, set())

    def exchange(self, drawn: Drawn) -> None:
        """Make the new columns."""
        self._facts = dict(drawn.facts)
        self.exchanges = tuple(as_exchange(move) for move in drawn.moves)
        for each in self.exchanges:
            self.after = _exchange(self.after, each.attributes, each.pairs, directed=each.directed)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the changed columns of some records."""
        return {name: _to_stored(self.after.table.column(name).slice(start, stop - start)) for name in self.names}

    def iter_changed(self, part: Path) -> Iterator[ChangedColumn]:
        """Yield the columns that are replaced, as they are held: what was written has been compared with them."""
        for name in self.names:
            before, after = (data.table.column(name) for data in (self.before, self.after))
            yield ChangedColumn(name, _iter_slices(before), _iter_slices(after))

    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield the pairs of each exchange."""
        return ((stage, each.pairs) for stage, each in enumerate(self.exchanges))

    def count_cells(self, limit: int) -> CountedCells:
        """Count the cells before and after: part by part where areas lie together, else all at once."""
        names = cell_attributes(self.schema, self.job.attributes)
        area, cuts = self._find_area(names)
        found: AreaCells | ComparedCells | None = None
        if cuts is not None and area in self.names:  # records enter other parts of the file
            found = self._count_by_area(names, area, cuts)
        found = found or self._compare(names, None if area in self.names else cuts)
        counted = as_counted(self.schema, names, found, limit=limit)
        if set(names) == {*self.schema.categorical, *self.names}:
            self._compensating = found.moved - counted.joint.net_change
        return counted

    def _find_area(self, names: Names) -> tuple[str, Rows | None]:
        """Return a column by whose values the file can be cut into small parts, and where; one is read if need be."""
        held = self._held_codes(names)
        # A finer one in which nothing is exchanged is worth reading, if those that are held make large parts.
        finest = [level for level in geography_levels(self.schema) if level in names][-1:]
        read = [name for name in finest if name not in held and name not in self.names]
        area, best = "", None
        for name in (*sorted(held, key=lambda name: -held[name].cardinality), *read):
            cuts = find_cuts(held[name].codes if name in held else code_file_column(self.files, name).codes)
            if cuts is not None and (best is None or len(cuts) > len(best)):
                area, best = name, cuts
                if np.diff(cuts).max() <= 2 * _TOGETHER:
                    break
        return area, best

    def _held_codes(self, names: Iterable[str]) -> dict[str, Coded]:
        held = ((name, self.before.cached_codes(name)) for name in names if name in self.before.attributes)
        return {name: coded for name, coded in held if coded is not None and holds_every_bit(coded)}

    def _count_by_area(self, names: Names, area: str, cuts: Rows) -> AreaCells | None:
        """Count from codes; None if some column has none, or if these would take more memory than all that is held."""
        before = self._held_codes({*names, *self.names})
        others = [name for name in names if name not in before]
        room = self.before.table.nbytes
        if not {area, *self.names} <= before.keys() or len(others) * len(self.files) > room:
            return None
        for name in others:
            before[name] = code_file_column(self.files, name)
            room -= before[name].codes.nbytes
            if room < 0 or not holds_every_bit(before[name]):
                return None
        if split_columns([before[name].cardinality for name in names]) is None:
            return None
        after = {name: self.after.coded(name).codes for name in self.names}
        return AreaCells(names, before, after, in_pairs=self._flag_pairs(), area=area, cuts=cuts)

    def _flag_pairs(self) -> Flags:
        """Flag the records that are in some pair."""
        in_pairs = np.zeros(len(self.files), dtype=np.bool_)
        for each in self.exchanges:
            in_pairs[each.pairs.ravel()] = True
        return in_pairs

    def _compare(self, names: Names, cuts: Rows | None) -> ComparedCells:
        """Count in one pass over the files."""
        compared = ComparedCells(self.work, names, records=len(self.files), cuts=cuts)
        for batch in self._iter_changes(names):
            compared.add(*batch)
        return compared

    def _iter_changes(self, names: Names) -> Iterator[tuple[pa.RecordBatch, Flags, dict[str, pa.Array]]]:
        """Yield ``names`` and the exchanged columns before, which records are in pairs, and their columns after."""
        in_pairs = self._flag_pairs()
        held = [name for name in self.before.attributes if name in {*names, *self.names}]
        others = [name for name in names if name not in held]
        for start, batch in self.files.batches(others, rows=ROWS_COMPARED):
            touched, rows = in_pairs[start : start + batch.num_rows], slice(start, start + batch.num_rows)
            before = [self.before.table.column(name)[rows].combine_chunks() for name in held]
            after = {n: self.after.table.column(n)[rows].filter(pa.array(touched)).combine_chunks() for n in self.names}
            yield pa.RecordBatch.from_arrays([*before, *batch.columns], names=[*held, *others]), touched, after

    def count_compensating(self) -> int:
        """Count records that changed although the table did not; columns that are not held are read in their rows."""
        if self._compensating is None:
            rows = find_rows(self.exchanges)
            others = [name for name in self.schema.categorical if name not in self.names]
            held = [name for name in others if self.before.cached_codes(name) is not None]
            columns = [self.before.codes_at(name, rows) for name in held]
            columns += [self._code_rows(name, rows) for name in others if name not in held]
            self._compensating = count_in_vain(self.before, self.after, self.names, rows, columns)
        return self._compensating

    def _code_rows(self, name: str, rows: Rows) -> tuple[Codes, int]:
        """Read a column and code its values in some rows, which ascend."""
        pieces = []
        for start, batch in self.files.batches([name]):
            first, end = np.searchsorted(rows, [start, start + batch.num_rows])
            pieces.append(batch.column(0).take(pa.array(rows[first:end] - start)))
        coded = code_column(pa.chunked_array(pieces))
        return coded.codes, coded.cardinality

    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise on the data read back from disk."""
        written = open_parquet(part, is_own=True)
        with ThreadPoolExecutor(pa.cpu_count()) as threads:
            columns = dict(zip(self.names, threads.map(lambda n: self._read_back(written, n), self.names), strict=True))
        after = self.before.with_columns(columns, {})
        return verify(promises, before=self.before, after=after, audit=self._audit())

    def _read_back(self, written: ParquetFiles, name: str) -> pa.ChunkedArray:
        before = self.before.table.column(name)
        if not pa.types.is_dictionary(before.type) or before.null_count:
            return written.table([name]).column(0)
        meant = self.after.coded(name)
        if equals_codes(written, name, meant):  # the data read equal these codes, value by value
            return as_column(meant)
        coded = code_file_column(written, name, known=before.chunk(0).dictionary)
        return as_column(coded) if not coded.has_missing else written.table([name]).column(0)

    def _audit(self) -> Audit:
        """Return as much of the audit as the promises need."""
        return Audit(records=len(self.before), exchanges=self.exchanges, facts=self._facts)


_TOGETHER = 1 << 15
"""Records counted together: their cells fit the second-level cache."""
_MOST_TOGETHER = 1 << 20
_PACKED_AT_ONCE = 1 << 18


class AreaCells:
    """The cells of codes before and after, counted part by part of a file whose parts have no area in common.

    Records of a cell are of one area, so those before lie in one part; those that enter are taken there beforehand.
    Nothing is spilled, and a part fits the cache.
    """

    def __init__(
        self,
        names: Names,
        before: Mapping[str, Coded],
        after: Mapping[str, Codes],
        *,
        in_pairs: Flags,
        area: str,
        cuts: Rows,
    ) -> None:
        rows = np.flatnonzero(in_pairs)
        flags = {name: codes[rows] != before[name].codes[rows] for name, codes in after.items()}
        self.differ = {name for name, differs in flags.items() if differs.any()}
        none = np.zeros(len(rows), dtype=np.bool_)
        self.moved = int(np.count_nonzero(np.any([none, *(flags[n] for n in names if n in flags)], axis=0)))
        self.untouched = len(in_pairs) - len(rows)
        self._sizes = [before[name].cardinality for name in names]
        self._before = [before[name].codes for name in names]
        self._kinds, self._cuts = in_pairs.view(np.uint8), cuts
        now = after.get(area, before[area].codes)[rows]
        # Areas are numbered in the order of the file: one is in the first part whose highest number reaches it.
        place = np.searchsorted(np.maximum.reduceat(before[area].codes, cuts[:-1]), now)
        entering = rows[np.argsort(place, kind="stable")]
        self._entering = self._pack([after.get(name, before[name].codes)[entering] for name in names])
        self._ends = np.append(0, np.cumsum(np.bincount(place, minlength=len(cuts) - 1)))

    def tally(self, *, limit: int) -> TalliedCells:
        """Return the cells by their counts."""
        return tally_kinds(count_parts(self._iter_parts()).tolist(), limit=limit)

    def _iter_parts(self) -> Iterator[Words]:
        """Yield the entries of each part."""
        packed, first, stop = self._entering[:, :0], 0, 0
        for part, (low, high) in enumerate(pairwise(self._cuts.tolist())):
            if high > stop:
                first, stop = low, max(high, min(low + _PACKED_AT_ONCE, len(self._kinds)))
                packed = self._pack([column[first:stop] for column in self._before])
            begin, end = self._ends[part : part + 2]
            entries: Words = np.empty((high - low + end - begin, 2), dtype=np.uint64)
            name_cells(packed[:, low - first : high - first], self._kinds[low:high], entries[: high - low])
            entered = np.full(end - begin, ENTERED, dtype=np.uint8)
            name_cells(self._entering[:, begin:end], entered, entries[high - low :])
            yield entries

    def _pack(self, columns: Sequence[Codes]) -> UInt64s:
        """Return the two numbers that name the cell of each record."""
        cut = split_columns(self._sizes)
        packed = np.zeros((2, len(columns[0])), dtype=np.uint64)
        for number, some in zip(packed, (slice(cut), slice(cut, None)), strict=True):
            if columns[some]:
                number[:] = cells.pack(columns[some], self._sizes[some])[0]
        return packed


def split_columns(sizes: Sequence[int]) -> int | None:
    """Return how many of the columns fit one packed number, if the others then fit another; else None.

    >>> split_columns([2**40, 2**20, 2**40]), split_columns([2**40, 2**40, 2**40])
    (2, None)
    """
    cut = next((i for i in range(len(sizes), 0, -1) if prod(sizes[:i]) <= cells.MOST_CELLS), 0)
    return cut if prod(sizes[cut:]) <= cells.MOST_CELLS else None


def find_cuts(codes: Codes) -> Rows | None:
    """Return where a file can be cut into parts that have no code in common; None if some part would be too large.

    Codes are numbered in the order in which they are met, so it can be cut where all before are lower than all behind.

    >>> find_cuts(np.array([0, 0, 1, 2, 1], np.uint8)).tolist()
    [0, 5]
    >>> find_cuts(np.repeat(np.arange(3, dtype=np.uint8), _TOGETHER + 1)).tolist()
    [0, 32769, 65538, 98307]
    """
    starts = np.arange(0, len(codes), _TOGETHER)
    highest = np.maximum.accumulate(np.maximum.reduceat(codes, starts))
    lowest = np.minimum.accumulate(np.minimum.reduceat(codes, starts)[::-1])[::-1]
    cuts = [0]
    for place, start in enumerate(starts[1:].tolist()):
        behind = codes[start : start + _TOGETHER]
        first = int(np.argmax(behind > highest[place]))
        rest = min([behind[first:].min(), *lowest[place + 2 : place + 3]])
        if rest > highest[place]:
            cuts.append(start + first)
        elif start - cuts[-1] > _MOST_TOGETHER:
            return None
    cuts.append(len(codes))
    return np.array(cuts) if cuts[-1] - cuts[-2] <= _MOST_TOGETHER else None


def _iter_slices(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Yield a column in pieces, so that what is made of each need not be held for all."""
    return (column.slice(start, BATCH) for start in range(0, len(column), BATCH))


def _exchange(data: Microdata, attributes: Names, pairs: Rows, *, directed: bool) -> Microdata:
    """Exchange values; of columns held as codes only, the codes."""
    coded: dict[str, Coded] = {}
    others = []
    for name in attributes:
        before = data.coded(name)
        if before.has_missing or not pa.types.is_dictionary(data.table.column(name).type):
            others.append(name)
            continue
        codes = before.codes.copy()
        order.exchange(codes, pairs, directed=directed)
        coded[name] = Coded(codes, before.levels, has_missing=False)
    data = data.with_columns({name: as_column(each) for name, each in coded.items()}, coded)
    return exchange(data, tuple(others), pairs, directed=directed) if others else data


def _to_stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column as stored in Parquet: text with its dictionary, numbers without."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) and _is_integer(kind.value_type) else column


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))
