"""Make tables of counts safe: every cell 0 or at least the tolerance, every kept margin exact, little change.

Sources: Appel, Kinzel & Nolte, SAFE (the German statistical offices' anonymisation of tables); Moore 1996, section V,
which prints the example that the tests reproduce.

Several tables of the same records are made safe at once: shared figures stay equal in all of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from safeswap.arrays.names import Names
from safeswap.arrays.table_lines import Axes, drop_implied_margins
from safeswap.arrays.types import Int64s
from safeswap.errors import InfeasibleError, InternalError, SpecError
from safeswap.methods.safe.heuristic import closer_bound, near_balanced_table, near_table, nearest_safe, table_bound
from safeswap.methods.safe.milp import (
    CellModel,
    MarginFigure,
    Solved,
    conflicting_lines,
    find_nearest,
    no_safe_table_error,
    not_found_error,
    refuse_small_margins,
)
from safeswap.methods.safe.problem import UNLIMITED, TableProblem
from safeswap.methods.safe.spec import ChangedTable, Objective, SafeTables, Status
from safeswap.model.score import proved_bound
from safeswap.model.table import CountTable, Programme
from safeswap.model.text import plural

MOST_EXACT = 20_000
"""Cells up to which the integer programme is tried; larger tables would not get far."""

_CERTIFICATE_SECONDS = 10.0
_LINE_SECONDS = 10.0
_OF_THE_TIME = 0.9  # the solver checks the clock between steps, which may take a second each


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """A safe table in the solvers' form; no other is nearer than ``bound``."""

    cells: Int64s
    value: float
    bound: float
    status: Status


