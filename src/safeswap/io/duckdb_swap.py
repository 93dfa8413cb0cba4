"""A swap of a file that does not fit in memory: read several times, never held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.engines.duckdb import DuckDBEngine
from safeswap.engines.duckdb_checks import ChangedTable, repeated
from safeswap.engines.identity import column_identity
from safeswap.engines.stream import RecordStream
from safeswap.errors import InputError
from safeswap.io.identifiers import missing_positions, positions_of, positions_told
from safeswap.io.memory_swap import needed, part_of
from safeswap.io.parquet_files import ParquetFiles
from safeswap.kernels import keyed
from safeswap.methods.swap import Swap, constraint_of
from safeswap.model.audit import Rows
from safeswap.model.invariant import Finding
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec

if TYPE_CHECKING:
    from safeswap.io.mask_files import Job

Codes = npt.NDArray[np.uint32]
Names = tuple[str, ...]


class DuckDBSwap:
    """The pairs of a swap in DuckDB, and the columns after it as they are asked for."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, job: Job, work: Path) -> None:
        self.files, self.schema, self.spec = files, schema, spec
        names = needed(schema, spec)
        self._part = part_of(schema, names)
        self.engine = DuckDBEngine(work, memory_limit=job.memory_limit, threads=job.threads)
        try:
            self._check_identifier(keyed.derive(job.key.secret, "identity"))
            self.stream = RecordStream(files, self._part)
            self.plan, self.drawn = Swap().drawn(
                self.stream, spec, key=job.key, engine=self.engine, replicate=job.replicate
            )
        except BaseException:
            self.close()
            raise
        self._after: _InOrder | None = None

    def close(self) -> None:
        """Let go of the database and what it has spilt."""
        self.engine.close()

    @property
    def stages(self) -> tuple[tuple[Names, int], ...]:
        """The attributes of each stage and how many pairs exchanged them."""
        return tuple((names, len(pairs)) for names, pairs in zip(self.spec.stages, self.drawn, strict=True))

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """The swapped columns of the records that come next."""
        if self._after is None or start == 0:
            self._after = _InOrder(after for _, _, after in self._exchanged(()))
        codes = self._after.take(stop - start, len(self.spec.swap))
        values = [self.stream.coders[name].values(column) for name, column in zip(self.spec.swap, codes, strict=True)]
        return {name: pa.chunked_array([column]) for name, column in zip(self.spec.swap, values, strict=True)}

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """Stage and pairs of row numbers, in the order in which they were drawn, some at a time."""
        return ((stage, rows) for stage, pairs in enumerate(self.drawn) for rows in self.engine.rows_of(pairs))

    def compensating(self) -> int:
        """Records that changed although the table did not; only those that changed are put down."""
        others = tuple(name for name in self.schema.categorical if name not in self.spec.swap)
        table = ChangedTable(self.engine.store, changed=len(self.spec.swap), others=len(others))
        for start, before, after in self._exchanged(others):
            _put_down(table, start, before, after)
        found = table.compensating()
        table.close()
        return found

    def findings(self, written: ParquetFiles) -> tuple[Finding, ...]:
        """Every promise, checked on the two files as read from disk again."""
        problems = [self._problem(stage, written) for stage in range(len(self.drawn))]
        told = "; ".join(dict.fromkeys(problem for problem in problems if problem))
        promises = Swap().invariants(_Attributes(self._part.names), self.spec)  # type: ignore[arg-type]
        return tuple(
            Finding(invariant=type(p).__name__, sentence=p.sentence, ok=not told, problem=told) for p in promises
        )

    def _problem(self, stage: int, written: ParquetFiles) -> str:
        """What is wrong with a stage: who changed, whether the pairs explain it, whether counts are kept."""
        names, pairs = self.spec.stages[stage], self.drawn[stage]
        others = tuple(name for name in pairs.columns if name not in names)
        table = ChangedTable(self.engine.store, changed=len(names), others=len(others))
        # Batches of two files need not end at the same records.
        after = _InOrder(codes for _, codes in self.stream.coded(names, written))
        for start, before in self.stream.coded((*names, *others)):
            _put_down(table, start, before, after.take(len(before[0]), len(names)))
        listed = " and ".join(names)
        problem = ""
        if len(table) != 2 * len(pairs) or table.in_pairs(pairs) != 2 * len(pairs):
            problem = f"other records than those of the pairs have another {listed} than before"
        elif table.explained(pairs, constraint_of(self.spec, names), names, others) != len(pairs):
            problem = f"the pairs do not explain {listed}, or are not allowed"
        elif table.moved_cells(range(len(names)), [others.index(name) for name in self.spec.fixed]):
            problem = f"counts by {listed} have moved"
        table.close()
        return problem

    def _exchanged(self, others: Names) -> Iterator[tuple[int, list[Codes], list[Codes]]]:
        """Batches in order: first record, codes before of swapped and ``others``, codes after of the swapped."""
        changes = [
            _Changes(self.engine.changes(pairs, names), len(names))
            for names, pairs in zip(self.spec.stages, self.drawn, strict=True)
        ]
        for start, before in self.stream.coded((*self.spec.swap, *others)):
            after = [column.copy() for column in before[: len(self.spec.swap)]]
            for names, change in zip(self.spec.stages, changes, strict=True):
                rows, codes = change.up_to(start + len(before[0]))
                for name, column in zip(names, codes, strict=True):
                    after[self.spec.swap.index(name)][rows - start] = column
            yield start, before, after

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
            identity = column_identity(pa.chunked_array([batch.column(0)]), identity_key)
            blocks = keyed.integer_blocks(identity) if identity.ndim == 1 else identity  # type: ignore[arg-type]
            rows = np.arange(start, start + len(blocks))
            columns = [rows, np.ascontiguousarray(blocks[:, 0]), np.ascontiguousarray(blocks[:, 1])]
            store.insert(table, pa.table([pa.array(c) for c in columns], names=list("xyz")))
        shared, first = repeated(store, table)
        store.drop(table)
        if shared:
            message = f"{shared:,} records share their identifier {name!r} with another"
            raise _bad_identifier("duplicate-identifier", message, name, first)


