"""Count neighbours within a radius, find nearest neighbours, and summarise pair distances, on all cores.

A tree node inside a ball is counted as a whole and never opened, so the cost grows with the surface of a neighbourhood
and not with the number of its members. Distances are compared as squares, exactly: a count equals that of a comparison
with every point.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays import keyed
from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.kd_tree import LEAF, Tree, build, leaf_blocks, nearest_corner, squared
from safeswap.arrays.types import Counts, Floats, Rows

_DEPTH = 128
_PARTS_PER_THREAD = 8
_DRAWN_AT_ONCE = 1 << 16  # pairs, whose words and rows stay in the cache


def count_within(tree: Tree, queries: Floats | Tree, radii: Floats) -> Counts:
    """Count the points nearer than its radius for each query; a point at the radius itself is not counted.

    Queries are points, or a tree of them if there is one already.

    >>> tree = build(np.array([[0.0], [1.0], [3.0]]))
    >>> count_within(tree, np.array([[0.5], [3.0]]), np.array([0.6, 2.0])).tolist()
    [2, 1]
    """
    own = queries if isinstance(queries, Tree) else build(queries)
    squares = np.ascontiguousarray(radii, dtype=np.float64)[own.rows] ** 2
    found = np.zeros(len(own.rows), dtype=np.int64)
    groups = len(own.starts) // 2, len(own.starts)  # the leaves of the queries' own tree
    sides = max(2, own.points.shape[1])
    points = leaf_blocks(tree, sides)
    blocks = points, points if own is tree else leaf_blocks(own, sides)
    _run_parts(lambda span: _count(tree, own, *blocks, squares, *span, found), *groups, len(found))
    return _in_file_order(found, own.rows)


def find_nearest(tree: Tree, queries: Floats | Tree) -> tuple[Rows, Floats, Counts]:
    """Return each query's nearest point, its squared distance, and the number of points exactly as near.

    Of several, the first in the file is returned. Without any points it is row −1 at an infinite distance.

    >>> tree = build(np.array([[0.0], [1.0], [1.0]]))
    >>> [part.tolist() for part in find_nearest(tree, np.array([[0.2], [2.0]]))]
    [[0, 1], [0.04000000000000001, 1.0], [1, 2]]
    """
    # Sorted by a tree of their own: consecutive queries visit the same nodes, which are then in the cache.
    own = queries if isinstance(queries, Tree) else build(queries)
    number = len(own.rows)
    rows, distances = np.full(number, -1, dtype=np.int64), np.full(number, np.inf)
    ties = np.zeros(number, dtype=np.int64)
    _run_parts(lambda span: _nearest(tree, own.points, *span, rows, distances, ties), 0, number, number)
    return _in_file_order(rows, own.rows), _in_file_order(distances, own.rows), _in_file_order(ties, own.rows)


def _run_parts(work: Callable[[tuple[int, int]], object], first: int, last: int, records: int) -> None:
    """Do the work from first to last in as many threads as that many records are worth.

    There are several parts per thread, since some places take longer than others.
    """
    threads = len(split_runs(records))
    parts = _PARTS_PER_THREAD * threads if threads > 1 else 1
    run_all(work, list(pairwise([first + (last - first) * i // parts for i in range(parts + 1)])), threads)


def _in_file_order(values: npt.NDArray[Any], order: Rows) -> npt.NDArray[Any]:
    placed = np.empty_like(values)
    placed[order] = values
    return placed


@njit(cache=True, nogil=True)
def _count(
    tree: Tree, own: Tree, points: Floats, queries: Floats, squares: Floats, first: int, last: int, found: Counts
) -> None:
    """Process queries in groups of neighbours: a node inside, or outside, for the whole group is tested once."""
    starts, ends, low, high = tree.starts, tree.ends, tree.low, tree.high
    inner = (len(starts) - 1) // 2
    stack = np.empty(_DEPTH, dtype=np.int64)
    limits, counts = np.zeros(LEAF), np.zeros(LEAF, dtype=np.int64)
    buffers = np.empty(LEAF), np.empty(LEAF), np.empty(LEAF)
    for group in range(first, last):
        start, end = own.starts[group], own.ends[group]
        block = queries[group - (len(own.starts) // 2)]
        limits[:] = 0.0  # within which there is nothing
        limits[: end - start] = squares[start:end]
        counts[:] = 0
        least, most = np.inf, 0.0
        for limit in squares[start:end]:
            least, most = min(least, limit), max(most, limit)
        for_all = 0
        stack[0] = 0
        height = 1
        while height:
            height -= 1
            node = stack[height]
            nearest, furthest = _box_bounds(own.low[group], own.high[group], low[node], high[node])
            if nearest >= most:
                continue
            if furthest < least:
                for_all += ends[node] - starts[node]
            elif node < inner:
                stack[height] = 2 * node + 1
                stack[height + 1] = 2 * node + 2
                height += 2
            elif low.shape[1] <= 2:
                _count_on_plane(points[node - inner], block, limits, counts)
            else:
                _corner_bounds(block, low[node], high[node], buffers[0], buffers[1])
                for q in range(end - start):
                    if buffers[0][q] >= limits[q]:
                        continue
                    if buffers[1][q] < limits[q]:
                        counts[q] += ends[node] - starts[node]
                    else:
                        counts[q] += _count_in_leaf(points[node - inner], block, q, limits[q], buffers[2])
        found[start:end] = for_all + counts[: end - start]


@njit(cache=True, nogil=True, inline="always")
def _box_bounds(own_low, own_high, low, high):  # type: ignore[no-untyped-def]
    """Return bounds on the squared distance between any two points of two boxes."""
    near, far = 0.0, 0.0
    for j in range(low.size):
        gap = max(0.0, low[j] - own_high[j], own_low[j] - high[j])
        reach = max(own_high[j] - low[j], high[j] - own_low[j])
        near += gap * gap
        far += reach * reach
    return near, far


@njit(cache=True, nogil=True, inline="always")
def _corner_bounds(block, low, high, near, far):  # type: ignore[no-untyped-def]
    """Bound the squared distance of each query of a leaf to the points of a box, as the corners of the box do.

    Rounding is monotone, so no point of the box seems nearer or further. A loop of fixed length runs in vectors.
    """
    near[:] = 0.0
    far[:] = 0.0
    for j in range(low.size):
        for q in range(near.size):
            below, above = low[j] - block[j, q], block[j, q] - high[j]
            gap = max(below, above, 0.0)
            reach = max(-below, -above)
            near[q] += gap * gap
            far[q] += reach * reach


@njit(cache=True, nogil=True, inline="always")
def _count_on_plane(leaf, block, limits, counts):  # type: ignore[no-untyped-def]
    """Count the points of a leaf nearer than its limit for each query of a leaf; one side is another of zeros.

    No branches, and nothing stored in the inner loop, so that it runs in vectors: all pairs take less time than the
    half of them would that corners leave in question.
    """
    for q in range(LEAF):
        total, limit = 0, limits[q]
        one, two = block[0, q], block[1, q]
        for i in range(LEAF):
            across, along = one - leaf[0, i], two - leaf[1, i]
            total += across * across + along * along < limit
        counts[q] += total


@njit(cache=True, nogil=True, inline="always")
def _count_in_leaf(leaf, block, q, limit, apart):  # type: ignore[no-untyped-def]
    """Count the points of a leaf nearer than the limit, with the sums of :func:`squared`, to the bit."""
    last = leaf.shape[0] - 1
    apart[:] = 0.0
    for j in range(last):
        value = block[j, q]
        for i in range(apart.size):
            step = value - leaf[j, i]
            apart[i] += step * step
    total, value = 0, block[last, q]
    for i in range(apart.size):
        step = value - leaf[last, i]
        total += apart[i] + step * step < limit
    return total


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


# Quantiles and densities of distances over all false pairs between two files.
#
# z² = ‖y − x‖² / ‖y‖², or ‖y − x‖² without a scale per record. All pairs are visited but none is stored: positive
# floating-point numbers sort by their leading bits, so counting by these bits finds the few values among which a
# quantile lies, and only those are sorted.

_SHIFT = np.uint64(46)  # sign, exponent and six bits of the fraction: steps of at most 1.6% of the square
_BINS = 1 << 17


@njit(cache=True, nogil=True, inline="always")
def _relative_square(square, scale):  # type: ignore[no-untyped-def]
    if square == 0.0:
        return 0.0
    return square / scale if scale > 0.0 else np.inf


def matched_squares(y: Floats, x: Floats, scales: Floats, partners: Rows) -> Floats:
    """Return z² between each record and its partner; NaN if it has none.

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
    """Return the quantile of z over all false pairs, with linear interpolation between order statistics.

    >>> y = np.array([[1.0], [2.0]])
    >>> exact_quantile(y, y, np.ones(2), np.array([0, 1]), 0.5)  # two pairs, both at distance 1
    1.0
    """
    number = len(y) * len(x) - int(np.count_nonzero(partners >= 0))
    position = (number - 1) * share
    low = floor(position)
    high = min(low + 1, number - 1)
    runs = _split_records(y, x)
    by_run = _count_runs(lambda run: _count_leading_bits(y, x, scales, partners, *run), runs)
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
    """Count the false pairs between the edges; the last count is of pairs beyond them."""
    squares = edges**2
    found = _count_runs(lambda run: _count_between_edges(y, x, scales, partners, squares, *run), _split_records(y, x))
    return np.asarray(found.sum(axis=0))


