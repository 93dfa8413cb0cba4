"""Tables of counts in long form: a row per cell, a column per variable and one with the count."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Counts, Rows
from safeswap.errors import InputError, SpecError
from safeswap.files.columns import normalise_table
from safeswap.files.frames import NATIVE, find_handler, from_frame
from safeswap.files.read import is_frame, read
from safeswap.files.write import write
from safeswap.methods.safe.spec import SafeTables
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.schema import level_texts
from safeswap.model.table import MISSING, MOST_CELLS, CountTable, Programme, long_table, tabulate, whole_counts
from safeswap.model.text import list_names, plural

COUNT = "count"


@dataclass(frozen=True, eq=False, kw_only=True)
class LongCounts:
    """A table in long form: its rows and the cell of each, to return the result in the same form."""

    table: CountTable
    rows: pa.Table
    count: str
    cells: Rows
    frame: Any = None


def long_counts(source: Any, *, count: str = COUNT, **options: Any) -> LongCounts:
    """Read a table of counts from a dataframe or file in long form. Cells without a row are 0.

    Levels are in order of appearance. ``options`` are those of reading a file.

    >>> rows = pa.table({"Region": ["N", "N", "S"], "Sex": ["f", "m", "m"], "count": [4, 2, 7]})
    >>> long_counts(rows).table.counts.tolist()
    [[4, 2], [0, 7]]
    """
    rows = _rows(source, options)
    if count not in rows.column_names:
        raise InputError(
            f"there is no column {count!r} that holds the counts",
            code="no-count-column",
            hint="name it (count=…), or the tables of a file of records; the columns are: "
            + ", ".join(rows.column_names[:20]),
            column=count,
        )
    names = tuple(name for name in rows.column_names if name != count)
    if not names or not rows.num_rows:
        raise InputError(
            "the table has no cell", code="empty-table", hint="give a column per variable and a row per cell"
        )
    coded = [code_column(rows.column(name)) for name in names]
    sizes = [each.cardinality for each in coded]
    if prod(sizes) > MOST_CELLS:
        raise InputError(
            f"the table would have {plural(prod(sizes), 'cell')}; the limit is {MOST_CELLS:,}",
            code="too-many-cells",
            hint="merge levels, or leave out a variable",
        )
    cells = np.ravel_multi_index([each.codes.astype(np.int64) for each in coded], sizes).astype(np.int64)
    _refuse_repeated(cells, names)
    counts = np.zeros(prod(sizes), dtype=np.int64)
    counts[cells] = whole_counts(_numbers(rows.column(count), count))
    levels = tuple((*level_texts(each.levels), *([MISSING] if each.has_missing else [])) for each in coded)
    table = CountTable(names=names, levels=levels, counts=counts.reshape(sizes))
    return LongCounts(table=table, rows=rows, count=count, cells=cells, frame=source if is_frame(source) else None)


def to_long(result: SafeTables, *, number: int = 0, like: Any = None) -> Any:
    """Return a safe table in long form: if it was given so, in the caller's own type and rows, with the new counts.

    Cells that had no row and now have a count are appended. Other tables have a row for every cell. ``like`` is a
    dataframe, or "pandas", "polars" or "arrow".

    >>> from safeswap.workflow import safe_table
    >>> rows = pa.table({"Region": ["N", "N", "S", "S"], "Sex": ["f", "m", "f", "m"], "count": [4, 9, 9, 9]})
    >>> to_long(safe_table(rows, 5))["count"].to_pylist()
    [5, 8, 8, 10]
    """
    if not 0 <= number < len(result.tables):
        raise SpecError(
            f"there is no table {number}",
            code="no-such-table",
            hint="tables are numbered from 0",
            tables=len(result.tables),
        )
    changed = result.tables[number]
    origin = result.origin[number] if result.origin else None
    if origin is None:
        made = long_table(changed.after, {COUNT: changed.after.counts})
    else:
        made = _update_rows(origin, changed.after.counts)
    if like is None:
        native = NATIVE["arrow"] if origin is None or origin.frame is None else find_handler(_native(origin.frame))
    else:
        native = NATIVE[like] if isinstance(like, str) else find_handler(_native(like))
    return native.from_arrow(made)


def write_long(result: SafeTables, path: str | PathLike[str], *, number: int = 0, force: bool = False) -> Path:
    """Write one of the safe tables in long form, as csv or parquet."""
    write(to_long(result, number=number, like="arrow"), path, force=force)
    return Path(path)


def _update_rows(origin: LongCounts, counts: Counts) -> pa.Table:
    flat = counts.ravel()
    listed = np.zeros(flat.size, dtype=np.bool_)
    listed[origin.cells] = True
    added = np.flatnonzero(~listed & (flat > 0))
    index = np.unravel_index(added, counts.shape)
    columns: dict[str, Any] = {}
    axis = 0
    for name in origin.rows.column_names:
        column = origin.rows.column(name)
        if name == origin.count:
            columns[name] = pa.array(flat[np.concatenate([origin.cells, added])])
            continue
        # A value of a cell without a row is copied from the first row that has it.
        places = np.unravel_index(origin.cells, counts.shape)[axis]
        first = np.full(counts.shape[axis], -1)
        first[places[::-1]] = np.arange(len(places))[::-1]
        columns[name] = column.take(pa.array(np.concatenate([np.arange(len(places)), first[index[axis]]])))
        axis += 1
    return pa.table(columns)


def _rows(source: Any, options: dict[str, Any]) -> pa.Table:
    if is_frame(source):
        return normalise_table(from_frame(source))

    return read(source, **options).table


def _numbers(column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        plain = column if pa.types.is_integer(column.type) else pc.cast(column, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"column {name!r} does not hold numbers", code="bad-table", hint="give one count per cell", column=name
        ) from None
    if plain.null_count:
        raise InputError(
            f"{plain.null_count:,} counts are missing",
            code="missing-count",
            hint="an empty cell has the count 0, or no row",
            column=name,
        )
    numbers: npt.NDArray[Any] = plain.to_numpy()
    return numbers


def _refuse_repeated(cells: Rows, names: tuple[str, ...]) -> None:
    repeated = len(cells) - len(np.unique(cells))
    if repeated:
        raise InputError(
            f"{plural(repeated, 'row repeats', 'rows repeat')} a cell by {list_names(names)}",
            code="repeated-cell",
            hint="give each cell one row; omit totals, which follow from the cells",
            rows=repeated,
        )


def _native(frame: Any) -> Any:
    import narwhals as nw

    return nw.to_native(frame, pass_through=True)


def count_tables(
    source: Any, *, attributes: Any, names: Any, count: str, reading: dict[str, Any]
) -> tuple[Programme, list[LongCounts | None]]:
    """Return the tables of a source, and the rows of those in long form.

    >>> programme, _ = count_tables([[4, 1]], attributes=None, names=None, count="count", reading={})
    >>> programme.tables[0].counts.tolist()
    [[4, 1]]
    """
    if isinstance(source, Programme):
        return source, [None] * len(source.tables)
    if isinstance(source, CountTable):
        return Programme(tables=(source,)), [None]
    if attributes is not None:
        data = source if isinstance(source, Microdata) and not reading else read(source, **reading)
        tables = tuple(tabulate(data, each, weighted=True) for each in table_names(attributes))
        return Programme(tables=tables), [None] * len(tables)
    if isinstance(source, Microdata):
        raise SpecError(
            "state which table to make", code="no-table", hint='name its attributes: attributes=["Region", "Sex"]'
        )
    if (
        isinstance(source, (list, tuple))
        and source
        and all(isinstance(each, (CountTable, LongCounts)) for each in source)
    ):
        given = [each if isinstance(each, LongCounts) else None for each in source]
        return Programme(tables=tuple(e.table if isinstance(e, LongCounts) else e for e in source)), given
    if isinstance(source, (list, tuple, np.ndarray)):
        return Programme(tables=(CountTable.from_array(source, names=names),)), [None]
    found = source if isinstance(source, LongCounts) else long_counts(source, count=count, **reading)
    return Programme(tables=(found.table,)), [found]


def table_names(stated: Any) -> list[tuple[str, ...]]:
    """Normalise one table (a list of names) or several (a list of lists) to a list of tuples.

    >>> table_names(["Region", "Sex"]), table_names([["Region", "Sex"], ["Sex"]])
    ([('Region', 'Sex')], [('Region', 'Sex'), ('Sex',)])
    """
    parts = [stated] if isinstance(stated, str) else list(stated)
    if all(isinstance(part, str) for part in parts):
        return [tuple(parts)]
    return [(part,) if isinstance(part, str) else tuple(part) for part in parts]
