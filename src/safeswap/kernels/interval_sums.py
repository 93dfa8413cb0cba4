"""What published sums tell about figures that are withheld: bounds, tightened sum by sum until nothing moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

Int64s = npt.NDArray[np.int64]
Sum = tuple[int, int, int]
"""The parts, their sum, and the axis of the parts that is summed over: numbers of arrays."""

_MOST_ROUNDS = 200


def tighten(lower: Sequence[Int64s], upper: Sequence[Int64s], sums: Sequence[Sum]) -> None:
    """Narrow the bounds of every figure in place, as far as each sum on its own allows (interval propagation).

    >>> parts, total = np.array([0, 0, 5]), np.array(7)
    >>> low, high = [parts, total], [np.array([2, 9, 5]), np.array(7)]
    >>> tighten(low, high, [(0, 1, 0)])
    >>> low[0].tolist(), high[0].tolist()
    ([0, 0, 5], [2, 2, 5])
    """
    for _ in range(_MOST_ROUNDS):
        moved = False
        for parts, whole, axis in sums:
            least, most = lower[parts].sum(axis=axis), upper[parts].sum(axis=axis)
            moved |= _raise(lower[whole], least) | _cut(upper[whole], most)
            # A part is what the sum leaves when all others are as small, or as large, as they can be.
            left = np.expand_dims(upper[whole] - least, axis) + lower[parts]
            rest = np.expand_dims(lower[whole] - most, axis) + upper[parts]
            moved |= _cut(upper[parts], left) | _raise(lower[parts], rest)
        if not moved:
            return


def _raise(bound: Int64s, other: Int64s) -> bool:
    better = bool((other > bound).any())
    if better:
        np.maximum(bound, other, out=bound)
    return better


def _cut(bound: Int64s, other: Int64s) -> bool:
    better = bool((other < bound).any())
    if better:
        np.minimum(bound, other, out=bound)
    return better


def unknowns(lower: Sequence[Int64s], upper: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """The figures that are open, as places in all arrays one behind the other, and where each array begins."""
    starts = np.cumsum([0, *(each.size for each in lower)])
    flat = np.concatenate([(low < high).ravel() for low, high in zip(lower, upper, strict=True)])
    return np.flatnonzero(flat), starts


def sharpen(lower: Sequence[Int64s], upper: Sequence[Int64s], sums: Sequence[Sum], wanted: Int64s) -> None:
    """Narrow the bounds of the ``wanted`` figures as far as all sums together allow (linear programming), in place.

    ``wanted`` are places in all arrays one behind the other. Programmes need not be whole: bounds are rounded inwards.
    """
    from scipy.optimize import linprog

    open_ones, starts = unknowns(lower, upper)
    low = np.concatenate([each.ravel() for each in lower])
    high = np.concatenate([each.ravel() for each in upper])
    number = np.full(low.size, -1)
    number[open_ones] = np.arange(open_ones.size)
    matrix, sides = _equations(lower, sums, starts, low, number)
    bounds = np.stack([low[open_ones], high[open_ones]], axis=1)
    for place in wanted:
        cost = np.zeros(open_ones.size)
        for sign, bound in ((1, low), (-1, high)):
            cost[number[place]] = sign
            solved = linprog(cost, A_eq=matrix, b_eq=sides, bounds=bounds, method="highs")
            if solved.status == 0:
                rounded = np.ceil(solved.fun - 1e-6)
                bound[place] = sign * int(rounded)
    for arrays, flat in ((lower, low), (upper, high)):
        for array, start in zip(arrays, starts, strict=False):
            array[...] = flat[start : start + array.size].reshape(array.shape)


def _equations(
    lower: Sequence[Int64s], sums: Sequence[Sum], starts: Int64s, low: Int64s, number: Int64s
) -> tuple[sparse.csr_matrix, Int64s]:
    """Every sum with an open figure in it as a row: parts − whole = what is known of both."""
    rows, columns, signs, sides, first = [], [], [], [], 0
    for parts, whole, axis in sums:
        places = starts[parts] + np.arange(lower[parts].size).reshape(lower[parts].shape)
        places = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
        total = starts[whole] + np.arange(lower[whole].size)
        used = np.column_stack([places, total])
        weight = np.ones(used.shape[1])
        weight[-1] = -1
        is_open = number[used] >= 0
        kept = np.flatnonzero(is_open.any(axis=1))
        used, is_open = used[kept], is_open[kept]
        sides.append(-(np.where(is_open, 0, low[used]) @ weight))
        row, column = np.nonzero(is_open)
        rows.append(first + row)
        columns.append(number[used[row, column]])
        signs.append(weight[column])
        first += len(kept)
    joined = [np.concatenate(each) for each in (signs, rows, columns)]
    shape = (first, int((number >= 0).sum()))
    return sparse.csr_matrix((joined[0], (joined[1], joined[2])), shape=shape), np.concatenate(sides)
