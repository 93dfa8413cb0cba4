"""Integer and linear programmes, solved by HiGHS: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from safeswap.arrays.types import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Programme:
    """Minimise ``costs @ x`` for 0 ≤ x ≤ ``upper``, ``low`` ≤ ``matrix @ x`` ≤ ``high``, x whole."""

    costs: Floats
    upper: Floats
    matrix: Any  # sparse, rows by columns
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Solved:
    """The best values found (None if none), their cost, and a proved lower bound on any cost."""

    values: Floats | None
    cost: float
    bound: float

    @property
    def is_optimal(self) -> bool:
        """True if the cost equals the proved bound."""
        return self.values is not None and self.cost <= self.bound + 1e-6 * max(1.0, abs(self.cost))


def solve(
    programme: Programme, *, seconds: float, start: Floats | None = None, gap: float = 0.0, relaxed: bool = False
) -> Solved:
    """Return the best integer values found within the time, and a proved bound. Single-threaded, hence deterministic.

    ``start`` holds initial values, NaN where they are unknown. ``relaxed`` drops integrality and gives a bound only.

    >>> matrix = sparse.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    >>> ones = np.ones(3)
    >>> cover = Programme(costs=ones, upper=ones, matrix=matrix, low=np.ones(2), high=np.full(2, np.inf))
    >>> found = solve(cover, seconds=10)
    >>> found.values.tolist(), found.bound
    ([0.0, 1.0, 0.0], 1.0)
    """
    import highspy

    model = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "threads": 1, "random_seed": 1, "time_limit": float(seconds), "mip_rel_gap": gap}
    for name, value in options.items():
        model.setOptionValue(name, value)
    model.passModel(_build_model(programme, relaxed=relaxed))
    if start is not None and not relaxed:
        known = np.flatnonzero(~np.isnan(start))
        model.setSolution(known.size, known.astype(np.int32), start[known])
    model.run()
    return _read_solution(model, programme, relaxed=relaxed)


class GrowingProgramme:
    """Maximise ``gains @ x`` for real 0 ≤ x ≤ ``upper`` under constraints that are added one by one.

    >>> growing = GrowingProgramme(gains=np.ones(2), upper=np.ones(2))
    >>> growing.add(np.array([0, 1]), np.ones(2), 1.5)
    >>> float(growing.solve().sum())
    1.5
    """

    def __init__(self, *, gains: Floats, upper: Floats) -> None:
        import highspy

        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        self._model.setOptionValue("output_flag", False)
        self._model.setOptionValue("threads", 1)
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


def _build_model(programme: Programme, *, relaxed: bool) -> Any:
    import highspy

    model = highspy.HighsLp()
    rows = sparse.csr_array(programme.matrix)
    model.num_row_, model.num_col_ = rows.shape
    model.col_cost_ = programme.costs
    model.col_lower_, model.col_upper_ = np.zeros(programme.costs.size), programme.upper
    model.row_lower_, model.row_upper_ = programme.low, programme.high
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = rows.indptr.astype(np.int32)
    model.a_matrix_.index_ = rows.indices.astype(np.int32)
    model.a_matrix_.value_ = rows.data.astype(np.float64)
    if not relaxed:
        model.integrality_ = [highspy.HighsVarType.kInteger] * programme.costs.size
    return model


def _read_solution(model: Any, programme: Programme, *, relaxed: bool) -> Solved:
    import highspy

    info = model.getInfo()
    if relaxed:
        # Only a relaxation solved to optimality proves a bound.
        done = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        bound = info.objective_function_value if done else 0.0
        return Solved(values=None, cost=np.inf, bound=bound)
    bound = max(0.0, info.mip_dual_bound) if np.isfinite(info.mip_dual_bound) else 0.0
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solved(values=None, cost=np.inf, bound=bound)
    values = np.round(np.array(model.getSolution().col_value))
    return Solved(values=values, cost=float(programme.costs @ values), bound=bound)
