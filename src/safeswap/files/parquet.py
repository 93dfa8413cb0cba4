"""Read Parquet and Arrow files: checked by what they declare, then decoded at full speed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.errors import InputError
from safeswap.files.columns import normalise_table
from safeswap.files.formats import (
    ARROW,
    DEFAULT_LIMITS,
    PARQUET,
    Format,
    Limits,
    corrupt_error,
    existing_file,
    format_of,
    unreadable_error,
)
from safeswap.files.parquet_bytes import WIDTH, check_pages, footer_bytes

_PLAIN_TEXT_BYTES = 4  # a plain text takes at least its four-byte length; less means a dictionary
_SMALL_CHUNK = 2**16
_WIDE = 256  # columns


def read_parquet(
    path: Path, *, limits: Limits, find_known: Callable[[], Mapping[str, pa.ChunkedArray]] | None = None
) -> pa.Table:
    """Read a Parquet file whose footer declares no more than the limits allow.

    Text columns that the file stores as dictionaries stay dictionaries: their codes are reused. ``find_known`` finds
    columns that need not be decoded, once the file has been checked.

    >>> import tempfile, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.parquet"
    ...     pyarrow.parquet.write_table(pa.table({"Sex": ["F", "M"] * 50, "Age": range(100)}), path)
    ...     [str(kind) for kind in read_parquet(path, limits=Limits()).schema.types]
    ['dictionary<values=string, indices=int8, ordered=0>', 'int64']
    """
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            footer = file.metadata
        limits.check(file=str(path), columns=footer.num_columns, records=footer.num_rows)
        dictionaries = dictionary_columns(footer)
        limits.check(file=str(path), decoded_bytes=sum(map(_declared_bytes, _chunks(footer))))
        check_pages(path, footer, limits=limits, dictionaries=frozenset(dictionaries))
        known = find_known() if find_known else {}
        return _decode(path, footer.schema.to_arrow_schema().names, sorted(dictionaries), known)
    except (pa.ArrowException, OSError, ValueError):
        raise corrupt_error(path, PARQUET) from None


def _decode(path: Path, names: list[str], dictionaries: list[str], known: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """Decode the columns and narrow each at once, so that four-byte codes are never all in memory."""
    from pyarrow import parquet

    def columns(some: list[str]) -> list[pa.ChunkedArray]:
        with parquet.ParquetFile(path, read_dictionary=dictionaries) as file:
            found = file.read(columns=some, use_threads=False)
            return [narrow_codes(found.column(name)) for name in some]

    if len(set(names)) < len(names):  # repeated names are refused later, with their positions
        with parquet.ParquetFile(path, read_dictionary=dictionaries) as file:
            return file.read()
    # Each opening reads the whole footer: a wide file is opened only a few times.
    few = 1 if len(names) <= _WIDE else -(-len(names) // (2 * pa.cpu_count()))
    unknown = [name for name in names if name not in known]
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        read = threads.map(columns, [unknown[at : at + few] for at in range(0, len(unknown), few)])
        found = dict(zip(unknown, (column for some in read for column in some), strict=True))
    return pa.table([known[name] if name in known else found[name] for name in names], names=names)


def narrow_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Narrow the codes of a dictionary column as far as its levels allow; return any other column unchanged.

    >>> long = pa.chunked_array([pa.array(["F", "M", None]).dictionary_encode()])
    >>> str(narrow_codes(long).type), narrow_codes(long).to_pylist()
    ('dictionary<values=string, indices=int8, ordered=0>', ['F', 'M', None])
    """
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return column
    try:
        column = column.unify_dictionaries()
    except pa.ArrowInvalid:  # the chunks have more levels together than the codes of each can number
        column = pa.chunked_array([_cast_index(chunk, pa.int32()) for chunk in column.chunks]).unify_dictionaries()
    levels = column.chunk(0).dictionary
    shortest = next(t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64()) if len(levels) <= 2 ** (t.bit_width - 1))
    if shortest.bit_width >= column.type.index_type.bit_width:
        return column
    ordered = column.type.ordered
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(c.indices.cast(shortest), levels, ordered=ordered) for c in column.chunks]
    )


def _chunks(footer: Any) -> list[Any]:
    groups, columns = range(footer.num_row_groups), range(footer.num_columns)
    return [footer.row_group(group).column(column) for group in groups for column in columns]


def dictionary_columns(footer: Any) -> set[str]:
    """Return the text columns that are dictionaries with short codes in every part, from beginning to end."""
    stored = [chunk for chunk in _chunks(footer) if chunk.physical_type == "BYTE_ARRAY"]
    plain = {chunk.path_in_schema for chunk in stored if not _is_dictionary(chunk)}
    return {chunk.path_in_schema for chunk in stored} - plain


