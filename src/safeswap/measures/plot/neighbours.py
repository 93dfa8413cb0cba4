"""Who is near: numbers of neighbours within a radius per point, and nearest neighbours, on all cores.

A tree node that lies inside a ball is counted as a whole and never opened, so that the cost follows the surface of a
neighbourhood and not the number of its members. Distances are compared as squares, and exactly: a count is what a
comparison with every single point would give.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.arrays import keyed
from safeswap.arrays.kd_tree import Tree, build, furthest_corner, nearest_corner, squared
from safeswap.arrays.threads import run_all, spans
from safeswap.arrays.types import Counts, Floats, Rows

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


# Distances between the records of two files over all pairs that do not belong together: quantiles and densities.
#
# z² = ‖y − x‖² / ‖y‖², or ‖y − x‖² where no scale per record is given. All pairs are looked at without any of them
# being kept: the leading bits of a positive floating-point number order it, so counting by them finds the few values
# among which a quantile lies, and only those are sorted.

_SHIFT = np.uint64(46)  # sign, exponent and six bits of the fraction: steps of at most 1.6% of the square
_BINS = 1 << 17


def relative_square(square: float, scale: float) -> float:
    """z² of a squared distance: 0 between equal records, infinite from a zero vector to any other.

    >>> relative_square(4.0, 16.0), relative_square(0.0, 0.0), relative_square(1.0, 0.0)
    (0.25, 0.0, inf)
    """
    return float(_relative(square, scale))


@njit(cache=True, nogil=True, inline="always")
def _relative(square, scale):  # type: ignore[no-untyped-def]
    if square == 0.0:
        return 0.0
    return square / scale if scale > 0.0 else np.inf


def matched_squares(y: Floats, x: Floats, scales: Floats, partners: Rows) -> Floats:
    """z² between each record and its partner; not a number where it has none.

    >>> matched_squares(np.array([[2.0], [1.0]]), np.array([[1.0]]), np.array([4.0, 1.0]), np.array([0, -1])).tolist()
    [0.25, nan]
    """
    found = np.full(len(y), np.nan)
    rows = np.flatnonzero(partners >= 0)
    squares = np.empty(len(rows))
    _pairs(y, x, scales, rows, partners[rows], squares)
    found[rows] = squares
    return found


def exact_quantile(y: Floats, x: Floats, scales: Floats, partners: Rows, share: float) -> float:
    """The quantile of z over all pairs that do not belong together, between order statistics by a straight line.

    >>> y = np.array([[1.0], [2.0]])
    >>> exact_quantile(y, y, np.ones(2), np.array([0, 1]), 0.5)  # two pairs, both at distance 1
    1.0
    """
    number = len(y) * len(x) - int(np.count_nonzero(partners >= 0))
    position = (number - 1) * share
    low = floor(position)
    high = min(low + 1, number - 1)
    runs = _runs(y, x)
    by_run = _of_runs(lambda run: _by_leading_bits(y, x, scales, partners, *run), runs)
    counts = by_run.sum(axis=0)
    upto = np.cumsum(counts)
    first, last = int(np.searchsorted(upto, low, side="right")), int(np.searchsorted(upto, high, side="right"))
    ends = np.cumsum(by_run[:, first : last + 1].sum(axis=1))
    values = np.empty(ends[-1])

    def collect(run: int) -> None:
        place = values[ends[run - 1] if run else 0 : ends[run]]
        _collect(y, x, scales, partners, *runs[run], first, last, place)

    run_all(collect, range(len(runs)))
    values.sort()
    before = int(upto[first] - counts[first])
    a, b = np.sqrt(values[low - before]), np.sqrt(values[high - before])
    return float(a if a == b else a + (b - a) * (position - low))


def density_counts(y: Floats, x: Floats, scales: Floats, partners: Rows, edges: Floats) -> Counts:
    """How many pairs that do not belong together fall between the edges; the last figure counts those beyond them."""
    squares = edges**2
    found = _of_runs(lambda run: _between_edges(y, x, scales, partners, squares, *run), _runs(y, x))
    return np.asarray(found.sum(axis=0))


def sampled_squares(
    y: Floats, x: Floats, scales: Floats, partners: Rows, *, key: bytes, pairs: int, order: Rows, archive_order: Rows
) -> Floats:
    """z² of pairs drawn with replacement by a keyed counter, without those that belong together.

    ``order`` and ``archive_order`` number the records of either file in a way that does not depend on their rows.
    """
    words = keyed.encrypt(keyed.integer_blocks(np.arange(pairs, dtype=np.int64)), key)
    rows = order[_below(words[:, 0], len(y))]
    others = archive_order[_below(words[:, 1], len(x))]
    apart = partners[rows] != others
    rows, others = rows[apart], others[apart]
    found = np.empty(len(rows))
    _pairs(y, x, scales, rows, others, found)
    return found


def _below(words: npt.NDArray[np.uint64], number: int) -> Rows:
    """Uniform numbers below ``number`` (which is far below 2³²): the leading half of a word, multiplied and cut."""
    return (((words >> np.uint64(32)) * np.uint64(number)) >> np.uint64(32)).astype(np.int64)


def _runs(y: Floats, x: Floats) -> list[tuple[int, int]]:
    """Runs of records, as many as so many pairs are worth."""
    number = len(spans(len(y) * len(x)))
    return list(pairwise([len(y) * i // number for i in range(number + 1)]))


def _of_runs(work: Callable[[tuple[int, int]], Counts], runs: list[tuple[int, int]]) -> Counts:
    """What each run counts, a line each."""
    parts: dict[tuple[int, int], Counts] = {}
    run_all(lambda run: parts.__setitem__(run, work(run)), runs)
    return np.stack([parts[run] for run in runs])


@njit(cache=True, nogil=True)
def _pairs(y: Floats, x: Floats, scales: Floats, rows: Rows, others: Rows, out: Floats) -> None:
    for p in range(len(rows)):
        out[p] = _relative(squared(y, rows[p], x, others[p]), scales[rows[p]])


@njit(cache=True, nogil=True)
def _by_leading_bits(y: Floats, x: Floats, scales: Floats, partners: Rows, first: int, last: int) -> Counts:
    counts = np.zeros(_BINS, dtype=np.int64)
    one = np.empty(1, dtype=np.float64)
    bits = one.view(np.uint64)
    for i in range(first, last):
        for k in range(len(x)):
            if k != partners[i]:
                one[0] = _relative(squared(y, i, x, k), scales[i])
                counts[bits[0] >> _SHIFT] += 1
    return counts


@njit(cache=True, nogil=True)
def _collect(
    y: Floats, x: Floats, scales: Floats, partners: Rows, start: int, end: int, first: int, last: int, out: Floats
) -> None:
    found = 0
    one = np.empty(1, dtype=np.float64)
    bits = one.view(np.uint64)
    for i in range(start, end):
        for k in range(len(x)):
            if k != partners[i]:
                one[0] = _relative(squared(y, i, x, k), scales[i])
                if first <= np.int64(bits[0] >> _SHIFT) <= last:
                    out[found] = one[0]
                    found += 1


@njit(cache=True, nogil=True)
def _between_edges(
    y: Floats, x: Floats, scales: Floats, partners: Rows, squares: Floats, first: int, last: int
) -> Counts:
    counts = np.zeros(len(squares), dtype=np.int64)
    step = (len(squares) - 1) / np.sqrt(squares[-1])
    for i in range(first, last):
        for k in range(len(x)):
            if k != partners[i]:
                square = _relative(squared(y, i, x, k), scales[i])
                if square < squares[-1]:
                    counts[min(int(np.sqrt(square) * step), len(squares) - 2)] += 1
                else:
                    counts[-1] += 1
    return counts
