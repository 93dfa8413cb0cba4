"""How far a continuous item spreads within classes of records: counts, means and deviations by class."""

from __future__ import annotations

import numba
import numpy as np

from safeswap.kernels.types import Codes, Floats


@numba.njit(cache=True, nogil=True)
def moments(codes: Codes, cells: int, values: Floats) -> Floats:
    """For each cell the number of its values, their mean, and the sum of squared deviations from it.

    In one pass and without cancellation (Welford 1962). What is not a number is passed over.

    >>> moments(np.array([0, 0, 1, 0], np.uint8), 2, np.array([1.0, 3.0, 5.0, np.nan])).tolist()
    [[2.0, 2.0, 2.0], [1.0, 5.0, 0.0]]
    """
    table = np.zeros((cells, 3), np.float64)
    for i in range(codes.size):
        value = values[i]
        if np.isnan(value):
            continue
        cell = table[codes[i]]
        cell[0] += 1
        step = value - cell[1]
        cell[1] += step / cell[0]
        cell[2] += step * (value - cell[1])
    return table


@numba.njit(cache=True, nogil=True)
def largest_deviation(table: Floats) -> float:
    """The largest standard deviation within a cell of two values or more; not a number where there is no such cell.

    >>> largest_deviation(np.array([[2.0, 0.0, 8.0], [1.0, 5.0, 0.0]]))
    2.8284271247461903
    """
    largest = -1.0
    for i in range(table.shape[0]):
        if table[i, 0] > 1:
            largest = max(largest, table[i, 2] / (table[i, 0] - 1))
    return np.sqrt(largest) if largest >= 0 else np.nan
