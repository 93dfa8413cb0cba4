"""A swap of a file of which only the columns that play a part are held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from safeswap.engines.memory import MemoryEngine
from safeswap.io.identifiers import check_identifier
from safeswap.io.parquet_files import ParquetFiles
from safeswap.methods.swap import Swap, compensating
from safeswap.model.audit import Audit, Exchange, Rows
from safeswap.model.invariant import Finding, verify
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec


def needed(schema: Schema, spec: SwapSpec) -> tuple[str, ...]:
    """The columns without which pairs cannot be drawn: identifier, roles, keys of targeting."""
    named = {*spec.swap, *spec.fixed, *spec.differ}
    if spec.targeting:
        named |= set(spec.targeting.keys or schema.categorical)
    if schema.identifier:
        named.add(schema.identifier.name)
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    return tuple(name for name in schema.names if name in named)


def part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """The schema of some columns."""
    return Schema(name=schema.name, attributes=tuple(schema[name] for name in names))


class MemorySwap:
    """The pairs of a swap, and the columns after it."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, key: Key, replicate: int) -> None:
        self.files, self.schema, self.spec = files, schema, spec
        engine = MemoryEngine()
        names = needed(schema, spec)
        self.before = Microdata(files.table(names), part_of(schema, names))
        _check_identifier(self.before, files)
        self.plan: Plan
        self.plan, drawn = Swap().drawn(self.before, spec, key=key, engine=engine, replicate=replicate)
        self.exchanges = tuple(Exchange(attributes=n, pairs=p) for n, p in zip(spec.stages, drawn, strict=True))
        after = self.before
        for exchange in self.exchanges:
            after = engine.exchange(after, exchange.attributes, exchange.pairs)
        self.after = after

    def close(self) -> None:
        """Nothing is left behind."""

    @property
    def stages(self) -> tuple[tuple[tuple[str, ...], int], ...]:
        """The attributes of each stage and how many pairs exchanged them."""
        return tuple((exchange.attributes, len(exchange.pairs)) for exchange in self.exchanges)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """The swapped columns of some records."""
        return {name: self.after.table.column(name).slice(start, stop - start) for name in self.spec.swap}

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """The pairs of each stage as row numbers, in the order in which they were drawn."""
        return ((stage, exchange.pairs) for stage, exchange in enumerate(self.exchanges))

    def compensating(self) -> int:
        """Records that changed although the table did not; only records that took part are looked at."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.exchanges:
            flags[exchange.pairs.ravel()] = True
        rows = np.flatnonzero(flags)
        # Only the places of rows that took part are filled in: nobody asks for the others.
        place = np.empty(len(flags), dtype=np.int32 if len(flags) < 2**31 else np.int64)
        place[rows] = np.arange(len(rows))
        others = [name for name in self.schema.categorical if name not in self.spec.swap]
        some = {name: self.before.table.column(name).take(pa.array(rows)) for name in self.spec.swap}
        some |= _taken(self.files, others, rows)
        before = Microdata(pa.table(some), part_of(self.schema, list(some)))
        after = before
        placed = []
        for exchange in self.exchanges:
            pairs = place[exchange.pairs].astype(np.int64)
            after = MemoryEngine().exchange(after, exchange.attributes, pairs)
            placed.append(Exchange(attributes=exchange.attributes, pairs=pairs))
        return compensating(before, after, tuple(placed))

    def findings(self, written: ParquetFiles) -> tuple[Finding, ...]:
        """Every promise, checked on what was read back from disk."""
        audit = self._audit()
        columns = {name: written.table([name]).column(0) for name in self.spec.swap}
        after = self.before.with_columns(columns, {})
        return verify(Swap().invariants(self.before, self.spec), before=self.before, after=after, audit=audit)

    def _audit(self) -> Audit:
        return Audit(
            method=Swap.name,
            spec={},
            records=len(self.before),
            asked=self.plan.asked,
            feasible=self.plan.feasible,
            made=min(number for _, number in self.stages),
            exchanges=self.exchanges,
            key_id="",
            releasable=False,
            algorithm="",
        )


def _check_identifier(data: Microdata, files: ParquetFiles) -> None:
    own = data.schema.identifier
    if own is not None:
        check_identifier(data.table.column(own.name), name=own.name, missing=own.missing, file=str(files.root))


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
