"""Means and covariances that do not depend on the order of the records, to the last bit.

Sums are exact and rounded once (Shewchuk 1997, as in ``math.fsum``). Sums in file order would differ in the last
digits for another row order, and so would the release.
"""

from __future__ import annotations

from math import fsum

import numpy as np

from safeswap.arrays.types import Floats


def mean(values: Floats) -> float:
    """Return the mean; 0 for an empty array.

    >>> mean(np.array([1e100, 1.0, -1e100, 3.0]))
    1.0
    """
    return fsum(values.tolist()) / len(values) if len(values) else 0.0


def covariance(points: Floats) -> Floats:
    """Return the covariance matrix of the columns, with n − 1 in the denominator; 0 for a single record.

    >>> covariance(np.array([[1.0, 2.0], [3.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    number, sides = points.shape
    centred = points - np.array([mean(points[:, j]) for j in range(sides)])
    found = np.zeros((sides, sides))
    if number > 1:
        for i in range(sides):
            for j in range(i + 1):
                found[i, j] = found[j, i] = fsum((centred[:, i] * centred[:, j]).tolist()) / (number - 1)
    return found


def standard_deviation(values: Floats) -> float:
    """Return the standard deviation of a sample.

    >>> standard_deviation(np.array([1.0, 3.0])) ** 2
    2.0000000000000004
    """
    return float(np.sqrt(covariance(values[:, None])[0, 0]))
