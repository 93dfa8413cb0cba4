"""Detect the dialect of a delimited file: delimiter, quote, header.

The rule is the same on every machine. Only the beginning of the file is examined (256 kB, more if the header is
longer); the whole file must then agree, or the error names the line that does not.

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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from safeswap.errors import InputError, SpecError
from safeswap.files.encoding import Dialect, Text, strict_reader
from safeswap.files.sources import Limits

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
