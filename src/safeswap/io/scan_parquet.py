"""What a Parquet file holds beside its records: footers, dictionary pages, statistics, bytes that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.io.manifest import damaged
from safeswap.io.remarks import Remark, refusal

_MAGIC = 4
_TAIL = 8  # the footer's length and the magic again


def footer_remarks(path: Path) -> list[Remark]:
    """Notes in the footer, and bytes that belong to no column."""
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        raise damaged("it cannot be read", file=path.name) from None
    remarks = [
        refusal("engine-metadata", f"the footer holds notes of the program {_engine(key)!r}", file=path.name)
        for key in sorted(metadata.metadata or {})
    ]
    if not _is_tiled(metadata, path.stat().st_size):
        message = "the file holds bytes that belong to no column"
        remarks.append(refusal("unaccounted-bytes", message, file=path.name))
    return remarks


def _engine(key: bytes) -> str:
    """Only known names are repeated: a key can hold anything."""
    known = {b"pandas": "pandas", b"ARROW:schema": "Arrow", b"org.apache.spark": "Spark", b"geo": "geo"}
    return next((name for prefix, name in known.items() if key.startswith(prefix)), "unknown")


def _is_tiled(metadata: Any, size: int) -> bool:
    """Whether the column chunks, one after the other, fill the file between its head and its footer."""
    spans = []
    for group in range(metadata.num_row_groups):
        for position in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(position)
            starts = [chunk.data_page_offset]
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                starts.append(chunk.dictionary_page_offset)
            spans.append((min(starts), min(starts) + chunk.total_compressed_size))
    end = _MAGIC
    for start, stop in sorted(spans):
        if start != end:
            return False
        end = stop
    return end + int(metadata.serialized_size) + _TAIL == size


def chunk_remarks(path: Path, group: int, piece: pa.Table) -> Iterator[list[Remark]]:
    """Per column of a row group: values in the dictionary page that no record has, and bounds that are none."""
    from pyarrow import parquet

    metadata = parquet.read_metadata(path).row_group(group)
    for position, name in enumerate(piece.column_names):
        column = piece.column(name)
        remarks = []
        if pa.types.is_dictionary(column.type) and _has_unused_levels(column):
            message = f"column {name!r} lists values that no record has"
            remarks.append(refusal("unused-category", message, column=name, file=path.name))
        bounds = metadata.column(position).statistics
        if bounds is not None and bounds.has_min_max and not _are_bounds(bounds, column):
            message = f"the bounds noted for column {name!r} are not those of its values"
            remarks.append(refusal("foreign-bounds", message, column=name, file=path.name))
        yield remarks


def _has_unused_levels(column: pa.ChunkedArray) -> bool:
    used: set[int] = set()
    column = column.unify_dictionaries()
    for chunk in column.chunks:
        counts = np.bincount(chunk.indices.drop_null(), minlength=len(chunk.dictionary))
        used.update(np.flatnonzero(counts).tolist())
    return bool(column.num_chunks) and len(used) != len(column.chunk(0).dictionary)


def _are_bounds(bounds: Any, column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([column.unify_dictionaries().chunk(0).dictionary])
    found = pc.min_max(column).as_py()
    return bool(bounds.min == found["min"] and bounds.max == found["max"])
