"""A safe table with exact margins, quickly, for tables of any size; near the best one, and how near is known.

Anneal through safe tables whose margins are off, put the margins right exactly, and make the few cells that this made
unsafe safe again by moves that keep every margin.
"""

from __future__ import annotations

import numpy as np

from safeswap.kernels import safe_anneal, safe_boxes
from safeswap.kernels.safe_bound import Bound, lower_bound
from safeswap.kernels.safe_line_bound import line_bound
from safeswap.kernels.safe_lines import balancing_cells, moved_axes
from safeswap.kernels.types import Floats, Int64s
from safeswap.methods.safe_problem import TableProblem

_STEPS_PER_CELL = 12_500
_MOST_STEPS = 100_000_000
_LARGE = 100_000  # cells; above, several annealings would take minutes
_STEPS_OF_LARGE = 150_000_000
# Strength and temperature from the first to the last step, found by trial. At first the multipliers alone hold the
# lines together; in the end a unit of change, which costs 1, is cheaper than a unit out of balance.
_SLOW = (((0.02, 0.9), (0.2, 0.14)), ((0.9, 1.4), (0.14, 0.1)))
_FIRM = (((0.1, 2.5), (0.4, 0.1)),)
_BOUND_WORK = 30_000_000  # cells looked at, all steps of the ascent together
_MOST_BY_LINES = 20_000  # cells
_TRIES = (32, 256, 2048)
_MOST_TRIES = 40_000_000

Stages = tuple[tuple[tuple[float, float], tuple[float, float]], ...]


def table_bound(problem: TableProblem) -> Bound:
    """What no safe table with these margins can go below, from multipliers of the lines."""
    return lower_bound(
        problem.counts,
        low=problem.low,
        high=problem.high,
        zero_ok=problem.zero_ok,
        weights=problem.weights,
        ids=problem.ids,
        lines=problem.lines,
        tolerance=problem.tolerance,
        steps=int(np.clip(_BOUND_WORK // problem.counts.size, 20, 1500)),
    )


def closer_bound(problem: TableProblem, *, seconds: float, enough: float) -> float:
    """A bound that is mostly higher, for tables of three and more kept margins; 0 where it would take too long.

    In two-way tables the integer programme comes as far in as little time.
    """
    if len(problem.keep) < 3 or problem.counts.size > _MOST_BY_LINES:
        return 0.0
    return line_bound(
        problem.counts,
        low=problem.low,
        high=problem.high,
        zero_ok=problem.zero_ok,
        weights=problem.weights,
        ids=problem.ids,
        seconds=seconds,
        enough=enough,
    )


def near_table(problem: TableProblem, multipliers: Floats, *, seed: int = 1, effort: float = 1.0) -> Int64s | None:
    """The best safe table with the kept margins of several annealings; None where none found one.

    The same arguments give the same table on every machine.
    """
    axes = moved_axes(len(problem.shape), problem.keep)
    if not axes:
        return None
    small = problem.counts.size <= _LARGE
    steps = effort * (min(_MOST_STEPS, _STEPS_PER_CELL * problem.counts.size) if small else _STEPS_OF_LARGE)
    best: Int64s | None = None
    chains = ((_SLOW, 0), (_FIRM, 1), (_SLOW, 2), (_FIRM, 3)) if small else ((_SLOW, 0), (_FIRM, 1))
    for stages, number in chains:
        x = _annealed(problem, multipliers, stages, steps=int(steps), seed=seed + 100 * number)
        x = _settled(problem, _balanced(problem, x), axes, seed=seed + number)
        if problem.solves(x) and (best is None or problem.change(x) < problem.change(best)):
            best = x
        if best is not None and not small:
            break
    return best


def nearly_balanced(problem: TableProblem, multipliers: Floats, *, seed: int = 1) -> Int64s:
    """A safe table whose margins are off a little, for where they need not hold."""
    steps = min(_MOST_STEPS, _STEPS_PER_CELL * problem.counts.size)
    return _annealed(problem, multipliers, _FIRM, steps=steps, seed=seed)


def _annealed(problem: TableProblem, multipliers: Floats, stages: Stages, *, steps: int, seed: int) -> Int64s:
    x = safe_anneal.nearest_safe(problem.counts, problem.low, problem.high, problem.zero_ok)
    excess = problem.excess(x)
    scale = float(problem.weights.mean())
    heat = scale * max(1.0, problem.tolerance / 5)
    for stage, (strength, temperature) in enumerate(stages):
        safe_anneal.anneal(
            problem.counts, x, problem.low, problem.high, problem.zero_ok, problem.weights, problem.ids, excess,
            multipliers, (strength[0] * scale, strength[1] * scale), (temperature[0] * heat, temperature[1] * heat),
            steps // len(stages), seed + stage,
        )  # fmt: skip
    return x


def _balanced(problem: TableProblem, x: Int64s) -> Int64s:
    """The margins put right, on the cells of the largest levels as far as possible; cells may become unsafe."""
    excess = problem.excess(x)
    if not excess.any():
        return x
    counts = problem.counts.reshape(problem.shape)
    ways = range(len(problem.shape))
    anchor = [int(counts.sum(axis=tuple(other for other in ways if other != axis)).argmax()) for axis in ways]
    parts, first = [], 0
    for axes in problem.keep:
        sizes = [problem.shape[axis] for axis in axes]
        number = int(np.prod(sizes, dtype=np.int64))
        parts.append(excess[first : first + number].reshape(sizes))
        first += number
    cells, amounts = balancing_cells(problem.shape, problem.keep, parts, anchor)
    balanced = x.copy()
    np.add.at(balanced, cells, amounts)
    return balanced


def _settled(problem: TableProblem, x: Int64s, axes: tuple[tuple[int, ...], ...], *, seed: int) -> Int64s:
    x = x.copy()
    longest = max(len(each) for each in axes)
    boxes = np.array([[*each, *[-1] * (longest - len(each))] for each in axes], dtype=np.int64).reshape(
        len(axes), longest
    )
    shape = np.array(problem.shape, dtype=np.int64)
    strides = np.array([int(np.prod(problem.shape[axis + 1 :])) for axis in range(len(shape))], dtype=np.int64)
    domain = (problem.low, problem.high, problem.zero_ok, problem.weights, shape, strides, boxes)
    price = 4.0 * problem.tolerance * float(problem.weights.max())
    for round_number, most in enumerate(_TRIES):
        queue = safe_boxes.unsafe_cells(x, problem.low, problem.high, problem.zero_ok)
        if not queue.size:
            break
        tries = min(most, max(8, _MOST_TRIES // queue.size))
        safe_boxes.settle(problem.counts, x, *domain, queue, price, tries, seed + round_number)
    if problem.is_safe(x):
        safe_boxes.polish(problem.counts, x, *domain, 16, seed)
    return x
