"""Compare two Parquet files by counts of cells, in memory, out of memory or in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.engines.base import Need
from safeswap.engines.spilled_cells import ROWS_COMPARED, ComparedCells, TalliedCells, flag_changed
from safeswap.errors import InputError
from safeswap.files.atomic import working_directory
from safeswap.files.infer import resolve_file_schema
from safeswap.files.parquet import ParquetFiles, open_parquet, zip_batches
from safeswap.files.rewrite import CannotSplice, other_chunks
from safeswap.measures.base import require_cells
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema, refuse_date
from safeswap.model.score import Comparison, CountedCells, only_numbers_changed
from safeswap.model.text import plural


def compare_files(
    before: Path,
    after: Path,
    *,
    attributes: Sequence[str] | None = None,
    also: Sequence[str] = (),
    reading: Mapping[str, Any],
) -> Comparison:
    """Compare the two files over ``attributes``, by default all categorical ones.

    Columns with the same bytes on disk are read once. Records correspond by position; changes are looked for in all
    columns. ``also`` names columns that are read too, as far as the file has them, and form no cells; so is the weight.
    """
    first, second, schema = _open_both(before, after, reading)
    changed = changed_columns(first, second, schema.names)
    own = schema.identifier
    touched = np.zeros(len(first), dtype=np.bool_)
    differing = set()
    for name in changed:
        batches = zip_batches(first, second, [], [name], rows=ROWS_COMPARED)
        found = [flag_changed(mine, {name: theirs.column(0)}) for mine, theirs in batches]
        flags = np.concatenate([np.zeros(0, dtype=np.bool_), *found])
        if own is not None and name == own.name and flags.any():
            raise files_differ_error("the records of the second file have other identifiers, or another order")
        touched |= flags
        differing |= {name} if flags.any() else set()
    names = tuple(attributes) if attributes is not None else schema.categorical
    weight = () if schema.weight is None else (schema.weight.name,)
    described = schema.select([name for name in schema.names if name in (*names, *also, *weight)])
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


def _open_both(
    before: Path, after: Path, reading: Mapping[str, Any], *, types: bool = True
) -> tuple[ParquetFiles, ParquetFiles, Schema]:
    """Open two files; refuse different numbers of records, other columns, or, if asked, other types."""
    first, second = open_parquet(before), open_parquet(after)
    schema = resolve_file_schema(first, **reading)
    same = first.schema.equals(second.schema) if types else first.schema.names == second.schema.names
    if len(first) != len(second) or not same:
        raise files_differ_error(
            f"the two files do not match: {plural(len(first), 'record')} and {len(second):,}, or other columns"
        )
    return first, second, schema


def files_differ_error(message: str) -> InputError:
    """Return the refusal of files that do not belong together."""
    return InputError(
        message,
        code="files-differ",
        hint="give the internal masked file, which has the rows and columns of the original",
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


WORTH_COUNTING = 1_000_000
"""From this many records on, counts are compared instead of records, if the measures allow it."""


def count_files(
    before: Path, after: Path, *, attributes: Sequence[str] | None, limit: int, reading: Mapping[str, Any]
) -> CountedCells:
    """Count the cells of ``attributes``, by default all categorical ones; records correspond by position.

    A record that changed in any column counts as having taken part. What does not fit in memory is spilled to a
    private temporary directory.
    """
    first, second, schema = _open_both(before, after, reading)
    names = cell_attributes(schema, attributes)
    changed = changed_columns(first, second, schema.names)
    own = schema.identifier
    with working_directory() as work:
        cells = ComparedCells(work, names, records=len(first))
        for mine, theirs in zip_batches(first, second, names, changed, rows=ROWS_COMPARED):
            columns = dict(zip(theirs.schema.names, theirs.columns, strict=True))
            touched = flag_changed(mine, columns)
            cells.add(mine, touched, {name: column.filter(pa.array(touched)) for name, column in columns.items()})
            if own is not None and own.name in cells.differ:
                raise files_differ_error("the records of the second file have other identifiers, or another order")
        counted = as_counted(schema, names, cells, limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    return counted


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
    from safeswap.on_disk.job import check_need, find_engine
    from safeswap.on_disk.spark import spark_session

    first, second, schema = _open_both(before, after, reading, types=False)  # Spark writes its own types
    names = cell_attributes(schema, attributes)
    if schema.identifier is None:
        check_need(find_engine("spark"), Need.POSITIONS)
    with spark_session(session, threads, records=len(first)) as spark:
        found = compare_cells(SparkFrame(spark, first, schema), SparkFrame(spark, second, schema), names, limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    if found.records != len(first):
        raise files_differ_error("the records of the second file have other identifiers")
    return CountedCells(
        schema=schema,
        attributes=names,
        changed=found.changed,
        untouched=found.untouched,
        only_numbers=found.only_numbers,
        **vars(found.cells),
    )


def cell_attributes(schema: Schema, attributes: Sequence[str] | None) -> Names:
    """Return the attributes that form the cells; refuse an empty list, or the identifier."""
    names = require_cells(schema, schema.categorical if attributes is None else tuple(attributes))
    for name in names:
        refuse_date(schema, name)
    return names


class CellChanges(Protocol):
    """The cells of records before and after: which columns differ, the records that took no part, and the counts."""

    differ: set[str]
    untouched: int

    def tally(self, *, limit: int) -> TalliedCells:
        """Return the cells by their counts."""
        ...


def as_counted(schema: Schema, names: Names, cells: CellChanges, *, limit: int) -> CountedCells:
    """Return the cells in the form of the measures."""
    return CountedCells(
        schema=schema,
        attributes=names,
        changed=frozenset(names).intersection(cells.differ),
        untouched=cells.untouched,
        only_numbers=only_numbers_changed(schema, cells.differ),
        **vars(cells.tally(limit=limit)),
    )
