"""Bound the suppressed cells of a published table by linear programming.

Margins are published, so sums of suppressed cells are known; anyone can compute the least and the greatest value that
a cell can have under these sums (the attacker's problem, Willenborg & de Waal 2001). In the
confidentiality plot the midpoint of the interval stands for the released value (Seri).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.highs import value_ranges
from safeswap.arrays.types import Flags, Floats
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.measures.plot.numeric_keys import confidentiality_plot
from safeswap.measures.plot.values import ConfidentialityPlot, Policy
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.text import plural

Axes = tuple[int, ...]

_NEAR = 1e-7  # relative tolerance of the solver's answers


@dataclass(frozen=True, eq=False, kw_only=True)
class CellIntervals:
    """The position of each suppressed cell and the interval to which it can be narrowed."""

    places: npt.NDArray[np.int64]  # one row per cell: its index along each axis
    low: Floats
    high: Floats

    @property
    def midpoint(self) -> Floats:
        """An intruder's best guess per cell; infinite where there is no upper limit."""
        return (self.low + self.high) / 2

    @property
    def disclosed(self) -> Flags:
        """Flags of the cells that can be computed exactly."""
        return np.asarray(self.high - self.low <= _NEAR * np.maximum(1.0, np.abs(self.high)))

    def table(self) -> pa.Table:
        """One row per cell."""
        places = {f"axis_{j}": self.places[:, j] for j in range(self.places.shape[1])}
        figures = {"low": self.low, "high": self.high, "midpoint": self.midpoint, "disclosed": self.disclosed}
        return pa.table({**places, **figures})


def cell_intervals(
    table: npt.ArrayLike,
    suppressed: npt.ArrayLike,
    *,
    margins: Collection[Axes] | None = None,
    unpublished: Mapping[Axes, npt.ArrayLike] | None = None,
    lower: float = 0.0,
) -> CellIntervals:
    """Return the interval of each suppressed cell of a table with any number of dimensions.

    ``margins`` lists the published margins by the axes that they keep, ``()`` being the grand total; all margins by
    default. ``unpublished`` marks cells of margins that are suppressed too. No cell is below ``lower``.

    >>> table = [[20, 50, 10], [8, 19, 22], [17, 32, 12]]
    >>> mask = [[True, False, True], [False, False, False], [True, False, True]]
    >>> found = cell_intervals(table, mask)
    >>> found.low.tolist(), found.high.tolist()
    ([8.0, 0.0, 7.0, 0.0], [30.0, 22.0, 29.0, 22.0])
    """
    values, hidden = np.asarray(table, dtype=np.float64), np.asarray(suppressed, dtype=np.bool_)
    _check(values, hidden, lower)
    places = np.argwhere(hidden)
    number = np.full(values.shape, -1, dtype=np.int64)
    number[hidden] = np.arange(len(places))
    every = (axes for size in range(values.ndim) for axes in combinations(range(values.ndim), size))
    kept = [tuple(axes) for axes in (every if margins is None else margins)]
    equations = _equations(values, number, kept, dict(unpublished or {}))
    low, high = np.full(len(places), lower), np.full(len(places), np.inf)
    for cells, rows in _split_components(equations, len(places)):
        low[cells], high[cells] = _compute_limits(equations, cells, rows, lower)
    return CellIntervals(places=places, low=low, high=high)


def table_plot(
    table: npt.ArrayLike,
    suppressed: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    policy: Policy | None = None,
    margins: Collection[Axes] | None = None,
    unpublished: Mapping[Axes, npt.ArrayLike] | None = None,
    lower: float = 0.0,
) -> ConfidentialityPlot:
    """Plot the suppressed cells: their values against the midpoints of their intervals.

    A cell without an upper limit cannot be placed and is safe.

    >>> table = [[20, 50, 10], [8, 19, 22], [17, 32, 12]]
    >>> mask = [[True, False, True], [False, False, False], [True, False, True]]
    >>> table_plot(table, mask).perturbation.round(3).tolist()
    [0.05, 0.1, 0.059, 0.083]
    """
    found = cell_intervals(table, suppressed, margins=margins, unpublished=unpublished, lower=lower)
    values = np.asarray(table, dtype=np.float64)[tuple(found.places.T)]
    names = [".".join(str(i) for i in place) for place in found.places.tolist()]
    limited = [None if np.isinf(y) else float(y) for y in found.midpoint]
    schema = Schema(
        attributes=(Attribute(name="cell", kind=Kind.IDENTIFIER), Attribute(name="value", kind=Kind.NUMERIC))
    )
    before, after = (
        Microdata(pa.table({"cell": names, "value": pa.array(numbers, pa.float64())}), schema)
        for numbers in (values.tolist(), limited)
    )
    plot = confidentiality_plot(before, after, ["value"], alpha=alpha, scale="linear", policy=policy, largest_units=0)
    disclosed = int(np.count_nonzero(found.disclosed))
    notes = [f"{plural(disclosed, 'suppressed cell')} can be worked out exactly."] if disclosed else []
    return replace(plot, kind="table", keys=("value of the cell",), notes=(*plot.notes[1:], *notes))