@dataclass(frozen=True)
class Nothing:
    """No safe table: proved, or none found in time."""

    proved: bool


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Solver settings: "exact" and "auto" try to prove the optimum within ``time_limit`` seconds."""

    objective: Objective = "total"
    solver: str = "auto"
    soft: bool = False
    time_limit: float = 30.0

    def __post_init__(self) -> None:
        known = {"objective": ("total", "largest", "weighted"), "solver": ("auto", "exact", "heuristic")}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise SpecError(
                    f"there is no {name} {getattr(self, name)!r}",
                    code="bad-spec",
                    hint=f"the choices are: {', '.join(choices)}",
                )
        if self.soft and self.objective == "largest":
            raise SpecError(
                "a soft solution has the least violation of the margins, then the least total change",
                code="bad-spec",
                hint='use objective="total" or "weighted" with soft=True',
            )
        if not self.time_limit > 0:
            raise SpecError("the time limit must be above 0 seconds", code="bad-spec", hint="for example time_limit=30")

    def proves(self, cells: int) -> bool:
        """Return True if the integer programme is tried for this many cells."""
        return self.solver == "exact" or (self.solver == "auto" and cells <= MOST_EXACT)


def make_table_safe(table: CountTable, problem: TableProblem, terms: Terms) -> SafeTables:
    """Make one table safe, or refuse with the reason."""
    end = time.monotonic() + terms.time_limit
    if not problem.solves(problem.counts):
        refuse_small_margins(problem)
    solve = _minimise_largest if terms.objective == "largest" else _minimise_total
    found = solve(problem, terms, end)
    return check_result([table], [problem], found, terms)


def check_result(
    tables: list[CountTable], problems: list[TableProblem], found: Found, terms: Terms, *, off: tuple[int, int] = (0, 0)
) -> SafeTables:
    """Build the result, after checking every promise on it."""
    changed, first = [], 0
    for table, problem in zip(tables, problems, strict=True):
        cells = found.cells[first : first + problem.counts.size]
        first += problem.counts.size
        if not problem.is_safe(cells) or (not terms.soft and problem.excess(cells).any()):
            raise InternalError(
                "the solver returned a table that is not safe or does not keep its margins", code="unsafe-table"
            )
        keep = tuple(tuple(problem.names[axis] for axis in axes) for axes in problem.keep)
        after = table.with_counts(cells.reshape(table.counts.shape))
        changed.append(ChangedTable(before=table, after=after, keep=keep))
    return SafeTables(
        tables=tuple(changed),
        tolerance=problems[0].tolerance,
        objective=terms.objective,
        value=found.value,
        bound=proved_bound(found.bound, found.value),
        status=found.status,
        violation=off[0],
        violation_bound=off[1],
    )


def cell_model(problems: list[TableProblem]) -> CellModel:
    """Return the tables as one programme of cells and lines, one after another."""
    blocks = []
    for problem in problems:
        size = problem.counts.size
        places = (problem.ids.ravel(), np.tile(np.arange(size), len(problem.keep)))
        blocks.append(sparse.csr_matrix((np.ones(problem.ids.size), places), shape=(problem.lines, size)))
    totals = np.concatenate([problem.totals for problem in problems])
    return CellModel(
        counts=np.concatenate([problem.counts for problem in problems]),
        low=np.concatenate([problem.low for problem in problems]),
        high=np.concatenate([problem.high for problem in problems]),
        zero_ok=np.concatenate([problem.zero_ok for problem in problems]),
        weights=np.concatenate([problem.weights for problem in problems]),
        tolerance=problems[0].tolerance,
        matrix=sparse.block_diag(blocks).tocsr(),
        totals=totals,
        rounded=np.ones(len(totals), dtype=np.bool_),
    )


def _minimise_total(problem: TableProblem, terms: Terms, end: float) -> Found:
    if problem.solves(problem.counts):
        return Found(cells=problem.counts.copy(), value=0.0, bound=0.0, status="optimal")
    found = _search(problem, terms, end)
    if isinstance(found, Nothing):
        raise infeasible_error([problem], cell_model([problem]), proved=found.proved)
    return found


def _search(problem: TableProblem, terms: Terms, end: float) -> Found | Nothing:
    """Return the best table found in time."""
    dual = table_bound(problem)
    bound = _round_up(problem, dual.value)
    # Annealing is cheap compared with the programme that follows, and gives it a start.
    cells = near_table(problem, dual.multipliers)
    value = np.inf if cells is None else problem.change(cells)
    if bound < value < np.inf and terms.objective != "largest":  # which only asks if there is a table
        seconds = min(_LINE_SECONDS, 0.3 * max(0.0, end - time.monotonic()))
        bound = max(bound, _round_up(problem, closer_bound(problem, seconds=seconds, enough=value)))
    proves, proved = terms.proves(problem.counts.size), False
    if value > bound and proves:
        seconds = _OF_THE_TIME * (end - time.monotonic())
        solved = find_nearest(cell_model([problem]), time_limit=seconds, start=cells)
        proved = solved.status == "infeasible"
        bound = max(bound, _round_up(problem, solved.bound))
        if solved.cells is not None and problem.change(solved.cells) < value:
            cells, value = solved.cells, problem.change(solved.cells)
    if cells is None:
        return Nothing(proved)
    status: Status = "gap" if proves else "heuristic"
    return Found(cells=cells, value=value, bound=bound, status="optimal" if value <= bound + 1e-9 else status)


def _round_up(problem: TableProblem, bound: float) -> float:
    """Round a bound up: whole weights make whole changes, and kept margins make the total even."""
    if not np.isfinite(bound) or (problem.weights != np.rint(problem.weights)).any():
        return bound
    whole = float(np.ceil(bound - 1e-6))
    even = bool(problem.keep) and (problem.weights == 1).all()
    return whole + (whole % 2 if even else 0)


def _minimise_largest(problem: TableProblem, terms: Terms, end: float) -> Found:
    """Allow at most 1, 2, … units of change per cell, until that is feasible; then minimise the total."""
    if problem.solves(problem.counts):
        return Found(cells=problem.counts.copy(), value=0.0, bound=0.0, status="optimal")
    start = nearest_safe(problem.counts, problem.low, problem.high, problem.zero_ok)
    proved = int(np.abs(start - problem.counts).max())
    final = int(max(problem.counts.max(), problem.totals.max(initial=0)))
    hopeless = False
    for limit in (*range(proved, min(final, proved + 2 * problem.tolerance)), final):
        share = 1.0 if limit == final else 0.5
        found = _search(problem.limit(limit), terms, time.monotonic() + max(0.2, share * (end - time.monotonic())))
        if isinstance(found, Found):
            largest = int(np.abs(found.cells - problem.counts).max())
            status: Status = "optimal" if largest <= proved else ("gap" if terms.proves(start.size) else "heuristic")
            return Found(cells=found.cells, value=float(largest), bound=float(proved), status=status)
        if found.proved and limit == proved:
            proved += 1
        hopeless = found.proved
    raise infeasible_error([problem], cell_model([problem]), proved=hopeless)


def infeasible_error(problems: list[TableProblem], model: CellModel, *, proved: bool) -> InfeasibleError:
    """Return the reason why there is no safe table, with an explanation where it was proved."""
    tolerance = problems[0].tolerance
    if not proved:
        return not_found_error(tolerance=tolerance)
    lines, minimal = conflicting_lines(model, time_limit=_CERTIFICATE_SECONDS)
    figures = []
    for line in lines:
        names, at = _position(problems, line)
        figures.append(MarginFigure(margin=names, at=at, total=int(model.totals[line])))
    return no_safe_table_error(figures, tolerance=tolerance, minimal=minimal)


def _position(problems: list[TableProblem], line: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    for problem in problems:
        if line < problem.lines:
            return problem.position(line)
        line -= problem.lines
    raise InternalError("a line of no table", code="unsafe-table")


# Soft margins: first minimise the total violation of the kept margins; then, at that violation, the change.


def least_violation(
    tables: list[CountTable], problems: list[TableProblem], terms: Terms, *, model: CellModel | None = None
) -> SafeTables:
    """Make tables safe with margins that are off as little as possible. ``model`` links several tables."""
    model = cell_model(problems) if model is None else model
    _refuse_impossible(model)
    if terms.proves(model.counts.size):
        return _prove_least(tables, problems, model, terms)
    if len(problems) > 1:
        raise SpecError(
            f"linked tables of {plural(model.counts.size, 'cell')} together are too many for soft=True",
            code="too-many-cells",
            hint=f'at most {MOST_EXACT:,} cells, or solver="exact" with a long time limit; or one table at a time',
        )
    rounded = nearest_safe(model.counts, model.low, model.high, model.zero_ok)
    problem = replace(problems[0], high=_limit_cells(model, _count_off(model, rounded)))
    cells = near_balanced_table(problem, table_bound(problem).multipliers)
    found = Found(cells=cells, value=problem.change(cells), bound=0.0, status="heuristic")
    return check_result(tables, problems, found, terms, off=(_count_off(model, cells), 0))


def _prove_least(tables: list[CountTable], problems: list[TableProblem], model: CellModel, terms: Terms) -> SafeTables:
    end = time.monotonic() + terms.time_limit
    start = _start(model)
    # A known solution limits the cells; without one, use a guess until there is an answer.
    most = int(model.totals[model.rounded].sum() + model.low.sum()) if start is None else _count_off(model, start)
    first = _least_violation(model, most, terms.time_limit / 2, start)
    if first.cells is not None and _count_off(model, first.cells) > most:
        first = _least_violation(model, _count_off(model, first.cells), max(0.2, end - time.monotonic()), first.cells)
    if first.cells is None:
        raise not_found_error(tolerance=model.tolerance)
    off = _count_off(model, first.cells)
    fewest = int(np.ceil(first.bound - 1e-6)) if np.isfinite(first.bound) else 0
    left = max(0.2, end - time.monotonic())
    within = replace(model, high=_limit_cells(model, off), soft=True, most_off=float(off))
    second = find_nearest(within, time_limit=left, start=first.cells)
    cells = first.cells if second.cells is None else second.cells
    proved = second.status == "optimal" and first.status == "optimal"
    value = float(model.weights @ np.abs(cells - model.counts))
    found = Found(cells=cells, value=value, bound=min(value, second.bound), status="optimal" if proved else "gap")
    return check_result(tables, problems, found, terms, off=(_count_off(model, cells), min(off, fewest)))


def _least_violation(model: CellModel, most: int, seconds: float, start: Int64s | None) -> Solved:
    return find_nearest(replace(model, high=_limit_cells(model, most), soft=True), time_limit=seconds, start=start)


def _start(model: CellModel) -> Int64s | None:
    """Return a safe table, ignoring its margins. Rounding would not keep linked tables equal; zeros do."""
    if model.rounded.all():
        return nearest_safe(model.counts, model.low, model.high, model.zero_ok)
    return np.zeros_like(model.counts) if model.zero_ok.all() else None


def _limit_cells(model: CellModel, off: int) -> Int64s:
    """Return the largest value of each cell while at most ``off`` units of the kept figures are off.

    A cell is part of each kept figure of its lines, and exceeds the smallest of them by no more than that. A cell of no
    kept figure is limited by what could be linked to it, or by the cost of changing all cells to 0.
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
            f"{plural(bad, 'cell')} may neither be 0 nor, within their bounds, reach the tolerance",
            code="no-safe-table",
            hint="widen their bounds",
            cells=bad,
        )


