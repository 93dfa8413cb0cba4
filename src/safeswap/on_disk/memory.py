"""Files on the memory engine: only the columns that a method names are held, as codes where that loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import pairing
from safeswap.arrays.cells import MOST_CELLS, count_cells_jointly
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows
from safeswap.engines.base import Drawn, Need
from safeswap.engines.memory import MemoryRecords, exchange
from safeswap.files.coded_columns import as_column, code_columns, code_file_column, equals_codes
from safeswap.files.identifiers import check_identifier
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.model.audit import Audit, Exchange
from safeswap.model.invariant import Finding, Invariant, verify
from safeswap.model.microdata import Coded, Microdata, code_column
from safeswap.model.schema import Schema
from safeswap.model.score import CountedCells, only_numbers_changed
from safeswap.on_disk.counted_cells import (
    ChangingColumn,
    cell_attributes,
    counted_cells,
    net_change,
    pack_cells,
    take_rows,
)
from safeswap.on_disk.job import RewrittenFile


def select_schema(schema: Schema, names: Sequence[str]) -> Schema:
    """Return the schema of some columns."""
    return Schema(name=schema.name, label=schema.label, attributes=tuple(schema[name] for name in names))


def load_columns(files: ParquetFiles, schema: Schema, named: set[str]) -> Microdata:
    """Load the named columns and the identifier, which is checked, in file order."""
    own = schema.identifier
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    names = [name for name in schema.names if name in named or (own is not None and name == own.name)]
    categorical = [name for name in names if schema[name].kind.is_categorical]
    with ThreadPoolExecutor(1) as aside:
        reading = aside.submit(files.table, [name for name in names if name not in categorical])
        coded = _keep_codes(code_columns(files, categorical))
        parts = [files.table([name for name in categorical if name not in coded]), reading.result()]
    columns = {name: as_column(each) for name, each in coded.items()}
    columns |= {name: column for part in parts for name, column in zip(part.column_names, part.columns, strict=True)}
    data = Microdata(pa.table({name: columns[name] for name in names}), select_schema(schema, names), None, coded)
    if own is not None:
        check_identifier(data.table.column(own.name), name=own.name, missing=own.missing, file=str(files.root))
    return data


def _keep_codes(coded: dict[str, Coded]) -> dict[str, Coded]:
    """Return the columns that can be held as codes alone, bit for bit."""
    kinds = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_large_string)
    return {n: c for n, c in coded.items() if not c.has_missing and any(is_kind(c.levels.type) for is_kind in kinds)}


class MemoryFile(RewrittenFile):
    """A file of which some columns are held, before and after the exchange."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "relevant columns in memory, all others copied on disk"
    lacks: ClassVar[Mapping[Need, str]] = MemoryRecords.lacks

    _compensating: int | None = None

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
        self._facts = dict(drawn.facts)  # computed now, so that their inputs can be freed
        self.exchanges = tuple(Exchange(attributes=move.names, pairs=move.pairs) for move in drawn.moves)
        for each in self.exchanges:
            self.after = _exchange(self.after, each.attributes, each.pairs)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the changed columns of some records."""
        return {name: _to_stored(self.after.table.column(name).slice(start, stop - start)) for name in self.names}

    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield the pairs of each exchange."""
        return ((stage, each.pairs) for stage, each in enumerate(self.exchanges))

    @cached_property
    def rows(self) -> Rows:
        """The records that took part, in ascending order."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for each in self.exchanges:
            flags[each.pairs.ravel()] = True
        return np.flatnonzero(flags)

    @property
    def exchanged(self) -> Names:
        """The attributes exchanged in some stage."""
        return tuple(dict.fromkeys(name for each in self.exchanges for name in each.attributes))

    def count_cells(self, limit: int) -> CountedCells:
        """Count the cells before and after, from the held columns and one pass over the others."""
        names = cell_attributes(self.schema, self.job.attributes)
        others = code_columns(self.files, [name for name in names if name not in self.before.attributes])
        columns = {name: self._column(name, others.get(name)) for name in names}
        numbers = only_numbers_changed(self.schema, [name for name in self.exchanged if self._differs(name)])
        counted = counted_cells(self.schema, names, columns, self.rows, limit=limit, only_numbers=numbers)
        if set(names) == set(self.schema.categorical) and set(self.exchanged) <= set(names):
            self._compensating = counted.moved - net_change(counted.joint)
        return counted

    def _differs(self, name: str) -> bool:
        before, after = (data.coded(name).codes[self.rows] for data in (self.before, self.after))
        return not np.array_equal(before, after)

    def count_compensating(self) -> int:
        """Count records that changed although the table did not; only records that took part are considered."""
        if self._compensating is None:
            self._compensating = self._count_compensating() if self.exchanges else 0
        return self._compensating

    def _count_compensating(self) -> int:
        names = dict.fromkeys([*self.exchanged, *self.schema.categorical])
        others = _take_rows(self.files, [name for name in names if name not in self.before.attributes], self.rows)
        columns = []
        for name in names:
            held = self._column(name, None) if name in self.before.attributes else None
            columns.append(take_rows(held, self.rows) if held else _as_changing(code_column(others.pop(name))))
        was, now, *_ = pack_cells(columns, np.arange(len(self.rows)))
        moved = was != now
        return int(np.count_nonzero(moved)) - net_change(count_cells_jointly([was[moved]], [now[moved]], [MOST_CELLS]))

    def _column(self, name: str, other: Coded | None) -> ChangingColumn:
        if other is not None:
            return _as_changing(other)
        before = self.before.coded(name)
        after = self.after.coded(name).codes[self.rows] if name in self.exchanged else None
        return ChangingColumn(before=before.codes, after=after, cardinality=before.cardinality)

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


def _exchange(data: Microdata, attributes: Names, pairs: Rows) -> Microdata:
    """Exchange values; of columns held as codes only, the codes."""
    coded: dict[str, Coded] = {}
    others = []
    for name in attributes:
        before = data.coded(name)
        if before.has_missing or not pa.types.is_dictionary(data.table.column(name).type):
            others.append(name)
            continue
        codes = before.codes.copy()
        pairing.exchange(codes, pairs)
        coded[name] = Coded(codes, before.levels, has_missing=False)
    data = data.with_columns({name: as_column(each) for name, each in coded.items()}, coded)
    return exchange(data, tuple(others), pairs) if others else data


def _to_stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column as stored in Parquet: text with its dictionary, numbers without."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) and _is_integer(kind.value_type) else column


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _as_changing(column: Coded) -> ChangingColumn:
    return ChangingColumn(before=column.codes, after=None, cardinality=column.cardinality)


def _take_rows(files: ParquetFiles, names: Sequence[str], rows: Rows) -> dict[str, pa.ChunkedArray]:
    """Read some rows, in ascending order, of some columns, discarding the other rows after decoding."""

    def take(name: str) -> pa.ChunkedArray:
        chunks = []
        for start, batch in files.batches([name]):
            first, last = np.searchsorted(rows, [start, start + batch.num_rows])
            chunks.append(batch.column(0).take(pa.array(rows[first:last] - start)))
        return pa.chunked_array(chunks)

    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        return dict(zip(names, threads.map(take, names), strict=True))
