"""Find the nearest safe table exactly: a mixed-integer programme for HiGHS.

A cell is ref·b + p − q: b is 1 if it is occupied, ref is the count or the safe value nearest to it, p and q are steps
up and down from there. With b the cost of a small cell, min(count, Q − count) at least, is linear, which makes the
relaxation tight where |x − count| alone would let it vanish. The rounding inequality of every kept line (see
:mod:`safeswap.methods.safe.bounds`) is added from the start.

Emptying a large cell hardly ever matters: cells of at least 2Q get their b only if a solution leaves them between 0
and Q.

Where no safe table exists, a minimal set of kept figures that cannot be met together explains it. It is found by
bisecting the figures (QuickXplain; Junker 2004), each trial an integer programme without an objective. The set is
minimal: dropping any one of its figures lets the others be met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from safeswap.arrays.highs import Programme, Status, solve
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import EngineError, InfeasibleError
from safeswap.methods.safe.problem import TableProblem
from safeswap.model.text import plural


@dataclass(frozen=True, eq=False, kw_only=True)
class CellModel:
    """Cells of one or several tables and their lines: ``matrix`` @ x = ``totals``.

    ``rounded`` marks the lines that are sums of cells, for which the rounding inequality holds; the others link tables.
    In a ``soft`` model sums may be off: by as little as possible, or by at most ``most_off`` if stated.
    """

    counts: Int64s
    low: Int64s
    high: Int64s
    zero_ok: Flags
    weights: Floats
    tolerance: int
    matrix: sparse.csr_matrix
    totals: Int64s
    rounded: Flags
    soft: bool = False
    most_off: float = np.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class Solved:
    """The solver's result: cells or None, and a lower bound of any solution."""

    status: Status
    cells: Int64s | None = None
    bound: float = 0.0


def find_nearest(model: CellModel, *, time_limit: float, start: Int64s | None = None) -> Solved:
    """Return the safe table nearest to the counts, the best found in time, or the proof that there is none."""
    if ((model.low > model.high) & ~model.zero_ok).any():
        return Solved(status="infeasible", bound=np.inf)
    end = time.monotonic() + time_limit
    emptied = model.zero_ok & (model.counts < 2 * model.tolerance)
    while True:
        columns = _columns(model, emptied)
        found = _run(columns, model, time_limit=end - time.monotonic(), start=start)
        if found.cells is None:
            return found
        between = (found.cells > 0) & (found.cells < model.low)
        if not between.any():
            return found
        if end - time.monotonic() < 0.1:
            return Solved(status="unknown", bound=found.bound)
        emptied = emptied | between


@dataclass(frozen=True, eq=False, kw_only=True)
class _Columns:
    """The model without lines: cells = constant + shape @ variables, and the cost of the variables."""

    constant: Floats
    shape: sparse.csr_matrix
    cost: Floats
    offset: float
    upper: Floats
    links: sparse.csr_matrix  # links @ variables ≤ 0: no steps from an unoccupied cell
    over: sparse.csr_matrix  # cells × variables: the part above a multiple of Q, or above the count
    under: sparse.csr_matrix
    fixed_over: Floats
    fixed_under: Floats
    occupied: Int64s  # the cells with a variable b, in column order; these columns come first


