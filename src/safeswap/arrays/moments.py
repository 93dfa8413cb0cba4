"""Means and covariances that do not depend on the order of the records, to the last bit.

Sums are exact and rounded once, as in ``math.fsum``. Sums in file order would differ in the last digits for another row
order, and so would the release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import fsum

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Floats, Int64s

_WORTH_COMPILING = 10_000
_RUN = 1 << 14
_HALF = 26  # of a mantissa's 53 bits: 2³⁶ of either half fit a 64-bit sum


def mean(values: Floats) -> float:
    """Return the mean; 0 for an empty array.

    >>> mean(np.array([1e100, 1.0, -1e100, 3.0]))
    1.0
    """
    return exact_sum(values) / len(values) if len(values) else 0.0


def exact_sum(values: Floats) -> float:
    """Return the sum, rounded once: as ``math.fsum``, many times as fast.

    >>> exact_sum(np.tile([1e100, 0.1, -1e100], 10_000)) == fsum([0.1] * 10_000)
    True
    """
    return _sum_exactly(len(values), lambda run: values[run])


def _sum_exactly(number: int, compute: Callable[[slice], Floats]) -> float:
    """Return the sum of that many values, computed a run at a time, so that they stay in the cache."""
    if number < _WORTH_COMPILING:
        return fsum(compute(slice(number)).tolist())
    halves = np.zeros((2, 2048), dtype=np.int64)
    for start in range(0, number, _RUN):
        values = compute(slice(start, start + _RUN))
        if not _add_mantissas(np.ascontiguousarray(values, dtype=np.float64).view(np.int64), halves):
            return fsum(compute(slice(number)).tolist())  # for its rules on infinite values
    # The sum is a whole multiple of the smallest double, 2⁻¹⁰⁷⁴; Python divides whole numbers exactly and rounds once.
    used = np.flatnonzero(halves.any(axis=0)).tolist()
    total = sum(((int(halves[1, e]) << _HALF) + int(halves[0, e])) << (e - 1) for e in used)
    return total / (1 << 1074)


@njit(cache=True, nogil=True)
def _add_mantissas(bits: Int64s, halves: Int64s) -> bool:
    """Sum the mantissas of each exponent, in two halves; return False if a number is infinite or NaN."""
    for word in bits:
        exponent = (word >> 52) & 2047
        mantissa = word & ((1 << 52) - 1)
        if exponent == 2047:
            return False
        if exponent:
            mantissa |= 1 << 52
        else:
            exponent = 1
        if word < 0:
            mantissa = -mantissa
        halves[0, exponent] += mantissa & ((1 << _HALF) - 1)
        halves[1, exponent] += mantissa >> _HALF
    return True


def covariance(points: Floats) -> Floats:
    """Return the covariance matrix of the columns, with n − 1 in the denominator; 0 for a single record.

    >>> covariance(np.array([[1.0, 2.0], [3.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    return covariance_of(list(points.T))


def covariance_of(columns: list[Floats]) -> Floats:
    """Return the same for columns that are no matrix."""
    number, sides = len(columns[0]) if columns else 0, len(columns)
    means = [mean(values) for values in columns]
    found = np.zeros((sides, sides))
    if number > 1:
        for i in range(sides):
            for j in range(i + 1):
                product = partial(_multiply_centred, columns[i], columns[j], means[i], means[j])
                found[i, j] = found[j, i] = _sum_exactly(number, product) / (number - 1)
    return found


def _multiply_centred(one: Floats, two: Floats, mean_one: float, mean_two: float, run: slice) -> Floats:
    return np.asarray((one[run] - mean_one) * (two[run] - mean_two))


def standard_deviation(values: Floats) -> float:
    """Return the standard deviation of a sample.

    >>> standard_deviation(np.array([1.0, 3.0])) ** 2
    2.0000000000000004
    """
    return float(np.sqrt(covariance(values[:, None])[0, 0]))
