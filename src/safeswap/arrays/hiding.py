"""Complementary suppression: choose counts to hide so that no small count can be found by subtraction.

A list of levels: rare levels (below the tolerance t) are not named, and their sum is the total minus the counts shown.
Hidden with them are the counts of common levels that together exceed t by t − 2 each at least: any rare level may then
have any count from 1 to t − 1, the difference being taken from or given to those.

Areas that lie in coarser areas: the counts of the finer ones add up to that of the coarser one, so a rare area has
others hidden with it inside the same coarser area. Inside one whose own count is hidden, another count is hidden too,
since all of them together would reveal it; inside a rare one, all are. An area is rare too if it has no count that
could be hidden with those of its rare ones. Records can then be moved between areas on every level at once, and all
sums that are shown stay the same.

A table: each small cell is a corner of a box, two levels on each axis, whose corners are all hidden. Adding 1 to every
other corner and subtracting 1 from the rest changes no total of the table, over whichever axes, so a table with
another count in that cell agrees with everything that is shown. Where no such box of common cells exists, empty cells
are hidden too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Counts, Flags, Rows

_NOT_YET = 2.0**40  # hiding another cell costs more than any count


def perturb(count: int, spread: float, word: int) -> int:
    """Return a count with two-sided geometric noise that follows from a 64-bit word; 0 stays 0, others stay positive.

    Every positive count may be behind every positive figure, so none can be ruled out. The noise has a standard
    deviation of about 1.4 times ``spread``.

    >>> [perturb(5, 3, word << 60) for word in (0, 4, 8, 12)], perturb(0, 3, 1 << 60)
    ([1, 3, 5, 7], 0)
    """
    if not count:
        return 0
    share = (word + 0.5) / 2.0**64
    tail = 2 * min(share, 1 - share)
    size = int(-spread * np.log(tail))
    return max(1, count + (size if share > 0.5 else -size))


def hide_levels(
    counts: Counts, tolerance: int, *, also: Flags | None = None, hide_one: bool = False
) -> tuple[Flags, Flags]:
    """Return the rare levels, and the levels whose counts are hidden with them; a level without records is neither.

    Levels in ``also`` are rare as well. With ``hide_one``, counts are hidden even if none is rare: their sum is to be
    kept secret.

    >>> rare, hidden = hide_levels(np.array([50, 1, 30, 9]), 3)
    >>> rare.tolist(), hidden.tolist()
    ([False, True, False, False], [False, False, False, True])
    """
    counts = np.asarray(counts, dtype=np.int64)
    rare = (counts > 0) & ((counts < tolerance) if also is None else (counts < tolerance) | also)
    hidden = np.zeros_like(rare)
    if not (rare.any() or (hide_one and counts.any())):
        return rare, hidden
    common = np.flatnonzero((counts >= tolerance) & ~rare)
    room = counts[common] - tolerance
    enough = common[room >= tolerance - 2]
    if enough.size:
        hidden[enough[np.argmin(counts[enough])]] = True
    elif room.sum() >= tolerance - 2 and common.size:
        hidden[common] = True
    else:
        rare = counts > 0
    return rare, hidden


class Areas(NamedTuple):
    """Areas that lie in coarser ones.

    ``counts`` ends with the records without an area. ``outer`` is the coarser area of each area, ``unplaced`` the
    number of records without an area in each coarser one. Areas in ``thin`` are rare whatever their count.
    """

    counts: Counts
    outer: Rows
    unplaced: Counts
    thin: Flags

    def groups(self) -> Iterator[tuple[Rows, Counts, Flags]]:
        """Yield the areas in each coarser one, and counts and thinness of these and of the unplaced records."""
        order = np.argsort(self.outer, kind="stable")
        bounds = np.searchsorted(self.outer[order], np.arange(len(self.unplaced) + 1))
        for place, number in enumerate(self.unplaced):
            inside = order[bounds[place] : bounds[place + 1]]
            yield inside, np.append(self.counts[inside], number), np.append(self.thin[inside], False)


def find_thin(areas: Areas, tolerance: int) -> Flags:
    """Return the coarser areas that have a rare area in them, and none whose count could be hidden with it."""
    found = [hide_levels(counts, tolerance, also=thin) for _, counts, thin in areas.groups()]
    return np.array([rare.any() and not hidden.any() for rare, hidden in found], dtype=np.bool_)


def hide_nested(areas: Areas, outside: tuple[Flags, Flags], tolerance: int) -> tuple[Flags, Flags]:
    """Return the rare areas and those whose counts are hidden with them, as for the coarser areas in ``outside``.

    >>> districts, where = np.array([2, 40, 48, 30, 40, 0]), np.array([0, 0, 0, 1, 1])
    >>> areas = Areas(districts, where, np.zeros(3, dtype=np.int64), np.zeros(6, dtype=bool))
    >>> _, hidden = hide_nested(areas, hide_levels(np.array([90, 70, 0]), 3), 3)
    >>> hidden.tolist()
    [False, True, False, False, False, False]
    """
    rare, hidden = np.zeros(len(areas.counts), dtype=np.bool_), np.zeros(len(areas.counts), dtype=np.bool_)
    for (inside, counts, thin), is_rare, is_hidden in zip(areas.groups(), *outside, strict=True):
        own_rare, own_hidden = hide_levels(counts, tolerance, also=thin | is_rare, hide_one=bool(is_hidden))
        rare[inside], hidden[inside] = own_rare[:-1], own_hidden[:-1]
        hidden[-1] |= own_rare[-1] or own_hidden[-1]  # one number for the unplaced of all coarser areas
    rare[-1] = 0 < areas.counts[-1] < tolerance
    return rare, hidden


def hide_cells(tables: Sequence[Counts], tolerance: int, *, hidden: Flags) -> Flags | None:
    """Return the cells to hide in tables of one shape, including those in ``hidden``; None if it cannot be done.

    >>> table = np.array([[1, 20], [30, 40]])
    >>> hide_cells([table], 3, hidden=np.zeros((2, 2), dtype=bool)).tolist()
    [[True, True], [True, True]]
    """
    small = [(table > 0) & (table < tolerance) for table in tables]
    hidden = hidden | np.logical_or.reduce(small)
    for table, cells in zip(tables, small, strict=True):
        for cell in np.argwhere(cells):
            box = _find_box(table, hidden, tuple(int(i) for i in cell), tolerance)
            if box is None:
                return None
            for corner in box:
                hidden[corner] = True
    return hidden


def _find_box(table: Counts, hidden: Flags, cell: tuple[int, ...], tolerance: int) -> list[tuple[int, ...]] | None:
    """Return the corners of the cheapest box that leaves the cell every small count possible, or else another one."""
    common, occupied, every = table >= tolerance, table > 0, np.ones(table.shape, dtype=np.bool_)
    cost = np.where(hidden, 0.0, _NOT_YET + table)
    for odd, even in ((common, common), (every, occupied), (occupied, every)):
        opposite = _find_cheapest(cell, odd, even, cost)
        if opposite is not None:
            pairs = zip(cell, opposite, strict=True)
            return [tuple(corner) for corner in _corners(tuple(pairs))]
    return None


def _find_cheapest(
    cell: tuple[int, ...], odd: Flags, even: Flags, cost: npt.NDArray[np.float64]
) -> tuple[int, ...] | None:
    """Return the opposite corner of the cheapest box; corners differing on an odd number of axes must be in ``odd``."""
    axes = range(len(cell))
    possible, total = np.ones(odd.shape, dtype=np.bool_), np.zeros(odd.shape)
    for axis in axes:
        along = [-1 if each == axis else 1 for each in axes]
        possible &= (np.arange(odd.shape[axis]) != cell[axis]).reshape(along)
    for number in range(1, len(cell) + 1):
        allowed = odd if number % 2 else even
        for changed in combinations(axes, number):
            corner = tuple(slice(None) if axis in changed else slice(cell[axis], cell[axis] + 1) for axis in axes)
            possible &= allowed[corner]
            total += cost[corner]
    if not possible.any():
        return None
    best = int(np.argmin(np.where(possible, total, np.inf)))
    return tuple(int(i) for i in np.unravel_index(best, possible.shape))


def _corners(pairs: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, ...]]:
    if not pairs:
        yield ()
        return
    for rest in _corners(pairs[1:]):
        for level in pairs[0]:
            yield (level, *rest)
