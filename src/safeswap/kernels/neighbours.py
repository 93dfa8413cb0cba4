"""Who is near: numbers of neighbours within a radius per point, and nearest neighbours, on all cores.

A tree node that lies inside a ball is counted as a whole and never opened, so that the cost follows the surface of a
neighbourhood and not the number of its members. Distances are compared as squares, and exactly: a count is what a
comparison with every single point would give.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.kernels.kd_tree import Tree, build, furthest_corner, nearest_corner, squared
from safeswap.kernels.threads import run_all, spans
from safeswap.kernels.types import Counts, Floats, Rows

_DEPTH = 128


def counts_within(tree: Tree, queries: Floats, radii: Floats) -> Counts:
    """For each query the number of points nearer than its radius; a point at the radius itself is not counted.

    >>> tree = build(np.array([[0.0], [1.0], [3.0]]))
    >>> counts_within(tree, np.array([[0.5], [3.0]]), np.array([0.6, 2.0])).tolist()
    [2, 1]
    """
    own = build(queries)
    squares = np.ascontiguousarray(radii, dtype=np.float64)[own.rows] ** 2
    found = np.zeros(len(queries), dtype=np.int64)
    groups = len(own.starts) // 2, len(own.starts)  # the leaves of the queries' own tree
    run_all(lambda span: _count(tree, own, squares, *span, found), _cut(*groups, len(queries)))
    return _in_file_order(found, own.rows)


def nearest(tree: Tree, queries: Floats) -> tuple[Rows, Floats, Counts]:
    """For each query the nearest point, its squared distance, and how many points are exactly as near.

    Of several the one that came first in the file is given. Without any point it is row −1 at an infinite distance.

    >>> tree = build(np.array([[0.0], [1.0], [1.0]]))
    >>> [part.tolist() for part in nearest(tree, np.array([[0.2], [2.0]]))]
    [[0, 1], [0.04000000000000001, 1.0], [1, 2]]
    """
    # In the order of a tree of their own: what one query has looked at, the next finds in the cache.
    own = build(queries)
    rows = np.full(len(queries), -1, dtype=np.int64)
    distances = np.full(len(queries), np.inf)
    ties = np.zeros(len(queries), dtype=np.int64)
    run_all(lambda span: _nearest(tree, own.points, *span, rows, distances, ties), spans(len(queries)))
    return _in_file_order(rows, own.rows), _in_file_order(distances, own.rows), _in_file_order(ties, own.rows)


def _cut(first: int, last: int, records: int) -> list[tuple[int, int]]:
    """The numbers from first to last in as many runs as so many records are worth."""
    number = len(spans(records))
    edges = [first + (last - first) * i // number for i in range(number + 1)]
    return list(pairwise(edges))


def _in_file_order(values: npt.NDArray[Any], order: Rows) -> npt.NDArray[Any]:
    placed = np.empty_like(values)
    placed[order] = values
    return placed


@njit(cache=True, nogil=True)
def _count(tree: Tree, own: Tree, squares: Floats, first: int, last: int, found: Counts) -> None:
    """Queries go in groups that stand together: what is inside, or outside, for all of a group is found out once."""
    points, starts, ends, low, high = tree.points, tree.starts, tree.ends, tree.low, tree.high
    queries, own_low, own_high = own.points, own.low, own.high
    inner = (len(starts) - 1) // 2
    stack = np.empty(_DEPTH, dtype=np.int64)
    for group in range(first, last):
        start, end = own.starts[group], own.ends[group]
        least, most = np.inf, 0.0
        for q in range(start, end):
            least, most = min(least, squares[q]), max(most, squares[q])
        for_all = 0
        stack[0] = 0
        height = 1
        while height:
            height -= 1
            node = stack[height]
            near, far = 0.0, 0.0
            for j in range(low.shape[1]):
                gap = max(0.0, low[node, j] - own_high[group, j], own_low[group, j] - high[node, j])
                reach = max(own_high[group, j] - low[node, j], high[node, j] - own_low[group, j])
                near += gap * gap
                far += reach * reach
            if near >= most:
                continue
            if far < least:
                for_all += ends[node] - starts[node]
            elif node < inner:
                stack[height] = 2 * node + 1
                stack[height + 1] = 2 * node + 2
                height += 2
            else:
                for q in range(start, end):
                    limit = squares[q]
                    if nearest_corner(queries, q, low, high, node) >= limit:
                        continue
                    if furthest_corner(queries, q, low, high, node) < limit:
                        found[q] += ends[node] - starts[node]
                        continue
                    total = 0
                    for i in range(starts[node], ends[node]):
                        total += squared(queries, q, points, i) < limit
                    found[q] += total
        for q in range(start, end):
            found[q] += for_all


@njit(cache=True, nogil=True)
def _nearest(tree: Tree, queries: Floats, first: int, last: int, rows: Rows, distances: Floats, ties: Counts) -> None:
    points, origin, starts, ends, low, high = tree
    inner = (len(starts) - 1) // 2
    stack = np.empty(_DEPTH, dtype=np.int64)
    bounds = np.empty(_DEPTH, dtype=np.float64)
    for q in range(first, last):
        best, row, equal = np.inf, -1, 0
        stack[0], bounds[0] = 0, 0.0
        height = 1
        while height:
            height -= 1
            node = stack[height]
            if bounds[height] > best or ends[node] == starts[node]:
                continue
            if node < inner:
                left, right = 2 * node + 1, 2 * node + 2
                near = nearest_corner(queries, q, low, high, left)
                far = nearest_corner(queries, q, low, high, right)
                if near > far:
                    left, right, near, far = right, left, far, near
                stack[height], bounds[height] = right, far
                stack[height + 1], bounds[height + 1] = left, near
                height += 2
                continue
            for i in range(starts[node], ends[node]):
                distance = squared(queries, q, points, i)
                if distance < best:
                    best, row, equal = distance, origin[i], 1
                elif distance == best:
                    equal += 1
                    row = min(row, origin[i])
        rows[q], distances[q], ties[q] = row, best, equal
