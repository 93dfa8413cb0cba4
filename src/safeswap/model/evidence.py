"""What the invariants are checked on: the two files and the audit, read independently of what masked them.

Nothing here trusts the codes that a method worked with, and nothing here uses the kernels: the Arrow columns
themselves are compared, bit by bit. Only rows that have changed according to the files, or that took part according
to the audit, are looked at one by one, so that the cost follows the number of exchanges.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.model.audit import Audit, Exchange
from safeswap.model.microdata import Microdata

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class Evidence:
    """The file before and after and the audit between them, with what has been found out about them so far.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="x"),))
    >>> before = Microdata(pa.table({"x": [0.0, 1.0]}), schema)
    >>> after = Microdata(pa.table({"x": [-0.0, 1.0]}), schema)
    >>> nothing = Audit(
    ...     method="",
    ...     spec={},
    ...     records=2,
    ...     asked=0,
    ...     feasible=0,
    ...     made=0,
    ...     exchanges=(),
    ...     key_id="",
    ...     releasable=True,
    ...     algorithm="",
    ... )
    >>> Evidence(before, after, nothing).changed("x").tolist()
    [True, False]
    """

    def __init__(self, before: Microdata, after: Microdata, audit: Audit) -> None:
        self.before = before
        self.after = after
        self.audit = audit
        self._changed: dict[str, Flags | None] = {}
        self._codes: dict[str, tuple[Integers, Integers]] = {}

    @cached_property
    def obstacle(self) -> str:
        """Why the two files and the audit cannot be compared at all; empty where they can."""
        if len(self.before) != len(self.after) or self.audit.records != len(self.before):
            return "the files before and after and the audit do not have the same number of records"
        if self.before.attributes != self.after.attributes:
            return "the files before and after do not have the same columns"
        for exchange in self.audit.exchanges:
            if exchange.pairs.ndim != 2 or exchange.pairs.shape[1] != 2:
                return "the audit holds something that is not a list of pairs"
            if len(exchange.pairs) and not 0 <= exchange.pairs.min() <= exchange.pairs.max() < len(self.before):
                return "the audit names rows that are not in the file"
            if unknown := set(exchange.attributes) - set(self.before.attributes):
                return f"the audit names an attribute that is not in the file: {min(unknown)}"
        return ""

    def changed(self, name: str) -> Flags | None:
        """Per row, whether the column holds another value than before; None where it is the same memory."""
        if name not in self._changed:
            before, after = self._columns(name)
            shared = same_memory(before, after)
            self._changed[name] = None if shared else different(*aligned_columns(before, after))
        return self._changed[name]

    @cached_property
    def rows(self) -> Integers:
        """The rows worth looking at: in an exchange according to the audit, or changed according to the files."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.audit.exchanges:
            flags[exchange.pairs.ravel()] = True
        for name in self.before.attributes:
            changed = self.changed(name)
            if changed is not None:
                np.logical_or(flags, changed, out=flags)
        return np.flatnonzero(flags)

    @cached_property
    def _position(self) -> npt.NDArray[np.int64]:
        position = np.zeros(len(self.before), dtype=np.int64)
        position[self.rows] = np.arange(len(self.rows))
        return position

    def pairs(self, exchange: Exchange) -> Integers:
        """The pairs of a stage as positions within ``rows``."""
        return self._position[exchange.pairs]

    def codes(self, name: str) -> tuple[Integers, Integers]:
        """The column over ``rows``, before and after, as integers that are equal where the values are."""
        if name not in self._codes:
            index = pa.array(self.rows)
            before, after = (column.take(index) for column in self._columns(name))
            self._codes[name] = as_codes(*aligned_columns(before, after))
        return self._codes[name]

    def stages(self, names: tuple[str, ...]) -> Iterator[tuple[Exchange, dict[str, Integers]]]:
        """Each exchange, with the codes of the named attributes as they stood just before it."""
        state = {name: self.codes(name)[0] for name in names}
        for exchange in self.audit.exchanges:
            yield exchange, dict(state)
            for name in exchange.attributes:
                if name in state:
                    state[name] = exchanged(state[name], self.pairs(exchange))

    def _columns(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        return self.before.table.column(name), self.after.table.column(name)


def exchanged(values: npt.NDArray[Any], pairs: Integers) -> npt.NDArray[Any]:
    """A copy in which the values of each pair of positions have changed places."""
    result = values.copy()
    result[pairs[:, 0]] = values[pairs[:, 1]]
    result[pairs[:, 1]] = values[pairs[:, 0]]
    return result


def same_memory(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns are views of the very same bytes; then no comparison could tell them apart."""
    if one.type != other.type or one.num_chunks != other.num_chunks:
        return False
    return all(_place(a) == _place(b) for a, b in zip(one.chunks, other.chunks, strict=True))


def _place(array: pa.Array) -> tuple[Any, ...]:
    place: tuple[Any, ...] = (array.offset, len(array), *(b.address if b else None for b in array.buffers()))
    return (*place, *_place(array.dictionary)) if pa.types.is_dictionary(array.type) else place


def aligned_columns(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Two columns in a form in which equality is equality of bits, dictionaries resolved to common codes."""
    if pa.types.is_dictionary(before.type) and pa.types.is_dictionary(after.type):
        common = _common_codes(before, after)
        if common is not None:
            return common
    return bitwise(before), bitwise(after)


def bitwise(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose equality is equality of bits: NaN equals itself, −0.0 is not 0.0, text is plain text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return bitwise(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width]
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], type=bits)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column.cast(pa.string()) if pa.types.is_null(kind) else column


def _common_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """The indices of two dictionary columns where both use one and the same clean dictionary, else None."""
    if not before.num_chunks or not after.num_chunks:
        return None
    if any(chunk.dictionary.null_count for side in (before, after) for chunk in side.chunks):
        return None
    before, after = before.unify_dictionaries(), after.unify_dictionaries()
    levels, others = bitwise(_levels(before)), bitwise(_levels(after))
    if levels.type != others.type or not levels.equals(others) or len(levels.unique()) != len(levels):
        return None
    indices = [pa.chunked_array([chunk.indices for chunk in side.chunks]) for side in (before, after)]
    if indices[0].type != indices[1].type:
        indices = [side.cast(pa.int64()) for side in indices]
    return indices[0], indices[1]


def _levels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([column.chunk(0).dictionary])


def different(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Flags:
    """Per row, whether the value differs; missing equals missing only. Another type differs everywhere."""
    if before.type != after.type:
        return np.ones(len(before), dtype=np.bool_)
    flags: Flags = pc.fill_null(pc.not_equal(before, after), fill_value=True).to_numpy()
    if before.null_count and after.null_count:
        both = pc.and_(before.is_null(), after.is_null()).to_numpy()
        flags = flags & ~both
    return flags


def as_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[Integers, Integers]:
    """Two aligned columns as integers that are equal where the values are; missing is a value of its own."""
    if before.type != after.type:  # no value of one type is a value of the other
        return as_codes(before, before)[0], ~as_codes(after, after)[0]
    if pa.types.is_integer(before.type) and not before.null_count and not after.null_count:
        return before.to_numpy().astype(np.int64), after.to_numpy().astype(np.int64)
    together = pa.chunked_array([*before.chunks, *after.chunks], type=before.type)
    encoded = together.dictionary_encode().unify_dictionaries()
    parts = [chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks]
    codes = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    return codes[: len(before)], codes[len(before) :]
