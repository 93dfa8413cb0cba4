"""From the masked file and its audit back to the original."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from safeswap.errors import InputError
from safeswap.model.audit import Audit, Exchange
from safeswap.model.microdata import Microdata


def undo(after: Microdata, audit: Audit) -> Microdata:
    """The file as it was before the masking, exactly.

    >>> import numpy as np
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
            f"the audit record is of a file of {audit.records:,} records, this one has {len(after):,}",
            code="audit-mismatch",
            hint="give the masked file that this audit record belongs to, all of it and in its own order",
        )
    # An exchange undoes itself; the last one made is the first to be undone.
    return replay(after, reversed(audit.exchanges))


def replay(data: Microdata, exchanges: Iterable[Exchange]) -> Microdata:
    """The file with these exchanges made, one after the other."""
    columns: dict[str, pa.ChunkedArray] = {}
    for exchange in exchanges:
        source = pa.array(exchange.permutation(len(data)))
        for name in exchange.attributes:
            data.schema[name]  # an unknown attribute gets its own clear error
            columns[name] = columns.get(name, data.table.column(name)).take(source)
    return data.with_columns(columns, {})
