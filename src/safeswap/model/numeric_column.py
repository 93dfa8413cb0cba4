"""Read numbers from a column, and write changed numbers back in the form that the column has.

Numbers in a text file are text. They are parsed where a method needs them; unchanged values stay as they are, to the
last character, and changed ones are written with as many decimals as the column has. A date is its number of days, and
a changed one is a whole day again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Flags, Floats, Rows
from safeswap.errors import InputError, SpecError
from safeswap.model.audit import Replacement
from safeswap.model.columns import (
    decode_dictionary,
    flag_changes,
    is_plain_number,
    missing_codes,
    rank_column,
    to_bits,
    to_numbers,
)
from safeswap.model.dates import EPOCH, from_days, is_text, parse_date
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind
from safeswap.model.text import plural

MOST_DECIMALS = 9
"""A column with more decimals than this in any value is not rounded."""

_EXACT = 2.0**53
_FEW = 1_000
_RUN = 1 << 14


def finite_numbers(data: Microdata, name: str) -> Floats:
    """Return the column as numbers, missing as NaN; refuse one that is not numeric or holds infinite values.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="turnover", kind="numeric"),))
    >>> finite_numbers(Microdata(pa.table({"turnover": ["1.50", None]}), schema), "turnover").tolist()
    [1.5, nan]
    """
    attribute = data.schema[name]
    if attribute.kind is Kind.IDENTIFIER:
        raise SpecError(
            f"{name!r} is the record identifier, which is neither changed nor measured",
            code="identifier-role",
            hint="name another attribute",
            attribute=name,
        )
    values = to_numbers(data, name)
    infinite = int(np.count_nonzero(np.isinf(values)))
    if infinite:
        raise InputError(
            f"{name!r} is infinite in {plural(infinite, 'record')}",
            code="not-finite",
            hint="set them to missing, or describe the code as missing in the schema",
            column=name,
        )
    return values


def decimals_of(values: Floats) -> int | None:
    """Return the number of decimals that all values need; None if that is not a small number.

    >>> decimals_of(np.array([1.0, 2.5, np.nan])), decimals_of(np.array([7.0])), decimals_of(np.array([1 / 3]))
    (1, 0, None)
    """
    missing = np.isnan(values)
    known = values[~missing] if missing.any() else values
    largest = max(known.max(initial=0.0), -known.min(initial=0.0))
    # Most columns show in their first values how many decimals they need at least; short runs stay in the cache.
    runs = np.split(known, range(_FEW, len(known), _RUN))
    for decimals in range(MOST_DECIMALS + 1):
        if decimals and largest * 10.0**decimals >= _EXACT:
            return None
        if all((np.round(some, decimals) == some).all() for some in runs):
            return decimals
    return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Change:
    """A column with new numbers in some rows, and its replacement for the audit; None if nothing changed."""

    column: pa.ChunkedArray
    replacement: Replacement | None


def changed_numbers(
    data: Microdata,
    name: str,
    values: Floats,
    before: Floats,
    *,
    decimals: int | None = None,
    written: Flags | None = None,
) -> Change:
    """Write numbers to a column. A value whose number is unchanged after rounding keeps its text.

    ``before`` are the column's present numbers; missing ones stay missing. ``written`` flags rows that are rewritten
    even if unchanged: a text such as ``1.50`` among shorter ones would reveal that it was left alone. A changed number
    that would read as a missing code is moved by one unit of its last decimal.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="turnover", kind="numeric"),))
    >>> data = Microdata(pa.table({"turnover": ["1.50", "07", None]}), schema)
    >>> change = changed_numbers(data, "turnover", np.array([2.26, 7.0, np.nan]), np.array([1.5, 7.0, np.nan]))
    >>> change.column.to_pylist(), change.replacement.before.to_pylist()
    (['2.3', '07', None], ['1.50'])
    """
    places = decimals_of(before) if decimals is None else decimals
    return write_numbers(data, name, values, before, places=places, written=written)


def _write_days(name: str, numbers: Floats, kind: pa.DataType) -> pa.Array:
    """Return day numbers as dates of the column's type; refuse days that a type counting nanoseconds cannot hold."""
    try:
        return from_days(numbers, kind)
    except pa.ArrowInvalid:
        raise InputError(
            f"masking moves dates of {name!r} out of the years 1677 to 2262, the range of its type",
            code="out-of-range",
            hint="store the column as dates or as timestamps in microseconds, or ask for smaller changes",
            attribute=name,
        ) from None


