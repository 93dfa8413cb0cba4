"""Which record of one file is which of another: by identifier where both have one, else by position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Rows
from safeswap.errors import InputError, SpecError
from safeswap.model.columns import aligned_columns, as_codes
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind

_SAME_VALUES = 0.9
"""A column with at least this share of its values in common with the other file may say in which order it stands."""


def match_rows(here: Microdata, there: Microdata, *, by_position: bool = True) -> tuple[Rows, str]:
    """For each record of the one file its row in the other, −1 where it has none; and a word on how that was found.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7]))
    >>> match_rows(one, other)[0].tolist()
    [1, -1, 0]
    """
    if here.schema.identifier is not None and there.schema.identifier is not None:
        return _by_identifier(here, there)
    if not by_position:
        raise SpecError(
            "an external archive is matched by identifier, and one of the files has none",
            code="no-identifier",
            hint="name the identifier of both files when reading them",
        )
    if len(here) != len(there):
        raise InputError(
            f"the files have {len(there):,} and {len(here):,} records and no identifier by which to match them",
            code="different-length",
            hint="name the identifier of both files, or give files with the same records in the same order",
        )
    return np.arange(len(here), dtype=np.int64), "Records are matched by their position in the files."


def align_records(original: Microdata, released: Microdata) -> Microdata:
    """The released file with its records in the order of the original.

    By identifier where both files have one; it must name each record once, and the same records. Else by position,
    which is refused where it evidently is not the same in both.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7, 8]))
    >>> align_records(one, other).table["id"].to_pylist()
    [7, 8, 9]
    """
    if original.schema.identifier is None or released.schema.identifier is None:
        refuse_disorder(original, released)
        return released
    ours, theirs = _texts(original), _texts(released)
    if ours.equals(theirs):
        return released
    rows = pc.index_in(ours, value_set=theirs.combine_chunks())
    if rows.null_count or any(len(side.unique()) < len(side) for side in (ours, theirs)):
        raise not_aligned("the identifiers of the two files are not the same, or one of them stands in several records")
    return take_records(released, rows.to_numpy().astype(np.int64))


def name_alike(original: Microdata, released: Microdata) -> Microdata:
    """The released file, whose records stand in the order of the original, with the identifiers of the original."""
    own, other = original.schema.identifier, released.schema.identifier
    if own is None or other is None:
        return released
    return released.with_columns({other.name: original.table.column(own.name)}, {})


def take_records(data: Microdata, rows: Rows) -> Microdata:
    """The records in these rows, in that order."""
    return Microdata(data.table.take(pa.array(rows)), data.schema)


def refuse_disorder(original: Microdata, released: Microdata) -> None:
    """Refuse two files whose records evidently stand in different orders.

    A column that is the same in every place vouches for the order. Where none is, the columns that hold the same
    values are looked at together: the records that both files have, wherever they stand, should stand in their places.
    """
    names = [a.name for a in original.schema.attributes if a.kind is not Kind.IDENTIFIER and a.name in released.schema]
    together: list[tuple[Rows, Rows]] = []
    for name in names:
        here, there = as_codes(*aligned_columns(original.table.column(name), released.table.column(name)))
        if len(here) and (here == there).all() and (here != here[0]).any():
            return
        if _common(here, there) >= _SAME_VALUES * len(here):
            together.append((here, there))
    if not together:
        return
    here, there = _row_codes(together)
    in_place = int(np.count_nonzero(here == there))
    if 2 * in_place < _common(here, there):
        raise not_aligned("the records of the two files stand in different orders, without an identifier")


def not_aligned(message: str) -> InputError:
    """The refusal of files of which nobody can say which record is which."""
    return InputError(
        message,
        code="records-not-aligned",
        hint="give the audit record, which knows the order: assess(original, released, audit=DIR) or --record DIR; or "
        "assess the masking itself: recall(original, masked, audit=DIR). If the order is the same, say by position",
    )


def _common(here: Rows, there: Rows) -> int:
    """How many values the two lists have in common, repeats counted."""
    codes, place = np.unique(np.concatenate([here, there]), return_inverse=True)
    counts = [np.bincount(side, minlength=len(codes)) for side in (place[: len(here)], place[len(here) :])]
    return int(np.minimum(*counts).sum())


def _row_codes(columns: list[tuple[Rows, Rows]]) -> tuple[Rows, Rows]:
    """A number per record of both files, the same where all the columns have the same values."""
    number = np.zeros(2 * len(columns[0][0]), dtype=np.int64)
    for sides in columns:
        place = np.unique(np.concatenate(sides), return_inverse=True)[1]
        number = np.unique(number * (int(place.max(initial=0)) + 1) + place, return_inverse=True)[1]
    return number[: len(number) // 2], number[len(number) // 2 :]


def record_labels(data: Microdata) -> pa.Array:
    """What each record is called: its identifier as text, or its row from 1."""
    if data.schema.identifier is None:
        return pa.array(np.arange(1, len(data) + 1)).cast(pa.string())
    return _texts(data).combine_chunks()


def _by_identifier(here: Microdata, there: Microdata) -> tuple[Rows, str]:
    ours, theirs = _texts(here), _texts(there)
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
        how += f" {len(here) - found:,} of {len(here):,} records are not in the other file."
    return rows, how


def _texts(data: Microdata) -> pa.ChunkedArray:
    identifier = data.schema.identifier
    assert identifier is not None  # noqa: S101  (asked for by callers)
    column = data.table.column(identifier.name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.chunked_array([[value.hex() for value in column.to_pylist()]], type=pa.large_string())
    return pa.chunked_array([column.cast(pa.large_string()).combine_chunks()])
