"""A table to make safe, in the solvers' form: flat counts, the allowed values of each cell, and the lines to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.names import Names
from safeswap.arrays.table_lines import Axes, drop_implied_margins, line_ids, line_sums, list_largest_margins
from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.model.table import CountTable, check_tolerance
from safeswap.model.text import list_names, plural

UNLIMITED = 1 << 40


@dataclass(frozen=True, eq=False, kw_only=True)
class TableProblem:
    """Cells are numbered as by ``ravel``. A cell may be 0 where ``zero_ok``, or between ``low`` and ``high``.

    >>> table = CountTable.from_array([[4, 5], [1, 6]])
    >>> problem = table_problem(table, tolerance=3)
    >>> problem.keep, problem.lines, problem.low.tolist(), problem.high.tolist()
    (((0,), (1,)), 4, [3, 3, 3, 3], [5, 9, 5, 7])
    """

    shape: tuple[int, ...]
    names: Names
    counts: Int64s
    tolerance: int
    keep: tuple[Axes, ...]
    zero_ok: Flags
    low: Int64s
    high: Int64s
    weights: Floats

    @cached_property
    def _numbered(self) -> tuple[npt.NDArray[np.int32], int]:
        return line_ids(self.shape, self.keep)

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """The line of each cell in each kept margin."""
        return self._numbered[0]

    @property
    def lines(self) -> int:
        """The number of kept figures."""
        return self._numbered[1]

    @cached_property
    def totals(self) -> Int64s:
        """The kept figures."""
        return line_sums(self.counts, self.ids, self.lines)

    def limit(self, most: int) -> TableProblem:
        """Return the problem in which no cell may change by more than ``most``."""
        return replace(
            self,
            zero_ok=self.zero_ok & (self.counts <= most),
            low=np.maximum(self.low, self.counts - most),
            high=np.minimum(self.high, self.counts + most),
        )

    def is_safe(self, x: Int64s) -> bool:
        """Return True if every cell has an allowed value."""
        return bool((((x == 0) & self.zero_ok) | ((x >= self.low) & (x <= self.high))).all())

    def excess(self, x: Int64s) -> Int64s:
        """Return the excess of each kept figure of ``x``."""
        return line_sums(x - self.counts, self.ids, self.lines)

    def solves(self, x: Int64s) -> bool:
        """Return True if this is a safe table with the kept margins."""
        return self.is_safe(x) and not self.excess(x).any()

    def change(self, x: Int64s) -> float:
        """Return the weighted sum of all absolute changes."""
        return float(self.weights @ np.abs(x - self.counts))

    def position(self, line: int) -> tuple[Names, tuple[int, ...]]:
        """Return the margin of a kept figure, and the position in it."""
        for axes in self.keep:
            sizes = [self.shape[axis] for axis in axes]
            number = int(np.prod(sizes, dtype=np.int64))
            if line < number:
                place = np.unravel_index(line, sizes) if axes else ()
                return tuple(self.names[axis] for axis in axes), tuple(int(level) for level in place)
            line -= number
        raise IndexError(line)


def table_problem(
    table: CountTable,
    *,
    tolerance: int,
    keep: Sequence[Sequence[str]] | Mapping[Sequence[str], Any] | None = None,
    weights: Any = None,
    bounds: tuple[Any, Any] | None = None,
    structural_zeros: Any = None,
    soft: bool = False,
) -> TableProblem:
    """Check a request for one table and put it into the solvers' form.

    No cell exceeds a kept figure that it is part of, unless kept figures may be off (``soft``).
    """
    check_tolerance(tolerance)
    axes = list_largest_margins(table.ways) if keep is None else _kept_axes(table, keep)
    counts = table.counts.ravel()
    ids, lines = line_ids(table.counts.shape, axes)
    capped = axes and not soft
    most = line_sums(counts, ids, lines)[ids].min(axis=0) if capped else np.full(counts.size, UNLIMITED)
    fixed = _flag_structural_zeros(table, structural_zeros)
    lower, upper = _bounds(table, bounds)
    return TableProblem(
        shape=table.counts.shape,
        names=table.names,
        counts=counts,
        tolerance=tolerance,
        keep=axes,
        zero_ok=fixed | (lower <= 0),
        low=np.maximum(lower, tolerance),
        high=np.where(fixed, 0, np.minimum(upper, most)),
        weights=_weights(table, weights),
    )


def table_problems(
    tables: Sequence[CountTable],
    *,
    tolerance: int,
    keep: Any = None,
    objective: str = "total",
    weights: Any = None,
    bounds: Any = None,
    structural_zeros: Any = None,
    soft: bool = False,
) -> list[TableProblem]:
    """Return the problems of several tables. A margin is kept in every table that has its variables."""
    if (weights is not None) != (objective == "weighted"):
        raise SpecError(
            'weights and objective="weighted" belong together',
            code="bad-weights",
            hint='give weights=… with objective="weighted", and only then',
        )
    several = len(tables) > 1
    problems = []
    stated = {"weights": weights, "bounds": bounds, "structural_zeros": structural_zeros}
    each = {name: _list_per_table(name, value, len(tables)) for name, value in stated.items()}
    for number, table in enumerate(tables):
        own = {name: values[number] for name, values in each.items()}
        kept = (
            keep
            if keep is None or not several
            else [names for names in _margins(keep) if set(names) <= set(table.names)]
        )
        problems.append(table_problem(table, tolerance=tolerance, keep=kept, soft=soft, **own))
    known = {name for table in tables for name in table.names}
    for names in _margins(keep or ()):
        for name in sorted(set(names) - known):
            tables[0].axes_of([name])
        if several and not any(set(names) <= set(table.names) for table in tables):
            raise SpecError(
                f"no table has the variables of the margin by {list_names(names)}",
                code="unknown-margin",
                hint="a kept margin must be part of a table",
            )
    return problems


def _list_per_table(name: str, stated: Any, tables: int) -> Sequence[Any]:
    """Return what is stated for each table: a list for several tables, unless it is None or one word for all."""
    if tables == 1 or stated is None or isinstance(stated, str):
        return [stated] * tables
    if not isinstance(stated, (list, tuple)) or len(stated) != tables:
        raise SpecError(
            f"{name} of {plural(tables, 'table')} are a list with one entry for each table",
            code="bad-spec",
            hint=f"give {name} as a list in the order of the tables, None for a table without",
        )
    return stated


def _margins(keep: Any) -> list[Names]:
    return [(names,) if isinstance(names, str) else tuple(names) for names in keep]


def _kept_axes(table: CountTable, keep: Sequence[Sequence[str]] | Mapping[Sequence[str], Any]) -> tuple[Axes, ...]:
    margins = _margins(keep)
    if isinstance(keep, Mapping):
        for names, stated in zip(margins, keep.values(), strict=True):
            _check_stated(table, names, np.asarray(stated))
    return drop_implied_margins([table.axes_of(names) for names in margins])


def _check_stated(table: CountTable, names: Names, stated: npt.NDArray[Any]) -> None:
    """Refuse margins whose stated figures are not those of the table."""
    found = table.margin(names)
    order = [sorted(names, key=table.names.index).index(name) for name in names]
    found = found.transpose(order) if found.ndim else found
    if stated.shape != found.shape or (stated != found).any():
        wrong = int(np.count_nonzero(stated != found)) if stated.shape == found.shape else found.size
        raise InputError(
            f"the margin by {list_names(names) or 'total'} does not add up: {wrong:,} of "
            f"{plural(found.size, 'figure is not the sum', 'figures are not the sums')} of the cells",
            code="margins-do-not-add-up",
            hint="correct the counts or the margin; a kept margin is always that of the table itself",
            margin=list(names),
            figures=wrong,
        )


def _flag_structural_zeros(table: CountTable, stated: Any) -> Flags:
    """Flag the cells that must stay 0: all zero cells, those of a mask, or those listed by position."""
    counts = table.counts
    if stated is None:
        return np.zeros(counts.size, dtype=np.bool_)
    if isinstance(stated, str):
        if stated != "all":
            raise SpecError(
                'structural zeros must be a mask, a list or "all"', code="bad-table", hint='write "all" or give a mask'
            )
        return np.asarray(counts == 0).ravel()
    mask = np.asarray(stated)
    if mask.dtype == np.bool_ and mask.shape != counts.shape:
        raise SpecError(
            "the mask of structural zeros does not have the shape of the table",
            code="bad-table",
            hint=f"give a mask of the shape {counts.shape}",
        )
    if mask.dtype != np.bool_:
        mask = np.zeros(counts.shape, dtype=np.bool_)
        for position in stated:
            mask[_position(table, position)] = True
    counted = int(np.count_nonzero(counts[mask]))
    if counted:
        raise InputError(
            plural(counted, "cell is called a structural zero and has", "cells are called structural zeros and have")
            + " a count",
            code="structural-zero-counted",
            hint="a structural zero cannot occur: correct the list or the counts",
            cells=counted,
        )
    return mask.ravel()


def _position(table: CountTable, position: Sequence[int | str]) -> tuple[int, ...]:
    """Return the position of a cell given by the numbers or names of its levels."""
    try:
        found = [
            level if isinstance(level, (int, np.integer)) else table.levels[axis].index(level)
            for axis, level in enumerate(position)
        ]
        np.ravel_multi_index([int(level) for level in found], table.counts.shape)
    except (ValueError, IndexError, TypeError):
        raise SpecError(
            "name a structural zero by one level of each variable",
            code="bad-table",
            hint="give numbers of levels from 0, or their names",
        ) from None
    return tuple(int(level) for level in found)


def _bounds(table: CountTable, stated: tuple[Any, Any] | None) -> tuple[Int64s, Int64s]:
    try:
        lower, upper = (0, UNLIMITED) if stated is None else stated
        sides = [_per_cell(table, side) for side in (lower, upper)]
    except (TypeError, ValueError):
        raise SpecError(
            "bounds must be a lower and an upper limit for every cell",
            code="bad-bounds",
            hint=f"give two numbers, or arrays of the shape of the table, {table.counts.shape}",
        ) from None
    low, high = (np.nan_to_num(s, nan=np.nan, posinf=UNLIMITED, neginf=0) for s in sides)
    if not (low <= high).all() or (low < 0).any():  # a comparison with NaN fails as well
        raise SpecError(
            "a lower bound is negative, missing or above its upper bound",
            code="bad-bounds",
            hint="give 0 ≤ lower ≤ upper for every cell",
        )
    return np.ceil(low).astype(np.int64), np.minimum(np.floor(high), UNLIMITED).astype(np.int64)


def _weights(table: CountTable, stated: Any) -> Floats:
    if stated is None:
        return np.ones(table.counts.size)
    try:
        weights = _per_cell(table, stated)
    except (TypeError, ValueError):
        weights = np.full(1, np.nan)
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise SpecError(
            "weights must be one positive number for every cell",
            code="bad-weights",
            hint=f"give an array of the shape of the table, {table.counts.shape}; for example 1 / count, so that large "
            "cells change rather than small ones",
        )
    return weights


def _per_cell(table: CountTable, stated: Any) -> Floats:
    """Return a number for each cell, from one for all or an array of the table's shape; nothing else is broadcast."""
    numbers = np.asarray(stated, dtype=np.float64)
    if numbers.shape not in ((), table.counts.shape):
        raise ValueError(numbers.shape)
    return np.broadcast_to(numbers, table.counts.shape).ravel().copy()
