"""Moves that keep every margin: +t and −t by turns on the corners of a box, two levels on each of some axes.

``axes`` holds, in each row, the axes of one kind of box (see :func:`safeswap.kernels.safe_lines.moved_axes`), filled up
with −1. The corner that a move starts from gets +t.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safeswap.kernels.safe_anneal import below, next_word
from safeswap.kernels.types import Flags, Floats, Int64s

_FORBIDDEN = 1e300


@njit(cache=True, nogil=True)
def is_safe(value, low, high, zero_ok):  # type: ignore[no-untyped-def]
    """Whether a cell may have this value."""
    return (value == 0 and zero_ok) or (low <= value <= high)


@njit(cache=True, nogil=True)
def unsafe_cells(x: Int64s, low: Int64s, high: Int64s, zero_ok: Flags) -> Int64s:
    """The cells that have a value that they may not have."""
    found = np.empty(x.size, dtype=np.int64)
    number = 0
    for i in range(x.size):
        if not is_safe(x[i], low[i], high[i], zero_ok[i]):
            found[number] = i
            number += 1
    return found[:number]


@njit(cache=True, nogil=True)
def _draw_box(u, shape, strides, kind, state, corners):  # type: ignore[no-untyped-def]
    """The corners of a random box of one kind around cell u; 0 where an axis has one level only, else their number."""
    number = 1
    corners[0] = u
    for position in range(kind.size):
        axis = kind[position]
        if axis < 0:
            break
        if shape[axis] < 2:
            return 0
        level = (u // strides[axis]) % shape[axis]
        other = below(next_word(state), shape[axis] - 1)
        if other >= level:
            other += 1
        shift = (other - level) * strides[axis]
        for corner in range(number):
            corners[number + corner] = corners[corner] + shift
        number *= 2
    return number


@njit(cache=True, nogil=True)
def _odd(corner):  # type: ignore[no-untyped-def]
    odd = 0
    while corner:
        odd ^= corner & 1
        corner >>= 1
    return odd


@njit(cache=True, nogil=True)
def _wrong(value, low, high, zero_ok):  # type: ignore[no-untyped-def]
    """How far a value is from what the cell may have: 0 if it may have it, else 1 and the distance."""
    if is_safe(value, low, high, zero_ok):
        return 0
    distance = abs(value) if zero_ok else 1 << 40
    if low <= high:
        distance = min(distance, low - value if value < low else value - high)
    return 1 + distance


@njit(cache=True, nogil=True)
def _cost(x, counts, low, high, zero_ok, weights, corners, number, change, price):  # type: ignore[no-untyped-def]
    """What a move adds to the weighted change, a unit of wrong costing ``price``; no count may fall below 0."""
    cost = 0.0
    for corner in range(number):
        i = corners[corner]
        before = x[i]
        after = before - change if _odd(corner) else before + change
        if after < 0 and after < before:
            return _FORBIDDEN
        cost += weights[i] * (abs(after - counts[i]) - abs(before - counts[i]))
        cost += price * (_wrong(after, low[i], high[i], zero_ok[i]) - _wrong(before, low[i], high[i], zero_ok[i]))
    return cost


@njit(cache=True, nogil=True)
def _move(x, corners, number, change):  # type: ignore[no-untyped-def]
    for corner in range(number):
        x[corners[corner]] += -change if _odd(corner) else change


@njit(cache=True, nogil=True)
def _changes(value, low, high, zero_ok, out):  # type: ignore[no-untyped-def]
    """Changes after which an unsafe cell is safe, and one half of the way; how many there are."""
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
    """Make the cells of the queue safe by the cheapest of ``tries`` random boxes each; how many are left unsafe.

    A move is made only if it makes less wrong, or as little and the table nearer.
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
            number = _draw_box(u, shape, strides, axes[below(next_word(state), axes.shape[0])], state, corners)
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
    """Take changed cells back towards their counts by boxes that keep the table safe and bring it nearer."""
    state = np.array([np.uint64(seed)], dtype=np.uint64)
    corners = np.empty(1 << axes.shape[1], np.int64)
    for u in range(x.size):
        for _ in range(tries):
            if x[u] == counts[u]:
                break
            number = _draw_box(u, shape, strides, axes[below(next_word(state), axes.shape[0])], state, corners)
            if number == 0:
                continue
            change = 1 if x[u] < counts[u] else -1
            if not is_safe(x[u] + change, low[u], high[u], zero_ok[u]):
                # A cell that was small goes from its lowest safe value to 0, or the other way.
                change = low[u] if x[u] == 0 else -x[u]
            if _cost(x, counts, low, high, zero_ok, weights, corners, number, change, _FORBIDDEN) < -1e-9:
                _move(x, corners, number, change)