def _columns(model: CellModel, emptied: Flags) -> _Columns:
    c, low, high, size = model.counts, model.low, model.high, model.counts.size
    on = low <= high
    ref = np.where(on, np.clip(c, low, np.maximum(low, high)), 0)
    with_b = np.flatnonzero(on & model.zero_ok & (emptied | (ref != c)))
    has_b = np.zeros(size, dtype=np.bool_)
    has_b[with_b] = True
    ups = np.flatnonzero(on & (high > ref) & (c <= ref))
    floor = np.where(model.zero_ok & ~has_b, 0, low)
    downs = np.flatnonzero(on & (ref > floor) & (c >= ref))
    b, p, q = len(with_b), len(ups), len(downs)
    at_b, at_p, at_q = np.arange(b), b + np.arange(p), b + p + np.arange(q)
    total = b + p + q
    always = (on & ~has_b).astype(np.float64)
    toggle = model.zero_ok & (c < model.tolerance)
    number = np.full(size, -1)
    number[with_b] = at_b

    def put(rows: Int64s, columns: Int64s, values: Any) -> sparse.csr_matrix:
        data = np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)
        return sparse.csr_matrix((data, (rows, columns)), shape=(size, total))

    w = model.weights
    cost = np.concatenate([w[with_b] * (np.abs(ref - c) - c)[with_b], w[ups], w[downs]])
    # The part of a cell above a multiple of Q (small cells) or above its count, and the part below its count.
    over_b = with_b[toggle[with_b]]
    under_b = with_b[~toggle[with_b]]
    over = put(over_b, number[over_b], (low - model.tolerance)[over_b]) + put(ups, at_p, 1.0)
    under = put(under_b, number[under_b], -np.minimum(c, ref)[under_b]) + put(downs, at_q, 1.0)
    return _Columns(
        constant=always * ref,
        shape=put(with_b, at_b, ref[with_b]) + put(ups, at_p, 1.0) - put(downs, at_q, 1.0),
        cost=cost,
        offset=float(w @ np.where(always > 0, np.abs(ref - c), c)),
        upper=np.concatenate([np.ones(b), (high - ref)[ups], (ref - floor)[downs]]).astype(np.float64),
        links=sparse.vstack([
            _links(ups[has_b[ups]], at_p[has_b[ups]], number, (high - ref), total),
            _links(downs[has_b[downs]], at_q[has_b[downs]], number, (ref - low), total),
        ]).tocsr(),
        over=over,
        under=under,
        fixed_over=np.where((always > 0) & ~toggle, np.maximum(ref - c, 0), 0).astype(np.float64),
        fixed_under=np.where(toggle, 0, np.where(has_b | ~on, c, np.maximum(c - ref, 0))).astype(np.float64),
        occupied=with_b,
    )  # fmt: skip


def _links(cells: Int64s, columns: Int64s, number: Int64s, most: Int64s, total: int) -> sparse.csr_matrix:
    """Return step ≤ most · b, a row for each step."""
    rows = np.arange(len(cells))
    data = np.concatenate([np.ones(len(cells)), -most[cells].astype(np.float64)])
    places = (np.concatenate([rows, rows]), np.concatenate([columns, number[cells]]))
    return sparse.csr_matrix((data, places), shape=(len(cells), total))


def _rounding_rows(model: CellModel, columns: _Columns) -> tuple[sparse.csr_matrix, Floats]:
    """Return rows @ variables ≥ sides: (Q − r)·over + r·under ≥ r·(Q − r), for the lines with a rest r."""
    q = model.tolerance
    toggle = model.zero_ok & (model.counts < q)
    small = np.rint(model.totals - model.matrix @ np.where(toggle, 0, model.counts))
    rest = np.mod(small, q)
    lines = np.flatnonzero(model.rounded & (rest > 0)) if not model.soft else np.zeros(0, dtype=np.int64)
    rest = rest[lines]
    matrix = model.matrix[lines]
    up, down = sparse.diags(q - rest) @ matrix, sparse.diags(rest) @ matrix
    sides = rest * (q - rest) - up @ columns.fixed_over - down @ columns.fixed_under
    return (up @ columns.over + down @ columns.under).tocsr(), sides


