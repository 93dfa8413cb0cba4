"""Which record of one file is which of another: by identifier where both have one, else by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, SpecError
from safeswap.model.microdata import Microdata

Rows = npt.NDArray[np.int64]


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
