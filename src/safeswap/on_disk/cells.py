"""Compare two Parquet files by counts of cells, in memory, out of memory or in Spark."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Rows
from safeswap.engines.base import Need
from safeswap.engines.duckdb.store import limit_bytes
from safeswap.engines.spilled_cells import SpilledCells, TalliedCells, column_keys, record_words
from safeswap.errors import InputError
from safeswap.files.atomic import working_directory
from safeswap.files.coded_columns import code_columns, iter_aligned
from safeswap.files.infer import resolve_file_schema
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.files.splice import CannotSplice, other_chunks
from safeswap.model.columns import aligned_columns, decode_dictionary, flag_changes
from safeswap.model.microdata import Coded, Microdata, smallest_code_type
from safeswap.model.schema import Schema
from safeswap.model.score import Comparison, CountedCells, only_numbers_changed
from safeswap.model.text import plural
from safeswap.on_disk.counted_cells import ChangingColumn, cell_attributes, counted_cells
from safeswap.on_disk.memory import select_schema


def compare_files(
    before: Path, after: Path, *, attributes: Sequence[str] | None = None, reading: Mapping[str, Any]
) -> Comparison:
    """Compare the two files over ``attributes``, by default all categorical ones.

    Columns with the same bytes on disk are read once. Records correspond by position; changes are looked for in all
    columns.
    """
    first, second = open_parquet(before), open_parquet(after)
    schema = resolve_file_schema(first, **reading)
    check_alike(first, second)
    changed = changed_columns(first, second, schema.names)
    own = schema.identifier
    touched = np.zeros(len(first), dtype=np.bool_)
    differing = set()
    for name in changed:
        flags = _flag_different(first, second, name)
        if own is not None and name == own.name and flags.any():
            raise files_differ_error("the records of the second file have other identifiers, or another order")
        touched |= flags
        differing |= {name} if flags.any() else set()
    names = tuple(attributes) if attributes is not None else schema.categorical
    described = select_schema(schema, [name for name in schema.names if name in names])
    for name in names:
        schema[name]  # an unknown attribute gets its own clear error
    table = first.table(described.names)
    after_columns = second.table([name for name in described.names if name in changed])
    original = Microdata(table, described)
    fresh = {name: after_columns.column(name) for name in after_columns.column_names}
    return Comparison(
        before=original,
        after=original.with_columns(fresh, {}),
        attributes=names,
        touched=touched,
        only_numbers=only_numbers_changed(schema, differing),
    )


def check_alike(first: ParquetFiles, second: ParquetFiles) -> None:
    """Refuse files with different numbers of records, or different columns."""
    if len(first) != len(second) or not first.schema.equals(second.schema):
        raise files_differ_error(
            f"the two files do not fit: {plural(len(first), 'record')} and {len(second):,}, or other columns"
        )


def files_differ_error(message: str) -> InputError:
    """Return the refusal of files that do not belong together."""
    return InputError(
        message,
        code="files-differ",
        hint="give the masked file that stays inside, which has the rows and columns of the original",
    )


def changed_columns(first: ParquetFiles, second: ParquetFiles, names: Sequence[str]) -> list[str]:
    """Return the columns whose bytes on disk differ: only these can hold a changed value."""
    if [part.groups for part in first.parts] != [part.groups for part in second.parts]:
        return list(names)
    changed: set[str] = set()
    try:
        for mine, theirs in zip(first.parts, second.parts, strict=True):
            changed |= set(other_chunks(mine.path, theirs.path, [name for name in names if name not in changed]))
    except (CannotSplice, ValueError):
        return list(names)
    return [name for name in names if name in changed]


def _flag_different(first: ParquetFiles, second: ParquetFiles, name: str) -> npt.NDArray[np.bool_]:
    """Flag the records whose value differs, comparing in batches."""
    flags = np.zeros(len(first), dtype=np.bool_)
    theirs = second.table([name]).column(0)
    for start, batch in first.batches([name]):
        mine = pa.chunked_array([batch.column(0)])
        flags[start : start + len(mine)] = flag_changes(*aligned_columns(mine, theirs.slice(start, len(mine))))
    return flags


def zip_batches(
    first: ParquetFiles, second: ParquetFiles, names: Sequence[str], changed: Sequence[str], *, rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the same records of two files, whatever their batches; of the second file only the changed columns."""
    theirs = second.batches(changed, rows=rows) if changed else iter(())
    held = pa.RecordBatch.from_arrays([], names=[])
    for _, mine in first.batches(list(dict.fromkeys((*names, *changed))), rows=rows):
        done = 0
        while done < mine.num_rows:
            if not changed:
                yield mine, held
                break
            if not held.num_rows:
                held = next(theirs)[1]
            number = min(mine.num_rows - done, held.num_rows)
            yield mine.slice(done, number), held.slice(0, number)
            held, done = held.slice(number), done + number