def sampled_squares(
    y: Floats, x: Floats, scales: Floats, partners: Rows, *, key: bytes, pairs: int, order: Rows, archive_order: Rows
) -> Floats:
    """Return z² of pairs drawn with replacement by a keyed counter, without the true pairs.

    ``order`` and ``archive_order`` number the records of each file independently of their rows.
    """
    parts: dict[int, Floats] = {}

    def draw(start: int) -> None:
        numbers = np.arange(start, min(start + _DRAWN_AT_ONCE, pairs), dtype=np.int64)
        words = keyed.encrypt(keyed.integer_blocks(numbers), key)
        rows = order[_uniform_below(words[:, 0], len(y))]
        others = archive_order[_uniform_below(words[:, 1], len(x))]
        apart = partners[rows] != others
        rows, others = rows[apart], others[apart]
        parts[start] = np.empty(len(rows))
        _pairs(y, x, scales, rows, others, parts[start])

    starts = range(0, max(pairs, 1), _DRAWN_AT_ONCE)
    run_all(draw, starts, len(split_runs(pairs)))
    return np.concatenate([parts[start] for start in starts])


def _uniform_below(words: npt.NDArray[np.uint64], number: int) -> Rows:
    """Return uniform numbers below ``number`` (far below 2³²): the leading half of a word, multiplied and truncated."""
    return (((words >> np.uint64(32)) * np.uint64(number)) >> np.uint64(32)).astype(np.int64)


