"""Read delimited text (CSV and similar) into a table, every value as the text in the file.

An empty field without quotes is missing; a quoted empty field is an empty text. Blank lines are skipped, except in a
file of one column, where a blank line is a missing value. Where the caller states a decimal comma, numbers get a
decimal point: everything that calculates expects one.

Delimiter, quote and header are detected by a rule that is the same on every machine. Only the beginning of the file is
examined (256 kB, more if the header is longer); the whole file must then agree, or the error names the line that does
not.

1. The quote is ``"``, unless the first line begins and ends with ``'`` and contains no ``"``: then it is ``'``.
2. The candidate delimiters are comma, semicolon, tab and bar, if they split the header. For a ``.tsv`` or ``.tab``
   file it is the tab.
3. If several split the header, those are kept under which every record at the beginning has as many fields as the
   header. One left: that is it. Several left: the file is ambiguous and the delimiter must be stated. None left: the
   one that splits the header into most fields.
4. If none splits the header, the file has one column.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, SpecError
from safeswap.files.encoding import Dialect, Text, find_fault, lines_of_records, open_text, strict_reader
from safeswap.files.formats import Limits

_CANDIDATES = (",", ";", "\t", "|")
_PREFIX = 256 * 1024
_LONGEST_HEADER = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A file's dialect, column names, header length and first records."""

    dialect: Dialect
    names: tuple[str, ...]
    header_bytes: int
    sample: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class _Beginning:
    """The first characters of a file, and whether there are more."""

    text: str
    goes_on: bool

    def lines(self) -> io.StringIO:
        return io.StringIO(self.text, newline="")

    def records(self, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
        """Yield complete, well-formed records with the number of lines read so far; blank lines are skipped."""
        reader = strict_reader(self.lines(), dialect)
        held: tuple[int, list[str]] | None = None
        try:
            for record in reader:
                if held is not None:
                    yield held
                held = (reader.line_num, record) if record else None
        except csv.Error:
            return
        if held is not None and not self.goes_on:  # otherwise the last record may be truncated
            yield held

    def is_even(self, dialect: Dialect) -> bool:
        """Return whether all records are well-formed and have the same number of fields."""
        reader = strict_reader(self.lines(), dialect)
        widths: list[int] = []
        try:
            widths.extend(len(record) for record in reader if record)
        except csv.Error:
            # An error on the last line may be due to truncation; anywhere else the quoting is not that of this dialect.
            if not self.goes_on or reader.line_num < sum(1 for _ in self.lines()):
                return False
        else:
            widths = widths[:-1] if self.goes_on else widths
        return len(set(widths)) <= 1

    def width(self, dialect: Dialect) -> int:
        """Return the number of fields in the header; 0 if there is none under this dialect."""
        return next((len(record) for _, record in self.records(dialect)), 0)


def find_layout(text: Text, *, delimiter: str | None = None, quote: str | None = None, limits: Limits) -> Layout:
    """Detect the parts of the dialect that are not stated, and the header.

    >>> text = Text(file=Path("toy.csv"), content=b"id;Income\\n1;2,5\\n2;3,5\\n")
    >>> layout = find_layout(text, limits=Limits())
    >>> layout.dialect.delimiter, layout.names
    (';', ('id', 'Income'))
    """
    _check_stated(delimiter, quote)
    size = _PREFIX
    while True:
        beginning = _read_beginning(text, size)
        dialect = _find_dialect(text, beginning, delimiter, quote)
        records = list(beginning.records(dialect))
        if records or not beginning.goes_on or size >= _LONGEST_HEADER:
            break
        size *= 8
    if not records:
        raise _no_header_error(text)
    lines, names = records[0]
    limits.check(file=str(text.file), columns=len(names))
    _check_names(text, names)
    return Layout(
        dialect=dialect,
        names=tuple(names),
        header_bytes=sum(len(line.encode()) for line in islice(beginning.lines(), lines)),
        sample=tuple(tuple(record) for _, record in records[1:]),
    )


def _read_beginning(text: Text, size: int) -> _Beginning:
    with text.open() as stream:
        data = stream.read(size + 1)
    # A truncated character at the end is dropped; the text as a whole is known to be UTF-8.
    return _Beginning(text=data[:size].decode("utf-8", errors="ignore"), goes_on=len(data) > size)


def _find_dialect(text: Text, beginning: _Beginning, delimiter: str | None, quote: str | None) -> Dialect:
    if quote is None:
        quote = _find_quote(beginning)
    if delimiter is None and default_delimiter(text.file) == "\t":
        delimiter = "\t"
    if delimiter is not None:
        return Dialect(delimiter=delimiter, quote=quote)
    widths = {d: beginning.width(d) for d in (Dialect(delimiter=c, quote=quote) for c in _CANDIDATES)}
    parting = [d for d, width in widths.items() if width > 1]
    if len(parting) > 1:
        even = [d for d in parting if beginning.is_even(d)]
        if len(even) > 1:
            raise _ambiguous_error(text, even)
        parting = even or sorted(parting, key=lambda d: -widths[d])
    return parting[0] if parting else Dialect(quote=quote)


def default_delimiter(file: Path) -> str:
    """Return the delimiter implied by a file's name, or the default.

    >>> default_delimiter(Path("a.TSV.gz")), default_delimiter(Path("a.txt"))
    ('\\t', ',')
    """
    return "\t" if file.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","


def _find_quote(beginning: _Beginning) -> str:
    first = next((line.rstrip("\r\n") for line in beginning.lines() if line.strip()), "")
    return "'" if len(first) > 1 and first[0] == first[-1] == "'" and '"' not in first else '"'


def _check_stated(delimiter: str | None, quote: str | None) -> None:
    for what, character, lengths in (("delimiter", delimiter, (1,)), ("quote", quote, (0, 1))):
        if character is not None and (
            len(character) not in lengths or not character.isascii() or character in ("\r", "\n", "\0")
        ):
            raise SpecError(
                f"the {what} must be one ASCII character",
                code=f"bad-{what}",
                hint="for example ',' ';' '\\t' '|'" if what == "delimiter" else "'\"', \"'\", or '' for none",
            )
    if delimiter is not None and delimiter == quote:
        raise SpecError("delimiter and quote are the same", code="bad-quote", hint="state two different characters")


def _check_names(text: Text, names: list[str]) -> None:
    """Refuse empty or repeated names. Errors give positions, not names: the first line may be a record."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name:
            raise InputError(
                f"column {position:,} of {text.file.name!r} has no name",
                code="unnamed-column",
                hint="name every column; if a dataframe's index was written too, write the file without it",
                file=str(text.file),
                line=1,
                column=position,
            )
        if name in seen:
            raise InputError(
                f"columns {seen[name]:,} and {position:,} of {text.file.name!r} have the same name",
                code="duplicate-column",
                hint="give every column a unique name; the first line must hold the names",
                file=str(text.file),
                line=1,
                columns=[seen[name], position],
            )
        seen[name] = position


def _ambiguous_error(text: Text, dialects: list[Dialect]) -> InputError:
    return InputError(
        f"the delimiter of {text.file.name!r} is not clear: {len(dialects)} candidates split every record evenly",
        code="ambiguous-delimiter",
        hint="state the delimiter, for example delimiter=','",
        file=str(text.file),
        candidates=[d.delimiter for d in dialects],
    )


def _no_header_error(text: Text) -> InputError:
    return InputError(
        f"{text.file.name!r} has no header line that can be read",
        code="no-header",
        hint="the first line must contain the column names; check its quoting",
        file=str(text.file),
        line=1,
    )


_BLOCK = 4 * 2**20
_LARGEST_BLOCK = 2**31 - 1
_COMMA_NUMBER = r"^[+-]?[0-9]*,[0-9]+$"
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

    >>> has_decimal_commas(pa.array(["1,5", "-,25", "7", "none", None])), has_decimal_commas(pa.array(["1,5", "1,5,7"]))
    (True, False)
    """
    with_comma = pc.match_substring(texts, ",")
    found = texts.filter(with_comma)
    return len(found) > 0 and bool(pc.all(pc.match_substring_regex(found, _COMMA_NUMBER)).as_py())


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
