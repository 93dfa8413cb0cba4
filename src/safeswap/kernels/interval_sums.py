"""What published sums tell about figures that are withheld: bounds, tightened sum by sum until nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from safeswap.kernels.types import Int64s

Sum = tuple[int, int, int]
"""The parts, their sum, and the axis of the parts that is summed over: numbers of arrays."""

_MOST_ROUNDS = 200
_MOST_NODES = 500  # of one integer programme; a limit on time would make the result depend on the machine


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


def sharpen(
    lower: Sequence[Int64s],
    upper: Sequence[Int64s],
    sums: Sequence[Sum],
    wanted: Int64s,
    *,
    true: Sequence[Int64s],
    most_nodes: int = _MOST_NODES,
) -> bool:
    """Narrow the bounds of the ``wanted`` figures as far as all sums together allow, in place; whether to the end.

    ``wanted`` are places in all arrays one behind the other. Each bound is an integer programme, except where some
    figures that fit all sums already attain it: the ``true`` ones do, and so does the answer of every programme. A
    programme that needs more than ``most_nodes`` nodes leaves a bound that holds but may be too wide.

    >>> true = [np.array([1, 2]), np.array(3)]
    >>> low, high = [np.array([1, 1]), np.array(3)], [np.array([9, 9]), np.array(3)]
    >>> sharpen(low, high, [(0, 1, 0)], np.array([0, 1]), true=true), low[0].tolist(), high[0].tolist()
    (True, [1, 1], [2, 2])
    """
    open_ones, starts = unknowns(lower, upper)
    low = np.concatenate([each.ravel() for each in lower])
    high = np.concatenate([each.ravel() for each in upper])
    known = np.concatenate([each.ravel() for each in true])
    number = np.full(low.size, -1)
    number[open_ones] = np.arange(open_ones.size)
    matrix, sides = _equations(lower, sums, starts, low, number)
    figures = _Figures(matrix, sides, low[open_ones], high[open_ones], known[open_ones], most_nodes)
    cells = number[wanted]
    for sign in (1, -1):
        figures.push(np.bincount(cells, minlength=open_ones.size) * sign)  # one answer that attains many bounds
        for cell in cells:
            figures.settle(int(cell), sign)
    low[open_ones], high[open_ones] = figures.low, figures.high
    for arrays, flat in ((lower, low), (upper, high)):
        for array, start in zip(arrays, starts, strict=False):
            array[...] = flat[start : start + array.size].reshape(array.shape)
    return figures.is_exact


class _Figures:
    """The open figures: their bounds, which only narrow, and the range of values seen in answers that fit."""

    def __init__(
        self, matrix: sparse.csr_matrix, sides: Int64s, low: Int64s, high: Int64s, known: Int64s, most_nodes: int
    ) -> None:
        self.low, self.high = low.copy(), high.copy()
        self.is_exact = True
        self._least, self._greatest = known.copy(), known.copy()
        self._sums = LinearConstraint(matrix, sides, sides)
        self._options = {"node_limit": most_nodes, "mip_rel_gap": 0.0}

    def settle(self, cell: int, sign: int) -> None:
        """Find the least (``sign`` 1) or greatest (−1) value of a figure."""
        bounds, seen = (self.low, self._least) if sign > 0 else (self.high, self._greatest)
        if bounds[cell] == seen[cell]:
            return
        cost = np.zeros(self.low.size)
        cost[cell] = sign
        bound = self.push(cost)
        if bound is not None:
            bounds[cell] = max(sign * bounds[cell], bound) * sign
        self.is_exact &= bool(bounds[cell] == seen[cell])

    def push(self, cost: npt.NDArray[Any]) -> int | None:
        """Solve for the least cost, note the values of the answer, and return what no answer goes below."""
        solved = milp(
            cost,
            constraints=self._sums,
            integrality=np.ones(cost.size),
            bounds=Bounds(self.low, self.high),
            options=self._options,
        )
        if solved.x is not None:
            values = np.rint(solved.x).astype(np.int64)
            np.minimum(self._least, values, out=self._least)
            np.maximum(self._greatest, values, out=self._greatest)
        bound = solved.mip_dual_bound
        return None if bound is None or not np.isfinite(bound) else int(np.ceil(bound - 1e-6))


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
