"""Two Parquet files side by side as counts of cells, for files whose records are too many to be held twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.io.coded_columns import coded_columns, side_by_side
from safeswap.io.compare_files import changed_columns, check_alike, files_differ
from safeswap.io.counted_cells import ChangingColumn, cell_attributes, counted_cells
from safeswap.io.described_files import described_files
from safeswap.io.parquet_files import ParquetFiles, open_parquet
from safeswap.kernels.types import Codes, Rows
from safeswap.model.equality import aligned_columns, different
from safeswap.model.microdata import Coded, smallest_code_type
from safeswap.model.score import CountedCells

WORTH_COUNTING = 1_000_000
"""From so many records on counts are looked at instead of records, where measures allow it."""

Changes = tuple[Rows, pa.ChunkedArray]
"""The records in which a column changed, in ascending order, and the values that it then has."""


def count_files(
    before: Path, after: Path, *, attributes: Sequence[str] | None, limit: int, reading: Mapping[str, Any]
) -> CountedCells | None:
    """The cells of ``attributes``, by default all categorical ones; None where a column has missing values.

    Records correspond by their position; one that changed in any column counts as having taken part.
    """
    first, second = open_parquet(before), open_parquet(after)
    schema = described_files(first, **reading)
    check_alike(first, second)
    names = cell_attributes(schema, attributes)
    changed = changed_columns(first, second, schema.names)
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        found = dict(zip(changed, threads.map(lambda name: _changes(first, second, name), changed), strict=True))
    own = schema.identifier
    if own is not None and own.name in found and len(found[own.name][0]):
        raise files_differ("the records of the second file have other identifiers, or another order")
    touched = np.zeros(len(first), dtype=np.bool_)
    for rows, _ in found.values():
        touched[rows] = True
    rows = np.flatnonzero(touched)
    coded = coded_columns(first, names)
    if any(coded[name].has_missing or (name in found and found[name][1].null_count) for name in names):
        return None
    columns = {name: _changing(coded[name], found.get(name), rows) for name in names}
    return counted_cells(schema, names, columns, rows, limit=limit)


def _changes(first: ParquetFiles, second: ParquetFiles, name: str) -> Changes:
    rows, values = [np.zeros(0, np.int64)], []
    for start, mine, theirs in side_by_side(first, second, name):
        flags = different(*aligned_columns(pa.chunked_array([mine]), pa.chunked_array([theirs])))
        found = np.flatnonzero(flags)
        if len(found):
            rows.append(found + start)
            values.append(_plain(theirs.take(pa.array(found))))
    kind = first.schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return np.concatenate(rows), pa.chunked_array(values, type=kind)


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _changing(coded: Coded, changes: Changes | None, rows: Rows) -> ChangingColumn:
    """The column with the codes after of ``rows``, in which those rows are that changed."""
    if changes is None or not len(changes[0]):
        return ChangingColumn(before=coded.codes, after=None, cardinality=coded.cardinality)
    levels, values = coded.levels, changes[1].cast(coded.levels.type).combine_chunks()
    unknown = pc.unique(values.filter(pc.invert(pc.is_in(values, value_set=levels))))
    levels = pa.concat_arrays([levels, unknown]) if len(unknown) else levels
    codes: Codes = coded.codes[rows].astype(smallest_code_type(len(levels)))
    codes[np.searchsorted(rows, changes[0])] = pc.index_in(values, value_set=levels).to_numpy()
    return ChangingColumn(before=coded.codes, after=codes, cardinality=len(levels))
