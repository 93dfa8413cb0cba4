"""Check a programme of tables: which cells are below tolerance, and which of them published figures give back.

An intruder is assumed to see every figure of every table and of its margins except those above 0 and below the
tolerance, and to know that rule: a withheld figure is at least 1 and at most the tolerance less 1. Further bounds come
from the sums that contain it: a table adds up to its margins, and tables that share variables share margins.

Source: Dobra & Fienberg 2000, Bounds for cell entries in contingency tables given marginal totals, PNAS 97,
11885-11892.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import highs
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Int64s
from safeswap.model.table import CountTable, Programme, check_tolerance, long_table

if TYPE_CHECKING:
    from scipy import sparse

Sum = tuple[int, int, int]
"""The array numbers of the parts and of their sum, and the axis of the parts that is summed over."""

_MOST_ROUNDS = 200
_MOST_NODES = 500  # per integer programme; a time limit would make the result depend on the machine


def tighten(lower: Sequence[Int64s], upper: Sequence[Int64s], sums: Sequence[Sum]) -> None:
    """Narrow the bounds of every figure in place, as far as each sum on its own allows (interval propagation).

    >>> parts, total = np.array([0, 0, 5]), np.array(7)
    >>> low, high = [parts, total], [np.array([2, 9, 5]), np.array(7)]
    >>> tighten(low, high, [(0, 1, 0)])
    >>> low[0].tolist(), high[0].tolist()
    ([0, 0, 5], [2, 2, 5])
    """
    for _ in range(_MOST_ROUNDS):
        moved = False
        for parts, whole, axis in sums:
            least, most = lower[parts].sum(axis=axis), upper[parts].sum(axis=axis)
            moved |= _raise_bound(lower[whole], least) | _cap_bound(upper[whole], most)
            # A part is at most (at least) what the sum leaves when all others are as small (large) as possible.
            left = np.expand_dims(upper[whole] - least, axis) + lower[parts]
            rest = np.expand_dims(lower[whole] - most, axis) + upper[parts]
            moved |= _cap_bound(upper[parts], left) | _raise_bound(lower[parts], rest)
        if not moved:
            return


def _raise_bound(bound: Int64s, other: Int64s) -> bool:
    better = bool((other > bound).any())
    if better:
        np.maximum(bound, other, out=bound)
    return better


def _cap_bound(bound: Int64s, other: Int64s) -> bool:
    better = bool((other < bound).any())
    if better:
        np.minimum(bound, other, out=bound)
    return better


def find_unknowns(lower: Sequence[Int64s], upper: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """Return the open figures, as positions in all arrays concatenated, and where each array begins."""
    starts = np.cumsum([0, *(each.size for each in lower)])
    flat = np.concatenate([(low < high).ravel() for low, high in zip(lower, upper, strict=True)])
    return np.flatnonzero(flat), starts


def sharpen_intervals(
    lower: Sequence[Int64s],
    upper: Sequence[Int64s],
    sums: Sequence[Sum],
    wanted: Int64s,
    *,
    true: Sequence[Int64s],
    most_nodes: int = _MOST_NODES,
) -> bool:
    """Narrow the bounds of the ``wanted`` figures in place as far as all sums allow; return whether they are exact.

    ``wanted`` are positions in all arrays concatenated. Each bound takes an integer programme, unless a known feasible
    solution already attains it: the ``true`` figures are one, and so is the answer of every programme. A programme
    that needs more than ``most_nodes`` nodes leaves a bound that is valid but may be too wide.

    >>> true = [np.array([1, 2]), np.array(3)]
    >>> low, high = [np.array([1, 1]), np.array(3)], [np.array([9, 9]), np.array(3)]
    >>> sharpen_intervals(low, high, [(0, 1, 0)], np.array([0, 1]), true=true), low[0].tolist(), high[0].tolist()
    (True, [1, 1], [2, 2])
    """
    open_ones, starts = find_unknowns(lower, upper)
    low = np.concatenate([each.ravel() for each in lower])
    high = np.concatenate([each.ravel() for each in upper])
    known = np.concatenate([each.ravel() for each in true])
    number = np.full(low.size, -1)
    number[open_ones] = np.arange(open_ones.size)
    matrix, sides = _build_equations(lower, sums, starts, low, number)
    figures = _Figures(matrix, sides, low[open_ones], high[open_ones], known[open_ones], most_nodes)
    cells = number[wanted]
    for sign in (1, -1):
        figures.push(np.bincount(cells, minlength=open_ones.size) * sign)  # one solution that attains many bounds
        for cell in cells:
            figures.settle(int(cell), sign)
    low[open_ones], high[open_ones] = figures.low, figures.high
    for arrays, flat in ((lower, low), (upper, high)):
        for array, start in zip(arrays, starts, strict=False):
            array[...] = flat[start : start + array.size].reshape(array.shape)
    return figures.is_exact


class _Figures:
    """The open figures: their bounds, which only narrow, and the range of values seen in feasible solutions."""

    def __init__(
        self, matrix: sparse.csr_matrix, sides: Int64s, low: Int64s, high: Int64s, known: Int64s, most_nodes: int
    ) -> None:
        self.low, self.high = low.copy(), high.copy()
        self.is_exact = True
        self._least, self._greatest = known.copy(), known.copy()
        self._matrix, self._sides = matrix, sides.astype(np.float64)
        self._most_nodes = most_nodes

    def settle(self, cell: int, sign: int) -> None:
        """Find the least (``sign`` 1) or greatest (−1) value of a figure."""
        bounds, seen = (self.low, self._least) if sign > 0 else (self.high, self._greatest)
        if bounds[cell] == seen[cell]:
            return
        cost = np.zeros(self.low.size)
        cost[cell] = sign
        bound = self.push(cost)
        if bound is not None:
            bounds[cell] = max(sign * bounds[cell], bound) * sign
        self.is_exact &= bool(bounds[cell] == seen[cell])

    def push(self, cost: npt.NDArray[Any]) -> int | None:
        """Minimise the cost, record the values of the solution, and return a lower bound on the cost."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        programme = highs.Programme(
            costs=cost, least=low, upper=high, matrix=self._matrix, low=self._sides, high=self._sides
        )
        solved = highs.solve(programme, most_nodes=self._most_nodes)
        if solved.values is not None:
            values = solved.values.astype(np.int64)
            np.minimum(self._least, values, out=self._least)
            np.maximum(self._greatest, values, out=self._greatest)
        return int(np.ceil(solved.bound - 1e-6)) if np.isfinite(solved.bound) else None


