"""Check identifiers: present and unique. Errors name records, never values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError
from safeswap.files.columns import distinct_count
from safeswap.model.microdata import code_column
from safeswap.model.text import plural

_SHOWN = 10

Lines = Callable[[list[int]], list[int]]
"""Converts record positions to line numbers, for text files."""


def check_identifier(
    column: pa.ChunkedArray,
    *,
    name: str,
    missing: Sequence[str] = (),
    file: str = "",
    lines: Lines | None = None,
) -> None:
    """Refuse a column that does not identify every record.

    >>> check_identifier(pa.chunked_array([["a", "b"]]), name="id")
    >>> check_identifier(pa.chunked_array([["a", "b", "a"]]), name="id")
    Traceback (most recent call last):
    safeswap.errors.InputError: 2 records share their identifier 'id' with another, the first in records 1, 3
    """
    where = {"file": file} if file else {}
    absent = find_missing(column, missing)
    if absent.size:
        raise InputError(
            f"{plural(absent.size, 'record has', 'records have')} no identifier {name!r}, "
            f"the first in {describe_positions(absent, lines)}",
            code="missing-identifier",
            hint="give every record an identifier, or name no identifier column",
            column=name,
            **where,
            **positions_of(absent, lines),
        )
    if is_unique(column):
        return
    codes = code_column(column).codes
    counts = np.bincount(codes)
    shared = np.flatnonzero(counts[codes] > 1)
    first = np.flatnonzero(codes == codes[shared[0]])
    raise InputError(
        f"{plural(shared.size, 'record shares its', 'records share their')} identifier {name!r} with another, "
        f"the first in {describe_positions(first, lines)}",
        code="duplicate-identifier",
        hint="an identifier must be unique; name another column, or none to know records by their position",
        column=name,
        **where,
        **positions_of(first, lines),
    )


def find_missing(column: pa.ChunkedArray, codes: Sequence[str] = ()) -> Any:
    """Return the positions of records without an identifier: null, NaN, empty, or a stated missing code."""
    absent = pc.is_null(column, nan_is_null=True)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = column.cast(kind) if pa.types.is_dictionary(column.type) else column
        absent = pc.or_(absent, pc.is_in(values, value_set=pa.array(["", *codes], type=kind)))
    return np.flatnonzero(absent.to_numpy())


def is_unique(column: pa.ChunkedArray) -> bool:
    """Return whether no value occurs twice, missing excluded; a sorted column, the usual case, takes one pass.

    >>> is_unique(pa.chunked_array([[3, 1, 2]])), is_unique(pa.chunked_array([["a"], ["a"]]))
    (True, False)
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if len(column) < 2:
        return True
    try:
        if pc.all(pc.less(column.slice(0, len(column) - 1), column.slice(1))).as_py():
            return True
    except pa.ArrowNotImplementedError:  # a type without an order can still be counted
        pass
    if pa.types.is_integer(column.type) and not column.null_count:
        spread = _count_by_marks(column.to_numpy())
        if spread is not None:
            return spread == len(column)
    return bool(distinct_count(column) + column.null_count == len(column))


def _count_by_marks(values: npt.NDArray[np.integer[Any]]) -> int | None:
    """Count distinct integers with one byte per possible value; None if there are too many possible values.

    This costs a fraction of a hash table of all identifiers.
    """
    least, most = int(values.min()), int(values.max())
    if most - least >= 8 * len(values):
        return None
    marks = np.zeros(most - least + 1, dtype=np.bool_)
    marks[values - least] = True
    return int(np.count_nonzero(marks))


def positions_of(positions: Any, lines: Lines | None) -> dict[str, list[int]]:
    """Return the first few positions as fields of an error: record numbers from 1, and lines of a text file."""
    shown = positions[:_SHOWN].tolist()
    found = {"records": [position + 1 for position in shown]}
    return {**found, "lines": lines(shown)} if lines else found


def describe_positions(positions: Any, lines: Lines | None) -> str:
    """Return the first few positions in words."""
    found = positions_of(positions, lines)
    numbers = ", ".join(f"{n:,}" for n in found.get("lines", found["records"]))
    return f"{'lines' if lines else 'records'} {numbers}" + (" …" if positions.size > _SHOWN else "")
