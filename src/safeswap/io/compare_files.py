"""Two Parquet files side by side, as measures look at them, with no more of them in memory than measures need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.errors import InputError
from safeswap.io.described_files import described_files
from safeswap.io.memory_swap import part_of
from safeswap.io.parquet_files import ParquetFiles, open_parquet
from safeswap.io.splice import CannotSplice, other_chunks
from safeswap.model.equality import aligned_columns, different
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison


def compare_files(
    before: Path, after: Path, *, attributes: Sequence[str] | None = None, reading: Mapping[str, Any]
) -> Comparison:
    """The two files over ``attributes``, by default all categorical ones.

    Columns whose bytes on disk are the same are read once. Records correspond by their position; which of them changed
    is found in all columns.
    """
    first, second = open_parquet(before), open_parquet(after)
    schema = described_files(first, **reading)
    check_alike(first, second)
    changed = changed_columns(first, second, schema.names)
    own = schema.identifier
    touched = np.zeros(len(first), dtype=np.bool_)
    kinds = set()
    for name in changed:
        flags = _different(first, second, name)
        if own is not None and name == own.name and flags.any():
            raise files_differ("the records of the second file have other identifiers, or another order")
        touched |= flags
        kinds |= {schema[name].kind} if flags.any() else set()
    names = tuple(attributes) if attributes is not None else schema.categorical
    described = part_of(schema, [name for name in schema.names if name in names])
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
        only_numbers=bool(kinds) and kinds <= {Kind.NUMERIC, Kind.WEIGHT},
    )


def check_alike(first: ParquetFiles, second: ParquetFiles) -> None:
    """Refuse files with another number of records, or with other columns."""
    if len(first) != len(second) or not first.schema.equals(second.schema):
        raise files_differ(f"the two files do not fit: {len(first):,} records and {len(second):,}, or other columns")


def files_differ(message: str) -> InputError:
    """The refusal of files that do not belong together."""
    return InputError(
        message,
        code="files-differ",
        hint="give the masked file that stays inside, which has the rows and columns of the original",
    )


def changed_columns(first: ParquetFiles, second: ParquetFiles, names: Sequence[str]) -> list[str]:
    """The columns that are not the same bytes on disk: only these can hold another value anywhere."""
    if [part.groups for part in first.parts] != [part.groups for part in second.parts]:
        return list(names)
    changed: set[str] = set()
    try:
        for mine, theirs in zip(first.parts, second.parts, strict=True):
            changed |= set(other_chunks(mine.path, theirs.path, [name for name in names if name not in changed]))
    except (CannotSplice, ValueError):
        return list(names)
    return [name for name in names if name in changed]


def _different(first: ParquetFiles, second: ParquetFiles, name: str) -> npt.NDArray[np.bool_]:
    """Per record whether the column holds another value; compared a batch at a time."""
    flags = np.zeros(len(first), dtype=np.bool_)
    theirs = second.table([name]).column(0)
    for start, batch in first.batches([name]):
        mine = pa.chunked_array([batch.column(0)])
        flags[start : start + len(mine)] = different(*aligned_columns(mine, theirs.slice(start, len(mine))))
    return flags


def together(
    first: ParquetFiles, second: ParquetFiles, names: Sequence[str], changed: Sequence[str], *, rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """The same records of two files, whatever the batches in which each comes; of the second what changed only."""
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
