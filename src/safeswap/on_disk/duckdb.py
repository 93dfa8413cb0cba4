"""Exchanges on DuckDB, for files that do not fit in memory: a swap, and the Confidentiality Edit of 1990."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows, UInt32s
from safeswap.engines.base import Constraint
from safeswap.engines.duckdb.checks import ChangedTable, find_repeated
from safeswap.engines.duckdb.engine import DuckDBEngine, StoredPairs
from safeswap.engines.identity import column_blocks, column_identity
from safeswap.engines.spilled_cells import SpilledCells, column_keys, record_words
from safeswap.engines.stream import RecordStream, rows_per_batch
from safeswap.errors import InputError
from safeswap.files.identifiers import missing_positions, positions_of, positions_told
from safeswap.files.parquet import ParquetFiles
from safeswap.methods.edit_1990.checks import check_counted
from safeswap.methods.edit_1990.method import Edit1990, sample_key, sample_outcome
from safeswap.methods.edit_1990.on_duckdb import DuckDBHouseholds
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.swap import Swap, constraint_of
from safeswap.model.columns import aligned_columns, different
from safeswap.model.invariant import Finding, Invariant
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec
from safeswap.model.text import several
from safeswap.on_disk.cells import zip_batches
from safeswap.on_disk.held_exchanges import part_of
from safeswap.on_disk.memory import needed_columns, read_columns

if TYPE_CHECKING:
    from safeswap.on_disk.run import Job


class StoredExchanges(ABC):
    """The exchanges of a method, as pairs in DuckDB, and the resulting columns on request.

    ``exchanges`` are the attributes of each stage with its pairs. The method states their constraints.
    """

    plan: Plan
    exchanges: tuple[tuple[Names, StoredPairs], ...]

    def __init__(self, files: ParquetFiles, schema: Schema, named: set[str], *, job: Job, work: Path) -> None:
        own = schema.identifier
        for name in named - set(schema.names):
            schema[name]  # an unknown attribute gets its own clear error
        named = named if own is None else {*named, own.name}
        self.files, self.schema = files, schema
        self.part = part_of(schema, [name for name in schema.names if name in named])
        self.engine = DuckDBEngine(work, memory_limit=job.memory_limit, threads=job.threads)
        self.stream = RecordStream(files, self.part)
        self._after: _InOrder | None = None
        self._word_key = keyed.derive(job.key.secret, "cells")
        try:
            self._check_identifier(keyed.derive(job.key.secret, "identity"))
            self._draw(job)
            pa.default_memory_pool().release_unused()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _draw(self, job: Job) -> None:
        """Set ``plan`` and ``exchanges``."""

    @abstractmethod
    def _constraint(self, names: Names) -> Constraint:
        """Return the constraint on exchanges of these attributes."""

    @abstractmethod
    def _kept_sets(self, names: Names) -> Sequence[Names]:
        """Return the sets of attributes whose counts an exchange of these preserves."""

    @abstractmethod
    def _promises(self) -> tuple[Invariant, ...]:
        """Return the method's promises about the columns it reads."""

    def close(self) -> None:
        """Close the database and remove spilled files."""
        self.engine.close()

    @property
    def names(self) -> Names:
        """The rewritten columns, in file order."""
        changed = {name for names, _ in self.exchanges for name in names}
        return tuple(name for name in self.schema.names if name in changed)

    @property
    def stages(self) -> tuple[tuple[Names, int], ...]:
        """The attributes of each stage, and its number of pairs."""
        return tuple((names, len(pairs)) for names, pairs in self.exchanges)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the changed columns of the next records."""
        if self._after is None or start == 0:
            self._after = _InOrder(after for _, _, after, _ in self._exchange_batches(()))
        codes = self._after.take(stop - start, len(self.names))
        values = [self.stream.coders[name].values(column) for name, column in zip(self.names, codes, strict=True)]
        return {name: pa.chunked_array([column]) for name, column in zip(self.names, values, strict=True)}

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield stage and pairs of row numbers, in the order of drawing, in batches."""
        return ((stage, rows) for stage, (_, pairs) in enumerate(self.exchanges) for rows in self.engine.rows_of(pairs))

    def count_compensating(self) -> int:
        """Count records that changed although the table did not: changed records minus the net change of the cells."""
        others = tuple(name for name in self.schema.categorical if name not in self.names)
        keys = column_keys(self._word_key, len(self.names) + len(others))
        own, rest = keys[: len(self.names)], keys[len(self.names) :]
        cells = SpilledCells(self.engine.store.work, records=2 * sum(number for _, number in self.stages))
        changed = 0
        for _, before, after, raw in self._exchange_batches(others):
            rows = _changed_rows(before, after)
            index, kept = pa.array(rows), np.zeros((len(rows), 2), dtype=np.uint64)
            if raw:
                kept = record_words([column.take(index) for column in raw], rest)
            old, new = (record_words([pa.array(column[rows]) for column in side], own) for side in (before, after))
            cells.add(kept ^ old, np.ones(len(rows), dtype=np.bool_), kept ^ new)
            changed += len(rows)
        kinds = cells.kinds()
        net = (np.abs(kinds[:, 0] - kinds[:, 1]) * kinds[:, 3]).sum() // 2
        return changed - int(net)

    def findings(self, written: ParquetFiles) -> tuple[Finding, ...]:
        """Check every promise on both files, read back from disk."""
        problems = [self._problem(names, pairs, written) for names, pairs in self.exchanges]
        text = "; ".join(dict.fromkeys(problem for problem in problems if problem))
        return tuple(
            Finding(invariant=type(p).__name__, sentence=p.sentence, ok=not text, problem=text)
            for p in self._promises()
        )

    def _problem(self, names: Names, pairs: StoredPairs, written: ParquetFiles) -> str:
        """Describe what is wrong with a stage: changed records, pairs that do not explain them, counts not kept."""
        others = tuple(name for name in pairs.columns if name not in names)
        table = ChangedTable(self.engine.store, changed=len(names), others=len(others))
        start, read = 0, (*names, *others)
        with table.inserter() as add:
            for mine, theirs in zip_batches(self.files, written, read, names, rows=rows_per_batch(len(read))):
                flags = [self._differs(name, mine.column(name), theirs.column(name)) for name in names]
                rows = np.flatnonzero(np.any(flags, axis=0))
                before, now = self._codes(mine, names, rows), self._codes(theirs, names, rows)
                add(rows + start, before, now, self._codes(mine, others, rows))
                start += mine.num_rows
        listed = " and ".join(names)
        problem = ""
        if len(table) != 2 * len(pairs) or table.count_in_pairs(pairs) != 2 * len(pairs):
            problem = f"other records than those of the pairs have another {listed} than before"
        elif table.count_explained(pairs, self._constraint(names), names, others) != len(pairs):
            problem = f"the pairs do not explain {listed}, or are not allowed"
        elif moved := next((kept for kept in self._kept_sets(names) if _count_moved(table, kept, names, others)), None):
            problem = f"counts by {' and '.join(moved)} have moved"
        table.close()
        return problem

    def _codes(self, batch: pa.RecordBatch, names: Names, rows: Rows) -> list[UInt32s]:
        """Return the codes of some rows."""
        return [self.stream.codes(name, batch.column(name).take(pa.array(rows))) for name in names]

    def _differs(self, name: str, before: pa.Array, after: pa.Array) -> npt.NDArray[np.bool_]:
        kind = before.type.value_type if pa.types.is_dictionary(before.type) else before.type
        if pa.types.is_floating(kind):  # compare levels, as in the exchange
            flags: npt.NDArray[np.bool_] = self.stream.codes(name, before) != self.stream.codes(name, after)
            return flags
        return different(*aligned_columns(pa.chunked_array([before]), pa.chunked_array([after])))

    def _exchange_batches(self, others: Names) -> Iterator[tuple[int, list[UInt32s], list[UInt32s], list[pa.Array]]]:
        """Yield in order: first record, codes before and after of the exchanged columns, and ``others`` unchanged."""
        changes = [_Changes(self.engine.changes(pairs, names), len(names)) for names, pairs in self.exchanges]
        width = len(self.names)
        coders = [self.stream.coders[name] for name in self.names]
        for start, batch in self.files.batches([*self.names, *others], rows=rows_per_batch(width + len(others))):
            before = [coder.codes(column) for coder, column in zip(coders, batch.columns[:width], strict=True)]
            after = [column.copy() for column in before]
            for (names, _), change in zip(self.exchanges, changes, strict=True):
                places, codes = change.take_until(start + batch.num_rows)
                for name, column in zip(names, codes, strict=True):
                    after[self.names.index(name)][places - start] = column
            yield start, before, after, batch.columns[width:]

    def _check_identifier(self, identity_key: bytes) -> None:
        """Refuse missing or shared identifiers; ascending ones are checked in the same pass."""
        own = self.schema.identifier
        if own is None:
            return
        ascending, last, absent = True, None, []
        for start, batch in self.files.batches([own.name]):
            column = pa.chunked_array([batch.column(0)])
            absent += (missing_positions(column, own.missing)[:5] + start).tolist()
            identity = column_identity(column, identity_key) if not absent else np.zeros(0, dtype=np.int64)
            ascending &= identity.ndim == 1 and bool((np.diff(identity) > 0).all())
            ascending &= last is None or not len(identity) or bool(identity.ravel()[0] > last)
            last = identity.ravel()[-1] if len(identity) else last
        if absent:
            raise _bad_identifier("missing-identifier", f"records have no identifier {own.name!r}", own.name, absent)
        if not ascending:
            self._check_repeated(own.name, identity_key)

    def _check_repeated(self, name: str, identity_key: bytes) -> None:
        store = self.engine.store
        table = store.new_table("r BIGINT, w0 UBIGINT, w1 UBIGINT")
        for start, batch in self.files.batches([name]):
            blocks = column_blocks(batch.column(0), identity_key)
            rows = np.arange(start, start + len(blocks))
            columns = [rows, np.ascontiguousarray(blocks[:, 0]), np.ascontiguousarray(blocks[:, 1])]
            store.insert(table, pa.table([pa.array(c) for c in columns], names=list("xyz")))
        shared, first = find_repeated(store, table)
        store.drop(table)
        if shared:
            message = f"{several(shared, 'record shares', 'records share')} an identifier {name!r} with another"
            raise _bad_identifier("duplicate-identifier", message, name, first)


