"""Rewrite Parquet files with some columns replaced, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from safeswap.files.formats import PARQUET
from safeswap.files.parquet import ParquetFiles, Part, part_batches
from safeswap.files.sources import corrupt_error
from safeswap.files.splice import CannotSplice, same_chunks, splice

_CODECS = {"UNCOMPRESSED": "none", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4"}


class Replacing(Protocol):
    """A source of new columns, read in the order of the records."""

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the new values of the records from ``start`` to ``stop``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Written:
    """A written file: its source, and whether its other columns were copied byte for byte."""

    part: Part
    path: Path
    copied: bool


def rewrite(
    files: ParquetFiles,
    target: Path,
    *,
    names: Sequence[str],
    replacing: Replacing,
    work: Path,
    schema: pa.Schema | None = None,
) -> tuple[Written, ...]:
    """Write all files with the columns ``names`` replaced; ``work`` is a directory for temporary files.

    ``target`` is a file if the source is a file; if the source is a directory, it is an existing directory, and the
    files in it keep their names. ``schema`` has the types of all columns afterwards, where some of them change.
    """
    schema = files.schema if schema is None else schema
    written = []
    start = 0
    for part in files.parts:
        path = target / part.path.relative_to(files.root) if files.is_directory else target
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = work / "replaced.parquet"
        _write_replaced(part, fresh, [schema.field(name) for name in names], replacing=replacing, start=start)
        copied = schema.equals(files.schema) and _splice(part, fresh, path, names)
        if not copied:
            _encode_all(schema, part, fresh, path, names)
        written.append(Written(part=part, path=path, copied=copied))
        fresh.unlink()
        start += part.records
    return tuple(written)


def find_changed(files: ParquetFiles, written: Sequence[Written], names: Sequence[str]) -> list[str]:
    """Return the columns among ``names`` that, read back from the written files, differ from the source."""
    wrong: list[str] = []
    for each in written:
        left = [name for name in names if name not in wrong]
        if each.copied and same_chunks(each.part.path, each.path, left):
            continue
        wrong += [name for name in left if not _same_values(files, each, name)]
    return wrong


def _write_replaced(part: Part, path: Path, fields: Sequence[pa.Field], *, replacing: Replacing, start: int) -> None:
    from pyarrow import parquet

    names = [field.name for field in fields]
    writer = None
    for rows in part.groups or (0,):
        columns = replacing.columns(start, start + rows)
        # In the type the values come in, dictionary codes included: it is the same column in the file.
        kinds = [columns[name].type for name in names]
        schema = pa.schema([field.with_type(kind) for field, kind in zip(fields, kinds, strict=True)])
        table = pa.table([columns[name] for name in names], schema=schema)
        if writer is None:
            writer = parquet.ParquetWriter(path, schema, compression=_codecs(part, names))
        writer.write_table(table.cast(writer.schema), row_group_size=max(rows, 1))
        start += rows
    assert writer is not None  # noqa: S101  (there is a turn even for a file without row groups)
    writer.close()


def _codecs(part: Part, names: Sequence[str]) -> dict[str, str]:
    """Return the compression of each column, as the source has it."""
    from pyarrow import parquet

    with parquet.ParquetFile(part.path) as file:
        footer = file.metadata
        if not footer.num_row_groups:
            return dict.fromkeys(names, "snappy")
        chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    return {c.path_in_schema: _CODECS.get(c.compression, "snappy") for c in chunks if c.path_in_schema in names}


def _splice(part: Part, fresh: Path, path: Path, names: Sequence[str]) -> bool:
    """Copy the other columns byte for byte; return False if the chunks of the file cannot be copied."""
    try:
        splice(part.path, fresh, path, frozenset(names))
    except CannotSplice:
        return False
    except ValueError:
        raise corrupt_error(part.path, PARQUET) from None
    return True


def _encode_all(schema: pa.Schema, part: Part, fresh: Path, path: Path, names: Sequence[str]) -> None:
    """Decode and encode every column: for files whose chunks cannot be copied, or whose footer changes."""
    from pyarrow import parquet

    with (
        parquet.ParquetFile(part.path) as old,
        parquet.ParquetFile(fresh) as new,
        parquet.ParquetWriter(path, schema) as writer,
    ):
        for group, rows in enumerate(part.groups):
            if not rows:
                continue
            table = old.read_row_group(group)
            replaced = new.read_row_group(_count_filled_before(part, group))
            for name in names:
                place = table.column_names.index(name)
                kind = schema.field(name)
                table = table.set_column(place, kind, _as_type(replaced.column(name), kind.type))
            writer.write_table(table.cast(schema), row_group_size=rows)


def _count_filled_before(part: Part, group: int) -> int:
    # An empty row group is not written, so later ones move up.
    return sum(rows > 0 for rows in part.groups[:group])


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type) and column.type != kind:
        column = column.cast(column.type.value_type)
    return column.cast(kind)


def _same_values(files: ParquetFiles, each: Written, name: str) -> bool:
    from safeswap.model.columns import aligned_columns, flag_changes

    other = Part(path=each.path, groups=each.part.groups, stamp=each.part.stamp)
    before, after = (_iter_arrays(part, name) for part in (each.part, other))
    for first, second in zip(before, after, strict=True):
        if len(first) != len(second) or flag_changes(*aligned_columns(first, second)).any():
            return False
    return True


def _iter_arrays(part: Part, name: str) -> Iterator[Any]:
    return (pa.chunked_array([batch.column(0)]) for batch in part_batches(part, [name], dictionaries=[]))
