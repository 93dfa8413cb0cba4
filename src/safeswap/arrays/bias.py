"""BIAS and PERCENTAGE BIAS (Moore 1996): the root mean square change of a continuous item, and its bounds."""

from __future__ import annotations

from math import sqrt

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Codes, Floats


@njit(cache=True, nogil=True)
def moments(codes: Codes, cells: int, values: Floats) -> Floats:
    """Return for each cell the number of its values, their mean, and the sum of squared deviations from it.

    One pass, without cancellation (Welford 1962). NaN values are skipped.

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


@njit(cache=True, nogil=True)
def largest_deviation(table: Floats) -> float:
    """Return the largest standard deviation within a cell of two or more values; NaN where there is no such cell.

    >>> largest_deviation(np.array([[2.0, 0.0, 8.0], [1.0, 5.0, 0.0]]))
    2.8284271247461903
    """
    largest = -1.0
    for i in range(table.shape[0]):
        if table[i, 0] > 1:
            largest = max(largest, table[i, 2] / (table[i, 0] - 1))
    return np.sqrt(largest) if largest >= 0 else np.nan


def root_mean_square(before: Floats, after: Floats) -> float:
    """Return BIAS record by record, over the records whose item is known before and after.

    >>> root_mean_square(np.array([1.0, 2.0, np.nan]), np.array([1.0, 5.0, 7.0]))
    2.1213203435596424
    """
    squares = (before - after) ** 2
    known = ~np.isnan(squares)
    return float(np.sqrt(squares[known].mean())) if known.any() else float("nan")


@njit(cache=True, nogil=True)
def between_classes(
    before: Codes, after: Codes, values: Floats, moments: Floats, moments_after: Floats
) -> tuple[float, int]:
    """Return BIAS of the class means, and the number of records whose class no longer exists.

    A record counts with the mean of its class before and after. Where no record of its class is left, the mean of its
    present class is used instead. ``moments`` are those of :func:`safeswap.arrays.bias.moments`.

    >>> moments, later = np.array([[2.0, 2.0, 0.0], [1.0, 5.0, 0.0]]), np.array([[3.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    >>> between_classes(
    ...     np.array([0, 0, 1], np.uint8), np.array([0, 0, 0], np.uint8), np.array([1.0, 3.0, 5.0]), moments, later
    ... )
    (1.4142135623730951, 1)
    """
    total, records, gone = 0.0, 0, 0
    for i in range(before.size):
        if np.isnan(values[i]):
            continue
        now = before[i]
        if moments_after[now, 0] == 0:
            gone += 1
            now = after[i]
        if moments_after[now, 0] > 0:
            step = moments[before[i], 1] - moments_after[now, 1]
            total += step * step
            records += 1
    return (np.sqrt(total / records) if records else np.nan), gone


def lower_bound(p: float, *, swapped: int, records: int) -> float:
    """Return the least PERCENTAGE BIAS that protects: p percent, on average, of each record that took part.

    >>> round(lower_bound(10, swapped=582, records=64_998), 2)
    0.09
    """
    return p * swapped / records


def upper_bound(f: float, *, mean: float, deviation: float) -> float:
    """Return the largest PERCENTAGE BIAS that keeps the item useful: spread at most 1 + f times (Theorem A.1).

    >>> round(upper_bound(0.01, mean=11_369, deviation=16_572), 2)
    20.67
    """
    return 100 * sqrt(2 * f + f * f) * deviation / abs(mean)


def compute_first_fraction(p: float) -> float:
    """Return the share of failing classes to keep so that the bias shrinks to p times itself (Theorem A.2).

    >>> compute_first_fraction(0.5)
    0.25
    """
    return min(p, 1.0) ** 2


def compute_corrected_fraction(p: float, *, changed: int, above: int) -> float:
    """Return the share to keep (Theorem A.3), with T records ``changed``, N of them from classes ``above`` tolerance.

    A class that no longer fails still takes part where its neighbour fails, so fewer must be kept than A.2 says.

    >>> round(compute_corrected_fraction(2 / 3, changed=582, above=109), 4)
    0.3105
    >>> compute_corrected_fraction(0.5, changed=200, above=100)
    0.25
    """
    share = min(p, 1.0) ** 2
    alone = changed - 2 * above  # records exchanged with another failing class
    if alone == 0 or share == 1:
        return share
    failing = changed - above
    # The root between 0 and 1, in a form that avoids cancellation.
    root = sqrt(max(0.0, failing**2 - share * changed * alone))
    return min(1.0, share * changed / (failing + root))


def estimate_records(fraction: float, *, changed: int, above: int) -> float:
    """Return how many records take part when a fraction of the failing classes is kept (the counts of Theorem A.3).

    >>> round(estimate_records(0.3105, changed=582, above=109), 1)
    258.6
    """
    alone = changed - 2 * above
    return fraction * fraction * alone + 2 * fraction * (1 - fraction) * alone + fraction * 2 * above
