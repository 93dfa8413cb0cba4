"""Files on DuckDB, for those that do not fit in memory: drawn records and pairs in a database under a memory limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, keyed
from safeswap.arrays.heap import return_memory
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Int32s, Rows, UInt32s
from safeswap.engines.base import Drawn, Move, Need
from safeswap.engines.duckdb.engine import DuckDBRecords
from safeswap.engines.duckdb.store import ChangedTable, HeldPairs, InOrder, Store, find_repeated, limit_bytes
from safeswap.engines.spilled_cells import ComparedCells
from safeswap.engines.stream import MISSING, RecordStream, rows_per_batch
from safeswap.errors import InputError
from safeswap.files.identifiers import describe_positions, find_missing, positions_of
from safeswap.files.parquet import ParquetFiles, open_parquet, zip_batches
from safeswap.model.audit import Audit, Exchange
from safeswap.model.columns import aligned_columns, flag_changes, pack_cells
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import Finding, Invariant, PairPromise
from safeswap.model.microdata import Microdata, column_blocks, column_identity, smallest_code_type
from safeswap.model.score import CountedCells
from safeswap.model.text import plural
from safeswap.on_disk.cells import as_counted, cell_attributes
from safeswap.on_disk.job import ChangedColumn, RewrittenFile, check_promises, check_separate
from safeswap.on_disk.value_changes import check_memory

_COUNTED_AT_ONCE = 1 << 22
_MOST_PARTS = 128
"""Changed records counted together, so that counting takes little memory; and the number of such parts."""
_NOWHERE: Rows = np.zeros(0, dtype=np.int64)
_NO_CODES: UInt32s = np.zeros(0, dtype=np.uint32)


class DuckDBFile(RewrittenFile):
    """A file whose pairs are in DuckDB, and the resulting columns on request."""

    name: ClassVar[str] = "duckdb"
    title: ClassVar[str] = "records sorted and exchanged on disk under a memory limit"
    lacks: ClassVar[Mapping[Need, str]] = DuckDBRecords.lacks
    counts_aside: ClassVar[bool] = False  # both files pass when they are verified

    records: DuckDBRecords
    moves: tuple[Move, ...] = ()
    _after: _InOrder | None = None
    _measured: ComparedCells | None = None
    _moved: ComparedCells | None = None
    _compensating: int | None = None

    @cached_property
    def store(self) -> Store:
        """The database of the job."""
        return Store(self.work, memory_limit=self.job.memory_limit, threads=self.job.threads)

    def open(self, read: Names) -> None:
        """Open the columns for streaming, and check the identifier."""
        identity_key = keyed.derive(self.job.key.secret, "identity")
        self.stream = RecordStream(self.files, self.schema.select(read), self.store.work)
        self.records = DuckDBRecords(self.stream, self.store, identity_key=identity_key)
        self._check_identifier(identity_key)
        return_memory()

    def check_loadable(self, read: Names, copies: int) -> None:
        """Check the identifier while it passes; refuse columns that would not fit the memory limit."""
        check_memory(self.files, read, copies, limit_bytes(self.job.memory_limit))
        self._check_identifier(keyed.derive(self.job.key.secret, "identity"))

    def __exit__(self, *error: object) -> None:
        """Close the database, if there is one, and remove spilled files."""
        if "store" in self.__dict__:
            self.store.close()

    def exchange(self, drawn: Drawn) -> None:
        """Keep the pairs; new values are looked up while the file is written."""
        check_separate(drawn, self.name)
        self.moves = drawn.moves
        return_memory()

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the changed columns of the next records."""
        if self._after is None or start == 0:
            self._after = _InOrder(self._exchange_batches())
        taken = self._after.take(stop - start)
        found = {}
        for place, name in enumerate(self.names):
            parts = [columns[place] for columns in taken]
            if not _is_plain(self.files.schema.field(name).type):  # one dictionary for all, as far as it is known now
                codes = np.concatenate([np.zeros(0, dtype=np.uint32), *parts])
                parts = [self.stream.coder(name).values(codes)]
            found[name] = pa.chunked_array(parts, None if parts else self.files.schema.field(name).type)
        return found

    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield the number of an exchange and pairs of row numbers, in the order of drawing, in batches."""
        moves = enumerate(self.moves)
        return ((stage, rows) for stage, move in moves for rows in self.records.rows_of(move.pairs))

    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise on both files, read back from disk."""
        if self.limit is not None:
            names = cell_attributes(self.schema, self.job.attributes)
            self._measured = ComparedCells(self.store.work, names, records=len(self.files))
        self._after = None
        return_memory()
        written = open_parquet(part, is_own=True)
        held = [move.pairs for move in self.moves if isinstance(move.pairs, HeldPairs)]
        if held and len(held) == len(self.moves):
            in_memory = HeldEvidence(self, written, promises, held)
            self._compensating = in_memory.count_in_vain()
            return check_promises(promises, in_memory, self.name)
        if self._measured is None or {*self._measured.names} != {*self._in_table}:
            self._moved = ComparedCells(self.work, self._in_table, records=len(self.files))
        evidence = DuckDBEvidence(self, written, promises)
        try:
            return check_promises(promises, evidence, self.name)
        finally:
            evidence.close()

    @property
    def _counted(self) -> Names:
        """The columns whose cells are counted."""
        return tuple(name for each in (self._moved, self._measured) if each is not None for name in each.names)

    @property
    def _in_table(self) -> Names:
        """The attributes of the table of which the changed cells are counted."""
        return tuple(dict.fromkeys((*self.names, *self.schema.categorical)))

    def iter_touched(self, written: ParquetFiles, names: Names, stream: RecordStream) -> Iterator[Touched]:
        """Yield the records that changed or are in some pair, batch by batch, with these columns; floats are coded."""
        start, read = 0, tuple(dict.fromkeys((*self.names, *names, *self._counted)))
        in_pairs = InOrder(self.records.members(move.pairs for move in self.moves))
        for mine, theirs in zip_batches(self.files, written, read, self.names, rows=rows_per_batch(len(read))):
            flags = [_flag_differences(stream, name, mine.column(name), theirs.column(name)) for name in self.names]
            changed = np.any(flags, axis=0)
            self._compare(mine, changed, theirs)
            changed[in_pairs.take_below(start + mine.num_rows) - start] = True
            rows = np.flatnonzero(changed)
            some = pa.array(rows)
            yield Touched(rows + start, mine.select([*self.names, *names]).take(some), theirs.take(some))
            start += mine.num_rows

    def _compare(self, before: pa.RecordBatch, touched: Flags, after: pa.RecordBatch) -> None:
        """Count the cells of the next records, some of which changed, before and in the file read back."""
        chosen = pa.array(touched)
        now = {name: after.column(name).filter(chosen) for name in self.names}
        if self._measured is not None:
            self._measured.add(before, touched, now)
        if self._moved is not None:
            self._moved.add(before.select(self._in_table).filter(chosen), touched[touched], now)

    def count_cells(self, limit: int) -> CountedCells:
        """Return the cells before and after, as they were counted when the files were verified."""
        assert self._measured is not None  # noqa: S101  (verified, and measures were asked for)
        counted = as_counted(self.schema, self._measured.names, self._measured, limit=limit)
        if self._compensating is None:  # else it was counted in the whole table, of which this may be a part
            self._compensating = self._measured.moved - counted.joint.net_change
        return counted

    def count_compensating(self) -> int:
        """Count records that changed although the table did not: changed records minus the net change of the cells."""
        if self._moved is not None:
            return self._moved.moved - self._moved.tally(limit=0).joint.net_change
        assert self._compensating is not None  # noqa: S101  (counted while or after the files were verified)
        return self._compensating

    def iter_changed(self, part: Path) -> Iterator[ChangedColumn]:
        """Yield the columns that are replaced: as codes if these are kept: what was written was compared with them."""
        move = self.moves[0] if len(self.moves) == 1 and isinstance(self.moves[0].pairs, HeldPairs) else None
        if move is None or not {*self.names} <= self.stream.kept.keys() & {*move.names}:
            yield from super().iter_changed(part)
            return
        for name in self.names:
            changes = self.records.changes(move.pairs, (name,), directed=move.directed)
            sides = self._iter_codes(name, iter(())), self._iter_codes(name, changes)
            yield ChangedColumn(name, *sides)

    def _iter_codes(self, name: str, changes: Iterator[tuple[Rows, list[UInt32s]]]) -> Iterator[pa.ChunkedArray]:
        """Yield a column, some codes of which are others."""
        changed, coder = _Changes(changes, 1), self.stream.coder(name)
        for batch in self.stream.batches((name,)):
            codes = batch.codes(name)
            places, (fresh,) = changed.take_until(batch.stop)
            codes[places - batch.start] = fresh
            yield pa.chunked_array([coder.values(codes)])

    def _exchange_batches(self) -> Iterator[list[Any]]:
        """Yield the exchanged columns after, in the order of the records: whole numbers, and the codes of others."""
        changes = [
            _Changes(self.records.changes(move.pairs, move.names, directed=move.directed), len(move.names))
            for move in self.moves
        ]
        for start, batch in self.files.batches(self.names, rows=rows_per_batch(len(self.names))):
            fresh: dict[str, tuple[Rows, UInt32s]] = {}
            for move, change in zip(self.moves, changes, strict=True):
                places, codes = change.take_until(start + batch.num_rows)
                fresh |= {name: (places - start, column) for name, column in zip(move.names, codes, strict=True)}
            yield [self._put(name, batch.column(name), *fresh.get(name, ())) for name in self.names]

    def _put(self, name: str, column: pa.Array, places: Rows = _NOWHERE, codes: UInt32s = _NO_CODES) -> Any:
        """Return a column with the values of these codes in some places; of other than whole numbers, the codes."""
        coder, kind = self.stream.coder(name), column.type
        if _is_plain(kind) and not column.null_count and MISSING not in codes:
            numbers = column.to_numpy().copy()
            if len(codes):
                numbers[places] = coder.values(codes).cast(kind).to_numpy()
            return pa.array(numbers, kind)
        after = coder.codes(column)
        after[places] = codes
        return coder.values(after).cast(kind) if _is_plain(kind) else after

    def _check_identifier(self, identity_key: bytes) -> None:
        """Refuse missing or shared identifiers; ascending ones are checked in the same pass."""
        own = self.schema.identifier
        if own is None:
            return
        ascending, last, absent = True, None, []
        for start, batch in self.files.batches([own.name]):
            column = pa.chunked_array([batch.column(0)])
            absent += (find_missing(column, own.missing)[:5] + start).tolist()
            identity = column_identity(column, identity_key) if not absent else np.zeros(0, dtype=np.int64)
            ascending &= identity.ndim == 1 and bool(
                (identity[1:] > identity[:-1]).all()
            )  # a difference could overflow
            ascending &= last is None or not len(identity) or bool(identity.ravel()[0] > last)
            last = identity.ravel()[-1] if len(identity) else last
        if absent:
            raise _bad_identifier("missing-identifier", f"records have no identifier {own.name!r}", own.name, absent)
        if not ascending:
            self._check_repeated(own.name, identity_key)

    def _check_repeated(self, name: str, identity_key: bytes) -> None:
        store = self.store
        table = store.new_table("r BIGINT, w0 UBIGINT, w1 UBIGINT")
        for start, batch in self.files.batches([name]):
            blocks = column_blocks(batch.column(0), identity_key)
            rows = np.arange(start, start + len(blocks))
            columns = [rows, np.ascontiguousarray(blocks[:, 0]), np.ascontiguousarray(blocks[:, 1])]
            store.insert(table, pa.table([pa.array(c) for c in columns], names=list("xyz")))
        shared, first = find_repeated(store, table)
        store.drop(table)
        if shared:
            message = f"{plural(shared, 'record shares', 'records share')} an identifier {name!r} with another"
            raise _bad_identifier("duplicate-identifier", message, name, first)


