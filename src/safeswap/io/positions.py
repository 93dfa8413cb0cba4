"""Where a delimited file goes wrong: the exact line, found by a second, slower and stricter reading."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from safeswap.errors import InputError
from safeswap.io.encoding import Text

_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How fields are parted and quoted; an empty ``quote`` means that quotes are letters like any other."""

    delimiter: str = ","
    quote: str = '"'


def strict_reader(lines: Any, dialect: Dialect) -> Any:
    """A reader of the csv module that refuses malformed quoting and bounds no field."""
    if csv.field_size_limit() < _LONGEST_FIELD:
        csv.field_size_limit(_LONGEST_FIELD)
    if dialect.quote:
        return csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True)
    return csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE, quotechar=None, strict=True)


def records_with_lines(text: Text, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Every record, the header first, with the line on which it begins; bad quoting raises with its line."""
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
    """Raise for the first record that is malformed or has another number of fields than the header."""
    for line, record in records_with_lines(text, dialect):
        if record and len(record) != columns:  # a blank line is an empty list
            raise ragged(text, line=line, expected=columns, found=len(record))


def ragged(text: Text, *, line: int, expected: int, found: int) -> InputError:
    """A record with too many or too few fields."""
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
    """The lines on which the records at these positions (0 is the first after the header) begin."""
    wanted = sorted(set(positions))
    lines: dict[int, int] = {}
    position = -2  # becomes -1 at the header
    for line, record in records_with_lines(text, dialect):
        if not record and (columns > 1 or position == -2):
            continue  # blank lines are no records, except where a record is a single value
        position += 1
        if position == wanted[len(lines)]:
            lines[position] = line
            if len(lines) == len(wanted):
                return [lines[p] for p in positions]
    return _lost(text)


def _lost(text: Text) -> NoReturn:
    raise InputError(
        f"{text.file.name!r} changed while it was read", code="changed-file", hint="try again", file=str(text.file)
    )
