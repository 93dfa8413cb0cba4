"""Read delimited text (CSV and similar) into a table, every value as the text in the file.

An empty field without quotes is missing; a quoted empty field is an empty text. Blank lines are skipped, except in a
file of one column, where a blank line is a missing value. Where the caller states a decimal comma, numbers get a
decimal point: everything that calculates expects one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, SpecError
from safeswap.files.dialect import Layout, find_layout
from safeswap.files.encoding import Dialect, Text, find_fault, lines_of_records, open_text
from safeswap.files.sources import Limits

_BLOCK = 4 * 2**20
_LARGEST_BLOCK = 2**31 - 1
_COMMA_NUMBER = r"^[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?$"
_REPEATING = 0.6  # a column counts as categories when at most this share of the sampled values is new


@dataclass(frozen=True, kw_only=True)
class Delimited:
    """A delimited file that was read: its table, and the means to locate a record in the file."""

    table: pa.Table
    text: Text
    layout: Layout

    def lines(self, positions: list[int]) -> list[int]:
        """Return the line numbers on which these records begin."""
        return lines_of_records(self.text, self.layout.dialect, positions, columns=len(self.layout.names))


def read_delimited(
    path: Path,
    *,
    limits: Limits,
    delimiter: str | None = None,
    encoding: str | None = None,
    quote: str | None = None,
    decimal: str | None = None,
    block_bytes: int = _BLOCK,
) -> Delimited:
    """Read a delimited file, plain or gzip.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.csv"
    ...     _ = path.write_text('id,Sex\\n007,\\n008,""\\n')
    ...     read_delimited(path, limits=Limits()).table.to_pydict()
    {'id': ['007', '008'], 'Sex': [None, '']}
    """
    if decimal not in (None, ".", ","):
        raise SpecError("the decimal mark must be ',' or '.'", code="bad-decimal", hint="for example decimal=','")
    text = open_text(path, encoding=encoding, limits=limits)
    layout = find_layout(text, delimiter=delimiter, quote=quote, limits=limits)
    if not _has_records(text, layout):
        raise InputError(
            f"{path.name!r} has a header but no records", code="no-records", hint="add records", file=str(path)
        )
    quoting = quoting_of(text, layout.dialect)
    if quoting is Quoting.UNUSUAL:
        find_fault(text, layout.dialect, columns=len(layout.names))
    table = _parse(text, layout, block_bytes, quoting)
    limits.check(file=str(path), records=table.num_rows)
    return Delimited(table=_with_points(table) if decimal == "," else table, text=text, layout=layout)


def has_decimal_commas(texts: pa.Array) -> bool:
    """Return whether some texts are numbers with a decimal comma, and no other text has a comma.

    >>> (
    ...     has_decimal_commas(pa.array(["1,5E3", "-,25", "7", "none", None])),
    ...     has_decimal_commas(pa.array(["1,5", "1,5,7"])),
    ... )
    (True, False)
    """
    with_comma = pc.match_substring(texts, ",")
    found = texts.filter(with_comma)
    return len(found) > 0 and bool(pc.all(pc.match_substring_regex(found, _COMMA_NUMBER)).as_py())


def convert_codes(codes: Sequence[str]) -> tuple[str, ...]:
    """Return the codes, and those that are numbers with a decimal comma as they are after reading.

    >>> convert_codes(["99,9", "none"])
    ('99,9', 'none', '99.9')
    """
    converted = (code.replace(",", ".") for code in codes if re.fullmatch(_COMMA_NUMBER, code))
    return tuple(dict.fromkeys((*codes, *converted)))


def _with_points(table: pa.Table) -> pa.Table:
    """Write decimal points for decimal commas, in the columns in which every comma is one."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        parts = [c.dictionary if pa.types.is_dictionary(column.type) else c for c in column.chunks]
        used = [part for part in parts if bool(pc.any(pc.match_substring(part, ",")).as_py())]
        if used and all(has_decimal_commas(part) for part in used):
            table = table.set_column(place, name, _replace_commas(column))
    return table


