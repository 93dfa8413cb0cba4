"""From the masked file and its audit back to the original."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from safeswap.errors import InputError
from safeswap.model.audit import Audit, Exchange, Replacement
from safeswap.model.microdata import Microdata
from safeswap.model.several import several


def undo(after: Microdata, audit: Audit) -> Microdata:
    """The file as it was before the masking, exactly.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Race"),))
    >>> swapped = Exchange(attributes=("Race",), pairs=np.array([[0, 2]]))
    >>> audit = Audit(
    ...     method="swap",
    ...     spec={},
    ...     records=3,
    ...     asked=1,
    ...     feasible=1,
    ...     made=1,
    ...     exchanges=(swapped,),
    ...     key_id="",
    ...     releasable=True,
    ...     algorithm="",
    ... )
    >>> undo(Microdata(pa.table({"Race": ["c", "b", "a"]}), schema), audit).table["Race"].to_pylist()
    ['a', 'b', 'c']
    """
    if audit.records != len(after):
        raise InputError(
            f"the audit record is of a file of {several(audit.records, 'record')}, this one has {len(after):,}",
            code="audit-mismatch",
            hint="give the masked file that this audit record belongs to, all of it and in its own order",
        )
    # Values were replaced after all exchanges. An exchange undoes itself, the last one first.
    before = replay(restored(after, reversed(audit.replacements)), reversed(audit.exchanges))
    known = after.past and after.past[-1].attributes == audit.changed_attributes
    return replace(before, past=after.past[:-1]) if known else before


def restored(data: Microdata, replacements: Iterable[Replacement]) -> Microdata:
    """The file with the values that were replaced back in their places, in the type they had."""
    columns: dict[str, pa.ChunkedArray] = {}
    for replacement in replacements:
        name = replacement.attribute
        data.schema[name]  # an unknown attribute gets its own clear error
        columns[name] = _put_back(columns.get(name, data.table.column(name)), replacement)
    return data.with_columns(columns, {})


def _put_back(column: pa.ChunkedArray, replacement: Replacement) -> pa.ChunkedArray:
    """Rows that were not replaced come from the column, the others from what is put back."""
    source = np.arange(len(column), dtype=np.int64)
    source[replacement.rows] = len(column) + np.arange(len(replacement.rows))
    kind = replacement.before.type
    if len(replacement.rows) == len(column):  # the column that was need have nothing in common with the one that is
        column = pa.chunked_array([], type=kind)
        source -= len(source)
    pieces = [*column.cast(kind).chunks, replacement.before]
    return pa.chunked_array(pieces, type=kind).take(pa.array(source))


def replay(data: Microdata, exchanges: Iterable[Exchange]) -> Microdata:
    """The file with these exchanges made, one after the other."""
    columns: dict[str, pa.ChunkedArray] = {}
    for exchange in exchanges:
        source = pa.array(exchange.permutation(len(data)))
        for name in exchange.attributes:
            data.schema[name]  # an unknown attribute gets its own clear error
            columns[name] = columns.get(name, data.table.column(name)).take(source)
    return data.with_columns(columns, {})
