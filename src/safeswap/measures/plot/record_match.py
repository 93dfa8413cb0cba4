"""Match the records of two files: by identifier if both have one, else by position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Rows
from safeswap.errors import InputError, SpecError
from safeswap.model.columns import aligned_columns, as_codes
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.text import plural

_SAME_VALUES = 0.9
"""Minimum share of common values for a column to be used as evidence of the record order."""


def match_rows(here: Microdata, there: Microdata, *, by_position: bool = True) -> tuple[Rows, str]:
    """Return each record's row in the other file, −1 if it has none, and a note on how it was matched.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7]))
    >>> match_rows(one, other)[0].tolist()
    [1, -1, 0]
    """
    if here.schema.identifier is not None and there.schema.identifier is not None:
        return _match_by_identifier(here, there)
    if not by_position:
        raise SpecError(
            "an external archive is matched by identifier, and one of the files has none",
            code="no-identifier",
            hint="name the identifier of both files when reading them",
        )
    if len(here) != len(there):
        raise InputError(
            f"the files have {len(there):,} and {plural(len(here), 'record')} but no identifier to match them by",
            code="different-length",
            hint="name the identifier of both files, or give files with the same records in the same order",
        )
    return np.arange(len(here), dtype=np.int64), "Records are matched by their position in the files."


def align_records(original: Microdata, released: Microdata) -> Microdata:
    """Return the released file with its records in the order of the original.

    By identifier if both files have one; it must be unique and name the same records. Else by position, which is
    refused if the files evidently differ in order.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7, 8]))
    >>> align_records(one, other).table["id"].to_pylist()
    [7, 8, 9]
    """
    if original.schema.identifier is None or released.schema.identifier is None:
        refuse_disorder(original, released)
        return released
    if _column_of_identifiers(original).equals(_column_of_identifiers(released)):
        return released
    ours, theirs = _identifier_texts(original), _identifier_texts(released)
    if ours.equals(theirs):
        return released
    rows = pc.index_in(ours, value_set=theirs.combine_chunks())
    if rows.null_count or any(len(side.unique()) < len(side) for side in (ours, theirs)):
        raise alignment_error(
            "the identifiers of the two files are not the same, or an identifier occurs in several records"
        )
    return take_records(released, rows.to_numpy().astype(np.int64))


def name_alike(original: Microdata, released: Microdata) -> Microdata:
    """Return the released file, whose records are in the original's order, with the original's identifiers."""
    own, other = original.schema.identifier, released.schema.identifier
    if own is None or other is None:
        return released
    return released.with_columns({other.name: original.table.column(own.name)}, {})


def take_records(data: Microdata, rows: Rows) -> Microdata:
    """Return the records in these rows, in that order."""
    return Microdata(data.table.take(pa.array(rows)), data.schema)


def refuse_disorder(original: Microdata, released: Microdata) -> None:
    """Refuse two files whose records are evidently in different orders.

    A column that is equal row by row confirms the order. If there is none, the columns with the same values are
    compared jointly: records that occur in both files should be in the same rows.
    """
    names = [a.name for a in original.schema.attributes if a.kind is not Kind.IDENTIFIER and a.name in released.schema]
    together: list[tuple[Rows, Rows]] = []
    for name in names:
        here, there = as_codes(*aligned_columns(original.table.column(name), released.table.column(name)))
        if len(here) and (here == there).all() and (here != here[0]).any():
            return
        if _count_common(here, there) >= _SAME_VALUES * len(here):
            together.append((here, there))
    if not together:
        return
    here, there = _number_records(together)
    in_place = int(np.count_nonzero(here == there))
    if 2 * in_place < _count_common(here, there):
        raise alignment_error("the records of the two files are in different orders, without an identifier")


def alignment_error(message: str) -> InputError:
    """Return the error for files whose records cannot be matched."""
    return InputError(
        message,
        code="records-not-aligned",
        hint="give the audit record, which knows the order: assess(original, released, audit=DIR) or --record DIR; or "
        "assess the masking itself: recall(original, masked, audit=DIR). If the order is the same, say by position",
    )


def _count_common(here: Rows, there: Rows) -> int:
    """Count the values that the two lists have in common, with repeats."""
    codes, place = np.unique(np.concatenate([here, there]), return_inverse=True)
    counts = [np.bincount(side, minlength=len(codes)) for side in (place[: len(here)], place[len(here) :])]
    return int(np.minimum(*counts).sum())


def _number_records(columns: list[tuple[Rows, Rows]]) -> tuple[Rows, Rows]:
    """Number the records of both files, with equal numbers where all columns are equal."""
    number = np.zeros(2 * len(columns[0][0]), dtype=np.int64)
    for sides in columns:
        place = np.unique(np.concatenate(sides), return_inverse=True)[1]
        number = np.unique(number * (int(place.max(initial=0)) + 1) + place, return_inverse=True)[1]
    return number[: len(number) // 2], number[len(number) // 2 :]


def record_labels(data: Microdata) -> pa.Array:
    """Return a label per record: its identifier as text, or its row from 1."""
    if data.schema.identifier is None:
        return pa.array(np.arange(1, len(data) + 1)).cast(pa.string())
    return _identifier_texts(data).combine_chunks()


def _match_by_identifier(here: Microdata, there: Microdata) -> tuple[Rows, str]:
    ours, theirs = _identifier_texts(here), _identifier_texts(there)
    how = "Records are matched by identifier."
    if ours.equals(theirs):
        return np.arange(len(here), dtype=np.int64), how
    rows = pc.index_in(ours, value_set=theirs.combine_chunks()).fill_null(-1).to_numpy().astype(np.int64)
    found = int(np.count_nonzero(rows >= 0))
    if not found and len(here):
        raise InputError(
            "the two files have no identifier in common",
            code="identifiers-differ",
            hint="give the masked file that stays inside: a public bundle has new identifiers",
        )
    if found < len(here):
        how += f" {len(here) - found:,} of {plural(len(here), 'record is', 'records are')} not in the other file."
    return rows, how


def _identifier_texts(data: Microdata) -> pa.ChunkedArray:
    column = _column_of_identifiers(data)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.chunked_array([[value.hex() for value in column.to_pylist()]], type=pa.large_string())
    return pa.chunked_array([column.cast(pa.large_string()).combine_chunks()])


def _column_of_identifiers(data: Microdata) -> pa.ChunkedArray:
    identifier = data.schema.identifier
    assert identifier is not None  # noqa: S101  (checked by callers)
    return data.table.column(identifier.name)