def _count_off(model: CellModel, cells: Int64s) -> int:
    return int(np.abs(model.matrix @ cells - model.totals)[model.rounded].sum())


def safe_programme(programme: Programme, problems: list[TableProblem], terms: Terms) -> SafeTables:
    """Make all tables of a programme safe.

    If the shared margins are kept in both tables, the tables are independent and each is solved on its own. Otherwise
    one integer programme holds all cells, with an equation for each shared figure.
    """
    tables = list(programme.tables)
    if len(tables) == 1 and not terms.soft:
        return make_table_safe(tables[0], problems[0], terms)
    if terms.soft:
        model = cell_model(problems) if len(tables) == 1 else _linked_model(problems, programme.links)
        return least_violation(tables, problems, terms, model=model)
    loose = [link for link in programme.links if not _is_kept(problems, link)]
    if not loose:
        return _solve_one_by_one(tables, problems, terms)
    return _solve_together(tables, problems, loose, terms)


def _is_kept(problems: list[TableProblem], link: tuple[int, int, Names]) -> bool:
    first, second, names = link
    return all(
        any(set(_axes(problems[number], names)) <= set(kept) for kept in problems[number].keep)
        for number in (first, second)
    )


def _axes(problem: TableProblem, names: Names) -> Axes:
    return tuple(sorted(problem.names.index(name) for name in names))