def _build_equations(
    lower: Sequence[Int64s], sums: Sequence[Sum], starts: Int64s, low: Int64s, number: Int64s
) -> tuple[sparse.csr_matrix, Int64s]:
    """Return every sum that contains an open figure as a row: parts − whole = the known terms of both."""
    from scipy import sparse  # slow to import, and most commands check no table

    rows, columns, signs, sides, first = [], [], [], [], 0
    for parts, whole, axis in sums:
        places = starts[parts] + np.arange(lower[parts].size).reshape(lower[parts].shape)
        places = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
        total = starts[whole] + np.arange(lower[whole].size)
        used = np.column_stack([places, total])
        weight = np.ones(used.shape[1])
        weight[-1] = -1
        is_open = number[used] >= 0
        kept = np.flatnonzero(is_open.any(axis=1))
        used, is_open = used[kept], is_open[kept]
        sides.append(-(np.where(is_open, 0, low[used]) @ weight))
        row, column = np.nonzero(is_open)
        rows.append(first + row)
        columns.append(number[used[row, column]])
        signs.append(weight[column])
        first += len(kept)
    joined = [np.concatenate(each) for each in (signs, rows, columns)]
    shape = (first, int((number >= 0).sum()))
    return sparse.csr_matrix((joined[0], (joined[1], joined[2])), shape=shape), np.concatenate(sides)


