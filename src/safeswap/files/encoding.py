"""Text files as validated UTF-8, the dialect of delimited text, and the exact line of a fault in it.

Text is taken as UTF-8 unless a byte order mark or the caller states otherwise. Nothing is guessed: a file in an
unstated one-byte encoding would decode without error in a dozen of them, each time with other letters.

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

import codecs
import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from safeswap.errors import InputError, SpecError
from safeswap.files.formats import GZIP, Limits, corrupt_error, format_of, unreadable_error

_CHUNK = 2**20  # fits the cache, and each chunk is looked at several times

_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, kw_only=True)
class Text:
    """UTF-8 text without a byte order mark: its position in the file, or its bytes if it had to be converted."""

    file: Path
    start: int = 0
    content: bytes | None = field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""
        if self.content is not None:
            return io.BytesIO(self.content)
        stream = self.file.open("rb")
        stream.seek(self.start)
        return stream

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks of a few megabytes."""
        with self.open() as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def lines(self) -> io.TextIOWrapper:
        """Open the lines with their line ends unchanged, for the csv module."""
        return io.TextIOWrapper(self.open(), encoding="utf-8", newline="")


def open_text(path: Path, *, encoding: str | None, limits: Limits) -> Text:
    """Open the text of a file, plain or gzip, in the encoding that its byte order mark or the caller states.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.csv"
    ...     _ = path.write_bytes("naïve\\n".encode("utf-16"))
    ...     open_text(path, encoding=None, limits=Limits()).open().read().decode("utf-8")
    'naïve\\n'
    """
    raw = _decompress(path, limits) if format_of(path) is GZIP else None
    limits.check(file=str(path), decoded_bytes=path.stat().st_size if raw is None else len(raw))
    text = Text(file=path, content=raw)
    with text.open() as stream:
        head = stream.read(4)
    name, skip = _find_encoding(path, head, encoding)
    if name != "utf-8":
        text = Text(file=path, content=_transcode(text, name))
    elif skip:
        text = Text(file=path, start=skip, content=None if raw is None else raw[skip:])
    _check(text, stated=encoding)
    return text


def _find_encoding(path: Path, head: bytes, stated: str | None) -> tuple[str, int]:
    marked = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), None)
    if stated is None:
        return ("utf-8", 0) if marked is None else (marked[1], len(marked[0]))
    try:
        name = codecs.lookup(stated).name
        with suppress(UnicodeError):
            b"xx".decode(name)  # raises LookupError for a codec that is not a text encoding, such as hex
    except LookupError:
        raise SpecError(
            "there is no text encoding of that name",
            code="unknown-encoding",
            hint="for example utf-8, utf-16, cp1252, latin-1",
        ) from None
    name = {"utf-8-sig": "utf-8"}.get(name, name)
    if marked is None:
        return name, 0
    if not name.startswith(marked[1]):
        raise InputError(
            f"the file begins with the mark of {marked[1]}, not of the encoding stated",
            code="wrong-encoding",
            hint=f"state encoding={marked[1]!r}, or omit the encoding",
            file=str(path),
            encoding=marked[1],
        )
    # The generic UTF-16 and UTF-32 codecs read the mark themselves; the others would take it for a character.
    return (marked[1], len(marked[0]))


def _decompress(path: Path, limits: Limits) -> bytes:
    """Decompress all members of a gzip file; stop as soon as the limit is exceeded, whatever the file claims."""
    parts: list[bytes] = []
    size = 0
    try:
        with path.open("rb") as file:
            inflate = zlib.decompressobj(wbits=31)
            pending = file.read(_CHUNK)
            while pending:
                part = inflate.decompress(pending, _CHUNK)
                size += len(part)
                limits.check(file=str(path), decoded_bytes=size)
                parts.append(part)
                pending = inflate.unconsumed_tail or inflate.unused_data
                if inflate.eof and pending:
                    inflate = zlib.decompressobj(wbits=31)
                pending = pending or file.read(_CHUNK)
            if not inflate.eof:
                raise corrupt_error(path, GZIP)
    except zlib.error:
        raise corrupt_error(path, GZIP) from None
    except OSError as error:
        raise unreadable_error(path, error) from None
    return b"".join(parts)


def _transcode(text: Text, encoding: str) -> bytes:
    decoder = codecs.getincrementaldecoder(encoding)()
    done, lines = io.BytesIO(), 1
    consumed = 0
    for chunk in (*text.chunks(), b""):
        try:
            piece = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            begin = consumed - (len(error.object) - len(chunk))
            lines += _line_ends(error.object[: error.start].decode(encoding, errors="ignore").encode("utf-8"))
            raise _encoding_error(text.file, encoding, offset=begin + error.start, line=lines) from None
        except UnicodeError:  # UTF-16 or UTF-32 without its byte order mark
            raise _encoding_error(text.file, encoding, offset=0, line=1) from None
        consumed += len(chunk)
        try:
            utf8 = piece.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate is not a character
            raise _encoding_error(text.file, encoding, offset=consumed, line=lines) from None
        lines += _line_ends(utf8)
        done.write(utf8)
    return done.getvalue()


