"""How a shortfall of random pairs is made good, decided on counts of classes alone.

The same decisions as :mod:`safeswap.engines.memory` takes, for engines whose records are elsewhere: how many random
pairs can be kept, and which moves between classes make up the rest. Classes come in the order of their first record in
the keyed order, strata likewise, so that neither row order nor names of levels play a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safeswap.engines.base import Classes
from safeswap.kernels import matching
from safeswap.kernels.types import Counts

CountsOfFirst = Callable[[int], Counts]
"""How many records of each class are in the first so many random pairs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repair:
    """Keep so many random pairs; deal these intervals of the remaining records of each class.

    An interval: the remaining records of ``class`` from rank ``first`` up to ``last`` (ranks from 0 in keyed order)
    stand on ``side`` 0 or 1 of the pairs from ``pair`` on. ``wanted`` pairs are taken of those dealt, the ones that
    come first in the keyed order.
    """

    kept: int
    wanted: int
    intervals: Counts  # rows of class, first, last, side, pair


def repair(classes: Classes, *, wanted: int, found: int, first: CountsOfFirst) -> Repair:
    """What to keep of ``found`` random pairs and what to deal, to reach ``wanted`` pairs or the most there are.

    >>> classes = Classes(strata=np.zeros(2, int), coordinates=np.array([[0], [1]]), counts=np.array([3, 3]))
    >>> repair(classes, wanted=3, found=0, first=lambda q: np.zeros(2, int)).intervals.tolist()
    [[0, 0, 3, 0, 0], [1, 0, 3, 1, 0]]
    """
    target = min(wanted, _best(classes, classes.counts))
    low, high = 0, found
    while low < high:
        middle = (low + high + 1) // 2
        enough = middle + _best(classes, classes.counts - first(middle)) >= target
        low, high = (middle, high) if enough else (low, middle - 1)
    moves = matching.largest_matching(classes.strata, classes.coordinates, classes.counts - first(low)).moves
    # Fewer than the target where the search for moves was cut short.
    dealt = min(target - low, int(moves[:, 2].sum()))
    return Repair(kept=low, wanted=dealt, intervals=_intervals(moves, len(classes.counts)))


def _best(classes: Classes, counts: Counts) -> int:
    return matching.largest_total(classes.strata, classes.coordinates, counts).found


def _intervals(moves: Counts, number_of_classes: int) -> Counts:
    """The ranks that each move takes: the next ones of its two classes."""
    place = np.zeros(number_of_classes, dtype=np.int64)
    rows = []
    pair = 0
    for a, b, x in moves.tolist():
        for side, members in enumerate((a, b)):
            rows.append((members, place[members], place[members] + x, side, pair))
            place[members] += x
        pair += x
    return np.array(rows, dtype=np.int64).reshape(-1, 5)
