"""A k-d tree over points: nested boxes, each tight around a run of the points in tree order.

Node i has the children 2i + 1 and 2i + 2, and the run of a node is halved at the median of its widest side, so the
shape of the tree depends on the number of points alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Floats, Rows

LEAF = 16
"""A run of at most this many points is not split further: a few vectors of the processor."""


class Tree(NamedTuple):
    """Points in tree order, the original row of each, and per node its run and its box."""

    points: Floats
    rows: Rows
    starts: Rows
    ends: Rows
    low: Floats
    high: Floats


def build(points: Floats) -> Tree:
    """Build the tree of finite points, one per row.

    >>> tree = build(np.array([[0.0, 0.0], [3.0, 1.0]]))
    >>> tree.low[0].tolist(), tree.high[0].tolist()
    ([0.0, 0.0], [3.0, 1.0])
    """
    points = np.ascontiguousarray(points, dtype=np.float64)
    number, sides = points.shape
    nodes = 1
    run = number
    while run > LEAF:
        run = (run + 1) // 2
        nodes = 2 * nodes + 1
    starts, ends = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    low, high = np.full((nodes, sides), np.inf), np.full((nodes, sides), -np.inf)
    rows = np.arange(number, dtype=np.int64)
    points = points.copy()
    if number:
        _grow(points, rows, starts, ends, low, high)
    return Tree(points, rows, starts, ends, low, high)


def leaf_blocks(tree: Tree, sides: int) -> Floats:
    """Return the points of each leaf, side by side, filled up with points at infinity to ``LEAF``.

    Further sides, up to as many as asked for, are 0, and change no distance.

    >>> leaf_blocks(build(np.array([[0.0], [3.0]])), 2)[0, :, :3].tolist()
    [[0.0, 3.0, inf], [0.0, 0.0, 0.0]]
    """
    leaves = slice(len(tree.starts) // 2, None)
    places = tree.starts[leaves, None] + np.arange(LEAF)
    outside = places >= tree.ends[leaves, None]
    places[outside] = 0
    blocks = np.zeros((len(places), sides, LEAF))
    for side, values in enumerate(tree.points.T if len(tree.points) else ()):
        blocks[:, side] = values[places]
    blocks[:, : tree.points.shape[1]].transpose(0, 2, 1)[outside] = np.inf
    return blocks


@njit(cache=True, nogil=True)
def _grow(points: Floats, rows: Rows, starts: Rows, ends: Rows, low: Floats, high: Floats) -> None:
    """Halve every run, from the root downwards; a box is measured before its run is split."""
    sides = points.shape[1]
    ends[0] = points.shape[0]
    inner = (len(starts) - 1) // 2
    for node in range(len(starts)):
        start, end = starts[node], ends[node]
        for i in range(start, end):
            for j in range(sides):
                low[node, j] = min(low[node, j], points[i, j])
                high[node, j] = max(high[node, j], points[i, j])
        if node < inner:
            widest = 0
            for j in range(1, sides):
                if high[node, j] - low[node, j] > high[node, widest] - low[node, widest]:
                    widest = j
            middle = (start + end) // 2
            _select(points, rows, start, end, middle, widest)
            starts[2 * node + 1], ends[2 * node + 1] = start, middle
            starts[2 * node + 2], ends[2 * node + 2] = middle, end


@njit(cache=True, nogil=True)
def _select(points: Floats, rows: Rows, start: int, end: int, place: int, side: int) -> None:
    """Partition a run so that nothing before ``place`` is above it on ``side``, nothing after it below (Hoare)."""
    left, right = start, end - 1
    while left < right:
        pivot = points[(left + right) // 2, side]
        i, j = left, right
        while i <= j:
            while points[i, side] < pivot:
                i += 1
            while points[j, side] > pivot:
                j -= 1
            if i <= j:
                for s in range(points.shape[1]):
                    points[i, s], points[j, s] = points[j, s], points[i, s]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if place <= j:
            right = j
        elif place >= i:
            left = i
        else:
            return


@njit(cache=True, nogil=True, inline="always")
def squared(a, i, b, k):  # type: ignore[no-untyped-def]
    """Return the squared distance of two points; every kernel sums in this order, so all agree to the last bit."""
    total = 0.0
    for j in range(a.shape[1]):
        step = a[i, j] - b[k, j]
        total += step * step
    return total


@njit(cache=True, nogil=True, inline="always")
def nearest_corner(points, i, low, high, node):  # type: ignore[no-untyped-def]
    """Return the squared distance from a point to a box; rounding is monotone, so no point of the box seems nearer."""
    total = 0.0
    for j in range(points.shape[1]):
        value = points[i, j]
        if value < low[node, j]:
            step = low[node, j] - value
            total += step * step
        elif value > high[node, j]:
            step = value - high[node, j]
            total += step * step
    return total
