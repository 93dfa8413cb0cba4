"""Lower bounds of the change that a safe table needs: by multipliers (fast), and line by line (stronger, slower).

The line bound splits the cost of each value of each cell among the lines through the cell. Whatever the split, the sum
of the lines' own minima is a bound: a table that satisfies all lines costs at least that. A line alone is a dynamic
programme over the sum of its deviations, which must be 0. The split is improved cell by cell until the lines through a
cell agree on its value (dual decomposition; Wainwright, Jaakkola & Willsky 2005), first at a high temperature, where
minima are soft and agreement is quickly found, then at lower ones.

Only values near the count have a share of their own; beyond them each unit adds the cell's weight, split equally among
its lines. A line whose sum strays too far on the way is released: it pays the least for its other cells and need not
add up. So no table is excluded, and the bound holds whatever happens in the ascent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import njit
from safeswap.arrays.table_lines import line_sums
from safeswap.arrays.types import Flags, Floats, Int32s, Int64s

# The bound by multipliers.
#
# The lines are relaxed with Lagrange multipliers, which leaves a separate minimum for each cell, and the rounding
# inequalities of the lines are added. Cells that are small, or 0, become Q·b + y with b in {0, 1} and y ≥ 0, the others
# count + p − q. A kept line requires Q·Σb + Σy + Σp − Σq to equal the sum S of its small counts, hence, with
# r = S mod Q > 0,
#
#     Σ(y + p) / r + Σq / (Q − r)  ≥  1                      (mixed-integer rounding; Nemhauser & Wolsey 1990)
#
# whose multipliers π are ascended together with those of the lines.


@dataclass(frozen=True, eq=False)
class Bound:
    """A lower bound ``value`` of any safe table's distance, and the multipliers of the lines that prove it."""

    value: float
    multipliers: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Domain:
    """The values each cell may take: 0 where allowed, or ``low`` to ``high``, at a cost of ``weights`` per unit.

    ``ids`` names the line of each cell in each kept margin.
    """

    low: Int64s
    high: Int64s
    zero_ok: Flags
    weights: Floats
    ids: Int32s


