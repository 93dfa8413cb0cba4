"""Rewrite Parquet files with some columns replaced, row group by row group; all others are copied byte for byte.

A Parquet file is a sequence of column chunks and a footer with their positions. A chunk can be copied without decoding
if the footer gets its new position: the chunks of the replaced columns come from another Parquet file with the same row
groups, all others from the source.

Data between chunks (page indexes, Bloom filters) is dropped, and so is the statement that row groups are sorted: they
may no longer be.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, TypeAlias

import pyarrow as pa

from safeswap.files.formats import PARQUET, Stored, corrupt_error, state_of
from safeswap.files.parquet import ParquetFiles, Part, dictionary_columns, part_batches
from safeswap.files.parquet_bytes import (
    BINARY,
    I64,
    LIST,
    MAGIC,
    STRUCT,
    Struct,
    footer_bytes,
    footer_of,
    parse,
    serialise,
)
from safeswap.model.columns import same_memory

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


def find_copied(path: Path, earlier: Sequence[Stored]) -> dict[str, pa.ChunkedArray]:
    """Return the columns of a file that an unchanged earlier one stores in the same bytes, to be read alike."""
    for known in earlier:
        try:
            if known.state == state_of(known.path):
                names = _read_alike(path, known.path)
                same = set(names) - set(other_chunks(path, known.path, names))
                return {name: known.table.column(name) for name in known.table.column_names if name in same}
        except (CannotSplice, ValueError, LookupError, TypeError, OSError):
            continue  # the file is decoded, and refused if it is damaged
    return {}


def _read_alike(one: Path, other: Path) -> list[str]:
    """Return the columns that have one type, in memory as in the file, in both files."""
    from pyarrow import parquet

    kinds = []
    for path in (one, other):
        with parquet.ParquetFile(path) as file:
            coded, footer = dictionary_columns(file.metadata), read_footer(path)
            kinds.append((footer, {name: _decoded(file.schema_arrow, name, coded) for name in footer.leaves}))
    (first, ours), (second, theirs) = kinds
    return [n for n, kind in ours.items() if theirs.get(n) == kind and _is_same_declaration(first, second, n)]


def _decoded(schema: pa.Schema, name: str, coded: Collection[str]) -> tuple[Any, ...]:
    """Return what the values of a column become; codes are narrowed anyway."""
    kind = schema.field(name).type
    is_coded = pa.types.is_dictionary(kind)
    return kind.value_type if is_coded else kind, is_coded and kind.ordered, is_coded or name in coded


_SMALLEST_GROUP = 1 << 14  # records, on average: smaller row groups are not worth keeping


def write_copied(table: pa.Table, stored: Stored, path: Path, compression: str) -> bool:
    """Write a table whose columns were in part read from a Parquet file: those are copied from it.

    The footer is that of a new file. Return False if nothing can be copied; the file may then contain anything.
    """
    try:
        return state_of(stored.path) == stored.state and _copy_stored(table, stored, path, compression)
    except (CannotSplice, ValueError, LookupError, OSError):
        return False


def _copy_stored(table: pa.Table, stored: Stored, path: Path, compression: str) -> bool:
    from pyarrow import parquet

    old, empty = read_footer(stored.path), io.BytesIO()
    rows = [group[_ROWS][1] for group in old.groups]
    if list(old.leaves) != table.column_names or sum(rows) != len(table) or len(table) < len(rows) * _SMALLEST_GROUP:
        return False
    parquet.write_table(table.slice(0, 0), empty, compression=compression)
    base = _as_footer(footer_of(empty))
    names = [n for n in old.leaves if not _is_stored(table, stored, n) or not _is_same_declaration(old, base, n)]
    if len(names) == len(old.leaves):
        return False
    with stored.path.open("rb") as first, TemporaryFile(dir=path.parent) as second, path.open("wb") as out:
        new = _write_groups(table.select(names), rows, second, compression) if names else old
        _check(old, new, ())
        out.write(MAGIC)
        groups = _splice_groups((old, new), (first, second, out), names)
        _finish({**base.tree, _RECORDS: (I64, sum(rows)), _ROW_GROUPS: (LIST, (STRUCT, groups))}, out)
    return state_of(stored.path) == stored.state


def _is_stored(table: pa.Table, stored: Stored, name: str) -> bool:
    known = name in stored.table.column_names
    return known and same_memory(table.column(name), stored.table.column(name))


def _write_groups(table: pa.Table, rows: Sequence[int], file: IO[bytes], compression: str) -> _Footer:
    from pyarrow import parquet

    with parquet.ParquetWriter(file, table.schema, compression=compression) as writer:
        start = 0
        for number in rows:
            writer.write_table(table.slice(start, number), row_group_size=max(number, 1))
            start += number
    return _as_footer(footer_of(file))


_COPY = 1 << 19  # fits the cache: larger pieces would be copied through memory

# Field numbers of parquet.thrift.
_SCHEMA, _RECORDS, _ROW_GROUPS = 2, 3, 4  # of FileMetaData
_ENCRYPTED_FILE, _SIGNED_KEY = 8, 9
_COLUMNS, _TOTAL_BYTES, _ROWS, _SORTING, _GROUP_OFFSET, _COMPRESSED_BYTES = 1, 2, 3, 4, 5, 6  # of RowGroup
_FILE_PATH, _CHUNK_OFFSET, _CHUNK = 1, 2, 3  # of ColumnChunk
_PATH, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 10, 11  # of ColumnMetaData
_KEY_VALUES, _BLOOM, _BLOOM_LENGTH = 8, 14, 15
_HOW_STORED = (1, 2, 4, 5, 6)  # type, encodings, codec, values, size before compression
_DECLARED = (1, 2, 3, 5, 7, 8)  # of SchemaElement: type, length, repetition, children, scale, precision
_ANNOTATIONS = (6, 10)  # converted type, logical type


class CannotSplice(Exception):  # noqa: N818  (not an error: the caller then decodes and encodes)
    """The chunks of these files cannot be combined."""


@dataclass(frozen=True, eq=False)
class _Footer:
    tree: Struct
    groups: list[Struct]
    leaves: dict[str, Struct]  # the declaration of each column


def splice(source: Path, replaced: Path, target: Path, names: Collection[str]) -> None:
    """Write to ``target`` the columns ``names`` of ``replaced`` and all others of ``source``.

    Raises ``CannotSplice`` if a column is declared differently in the two files, or if the source uses features that
    are not copied (encryption, chunks in other files). ``target`` may then contain anything.
    """
    old, new = read_footer(source), read_footer(replaced)
    _check(old, new, names)
    with source.open("rb") as first, replaced.open("rb") as second, target.open("wb") as out:
        out.write(MAGIC)
        groups = _splice_groups((old, new), (first, second, out), names)
        _finish({**old.tree, _ROW_GROUPS: (LIST, (old.tree[_ROW_GROUPS][1][0], groups))}, out)


def same_chunks(first: Path, second: Path, names: Collection[str]) -> bool:
    """Return whether the chunks of these columns are the same bytes in both files."""
    return not other_chunks(first, second, names)


def other_chunks(first: Path, second: Path, names: Collection[str]) -> list[str]:
    """Return the columns whose chunks differ between both files, in bytes or in number."""
    one, two = read_footer(first), read_footer(second)
    if len(one.groups) != len(two.groups):
        return list(names)
    other: set[str] = set()
    with first.open("rb") as a, second.open("rb") as b:
        for group, counterpart in zip(one.groups, two.groups, strict=True):
            if group[_ROWS] != counterpart[_ROWS]:
                return list(names)
            mine, theirs = _chunks(group), _chunks(counterpart)
            for name in names:
                if name not in other and not _same_bytes(a, b, mine[name], theirs.get(name)):
                    other.add(name)
    return [name for name in names if name in other]


def read_footer(path: Path) -> _Footer:
    """Parse the footer of a Parquet file; raise ``ValueError`` if there is none."""
    return _as_footer(footer_bytes(path))


def _as_footer(content: bytes) -> _Footer:
    tree = parse(content)
    groups = tree[_ROW_GROUPS][1][1] if _ROW_GROUPS in tree else []
    elements = tree[_SCHEMA][1][1]
    return _Footer(tree, groups, {element[4][1].decode(): element for element in elements[1:]})


def _check(old: _Footer, new: _Footer, names: Collection[str]) -> None:
    if _ENCRYPTED_FILE in old.tree or _SIGNED_KEY in old.tree:
        raise CannotSplice("the source is encrypted")
    if not all(_is_same_declaration(old, new, name) for name in names):
        raise CannotSplice("a column is declared differently")
    if [group[_ROWS] for group in old.groups] != [group[_ROWS] for group in new.groups]:
        raise CannotSplice("the row groups differ")
    if any(_FILE_PATH in chunk or _CHUNK not in chunk for group in old.groups for chunk in group[_COLUMNS][1][1]):
        raise CannotSplice("chunks lie in other files or are encrypted")


def _is_same_declaration(old: _Footer, new: _Footer, name: str) -> bool:
    """Return whether a column is declared alike in two files; writers use old annotations, new ones, or both."""
    if name not in old.leaves:
        return False
    one, other = old.leaves[name], new.leaves[name]
    if any(one.get(number) != other.get(number) for number in _DECLARED):
        return False
    shared = [number for number in _ANNOTATIONS if number in one and number in other]
    bare = not any(number in one or number in other for number in _ANNOTATIONS)
    return bare or (bool(shared) and all(one[number] == other[number] for number in shared))


_Files: TypeAlias = tuple[IO[bytes], IO[bytes], IO[bytes]]
"""The source, the file with the replaced columns, and the one that is written."""


def _splice_groups(footers: tuple[_Footer, _Footer], files: _Files, names: Collection[str]) -> list[Struct]:
    old, new = footers
    pairs = zip(old.groups, new.groups, strict=True)
    return [_splice_group(group, other, files, names) for group, other in pairs]


def _finish(tree: Struct, out: IO[bytes]) -> None:
    footer = serialise(tree)
    out.write(footer + len(footer).to_bytes(4, "little") + MAGIC)


def _splice_group(group: Struct, other: Struct, files: _Files, names: Collection[str]) -> Struct:
    first, second, out = files
    kind, chunks = group[_COLUMNS][1]
    replacing = _chunks(other)
    started = out.tell()
    placed = []
    for chunk in chunks:
        name = _column_name(chunk)
        source, taken = (second, replacing[name]) if name in names else (first, chunk)
        placed.append(_copy_chunk(source, taken, out))
    uncompressed = sum(chunk[_CHUNK][1][_UNCOMPRESSED][1] for chunk in placed)
    result = {number: value for number, value in group.items() if number not in (_SORTING, _GROUP_OFFSET)}
    result[_COLUMNS] = (LIST, (kind, placed))
    result[_TOTAL_BYTES] = (I64, uncompressed)
    if _GROUP_OFFSET in group:
        result[_GROUP_OFFSET] = (I64, started)
    if _COMPRESSED_BYTES in group:
        result[_COMPRESSED_BYTES] = (I64, out.tell() - started)
    return result


def _copy_chunk(source: IO[bytes], chunk: Struct, out: IO[bytes]) -> Struct:
    """Copy a chunk to the end of ``out``; return its footer entry with the new position."""
    start, length = _extent(chunk)
    at = out.tell()
    copied = 0
    for data in _iter_runs(source, start, length):
        out.write(data)
        copied += len(data)
    if copied < length:
        raise ValueError("a column chunk is cut short")
    meta = {n: v for n, v in chunk[_CHUNK][1].items() if n not in (_KEY_VALUES, _BLOOM, _BLOOM_LENGTH)}
    for number in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
        if number in meta and meta[number][1] > 0:
            meta[number] = (I64, meta[number][1] - start + at)
    # Readers no longer use the offset of the chunk, which writers have filled in various ways.
    return {_CHUNK_OFFSET: (I64, 0), _CHUNK: (chunk[_CHUNK][0], meta)}


def _chunks(group: Struct) -> dict[str, Struct]:
    return {_column_name(chunk): chunk for chunk in group[_COLUMNS][1][1]}


def _column_name(chunk: Struct) -> str:
    kind, path = chunk[_CHUNK][1][_PATH][1]
    if kind != BINARY or len(path) != 1:
        raise CannotSplice("a column is nested")
    return str(path[0].decode())


def _extent(chunk: Struct) -> tuple[int, int]:
    """Return the start (dictionary before data) and length of a chunk."""
    meta: Struct = chunk[_CHUNK][1]
    offsets = [meta[n][1] for n in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE) if n in meta and meta[n][1] > 0]
    return min(offsets), int(meta[_COMPRESSED][1])


def _layout(chunk: Struct) -> dict[int, Any]:
    """Return how the bytes of a chunk are to be read."""
    meta, (start, _) = chunk[_CHUNK][1], _extent(chunk)
    places = {
        n: meta[n][1] - start for n in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE) if n in meta and meta[n][1] > 0
    }
    return {**{number: meta.get(number) for number in _HOW_STORED}, **places}


def _same_bytes(first: IO[bytes], second: IO[bytes], mine: Struct, theirs: Any) -> bool:
    if theirs is None or _layout(mine) != _layout(theirs):
        return False
    (at, length), (there, other) = _extent(mine), _extent(theirs)
    if length != other:
        return False
    return all(a == b for a, b in zip_longest(_iter_runs(first, at, length), _iter_runs(second, there, length)))


def _iter_runs(file: IO[bytes], at: int, length: int) -> Iterator[bytearray]:
    """Yield the bytes of a chunk in pieces, as far as the file goes; the buffer is reused."""
    file.seek(at)
    room = bytearray(min(_COPY, length))
    while length:
        found = file.readinto(memoryview(room)[: min(len(room), length)])  # type: ignore[attr-defined]
        if not found:
            return
        length -= found
        yield room if found == len(room) else room[:found]
