"""Tables of counts: n-way, with named variables and levels, alone or several that share variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.arrays.table_lines import Axes
from safeswap.arrays.types import Counts, Floats
from safeswap.errors import InputError, SpecError
from safeswap.model.columns import rank_columns, ranked_levels, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts, refuse_date
from safeswap.model.text import list_names, plural

MOST_CELLS = 1 << 26
"""The largest number of cells, empty ones included; larger tables are refused."""

MISSING = "(missing)"
"""The name of the missing level in a table."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CountTable:
    """Counts by some variables, empty cells included. Levels are texts, in the order of the axes of ``counts``.

    ``weighted`` has the sum of the weights of each cell, its estimate in the population, where the file has a weight.

    >>> table = CountTable.from_array([[4, 0], [1, 6]], names=("Region", "Sex"))
    >>> table.margin(("Region",)).tolist(), table.small(3).tolist()
    ([4, 7], [[False, False], [True, False]])
    """

    names: Names
    levels: tuple[Names, ...]
    counts: Counts
    weighted: Floats | None = None

    @classmethod
    def from_array(
        cls, counts: Any, *, names: Sequence[str] | None = None, levels: Sequence[Sequence[str]] | None = None
    ) -> CountTable:
        """Build a table from an array; unnamed variables and levels are numbered."""
        found = whole_counts(counts)
        names = tuple(names) if names is not None else tuple(f"axis {axis}" for axis in range(found.ndim))
        if len(names) != found.ndim or len(set(names)) != len(names):
            raise SpecError(
                f"the table has {found.ndim} axes and {len(names)} names",
                code="bad-table",
                hint="give each axis of the array its own name",
            )
        given = [tuple(str(n) for n in range(size)) for size in found.shape] if levels is None else levels
        if tuple(map(len, given)) != found.shape:
            raise SpecError(
                "levels and axes do not have the same sizes", code="bad-table", hint="name every level once"
            )
        return cls(names=names, levels=tuple(tuple(each) for each in given), counts=found)

    @property
    def ways(self) -> int:
        """The number of variables."""
        return len(self.names)

    @property
    def total(self) -> int:
        """The number of records counted."""
        return int(self.counts.sum())

    def axes_of(self, names: Sequence[str]) -> Axes:
        """Return the axes of some variables, ascending."""
        for name in names:
            if name not in self.names:
                raise SpecError(
                    f"the table has no variable {name!r}",
                    code="unknown-variable",
                    hint="its variables are: " + list_names(self.names),
                    variable=name,
                )
        return tuple(sorted({self.names.index(name) for name in names}))

    def margin(self, names: Sequence[str]) -> Counts:
        """Return the counts by some variables, in the order of the table's axes."""
        kept = self.axes_of(names)
        summed: Counts = np.asarray(self.counts.sum(axis=tuple(a for a in range(self.ways) if a not in kept)))
        return summed

    def small(self, tolerance: int) -> npt.NDArray[np.bool_]:
        """Return the cells above 0 and below the tolerance."""
        flags: npt.NDArray[np.bool_] = (self.counts > 0) & (self.counts < tolerance)
        return flags

    def with_counts(self, counts: Counts) -> CountTable:
        """Return the same variables with other counts."""
        return replace(self, counts=counts, weighted=None)

    def __repr__(self) -> str:
        sizes = " × ".join(f"{name} ({size})" for name, size in zip(self.names, self.counts.shape, strict=True))
        return f"<CountTable {sizes}: {plural(self.total, 'record')}>"


@dataclass(frozen=True, eq=False, kw_only=True)
class Programme:
    """Several tables of the same records: where they share variables, they share margins.

    >>> one = CountTable.from_array([[4, 0], [1, 6]], names=("Region", "Sex"))
    >>> other = CountTable.from_array([[3, 1], [5, 2]], names=("Region", "Tenure"))
    >>> Programme(tables=(one, other)).links
    ((0, 1, ('Region',)),)
    """

    tables: tuple[CountTable, ...]

    def __post_init__(self) -> None:
        if not self.tables:
            raise SpecError("a programme needs at least one table", code="bad-table", hint="name its tables")
        if len({frozenset(table.names) for table in self.tables}) != len(self.tables):
            raise SpecError("two tables have the same variables", code="bad-table", hint="name each table once")
        for first, second, shared in self.links:
            _check_link(self.tables[first], self.tables[second], shared)

    @property
    def links(self) -> tuple[tuple[int, int, Names], ...]:
        """The pairs of tables and their shared variables; without any, they still share the total."""
        pairs = combinations(range(len(self.tables)), 2)
        return tuple((a, b, tuple(n for n in self.tables[a].names if n in self.tables[b].names)) for a, b in pairs)


def _check_link(one: CountTable, other: CountTable, shared: Names) -> None:
    for name in shared:
        if one.levels[one.names.index(name)] != other.levels[other.names.index(name)]:
            raise InputError(
                f"two tables do not have the same levels of {name!r}",
                code="levels-disagree",
                hint="use the same levels, in the same order, in all tables",
                variable=name,
            )
    order = [n for n in other.names if n in shared]
    margin = other.margin(shared).transpose([order.index(name) for name in shared])
    differ = int(np.count_nonzero(one.margin(shared) != margin))
    if differ:
        raise InputError(
            f"the margins that {' × '.join(one.names)} and {' × '.join(other.names)} share do not agree: {differ:,} of "
            f"{plural(margin.size, 'figure')} by {list_names(shared) or 'total'} differ",
            code="margins-disagree",
            hint="tabulate all tables of a programme from one file, or correct the counts",
            shared=list(shared),
        )


