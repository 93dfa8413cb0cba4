"""The engine protocol: count classes, draw pairs, exchange columns.

Planning needs counts only and is the same for all engines; an engine decides nothing: it sorts records by their keyed
draw and moves values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from safeswap.arrays import matching
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts
from safeswap.model.schema import Schema
from safeswap.model.spec import Targeting


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """The records that may be paired: equal values of ``equal``, and a difference in each group of ``unequal``.

    A group differs if any of its attributes does. ``carried`` names attributes that are exchanged but decide nothing:
    engines keep their values with the pairs.
    """

    equal: Names
    unequal: tuple[Names, ...]
    carried: Names = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Records counted by stratum and coordinates; classes of one stratum are adjacent."""

    strata: Counts
    coordinates: Counts
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """The number of pairs to draw, their constraint, and the derived keys that decide the order.

    With ``repair``, consecutive records of each stratum are paired along the order, and a shortfall is repaired.
    Without, consecutive records of the whole order are paired, and pairs that the constraint forbids are dropped.
    """

    constraint: Constraint
    wanted: int
    repair: bool
    draw_key: bytes = field(repr=False)
    identity_key: bytes = field(repr=False)
    targeting: Targeting | None = None
    pairs_per_record: float = 0.25  # an estimate of how much of the order is needed; does not affect the result


class Records(Protocol):
    """What planning needs to know about a file, wherever its records are."""

    @property
    def schema(self) -> Schema:
        """The schema of its columns."""
        ...

    def __len__(self) -> int: ...

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        ...


class HouseholdCounts(Protocol):
    """The counts that the Confidentiality Edit of 1990 needs before any household is drawn."""

    def missing(self, name: str) -> int:
        """Count the records with no value of an attribute, or a missing code."""
        ...

    def repeats(self, name: str) -> bool:
        """Return True if a household number is missing or occurs twice."""
        ...

    def straddling(self, coarse: str, fine: str) -> int:
        """Count the areas of a finer level that lie in more than one of a coarser one."""
        ...

    def single_areas(self) -> tuple[int, int]:
        """Count the areas with several households but no other area to exchange with, and their households."""
        ...


class Engine(Protocol):
    """The operations of every engine, on records as it holds them: columns in memory, or a stream."""

    name: str

    def classes(self, data: Any, constraint: Constraint) -> Classes:
        """Count the records by what decides which of them may be paired."""
        ...

    def pairs(self, data: Any, request: PairRequest) -> Any:
        """Draw disjoint pairs of records, as many as wanted or else as possible; ``len`` gives their number."""
        ...

    def exchange(self, data: Any, attributes: Names, pairs: Any) -> Any:
        """Return the data with the values of these attributes exchanged within each pair."""
        ...


# Repair of a shortfall of random pairs, decided on counts of classes alone.
#
# These are the decisions of :mod:`safeswap.engines.memory`, for engines that keep records elsewhere: how many random
# pairs can be kept, and which moves between classes make up the rest. Classes come in the order of their first record
# in the keyed order, strata likewise, so neither row order nor names of levels matter.

CountsOfFirst = Callable[[int], Counts]
"""Returns how many records of each class are in the first q random pairs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repair:
    """Keep ``kept`` random pairs; deal these intervals of the remaining records of each class.

    An interval: the remaining records of ``class`` from rank ``first`` up to ``last`` (ranks from 0 in keyed order) are
    on ``side`` 0 or 1 of the pairs from ``pair`` on. Of the dealt pairs, the first ``wanted`` in keyed order are taken.
    """

    kept: int
    wanted: int
    intervals: Counts  # rows of class, first, last, side, pair


def repair(classes: Classes, *, wanted: int, found: int, first: CountsOfFirst) -> Repair:
    """Decide what to keep of ``found`` random pairs and what to deal, to reach ``wanted`` pairs or the maximum.

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
    # Fewer than the target if the search for moves was cut short.
    dealt = min(target - low, int(moves[:, 2].sum()))
    return Repair(kept=low, wanted=dealt, intervals=_intervals(moves, len(classes.counts)))


def _best(classes: Classes, counts: Counts) -> int:
    return matching.largest_total(classes.strata, classes.coordinates, counts).found


def _intervals(moves: Counts, number_of_classes: int) -> Counts:
    """Return the ranks that each move takes: the next ones of its two classes."""
    place = np.zeros(number_of_classes, dtype=np.int64)
    rows = []
    pair = 0
    for a, b, x in moves.tolist():
        for side, members in enumerate((a, b)):
            rows.append((members, place[members], place[members] + x, side, pair))
            place[members] += x
        pair += x
    return np.array(rows, dtype=np.int64).reshape(-1, 5)
