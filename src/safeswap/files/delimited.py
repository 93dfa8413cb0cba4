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

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.keyed import word_at
from safeswap.errors import InputError, SpecError
from safeswap.files.encoding import Dialect, Layout, Text, find_fault, find_layout, lines_of_records, open_text
from safeswap.files.formats import Limits, files_alike, state_of
from safeswap.model.columns import replace_values
from safeswap.model.microdata import share_dictionary

_BLOCK = 4 * 2**20
_LARGEST_BLOCK = 2**31 - 1
_COMMA_NUMBER = r"^[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?$"
_POINTS_OF_THOUSANDS = r"^[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+$"
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
    is_plain = quoting is Quoting.ABSENT and decimal != ","
    table = _read_alike(text, layout) if is_plain else None
    if table is None:
        table = _parse(text, layout, block_bytes, quoting)
        table = pa.table([share_dictionary(column) for column in table.columns], names=table.column_names)
    limits.check(file=str(path), records=table.num_rows)
    found = Delimited(table=_with_points(table) if decimal == "," else table, text=text, layout=layout)
    if is_plain and (files := files_alike()) is not None:
        files.append((found, state_of(text.file)))
    return found


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
        if not used or not all(has_decimal_commas(part) for part in used):
            continue
        # Beside 1,5 a value of 1.000 may be a thousand: the column stays as it is.
        if not any(bool(pc.any(pc.match_substring_regex(part, _POINTS_OF_THOUSANDS)).as_py()) for part in parts):
            table = table.set_column(place, name, _replace_commas(column))
    return table


