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

from safeswap.kernels.types import Flags, Int64s
from safeswap.model.audit import Audit, Exchange
from safeswap.model.equality import aligned_columns, as_codes, different, same_memory
from safeswap.model.microdata import Microdata


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
        self._codes: dict[str, tuple[Int64s, Int64s]] = {}
        self._pairs: dict[int, Int64s] = {}
        self._common: dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}

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
        named = {name for exchange in self.audit.exchanges for name in exchange.attributes}
        named |= {replacement.attribute for replacement in self.audit.replacements}
        if unknown := named - set(self.before.attributes):
            return f"the audit names an attribute that is not in the file: {min(unknown)}"
        lists = [*(e.pairs for e in self.audit.exchanges), *(r.rows for r in self.audit.replacements)]
        if any(rows.size and not 0 <= rows.min() <= rows.max() < len(self.before) for rows in lists):
            return "the audit names rows that are not in the file"
        return ""

    def changed(self, name: str) -> Flags | None:
        """Per row, whether the column holds another value than before; None where it is the same memory."""
        if name not in self._changed:
            shared = same_memory(*self._columns(name))
            self._changed[name] = None if shared else different(*self._aligned(name))
        return self._changed[name]

    @cached_property
    def rows(self) -> Int64s:
        """The rows worth looking at: in an exchange according to the audit, or changed according to the files."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.audit.exchanges:
            flags[exchange.pairs.ravel()] = True
        for name in self.before.attributes:
            changed = self.changed(name)
            if changed is not None:
                np.logical_or(flags, changed, out=flags)
        return np.flatnonzero(flags)

    def pairs(self, exchange: Exchange) -> Int64s:
        """The pairs of a stage as positions within ``rows``."""
        if id(exchange) not in self._pairs:
            self._pairs[id(exchange)] = self._position[exchange.pairs].astype(np.int64)
        return self._pairs[id(exchange)]

    @cached_property
    def _position(self) -> npt.NDArray[Any]:
        # Only the rows that count are filled in: nobody asks for the others, and an empty array costs nothing.
        position = np.empty(len(self.before), dtype=np.int32 if len(self.before) < 2**31 else np.int64)
        position[self.rows] = np.arange(len(self.rows))
        return position

    def codes(self, name: str) -> tuple[Int64s, Int64s]:
        """The column over ``rows``, before and after, as integers that are equal where the values are."""
        if name not in self._codes:
            index = pa.array(self.rows)
            known = self._common.get(name)
            before, after = (column.take(index) for column in known or self._columns(name))
            self._codes[name] = as_codes(before, after) if known else as_codes(*aligned_columns(before, after))
        return self._codes[name]

    def stages(self, names: tuple[str, ...]) -> Iterator[tuple[Exchange, dict[str, Int64s]]]:
        """Each exchange, with the codes of the named attributes as they stood just before it."""
        state = {name: self.codes(name)[0] for name in names}
        for exchange in self.audit.exchanges:
            yield exchange, dict(state)
            for name in exchange.attributes:
                if name in state:
                    state[name] = exchanged(state[name], self.pairs(exchange))

    def _aligned(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Both columns in full; the common codes of dictionaries are kept, since looking through these is dear."""
        before, after = self._columns(name)
        aligned = aligned_columns(before, after)
        dictionaries = all(pa.types.is_dictionary(side.type) for side in (before, after))
        if dictionaries and all(pa.types.is_integer(side.type) for side in aligned):
            self._common[name] = aligned
        return aligned

    def _columns(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        return self.before.table.column(name), self.after.table.column(name)


def exchanged(values: npt.NDArray[Any], pairs: Int64s) -> npt.NDArray[Any]:
    """A copy in which the values of each pair of positions have changed places."""
    result = values.copy()
    result[pairs[:, 0]] = values[pairs[:, 1]]
    result[pairs[:, 1]] = values[pairs[:, 0]]
    return result
