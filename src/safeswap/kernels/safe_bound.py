"""How little a safe table with given margins can differ from a table: a bound that holds whatever the solver finds.

The lines are relaxed with Lagrange multipliers: what is left is a minimum for each cell on its own. To them come the
rounding inequalities of the lines. Cells that are small, or 0, become Q·b + y with b in {0, 1} and y ≥ 0, the others
count + p − q. The kept sum of a line says that Q·Σb + Σy + Σp − Σq is the sum S of its small counts, hence, with
r = S mod Q > 0,

    Σ(y + p) / r + Σq / (Q − r)  ≥  1                      (mixed-integer rounding; Nemhauser & Wolsey 1990)

whose multipliers π are ascended together with those of the lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from safeswap.kernels.safe_lines import line_sums
from safeswap.kernels.types import Flags, Floats, Int32s, Int64s


@dataclass(frozen=True, eq=False)
class Bound:
    """No safe table is nearer than ``value``; the multipliers of the lines under which this was found."""

    value: float
    multipliers: Floats


def lower_bound(
    counts: Int64s,
    *,
    low: Int64s,
    high: Int64s,
    zero_ok: Flags,
    weights: Floats,
    ids: Int32s,
    lines: int,
    tolerance: int,
    steps: int = 200,
) -> Bound:
    """Ascend the dual for so many steps; the largest value on the way is the bound.

    >>> from safeswap.kernels.safe_lines import line_ids
    >>> counts, ones = np.array([1, 6, 6, 6]), np.ones(4)
    >>> ids, lines = line_ids((2, 2), [(0,), (1,)])
    >>> domain = {"low": np.full(4, 3), "high": np.full(4, 9), "zero_ok": np.ones(4, dtype=np.bool_)}
    >>> bound = lower_bound(counts, **domain, weights=ones, ids=ids, lines=lines, tolerance=3).value
    >>> 2 < bound <= 4
    True
    """
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
        value = rounding.sum() + _relaxed(
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
        # The distance to the best value is not known: some percent above the best one so far do well (Polyak 1969).
        length = pace * (0.1 * abs(best) + max(0.0, best - value) + scale) / norm
        multipliers = multipliers + length * slope
        rounding = np.where(rest > 0, np.maximum(0.0, rounding + length * slack), 0.0)
    return Bound(max(0.0, float(best)), best_multipliers)


@njit(cache=True, nogil=True)
def _relaxed(  # type: ignore[no-untyped-def]
    counts, low, high, zero_ok, toggles, weights, ids, multipliers, rounding, over, under, tolerance, slope, slack
):
    """The relaxed minimum without the constant of the rounding rows; ``slope`` and ``slack`` get where to ascend."""
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
            # Between the kinks at the count and at the ends the cost is a straight line.
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