WORTH_COUNTING = 1_000_000
"""From this many records on, counts are compared instead of records, if the measures allow it."""

Changes = tuple[Rows, pa.ChunkedArray]
"""The records in which a column changed, in ascending order, and their new values."""


def count_files(
    before: Path, after: Path, *, attributes: Sequence[str] | None, limit: int, reading: Mapping[str, Any]
) -> CountedCells | None:
    """Count the cells of ``attributes``, by default all categorical ones; None if a column has missing values.

    Records correspond by position; one that changed in any column counts as having taken part.
    """
    first, second = open_parquet(before), open_parquet(after)
    schema = resolve_file_schema(first, **reading)
    check_alike(first, second)
    names = cell_attributes(schema, attributes)
    changed = changed_columns(first, second, schema.names)
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        found = dict(zip(changed, threads.map(lambda name: _changes(first, second, name), changed), strict=True))
    own = schema.identifier
    if own is not None and own.name in found and len(found[own.name][0]):
        raise files_differ_error("the records of the second file have other identifiers, or another order")
    touched = np.zeros(len(first), dtype=np.bool_)
    for rows, _ in found.values():
        touched[rows] = True
    rows = np.flatnonzero(touched)
    coded = code_columns(first, names)
    if any(coded[name].has_missing or (name in found and found[name][1].null_count) for name in names):
        return None
    columns = {name: _changing_column(coded[name], found.get(name), rows) for name in names}
    differing = [name for name, (rows_of, _) in found.items() if len(rows_of)]
    numbers = only_numbers_changed(schema, differing)
    return counted_cells(schema, names, columns, rows, limit=limit, only_numbers=numbers)


def _changes(first: ParquetFiles, second: ParquetFiles, name: str) -> Changes:
    rows, values = [np.zeros(0, np.int64)], []
    for start, mine, theirs in iter_aligned(first, second, name):
        flags = flag_changes(*aligned_columns(pa.chunked_array([mine]), pa.chunked_array([theirs])))
        found = np.flatnonzero(flags)
        if len(found):
            rows.append(found + start)
            values.append(decode_dictionary(theirs.take(pa.array(found))))
    kind = first.schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return np.concatenate(rows), pa.chunked_array(values, type=kind)


def _changing_column(coded: Coded, changes: Changes | None, rows: Rows) -> ChangingColumn:
    """Return the column with the new codes of ``rows``, which include the changed rows."""
    if changes is None or not len(changes[0]):
        return ChangingColumn(before=coded.codes, after=None, cardinality=coded.cardinality)
    levels, values = coded.levels, changes[1].cast(coded.levels.type).combine_chunks()
    unknown = pc.unique(values.filter(pc.invert(pc.is_in(values, value_set=levels))))
    levels = pa.concat_arrays([levels, unknown]) if len(unknown) else levels
    codes: Codes = coded.codes[rows].astype(smallest_code_type(len(levels)))
    codes[np.searchsorted(rows, changes[0])] = pc.index_in(values, value_set=levels).to_numpy()
    return ChangingColumn(before=coded.codes, after=codes, cardinality=len(levels))


_ROWS = 1 << 18


