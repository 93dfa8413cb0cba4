"""The narrow door to an engine: count classes, draw pairs, exchange columns.

Planning needs counts only and is the same for all engines; an engine never decides, it orders records by their keyed
draw and moves values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from safeswap.arrays import matching
from safeswap.arrays.types import Counts, Names
from safeswap.model.schema import Schema
from safeswap.model.spec import Targeting


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Which records may be paired: same values of ``equal``, and a difference in each group of ``unequal``.

    A group differs if any of its attributes does. ``carried`` names attributes that decide nothing but are exchanged:
    engines keep their values with the pairs.
    """

    equal: Names
    unequal: tuple[Names, ...]
    carried: Names = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Records counted by stratum and coordinates; classes of one stratum stand together."""

    strata: Counts
    coordinates: Counts
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """How many pairs to draw under which constraint, and the derived keys that decide the order.

    With ``repair`` consecutive records of each stratum are paired along the order, and a shortfall is made good.
    Without, consecutive records of the whole order are paired, and pairs that the constraint forbids are dropped.
    """

    constraint: Constraint
    wanted: int
    repair: bool
    draw_key: bytes = field(repr=False)
    identity_key: bytes = field(repr=False)
    targeting: Targeting | None = None
    pairs_per_record: float = 0.25  # an estimate, for how much of the order is needed; the result does not depend on it


class Records(Protocol):
    """What planning needs to know of a file, wherever its records are."""

    @property
    def schema(self) -> Schema:
        """What is known about its columns."""
        ...

    def __len__(self) -> int: ...

    def is_constant(self, name: str) -> bool:
        """Whether all records have the same value of an attribute."""
        ...


class HouseholdCounts(Protocol):
    """What the Confidentiality Edit of 1990 asks of a file before any household is drawn, as counts."""

    def missing(self, name: str) -> int:
        """How many records have no value of an attribute, or one that stands for none."""
        ...

    def repeats(self, name: str) -> bool:
        """Whether a household number is missing or occurs twice."""
        ...

    def straddling(self, coarse: str, fine: str) -> int:
        """How many areas of a finer level lie in more than one of a coarser one."""
        ...

    def single_areas(self) -> tuple[int, int]:
        """How many areas have several households but nowhere to exchange them with, and how many households."""
        ...


class Engine(Protocol):
    """What every engine can do, with records as it holds them: columns in memory, or a stream of them."""

    name: str

    def classes(self, data: Any, constraint: Constraint) -> Classes:
        """Count the records by what decides who may be paired with whom."""
        ...

    def pairs(self, data: Any, request: PairRequest) -> Any:
        """Disjoint pairs of records, as many as wanted or, failing that, as there are; their number is its length."""
        ...

    def exchange(self, data: Any, attributes: Names, pairs: Any) -> Any:
        """The data with the values of these attributes exchanged within each pair."""
        ...


# How a shortfall of random pairs is made good, decided on counts of classes alone.
#
# The same decisions as :mod:`safeswap.engines.memory` takes, for engines whose records are elsewhere: how many random
# pairs can be kept, and which moves between classes make up the rest. Classes come in the order of their first record
# in the keyed order, strata likewise, so that neither row order nor names of levels play a part.

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