def _solve_one_by_one(tables: list[CountTable], problems: list[TableProblem], terms: Terms) -> SafeTables:
    sizes = np.array([problem.counts.size for problem in problems], dtype=np.float64)
    shares = terms.time_limit * sizes / sizes.sum()
    results = [
        make_table_safe(table, problem, replace(terms, time_limit=float(share)))
        for table, problem, share in zip(tables, problems, shares, strict=True)
    ]
    joined = max if terms.objective == "largest" else sum
    worst = {"optimal": 0, "gap": 1, "heuristic": 2}
    return replace(
        results[0],
        tables=tuple(result.tables[0] for result in results),
        value=float(joined(result.value for result in results)),
        bound=float(joined(result.bound for result in results)),
        status=max((result.status for result in results), key=lambda status: worst[status]),
    )


def _solve_together(
    tables: list[CountTable], problems: list[TableProblem], loose: list[tuple[int, int, Names]], terms: Terms
) -> SafeTables:
    end = time.monotonic() + terms.time_limit
    for problem in problems:
        if not problem.solves(problem.counts):
            refuse_small_margins(problem)
    start = _solve_apart(tables, problems, loose, replace(terms, solver="heuristic"))
    model = _linked_model(problems, tuple(loose))
    whole = np.concatenate([problem.counts for problem in problems])
    if start is not None and not terms.proves(whole.size):
        value = _value(model, start, terms)
        return check_result(tables, problems, Found(cells=start, value=value, bound=0.0, status="heuristic"), terms)
    if terms.objective == "largest":
        return check_result(tables, problems, _minimise_largest_linked(problems, loose, start, end), terms)
    solved = find_nearest(model, time_limit=max(0.2, end - time.monotonic()), start=start)
    if solved.cells is None:
        raise infeasible_error(problems, model, proved=solved.status == "infeasible")
    status: Status = "optimal" if solved.status == "optimal" else "gap"
    value = _value(model, solved.cells, terms)
    return check_result(
        tables, problems, Found(cells=solved.cells, value=value, bound=solved.bound, status=status), terms
    )