def count_in_duckdb(
    before: Path,
    after: Path,
    *,
    attributes: Sequence[str] | None,
    limit: int,
    reading: Mapping[str, Any],
    memory_limit: str = "1GB",
) -> CountedCells:
    """Count the cells of ``attributes``, by default all categorical ones; records correspond by position.

    Data that do not fit in memory are spilled to a private temporary directory. Counting needs no database and less
    than any practical ``memory_limit``; an invalid limit is refused all the same.
    """
    limit_bytes(memory_limit)
    first, second = open_parquet(before), open_parquet(after)
    schema = resolve_file_schema(first, **reading)
    check_alike(first, second)
    names = cell_attributes(schema, attributes)
    changed = tuple(changed_columns(first, second, schema.names))
    seen = _Seen(schema, names, changed)
    with working_directory() as work:
        cells = SpilledCells(work, records=len(first))
        for mine, theirs in zip_batches(first, second, names, changed, rows=_ROWS):
            cells.add(*seen.look(mine, theirs))
        found = cells.tally(limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    totals = {"untouched": seen.untouched, "moved": seen.moved, "changed": frozenset(seen.differ & set(names))}
    return as_counted(schema, names, found, only_numbers=only_numbers_changed(schema, seen.differ), **totals)


def count_in_spark(
    before: Path,
    after: Path,
    *,
    attributes: Sequence[str] | None,
    limit: int,
    reading: Mapping[str, Any],
    session: Any = None,
    threads: int | None = None,
) -> CountedCells:
    """Count the cells with a Spark cluster; records correspond by identifier."""
    from safeswap.engines.spark.checks import SparkFrame, compare_cells
    from safeswap.on_disk.engines import check_need, find_engine
    from safeswap.on_disk.spark import spark_session

    first, second = open_parquet(before), open_parquet(after)
    schema = resolve_file_schema(first, **reading)
    _check_same_columns(first, second)
    names = cell_attributes(schema, attributes)
    if schema.identifier is None:
        check_need(find_engine("spark"), Need.POSITIONS)
    with spark_session(session, threads, records=len(first)) as spark:
        found = compare_cells(SparkFrame(spark, first, schema), SparkFrame(spark, second, schema), names, limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    if found.records != len(first):
        raise files_differ_error("the records of the second file have other identifiers")
    totals = {"untouched": found.untouched, "moved": found.moved, "changed": found.changed}
    return as_counted(schema, names, found.cells, only_numbers=found.only_numbers, **totals)


def as_counted(schema: Schema, names: Names, found: TalliedCells, **totals: Any) -> CountedCells:
    """Return the cells in the form of the measures."""
    return CountedCells(
        schema=schema,
        attributes=names,
        joint=found.joint,
        small_cells=found.small_cells,
        small_untouched=found.small_untouched,
        **totals,
    )


class _Seen:
    """Reads records of both files in step: which took part, and the words of their cells."""

    def __init__(self, schema: Schema, names: Names, changed: Names) -> None:
        self._own = None if schema.identifier is None else schema.identifier.name
        self._names, self._changed = names, changed
        keys = column_keys(secrets.token_bytes(32), len(names))  # words are comparable within this call only
        self._keys = dict(zip(names, keys, strict=True))
        self.untouched = self.moved = 0
        self.differ: set[str] = set()

    def look(self, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> tuple[Any, npt.NDArray[np.bool_], Any]:
        """Return cells before, flags of those that took part, and their cells after."""
        touched = np.zeros(mine.num_rows, dtype=np.bool_)
        for name in self._changed:
            sides = (pa.chunked_array([side.column(name)]) for side in (mine, theirs))
            flags = flag_changes(*aligned_columns(*sides))
            if flags.any():
                if name == self._own:
                    raise files_differ_error("the records of the second file have other identifiers, or another order")
                self.differ.add(name)
                touched |= flags
        rows = pa.array(np.flatnonzero(touched))
        before = self._words(mine, self._names)
        # Unchanged columns are already in the words.
        moved = [name for name in self._names if name in self._changed]
        old, new = (self._words(side.select(moved).take(rows), moved) for side in (mine, theirs))
        after = before[touched] ^ old ^ new if moved else before[touched]
        self.untouched += mine.num_rows - len(rows)
        self.moved += int((before[touched] != after).any(axis=1).sum())
        return before, touched, after

    def _words(self, batch: pa.RecordBatch, names: Sequence[str]) -> Any:
        return record_words([batch.column(name) for name in names], [self._keys[name] for name in names])


def _check_same_columns(first: ParquetFiles, second: ParquetFiles) -> None:
    """Compare names and numbers of records only: Spark writes its own types."""
    if len(first) != len(second) or first.schema.names != second.schema.names:
        raise files_differ_error(
            f"the two files do not fit: {plural(len(first), 'record')} and {len(second):,}, or other columns"
        )