def _check(values: Floats, hidden: Flags, lower: float) -> None:
    if values.shape != hidden.shape or values.ndim == 0:
        raise SpecError(
            "the table and the marks of its suppressed cells have different shapes",
            code="bad-table",
            hint="give two arrays of the same shape, one of values and one of booleans",
        )
    if not np.isfinite(values).all() or (values < lower).any():
        raise InputError(
            "the table holds values that are missing, or below the minimum allowed",
            code="bad-table",
            hint="give the true table in full, with lower= at most its smallest value",
        )
    if not hidden.any():
        raise SpecError("no cell is suppressed", code="nothing-suppressed", hint="mark the suppressed cells as True")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Equations:
    """The suppressed cells in each published sum, and their total."""

    members: list[npt.NDArray[np.int64]]
    sums: list[float]


def _equations(
    values: Floats, number: npt.NDArray[np.int64], margins: list[Axes], unpublished: dict[Axes, npt.ArrayLike]
) -> _Equations:
    members, sums = [], []
    for axes in margins:
        if len(set(axes)) != len(axes) or not set(axes) < set(range(values.ndim)):
            raise SpecError(
                "name a margin by some of the table's axes, each once",
                code="bad-margin",
                hint="(0,) keeps the first axis, () is the grand total",
            )
        shape = tuple(values.shape[axis] for axis in axes)
        left_out = np.broadcast_to(np.asarray(unpublished.get(axes, False), dtype=np.bool_), shape)
        for place in product(*(range(size) for size in shape)):
            line: list[slice | int] = [slice(None)] * values.ndim
            for axis, i in zip(axes, place, strict=True):
                line[axis] = i
            cells = number[tuple(line)].ravel()
            cells = cells[cells >= 0]
            if len(cells) and not left_out[place]:
                members.append(cells)
                sums.append(float(values[tuple(line)].ravel()[number[tuple(line)].ravel() >= 0].sum()))
    return _Equations(members=members, sums=sums)


def _split_components(equations: _Equations, cells: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Split the cells into groups connected by sums, each with its sums: one independent problem per group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.repeat(np.arange(len(equations.members)), [len(m) for m in equations.members])
    columns = np.concatenate([np.empty(0, dtype=np.int64), *equations.members])
    size = cells + len(equations.members)
    graph = coo_array((np.ones(len(rows)), (columns, cells + rows)), shape=(size, size))
    _, label = connected_components(graph, directed=False)
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for cell in range(cells):
        groups.setdefault(int(label[cell]), ([], []))[0].append(cell)
    for row in range(len(equations.members)):
        groups[int(label[cells + row])][1].append(row)
    return [(np.array(own, dtype=np.int64), np.array(sums, dtype=np.int64)) for own, sums in groups.values() if sums]


def _compute_limits(
    equations: _Equations, cells: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], lower: float
) -> tuple[Floats, Floats]:
    """Compute the least and the greatest value of each cell of one group."""
    from scipy.sparse import coo_array

    place = {int(cell): j for j, cell in enumerate(cells)}
    members = [equations.members[row] for row in rows]
    where = np.repeat(np.arange(len(rows)), [len(m) for m in members])
    which = np.array([place[int(cell)] for m in members for cell in m], dtype=np.int64)
    matrix = coo_array((np.ones(len(where)), (where, which)), shape=(len(rows), len(cells)))
    found = value_ranges(matrix, np.array([equations.sums[row] for row in rows]), lower=lower)
    if found is None:
        raise InputError(
            "the published sums contradict each other",
            code="bad-table",
            hint="give the true table: its margins are computed from it",
        )
    if np.isnan(found).any():
        raise InfeasibleError(
            "the solver stopped before finding the interval of every suppressed cell",
            code="too-much-time",
            hint="the intervals are unknown, not wide: check a smaller table",
        )
    low, high = (np.array([_snap(value) for value in side]) for side in found)
    return low, high


def _snap(value: float) -> float:
    """Round to a whole number if the value is one within the solver's tolerance."""
    near = round(value)
    return float(near) if abs(value - near) <= _NEAR * max(1.0, abs(value)) else float(value)