def _check(text: Text, *, stated: str | None) -> None:
    """Refuse NUL bytes and invalid UTF-8, with byte and line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = text.start
    for chunk in text.chunks():
        if (nul := chunk.find(b"\0")) >= 0:
            offset += nul
            raise _nul_error(text.file, offset=offset, line=_find_line(text, offset), stated=stated)
        pending = len(decoder.getstate()[0])
        try:
            if pending or not chunk.isascii():
                decoder.decode(chunk)
        except UnicodeDecodeError as error:
            offset += error.start - pending
            raise _encoding_error(text.file, "utf-8", offset=offset, line=_find_line(text, offset)) from None
        offset += len(chunk)
    if pending := len(decoder.getstate()[0]):
        raise _encoding_error(text.file, "utf-8", offset=offset - pending, line=_find_line(text, offset))


def _find_line(text: Text, offset: int) -> int:
    """Return the line of a byte; lines are counted when a fault was found, not in every file."""
    line, left, ended = 1, offset - text.start, b""
    for chunk in text.chunks():
        before = chunk[: max(left, 0)]
        # A line end of two bytes may be cut in two.
        line += _line_ends(before) - (ended == b"\r" and before[:1] == b"\n")
        left -= len(chunk)
        ended = before[-1:]
    return line


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + (data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0)


def _encoding_error(path: Path, encoding: str, *, offset: int, line: int) -> InputError:
    return InputError(
        f"{path.name!r} is not {encoding} text: the byte at offset {offset:,} in line {line:,} does not fit",
        code="wrong-encoding",
        hint="state the encoding of the file, for example encoding='cp1252' or encoding='latin-1'",
        file=str(path),
        line=line,
        byte=offset,
        encoding=encoding,
    )


def _nul_error(path: Path, *, offset: int, line: int, stated: str | None) -> InputError:
    hint = "remove the NUL bytes; text has none"
    if stated is None:
        hint = "if the file is UTF-16, state encoding='utf-16-le' or 'utf-16-be'; otherwise remove the NUL bytes"
    return InputError(
        f"{path.name!r} holds a NUL byte at offset {offset:,} in line {line:,}",
        code="nul-byte",
        hint=hint,
        file=str(path),
        line=line,
        byte=offset,
    )


# Faults in delimited text are located by a second, slower and stricter reading.

_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The delimiter and quote of fields; an empty ``quote`` means that quotes are ordinary characters."""

    delimiter: str = ","
    quote: str = '"'


def strict_reader(lines: Any, dialect: Dialect) -> Any:
    """Return a csv reader that refuses malformed quoting and does not limit field sizes."""
    if csv.field_size_limit() < _LONGEST_FIELD:
        csv.field_size_limit(_LONGEST_FIELD)
    if dialect.quote:
        return csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True)
    return csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE, quotechar=None, strict=True)


def records_with_lines(text: Text, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield every record, the header first, with the line on which it begins; bad quoting raises with its line."""
    with text.lines() as lines:
        reader = strict_reader(lines, dialect)
        begin = 1
        try:
            for record in reader:
                yield begin, record
                begin = reader.line_num + 1
        except csv.Error:
            raise InputError(
                f"the quoting of {text.file.name!r} goes wrong in the record that begins on line {begin:,}",
                code="bad-quoting",
                hint="double each quote inside a quoted field; if quotes are plain letters, state quote=''",
                file=str(text.file),
                line=begin,
            ) from None


def find_fault(text: Text, dialect: Dialect, *, columns: int) -> None:
    """Raise for the first record that is malformed or has a different number of fields from the header."""
    for line, record in records_with_lines(text, dialect):
        if record and len(record) != columns:  # a blank line is an empty list
            raise ragged_error(text, line=line, expected=columns, found=len(record))


def ragged_error(text: Text, *, line: int, expected: int, found: int) -> InputError:
    """Return the error for a record with too many or too few fields."""
    return InputError(
        f"line {line:,} of {text.file.name!r} has {found:,} fields; the header has {expected:,}",
        code="ragged-row",
        hint="check the delimiter and the quoting around that line",
        file=str(text.file),
        line=line,
        expected=expected,
        found=found,
    )


def lines_of_records(text: Text, dialect: Dialect, positions: Sequence[int], *, columns: int) -> list[int]:
    """Return the lines on which the records at these positions (0 is the first after the header) begin."""
    wanted = sorted(set(positions))
    lines: dict[int, int] = {}
    position = -2  # -1 at the header
    for line, record in records_with_lines(text, dialect):
        if not record and (columns > 1 or position == -2):
            continue  # blank lines are not records, except in a file of one column
        position += 1
        if position == wanted[len(lines)]:
            lines[position] = line
            if len(lines) == len(wanted):
                return [lines[p] for p in positions]
    return _raise_changed(text)


def _raise_changed(text: Text) -> NoReturn:
    raise InputError(
        f"{text.file.name!r} changed while it was read", code="changed-file", hint="try again", file=str(text.file)
    )


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
