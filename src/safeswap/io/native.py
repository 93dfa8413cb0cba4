"""What each dataframe library calls the few things that are needed of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from safeswap.errors import InputError
from safeswap.kernels.types import Rows


class Native(Protocol):
    """One type of dataframe."""

    name: str

    def handles(self, frame: Any) -> bool:
        """Whether the frame is of this type; imports nothing that is not imported yet."""
        ...

    def to_arrow(self, frame: Any) -> pa.Table:
        """The columns, without an index."""
        ...

    def from_arrow(self, table: pa.Table) -> Any:
        """A frame of this type."""
        ...

    def changed(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        """A copy in which the columns at some positions are reordered, and those at others replaced."""
        ...


class _Arrow:
    name = "arrow"

    def handles(self, frame: Any) -> bool:
        return isinstance(frame, (pa.Table, pa.RecordBatch))

    def to_arrow(self, frame: Any) -> pa.Table:
        return pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame

    def from_arrow(self, table: pa.Table) -> Any:
        return table

    def changed(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        table = self.to_arrow(frame)
        for position, rows in taken.items():
            table = table.set_column(position, table.field(position), _taken(table.column(position), rows))
        for position, column in replaced.items():
            table = table.set_column(position, table.field(position).with_type(column.type), column)
        if isinstance(frame, pa.RecordBatch):
            return pa.RecordBatch.from_struct_array(pa.concat_arrays(table.to_struct_array().chunks))
        return table


def _taken(column: pa.ChunkedArray, rows: Rows) -> pa.ChunkedArray:
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
                hint="correct the text where it was read, for example by its encoding",
                column=name,
            ) from None
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise _mixed(name) from None

    def from_arrow(self, table: pa.Table) -> Any:
        return table.to_pandas()

    def changed(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
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
    """A column as Arrow can hold it: the intervals that ``pandas.cut`` makes become their text, in their order."""
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
                raise _mixed(name)
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    def from_arrow(self, table: pa.Table) -> Any:
        import polars as pl

        return pl.DataFrame(pl.from_arrow(table))

    def changed(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
        import polars as pl

        columns = list(frame.get_columns())
        for position, rows in taken.items():
            columns[position] = columns[position].gather(pl.Series(rows))
        for position, column in replaced.items():
            columns[position] = pl.Series(columns[position].name, column)
        return pl.DataFrame(columns)


class _Other:
    """Whatever else narwhals knows with rows in memory."""

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

    def changed(self, frame: Any, taken: Mapping[int, Rows], replaced: Mapping[int, pa.ChunkedArray]) -> Any:
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


def _mixed(name: str) -> InputError:
    return InputError(
        f"column {name!r} mixes values of different types",
        code="mixed-types",
        hint="convert the column to one type, for example to text",
        column=name,
    )


NATIVE: dict[str, Native] = {native.name: native for native in (_Arrow(), _Pandas(), _Polars(), _Other())}
