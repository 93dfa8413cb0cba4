"""Replace some columns of a Parquet file and copy the others byte for byte.

A Parquet file is a sequence of column chunks and a footer with their positions. A chunk can be copied without decoding
if the footer gets its new position. That is all that happens here: the chunks of the replaced columns come from another
Parquet file with the same row groups, all others from the source.

Data between chunks (page indexes, Bloom filters) is dropped, and so is the statement that row groups are sorted: they
may no longer be.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

# Thrift's compact protocol, as far as a Parquet footer needs it. A struct is a dict from field number to (type, value),
# a list is a pair of element type and values. Unknown fields are kept, so that newer footers survive.

Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

_DEEPEST = 64


def parse(data: bytes) -> Struct:
    """Parse a struct from bytes; raise ``ValueError`` if they are not one.

    >>> tree = parse(bytes([0x15, 0x02, 0x18, 0x01, 0x61, 0x00]))
    >>> tree
    {1: (5, 1), 2: (8, b'a')}
    >>> serialise(tree) == bytes([0x15, 0x02, 0x18, 0x01, 0x61, 0x00])
    True
    """
    return parse_first(data)[0]


def parse_first(data: bytes) -> tuple[Struct, int]:
    """Parse the struct at the beginning of some bytes; return it and its length.

    >>> parse_first(bytes([0x15, 0x02, 0x00, 0xFF]))
    ({1: (5, 1)}, 3)
    """
    reader = _Reader(data)
    try:
        return reader.struct(0), reader.at
    except IndexError:
        raise ValueError("the structure is cut short") from None


def serialise(tree: Struct) -> bytes:
    """Serialise a struct."""
    out = bytearray()
    _write_struct(out, tree)
    return bytes(out)


class _Reader:
    """A cursor over bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift > 63:
                raise ValueError("a number is too long")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, number: int) -> bytes:
        if number > len(self.data) - self.at:
            raise ValueError("the structure is cut short")
        self.at += number
        return self.data[self.at - number : self.at]

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("the structure is too deep")
        fields: Struct = {}
        number = 0
        while (head := self.byte()) != 0:
            kind, delta = head & 0x0F, head >> 4
            number = number + delta if delta else self.zigzag()
            # A boolean field is encoded in its type and takes no further byte.
            fields[number] = (kind, None if kind in (TRUE, FALSE) else self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:  # noqa: PLR0911  (one line per type)
        if I16 <= kind <= I64:  # the most frequent first
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self.elements(depth)
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind == DOUBLE:
            return self.take(8)
        if kind == MAP:
            return self.pairs(depth)
        raise ValueError("a type is unknown")

    def elements(self, depth: int) -> tuple[int, list[Any]]:
        head = self.byte()
        number = head >> 4 if head >> 4 < 15 else self.varint()
        if number > len(self.data) - self.at:  # each takes at least a byte: no list is longer than the rest
            raise ValueError("a list is longer than the structure")
        return head & 0x0F, [self.value(head & 0x0F, depth + 1) for _ in range(number)]

    def pairs(self, depth: int) -> tuple[int, list[tuple[Any, Any]]]:
        number = self.varint()
        if not number:
            return 0, []
        if number > len(self.data) - self.at:
            raise ValueError("a map is longer than the structure")
        kinds = self.byte()
        read = [(self.value(kinds >> 4, depth + 1), self.value(kinds & 0x0F, depth + 1)) for _ in range(number)]
        return kinds, read


def _write_struct(out: bytearray, tree: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(tree.items()):
        delta = number - last
        if 0 < delta < 16:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE, BYTE):
        out.append(value)
    elif kind in (I16, I32, I64):
        _write_zigzag(out, value)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind in (LIST, SET):
        element, values = value
        out.append((min(len(values), 15) << 4) | element)
        if len(values) >= 15:
            _write_varint(out, len(values))
        for each in values:
            _write_value(out, element, each)
    elif kind == MAP:
        kinds, pairs = value
        _write_varint(out, len(pairs))
        if pairs:
            out.append(kinds)
        for key, each in pairs:
            _write_value(out, kinds >> 4, key)
            _write_value(out, kinds & 0x0F, each)
    else:
        _write_struct(out, value)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else ((-value - 1) << 1) | 1)


_MAGIC = b"PAR1"
_MOST_FOOTER = 1 << 28
_COPY = 1 << 19  # fits the cache: larger pieces would be copied through memory

