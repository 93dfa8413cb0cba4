"""Text files as validated UTF-8, and the exact line of a fault in delimited text.

Text is taken as UTF-8 unless a byte order mark or the caller states otherwise. Nothing is guessed: a file in an
unstated one-byte encoding would decode without error in a dozen of them, each time with other letters.
"""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
        hint="state the encoding of the file, for example encoding='cp1252' or 'latin-1'",
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