def _is_dictionary(chunk: Any) -> bool:
    size = chunk.total_uncompressed_size
    return bool(chunk.has_dictionary_page and size < _PLAIN_TEXT_BYTES * chunk.num_values + _SMALL_CHUNK)


def _declared_bytes(chunk: Any) -> int:
    """Return the least memory that a column chunk takes if it holds what the footer declares."""
    return max(0, int(chunk.total_uncompressed_size), WIDTH.get(chunk.physical_type, 4) * int(chunk.num_values))


def read_arrow(path: Path, *, found: Format, limits: Limits) -> pa.Table:
    """Read an Arrow IPC file (such as Feather 2) or stream, batch by batch, and check every buffer.

    >>> import tempfile, pyarrow.feather
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.feather"
    ...     pyarrow.feather.write_feather(pa.table({"a": [1, 2]}), path)
    ...     read_arrow(path, found=ARROW, limits=Limits()).to_pydict()
    {'a': [1, 2]}
    """
    try:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source) if found is ARROW else pa.ipc.open_stream(source)
            limits.check(file=str(path), columns=len(reader.schema))
            batches, records, size = [], 0, 0
            for batch in _iter_batches(reader, found):
                # Offsets in a damaged file can point anywhere; they are checked before use.
                batch.validate(full=True)
                records, size = records + batch.num_rows, size + batch.nbytes
                limits.check(file=str(path), records=records, decoded_bytes=size)
                batches.append(batch)
            return pa.Table.from_batches(batches, schema=reader.schema)
    except (pa.ArrowException, OSError, ValueError):
        raise corrupt_error(path, found) from None


def _iter_batches(reader: Any, found: Format) -> Any:
    if found is ARROW:
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return reader


BATCH = 1 << 20

_Stamp = tuple[int, int, int, str]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file: its path, the rows of each row group, and a stamp to detect changes."""

    path: Path
    groups: tuple[int, ...]
    stamp: _Stamp = field(repr=False)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetFiles:
    """Parquet files with the same columns, read as one file that need not fit in memory."""

    root: Path
    parts: tuple[Part, ...]
    schema: pa.Schema
    dictionaries: frozenset[str]

    def __len__(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def is_directory(self) -> bool:
        """True if a directory was given."""
        return self.root.is_dir()

    def table(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all records in memory; dictionary-encoded text stays so, with short codes."""
        with ThreadPoolExecutor(pa.cpu_count()) as threads:
            columns = dict(zip(names, threads.map(self._column, names), strict=True))
        return normalise_table(pa.table(columns), file=str(self.root)) if columns else pa.table({})

    def batches(self, names: Sequence[str], *, rows: int = BATCH) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield some columns in batches, each with the number of its first record."""
        start = 0
        for part in self.parts:
            for batch in part_batches(part, names, dictionaries=self._dictionaries_of(names), rows=rows):
                yield start, batch
                start += batch.num_rows

    def check_unchanged(self) -> None:
        """Refuse files that have changed since they were opened."""
        for part in self.parts:
            try:
                same = _stamp(part.path) == part.stamp
            except (OSError, ValueError):
                same = False
            if not same:
                raise InputError(
                    f"{part.path.name!r} changed while it was being read; nothing was written",
                    code="input-changed",
                    hint="run again when the file is not being written to, or on a copy",
                    file=str(part.path),
                )

    def _dictionaries_of(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.dictionaries]

    def _column(self, name: str) -> pa.ChunkedArray:
        kind = self.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_float64(kind):
            numbers = self._numbers(name, kind)
            if numbers is not None:
                return pa.chunked_array([numbers])
        batches = (
            batch
            for part in self.parts
            for batch in part_batches(part, [name], dictionaries=self._dictionaries_of([name]))
        )
        # Narrowed batch by batch, so that four-byte codes are never all in memory.
        chunks = [narrow_codes(pa.chunked_array([batch.column(0)])).chunk(0) for batch in batches]
        if pa.types.is_dictionary(chunks[0].type):
            widest = max((chunk.type.index_type for chunk in chunks), key=lambda kind: kind.bit_width)
            chunks = [_cast_index(chunk, widest) for chunk in chunks]
        return narrow_codes(pa.chunked_array(chunks))

    def _numbers(self, name: str, kind: pa.DataType) -> pa.Array | None:
        """Return the column in one chunk; None if a value is missing."""
        values = np.empty(len(self), dtype=kind.to_pandas_dtype())
        for start, batch in self.batches([name]):
            column = batch.column(0)
            if column.null_count:
                return None
            values[start : start + len(column)] = column.to_numpy()
        return pa.array(values)


def part_batches(
    part: Part, names: Sequence[str], *, dictionaries: Sequence[str], rows: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of one file in batches.

    Arrow keeps what it has read of every row group until the last batch: half a gigabyte for the identifiers of a
    hundred million records. So it is asked for a few row groups at a time.
    """
    from pyarrow import parquet

    options: dict[str, Any] = {"batch_size": rows, "columns": list(names), "use_threads": False}
    with _translate_errors(part.path), parquet.ParquetFile(part.path, read_dictionary=list(dictionaries)) as file:
        for groups in _runs_of_groups(file.metadata, max(rows, BATCH)):
            for batch in file.iter_batches(row_groups=groups, **options):
                yield batch.select(list(names))