class Attributes:
    """The part of a file that a method needs to state its promises."""

    def __init__(self, attributes: Names) -> None:
        self.attributes = attributes


class _Changes:
    """New codes by ascending row, taken up to a given row."""

    def __init__(self, batches: Iterator[tuple[Rows, list[UInt32s]]], width: int) -> None:
        self._batches = batches
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._codes: list[UInt32s] = [np.zeros(0, dtype=np.uint32)] * width

    def take_until(self, stop: int) -> tuple[Rows, list[UInt32s]]:
        while not len(self._rows) or self._rows[-1] < stop:
            batch = next(self._batches, None)
            if batch is None:
                break
            rows, codes = batch
            self._rows = np.concatenate([self._rows, rows])
            self._codes = [np.concatenate(pair) for pair in zip(self._codes, codes, strict=True)]
        cut = int(np.searchsorted(self._rows, stop))
        taken = self._rows[:cut], [column[:cut] for column in self._codes]
        self._rows, self._codes = self._rows[cut:], [column[cut:] for column in self._codes]
        return taken


class _InOrder:
    """Batches of codes, recut to other lengths."""

    def __init__(self, batches: Iterator[list[UInt32s]]) -> None:
        self._batches = batches
        self._held: list[list[UInt32s]] = []

    def take(self, number: int, width: int) -> list[UInt32s]:
        while sum(len(held[0]) for held in self._held) < number:
            self._held.append(next(self._batches))
        if not self._held:
            return [np.zeros(0, dtype=np.uint32) for _ in range(width)]
        joined = [np.concatenate(columns) for columns in zip(*self._held, strict=True)]
        self._held = [[column[number:] for column in joined]] if len(joined[0]) > number else []
        return [column[:number] for column in joined]


