"""Files whose values a method changes record by record: the columns it names are loaded, all others copied.

Facts about the whole file, and the check of the result, need the columns that the method reads, in memory; so DuckDB
refuses what would not fit its memory limit. New values, and the values before for the record, pass in batches. There
are two passes: the first finds the types of the new columns, which depend on all new values, and writes the record.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Rows
from safeswap.engines.base import Drawn
from safeswap.engines.stream import rows_per_batch
from safeswap.errors import EngineError
from safeswap.files.columns import normalise_table
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.methods.value_change import Draws, FileFacts, ValueChangingMethod, is_other_kind
from safeswap.model.audit import Audit, Replacement
from safeswap.model.columns import aligned_columns, decode_dictionary, flag_changes
from safeswap.model.invariant import Finding, Invariant, verify
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.on_disk.audit_record import REPLACED
from safeswap.on_disk.job import Job, RewrittenFile, RewrittenOutput
from safeswap.on_disk.masking import name_types


def check_memory(files: ParquetFiles, names: Names, copies: int, limit: int) -> None:
    """Refuse columns whose working copies would exceed the memory limit, by an estimate from the footers."""
    needed = copies * sum(max(8 * len(files), size) for size in _stored_bytes(files, names).values())
    if needed > limit:
        raise EngineError(
            f"the columns that the method reads need about {needed / 1e6:,.0f} MB",
            code="memory-limit",
            hint="raise memory_limit, or name fewer attributes",
            needed=needed,
        )


def _stored_bytes(files: ParquetFiles, names: Names) -> dict[str, int]:
    from pyarrow import parquet

    sizes = dict.fromkeys(names, 0)
    for part in files.parts:
        footer = parquet.read_metadata(part.path)
        for group in range(footer.num_row_groups):
            for number in range(footer.num_columns):
                chunk = footer.row_group(group).column(number)
                if chunk.path_in_schema in sizes:
                    sizes[chunk.path_in_schema] += chunk.total_uncompressed_size
    return sizes


class ChangedFile(RewrittenOutput):
    """Files with new values in some columns."""

    def __init__(self, opened: RewrittenFile, method: ValueChangingMethod) -> None:
        job: Job = opened.job
        super().__init__(job, opened.files, opened.schema, opened.work)
        named = method.columns(self.schema, job.spec)
        for name in named.read:
            self.schema[name]  # an unknown attribute gets its own clear error
        # A recode without steps reads nothing: then some column is written again as it is.
        self._read = tuple(name for name in self.schema.names if name in named.read) or self.schema.names[:1]
        opened.check_loadable(self._read, method.copies)
        self.before = Microdata(self.files.table(self._read), self.schema.select(self._read))
        self.method = method
        self.facts: FileFacts = method.facts(self.before, job.spec)
        self.promises = method.invariants(self.before, job.spec)
        self.names = tuple(name for name in self.schema.names if name in named.changed) or self._read[:1]
        self._check_measures()
        self._rest: Iterator[pa.Table] = iter(())
        self._held: pa.Table = pa.table({})
        plain = _plain(self.files.schema.empty_table()).schema
        self._own = {name: plain.field(name).type for name in self.names}
        self._kinds, self._made = self._find_changes()

    @property
    def drawn(self) -> Drawn:
        """The plan, what was done, and facts for the record."""
        facts = {"unit": "records", **self.facts.noted}
        return Drawn(plan=self.facts.plan, moves=(), made=self._made, facts=facts)

    def _check_measures(self) -> None:
        """Refuse measures by cells unless the same categories are counted before and after."""
        same = self.facts.schema == self.before.schema
        if self.job.measures and not (same and all(self.schema[name].kind.is_categorical for name in self.names)):
            raise EngineError(
                f"measures on disk do not apply to {self.method.name!r}: it changes numbers or the categories",
                code="not-supported",
                hint="mask without measures (--no-scores), then assess in memory what recall returns",
                engine=self.job.engine,
                engines=[],
            )

    def _find_changes(self) -> tuple[dict[str, pa.DataType], int]:
        """Store the values before; return the types of the new columns, and the number of records that change."""
        types, spilled = _Types(self._own), _Spill(self.work, self.names)
        made = 0
        with spilled:
            for start, batch, columns in self._change_batches():
                changed = np.zeros(len(batch), dtype=np.bool_)
                for name, column in columns.items():
                    types.add(name, column)
                    flags = flag_changes(*aligned_columns(batch.table.column(name), column))
                    spilled.add(name, start, batch.table.column(name), flags)
                    changed |= flags
                made += int(np.count_nonzero(changed))
        after = {name: types.widest(name) for name in self.names}
        other = [name for name in self.names if after[name] != self._own[name]]
        for name in other:  # values of the new type need not fit the old one: the whole column is kept
            spilled.put_all(name, self.files)
        self._spilled = spilled
        self.replaced = tuple(name for name in self.names if spilled.counts[name])
        fields = [f.with_type(after[f.name]) if f.name in other else f for f in self.files.schema]
        self.written_schema = pa.schema([f.with_nullable(f.nullable or f.name in types.blanked) for f in fields])
        remade = any(is_other_kind(self._own[name], after[name]) for name in other)
        return after, len(self.files) if remade else made

    def _change_batches(self) -> Iterator[tuple[int, Microdata, dict[str, pa.ChunkedArray]]]:
        """Yield in order: first record, the columns read, and the new columns."""
        own = self.schema.identifier
        names = [n for n in self.schema.names if n in self._read or (own is not None and n == own.name)]
        described = self.schema.select(names)
        draws = Draws(
            key=self.job.key,
            method=self.method.name,
            data_name=self.schema.name,
            records=len(self.files),
            replicate=self.job.replicate,
        )
        for start, batch in self.files.batches(names, rows=rows_per_batch(2 * len(names))):
            data = Microdata(_plain(pa.Table.from_batches([batch])), described)
            changes = self.method.changes(data, self.facts, self.job.spec, replace(draws, start=start))
            yield (
                start,
                data,
                {n: decode_dictionary(changes[n].column if n in changes else data.table[n]) for n in self.names},
            )

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the new values of the next records, in the types that all of them have."""
        if start == 0:
            self._rest = (pa.table(columns) for _, _, columns in self._change_batches())
            self._held = pa.table({name: pa.array([], kind) for name, kind in self._kinds.items()})
        while self._held.num_rows < stop - start:
            # A new number came from a float, so it becomes that float again, however large it is.
            self._held = pa.concat_tables([self._held, next(self._rest).cast(self._held.schema, safe=False)])
        taken, self._held = self._held.slice(0, stop - start), self._held.slice(stop - start)
        return dict(zip(taken.column_names, taken.columns, strict=True))

    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield nothing: no values are exchanged."""
        return iter(())

    def count_compensating(self) -> int:
        """Return 0: compensating changes are counted where values are exchanged."""
        return 0

    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise on the columns and the record, both read back from disk."""
        written = open_parquet(part, is_own=True)
        columns = {name: written.table([name]).column(0) for name in self.names}
        after = Microdata(self.before.with_columns(columns, {}).table, self.facts.schema)
        return verify(promises, before=self.before, after=after, audit=self._audit())

    def _audit(self) -> Audit:
        """Return as much of the audit as the promises need."""
        replaced = tuple(self._spilled.read(name) for name in self.replaced)
        name, records = self.method.name, len(self.before)
        return Audit(method=name, records=records, made=self._made, replacements=replaced, facts=self.drawn.facts)

    def describe_result(self) -> Mapping[str, Any]:
        """Return the description of all columns afterwards, if it changed, and the types that did."""
        if self.facts.schema == self.before.schema:
            return {}
        described: Schema = self.schema.replace(*self.facts.schema.attributes)
        types = name_types({name: (self._own[name], self._kinds[name]) for name in self.names})
        return {"masked_schema": described.model_dump(mode="json"), "types": types}

    def write_record(self, directory: Path, totals: Mapping[str, Any], identity: str) -> None:
        """Write the values before, and the readable part."""
        for number, name in enumerate(self.replaced):
            self._spilled.move(name, directory / REPLACED.format(number))
        super().write_record(directory, totals, identity)