# Field numbers of parquet.thrift.
_SCHEMA, _ROW_GROUPS = 2, 4  # of FileMetaData
_ENCRYPTED_FILE, _SIGNED_KEY = 8, 9
_COLUMNS, _TOTAL_BYTES, _ROWS, _SORTING, _GROUP_OFFSET, _COMPRESSED_BYTES = 1, 2, 3, 4, 5, 6  # of RowGroup
_FILE_PATH, _CHUNK_OFFSET, _CHUNK = 1, 2, 3  # of ColumnChunk
_PATH, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 10, 11  # of ColumnMetaData
_BLOOM, _BLOOM_LENGTH = 14, 15
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
    groups = []
    with source.open("rb") as first, replaced.open("rb") as second, target.open("wb") as out:
        out.write(_MAGIC)
        for group, other in zip(old.groups, new.groups, strict=True):
            groups.append(_splice_group(group, other, (first, second, out), names))
        tree = {**old.tree, _ROW_GROUPS: (LIST, (old.tree[_ROW_GROUPS][1][0], groups))}
        footer = serialise(tree)
        out.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)


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
            mine, theirs = _chunks(group), _chunks(counterpart)
            for name in names:
                if name not in other and not _same_bytes(a, b, mine[name], theirs.get(name)):
                    other.add(name)
    return [name for name in names if name in other]


def read_footer(path: Path) -> _Footer:
    """Parse the footer of a Parquet file; raise ``ValueError`` if there is none."""
    tree = parse(footer_bytes(path))
    groups = tree[_ROW_GROUPS][1][1] if _ROW_GROUPS in tree else []
    elements = tree[_SCHEMA][1][1]
    return _Footer(tree, groups, {element[4][1].decode(): element for element in elements[1:]})


def footer_bytes(path: Path) -> bytes:
    """Return the raw footer."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if size < 12 or tail[4:] != _MAGIC or length > min(size - 12, _MOST_FOOTER):
            raise ValueError("not a Parquet file, or one with an encrypted footer")
        file.seek(size - 8 - length)
        return file.read(length)


def _check(old: _Footer, new: _Footer, names: Collection[str]) -> None:
    if _ENCRYPTED_FILE in old.tree or _SIGNED_KEY in old.tree:
        raise CannotSplice("the source is encrypted")
    if not all(name in old.leaves and _is_same_declaration(old.leaves[name], new.leaves[name]) for name in names):
        raise CannotSplice("a column is declared differently")
    if [group[_ROWS] for group in old.groups] != [group[_ROWS] for group in new.groups]:
        raise CannotSplice("the row groups differ")
    if any(_FILE_PATH in chunk or _CHUNK not in chunk for group in old.groups for chunk in group[_COLUMNS][1][1]):
        raise CannotSplice("chunks lie in other files or are encrypted")


def _is_same_declaration(one: Struct, other: Struct) -> bool:
    """Return whether two declarations of a column are equivalent; writers use old annotations, new ones, or both."""
    if any(one.get(number) != other.get(number) for number in _DECLARED):
        return False
    shared = [number for number in _ANNOTATIONS if number in one and number in other]
    bare = not any(number in one or number in other for number in _ANNOTATIONS)
    return bare or (bool(shared) and all(one[number] == other[number] for number in shared))


def _splice_group(
    group: Struct, other: Struct, files: tuple[BinaryIO, BinaryIO, BinaryIO], names: Collection[str]
) -> Struct:
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


def _copy_chunk(source: BinaryIO, chunk: Struct, out: BinaryIO) -> Struct:
    """Copy a chunk to the end of ``out``; return its footer entry with the new position."""
    start, length = _extent(chunk)
    at = out.tell()
    copied = 0
    for data in _iter_runs(source, start, length):
        out.write(data)
        copied += len(data)
    if copied < length:
        raise ValueError("a column chunk is cut short")
    meta = {n: v for n, v in chunk[_CHUNK][1].items() if n not in (_BLOOM, _BLOOM_LENGTH)}
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


def _same_bytes(first: BinaryIO, second: BinaryIO, mine: Struct, theirs: Any) -> bool:
    if theirs is None:
        return False
    (at, length), (there, other) = _extent(mine), _extent(theirs)
    if length != other:
        return False
    return all(a == b for a, b in zip_longest(_iter_runs(first, at, length), _iter_runs(second, there, length)))


def _iter_runs(file: BinaryIO, at: int, length: int) -> Iterator[bytearray]:
    """Yield the bytes of a chunk in pieces, as far as the file goes; the buffer is reused."""
    file.seek(at)
    room = bytearray(min(_COPY, length))
    while length:
        found = file.readinto(memoryview(room)[: min(len(room), length)])  # type: ignore[attr-defined]
        if not found:
            return
        length -= found
        yield room if found == len(room) else room[:found]