Way = Literal["interval propagation", "integer programming"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedTable:
    """One table, and the bounds ``lower`` and ``upper`` of its withheld cells given what is published."""

    table: CountTable
    tolerance: int
    lower: Counts
    upper: Counts

    @property
    def small(self) -> int:
        """Number of cells above 0 and below the tolerance."""
        return int(np.count_nonzero(self.table.small(self.tolerance)))

    @property
    def derived(self) -> int:
        """Number of small cells that follow exactly from what is published."""
        return int(np.count_nonzero(self.table.small(self.tolerance) & (self.lower == self.upper)))

    def long(self) -> pa.Table:
        """Return one row per small cell with the bounds implied by the published figures. For internal use only.

        Where the file has a weight, ``weighted`` is the cell's estimate in the population. What is small is decided by
        the number of records, which is what an intruder may know.
        """
        figures: dict[str, Any] = {"count": self.table.counts, "at_least": self.lower, "at_most": self.upper}
        figures["derived"] = self.lower == self.upper
        if self.table.weighted is not None:
            figures["weighted"] = self.table.weighted
        rows = long_table(self.table, figures)
        return rows.filter(pa.array(self.table.small(self.tolerance).ravel()))

    def as_dict(self) -> dict[str, Any]:
        """Totals only."""
        return {
            "variables": list(self.table.names),
            "cells": int(self.table.counts.size),
            "occupied": int(np.count_nonzero(self.table.counts)),
            "small": self.small,
            "derived": self.derived,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class TableCheck:
    """The result of checking a programme of tables.

    ``way`` is how bounds were found: "interval propagation", one published sum at a time, or "integer programming",
    all sums together. Bounds always hold. If ``is_exact``, both ends of each interval are attained by some table with
    the published figures; if not, more cells than ``derived`` may follow from them.
    """

    tables: tuple[CheckedTable, ...]
    tolerance: int
    way: Way
    is_exact: bool

    @property
    def small(self) -> int:
        """Number of cells of all tables above 0 and below the tolerance."""
        return sum(table.small for table in self.tables)

    @property
    def derived(self) -> int:
        """Number of small cells that would be known exactly if only the small cells were withheld."""
        return sum(table.derived for table in self.tables)

    @property
    def is_safe(self) -> bool:
        """Return whether the tables can be published as they are."""
        return not self.small

    @property
    def sentence(self) -> str:
        """The finding in plain words."""
        tables = f"{len(self.tables):,} tables" if len(self.tables) > 1 else "the table"
        if self.is_safe:
            return f"no cell of {tables} is above 0 and below {self.tolerance:,}"
        withheld = f" above 0 and below {self.tolerance:,}; were"
        if self.small == 1:
            back = "give" if self.derived else "not give" if self.is_exact else "perhaps give"
            given = f"one cell of {tables} is{withheld} it withheld, the published figures would {back} it back"
        else:
            number = f"{'' if self.is_exact else 'at least '}{self.derived:,}"
            given = f"{self.small:,} cells of {tables} are{withheld} they withheld, the published figures would give "
            given += f"{number} of them back"
        return f"{given} (found by {self.way})"

    def write(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the small cells as csv or parquet, readable by its owner only.

        With several tables, a column names the table, and a variable that a table does not have is empty.
        """
        from safeswap.files.write import write

        parts = [
            table.long().append_column("table", pa.array([" × ".join(table.table.names)] * table.small, pa.string()))
            for table in self.tables
        ]
        plain = [part.cast(pa.schema([(f.name, _plain_type(f.type)) for f in part.schema])) for part in parts]
        write(pa.concat_tables(plain, promote_options="default"), path, force=force)

    def as_dict(self) -> dict[str, Any]:
        """Totals only."""
        return {
            "tolerance": self.tolerance,
            "is_safe": self.is_safe,
            "small": self.small,
            "derived": self.derived,
            "way": self.way,
            "is_exact": self.is_exact,
            "tables": [table.as_dict() for table in self.tables],
        }

    def __repr__(self) -> str:
        return f"<TableCheck, tolerance {self.tolerance}: {self.sentence}>"


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


MOST_PROGRAMMES = 300
"""Maximum number of withheld cells for integer programming, two programmes each; above, propagation only."""

_MOST_OPEN = 20_000


def check_programme(programme: Programme, *, tolerance: int, margins: bool = True) -> TableCheck:
    """Find the small cells of all tables and their bounds given the published figures.

    With ``margins=False`` only the tables themselves and the number of records are published, no other margins.

    >>> table = CountTable.from_array([[1, 4], [6, 9]])
    >>> check_programme(Programme(tables=(table,)), tolerance=3).derived
    1
    """
    check_tolerance(tolerance)
    figures = _build_lattice(programme.tables)
    stated = {frozenset(table.names) for table in programme.tables}
    order = list(figures)
    sums = _list_sums(order)
    lower, upper = [], []
    total = programme.tables[0].total
    for names in order:
        counts = figures[names]
        known = margins or frozenset(names) in stated
        small = (counts > 0) & (counts < tolerance)
        shown = (~small & known) | (not names)  # the number of records is known
        lower.append(np.where(shown, counts, int(known)))
        upper.append(np.where(shown, counts, tolerance - 1 if known else total))
    tighten(lower, upper, sums)
    way, is_exact = _sharpen_bounds(programme, order, lower, upper, sums, true=list(figures.values()))
    return TableCheck(
        tables=tuple(_check_table(table, order, lower, upper, tolerance) for table in programme.tables),
        tolerance=tolerance,
        way=way,
        is_exact=is_exact,
    )


def _build_lattice(tables: Sequence[CountTable]) -> dict[Names, Int64s]:
    """Return the counts by every subset of a table's variables, with the variables always in the same order."""
    order = list(dict.fromkeys(name for table in tables for name in table.names))
    found: dict[Names, Int64s] = {}
    for table in tables:
        axes = sorted(range(table.ways), key=lambda axis: order.index(table.names[axis]))
        names = tuple(table.names[axis] for axis in axes)
        counts = table.counts.transpose(axes)
        for size in range(len(names), -1, -1):
            for kept in combinations(range(len(names)), size):
                part = tuple(names[axis] for axis in kept)
                if part not in found:
                    found[part] = np.asarray(counts.sum(axis=tuple(a for a in range(len(names)) if a not in kept)))
    return found


def _list_sums(order: Sequence[Names]) -> list[Sum]:
    """List every set of variables summed over one of them; the result is always in the lattice."""
    number = {names: i for i, names in enumerate(order)}
    return [
        (number[names], number[names[:axis] + names[axis + 1 :]], axis) for names in order for axis in range(len(names))
    ]


def _sharpen_bounds(
    programme: Programme,
    order: Sequence[Names],
    lower: Sequence[Int64s],
    upper: Sequence[Int64s],
    sums: Sequence[Sum],
    *,
    true: Sequence[Int64s],
) -> tuple[Way, bool]:
    """Sharpen the bounds of the withheld cells if they are few; return the way used and whether bounds are exact."""
    open_ones, starts = find_unknowns(lower, upper)
    stated = {frozenset(table.names) for table in programme.tables}
    wanted = [
        place
        for i, names in enumerate(order)
        if frozenset(names) in stated
        for place in open_ones[(open_ones >= starts[i]) & (open_ones < starts[i + 1])]
    ]
    if not wanted or len(wanted) > MOST_PROGRAMMES or open_ones.size > _MOST_OPEN:
        return "interval propagation", not wanted
    return "integer programming", sharpen_intervals(lower, upper, sums, np.array(wanted), true=true)


def _check_table(
    table: CountTable, order: Sequence[Names], lower: Sequence[Int64s], upper: Sequence[Int64s], tolerance: int
) -> CheckedTable:
    place = next(i for i, names in enumerate(order) if set(names) == set(table.names))
    axes = [order[place].index(name) for name in table.names]
    return CheckedTable(
        table=table, tolerance=tolerance, lower=lower[place].transpose(axes), upper=upper[place].transpose(axes)
    )
