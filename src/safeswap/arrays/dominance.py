"""Undominated points in the plane, and the area they dominate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Floats


def find_undominated(risk: Floats, distortion: Floats) -> npt.NDArray[np.bool_]:
    """Flag the points that no other point dominates: none is at most as large in both figures and smaller in one.

    Coinciding points do not dominate each other. A point with a NaN figure is never undominated.

    >>> find_undominated(np.array([3.0, 1.0, 2.0, 2.0]), np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [True, True, True, False]
    """
    known = ~(np.isnan(risk) | np.isnan(distortion))
    rows = np.flatnonzero(known)
    order = rows[np.lexsort((risk[rows], distortion[rows]))]
    # From left to right, a point survives if it lies below everything to its left; among points of equal
    # distortion the lowest come first and only those survive.
    x, y = distortion[order], risk[order]
    lowest_before = np.minimum.accumulate(np.r_[np.inf, y])[:-1]
    first = np.searchsorted(x, x, side="left")
    survives = (y < lowest_before[first]) & (y == y[first])
    result = np.zeros(len(risk), dtype=np.bool_)
    result[order[survives]] = True
    return result


def hypervolume(risk: Floats, distortion: Floats, reference: tuple[float, float]) -> float:
    """Return the area that a set of points dominates within the rectangle below ``reference`` (risk, distortion).

    >>> hypervolume(np.array([0.5, 1.0]), np.array([0.5, 0.0]), (1.0, 1.0))
    0.25
    """
    keep = find_undominated(risk, distortion) & (risk < reference[0]) & (distortion < reference[1])
    order = np.argsort(distortion[keep])
    x, y = distortion[keep][order], risk[keep][order]
    widths = np.diff(np.r_[x, reference[1]])
    return float((widths * (reference[0] - np.minimum.accumulate(y))).sum()) if len(x) else 0.0