class _Types:
    """The type of each new column: its own if all values fit, else the narrowest number that holds them."""

    def __init__(self, own: Mapping[str, pa.DataType]) -> None:
        self._own = own
        self._seen: dict[str, set[pa.DataType]] = {name: set() for name in own}
        self.blanked: set[str] = set()  # a column declared as always there may have lost values

    def add(self, name: str, column: pa.ChunkedArray) -> None:
        self._seen[name].add(column.type)
        if column.null_count:
            self.blanked.add(name)
        if column.type == pa.uint64() and (pc.max(column).as_py() or 0) >= 2**63:
            self._seen[name].add(pa.null())  # with signed numbers beside it only a float holds both

    def widest(self, name: str) -> pa.DataType:
        seen = self._seen[name] - {pa.null()}
        if len(seen) == 1:
            return seen.pop()
        others = seen - {self._own[name]}
        if len(others) == 1 and pa.null() not in self._seen[name]:
            return others.pop()
        return pa.float64()


class _Spill:
    """Rows and values before of each column, written as they pass."""

    def __init__(self, work: Path, names: Names) -> None:
        self._paths = {name: work / f"before-{number}.parquet" for number, name in enumerate(names)}
        self._writers: dict[str, Any] = {}
        self._open = ExitStack()
        self.counts = dict.fromkeys(names, 0)

    def __enter__(self) -> None:
        self._open.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def add(self, name: str, start: int, column: pa.ChunkedArray, flags: Flags) -> None:
        """Store the flagged rows of a batch."""
        rows = np.flatnonzero(flags)
        if not len(rows):
            return
        table = pa.table({"row": rows + start, "before": decode_dictionary(column).take(pa.array(rows))})
        if name not in self._writers:
            self._writers[name] = self._open.enter_context(_writer(self._paths[name], table.schema))
        self._writers[name].write_table(table)
        self.counts[name] += len(rows)

    def put_all(self, name: str, files: ParquetFiles) -> None:
        """Store the whole column instead."""
        kind = _plain(files.schema.empty_table()).schema.field(name).type
        schema = pa.schema({"row": pa.int64(), "before": kind})
        with _writer(self._paths[name], schema) as out:
            for start, batch in files.batches([name]):
                rows = np.arange(start, start + batch.num_rows)
                before = _plain(pa.Table.from_batches([batch])).column(0)
                out.write_table(pa.table({"row": rows, "before": before}, schema=schema))
        self.counts[name] = len(files)

    def read(self, name: str) -> Replacement:
        """Read back what was stored."""
        from pyarrow import parquet

        table = parquet.read_table(self._paths[name])
        before = table["before"].combine_chunks()
        return Replacement(attribute=name, rows=table["row"].to_numpy(), before=before)

    def move(self, name: str, path: Path) -> None:
        """Move the file of a column into the record."""
        shutil.move(self._paths[name], path)  # the record may be on another disk


def _writer(path: Path, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(path, schema, use_dictionary=False, compression="none", write_statistics=False)


def _plain(table: pa.Table) -> pa.Table:
    """Return the table as it is read whole, with text decoded."""
    table = normalise_table(table)
    return pa.table({name: decode_dictionary(table.column(name)) for name in table.column_names})
