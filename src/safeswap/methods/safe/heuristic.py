"""Find a safe table with exact margins quickly, at any size; close to the best, with a known gap.

Anneal through safe tables whose margins are off, restore the margins exactly, and make the few cells that this left
unsafe safe again by moves that keep every margin.

While annealing, the state is always safe: each cell is 0 or within its bounds. A step moves one cell from 0 to its
lowest safe value, back, or by ±1, which puts the lines through it out of balance. The objective is

    Σ weight·|x − count|  +  Σ over lines of (multiplier·excess + strength·|excess|)

with a falling temperature and a strength that grows beyond the cost of any unit of change, so that in the end the
margins hold, or nearly. Stepping through unbalanced tables finds far better ones than moves that keep the margins do.
"""

from __future__ import annotations

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.counter_random import mix_word
from safeswap.arrays.table_lines import balancing_cells, moved_axes
from safeswap.arrays.types import Flags, Floats, Int32s, Int64s
from safeswap.methods.safe.bounds import Bound, Domain, line_bound, lower_bound
from safeswap.methods.safe.problem import TableProblem

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S32 = np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def next_word(state):  # type: ignore[no-untyped-def]
    """Return the next pseudo-random word (SplitMix64); ``state`` is an array of one word."""
    state[0] += _GOLDEN
    return mix_word(state[0])


@njit(cache=True, nogil=True, inline="always")
def draw_below(word, number):  # type: ignore[no-untyped-def]
    """Return a number in 0 … number − 1 from the upper half of a word."""
    return np.int64(((word >> _S32) * np.uint64(number)) >> _S32)


@njit(cache=True, nogil=True)
def nearest_safe(counts: Int64s, low: Int64s, high: Int64s, zero_ok: Flags) -> Int64s:
    """Move each count to the nearest value that its cell may have.

    >>> counts, low, high = np.array([1, 4, 9]), np.full(3, 5), np.full(3, 8)
    >>> nearest_safe(counts, low, high, np.ones(3, dtype=np.bool_)).tolist()
    [0, 5, 8]
    """
    x = np.empty_like(counts)
    for i in range(counts.size):
        c = counts[i]
        if low[i] > high[i]:
            x[i] = 0
            continue
        value = min(max(c, low[i]), high[i])
        x[i] = 0 if zero_ok[i] and c < abs(value - c) else value
    return x


@njit(cache=True, nogil=True)
def anneal(
    counts: Int64s,
    x: Int64s,
    low: Int64s,
    high: Int64s,
    zero_ok: Flags,
    weights: Floats,
    ids: Int32s,
    excess: Int64s,
    multipliers: Floats,
    strength: tuple[float, float],
    temperature: tuple[float, float],
    steps: int,
    seed: int,
) -> None:
    """Take ``steps`` steps in place; ``excess`` holds the excess of each line of ``x``, and is kept up to date.

    ``strength`` and ``temperature`` are given for the first and the last step.
    """
    state = np.array([np.uint64(seed)], dtype=np.uint64)
    kinds = ids.shape[0]
    press, heat, u = strength[0], temperature[0], 0
    for step in range(steps):
        if step % 1024 == 0:
            done = step / steps
            press = strength[0] + (strength[1] - strength[0]) * done
            heat = temperature[0] * (temperature[1] / temperature[0]) ** done
        # Sequential order: neighbours share cache lines, which matters for large tables.
        u = u + 1 if u + 1 < counts.size else 0
        bits = next_word(state) >> _S32
        v = x[u]
        if v == 0:
            change = low[u]
            if change > high[u]:
                continue
        elif zero_ok[u] and (v == low[u] or (bits & np.uint64(31)) == 0) and (bits & np.uint64(7)) != 0:
            change = -v
        else:
            change = 1 if (bits & np.uint64(8)) == 0 else -1
            if v + change < low[u] or v + change > high[u]:
                continue
        cost = weights[u] * (abs(v + change - counts[u]) - abs(v - counts[u]))
        for k in range(kinds):
            line = ids[k, u]
            cost += press * (abs(excess[line] + change) - abs(excess[line])) + multipliers[line] * change
        if cost > 0 and np.float64(bits >> np.uint64(4)) * 2.0**-28 >= np.exp(-cost / heat):
            continue
        x[u] = v + change
        for k in range(kinds):
            excess[ids[k, u]] += change


# Moves that keep every margin: alternating +t and −t on the corners of a box, two levels on each of some axes.
#
# Each row of ``axes`` holds the axes of one kind of box (see :func:`safeswap.arrays.table_lines.moved_axes`), padded
# with −1. The corner that a move starts from gets +t.

_FORBIDDEN = 1e300


@njit(cache=True, nogil=True)
def is_safe(value, low, high, zero_ok):  # type: ignore[no-untyped-def]
    """Return True if a cell may have this value."""
    return (value == 0 and zero_ok) or (low <= value <= high)


