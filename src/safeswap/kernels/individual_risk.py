"""The risk of a record from the count of its cell in a sample and the estimated count in the population.

Given f records of the sample in a cell, the population count F has a negative binomial distribution with success
probability p = f / Σ w, and the risk is the expectation of 1/F:

    r = p ∫₀¹ (1 − t)^(f−1) / (1 − q t) dt = (p / f) ₂F₁(1, 1; f + 1; q),   q = 1 − p.

Written with p_m for the risk of m records, r_1 = p log(1/p) / q and r_(m+1) = (p / q) (1/m − r_m): the closed forms for
f = 1, 2, 3 are its first steps. A step multiplies errors by p / q, so it is taken for p below 1/2 only; the series has
positive terms alone, each at most q times the one before, and converges quickly for p above 1/2 or for many records.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels.types import Floats

_FEW = 40  # for more records the series needs no more than a few dozen terms, whatever p


def expected_inverse(counts: npt.NDArray[np.int64], population: Floats) -> Floats:
    """E[1/F] for each cell of f records whose weights sum to ``population``; 1/f where that is not above f.

    >>> expected_inverse(np.array([1, 2, 5]), np.array([215.0, 360.0, 5.0])).round(4).tolist()
    [0.0251, 0.0054, 0.2]
    """
    found = np.empty(counts.size)
    _fill(np.asarray(counts, np.int64), np.asarray(population, np.float64), found)
    return found


@numba.njit(cache=True, nogil=True)
def _fill(counts, population, found):  # type: ignore[no-untyped-def]
    for i in range(counts.size):
        found[i] = _risk(counts[i], population[i])


@numba.njit(cache=True, nogil=True)
def _risk(count, population):  # type: ignore[no-untyped-def]
    if count <= 0:
        return 0.0
    if not population > count:
        return 1.0 / count
    p = count / population
    q = (population - count) / population  # exact where p is near 1
    if p < 0.5 and count <= _FEW:
        risk = p * -np.log(p) / q
        for m in range(1, count):
            risk = p / q * (1.0 / m - risk)
        return risk
    total, term, n = 1.0, 1.0, 0
    while term > 1e-17 * total:
        term *= (n + 1) * q / (count + 1 + n)
        total += term
        n += 1
    return p / count * total