def _split_records(y: Floats, x: Floats) -> list[tuple[int, int]]:
    """Split the records into as many runs as their number of pairs is worth."""
    number = len(split_runs(len(y) * len(x)))
    return list(pairwise([len(y) * i // number for i in range(number + 1)]))


def _count_runs(work: Callable[[tuple[int, int]], Counts], runs: list[tuple[int, int]]) -> Counts:
    """Return the counts of each run, one row each."""
    parts: dict[tuple[int, int], Counts] = {}
    run_all(lambda run: parts.__setitem__(run, work(run)), runs)
    return np.stack([parts[run] for run in runs])


@njit(cache=True, nogil=True)
def _pairs(y: Floats, x: Floats, scales: Floats, rows: Rows, others: Rows, out: Floats) -> None:
    for p in range(len(rows)):
        out[p] = _relative_square(squared(y, rows[p], x, others[p]), scales[rows[p]])


@njit(cache=True, nogil=True)
def _count_leading_bits(y: Floats, x: Floats, scales: Floats, partners: Rows, first: int, last: int) -> Counts:
    counts = np.zeros(_BINS, dtype=np.int64)
    one = np.empty(1, dtype=np.float64)
    bits = one.view(np.uint64)
    for i in range(first, last):
        for k in range(len(x)):
            if k != partners[i]:
                one[0] = _relative_square(squared(y, i, x, k), scales[i])
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
                one[0] = _relative_square(squared(y, i, x, k), scales[i])
                if first <= np.int64(bits[0] >> _SHIFT) <= last:
                    out[found] = one[0]
                    found += 1


@njit(cache=True, nogil=True)
def _count_between_edges(
    y: Floats, x: Floats, scales: Floats, partners: Rows, squares: Floats, first: int, last: int
) -> Counts:
    counts = np.zeros(len(squares), dtype=np.int64)
    step = (len(squares) - 1) / np.sqrt(squares[-1])
    for i in range(first, last):
        for k in range(len(x)):
            if k != partners[i]:
                square = _relative_square(squared(y, i, x, k), scales[i])
                if square < squares[-1]:
                    counts[min(int(np.sqrt(square) * step), len(squares) - 2)] += 1
                else:
                    counts[-1] += 1
    return counts