@njit(cache=True, nogil=True)
def unsafe_cells(x: Int64s, low: Int64s, high: Int64s, zero_ok: Flags) -> Int64s:
    """Return the cells whose value is not allowed."""
    found = np.empty(x.size, dtype=np.int64)
    number = 0
    for i in range(x.size):
        if not is_safe(x[i], low[i], high[i], zero_ok[i]):
            found[number] = i
            number += 1
    return found[:number]


@njit(cache=True, nogil=True)
def _draw_box(u, shape, strides, kind, state, corners):  # type: ignore[no-untyped-def]
    """Draw the corners of a random box of one kind around cell u; return their number, 0 if an axis has one level."""
    number = 1
    corners[0] = u
    for position in range(kind.size):
        axis = kind[position]
        if axis < 0:
            break
        if shape[axis] < 2:
            return 0
        level = (u // strides[axis]) % shape[axis]
        other = draw_below(next_word(state), shape[axis] - 1)
        if other >= level:
            other += 1
        shift = (other - level) * strides[axis]
        for corner in range(number):
            corners[number + corner] = corners[corner] + shift
        number *= 2
    return number


@njit(cache=True, nogil=True)
def _is_odd(corner):  # type: ignore[no-untyped-def]
    odd = 0
    while corner:
        odd ^= corner & 1
        corner >>= 1
    return odd


@njit(cache=True, nogil=True)
def _defect(value, low, high, zero_ok):  # type: ignore[no-untyped-def]
    """Return the violation of a value: 0 if the cell may have it, else 1 plus the distance."""
    if is_safe(value, low, high, zero_ok):
        return 0
    distance = abs(value) if zero_ok else 1 << 40
    if low <= high:
        distance = min(distance, low - value if value < low else value - high)
    return 1 + distance


@njit(cache=True, nogil=True)
def _cost(x, counts, low, high, zero_ok, weights, corners, number, change, price):  # type: ignore[no-untyped-def]
    """Return what a move adds to the weighted change, a unit of violation costing ``price``; no count falls below 0."""
    cost = 0.0
    for corner in range(number):
        i = corners[corner]
        before = x[i]
        after = before - change if _is_odd(corner) else before + change
        if after < 0 and after < before:
            return _FORBIDDEN
        cost += weights[i] * (abs(after - counts[i]) - abs(before - counts[i]))
        cost += price * (_defect(after, low[i], high[i], zero_ok[i]) - _defect(before, low[i], high[i], zero_ok[i]))
    return cost


@njit(cache=True, nogil=True)
def _move(x, corners, number, change):  # type: ignore[no-untyped-def]
    for corner in range(number):
        x[corners[corner]] += -change if _is_odd(corner) else change


@njit(cache=True, nogil=True)
def _changes(value, low, high, zero_ok, out):  # type: ignore[no-untyped-def]
    """Write the changes that make an unsafe cell safe, and one half-way; return their number."""
    number = 0
    if zero_ok:
        out[number] = -value
        number += 1
    if low <= high:
        out[number] = low - value if value < low else high - value
        number += 1
    for whole in range(number):
        half = out[whole] // 2
        if half > 1 or half < -1:
            out[number] = half
            number += 1
            break
    return number


@njit(cache=True, nogil=True)
def settle(
    counts: Int64s,
    x: Int64s,
    low: Int64s,
    high: Int64s,
    zero_ok: Flags,
    weights: Floats,
    shape: Int64s,
    strides: Int64s,
    axes: Int64s,
    queue: Int64s,
    price: float,
    tries: int,
    seed: int,
) -> int:
    """Make the queued cells safe by the cheapest of ``tries`` random boxes each; return how many stay unsafe.

    A move is made only if it reduces the violation, or keeps it and brings the table nearer.
    """
    state = np.array([np.uint64(seed)], dtype=np.uint64)
    corners, best = np.empty(1 << axes.shape[1], np.int64), np.empty(1 << axes.shape[1], np.int64)
    changes = np.empty(3, np.int64)
    left = 0
    for u in queue:
        if is_safe(x[u], low[u], high[u], zero_ok[u]):
            continue
        lowest, change, size = 0.0, 0, 0
        options = _changes(x[u], low[u], high[u], zero_ok[u], changes)
        for _ in range(tries):
            number = _draw_box(u, shape, strides, axes[draw_below(next_word(state), axes.shape[0])], state, corners)
            if number == 0:
                continue
            for option in range(options):
                cost = _cost(x, counts, low, high, zero_ok, weights, corners, number, changes[option], price)
                if cost < lowest:
                    lowest, change, size = cost, changes[option], number
                    best[:number] = corners[:number]
        if size:
            _move(x, best, size, change)
        if not is_safe(x[u], low[u], high[u], zero_ok[u]):
            left += 1
    return left


@njit(cache=True, nogil=True)
def polish(
    counts: Int64s,
    x: Int64s,
    low: Int64s,
    high: Int64s,
    zero_ok: Flags,
    weights: Floats,
    shape: Int64s,
    strides: Int64s,
    axes: Int64s,
    tries: int,
    seed: int,
) -> None:
    """Move changed cells back towards their counts by boxes that keep the table safe and bring it nearer."""
    state = np.array([np.uint64(seed)], dtype=np.uint64)
    corners = np.empty(1 << axes.shape[1], np.int64)
    for u in range(x.size):
        for _ in range(tries):
            if x[u] == counts[u]:
                break
            number = _draw_box(u, shape, strides, axes[draw_below(next_word(state), axes.shape[0])], state, corners)
            if number == 0:
                continue
            change = 1 if x[u] < counts[u] else -1
            if not is_safe(x[u] + change, low[u], high[u], zero_ok[u]):
                # A small cell goes from its lowest safe value to 0, or back.
                change = low[u] if x[u] == 0 else -x[u]
            if _cost(x, counts, low, high, zero_ok, weights, corners, number, change, _FORBIDDEN) < -1e-9:
                _move(x, corners, number, change)


_STEPS_PER_CELL = 12_500
_MOST_STEPS = 100_000_000
_LARGE = 100_000  # cells; above, several annealing runs would take minutes
_STEPS_OF_LARGE = 150_000_000
# Strength and temperature from the first to the last step, found by trial. At first only the multipliers keep the
# lines in balance; at the end a unit of change, which costs 1, is cheaper than a unit out of balance.
_SLOW = (((0.02, 0.9), (0.2, 0.14)), ((0.9, 1.4), (0.14, 0.1)))
_FIRM = (((0.1, 2.5), (0.4, 0.1)),)
_BOUND_WORK = 30_000_000  # cells visited in all steps of the ascent
_MOST_BY_LINES = 20_000  # cells
_TRIES = (32, 256, 2048)
_MOST_TRIES = 40_000_000

Stages = tuple[tuple[tuple[float, float], tuple[float, float]], ...]


def table_bound(problem: TableProblem) -> Bound:
    """Return a lower bound of any safe table with these margins, from multipliers of the lines."""
    return lower_bound(
        problem.counts,
        _domain(problem),
        lines=problem.lines,
        tolerance=problem.tolerance,
        steps=int(np.clip(_BOUND_WORK // problem.counts.size, 20, 1500)),
    )


def closer_bound(problem: TableProblem, *, seconds: float, enough: float) -> float:
    """Return a usually higher bound for tables with three or more kept margins; 0 if it would take too long.

    In two-way tables the integer programme gets as far in as little time.
    """
    if len(problem.keep) < 3 or problem.counts.size > _MOST_BY_LINES:
        return 0.0
    return line_bound(problem.counts, _domain(problem), seconds=seconds, enough=enough)


def _domain(problem: TableProblem) -> Domain:
    return Domain(low=problem.low, high=problem.high, zero_ok=problem.zero_ok, weights=problem.weights, ids=problem.ids)


def near_table(problem: TableProblem, multipliers: Floats, *, seed: int = 1, effort: float = 1.0) -> Int64s | None:
    """Return the best safe table with the kept margins of several annealing runs; None if none found one.

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
        x = _anneal(problem, multipliers, stages, steps=int(steps), seed=seed + 100 * number)
        x = _settle_cells(problem, _balance(problem, x), axes, seed=seed + number)
        if problem.solves(x) and (best is None or problem.change(x) < problem.change(best)):
            best = x
        if best is not None and not small:
            break
    return best


def near_balanced_table(problem: TableProblem, multipliers: Floats, *, seed: int = 1) -> Int64s:
    """Return a safe table whose margins are slightly off, for soft margins."""
    steps = min(_MOST_STEPS, _STEPS_PER_CELL * problem.counts.size)
    return _anneal(problem, multipliers, _FIRM, steps=steps, seed=seed)


def _anneal(problem: TableProblem, multipliers: Floats, stages: Stages, *, steps: int, seed: int) -> Int64s:
    x = nearest_safe(problem.counts, problem.low, problem.high, problem.zero_ok)
    excess = problem.excess(x)
    scale = float(problem.weights.mean())
    heat = scale * max(1.0, problem.tolerance / 5)
    for stage, (strength, temperature) in enumerate(stages):
        anneal(
            problem.counts, x, problem.low, problem.high, problem.zero_ok, problem.weights, problem.ids, excess,
            multipliers, (strength[0] * scale, strength[1] * scale), (temperature[0] * heat, temperature[1] * heat),
            steps // len(stages), seed + stage,
        )  # fmt: skip
    return x


def _balance(problem: TableProblem, x: Int64s) -> Int64s:
    """Restore the margins, changing cells of the largest levels where possible; cells may become unsafe."""
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


def _settle_cells(problem: TableProblem, x: Int64s, axes: tuple[tuple[int, ...], ...], *, seed: int) -> Int64s:
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
        queue = unsafe_cells(x, problem.low, problem.high, problem.zero_ok)
        if not queue.size:
            break
        tries = min(most, max(8, _MOST_TRIES // queue.size))
        settle(problem.counts, x, *domain, queue, price, tries, seed + round_number)
    if problem.is_safe(x):
        polish(problem.counts, x, *domain, 16, seed)
    return x
