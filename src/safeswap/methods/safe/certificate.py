"""Explain why no safe table exists: a minimal set of kept figures that cannot be met together.

Found by bisecting the figures (QuickXplain; Junker 2004), each trial an integer programme without an objective. The set
is minimal: dropping any one of its figures lets the others be met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from safeswap.arrays.names import Names
from safeswap.errors import InfeasibleError
from safeswap.methods.safe.milp import CellModel, find_nearest
from safeswap.methods.safe.problem import TableProblem
from safeswap.model.text import plural

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
        hint="give up a margin (keep=…), widen bounds, lower the tolerance, or say soft=True for the least violation",
        figures=[figure.as_dict() for figure in figures],
        minimal=minimal,
    )


def not_found_error(*, tolerance: int) -> InfeasibleError:
    """Return the refusal where no table was found, without proof that there is none."""
    return InfeasibleError(
        f"no table with these margins was found that is 0 or at least {tolerance} in every cell; whether there is one "
        "was not decided in the time given",
        code="no-safe-table-found",
        hint="give more time (time_limit=…), give up a margin (keep=…), or say soft=True for a small violation of them",
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