def _runs_of_groups(footer: Any, rows: int) -> Iterator[list[int]]:
    """Yield consecutive row groups with at least this many rows together, the last ones with the rest."""
    run, held = [], 0
    for group in range(footer.num_row_groups):
        run.append(group)
        held += footer.row_group(group).num_rows
        if held >= rows:
            yield run
            run, held = [], 0
    if run:
        yield run


def open_parquet(source: str | Path, *, limits: Limits = DEFAULT_LIMITS, is_own: bool = False) -> ParquetFiles:
    """Open a Parquet file or a directory of them; only footers and, unless we wrote it, page headers are read.

    In a directory all files that end in ``.parquet`` are used, also in subdirectories, in the order of their names,
    except those that begin with a dot or an underscore. All must have the same columns.

    >>> import tempfile, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), Path(folder) / "x.parquet")
    ...     pyarrow.parquet.write_table(pa.table({"a": [3]}), Path(folder) / "y.parquet")
    ...     files = open_parquet(folder)
    ...     len(files), [start for start, _ in files.batches(["a"])]
    (3, [0, 2])
    """
    root = Path(source)
    opened = [_open_part(path, limits, is_own=is_own) for path in _paths(root)]
    schema = opened[0][1]
    for part, other, _ in opened[1:]:
        if not other.equals(schema):
            raise InputError(
                f"{part.path.name!r} has different columns from {opened[0][0].path.name!r}",
                code="files-differ",
                hint="all files of a directory must have the same columns, in the same order and of the same types",
                file=str(part.path),
            )
    normalise_table(schema.empty_table(), file=str(root))  # refuses unusable names and types
    files = ParquetFiles(
        root=root,
        parts=tuple(part for part, _, _ in opened),
        schema=schema,
        dictionaries=frozenset.intersection(*(found for _, _, found in opened)),
    )
    if not len(files):
        raise InputError("there are no records", code="no-records", hint="add records", file=str(root))
    limits.check(file=str(root), columns=len(schema), records=len(files))
    return files


def _paths(root: Path) -> list[Path]:
    if not root.is_dir():
        return [existing_file(root)]
    found = [path for path in sorted(root.rglob("*.parquet")) if not _is_hidden(path.relative_to(root))]
    for path in found:
        if any("=" in name for name in path.relative_to(root).parts[:-1]):
            raise InputError(
                f"the directory {root.name!r} holds values in the names of its directories",
                code="partition-directories",
                hint="rewrite it without partition columns",
                file=str(root),
            )
    if not found:
        raise InputError(
            f"the directory {root.name!r} holds no Parquet file",
            code="no-files",
            hint="give a directory with files that end in .parquet",
            file=str(root),
        )
    return [existing_file(path) for path in found]


def _is_hidden(path: Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)


def _open_part(path: Path, limits: Limits, *, is_own: bool) -> tuple[Part, pa.Schema, frozenset[str]]:
    from pyarrow import parquet

    if format_of(path) is not PARQUET:
        raise InputError(
            f"{path.name!r} is not a Parquet file",
            code="unknown-format",
            hint="write the data as Parquet first: safeswap.files.write.write(safeswap.read(path), 'data.parquet')",
            file=str(path),
        )
    with _translate_errors(path), parquet.ParquetFile(path) as file:
        footer, schema = file.metadata, file.schema_arrow.remove_metadata()
        limits.check(file=str(path), columns=footer.num_columns, records=footer.num_rows)
        groups = tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        part = Part(path=path, groups=groups, stamp=_stamp(path))
        dictionaries = frozenset(dictionary_columns(footer)) & set(schema.names)
        if not is_own:  # our own pages come from our writer, or from a source that has been checked
            check_pages(path, footer, limits=limits, dictionaries=dictionaries, in_memory=False)
        return part, schema, dictionaries


def _stamp(path: Path) -> _Stamp:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, hashlib.sha256(footer_bytes(path)).hexdigest()


def _cast_index(chunk: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    if chunk.type.index_type == kind:
        return chunk
    return pa.DictionaryArray.from_arrays(chunk.indices.cast(kind), chunk.dictionary, ordered=chunk.type.ordered)


class _translate_errors:  # noqa: N801  (used as a statement)
    """Translate Arrow's errors about a file to ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise unreadable_error(self.path, error) from None
        if isinstance(error, pa.ArrowException | OSError | ValueError):
            raise corrupt_error(self.path, PARQUET) from None


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