def _run(columns: _Columns, model: CellModel, *, time_limit: float, start: Int64s | None) -> Solved:
    lines = model.matrix @ columns.shape
    cuts, sides = _rounding_rows(model, columns)
    targets = model.totals - model.matrix @ columns.constant
    rows = [lines, columns.links, cuts]
    lower = [targets, np.full(columns.links.shape[0], -np.inf), sides]
    upper = [targets, np.zeros(columns.links.shape[0]), np.full(len(sides), np.inf)]
    cost, most = columns.cost, columns.upper
    if model.soft:
        free = np.flatnonzero(model.rounded)  # links between tables are never off
        off = len(free)
        slack = sparse.csr_matrix((np.ones(off), (free, np.arange(off))), shape=(len(targets), off))
        rows = [
            sparse.hstack([lines, slack, -slack]),
            sparse.hstack([columns.links, sparse.csr_matrix((columns.links.shape[0], 2 * off))]),
            sparse.csr_matrix(np.concatenate([np.zeros(len(cost)), np.ones(2 * off)])[None]),
        ]
        lower = [targets, lower[1], np.array([-np.inf])]
        upper = [targets, upper[1], np.array([model.most_off])]
        price = 1.0 if model.most_off == np.inf else 0.0
        cost = np.concatenate([(1.0 - price) * cost, np.full(2 * off, price)])
        most = np.concatenate([most, np.full(2 * off, np.inf)])
    offset = columns.offset if not model.soft or model.most_off < np.inf else 0.0
    hint = None if start is None else _as_variables(columns, model, start)
    programme = Programme(
        costs=cost,
        offset=offset,
        upper=most,
        matrix=sparse.vstack(rows),
        low=np.concatenate(lower),
        high=np.concatenate(upper),
    )
    status, values, bound = solve_whole(programme, time_limit=time_limit, start=hint)
    if values is None:
        return Solved(status=status, bound=bound)
    cells = np.rint(columns.constant + columns.shape @ values[: len(columns.cost)]).astype(np.int64)
    return Solved(status=status, cells=cells, bound=bound)


def _as_variables(columns: _Columns, model: CellModel, x: Int64s) -> Floats:
    """Express a table as values of the variables: b, then the steps above and below the occupied cell's reference."""
    b = np.zeros(len(columns.cost))
    b[: len(columns.occupied)] = x[columns.occupied] > 0
    apart = x - columns.constant - columns.shape @ b
    up = columns.shape.tocsc()[:, len(columns.occupied) :]
    cells, signs = up.indices, up.data  # one entry per step column
    b[len(columns.occupied) :] = np.maximum(0, signs * apart[cells])
    if not model.soft:
        return b
    off = (model.totals - model.matrix @ x)[model.rounded]
    return np.concatenate([b, np.maximum(off, 0), np.maximum(-off, 0)])


def solve_whole(
    programme: Programme, *, time_limit: float, start: Floats | None = None, most_nodes: int | None = None
) -> tuple[Status, Floats | None, float]:
    """Return the solver's status, the best values or None, and a lower bound of any solution."""
    # Measured on tables: symmetry is rarely found, and a start is better than what the jump would find.
    settings = {"mip_detect_symmetry": False, "mip_heuristic_run_feasibility_jump": start is None}
    limits: dict[str, Any] = {"seconds": max(0.05, time_limit), "most_nodes": most_nodes}
    try:
        found = solve(programme, start=start, settings=settings, **limits)
    except ImportError:
        raise EngineError(
            "the solver HiGHS is not installed",
            code="no-solver",
            hint='pip install highspy; or use solver="heuristic"',
        ) from None
    bound = found.cost if found.status == "optimal" else found.bound
    return found.status, found.values, 0.0 if bound == -np.inf else bound


_MOST_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class MarginFigure:
    """One figure of a kept margin: the variables of the margin, the position in it (from 0), the total."""

    margin: Names
    at: tuple[int, ...]
    total: int

    @property
    def text(self) -> str:
        """The figure as named in a message; positions are counted from 1."""
        place = ", ".join(f"{name} {level + 1}" for name, level in zip(self.margin, self.at, strict=True))
        return f"{place or 'all together'} ({self.total:,})"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"margin": list(self.margin), "at": list(self.at), "total": self.total}


