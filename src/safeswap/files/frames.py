"""Convert dataframes to Arrow, and results back to the caller's own type.

Internally, data are Arrow tables. On the way back, columns that were not masked are the caller's own, and exchanged
ones are taken from the caller's own by position: dtypes, ``NaN`` and ``None``, categories and the index are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Rows
from safeswap.errors import InputError, SpecError
from safeswap.files.columns import normalise_table
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata


class Native(Protocol):
    """The few operations needed of a type of dataframe."""

    name: str

    def handles(self, frame: Any) -> bool:
        """Return whether the frame is of this type, without importing its library."""
        ...

    def to_arrow(self, frame: Any) -> pa.Table:
        """Return the columns, without an index."""
        ...

    def from_arrow(self, table: pa.Table) -> Any:
        """Return a frame of this type."""
        ...

    def change_columns(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        """Return a copy with the columns at some positions reordered, and those at others replaced."""
        ...


class _Arrow:
    name = "arrow"

    def handles(self, frame: Any) -> bool:
        return isinstance(frame, (pa.Table, pa.RecordBatch))

    def to_arrow(self, frame: Any) -> pa.Table:
        return pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame

    def from_arrow(self, table: pa.Table) -> Any:
        return table

    def change_columns(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        table = self.to_arrow(frame)
        for position, rows in taken.items():
            table = table.set_column(position, table.field(position), _take(table.column(position), rows))
        for position, column in replaced.items():
            table = table.set_column(position, table.field(position).with_type(column.type), column)
        if isinstance(frame, pa.RecordBatch):
            return pa.RecordBatch.from_struct_array(pa.concat_arrays(table.to_struct_array().chunks))
        return table


def _take(column: pa.ChunkedArray, rows: Rows) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):  # Arrow cannot take from views yet
        plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return column.cast(plain).take(pa.array(rows)).cast(kind)
    return column.take(pa.array(rows))


class _Pandas:
    name = "pandas"

    def handles(self, frame: Any) -> bool:
        from narwhals.dependencies import is_pandas_dataframe

        return bool(is_pandas_dataframe(frame))

    def to_arrow(self, frame: Any) -> pa.Table:
        if frame.columns.nlevels > 1:
            raise InputError(
                "the columns have names of several levels",
                code="nested-names",
                hint="flatten the column names to one level",
            )
        names = [str(name) for name in frame.columns]
        return pa.table([self._column(frame, i, name) for i, name in enumerate(names)], names=names)

    def _column(self, frame: Any, position: int, name: str) -> Any:
        try:
            return pa.array(_without_intervals(frame.iloc[:, position]), from_pandas=True)
        except UnicodeEncodeError:
            raise InputError(
                f"column {name!r} holds text with half of a character (a lone surrogate)",
                code="wrong-encoding",
                hint="correct the text at its source, for example its encoding",
                column=name,
            ) from None
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise _mixed_types_error(name) from None

    def from_arrow(self, table: pa.Table) -> Any:
        return table.to_pandas()

    def change_columns(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        import pandas as pd

        result = frame.copy(deep=False)
        for position, rows in taken.items():
            values = frame.iloc[:, position].array.take(rows)
            result.isetitem(position, pd.Series(values, index=frame.index, dtype=values.dtype))
        for position, column in replaced.items():
            values = column.to_pandas().array
            result.isetitem(position, pd.Series(values, index=frame.index))
        return result


def _without_intervals(series: Any) -> Any:
    """Convert the intervals that ``pandas.cut`` makes, which Arrow lacks, to ordered categories of text."""
    import pandas as pd

    if isinstance(series.dtype, pd.IntervalDtype):
        return series.astype(object).where(series.isna(), series.astype(str))
    if isinstance(series.dtype, pd.CategoricalDtype) and isinstance(series.cat.categories.dtype, pd.IntervalDtype):
        return series.cat.rename_categories(str)
    return series


class _Polars:
    name = "polars"

    def handles(self, frame: Any) -> bool:
        from narwhals.dependencies import is_polars_dataframe

        return bool(is_polars_dataframe(frame))

    def to_arrow(self, frame: Any) -> pa.Table:
        import polars as pl

        for name, dtype in frame.schema.items():
            if dtype == pl.Object:
                raise _mixed_types_error(name)
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    def from_arrow(self, table: pa.Table) -> Any:
        import polars as pl

        return pl.DataFrame(pl.from_arrow(table))

    def change_columns(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        import polars as pl

        columns = list(frame.get_columns())
        for position, rows in taken.items():
            columns[position] = columns[position].gather(pl.Series(rows))
        for position, column in replaced.items():
            columns[position] = pl.Series(columns[position].name, column)
        return pl.DataFrame(columns)


class _Other:
    """Any other in-memory dataframe that narwhals supports."""

    name = "other"

    def handles(self, frame: Any) -> bool:
        import narwhals as nw

        wrapped = nw.from_native(frame, eager_only=True, pass_through=True)
        return isinstance(wrapped, nw.DataFrame)

    def to_arrow(self, frame: Any) -> pa.Table:
        import narwhals as nw

        return nw.from_native(frame, eager_only=True).to_arrow()

    def from_arrow(self, table: pa.Table) -> Any:
        return table

    def change_columns(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        import narwhals as nw

        wrapped = nw.from_native(frame, eager_only=True)
        columns = [wrapped[name] for name in wrapped.columns]
        for position, rows in taken.items():
            columns[position] = columns[position][rows]
        for position, column in replaced.items():
            columns[position] = nw.new_series(
                wrapped.columns[position], column.to_pylist(), backend=wrapped.implementation
            )
        return wrapped.with_columns(*columns).to_native()


def _mixed_types_error(name: str) -> InputError:
    return InputError(
        f"column {name!r} mixes values of different types",
        code="mixed-types",
        hint="convert the column to one type, for example to text",
        column=name,
    )


NATIVE: dict[str, Native] = {native.name: native for native in (_Arrow(), _Pandas(), _Polars(), _Other())}


def from_frame(source: Any) -> pa.Table:
    """Return the columns of a dataframe as an Arrow table, without a pandas index.

    >>> import pandas
    >>> from_frame(pandas.DataFrame({"a": [1, 2]}, index=["x", "y"])).to_pydict()
    {'a': [1, 2]}
    """
    native = _unwrap(source)
    return find_handler(native).to_arrow(native)


def find_handler(frame: Any) -> Native:
    """Return the handler of this type of dataframe.

    >>> find_handler(pa.table({"a": [1]})).name
    'arrow'
    """
    for native in NATIVE.values():
        if native.handles(frame):
            return native
    raise InputError(
        f"a {type(frame).__name__} is neither a path nor a supported dataframe",
        code="unknown-source",
        hint="give a path, or a pandas, Polars or Arrow dataframe; collect a lazy one first",
        type=type(frame).__name__,
    )


def to_frame(data: Masked | Microdata, *, like: Any = None) -> Any:
    """Return the data as a dataframe of the caller's own type, or of the type of ``like``.

    ``like`` is a dataframe or one of "pandas", "polars", "arrow". Data that came from a file become an Arrow table.

    >>> import pandas
    >>> from safeswap.files.read import read
    >>> frame = pandas.DataFrame({"a": ["x", "y"], "b": [0.5, None]}, index=[7, 8])
    >>> to_frame(read(frame)).equals(frame)
    True
    >>> to_frame(read(frame), like="arrow").to_pydict()
    {'a': ['x', 'y'], 'b': [0.5, None]}
    """
    after = data.data if isinstance(data, Masked) else data
    origin = after.origin
    wanted = _choose_native(like, origin)
    if origin is None or not wanted.handles(_unwrap(origin)):
        return wanted.from_arrow(after.table)
    own = _unwrap(origin)
    taken = _source_rows(data, len(after)) if isinstance(data, Masked) else {}
    before = data.original.table if isinstance(data, Masked) else normalise_table(from_frame(origin))
    replaced = {
        position: after.table.column(position)
        for position, name in enumerate(after.attributes)
        if name not in taken and not _is_same(before.column(position), after.table.column(position))
    }
    positions = {after.attributes.index(name): source for name, source in taken.items()}
    return _rewrap(wanted.change_columns(own, positions, replaced), origin)


def to_frame_like(table: pa.Table, data: Microdata) -> Any:
    """Return a table of one row per record as a dataframe of the caller's type, with the caller's index.

    >>> import pandas
    >>> from safeswap.files.read import read
    >>> data = read(pandas.DataFrame({"a": ["x", "y"]}, index=[7, 8]))
    >>> to_frame_like(pa.table({"risk": [0.5, 1.0]}), data)["risk"].to_dict()
    {7: 0.5, 8: 1.0}
    """
    made = _choose_native(None, data.origin).from_arrow(table)
    if data.origin is None:
        return made
    own = _unwrap(data.origin)
    if NATIVE["pandas"].handles(own):
        made.index = own.index
    return _rewrap(made, data.origin)


def _choose_native(like: Any, origin: Any) -> Native:
    if like is None:
        return NATIVE["arrow"] if origin is None else find_handler(_unwrap(origin))
    if not isinstance(like, str):
        return find_handler(_unwrap(like))
    if like not in NATIVE or like == "other":
        raise SpecError(
            "there is no dataframe type of that name", code="unknown-frame", hint='use "pandas", "polars" or "arrow"'
        )
    return NATIVE[like]


def _source_rows(masked: Masked, records: int) -> Mapping[str, Rows]:
    """Return, for each exchanged attribute, the row that each value came from, over all stages.

    Attributes with replaced values are left out: they are taken from the result.
    """
    sources: dict[str, Rows] = {}
    rewritten = {replacement.attribute for replacement in masked.audit.all_replacements}
    for exchange in masked.audit.all_exchanges:
        step = exchange.permutation(records)
        for name in set(exchange.attributes) - rewritten:
            sources[name] = sources.get(name, np.arange(records, dtype=np.int64))[step]
    return sources


def _is_same(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    # Untouched columns share their memory; comparing values would also find NaN different from itself.
    return _addresses(before) == _addresses(after) or bool(before.equals(after))


def _addresses(column: pa.ChunkedArray) -> list[tuple[int, int, tuple[int, ...]]]:
    return [
        (len(chunk), chunk.offset, tuple(0 if b is None else b.address for b in chunk.buffers()))
        for chunk in column.chunks
    ]


def _unwrap(frame: Any) -> Any:
    import narwhals as nw

    return nw.to_native(frame) if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) else frame


def _rewrap(frame: Any, origin: Any) -> Any:
    import narwhals as nw

    return nw.from_native(frame, eager_only=True) if isinstance(origin, nw.DataFrame) else frame