def _minimise_largest_linked(
    problems: list[TableProblem], loose: list[tuple[int, int, Names]], start: Int64s | None, end: float
) -> Found:
    counts = np.concatenate([problem.counts for problem in problems])
    most = int(counts.max()) if start is None else int(np.abs(start - counts).max())
    proved, best = 0, start
    low, high = 0, most
    while low < high or best is None:
        # Bisection: feasible within a limit implies feasible within a larger one.
        limit = (low + high) // 2
        model = _linked_model([problem.limit(limit) for problem in problems], tuple(loose))
        left = end - time.monotonic()
        solved = find_nearest(model, time_limit=max(0.2, left / 2))
        if solved.cells is not None:
            best, high = solved.cells, limit
            continue
        proved = limit + 1 if solved.status == "infeasible" and limit >= proved else proved
        if low >= high:
            raise infeasible_error(
                problems, _linked_model(problems, tuple(loose)), proved=solved.status == "infeasible"
            )
        low = limit + 1
    largest = int(np.abs(best - counts).max())
    status: Status = "optimal" if largest <= proved or not largest else "gap"
    return Found(cells=best, value=float(largest), bound=float(proved), status=status)


def _solve_apart(
    tables: list[CountTable], problems: list[TableProblem], loose: list[tuple[int, int, Names]], terms: Terms
) -> Int64s | None:
    """Solve each table separately with its shared figures fixed: a solution, though rarely the nearest."""
    cells = []
    for number, (table, problem) in enumerate(zip(tables, problems, strict=True)):
        shared = [_axes(problem, names) for first, second, names in loose if number in (first, second)]
        tied = replace(problem, keep=drop_implied_margins([*problem.keep, *shared]))
        try:
            cells.append(make_table_safe(table, tied, terms).counts.ravel())
        except InfeasibleError:
            return None
    return np.concatenate(cells)


def _value(model: CellModel, cells: Int64s, terms: Terms) -> float:
    moves = np.abs(cells - model.counts)
    return float(moves.max()) if terms.objective == "largest" else float(model.weights @ moves)


def _linked_model(problems: list[TableProblem], links: tuple[tuple[int, int, Names], ...]) -> CellModel:
    """Build the programme of all cells, with an equation for every shared figure: equal in both tables."""
    model = cell_model(problems)
    rows = []
    for first, second, names in links:
        one, other = (_sums(problems[number], names) for number in (first, second))
        blocks = [sparse.csr_matrix((one.shape[0], problem.counts.size)) for problem in problems]
        blocks[first], blocks[second] = one, -other
        rows.append(sparse.hstack(blocks))
    if not rows:
        return model
    added = sum(row.shape[0] for row in rows)
    return replace(
        model,
        matrix=sparse.vstack([model.matrix, *rows]).tocsr(),
        totals=np.concatenate([model.totals, np.zeros(added, dtype=np.int64)]),
        rounded=np.concatenate([model.rounded, np.zeros(added, dtype=np.bool_)]),
    )


def _sums(problem: TableProblem, names: Names) -> sparse.csr_matrix:
    """Return the matrix that sums the cells of a table to its margin by these variables, in the order of the names."""
    index = np.indices(problem.shape).reshape(len(problem.shape), -1)
    axes = [problem.names.index(name) for name in names]
    sizes = [problem.shape[axis] for axis in axes]
    line = np.ravel_multi_index([index[axis] for axis in axes], sizes) if axes else np.zeros(index.shape[1], np.int64)
    number = int(np.prod(sizes, dtype=np.int64))
    data = (np.ones(line.size), (line, np.arange(line.size)))
    return sparse.csr_matrix(data, shape=(number, line.size))