class _Attributes:
    """As much of a file as :meth:`Swap.invariants` looks at."""

    def __init__(self, attributes: Names) -> None:
        self.attributes = attributes


class _Changes:
    """New codes by ascending row, taken up to a row at a time."""

    def __init__(self, batches: Iterator[tuple[Rows, list[Codes]]], width: int) -> None:
        self._batches = batches
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._codes: list[Codes] = [np.zeros(0, dtype=np.uint32)] * width

    def up_to(self, stop: int) -> tuple[Rows, list[Codes]]:
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

    def __init__(self, batches: Iterator[list[Codes]]) -> None:
        self._batches = batches
        self._held: list[list[Codes]] = []

    def take(self, number: int, width: int) -> list[Codes]:
        while sum(len(held[0]) for held in self._held) < number:
            self._held.append(next(self._batches))
        if not self._held:
            return [np.zeros(0, dtype=np.uint32) for _ in range(width)]
        joined = [np.concatenate(columns) for columns in zip(*self._held, strict=True)]
        self._held = [[column[number:] for column in joined]] if len(joined[0]) > number else []
        return [column[:number] for column in joined]


def _put_down(table: ChangedTable, start: int, before: list[Codes], after: list[Codes]) -> None:
    """The records of a batch whose codes have changed."""
    changed = np.any([old != new for old, new in zip(before, after, strict=False)], axis=0)
    rows = np.flatnonzero(changed)
    if len(rows):
        old, others = before[: len(after)], before[len(after) :]
        table.add(rows + start, *([column[rows] for column in columns] for columns in (old, after, others)))


def _bad_identifier(code: str, message: str, name: str, rows: list[int]) -> InputError:
    positions = np.array(rows, dtype=np.int64)
    return InputError(
        f"{message}, the first in {positions_told(positions, None)}",
        code=code,
        hint="an identifier must be there in every record and unique; name another column",
        column=name,
        **positions_of(positions, None),
    )
