"""Integer and linear programmes, solved by HiGHS: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Floats

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Programme:
    """Minimise ``costs @ x`` for ``least`` ≤ x ≤ ``upper``, ``low`` ≤ ``matrix @ x`` ≤ ``high``, x whole.

    ``least`` is 0 unless stated. ``offset`` is added to every cost.
    """

    costs: Floats
    upper: Floats
    matrix: Any  # sparse, rows by columns
    low: Floats
    high: Floats
    least: Floats | None = None
    offset: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Solved:
    """The best values found (None if none), their cost, and a proved lower bound on any cost (−∞ if none)."""

    status: Status
    values: Floats | None
    cost: float
    bound: float


def solve(
    programme: Programme,
    *,
    seconds: float = np.inf,
    start: Floats | None = None,
    gap: float = 0.0,
    most_nodes: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Solved:
    """Return the best integer values found within the limits, and a proved bound. Single-threaded, hence deterministic.

    ``start`` holds initial values, NaN where they are unknown. ``settings`` are options of HiGHS.

    >>> from scipy import sparse
    >>> matrix = sparse.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    >>> ones = np.ones(3)
    >>> cover = Programme(costs=ones, upper=ones, matrix=matrix, low=np.ones(2), high=np.full(2, np.inf))
    >>> found = solve(cover, seconds=10)
    >>> found.status, found.values.tolist(), found.bound
    ('optimal', [0.0, 1.0, 0.0], 1.0)
    """
    if not programme.costs.size:  # HiGHS calls a model without columns empty and ignores its rows
        return _solve_empty(programme)
    options = {"time_limit": float(seconds), "mip_rel_gap": gap, **(settings or {})}
    if most_nodes is not None:
        options["mip_max_nodes"] = most_nodes
    model = _make_solver(options)
    model.passModel(_build_model(programme))
    if start is not None:
        known = np.flatnonzero(~np.isnan(start))
        model.setSolution(known.size, known.astype(np.int32), start[known])
    model.run()
    return _read_solution(model)


def value_ranges(matrix: Any, sums: Floats, *, lower: float, seconds: float = np.inf) -> tuple[Floats, Floats] | None:
    """Return the least and the greatest real value of each x ≥ ``lower`` with ``matrix @ x`` = ``sums``.

    A value without an upper limit is infinite, one that the solver did not find in time is NaN; None if there is no
    solution. Each search starts from the one before.

    >>> from scipy import sparse
    >>> low, high = value_ranges(sparse.csr_array(np.array([[1.0, 1.0, 0.0]])), np.array([3.0]), lower=1.0)
    >>> low.tolist(), high.tolist()
    ([1.0, 1.0, 1.0], [2.0, 2.0, inf])
    """
    import highspy

    size = matrix.shape[1]
    least, upper = np.full(size, lower), np.full(size, np.inf)
    asked = Programme(costs=np.zeros(size), least=least, upper=upper, matrix=matrix, low=sums, high=sums)
    model, ended = _make_solver({"time_limit": float(seconds)}), highspy.HighsModelStatus
    model.passModel(_build_model(asked, whole=False))
    found = np.full((2, size), np.nan)
    for side, sense in enumerate((highspy.ObjSense.kMinimize, highspy.ObjSense.kMaximize)):
        model.changeObjectiveSense(sense)
        for column in range(size):
            model.changeColCost(column, 1.0)
            model.run()
            status = model.getModelStatus()
            if status == ended.kOptimal:
                found[side, column] = model.getInfo().objective_function_value
            elif status == ended.kInfeasible or (side == 0 and status == ended.kUnboundedOrInfeasible):
                return None  # values have a lower limit, so a least value exists unless nothing fits
            elif status in (ended.kUnbounded, ended.kUnboundedOrInfeasible):
                found[side, column] = np.inf
            model.changeColCost(column, 0.0)
    return found[0], found[1]


def _make_solver(options: Mapping[str, Any] | None = None) -> Any:
    """Return a solver that is silent and, with one thread, deterministic."""
    import highspy

    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {"output_flag": False, "threads": 1, **(options or {})}.items():
        model.setOptionValue(name, value)
    return model


def _solve_empty(programme: Programme) -> Solved:
    if ((programme.low <= 0) & (programme.high >= 0)).all():
        return Solved(status="optimal", values=np.zeros(0), cost=programme.offset, bound=programme.offset)
    return Solved(status="infeasible", values=None, cost=np.inf, bound=np.inf)


def _build_model(programme: Programme, *, whole: bool = True) -> Any:
    import highspy
    from scipy import sparse

    model = highspy.HighsLp()
    columns = sparse.csc_array(programme.matrix)
    size = programme.costs.size
    model.num_row_, model.num_col_ = columns.shape
    model.col_cost_, model.offset_ = programme.costs.astype(np.float64), programme.offset
    model.col_lower_ = np.zeros(size) if programme.least is None else programme.least.astype(np.float64)
    model.col_upper_ = programme.upper.astype(np.float64)
    model.row_lower_, model.row_upper_ = programme.low.astype(np.float64), programme.high.astype(np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = columns.indptr.astype(np.int32)
    model.a_matrix_.index_ = columns.indices.astype(np.int32)
    model.a_matrix_.value_ = columns.data.astype(np.float64)
    if whole:
        model.integrality_ = [highspy.HighsVarType.kInteger] * size
    return model


def _read_solution(model: Any) -> Solved:
    import highspy

    ended, info = model.getModelStatus(), model.getInfo()
    if ended in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Solved(status="infeasible", values=None, cost=np.inf, bound=np.inf)
    bound = float(info.mip_dual_bound) if np.isfinite(info.mip_dual_bound) else -np.inf
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solved(status="unknown", values=None, cost=np.inf, bound=bound)
    values = np.round(np.array(model.getSolution().col_value))
    status: Status = "optimal" if ended == highspy.HighsModelStatus.kOptimal else "feasible"
    return Solved(status=status, values=values, cost=float(info.objective_function_value), bound=bound)


class GrowingProgramme:
    """Maximise ``gains @ x`` for real 0 ≤ x ≤ ``upper`` under constraints that are added one by one.

    >>> growing = GrowingProgramme(gains=np.ones(2), upper=np.ones(2))
    >>> growing.add(np.array([0, 1]), np.ones(2), 1.5)
    >>> float(growing.solve().sum())
    1.5
    """

    def __init__(self, *, gains: Floats, upper: Floats) -> None:
        self._model = _make_solver()
        zeros = np.zeros(gains.size)
        empty = np.zeros(gains.size, np.int32)
        self._model.addCols(gains.size, -gains, zeros, upper, 0, empty, np.empty(0, np.int32), np.empty(0))

    def add(self, columns: npt.NDArray[np.int64], factors: Floats, most: float) -> None:
        """Add a constraint: the weighted sum of some columns is at most ``most``."""
        self._model.addRow(-np.inf, float(most), columns.size, columns.astype(np.int32), factors)

    def solve(self) -> Floats:
        """Return the optimal values."""
        self._model.run()
        return np.array(self._model.getSolution().col_value)
