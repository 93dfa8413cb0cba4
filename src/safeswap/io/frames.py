"""Dataframes in, and back out in the caller's own type.

Inside, data are Arrow tables. On the way back, columns that were not masked are the caller's own, and exchanged ones
are taken from the caller's own by position: dtypes, ``NaN`` and ``None``, categories, the index, all stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.errors import InputError, SpecError
from safeswap.io.columns import settled
from safeswap.io.native import NATIVE, Native
from safeswap.kernels.types import Rows
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata


def is_frame(source: object) -> bool:
    """Whether this is a dataframe rather than a path."""
    return not isinstance(source, (str, bytes)) and not hasattr(source, "__fspath__")


def from_frame(source: Any) -> pa.Table:
    """The columns of a dataframe as an Arrow table; a pandas index is no column.

    >>> import pandas
    >>> from_frame(pandas.DataFrame({"a": [1, 2]}, index=["x", "y"])).to_pydict()
    {'a': [1, 2]}
    """
    native = _unwrapped(source)
    return native_of(native).to_arrow(native)


def native_of(frame: Any) -> Native:
    """What knows how to handle this type of dataframe.

    >>> native_of(pa.table({"a": [1]})).name
    'arrow'
    """
    for native in NATIVE.values():
        if native.handles(frame):
            return native
    raise InputError(
        f"a {type(frame).__name__} is neither a path nor a dataframe that is known here",
        code="unknown-source",
        hint="give a path, or a pandas, Polars or Arrow dataframe; collect a lazy one first",
        type=type(frame).__name__,
    )


def to_frame(data: Masked | Microdata, *, like: Any = None) -> Any:
    """The data as a dataframe: of the caller's own type, or of that of ``like``.

    ``like`` is a dataframe or one of "pandas", "polars", "arrow". Data that came from a file become an Arrow table.

    >>> import pandas
    >>> from safeswap.io.read import read
    >>> frame = pandas.DataFrame({"a": ["x", "y"], "b": [0.5, None]}, index=[7, 8])
    >>> to_frame(read(frame)).equals(frame)
    True
    >>> to_frame(read(frame), like="arrow").to_pydict()
    {'a': ['x', 'y'], 'b': [0.5, None]}
    """
    after = data.data if isinstance(data, Masked) else data
    origin = after.origin
    wanted = _wanted(like, origin)
    if origin is None or not wanted.handles(_unwrapped(origin)):
        return wanted.from_arrow(after.table)
    own = _unwrapped(origin)
    taken = _sources(data, len(after)) if isinstance(data, Masked) else {}
    before = data.original.table if isinstance(data, Masked) else settled(from_frame(origin))
    replaced = {
        position: after.table.column(position)
        for position, name in enumerate(after.attributes)
        if name not in taken and not _same(before.column(position), after.table.column(position))
    }
    positions = {after.attributes.index(name): source for name, source in taken.items()}
    return _rewrapped(wanted.changed(own, positions, replaced), origin)


def beside(table: pa.Table, data: Microdata) -> Any:
    """A table of one row per record as a dataframe of the caller's own type, with the index of the caller's own.

    >>> import pandas
    >>> from safeswap.io.read import read
    >>> data = read(pandas.DataFrame({"a": ["x", "y"]}, index=[7, 8]))
    >>> beside(pa.table({"risk": [0.5, 1.0]}), data)["risk"].to_dict()
    {7: 0.5, 8: 1.0}
    """
    made = _wanted(None, data.origin).from_arrow(table)
    if data.origin is None:
        return made
    own = _unwrapped(data.origin)
    if NATIVE["pandas"].handles(own):
        made.index = own.index
    return _rewrapped(made, data.origin)


def _wanted(like: Any, origin: Any) -> Native:
    if like is None:
        return NATIVE["arrow"] if origin is None else native_of(_unwrapped(origin))
    if not isinstance(like, str):
        return native_of(_unwrapped(like))
    if like not in NATIVE or like == "other":
        raise SpecError(
            "there is no dataframe type of that name", code="unknown-frame", hint='use "pandas", "polars" or "arrow"'
        )
    return NATIVE[like]


def _sources(masked: Masked, records: int) -> Mapping[str, Rows]:
    """For each exchanged attribute the row from which each value came, all stages together.

    Attributes in which values were also replaced are left out: they come from the result.
    """
    sources: dict[str, Rows] = {}
    rewritten = {replacement.attribute for replacement in masked.audit.replacements}
    for exchange in masked.audit.exchanges:
        step = exchange.permutation(records)
        for name in set(exchange.attributes) - rewritten:
            sources[name] = sources.get(name, np.arange(records, dtype=np.int64))[step]
    return sources


def _same(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    # Columns nobody touched share their memory; comparing values would also find NaN different from itself.
    return _addresses(before) == _addresses(after) or bool(before.equals(after))


def _addresses(column: pa.ChunkedArray) -> list[tuple[int, int, tuple[int, ...]]]:
    return [
        (len(chunk), chunk.offset, tuple(0 if b is None else b.address for b in chunk.buffers()))
        for chunk in column.chunks
    ]


def _unwrapped(frame: Any) -> Any:
    import narwhals as nw

    return nw.to_native(frame) if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) else frame


def _rewrapped(frame: Any, origin: Any) -> Any:
    import narwhals as nw

    return nw.from_native(frame, eager_only=True) if isinstance(origin, nw.DataFrame) else frame
