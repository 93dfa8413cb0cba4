"""Safe tables where the margins cannot all be kept: as few units off as possible, each one listed.

First the least violation of the kept margins, all units together; then, with no more than that, the least change.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from safeswap.errors import InfeasibleError, SpecError
from safeswap.kernels.safe_anneal import nearest_safe
from safeswap.kernels.types import Int64s
from safeswap.methods.safe_certificate import not_found
from safeswap.methods.safe_heuristic import nearly_balanced, table_bound
from safeswap.methods.safe_milp import CellModel, Solved, nearest
from safeswap.methods.safe_problem import UNLIMITED, TableProblem
from safeswap.methods.safe_table import MOST_EXACT, Found, Terms, cell_model, checked
from safeswap.model.safe_result import SafeTables
from safeswap.model.table import CountTable


def least_violation(
    tables: list[CountTable], problems: list[TableProblem], terms: Terms, *, model: CellModel | None = None
) -> SafeTables:
    """Tables that are safe, with margins that are off as little as possible. ``model`` links several tables."""
    model = cell_model(problems) if model is None else model
    _refuse_impossible(model)
    if terms.proves(model.counts.size):
        return _proved(tables, problems, model, terms)
    if len(problems) > 1:
        raise SpecError(
            f"linked tables of {model.counts.size:,} cells together are too many for soft=True",
            code="too-many-cells",
            hint=f'at most {MOST_EXACT:,} cells, or solver="exact" with a long time limit; or one table at a time',
        )
    rounded = nearest_safe(model.counts, model.low, model.high, model.zero_ok)
    problem = replace(problems[0], high=_reach(model, _off(model, rounded)))
    cells = nearly_balanced(problem, table_bound(problem).multipliers)
    found = Found(cells=cells, value=problem.change(cells), bound=0.0, status="heuristic")
    return checked(tables, problems, found, terms, off=(_off(model, cells), 0))


def _proved(tables: list[CountTable], problems: list[TableProblem], model: CellModel, terms: Terms) -> SafeTables:
    end = time.monotonic() + terms.time_limit
    start = _start(model)
    # What is known to be possible limits the cells; where nothing is known, a guess does until there is an answer.
    most = int(model.totals[model.rounded].sum() + model.low.sum()) if start is None else _off(model, start)
    first = _least_off(model, most, terms.time_limit / 2, start)
    if first.cells is not None and _off(model, first.cells) > most:
        first = _least_off(model, _off(model, first.cells), max(0.2, end - time.monotonic()), first.cells)
    if first.cells is None:
        raise not_found(tolerance=model.tolerance)
    off = _off(model, first.cells)
    fewest = int(np.ceil(first.bound - 1e-6)) if np.isfinite(first.bound) else 0
    left = max(0.2, end - time.monotonic())
    within = replace(model, high=_reach(model, off), soft=True, most_off=float(off))
    second = nearest(within, time_limit=left, start=first.cells)
    cells = first.cells if second.cells is None else second.cells
    proved = second.status == "optimal" and first.status == "optimal"
    value = float(model.weights @ np.abs(cells - model.counts))
    found = Found(cells=cells, value=value, bound=min(value, second.bound), status="optimal" if proved else "gap")
    return checked(tables, problems, found, terms, off=(_off(model, cells), min(off, fewest)))


def _least_off(model: CellModel, most: int, seconds: float, start: Int64s | None) -> Solved:
    return nearest(replace(model, high=_reach(model, most), soft=True), time_limit=seconds, start=start)


def _start(model: CellModel) -> Int64s | None:
    """A safe table without regard to its margins. Rounding would not keep linked tables alike; zeros do."""
    if model.rounded.all():
        return nearest_safe(model.counts, model.low, model.high, model.zero_ok)
    return np.zeros_like(model.counts) if model.zero_ok.all() else None


def _reach(model: CellModel, off: int) -> Int64s:
    """How large each cell can be while no more than ``off`` units of the kept figures are off.

    It is part of each kept figure of its lines, the smallest of which it exceeds by no more than that. A cell of no
    kept figure is limited by what could be linked to it, or by what changing all cells to 0 would cost.
    """
    lines = model.matrix[np.flatnonzero(model.rounded)].tocoo()
    largest = np.full(model.counts.size, UNLIMITED, dtype=np.int64)
    np.minimum.at(largest, lines.col, model.totals[model.rounded][lines.row].astype(np.int64) + off)
    free = largest == UNLIMITED
    all_changed = int(np.ceil(model.weights @ model.counts / model.weights.min()))
    largest[free] = int(largest[~free].sum()) + all_changed + model.tolerance * model.counts.size
    return np.minimum(model.high, np.maximum(largest, model.low))


def _refuse_impossible(model: CellModel) -> None:
    bad = int(np.count_nonzero((model.low > model.high) & ~model.zero_ok))
    if bad:
        raise InfeasibleError(
            f"{bad:,} cells may neither be 0 nor, within their bounds, reach the tolerance",
            code="no-safe-table",
            hint="widen their bounds",
            cells=bad,
        )


def _off(model: CellModel, cells: Int64s) -> int:
    return int(np.abs(model.matrix @ cells - model.totals)[model.rounded].sum())
