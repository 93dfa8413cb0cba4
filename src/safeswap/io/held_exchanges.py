"""Exchanges in a file of which only the columns that play a part are held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.engines.memory import MemoryEngine
from safeswap.io.identifiers import check_identifier
from safeswap.io.parquet_files import ParquetFiles
from safeswap.methods.swap import compensating
from safeswap.model.audit import Audit, Exchange, Rows
from safeswap.model.invariant import Finding, Invariant, verify
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema

Names = tuple[str, ...]


def part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """The schema of some columns."""
    return Schema(name=schema.name, attributes=tuple(schema[name] for name in names))


def held(files: ParquetFiles, schema: Schema, named: set[str]) -> Microdata:
    """The named columns and the identifier, which is checked, in the order of the file."""
    own = schema.identifier
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    names = [name for name in schema.names if name in named or (own is not None and name == own.name)]
    data = Microdata(files.table(names), part_of(schema, names))
    if own is not None:
        check_identifier(data.table.column(own.name), name=own.name, missing=own.missing, file=str(files.root))
    return data


class HeldExchanges:
    """What a method exchanged, and the columns after it."""

    plan: Plan
    exchanges: tuple[Exchange, ...]

    def __init__(self, files: ParquetFiles, schema: Schema, before: Microdata) -> None:
        self.files, self.schema, self.before = files, schema, before
        self.after = before
        self.facts: Mapping[str, Any] = {}

    def close(self) -> None:
        """Nothing is left behind."""

    @property
    def names(self) -> Names:
        """The columns that are written anew."""
        raise NotImplementedError

    @property
    def stages(self) -> tuple[tuple[Names, int], ...]:
        """The attributes of each stage and how many pairs exchanged them."""
        return tuple((exchange.attributes, len(exchange.pairs)) for exchange in self.exchanges)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """The changed columns of some records."""
        return {name: self.after.table.column(name).slice(start, stop - start) for name in self.names}

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """The pairs of each stage as row numbers, in the order in which they were drawn."""
        return ((stage, exchange.pairs) for stage, exchange in enumerate(self.exchanges))

    def compensating(self) -> int:
        """Records that changed although the table did not; only records that took part are looked at."""
        if not self.exchanges:
            return 0
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.exchanges:
            flags[exchange.pairs.ravel()] = True
        rows = np.flatnonzero(flags)
        # Only the places of rows that took part are filled in: nobody asks for the others.
        place = np.empty(len(flags), dtype=np.int32 if len(flags) < 2**31 else np.int64)
        place[rows] = np.arange(len(rows))
        changed = tuple(dict.fromkeys(name for exchange in self.exchanges for name in exchange.attributes))
        others = [name for name in self.schema.categorical if name not in changed]
        before = self._some(rows, [*changed, *others])
        after = before
        placed = []
        for exchange in self.exchanges:
            pairs = place[exchange.pairs].astype(np.int64)
            after = MemoryEngine().exchange(after, exchange.attributes, pairs)
            placed.append(Exchange(attributes=exchange.attributes, pairs=pairs))
        return compensating(before, after, tuple(placed))

    def findings(self, written: ParquetFiles) -> tuple[Finding, ...]:
        """Every promise, checked on what was read back from disk."""
        columns = {name: written.table([name]).column(0) for name in self.names}
        after = self.before.with_columns(columns, {})
        return verify(self._promises(), before=self.before, after=after, audit=self._audit())

    def _promises(self) -> tuple[Invariant, ...]:
        raise NotImplementedError

    def _audit(self) -> Audit:
        """As much of the record as promises look at."""
        return Audit(
            method=self.plan.method,
            spec={},
            records=len(self.before),
            asked=self.plan.asked,
            feasible=self.plan.feasible,
            made=0,
            exchanges=self.exchanges,
            key_id="",
            releasable=False,
            algorithm="",
            facts=self.facts,
        )

    def _some(self, rows: Rows, names: Sequence[str]) -> Microdata:
        """Some rows, in ascending order, of some columns, of which not all are held."""
        index = pa.array(rows)
        found = {name: self.before.table.column(name).take(index) for name in names if name in self.before.attributes}
        found |= _taken(self.files, [name for name in names if name not in found], rows)
        return Microdata(pa.table({name: found[name] for name in names}), part_of(self.schema, names))


def _taken(files: ParquetFiles, names: Sequence[str], rows: Rows) -> dict[str, pa.ChunkedArray]:
    """Some rows, in ascending order, of some columns: the others are decoded and let go again."""

    def take(name: str) -> pa.ChunkedArray:
        chunks = []
        for start, batch in files.batches([name]):
            first, last = np.searchsorted(rows, [start, start + batch.num_rows])
            chunks.append(batch.column(0).take(pa.array(rows[first:last] - start)))
        return pa.chunked_array(chunks)

    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        return dict(zip(names, threads.map(take, names), strict=True))
