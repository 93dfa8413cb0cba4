"""The lines of an n-way table: the sets of cells whose sum is one figure of a kept margin.

A margin is named by the axes that it keeps. Cells are numbered as by ``ravel``, lines consecutively over all kept
margins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Int32s, Int64s

Axes = tuple[int, ...]


def line_ids(shape: Sequence[int], keep: Sequence[Axes]) -> tuple[Int32s, int]:
    """Return the line number of each cell (a column) in each kept margin (a row), and the number of lines.

    >>> ids, number = line_ids((2, 3), [(0,), (1,)])
    >>> ids.tolist(), number
    ([[0, 0, 0, 1, 1, 1], [2, 3, 4, 2, 3, 4]], 5)
    """
    ids = np.zeros((len(keep), prod(shape)), dtype=np.int32)
    first = 0
    for row, axes in enumerate(keep):
        sizes = [shape[axis] for axis in axes]
        numbers = np.arange(prod(sizes), dtype=np.int32).reshape([n if a in axes else 1 for a, n in enumerate(shape)])
        ids[row] = np.broadcast_to(numbers, shape).ravel() + first
        first += prod(sizes)
    return ids, first


def line_sums(values: npt.NDArray[np.integer], ids: Int32s, number: int) -> Int64s:
    """Return the sum of each line.

    >>> line_sums(np.array([1, 2, 3, 4]), *line_ids((2, 2), [(0,), (1,)])).tolist()
    [3, 7, 4, 6]
    """
    sums = np.zeros(number, dtype=np.int64)
    for row in ids:
        # Weights are added in double precision: exact up to 2**53, far above any count of records.
        sums += np.bincount(row, weights=values, minlength=number).astype(np.int64)
    return sums


def list_largest_margins(ways: int) -> tuple[Axes, ...]:
    """Return the axes of all (n−1)-way margins; for a one-way table, its total.

    >>> list_largest_margins(3), list_largest_margins(1)
    (((0, 1), (0, 2), (1, 2)), ((),))
    """
    return tuple(combinations(range(ways), ways - 1))


def drop_implied_margins(keep: Sequence[Axes]) -> tuple[Axes, ...]:
    """Return the margins that no other margin implies, each once and in order.

    >>> drop_implied_margins([(0,), (1, 0), (2,), (2,)])
    ((0, 1), (2,))
    """
    distinct = list(dict.fromkeys(tuple(sorted(axes)) for axes in keep))
    return tuple(axes for axes in distinct if not any(set(axes) < set(other) for other in distinct))


def moved_axes(ways: int, keep: Sequence[Axes]) -> tuple[Axes, ...]:
    """Return the smallest sets of axes such that alternating ±1 on the corners of a box over them keeps all margins.

    A box over D has two levels on each axis of D. Summed over an axis of D it vanishes, so it keeps the margin K if and
    only if D is not a subset of K.

    >>> moved_axes(3, [(0, 1), (0, 2), (1, 2)]), moved_axes(3, [(0,), (1,)]), moved_axes(2, [])
    (((0, 1, 2),), ((2,), (0, 1)), ((),))
    """
    found: list[Axes] = []
    for size in range(ways + 1):
        for axes in combinations(range(ways), size):
            free = all(not set(axes) <= set(kept) for kept in keep)
            if free and not any(set(smaller) <= set(axes) for smaller in found):
                found.append(axes)
    return tuple(found)


def balancing_cells(
    shape: Sequence[int], keep: Sequence[Axes], excess: Sequence[Int64s], anchor: Sequence[int]
) -> tuple[Int64s, Int64s]:
    """Return cells and amounts that, added to a table, remove the ``excess`` from its margins, whatever the amounts.

    ``excess`` has an array for each kept margin, and they agree in the margins that they share. For each set S of axes
    contained in a kept one, the cells off the anchor on S and on it elsewhere get what is still missing in the margin
    S, larger sets first: a Möbius inversion over the kept margins.

    >>> cells, amounts = balancing_cells((2, 2), [(0,), (1,)], [np.array([0, 2]), np.array([2, 0])], (0, 0))
    >>> dict(zip(cells.tolist(), amounts.tolist()))
    {2: -2}
    """
    parts = {part for axes in keep for size in range(len(axes) + 1) for part in combinations(axes, size)}
    placed: dict[Axes, Int64s] = {}
    for part in sorted(parts, key=len, reverse=True):
        axes, table = next((a, t) for a, t in zip(keep, excess, strict=True) if set(part) <= set(a))
        wanting = -_sum_to_part(table, axes, part)
        for larger, amounts in placed.items():
            if set(part) < set(larger):
                wanting = wanting - _sum_to_part(amounts, larger, part)
        for position, axis in enumerate(part):
            wanting[(slice(None),) * position + (anchor[axis],)] = 0
        placed[part] = wanting
    found = [_as_cells(shape, part, table, anchor) for part, table in placed.items()]
    return np.concatenate([cells for cells, _ in found]), np.concatenate([amounts for _, amounts in found])


def _sum_to_part(table: Int64s, axes: Axes, part: Axes) -> Int64s:
    summed: Int64s = np.asarray(table.sum(axis=tuple(i for i, axis in enumerate(axes) if axis not in part)))
    return summed.copy()


def _as_cells(shape: Sequence[int], part: Axes, table: Int64s, anchor: Sequence[int]) -> tuple[Int64s, Int64s]:
    if not part:
        return _cell_numbers(shape, part, (), anchor, 1)[table.reshape(1) != 0], table.reshape(1)[table.reshape(1) != 0]
    places = np.nonzero(table)
    return _cell_numbers(shape, part, places, anchor, len(places[0])), table[places]


def _cell_numbers(
    shape: Sequence[int], part: Axes, places: tuple[npt.NDArray[np.intp], ...], anchor: Sequence[int], number: int
) -> Int64s:
    index = [np.full(number, level, dtype=np.intp) for level in anchor]
    for axis, levels in zip(part, places, strict=True):
        index[axis] = levels
    return np.ravel_multi_index(index, tuple(shape)).astype(np.int64)