class Touched(NamedTuple):
    """Records that changed or are in some pair: their rows, and their columns before and after."""

    rows: Rows
    before: pa.RecordBatch
    after: pa.RecordBatch


def _count_members(stream: RecordStream, promises: Sequence[Invariant]) -> dict[str, Int32s]:
    """Return the members of each unit, such as a household, by its code, for those that the stream has met."""
    units = {promise.unit for promise in promises if isinstance(promise, PairPromise) and promise.unit}
    # There are at most as many codes as records and a missing one; memory is taken as they are counted.
    sizes = {unit: np.zeros(len(stream) + 1, dtype=np.int32) for unit in units}
    for unit, counts in sizes.items():
        for _, batch in stream.source.batches([unit], rows=rows_per_batch(1)):
            stream.coder(unit).count(batch.column(0), counts)
    return sizes


class HeldEvidence(Evidence):
    """Evidence of the records that changed or are in some pair, in memory, where the pairs are held there anyway.

    These records make a file of their own, of the codes of their values: all others are as they were.
    """

    def __init__(
        self, opened: DuckDBFile, written: ParquetFiles, promises: Sequence[Invariant], held: Sequence[HeldPairs]
    ) -> None:
        # Coded again: the code that drew the pairs must not vouch for them.
        self._stream, self._opened = RecordStream(opened.files, opened.stream.schema), opened
        compared = {name for promise in promises for name in promise.compared} | set(opened.schema.categorical)
        others = tuple(name for name in opened.schema.names if name in compared and name not in opened.names)
        rows, sides = self._read(written, others)
        # Only the places of these records are read, and an empty array costs nothing.
        place = np.empty(len(opened.files), dtype=np.int32 if len(opened.files) < 2**31 else np.int64)
        place[rows] = np.arange(len(rows))
        exchanges = []
        for move, pairs in zip(opened.moves, held, strict=True):
            placed: Rows = place[pairs.rows].astype(np.int64)
            kind = {"directed": move.directed, "mutual": move.mutual}
            exchanges.append(Exchange(attributes=move.names, pairs=placed, **kind))
        del place
        schema = opened.schema.select(sides[0].column_names)
        before, after = (Microdata(side, schema) for side in sides)
        super().__init__(before, after, Audit(records=len(rows), exchanges=tuple(exchanges)))
        for name in schema.names:
            self._codes[name] = before.table.column(name).to_numpy(), after.table.column(name).to_numpy()
        self._members = _count_members(self._stream, promises)
        del self._stream  # the codes of a hundred million household numbers are looked up in 500 MB

    def _read(self, written: ParquetFiles, others: Names) -> tuple[Rows, tuple[pa.Table, pa.Table]]:
        """Return the rows of these records, and the codes of their columns before and after."""
        names = self._opened.names
        rows: list[Rows] = [np.zeros(0, dtype=np.int64)]
        old: dict[str, list[Codes]] = {name: [] for name in (*names, *others)}
        new: dict[str, list[Codes]] = {name: [] for name in names}
        for touched in self._opened.iter_touched(written, others, self._stream):
            rows.append(touched.rows)
            for batch, columns in ((touched.before, old), (touched.after, new)):
                for name, parts in columns.items():
                    parts.append(self._narrow(name, self._stream.codes(name, batch.column(name))))
        before, after = ({n: self._join(n, columns.pop(n)) for n in tuple(columns)} for columns in (old, new))
        order = [name for name in self._opened.schema.names if name in before]
        sides = [pa.table([side[name] for name in order], names=order) for side in (before, {**before, **after})]
        return np.concatenate(rows), (sides[0], sides[1])

    def _narrow(self, name: str, codes: Codes) -> Codes:
        return codes.astype(smallest_code_type(self._stream.coder(name).bound), copy=False)

    def _join(self, name: str, parts: list[Codes]) -> pa.Array:
        empty = np.zeros(0, dtype=np.uint8)
        return pa.array(self._narrow(name, np.concatenate([empty, *parts])))

    @property
    def attributes(self) -> Names:
        """The attributes that were read to draw."""
        return self._opened.records.attributes

    @property
    def identifier(self) -> str | None:
        """The name of the record identifier."""
        return None if self._opened.schema.identifier is None else self._opened.schema.identifier.name

    @cached_property
    def rows(self) -> Rows:
        """The rows to examine: all of them."""
        return np.arange(len(self.before), dtype=np.int64)

    def pairs(self, exchange: Exchange) -> Rows:
        """Return the pairs of a stage as positions within ``rows``."""
        return exchange.pairs

    def changed(self, name: str) -> Flags | None:
        """Flag the rows whose value differs from before; None for columns that were copied, which were compared."""
        return super().changed(name) if name in self._opened.names else None

    def count_torn(self, unit: str, names: Names) -> int:
        """Count the units of which only some members are here, or which differ now."""
        order, units, _ = self._by_unit(unit)
        begins = np.flatnonzero(np.append(True, units[1:] != units[:-1])[: len(units)])
        if not len(begins):
            return 0
        torn = np.diff(np.append(begins, len(units))) != self._members[unit][units[begins]]
        for name in names:
            codes = self.codes(name)[1][order]
            differs = np.append(False, codes[1:] != codes[:-1])
            differs[begins] = False  # from the last one of another unit
            torn |= np.logical_or.reduceat(differs, begins)
        return int(np.count_nonzero(torn))

    def _by_unit(self, unit: str) -> tuple[Rows, Int32s, Int32s]:
        if unit not in self._units:
            codes = self.codes(unit)[1]
            order = np.argsort(codes, kind="stable")
            order = order[np.count_nonzero(codes == MISSING) :]
            self._units[unit] = order, codes[order], codes
        return self._units[unit]

    def count_in_vain(self) -> int:
        """Count the records that changed although the table of the changed and all categorical attributes did not."""
        names = self._opened.names
        others = [name for name in self._opened.schema.categorical if name not in names]
        none = np.zeros(len(self.rows), dtype=np.int64)
        packed, size = pack_cells([none, *(self.codes(name)[0] for name in others)])
        both, number = pack_cells(np.concatenate(self.codes(name)) for name in names)
        rest, was, now = packed.view(np.uint64), *np.split(both.view(np.uint64), 2)
        changed, in_vain = was != now, 0
        # Records of different parts are in different cells before and after: each part is counted by itself.
        parts = min(1 + len(rest) // _COUNTED_AT_ONCE, _MOST_PARTS)
        of_part = (rest % np.uint64(parts)).astype(np.uint8)
        for part in range(parts):
            rows = np.flatnonzero(changed & (of_part == part))
            kept, left, entered = rest[rows], was[rows], now[rows]
            in_vain += len(rows) - cells.count_net_change([kept, left], [kept, entered], [size, number])
        return in_vain


class DuckDBEvidence:
    """The records that changed or are in some pair, with their codes before and after, in a table."""

    def __init__(self, opened: DuckDBFile, written: ParquetFiles, promises: Sequence[Invariant]) -> None:
        # Coded again: the code that drew the pairs must not vouch for them.
        self._stream, self._moves = RecordStream(opened.files, opened.stream.schema), opened.moves
        self.identifier = None if opened.schema.identifier is None else opened.schema.identifier.name
        self.attributes = opened.records.attributes
        self.exchanged = tuple(move.names for move in opened.moves)
        compared = {name for promise in promises for name in promise.compared}
        self._names = opened.names
        self._others = tuple(n for n in self.attributes if n in compared and n not in self._names)
        self._explained: dict[int, dict[str, bool]] = {}
        self._table = ChangedTable(opened.store, changed=len(self._names), others=len(self._others))
        with self._table.inserter() as add:
            for rows, mine, theirs in opened.iter_touched(written, self._others, self._stream):
                sides = self._codes(mine, self._names), self._codes(theirs, self._names)
                add(rows, *sides, self._codes(mine, self._others))
        self._members = _count_members(self._stream, promises)
        del self._stream  # the codes of a hundred million household numbers are looked up in 500 MB

    def close(self) -> None:
        """Drop the table."""
        self._table.close()

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        return len(self._moves[stage].pairs)

    def count_changed(self, name: str) -> int:
        """Count the records that have another value; columns that were copied have been compared already."""
        return self._table.count_changed([self._names.index(name)]) if name in self._names else 0

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells that have a different count from before."""
        changed = [self._names.index(name) for name in names if name in self._names]
        others = [self._others.index(name) for name in names if name not in self._names]
        return self._table.count_moved_cells(changed, others) if changed else 0

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs that go to a record that has one already."""
        move = self._moves[stage]
        return self._table.count_repeated(move.pairs, directed=move.directed, mutual=move.mutual)

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes."""
        return self._table.count_pairs(self._moves[stage].pairs, [f"{c} = {d}" for c, d in self._sides(names)])

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes."""
        return self._table.count_pairs(self._moves[stage].pairs, [f"{c} <> {d}" for c, d in self._sides(names)])

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed."""
        return self._table.count_changed([self._names.index(name) for name in self.exchanged[stage]])

    def count_torn(self, unit: str, names: Names) -> int:
        """Count the units of which some members changed and others did not, or which differ now."""
        places = [self._names.index(name) for name in names if name in self._names]
        return self._table.count_torn(self._others.index(unit), places, self._members[unit])

    def count_moved_units(self, unit: str, names: Names) -> int:
        """Count the cells that have a different number of units from before."""
        changed = [self._names.index(name) for name in names if name in self._names]
        others = [self._others.index(name) for name in names if name not in self._names]
        return self._table.count_moved_cells(changed, others, unit=self._others.index(unit)) if changed else 0

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        stage = next((i for i, names in enumerate(self.exchanged) if name in names), None)
        if stage is None:
            return self.count_changed(name) == 0
        if stage not in self._explained:
            self._explained[stage] = self._explain(stage)
        return self._explained[stage][name]

    def _explain(self, stage: int) -> dict[str, bool]:
        """Return for each attribute of an exchange whether its pairs explain all changes: one join serves all."""
        move, names = self._moves[stage], self.exchanged[stage]
        places = [self._names.index(name) for name in names]
        back = " AND y.n{0} = x.c{0}" if move.mutual or not move.directed else ""
        traded = self._table.count_pairs_by(move.pairs, [("x.n{0} = y.c{0}" + back).format(i) for i in places])
        outside = self._table.count_changed_outside(move.pairs, places)
        return {name: traded[n] == len(move.pairs) and not outside[n] for n, name in enumerate(names)}

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back: a permutation has an inverse."""
        one_to_one = all(self.count_repeated(i) == 0 for i, move in enumerate(self._moves) if move.directed)
        return one_to_one and self.explains(name)

    def _sides(self, names: Names) -> list[tuple[str, str]]:
        own = {name: f"c{i}" for i, name in enumerate(self._names)}
        own |= {name: f"r{i}" for i, name in enumerate(self._others)}
        return [(f"x.{own[name]}", f"y.{own[name]}") for name in names]

    def _codes(self, batch: pa.RecordBatch, names: Names) -> list[UInt32s]:
        return [self._stream.codes(name, batch.column(name)) for name in names]


def _flag_differences(stream: RecordStream, name: str, before: pa.Array, after: pa.Array) -> Flags:
    """Flag the records in which a column differs."""
    kind = before.type.value_type if pa.types.is_dictionary(before.type) else before.type
    if pa.types.is_floating(kind):  # compare levels, as in the exchange
        flags: Flags = stream.codes(name, before) != stream.codes(name, after)
        return flags
    return flag_changes(*aligned_columns(pa.chunked_array([before]), pa.chunked_array([after])))


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
    """Batches of columns, recut to other lengths."""

    def __init__(self, batches: Iterator[list[Any]]) -> None:
        self._batches = batches
        self._held: list[list[Any]] = []

    def take(self, number: int) -> list[list[Any]]:
        """Return the next records, in one batch or several."""
        taken = []
        while number:
            columns = self._held.pop() if self._held else next(self._batches)
            taken.append([column[:number] for column in columns])
            if len(columns[0]) > number:
                self._held.append([column[number:] for column in columns])
            number -= len(taken[-1][0])
        return taken


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values are put in place as they are."""
    return bool(pa.types.is_integer(kind))


def _bad_identifier(code: str, message: str, name: str, rows: list[int]) -> InputError:
    positions = np.array(rows, dtype=np.int64)
    return InputError(
        f"{message}, the first in {describe_positions(positions, None)}",
        code=code,
        hint="an identifier must be present and unique in every record; name another column",
        column=name,
        **positions_of(positions, None),
    )