def _replace_commas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return pc.replace_substring(column, ",", ".")
    # Coded again: "1,5" and "1.5" become one level.
    levels = [pc.replace_substring(chunk.dictionary, ",", ".").take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(levels, pa.string()).dictionary_encode()


_WINDOW = 1 << 20  # bytes of each of two files that are compared at a time: they fit the cache
_MOST_CHANGED = 0.5  # values per record: with more the file is parsed


def _read_alike(text: Text, layout: Layout) -> pa.Table | None:
    """Return the table of a file by its differences from an earlier one; None if there is none that is alike."""
    if len(layout.names) < 2 or not is_worth_compiling(text.file.stat().st_size):
        return None
    for known, state in files_alike() or ():
        if not isinstance(known, Delimited):
            continue
        is_same_layout = (known.layout.names, known.layout.dialect) == (layout.names, layout.dialect)
        if is_same_layout and state == state_of(known.text.file) and known.table.num_rows:
            differences = _Differences.between(known, text, layout)
            return None if differences is None else differences.apply(known.table)
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Differences:
    """The fields of a file that differ from another: their rows, their columns, and their texts."""

    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    columns: np.ndarray[tuple[int], np.dtype[np.int16]]
    texts: pa.Array

    @classmethod
    def between(cls, known: Delimited, text: Text, layout: Layout) -> _Differences | None:
        """Compare a file with one that was parsed; None if their lines do not correspond, or differ in too much."""
        most = int(_MOST_CHANGED * known.table.num_rows) + 1
        rows, columns, ends = np.empty(most, np.int64), np.empty(most, np.int16), np.zeros(most + 1, np.int64)
        content = np.empty(_WINDOW, np.uint8)
        at = np.zeros(5, np.int64)  # as in the kernel
        rest = [b"", b""]
        with known.text.open() as one, text.open() as other:
            for stream, start in ((one, known.layout.header_bytes), (other, layout.header_bytes)):
                stream.seek(start, os.SEEK_CUR)
            while True:
                more = [s.read(_WINDOW - len(r)) for s, r in zip((one, other), rest, strict=True)]
                if any(b"\r" in part for part in more):  # a line end for the parser
                    return None
                both = [before + part for before, part in zip(rest, more, strict=True)]
                if not any(more):
                    break
                at[:2] = 0
                sides = [np.frombuffer(side, np.uint8) for side in both]
                comma = ord(layout.dialect.delimiter)
                if not _compare_lines(sides[0], sides[1], comma, at, rows, columns, ends, content):
                    return None
                if content.size - ends[at[3]] < _WINDOW:
                    content = np.append(content, np.empty_like(content))
                rest = [side[place:] for side, place in zip(both, at[:2].tolist(), strict=True)]
        number = int(at[3])
        if any(both) or at[2] != known.table.num_rows:  # a last line without its end, or blank lines
            return None
        buffers = [None, pa.py_buffer(ends[: number + 1]), pa.py_buffer(content[: ends[number]])]
        texts = pa.Array.from_buffers(pa.large_string(), number, buffers)
        texts = pc.if_else(pa.array(ends[1 : number + 1] > ends[:number]), texts, pa.scalar(None, pa.large_string()))
        return cls(rows=rows[:number], columns=columns[:number], texts=texts)

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with the values that differ."""
        for place in np.unique(self.columns).tolist():
            which = np.flatnonzero(self.columns == place)
            values = self.texts.take(pa.array(which)).cast(pa.string())
            replace = _replace_categories if pa.types.is_dictionary(table.column(place).type) else replace_values
            column = replace(table.column(place), self.rows[which], values)
            table = table.set_column(place, table.column_names[place], column)
        return table


def _replace_categories(
    column: pa.ChunkedArray, rows: np.ndarray[tuple[int], np.dtype[np.int64]], values: pa.Array
) -> pa.ChunkedArray:
    """Return a column of categories with other values in some rows; its levels as they appear, as the parser has them.

    >>> column = pa.chunked_array([["a", "b"], ["b", None]]).dictionary_encode().unify_dictionaries()
    >>> found = _replace_categories(column, np.array([0, 3]), pa.array(["c", "a"])).chunk(0)
    >>> found.dictionary.to_pylist(), found.indices.to_pylist()
    (['c', 'b', 'a'], [0, 1, 1, 2])
    """
    new = values.dictionary_encode()
    levels = column.chunk(0).dictionary
    unknown = new.dictionary.filter(pc.invert(pc.is_in(new.dictionary, value_set=levels)))
    levels = pa.concat_arrays([levels, unknown])
    missing = len(levels)
    codes = np.concatenate([chunk.indices.fill_null(missing).to_numpy() for chunk in column.chunks])
    place = pc.index_in(new.dictionary, value_set=levels)
    codes[rows] = place.take(new.indices).fill_null(missing).to_numpy()
    first = np.full(missing + 1, len(codes), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    order = np.argsort(first[:missing], kind="stable")[: np.count_nonzero(first[:missing] < len(codes))]
    number = np.zeros(missing + 1, dtype=np.int32)
    number[order] = np.arange(len(order))
    indices = pa.array(number[codes], mask=codes == missing if first[missing] < len(codes) else None)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, levels.take(pa.array(order)))])


@njit(cache=True, nogil=True)
def _compare_lines(one, other, delimiter, at, rows, columns, ends, content):  # type: ignore[no-untyped-def]
    """Note the fields in which lines of two files differ; return False if the lines do not correspond.

    ``at`` has the places up to which whole lines were compared, in both, and the numbers of lines, of differing fields,
    and of those in the line that is incomplete, which is compared again when there is more of it.
    """
    line, line2 = at[0], at[1]  # the starts of the line
    place, place2 = line, line2
    found = at[3]
    while True:
        most = min(one.size - place, other.size - place2)
        same = 0
        while same + 8 <= most:
            if word_at(one, place + same) != word_at(other, place2 + same):
                break
            same += 8
        while same < most and one[place + same] == other[place2 + same]:
            same += 1
        lines = 0
        for k in range(place, place + same):
            lines += one[k] == 10
        if lines:
            last = place + same - 1
            while one[last] != 10:
                last -= 1
            line, line2 = last + 1, place2 + last + 1 - place
            at[2] += lines
            at[3] = found
        at[0], at[1] = line, line2
        if same == most:
            return True
        start = place + same
        while start > line and one[start - 1] != delimiter:
            start -= 1
        column = 0
        for k in range(line, start):
            column += one[k] == delimiter
        end, end2 = place + same, place2 + same
        while end < one.size and one[end] != delimiter and one[end] != 10:
            end += 1
        while end2 < other.size and other[end2] != delimiter and other[end2] != 10:
            end2 += 1
        if end == one.size or end2 == other.size:
            return True
        if one[end] != other[end2] or found == rows.size:
            return False
        rows[found], columns[found] = at[2], column
        first = place2 + start - place
        size = end2 - first
        if ends[found] + size > content.size:
            return False
        for k in range(size):
            content[ends[found] + k] = other[first + k]
        ends[found + 1] = ends[found] + size
        found += 1
        place, place2 = end, end2


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
