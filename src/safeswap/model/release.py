"""What may leave: the released values, a schema made from them alone, and facts that anybody may know.

Nothing in here can lead back to the confidential record: this module does not know that such a record exists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.errors import InternalError, SpecError, UnsafeRelease
from safeswap.kernels.types import Integers
from safeswap.model.key import Key
from safeswap.model.keyed_order import keyed_order, names_of
from safeswap.model.microdata import Microdata
from safeswap.model.released_columns import Released, released_column
from safeswap.model.schema import Attribute, Kind, Schema

Identifiers = Literal["new", "none"]

_INDEX_COLUMN = re.compile(r"__index_level_\d+__|Unnamed: \d+(_level_\d+|\.\d+)?|__null_dask_index__")


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """The allow-list of what is told about a release beside its data. What is not a field here is not told.

    ``rate`` stays None unless the data protection officer decides to publish it.
    """

    method: str
    records: int
    kept: tuple[str, ...] = ()
    title: str = ""
    date: str = ""
    rate: float | None = None
    tolerance: int = 3
    product: str = "safeswap"
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values; what was not stated is left out."""
        stated = {"title": self.title, "date": self.date, "rate": self.rate}
        always = {"product": self.product, "version": self.version, "method": self.method}
        counted = {"kept_exactly": list(self.kept), "records": self.records, "tolerance": self.tolerance}
        return {**always, **counted, **{name: value for name, value in stated.items() if value not in ("", None)}}


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """The public table, its schema, and the public facts."""

    table: pa.Table = field(repr=False)
    schema: Schema = field(repr=False)
    facts: PublicFacts

    def __post_init__(self) -> None:
        if tuple(self.table.column_names) != self.schema.names or self.table.schema.metadata:
            raise InternalError("the released table is not what its schema says", code="schema-mismatch")


def is_index_column(name: str) -> bool:
    """Whether a column is what a dataframe library leaves behind when it writes its row numbers.

    >>> [is_index_column(name) for name in ("__index_level_0__", "Unnamed: 0", "Age")]
    [True, True, False]
    """
    return not name or _INDEX_COLUMN.fullmatch(name) is not None


def released_names(schema: Schema, *, identifiers: Identifiers = "new", drop: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns that a release of such a file has.

    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"), Attribute(name="A"), Attribute(name="B")))
    >>> released_names(schema, identifiers="none", drop=["B"])
    ('A',)
    """
    for name in drop:
        schema[name]
    left_out = {a.name for a in schema.attributes if is_index_column(a.name)} | set(drop)
    if identifiers == "none":
        left_out |= {a.name for a in schema.iter_kind(Kind.IDENTIFIER)}
    kept = [name for name in schema.names if name not in left_out]
    if all(schema[name].kind is Kind.IDENTIFIER for name in kept):
        raise SpecError("no column is left to release", code="nothing-left", hint="drop fewer columns")
    return tuple(kept)


def prepare_release(
    data: Microdata,
    *,
    key: Key,
    facts: PublicFacts,
    context: Sequence[str | int] = (),
    identifiers: Identifiers = "new",
    drop: Sequence[str] = (),
) -> tuple[Release, Integers]:
    """What may leave of a masked file, and (confidential) the original row of each released one.

    Rows stand in an order drawn with the key. Record identifiers number the rows of that order, or are left out;
    household identifiers become numbers drawn with the key, the same for all members. Categories are those that
    occur, in the order of the schema or else sorted. Whatever else came with the file is left behind.

    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"), Attribute(name="Sex")))
    >>> data = Microdata(pa.table({"id": [901, 902, 903], "Sex": ["m", "f", "m"]}), schema)
    >>> release, rows = prepare_release(data, key=Key.generate(), facts=PublicFacts(method="none", records=3))
    >>> release.table["id"].to_pylist(), release.schema["Sex"].levels, sorted(rows.tolist())
    ([1, 2, 3], ('f', 'm'), [0, 1, 2])
    """
    refuse_insecure(key)
    names = released_names(data.schema, identifiers=identifiers, drop=drop)
    rows = _row_order(data, key, context)
    index = pa.array(rows)
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        released = partial(_released, index=index, key=key, context=context)
        columns = list(threads.map(released, (data.schema[n] for n in names), (data.table.column(n) for n in names)))
    table = pa.table([c.values for c in columns], names=list(names))
    schema = Schema(name=facts.title, label=facts.title, attributes=tuple(c.attribute for c in columns))
    return Release(table=table, schema=schema, facts=facts), rows


def refuse_insecure(key: Key) -> None:
    """What an insecure seed has made cannot be released."""
    if not key.releasable:
        raise UnsafeRelease(
            "this was made from an insecure seed and is not for release",
            code="not-for-release",
            hint="mask again with a secret key (`safeswap keygen`)",
        )


def _row_order(data: Microdata, key: Key, context: Sequence[str | int]) -> Integers:
    identifier = data.schema.identifier
    if identifier is None:
        return keyed_order(np.arange(len(data)), _derived(key, "row-order", *context))
    column = data.table.column(identifier.name)
    return keyed_order(names_of(column, _derived(key, "mac")), _derived(key, "row-order", *context))


def _released(
    attribute: Attribute, column: pa.ChunkedArray, *, index: pa.Array, key: Key, context: Sequence[str | int]
) -> Released:
    if attribute.kind is Kind.IDENTIFIER:
        return Released(_plain(attribute), pa.array(np.arange(1, len(column) + 1, dtype=_counting(len(column)))))
    if attribute.kind is Kind.HOUSEHOLD:
        derived = _derived(key, "new-identifiers", attribute.name, *context)
        return Released(_plain(attribute), _renumbered(column, derived, _derived(key, "mac")).take(index))
    return released_column(attribute, column, index)


def _renumbered(column: pa.ChunkedArray, key: bytes, mac_key: bytes) -> pa.Array:
    """Numbers 1, 2, … in keyed order instead of the distinct values; missing stays missing."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode().combine_chunks()
    order = keyed_order(names_of(pa.chunked_array([encoded.dictionary]), mac_key), key)
    number = np.empty(len(order), dtype=_counting(len(order)))
    number[order] = np.arange(1, len(order) + 1)
    return pa.array(number).take(encoded.indices)


def _counting(largest: int) -> type[np.int32 | np.int64]:
    return np.int32 if largest < 2**31 else np.int64


def _plain(attribute: Attribute) -> Attribute:
    """New numbers stand in the column: a label that speaks of the old ones stays inside."""
    return Attribute(name=attribute.name, kind=attribute.kind)


def _derived(key: Key, stage: str, *context: str | int) -> bytes:
    from safeswap.kernels.keyed import derive

    return derive(key.secret, "release", stage, *context)
