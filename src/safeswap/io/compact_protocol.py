"""Thrift's compact protocol, as far as a Parquet footer needs it: bytes to a tree of values and back.

A struct is a dict from field number to (type, value), a list is a pair of element type and values. What is not
understood is kept as it is, so that a footer with fields younger than this module survives.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

_DEEPEST = 64


def parse(data: bytes) -> Struct:
    """The struct that these bytes hold; ``ValueError`` where they hold none.

    >>> tree = parse(bytes([0x15, 0x02, 0x18, 0x01, 0x61, 0x00]))
    >>> tree
    {1: (5, 1), 2: (8, b'a')}
    >>> serialised(tree) == bytes([0x15, 0x02, 0x18, 0x01, 0x61, 0x00])
    True
    """
    return parse_first(data)[0]


def parse_first(data: bytes) -> tuple[Struct, int]:
    """The struct at the beginning of some bytes, and how many of them it takes.

    >>> parse_first(bytes([0x15, 0x02, 0x00, 0xFF]))
    ({1: (5, 1)}, 3)
    """
    reader = _Reader(data)
    try:
        return reader.struct(0), reader.at
    except IndexError:
        raise ValueError("the structure is cut short") from None


def serialised(tree: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, tree)
    return bytes(out)


class _Reader:
    """A place in some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

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
            # A bool that is a field of its own stands in the type and takes no further byte.
            fields[number] = (kind, None if kind in (TRUE, FALSE) else self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:  # noqa: PLR0911  (one line per type)
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == DOUBLE:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, SET):
            return self.elements(depth)
        if kind == MAP:
            return self.pairs(depth)
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ValueError("a type is unknown")

    def elements(self, depth: int) -> tuple[int, list[Any]]:
        head = self.byte()
        number = head >> 4 if head >> 4 < 15 else self.varint()
        if number > len(self.data) - self.at:  # each takes a byte at least: no list is longer than what is left
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
