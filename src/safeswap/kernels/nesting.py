"""Whether the areas of one level lie each within one area of a coarser level."""

from __future__ import annotations

import numba
import numpy as np

from safeswap.kernels.types import Codes


@numba.njit(cache=True, nogil=True)
def straddling(fine: Codes, coarse: Codes, areas: int) -> int:
    """How many of the finer areas (codes below ``areas``) lie in more than one coarser area.

    Codes of ``areas`` and above stand for an unknown area and are passed over.

    >>> straddling(np.array([0, 0, 1, 2], np.uint8), np.array([0, 1, 1, 0], np.uint8), 2)
    1
    """
    parent = np.full(areas, -1, np.int64)
    twice = np.zeros(areas, np.bool_)
    for i in range(fine.size):
        area = fine[i]
        if area >= areas:
            continue
        if parent[area] < 0:
            parent[area] = coarse[i]
        elif parent[area] != coarse[i]:
            twice[area] = True
    return int(np.sum(twice))
