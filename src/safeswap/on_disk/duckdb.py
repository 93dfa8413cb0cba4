"""The Confidentiality Edit of 1990 of a file that does not fit in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.types import Names, Rows, UInt32s
from safeswap.engines.base import Constraint
from safeswap.engines.duckdb.checks import ChangedTable, repeated
from safeswap.engines.duckdb.engine import DuckDBEngine, StoredPairs
from safeswap.engines.identity import column_blocks, column_identity
from safeswap.engines.spilled_cells import SpilledCells, column_keys, record_words
from safeswap.engines.stream import RecordStream, at_a_time
from safeswap.errors import InputError
from safeswap.files.identifiers import missing_positions, positions_of, positions_told
from safeswap.files.parquet import ParquetFiles
from safeswap.methods.edit_1990.checks import check_counted
from safeswap.methods.edit_1990.method import Edit1990, edited, sample_key
from safeswap.methods.edit_1990.on_duckdb import DuckDBHouseholds
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.swap import Swap, constraint_of
from safeswap.model.columns import aligned_columns, different
from safeswap.model.invariant import Finding, Invariant
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec
from safeswap.on_disk.cells import together
from safeswap.on_disk.held_exchanges import part_of
from safeswap.on_disk.memory import looked_at, needed

if TYPE_CHECKING:
    from safeswap.on_disk.run import Job


# Exchanges in a file that does not fit in memory: it is read several times, never held.


class StoredExchanges(ABC):
    """What a method exchanges, as pairs in DuckDB, and the columns after it as they are asked for.

    ``exchanges`` are the attributes of each stage with its pairs. What they must keep to is said by the method.
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
        """Who may exchange these attributes."""

    @abstractmethod
    def _kept(self, names: Names) -> Sequence[Names]:
        """The sets of attributes whose counts an exchange of these leaves as they were."""

    @abstractmethod
    def _promises(self) -> tuple[Invariant, ...]:
        """What the method promises of the columns that are looked at."""

    def close(self) -> None:
        """Let go of the database and what it has spilt."""
        self.engine.close()

    @property
    def names(self) -> Names:
        """The columns that are written anew, in the order of the file."""
        changed = {name for names, _ in self.exchanges for name in names}
        return tuple(name for name in self.schema.names if name in changed)

    @property
    def stages(self) -> tuple[tuple[Names, int], ...]:
        """The attributes of each stage and how many pairs exchanged them."""
        return tuple((names, len(pairs)) for names, pairs in self.exchanges)

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """The changed columns of the records that come next."""
        if self._after is None or start == 0:
            self._after = _InOrder(after for _, _, after, _ in self._exchanged(()))
        codes = self._after.take(stop - start, len(self.names))
        values = [self.stream.coders[name].values(column) for name, column in zip(self.names, codes, strict=True)]
        return {name: pa.chunked_array([column]) for name, column in zip(self.names, values, strict=True)}

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """Stage and pairs of row numbers, in the order in which they were drawn, some at a time."""
        return ((stage, rows) for stage, (_, pairs) in enumerate(self.exchanges) for rows in self.engine.rows_of(pairs))

    def compensating(self) -> int:
        """Records that changed although the table did not: those that changed less the net change of the cells."""
        others = tuple(name for name in self.schema.categorical if name not in self.names)
        keys = column_keys(self._word_key, len(self.names) + len(others))
        own, rest = keys[: len(self.names)], keys[len(self.names) :]
        cells = SpilledCells(self.engine.store.work, records=2 * sum(number for _, number in self.stages))
        changed = 0
        for _, before, after, raw in self._exchanged(others):
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
        """Every promise, checked on the two files as read from disk again."""
        problems = [self._problem(names, pairs, written) for names, pairs in self.exchanges]
        told = "; ".join(dict.fromkeys(problem for problem in problems if problem))
        return tuple(
            Finding(invariant=type(p).__name__, sentence=p.sentence, ok=not told, problem=told)
            for p in self._promises()
        )

    def _problem(self, names: Names, pairs: StoredPairs, written: ParquetFiles) -> str:
        """What is wrong with a stage: who changed, whether the pairs explain it, whether counts are kept."""
        others = tuple(name for name in pairs.columns if name not in names)
        table = ChangedTable(self.engine.store, changed=len(names), others=len(others))
        start, read = 0, (*names, *others)
        with table.adding() as add:
            for mine, theirs in together(self.files, written, read, names, rows=at_a_time(len(read))):
                flags = [self._differs(name, mine.column(name), theirs.column(name)) for name in names]
                rows = np.flatnonzero(np.any(flags, axis=0))
                before, now = self._codes(mine, names, rows), self._codes(theirs, names, rows)
                add(rows + start, before, now, self._codes(mine, others, rows))
                start += mine.num_rows
        listed = " and ".join(names)
        problem = ""
        if len(table) != 2 * len(pairs) or table.in_pairs(pairs) != 2 * len(pairs):
            problem = f"other records than those of the pairs have another {listed} than before"
        elif table.explained(pairs, self._constraint(names), names, others) != len(pairs):
            problem = f"the pairs do not explain {listed}, or are not allowed"
        elif moved := next((kept for kept in self._kept(names) if _moved(table, kept, names, others)), None):
            problem = f"counts by {' and '.join(moved)} have moved"
        table.close()
        return problem

    def _codes(self, batch: pa.RecordBatch, names: Names, rows: Rows) -> list[UInt32s]:
        """The codes of some rows."""
        return [self.stream.codes(name, batch.column(name).take(pa.array(rows))) for name in names]

    def _differs(self, name: str, before: pa.Array, after: pa.Array) -> npt.NDArray[np.bool_]:
        kind = before.type.value_type if pa.types.is_dictionary(before.type) else before.type
        if pa.types.is_floating(kind):  # what counts is whether they are the same level, as when they were exchanged
            flags: npt.NDArray[np.bool_] = self.stream.codes(name, before) != self.stream.codes(name, after)
            return flags
        return different(*aligned_columns(pa.chunked_array([before]), pa.chunked_array([after])))

    def _exchanged(self, others: Names) -> Iterator[tuple[int, list[UInt32s], list[UInt32s], list[pa.Array]]]:
        """Batches in order: first record, codes before and after of what is exchanged, and ``others`` as they are."""
        changes = [_Changes(self.engine.changes(pairs, names), len(names)) for names, pairs in self.exchanges]
        width = len(self.names)
        coders = [self.stream.coders[name] for name in self.names]
        for start, batch in self.files.batches([*self.names, *others], rows=at_a_time(width + len(others))):
            before = [coder.codes(column) for coder, column in zip(coders, batch.columns[:width], strict=True)]
            after = [column.copy() for column in before]
            for (names, _), change in zip(self.exchanges, changes, strict=True):
                places, codes = change.up_to(start + batch.num_rows)
                for name, column in zip(names, codes, strict=True):
                    after[self.names.index(name)][places - start] = column
            yield start, before, after, batch.columns[width:]

    def _check_identifier(self, identity_key: bytes) -> None:
        """Refuse identifiers that are missing or shared; ones in ascending order are told apart as they pass by."""
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
        shared, first = repeated(store, table)
        store.drop(table)
        if shared:
            message = f"{shared:,} records share their identifier {name!r} with another"
            raise _bad_identifier("duplicate-identifier", message, name, first)