def whole_counts(values: Any) -> Counts:
    """Convert counts to 64-bit integers; refuse invalid ones with the reason and the number of bad cells.

    >>> whole_counts([[1.0, 2.0]]).dtype
    dtype('int64')
    """
    try:
        found = np.asarray(values)
        numbers = found if found.dtype.kind in "iu" else found.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "a table of counts must hold numbers", code="bad-table", hint="give one count per cell"
        ) from None
    if numbers.ndim == 0 or numbers.size == 0:
        raise InputError("the table has no cell", code="empty-table", hint="give at least one variable with one level")
    if numbers.dtype.kind == "f":
        _refuse(~np.isfinite(numbers), "are missing or infinite", "missing-count", "an empty cell has the count 0")
        _refuse(numbers != np.floor(numbers), "are not whole", "fractional-count", "SAFE is for counts of records")
    _refuse(numbers < 0, "are negative", "negative-count", "a count of records is 0 or more")
    _refuse(numbers > 2**53, "are too large", "too-large", "a count is at most 2**53")
    counts: Counts = numbers.astype(np.int64)
    if not counts.any():
        raise InputError("every cell of the table is 0", code="empty-table", hint="give a table that counts records")
    return counts


def _refuse(bad: npt.NDArray[np.bool_], what: str, code: str, hint: str) -> None:
    if bad.any():
        first = [int(level) for level in np.argwhere(bad)[0]]
        number = int(np.count_nonzero(bad))
        raise InputError(
            f"{number:,} of {bad.size:,} counts {what}; the first is at {tuple(first)}",
            code=code,
            hint=hint,
            cells=number,
            first=first,
        )


def tabulate(data: Microdata, names: Sequence[str], *, weighted: bool = False) -> CountTable:
    """Tabulate a file by some attributes, levels in the order of the schema or of the values.

    With ``weighted``, the weights of each cell are summed too, if every record has one that can be used.

    >>> from safeswap import datasets
    >>> tabulate(datasets.cps8d(), ["Sex", "Race"]).total
    48842
    """
    check_table_names(data, names)
    columns, sizes = rank_columns(data, tuple(names))
    if prod(sizes) > MOST_CELLS:
        raise InputError(
            f"the table by {list_names(names)} would have {prod(sizes):,} cells; the limit is {MOST_CELLS:,}",
            code="too-many-cells",
            hint="recode attributes to fewer levels, or leave one out",
        )
    packed, possible = cells.pack(columns, sizes)
    counts = cells.count_dense(packed, possible).astype(np.int64).reshape(sizes)
    weights = _usable_weights(data) if weighted else None
    sums: Floats | None = None
    if weights is not None:
        sums = np.bincount(packed.astype(np.int64), weights, possible).astype(np.float64).reshape(sizes)
    levels = tuple(tuple(level_texts(ranked_levels(data, name))) for name in names)
    padded = tuple(each + (MISSING,) * (size - len(each)) for each, size in zip(levels, sizes, strict=True))
    return CountTable(names=tuple(names), levels=padded, counts=counts, weighted=sums)


def _usable_weights(data: Microdata) -> Floats | None:
    """Return the weight of each record; None without one, or if some are missing, infinite or not positive."""
    if data.schema.weight is None:
        return None
    found = to_numbers(data, data.schema.weight.name)
    return found if bool((np.isfinite(found) & (found > 0)).all()) else None


def check_table_names(data: Microdata, names: Sequence[str]) -> None:
    """Refuse attributes that cannot form a table, and repeated ones."""
    if not names or len(set(names)) != len(names):
        raise SpecError(
            "name a table by its attributes, each once", code="bad-table", hint='for example ("Region", "Sex")'
        )
    for name in names:
        kind = data.schema[name].kind
        refuse_date(data.schema, name)
        if not kind.is_categorical:
            raise SpecError(
                f"{name!r} is {kind.value}: a table is formed from categorical attributes",
                code="not-categorical",
                hint="describe it as nominal or ordinal in the schema; recode a continuous item into ranges",
                attribute=name,
            )


def check_tolerance(tolerance: Any) -> None:
    """Refuse a tolerance under which every count would be safe."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, np.integer)) or not 2 <= tolerance < 2**53:
        raise SpecError(
            "the tolerance must be a whole number from 2 to 2**53: the smallest count above 0 that may be published",
            code="bad-tolerance",
            hint="3 is common; below 2 every count would be safe",
        )


def long_table(table: CountTable, columns: Mapping[str, Counts | Floats]) -> pa.Table:
    """Return the cells of a table as rows: a column per variable, then the given figures of each cell.

    >>> table = CountTable.from_array([[4, 0]], names=("Region", "Sex"))
    >>> long_table(table, {"count": table.counts}).to_pylist()[1]
    {'Region': '0', 'Sex': '1', 'count': 0}
    """
    index = np.indices(table.counts.shape).reshape(table.ways, -1)
    variables = {
        name: pa.DictionaryArray.from_arrays(pa.array(index[axis].astype(np.int32)), pa.array(table.levels[axis]))
        for axis, name in enumerate(table.names)
    }
    return pa.table({**variables, **{name: pa.array(figures.ravel()) for name, figures in columns.items()}})