def refuse_small_margins(problem: TableProblem) -> None:
    """Refuse kept figures between 0 and the tolerance: safe cells cannot sum to them, and they cannot be published."""
    totals = problem.totals
    small = np.flatnonzero((totals > 0) & (totals < problem.tolerance))
    if not small.size:
        return
    places = [problem.position(int(line)) for line in small[:_MOST_LISTED]]
    margins = sorted({" × ".join(names) or "total" for names, _ in places})
    raise InfeasibleError(
        f"{plural(small.size, 'kept figure is itself', 'kept figures are themselves')} above 0 and below the "
        f"tolerance {problem.tolerance} (margin by "
        f"{', '.join(margins)}): cells that are 0 or at least {problem.tolerance} never add up to them",
        code="margin-below-tolerance",
        hint="keep coarser margins (keep=…), merge levels, or lower the tolerance; a margin below the tolerance could "
        "not be published anyway",
        figures=int(small.size),
        margins=[{"margin": list(names), "at": list(at)} for names, at in places],
    )


def no_safe_table_error(figures: Sequence[MarginFigure], *, tolerance: int, minimal: bool) -> InfeasibleError:
    """Return the refusal with its reason."""
    listed = ", ".join(figure.text for figure in figures[:_MOST_LISTED])
    more = f" and {len(figures) - _MOST_LISTED:,} more" if len(figures) > _MOST_LISTED else ""
    why = f": {plural(len(figures), 'kept figure')} cannot be met together: {listed}{more}" if figures else ""
    less = "; without any one of them the others could be" if minimal and len(figures) > 1 else ""
    return InfeasibleError(
        f"no table with these margins is 0 or at least {tolerance} in every cell{why}{less}",
        code="no-safe-table",
        hint="give up a margin (keep=…), widen bounds, lower the tolerance, or set soft=True for the least violation",
        figures=[figure.as_dict() for figure in figures],
        minimal=minimal,
    )


def not_found_error(*, tolerance: int) -> InfeasibleError:
    """Return the refusal if no table was found, without proof that there is none."""
    return InfeasibleError(
        f"no table with these margins was found that is 0 or at least {tolerance} in every cell; whether one "
        "exists was not decided within the time limit",
        code="no-safe-table-found",
        hint="give more time (time_limit=…), give up a margin (keep=…), or set soft=True for a small violation of them",
    )


def conflicting_lines(model: CellModel, *, time_limit: float) -> tuple[list[int], bool]:
    """Return a minimal set of lines that cannot be met together, and True if it was proved minimal.

    The lines of the model as a whole are known to be infeasible. A line that is no sum of cells links two tables and is
    always kept.
    """
    end = time.monotonic() + time_limit
    proved = True
    always = [int(line) for line in np.flatnonzero(~model.rounded)]

    def can_be_met(lines: Sequence[int]) -> bool:
        nonlocal proved
        rows = sorted([*always, *lines])
        part = replace(
            model,
            matrix=model.matrix[rows],
            totals=model.totals[rows],
            rounded=model.rounded[rows],
            weights=np.zeros(model.counts.size),
        )
        found = find_nearest(part, time_limit=max(0.2, min(5.0, end - time.monotonic())))
        if found.status == "unknown":
            proved = False  # undecided: treat the lines as feasible
        return found.status != "infeasible"

    # Small figures conflict more often than large ones, so they come first, to be dropped last.
    order = [int(line) for line in np.argsort(model.totals, kind="stable") if model.rounded[line]]
    found = _smallest_conflict(order, can_be_met, lambda: time.monotonic() > end)
    return sorted(found), proved and time.monotonic() <= end


def _smallest_conflict(
    lines: Sequence[int], can_be_met: Callable[[Sequence[int]], bool], late: Callable[[], bool]
) -> list[int]:
    def explain(base: list[int], rest: list[int], *, added: bool) -> list[int]:
        if added and not late() and not can_be_met(base):
            return []
        if len(rest) == 1 or late():
            return rest
        half = len(rest) // 2
        first, second = rest[:half], rest[half:]
        right = explain(base + first, second, added=True)
        left = explain(base + right, first, added=bool(right))
        return left + right

    return explain([], list(lines), added=False)