class Attributes:
    """As much of a file as a method looks at to say what it promises."""

    def __init__(self, attributes: Names) -> None:
        self.attributes = attributes


class _Changes:
    """New codes by ascending row, taken up to a row at a time."""

    def __init__(self, batches: Iterator[tuple[Rows, list[UInt32s]]], width: int) -> None:
        self._batches = batches
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._codes: list[UInt32s] = [np.zeros(0, dtype=np.uint32)] * width

    def up_to(self, stop: int) -> tuple[Rows, list[UInt32s]]:
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
    """Batches of codes cut to other lengths."""

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
    """The records of a batch of which some code has changed."""
    return np.flatnonzero(np.any([old != new for old, new in zip(before, after, strict=True)], axis=0))


def _moved(table: ChangedTable, kept: Names, names: Names, others: Names) -> int:
    """How many cells over ``kept`` have another count than before."""
    changed = [names.index(name) for name in kept if name in names]
    return table.moved_cells(changed, [others.index(name) for name in kept if name not in names])


def _bad_identifier(code: str, message: str, name: str, rows: list[int]) -> InputError:
    positions = np.array(rows, dtype=np.int64)
    return InputError(
        f"{message}, the first in {positions_told(positions, None)}",
        code=code,
        hint="an identifier must be there in every record and unique; name another column",
        column=name,
        **positions_of(positions, None),
    )


# A swap of a file that does not fit in memory.


class DuckDBSwap(StoredExchanges):
    """The pairs of a swap in DuckDB."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, set(needed(schema, spec)), job=job, work=work)

    def _draw(self, job: Job) -> None:
        self.plan, drawn = Swap().drawn(
            self.stream, self.spec, key=job.key, engine=self.engine, replicate=job.replicate
        )
        self.exchanges = tuple(zip(self.spec.stages, drawn, strict=True))

    def _constraint(self, names: Names) -> Constraint:
        return constraint_of(self.spec, names)

    def _kept(self, names: Names) -> Sequence[Names]:
        return [(*names, *self.spec.fixed)]

    def _promises(self) -> tuple[Invariant, ...]:
        return Swap().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]


class DuckDBEdit1990(StoredExchanges):
    """The pairs of households in DuckDB, and what was found on the way."""

    facts: Mapping[str, Any]

    def __init__(self, files: ParquetFiles, schema: Schema, spec: Edit1990Spec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, looked_at(schema, spec), job=job, work=work)

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
        self.plan = edited(found, self.spec, records=len(self.stream))
        self.exchanges = ((self.spec.exchanged, found.pairs),)
        self.facts = found.facts()

    def _constraint(self, names: Names) -> Constraint:
        return Constraint(equal=self.spec.matched, unequal=(self.spec.differing,))

    def _kept(self, names: Names) -> Sequence[Names]:
        return self.spec.kept

    def _promises(self) -> tuple[Invariant, ...]:
        return Edit1990().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]