def lower_bound(counts: Int64s, domain: Domain, *, lines: int, tolerance: int, steps: int = 200) -> Bound:
    """Ascend the dual for ``steps`` steps; the largest value on the way is the bound.

    >>> from safeswap.arrays.table_lines import line_ids
    >>> counts, ones = np.array([1, 6, 6, 6]), np.ones(4)
    >>> ids, lines = line_ids((2, 2), [(0,), (1,)])
    >>> low, high, anywhere = np.full(4, 3), np.full(4, 9), np.ones(4, dtype=np.bool_)
    >>> domain = Domain(low=low, high=high, zero_ok=anywhere, weights=ones, ids=ids)
    >>> bound = lower_bound(counts, domain, lines=lines, tolerance=3).value
    >>> 2 < bound <= 4
    True
    """
    low, high, zero_ok, weights, ids = domain.low, domain.high, domain.zero_ok, domain.weights, domain.ids
    toggles = zero_ok & (counts < tolerance)
    rest = np.mod(line_sums(np.where(toggles, counts, 0), ids, lines), tolerance).astype(np.float64)
    over = np.divide(1.0, rest, out=np.zeros(lines), where=rest > 0)
    under = np.divide(1.0, tolerance - rest, out=np.zeros(lines), where=rest > 0)
    patience = max(4, steps // 75)
    scale = float(weights.mean()) if weights.size else 1.0
    multipliers, rounding = np.zeros(lines), np.where(rest > 0, 0.1 * scale, 0.0)
    best, best_multipliers, pace, stalled = -np.inf, multipliers.copy(), 1.0, 0
    for _ in range(steps):
        slope, slack = np.zeros(lines), np.where(rest > 0, 1.0, 0.0)
        value = rounding.sum() + _relax(
            counts, low, high, zero_ok, toggles, weights, ids, multipliers, rounding, over, under, tolerance,
            slope, slack,
        )  # fmt: skip
        if value > best:
            gained = value - best
            best, best_multipliers, stalled = value, multipliers.copy(), 0 if gained > 1e-4 * abs(best) else stalled + 1
        else:
            stalled += 1
        if stalled >= patience:
            pace, stalled = pace * 0.9, 0
        norm = float(slope @ slope + slack @ slack)
        if norm == 0:
            break
        # The distance to the optimum is unknown: a few percent above the best value so far works well (Polyak 1969).
        length = pace * (0.1 * abs(best) + max(0.0, best - value) + scale) / norm
        multipliers = multipliers + length * slope
        rounding = np.where(rest > 0, np.maximum(0.0, rounding + length * slack), 0.0)
    return Bound(max(0.0, float(best)), best_multipliers)


@njit(cache=True, nogil=True)
def _relax(  # type: ignore[no-untyped-def]
    counts, low, high, zero_ok, toggles, weights, ids, multipliers, rounding, over, under, tolerance, slope, slack
):
    """Return the relaxed minimum without the constant of the rounding rows; gradients go to ``slope`` and ``slack``."""
    total = 0.0
    kinds = ids.shape[0]
    for i in range(counts.size):
        price, plus, minus = 0.0, 0.0, 0.0
        for k in range(kinds):
            line = ids[k, i]
            price += multipliers[line]
            plus += rounding[line] * over[line]
            minus += rounding[line] * under[line]
        c, w = counts[i], weights[i]
        best, chosen = np.inf, c
        if zero_ok[i]:
            best, chosen = (w - price) * c, 0
            if not toggles[i]:
                best -= minus * c
        if low[i] <= high[i]:
            # The cost is linear between the kinks at the count and at the ends.
            middle = min(max(c, low[i]), high[i])
            for value in (low[i], middle, high[i]):
                cost = w * abs(value - c) + price * (value - c)
                if toggles[i]:
                    cost -= plus * (value - tolerance)
                elif value >= c:
                    cost -= plus * (value - c)
                else:
                    cost -= minus * (c - value)
                if cost < best:
                    best, chosen = cost, value
        total += best
        for k in range(kinds):
            line = ids[k, i]
            slope[line] += chosen - c
            if toggles[i]:
                if chosen > 0:
                    slack[line] -= over[line] * (chosen - tolerance)
            elif chosen >= c:
                slack[line] -= over[line] * (chosen - c)
            else:
                slack[line] -= under[line] * (c - chosen)
    return total


REACH = 96
"""Sums of deviations tracked, either way, when computing the bound."""

STEPS_AWAY = 6
"""Values on either side of the nearest safe one that have a share of their own."""

_NEAR = 24  # the same when improving the split, which proves nothing
_NEVER = 1e30
_SCHEDULE = ((0.06, 5), (0.03, 8), (0.015, 10), (0.008, 20), (0.005, 20), (0.003, 40))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Values:
    """The ``number`` deviations of each cell that have a share of their own; the first or last may be open-ended."""

    deviations: Int64s
    number: Int64s
    further: Flags
    first: Int64s


def line_bound(
    counts: Int64s,
    domain: Domain,
    *,
    seconds: float = 10.0,
    enough: float = np.inf,
    schedule: Sequence[tuple[float, int]] = _SCHEDULE,
    steps_away: int = STEPS_AWAY,
    reach: int = REACH,
) -> float:
    """Return a lower bound of any safe table with the lines of ``ids``; stop at ``enough``, or after ``seconds``.

    >>> from safeswap.arrays.table_lines import line_ids
    >>> counts, ones = np.array([1, 6, 6, 6]), np.ones(4)
    >>> low, high, anywhere = np.full(4, 3), np.full(4, 9), np.ones(4, dtype=np.bool_)
    >>> ids, _ = line_ids((2, 2), [(0,), (1,)])
    >>> domain = Domain(low=low, high=high, zero_ok=anywhere, weights=ones, ids=ids)
    >>> bound = line_bound(counts, domain, seconds=100)
    >>> 3.9 < bound <= 4
    True
    """
    weights, ids = domain.weights, domain.ids
    if not len(ids):
        return 0.0
    end = time.monotonic() + seconds
    values = _values(counts, domain.low, domain.high, domain.zero_ok, steps_away)
    families = [_cells_of_lines(row) for row in ids]
    kinds, scale = len(families), float(weights.mean())
    cost = weights[:, None] * np.abs(values.deviations)
    shares = [cost / kinds for _ in families]
    held = np.zeros_like(cost)  # the part of the cost not assigned to a line
    slope = weights / kinds

    def bound() -> float:
        parts = (
            _minima(
                cells,
                values.deviations,
                values.number,
                values.first,
                values.further,
                share + held / kinds,
                slope,
                reach,
            )
            for cells, share in zip(families, shares, strict=True)
        )
        return float(sum(parts))

    best = bound()
    for temperature, rounds in schedule:
        for number in range(1, rounds + 1):
            for cells, share in zip(families, shares, strict=True):
                _agree(cells, values.deviations, values.number, share, held, temperature * scale)
            late = time.monotonic() > end
            if late or number == rounds:
                best = max(best, bound())
            if late or best >= enough:
                return best
    return best


def _cells_of_lines(row: npt.NDArray[np.int32]) -> Int64s:
    """Return the cells of each line of one margin, a row each; all lines have the same length."""
    order = np.argsort(row, kind="stable").astype(np.int64)
    return order.reshape(len(np.unique(row)), -1)


def _values(counts: Int64s, low: Int64s, high: Int64s, zero_ok: Flags, away: int) -> _Values:
    """List 0 where it is allowed, then the safe values at most ``away`` steps from the nearest one."""
    nearest = np.minimum(np.maximum(counts, low), high)
    bottom, top = np.maximum(low, nearest - away), np.minimum(high, nearest + away)
    zero = zero_ok.astype(np.int64)
    occupied = np.where(low <= high, top - bottom + 1, 0)
    places = np.arange(2 * away + 2)[None, :]
    steps = bottom[:, None] + places - zero[:, None] - counts[:, None]
    deviations = np.where((places == 0) & zero_ok[:, None], -counts[:, None], steps)
    return _Values(
        deviations=deviations,
        number=occupied + zero,
        further=np.stack([(occupied > 0) & (bottom > low), (occupied > 0) & (top < high)], axis=1),
        first=zero,
    )


@njit(cache=True, nogil=True)
def _minimise_cell(i, deviations, number, first, further, share, slope, price):  # type: ignore[no-untyped-def]
    """Return the least cost of a cell when a unit of deviation also costs ``price``, at most ``slope`` either way."""
    least = _NEVER
    for a in range(number[i]):
        least = min(least, share[i, a] + price * deviations[i, a])
    for up in range(2):
        if further[i, up]:
            edge = number[i] - 1 if up else first[i]
            step = slope[i] + price if up else slope[i] - price
            least = min(least, share[i, edge] + price * deviations[i, edge] + step)
    return least


@njit(cache=True, nogil=True)
def _best_price(cells, deviations, number, first, further, share, slope):  # type: ignore[no-untyped-def]
    """Return the price of a unit of deviation under which a line that need not add up would cost most."""
    most = slope[cells].min()
    best, chosen = -np.inf, 0.0
    for number_of_price in range(-10, 11):
        price = most * number_of_price / 10
        value = 0.0
        for i in cells:
            value += _minimise_cell(i, deviations, number, first, further, share, slope, price)
        if value > best:
            best, chosen = value, price
    return chosen


@njit(cache=True, nogil=True)
def _go_further(reached, coming, d, up, edge, slope, price):  # type: ignore[no-untyped-def]
    """Extend deviations beyond ``d``, each unit at ``slope``; return the least cost of leaving the tracked sums."""
    width, sign = reached.size, 1 if up else -1
    running, freed = _NEVER, _NEVER
    for position in range(width):
        s = position if up else width - 1 - position
        start = s - d - sign
        running += slope
        if 0 <= start < width:
            running = min(running, reached[start] + edge + slope)
        coming[s] = min(coming[s], running)
        # From s, the nearest untracked sum at least one unit beyond d.
        beyond = s + d + sign
        beyond = max(beyond, width) if up else min(beyond, -1)
        freed = min(freed, reached[s] + edge + slope * abs(beyond - s - d) + price * (beyond - width // 2))
    return freed


@njit(cache=True, nogil=True)
def _minima(cells, deviations, number, first, further, share, slope, reach):  # type: ignore[no-untyped-def]
    """Return the sum of the lines' minima. ``free`` is the least that a released line pays."""
    total, width = 0.0, 2 * reach + 1
    reached, coming = np.empty(width), np.empty(width)
    for line in range(cells.shape[0]):
        # Deviations of a line add up to 0, so a price on them changes nothing, except for released lines.
        price = _best_price(cells[line], deviations, number, first, further, share, slope)
        reached[:], free = _NEVER, _NEVER
        reached[reach] = 0.0
        for i in cells[line]:
            coming[:], freed = _NEVER, _NEVER
            for a in range(number[i]):
                d, e = deviations[i, a], share[i, a]
                for s in range(max(0, -d), min(width, width - d)):
                    coming[s + d] = min(coming[s + d], reached[s] + e)
                for s in range(max(0, width - d), width):
                    freed = min(freed, reached[s] + e + price * (s + d - reach))
                for s in range(min(width, -d)):
                    freed = min(freed, reached[s] + e + price * (s + d - reach))
            for up in range(2):
                if further[i, up]:
                    edge = number[i] - 1 if up else first[i]
                    away = _go_further(reached, coming, deviations[i, edge], up, share[i, edge], slope[i], price)
                    freed = min(freed, away)
            free = min(free + _minimise_cell(i, deviations, number, first, further, share, slope, price), freed)
            reached[:] = coming
        total += min(reached[reach], free)
    return total


@njit(cache=True, nogil=True)
def _weigh(share, number, temperature, out):  # type: ignore[no-untyped-def]
    """Write exp(−share / temperature) of the values of a cell, scaled so that the largest is 1."""
    least = share[:number].min()
    for a in range(number):
        out[a] = np.exp((least - share[a]) / temperature)


@njit(cache=True, nogil=True)
def _backward_weights(cells, deviations, number, weight, behind):  # type: ignore[no-untyped-def]
    """Return, for each place of a line and each sum before it, the total weight of all ways to reach 0 from there."""
    length, width = cells.size, 2 * _NEAR + 1
    behind[length, :] = 0.0
    behind[length, _NEAR] = 1.0
    for j in range(length - 1, -1, -1):
        i = cells[j]
        behind[j, :] = 0.0
        for a in range(number[i]):
            d, e = deviations[i, a], weight[j, a]
            for s in range(max(0, -d), min(width, width - d)):
                behind[j, s] += e * behind[j + 1, s + d]
        top = behind[j].max()
        if top > 0:
            behind[j] /= top


@njit(cache=True, nogil=True)
def _agree(cells, deviations, number, share, held, temperature):  # type: ignore[no-untyped-def]
    """Walk along each line; at each cell, split what the line and ``held`` want together equally between them."""
    length, width = cells.shape[1], 2 * _NEAR + 1
    weight, behind = np.empty((length, share.shape[1])), np.empty((length + 1, width))
    before, coming, ways = np.empty(width), np.empty(width), np.empty(share.shape[1])
    for line in range(cells.shape[0]):
        for j in range(length):
            _weigh(share[cells[line, j]], number[cells[line, j]], temperature, weight[j])
        _backward_weights(cells[line], deviations, number, weight, behind)
        before[:] = 0.0
        before[_NEAR] = 1.0
        for j in range(length):
            i = cells[line, j]
            for a in range(number[i]):
                d, ways[a] = deviations[i, a], 0.0
                for s in range(max(0, -d), min(width, width - d)):
                    ways[a] += before[s] * behind[j + 1, s + d]
                ways[a] *= weight[j, a]
            most = ways[: number[i]].max()
            if most < 1e-290:
                break  # indistinguishable from 0: leave this line unchanged
            for a in range(number[i]):
                if ways[a] > 1e-290:
                    given = 0.5 * (temperature * np.log(most / ways[a]) - held[i, a])
                    held[i, a] += given
                    share[i, a] -= given
            _weigh(share[i], number[i], temperature, weight[j])
            coming[:] = 0.0
            for a in range(number[i]):
                d, e = deviations[i, a], weight[j, a]
                for s in range(max(0, -d), min(width, width - d)):
                    coming[s + d] += before[s] * e
            top = coming.max()
            before[:] = coming / top
