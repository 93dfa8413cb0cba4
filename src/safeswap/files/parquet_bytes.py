"""The bytes of a Parquet file: its footer and page headers, in Thrift's compact protocol; a bound on the decoded size.

The bound is found before anything is decoded. A few kilobytes can expand to terabytes: a dictionary with one long text
and a run that refers to it a million times, a page of zeros that compresses a thousandfold, texts that each repeat the
one before. The footer can be untrue, so the page headers are read as well, and the dictionary itself only if they leave
room for doubt.

Claim: a column of texts takes at most, besides its pages, (values that refer to the dictionary) × (longest entry). The
longest entry is at most the dictionary page without the lengths of its entries, four bytes each.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa

from safeswap.files.formats import Limits

MAGIC = b"PAR1"
_MOST_FOOTER = 1 << 28

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


def footer_bytes(path: Path) -> bytes:
    """Return the raw footer."""
    with path.open("rb") as file:
        return footer_of(file)


def footer_of(file: IO[bytes]) -> bytes:
    """Return the raw footer of an open file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] != MAGIC or length > min(size - 12, _MOST_FOOTER):
        raise ValueError("not a Parquet file, or one with an encrypted footer")
    file.seek(size - 8 - length)
    return file.read(length)


_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_DICTIONARY_CODES = frozenset({2, 8})  # PLAIN_DICTIONARY, RLE_DICTIONARY
_FRONT_CODED = 7  # DELTA_BYTE_ARRAY: each text shares a prefix with the one before
WIDTH = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_OFFSET = 4  # bytes per text offset in Arrow
_TEXTS = "BYTE_ARRAY"
_HEADER_SIZES = (2**9, 2**14, 2**20)  # bytes to read for one header; the bounds in it may be long
_MOST_A_BYTE = 1000  # decoded bytes per byte of the file, above the limit, before a file counts as a bomb
_BATCH_BYTES = 2**26


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page as stated in its header: ``entries`` of a dictionary page, ``values`` of a data page."""

    start: int
    stored: int
    size: int
    entries: int = 0
    values: int = 0
    encoding: int = -1


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A column of one row group: its name, physical type, width of a value, and pages."""

    name: str
    kind: str
    width: int
    codec: str
    pages: tuple[Page, ...]

    @property
    def size(self) -> int:
        """The decompressed bytes of all pages."""
        return sum(page.size for page in self.pages)

    @property
    def values(self) -> int:
        """The number of values in all pages, missing included."""
        return sum(page.values for page in self.pages)

    @property
    def referring(self) -> int:
        """The number of values that refer to the dictionary."""
        return sum(page.values for page in self.pages if page.encoding in _DICTIONARY_CODES)

    @property
    def dictionary(self) -> Page | None:
        """The dictionary page."""
        return next((page for page in self.pages if page.entries), None)

    @property
    def bare(self) -> int:
        """The most bytes in memory, dictionary texts counted once."""
        return self.width * self.values + (self.size if self.kind == _TEXTS else self.values // 8 + 64)


def check_pages(
    path: Path, footer: Any, *, limits: Limits, dictionaries: frozenset[str], in_memory: bool = True
) -> None:
    """Refuse a file that would take more than the limits allow.

    ``dictionaries`` are the columns that stay dictionaries in memory. Expanded later they take the size of their texts,
    which may exceed the limit in proportion to the file size. The same holds for a file that is read in parts.
    """
    chunks, texts = measure(path, footer, limits=limits)
    bare = sum(chunk.bare for chunk in chunks)
    dense = sum(more for chunk, more in zip(chunks, texts, strict=True) if chunk.name not in dictionaries)
    if in_memory:
        limits.check(file=str(path), decoded_bytes=bare + dense)
    if bare + sum(texts) > _MOST_A_BYTE * path.stat().st_size:
        limits.check(file=str(path), decoded_bytes=bare + sum(texts))
    if in_memory:
        _count_front_coded(path, chunks, limits)


def measure(path: Path, footer: Any, *, limits: Limits) -> tuple[list[Chunk], list[int]]:
    """Return the columns of each row group, and the most bytes that each takes for repeated dictionary texts."""
    with path.open("rb") as file:
        chunks = list(_chunks(file, footer))
        return chunks, [_text_bytes(file, chunk, limits) for chunk in chunks]


def _chunks(file: IO[bytes], footer: Any) -> Iterator[Chunk]:
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for position in range(footer.num_columns):
            stated, column = row_group.column(position), footer.schema.column(position)
            width = column.length if stated.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
            pages = tuple(_pages(file, stated))
            if sum(page.size for page in pages) > stated.total_uncompressed_size:
                raise ValueError("the pages are larger than the footer says")
            yield Chunk(
                name=stated.path_in_schema,
                kind=stated.physical_type,
                width=width or WIDTH.get(stated.physical_type, _OFFSET),
                codec=stated.compression,
                pages=pages,
            )


def _pages(file: IO[bytes], stated: Any) -> Iterator[Page]:
    at, values = stated.data_page_offset, 0
    if stated.has_dictionary_page and stated.dictionary_page_offset:
        at = min(at, stated.dictionary_page_offset)
    end = at + stated.total_compressed_size
    while at < end and values < stated.num_values:
        page = _read_page(file, at)
        values += page.values
        at = page.start + page.stored
        yield page
    if values > stated.num_values:
        raise ValueError("the pages hold more values than the footer says")


def _read_page(file: IO[bytes], at: int) -> Page:
    header, length = _read_header(file, at)
    size, stored = _get_number(header, 2), _get_number(header, 3)
    if size < 0 or stored < 0:
        raise ValueError("a page has a negative size")
    place = {"start": at + length, "stored": stored, "size": size}
    kind = _get_number(header, 1)
    if kind == _DICTIONARY:
        return Page(**place, entries=_get_number(_get_struct(header, 7), 1))
    if kind in {_DATA, _DATA_2}:
        facts = _get_struct(header, 5 if kind == _DATA else 8)
        return Page(**place, values=_get_number(facts, 1), encoding=_get_number(facts, 2 if kind == _DATA else 4))
    return Page(**place)


def _read_header(file: IO[bytes], at: int) -> tuple[Struct, int]:
    for size in _HEADER_SIZES:
        file.seek(at)
        content = file.read(size)
        try:
            return parse_first(content)
        except ValueError:
            if len(content) < size:
                break
    raise ValueError("a page has no header")


def _get_number(tree: Struct, field: int) -> int:
    value = tree.get(field, (0, None))[1]
    if not isinstance(value, int):
        raise ValueError("a number is missing from the header of a page")
    return value


def _get_struct(tree: Struct, field: int) -> Struct:
    value = tree.get(field, (0, None))[1]
    if not isinstance(value, dict):
        raise ValueError("a part is missing from the header of a page")
    return value


def _text_bytes(file: IO[bytes], chunk: Chunk, limits: Limits) -> int:
    """Return the most bytes that a column takes for its expanded dictionary texts."""
    page = chunk.dictionary
    if page is None or chunk.kind != _TEXTS:
        return 0
    longest = max(0, page.size - 4 * page.entries)
    if longest * chunk.referring > limits.max_decoded_bytes // _MOST_A_BYTE:
        longest = _longest(file, page, chunk.codec)
    return longest * chunk.referring


def _longest(file: IO[bytes], page: Page, codec: str) -> int:
    """Return the length of the longest entry of a dictionary."""
    file.seek(page.start)
    stored = file.read(page.stored)
    content = stored if codec == "UNCOMPRESSED" else _decompress(stored, page.size, codec)
    if _are_alike(content, page.entries):
        return len(content) // page.entries - 4
    at = longest = 0
    for _ in range(page.entries):
        if at + 4 > len(content):
            raise ValueError("a dictionary is cut short")
        (length,) = struct.unpack_from("<I", content, at)
        longest, at = max(longest, length), at + 4 + length
    return longest


def _are_alike(content: bytes, entries: int) -> bool:
    """Return whether all entries of a dictionary are equally long, as those of an identifier are: seen at once."""
    width, rest = divmod(len(content), entries)
    if rest or width < 4:
        return False
    lengths = np.frombuffer(content, np.uint8).reshape(entries, width)[:, :4]
    return bool((lengths == np.frombuffer((width - 4).to_bytes(4, "little"), np.uint8)).all())


def _decompress(stored: bytes, size: int, codec: str) -> bytes:
    name = {"LZ4": "lz4_raw"}.get(codec, codec.lower())
    return bytes(pa.decompress(stored, decompressed_size=size, codec=name, asbytes=True))


def _count_front_coded(path: Path, chunks: list[Chunk], limits: Limits) -> None:
    """Decode front-coded texts a few at a time, and refuse them once they exceed the limit.

    Only decoding reveals their length.
    """
    from pyarrow import parquet

    found = [(chunk.name, page) for chunk in chunks for page in chunk.pages if page.encoding == _FRONT_CODED]
    if sum(page.size * page.values for _, page in found) <= limits.max_decoded_bytes:
        return
    rows = max(1, _BATCH_BYTES // max(page.size for _, page in found))
    counted = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows, columns=sorted({name for name, _ in found}), use_threads=False):
            counted += batch.nbytes
            limits.check(file=str(path), decoded_bytes=counted)