def write_numbers(
    data: Microdata,
    name: str,
    values: Floats,
    before: Floats,
    *,
    places: int | None,
    written: Flags | Literal[True] | None = None,
) -> Change:
    """Write numbers to a column as :func:`changed_numbers` does, with these decimals; None leaves them as they are.

    ``written`` may be True for all rows.

    A part of a file is written as the whole would be, if its decimals are those of the whole.
    """
    column = data.table.column(name)
    is_date = data.schema[name].kind is Kind.DATE
    places = 0 if is_date else places
    rounded = values.copy() if places is None else np.round(values, places)
    rounded += 0.0  # no negative zero
    rounded = _avoid_codes(rounded, before, _missing_numbers(data.schema[name]), places)
    flags = ~np.isnan(before)
    if written is not True:
        flags &= (rounded != before) if written is None else ((rounded != before) | written)
    if not flags.any():
        return Change(column=column, replacement=None)
    rows: Rows | None = None if flags.all() else np.flatnonzero(flags)  # None: all
    written_now = rounded if rows is None else rounded[rows]
    if is_date:
        made, same_type = _write_days(name, written_now, column.type), not pa.types.is_dictionary(column.type)
    else:
        made, same_type = _cast_like(column.type, written_now)
    if same_type:
        old = (column if rows is None else column.take(pa.array(rows))).combine_chunks()
        differs = flag_changes(*(to_bits(pa.chunked_array([side])) for side in (old, made)))
        if not differs.any():
            return Change(column=column, replacement=None)
        changed = pa.chunked_array([made]) if rows is None else replace_rows(column, rows, made)
        if not differs.all():
            some = np.flatnonzero(differs)
            rows, old = some if rows is None else rows[some], _take_rows(old, some)
        rows = np.arange(len(column)) if rows is None else rows
        return Change(column=changed, replacement=Replacement(attribute=name, rows=rows, before=old))
    # Another type: the whole old column is kept, since values of the new type need not fit the old one.
    whole = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    every_row = np.arange(len(column), dtype=np.int64)
    plain = replace_rows(
        decode_dictionary(column).cast(made.type, safe=False), every_row if rows is None else rows, made
    )
    return Change(column=plain, replacement=Replacement(attribute=name, rows=every_row, before=whole))


def ordered_numbers(data: Microdata, name: str) -> Floats:
    """Return numbers that order the values of an attribute: its own, or the ranks of ordinal levels.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="size", kind="ordinal", levels=("small", "large")),))
    >>> ordered_numbers(Microdata(pa.table({"size": ["large", "small", None]}), schema), "size").tolist()
    [1.0, 0.0, nan]
    """
    kind = data.schema[name].kind
    if kind is not Kind.ORDINAL:
        return finite_numbers(data, name)
    codes, _ = rank_column(data, name)
    missing = missing_codes(data, name)[data.coded(name).codes]
    return np.where(missing, np.nan, codes.astype(np.float64))


def replace_rows(column: pa.ChunkedArray, rows: Rows, values: pa.Array) -> pa.ChunkedArray:
    """Return the column with other values in these rows.

    >>> replace_rows(pa.chunked_array([["a", "b"]]), np.array([1]), pa.array(["c"])).to_pylist()
    ['a', 'c']
    """
    if len(rows) == len(column):
        return pa.chunked_array([values])
    if not column.null_count and not values.null_count and is_plain_number(column.type):
        changed = np.concatenate([chunk.to_numpy() for chunk in column.chunks])
        changed[rows] = values.to_numpy()
        return pa.chunked_array([pa.array(changed, type=column.type)])
    source = np.arange(len(column), dtype=np.int64)
    source[rows] = len(column) + np.arange(len(rows))
    return pa.chunked_array([*column.chunks, values], type=column.type).take(pa.array(source))


def _take_rows(values: pa.Array, rows: Rows) -> pa.Array:
    """Return the values in these rows; those of plain numbers by NumPy, in a third of the time."""
    if is_plain_number(values.type) and not values.null_count:
        return pa.array(values.to_numpy()[rows], type=values.type)
    return values.take(pa.array(rows))


def _cast_like(kind: pa.DataType, values: Floats) -> tuple[pa.Array, bool]:
    """Cast numbers to a column type if they fit; return them, and whether they do."""
    if pa.types.is_dictionary(kind):
        return _cast_like(kind.value_type, values)[0], False
    numbers_now = pa.array(values)
    if is_text(kind):
        return numbers_now.cast(kind), True  # the shortest text that reads as the same number
    if pa.types.is_floating(kind):
        return numbers_now.cast(kind, safe=False), True
    if pa.types.is_integer(kind):
        for wanted in (kind, pa.int64()):
            try:
                return numbers_now.cast(wanted), wanted == kind
            except pa.ArrowInvalid:
                continue
    return numbers_now, False


def _missing_numbers(attribute: Attribute) -> list[float]:
    """Return the missing codes that are numbers, or days of dates."""
    found = []
    for text in attribute.missing:
        if attribute.kind is Kind.DATE:
            date = parse_date(text)
            found += [] if date is None else [float((date - EPOCH).days)]
        else:
            try:
                found.append(float(text))
            except ValueError:
                continue
    return found


def _avoid_codes(values: Floats, before: Floats, codes: list[float], places: int | None) -> Floats:
    for code in codes:
        hit = (values == code) & (before != code)
        values = np.where(hit, code + (np.spacing(code) if places is None else 10.0**-places), values)
    return values
