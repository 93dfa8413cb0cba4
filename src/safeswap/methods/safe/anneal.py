"""Find a safe table close to a given one: simulated annealing over safe tables whose margins may be off.

The state is always safe: each cell is 0 or within its bounds. A step moves one cell from 0 to its lowest safe value,
back, or by ±1, which puts the lines through it out of balance. The objective is

    Σ weight·|x − count|  +  Σ over lines of (multiplier·excess + strength·|excess|)

with a falling temperature and a strength that grows beyond the cost of any unit of change, so that in the end the
margins hold, or nearly. Stepping through unbalanced tables finds far better ones than moves that keep the margins do.
"""

from __future__ import annotations

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.counter_random import mix_word
from safeswap.arrays.types import Flags, Floats, Int32s, Int64s

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
