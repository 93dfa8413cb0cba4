"""Linkage by ranks: the largest units are found by their place in the order, whatever their values.

An intruder who knows that an enterprise is the third largest looks for the third largest in the release.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.kernels.types import Floats, Rows


def rank_links(points: tuple[Floats, Floats, Rows], *, units: int) -> pa.Table:
    """Which of the largest released units have the true one nearest to them in rank.

    ``points`` are the keys of the released and of the archived records, and the true archived record of each released
    one. Units are the largest by the first key. The distance is the sum over the keys of the differences in rank,
    counted from the top; equal values share the better rank. A unit counts as found if the true one is nearer than all
    others.

    >>> archive = np.array([[9.0], [7.0], [1.0]])
    >>> rank_links((np.array([[5.0], [6.0], [1.0]]), archive, np.arange(3)), units=2)["correct"].to_pylist()
    [False, False]
    """
    released, archive, partners = points
    largest = np.argsort(-released[:, 0], kind="stable")[:units]
    ranks, known = _ranks(released), _ranks(archive)
    correct, shared = [], []
    for row in largest:
        apart = np.abs(known - ranks[row]).sum(axis=1)
        nearest = np.flatnonzero(apart == apart.min())
        shared.append(len(nearest))
        correct.append(len(nearest) == 1 and bool(nearest[0] == partners[row]))
    return pa.table(
        {
            "rank": pa.array(np.arange(1, len(largest) + 1)),
            "equally_near": pa.array(shared, pa.int64()),
            "correct": pa.array(correct, pa.bool_()),
        }
    )


def _ranks(points: Floats) -> npt.NDArray[np.int64]:
    """From 1, the largest, downwards."""
    columns = []
    for j in range(points.shape[1]):
        ordered = np.sort(-points[:, j])
        columns.append(np.searchsorted(ordered, -points[:, j]) + 1)
    return np.stack(columns, axis=1)
