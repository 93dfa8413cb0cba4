"""Safe tables where the margins cannot all be kept: as few units off as possible, each one listed.

First the least violation of the kept margins, all units together; then, with no more than that, the least change.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from safeswap.errors import InfeasibleError, SpecError
from safeswap.kernels.safe_anneal import nearest_safe
from safeswap.methods.safe_certificate import not_found
from safeswap.methods.safe_heuristic import nearly_balanced, table_bound
from safeswap.methods.safe_milp import CellModel, nearest
from safeswap.methods.safe_problem import Int64s, TableProblem
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
    cells = nearly_balanced(problems[0], table_bound(problems[0]).multipliers)
    found = Found(cells=cells, value=problems[0].change(cells), bound=0.0, status="heuristic")
    return checked(tables, problems, found, terms, off=(_off(model, cells), 0))


def _proved(tables: list[CountTable], problems: list[TableProblem], model: CellModel, terms: Terms) -> SafeTables:
    end = time.monotonic() + terms.time_limit
    rounded = nearest_safe(model.counts, model.low, model.high, model.zero_ok)
    start = rounded if model.rounded.all() else None  # rounding alone does not keep linked tables alike
    first = nearest(replace(model, soft=True), time_limit=terms.time_limit / 2, start=start)
    if first.cells is None:
        raise not_found(tolerance=model.tolerance)
    off = _off(model, first.cells)
    fewest = int(np.ceil(first.bound - 1e-6)) if np.isfinite(first.bound) else 0
    left = max(0.2, end - time.monotonic())
    second = nearest(replace(model, soft=True, most_off=float(off)), time_limit=left, start=first.cells)
    cells = first.cells if second.cells is None else second.cells
    proved = second.status == "optimal" and first.status == "optimal"
    value = float(model.weights @ np.abs(cells - model.counts))
    found = Found(cells=cells, value=value, bound=min(value, second.bound), status="optimal" if proved else "gap")
    return checked(tables, problems, found, terms, off=(_off(model, cells), min(off, fewest)))


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