def _changed_rows(before: list[UInt32s], after: list[UInt32s]) -> Rows:
    """Return the records of a batch with a changed code."""
    return np.flatnonzero(np.any([old != new for old, new in zip(before, after, strict=True)], axis=0))


def _count_moved(table: ChangedTable, kept: Names, names: Names, others: Names) -> int:
    """Count the cells over ``kept`` whose count changed."""
    changed = [names.index(name) for name in kept if name in names]
    return table.count_moved_cells(changed, [others.index(name) for name in kept if name not in names])


def _bad_identifier(code: str, message: str, name: str, rows: list[int]) -> InputError:
    positions = np.array(rows, dtype=np.int64)
    return InputError(
        f"{message}, the first in {positions_told(positions, None)}",
        code=code,
        hint="an identifier must be there in every record and unique; name another column",
        column=name,
        **positions_of(positions, None),
    )


class DuckDBSwap(StoredExchanges):
    """The pairs of a swap in DuckDB."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, set(needed_columns(schema, spec)), job=job, work=work)

    def _draw(self, job: Job) -> None:
        self.plan, drawn = Swap().drawn(
            self.stream, self.spec, key=job.key, engine=self.engine, replicate=job.replicate
        )
        self.exchanges = tuple(zip(self.spec.stages, drawn, strict=True))

    def _constraint(self, names: Names) -> Constraint:
        return constraint_of(self.spec, names)

    def _kept_sets(self, names: Names) -> Sequence[Names]:
        return [(*names, *self.spec.fixed)]

    def _promises(self) -> tuple[Invariant, ...]:
        return Swap().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]


class DuckDBEdit1990(StoredExchanges):
    """The pairs of households in DuckDB, and the facts found on the way."""

    facts: Mapping[str, Any]

    def __init__(self, files: ParquetFiles, schema: Schema, spec: Edit1990Spec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, read_columns(schema, spec), job=job, work=work)

    def _draw(self, job: Job) -> None:
        households = DuckDBHouseholds(
            self.engine,
            self.stream,
            self.spec,
            draw_key=sample_key(self.stream, job.key, replicate=job.replicate),
            identity_key=keyed.derive(job.key.secret, "identity"),
        )
        households.count()
        check_counted(households, self.part, self.spec)
        found = households.partners()
        self.plan = sample_outcome(found, self.spec, records=len(self.stream))
        self.exchanges = ((self.spec.exchanged, found.pairs),)
        self.facts = found.facts()

    def _constraint(self, names: Names) -> Constraint:
        return Constraint(equal=self.spec.matched, unequal=(self.spec.differing,))

    def _kept_sets(self, names: Names) -> Sequence[Names]:
        return self.spec.kept

    def _promises(self) -> tuple[Invariant, ...]:
        return Edit1990().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]