def _replace_commas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return pc.replace_substring(column, ",", ".")
    # Coded again: "1,5" and "1.5" become one level.
    levels = [pc.replace_substring(chunk.dictionary, ",", ".").take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(levels, pa.string()).dictionary_encode()


class Quoting(Enum):
    """The style of quoting in a file."""

    ABSENT = "absent"
    PLAIN = "plain"
    UNUSUAL = "unusual"


def quoting_of(text: Text, dialect: Dialect) -> Quoting:
    """Classify the quoting: plain if every quote opens a field, closes one, or is doubled inside a quoted field.

    The fast parser silently appends text after a closing quote to the field. So a file whose quoting is not plain is
    first read by the strict reader, which refuses that and allows quotes within unquoted fields.

    >>> quoting_of(Text(file=Path("toy.csv"), content=b'a,b\\n"x, y",z\\n'), Dialect())
    <Quoting.PLAIN: 'plain'>
    >>> quoting_of(Text(file=Path("toy.csv"), content=b'a,b\\n"x"y,z\\n'), Dialect())
    <Quoting.UNUSUAL: 'unusual'>
    """
    # Most files have no quote at all, which is seen at once.
    if not dialect.quote or not any(dialect.quote.encode() in chunk for chunk in text.chunks()):
        return Quoting.ABSENT
    quote = ord(dialect.quote)
    ends = np.zeros(256, dtype=np.bool_)
    ends[[ord(dialect.delimiter), ord("\n"), ord("\r"), quote]] = True
    number = 0
    for window in _iter_windows(text):
        at = np.flatnonzero(window[1:-1] == quote) + 1
        # Quotes numbered from 0: even ones open (or reopen after a doubled quote), odd ones close.
        opening = (np.arange(at.size) + number) % 2 == 0
        if not ends[window[np.where(opening, at - 1, at + 1)]].all():
            return Quoting.UNUSUAL
        number += at.size
    return Quoting.UNUSUAL if number % 2 else Quoting.PLAIN


def _iter_windows(text: Text) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Yield the bytes in chunks, each with one neighbour on either side; the file's ends count as line ends."""
    last, held = b"\n", b""
    for chunk in text.chunks():
        if held:
            yield np.frombuffer(last + held + chunk[:1], dtype=np.uint8)
            last = held[-1:]
        held = chunk
    if held:
        yield np.frombuffer(last + held + b"\n", dtype=np.uint8)


def _has_records(text: Text, layout: Layout) -> bool:
    with text.open() as stream:
        stream.seek(layout.header_bytes, os.SEEK_CUR)
        while chunk := stream.read(2**16):
            if len(layout.names) == 1 or chunk.strip(b"\r\n"):
                return True
    return False


def _parse(text: Text, layout: Layout, block_bytes: int, quoting: Quoting) -> pa.Table:
    """Parse the table; if the parser fails, raise an error that locates the fault."""
    while (table := _try_parse(text, layout, block_bytes, quoting)) is None:
        find_fault(text, layout.dialect, columns=len(layout.names))
        if block_bytes == _LARGEST_BLOCK:
            raise InputError(
                f"{text.file.name!r} cannot be parsed; a record may exceed two gigabytes",
                code="unparsable-file",
                hint="check the quoting of the file",
                file=str(text.file),
            )
        block_bytes = min(block_bytes * 16, _LARGEST_BLOCK)  # no fault found: a record exceeds a block
    return table


def _try_parse(text: Text, layout: Layout, block_bytes: int, quoting: Quoting) -> pa.Table | None:
    from pyarrow import csv

    names = [str(i) for i in range(len(layout.names))]  # the file's own names are not given to the parser
    alone = len(names) == 1
    try:
        table = csv.read_csv(
            _from_header_end(text, layout),
            read_options=csv.ReadOptions(column_names=names, block_size=block_bytes),
            parse_options=csv.ParseOptions(
                delimiter=layout.dialect.delimiter,
                quote_char=layout.dialect.quote or False,
                newlines_in_values=quoting is not Quoting.ABSENT,
                ignore_empty_lines=not alone,
            ),
            convert_options=csv.ConvertOptions(
                check_utf8=False,  # already checked, with positions
                column_types=dict(zip(names, _column_types(layout), strict=True)),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None  # the parser's message quotes the file, so it is not passed on
    if not alone and len(table) and _ends_with(text, layout.dialect.delimiter):
        table = _last_value_missing(table)
    return (table.slice(1) if alone else table).rename_columns(list(layout.names))


def _ends_with(text: Text, delimiter: str) -> bool:
    """Return whether the file ends with the delimiter, without a line end."""
    with text.open() as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() == delimiter.encode()


def _last_value_missing(table: pa.Table) -> pa.Table:
    """Make the last value missing: after a quoted value, the parser takes the empty one for an empty text."""
    last = table.column(table.num_columns - 1)
    whole = pa.chunked_array([*last.slice(0, len(last) - 1).chunks, pa.nulls(1, last.type)], last.type)
    if pa.types.is_dictionary(whole.type):  # or the empty text would remain a level
        whole = whole.cast(whole.type.value_type).dictionary_encode()
    return table.set_column(table.num_columns - 1, table.column_names[-1], whole)


def _from_header_end(text: Text, layout: Layout) -> pa.NativeFile:
    """Return the bytes from the line end of the header.

    The line end is included: without it a first value that begins with U+FEFF would lose it as a byte order mark. The
    parser skips the resulting blank line, or (one column) returns it as a record that the caller removes.
    """
    skip = layout.header_bytes - 1
    if text.content is not None:
        return pa.BufferReader(pa.py_buffer(text.content).slice(skip))
    stream = pa.OSFile(str(text.file))
    stream.seek(text.start + skip)
    return stream


def _column_types(layout: Layout) -> list[pa.DataType]:
    """Choose dictionaries for columns whose values repeat at the beginning of the file, plain text for the others."""
    sampled = len(layout.sample)
    columns = zip(*(record for record in layout.sample if len(record) == len(layout.names)), strict=True)
    distinct = [len(set(values)) for values in columns] or [sampled] * len(layout.names)
    categories, plain = pa.dictionary(pa.int32(), pa.string()), pa.string()
    return [categories if number <= _REPEATING * sampled else plain for number in distinct]
