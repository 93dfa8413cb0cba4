"""Make tables of counts safe: every cell 0 or at least the tolerance, every kept margin exact, little change.

Sources: Appel, Kinzel & Nolte, SAFE (the German statistical offices' anonymisation of tables); Moore 1996, section V,
which prints the example that the tests reproduce.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from safeswap.arrays.types import Int64s
from safeswap.errors import InfeasibleError, InternalError, SpecError
from safeswap.methods.safe.anneal import nearest_safe
from safeswap.methods.safe.certificate import (
    MarginFigure,
    conflicting_lines,
    no_safe_table_error,
    not_found_error,
    refuse_small_margins,
)
from safeswap.methods.safe.heuristic import closer_bound, near_table, table_bound
from safeswap.methods.safe.milp import CellModel, find_nearest
from safeswap.methods.safe.problem import TableProblem
from safeswap.methods.safe.spec import ChangedTable, Objective, SafeTables, Status
from safeswap.model.score import proved_bound
from safeswap.model.table import CountTable

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
            raise SpecError("the time limit is above 0 seconds", code="bad-spec", hint="for example time_limit=30")

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
            raise InternalError("a table came out that is not safe, or not with its margins", code="unsafe-table")
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
    """Return the tables as one programme of cells and lines, one after the other."""
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
