"""The engine interface: records that can be counted, drawn by a key and paired, and tables of integers.

A method is written once, on these operations. Three rules make the engines agree: a column is an integer without order,
compared for equality only; a draw is one number, unique to its record; a kernel sees whole groups and positions in its
batch, never rows.

Draws are made from a file's identifiers, as integers or blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, matching, sparse
from safeswap.arrays.cells import CellSet
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Flags, Int64s, Integers, Rows, UInt64s, Words
from safeswap.errors import EngineError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import Plan, Targeting


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """The records that may be paired: equal values of ``equal``, and a difference in each group of ``unequal``.

    A group differs if any of its attributes does. ``carried`` names attributes that are exchanged but decide nothing:
    engines keep their values with the pairs.
    """

    equal: Names
    unequal: tuple[Names, ...]
    carried: Names = ()

    @property
    def names(self) -> Names:
        """The attributes, with those of the groups in order."""
        return (*self.equal, *(name for group in self.unequal for name in group), *self.carried)


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Records counted by stratum and coordinates; classes of one stratum are adjacent."""

    strata: Counts
    coordinates: Counts
    counts: Counts


@dataclass(frozen=True, eq=False, kw_only=True)
class PartnerRule:
    """Choose partners by weight: the nearest one or, with ``values``, the one with which weighted sums change least.

    ``scales`` has, per attribute, the whole number that stands for each code; a category has none: two of them are 0 or
    1 apart. Made by the driver, since codes have no order.
    """

    weight: str
    values: Names
    scales: Mapping[str, Int64s]

    @property
    def names(self) -> Names:
        """The attributes that decide."""
        return tuple(dict.fromkeys((self.weight, *self.values)))

    def numbers(self, codes: Mapping[str, Integers]) -> tuple[Int64s, Int64s, Flags]:
        """Return the weight of each record, a column per value, and which of these are categories."""
        weight = self.scales[self.weight][codes[self.weight].astype(np.int64)]
        columns = [
            self.scales[name][codes[name].astype(np.int64)] if name in self.scales else codes[name].astype(np.int64)
            for name in self.values
        ]
        values = np.stack(columns, axis=1) if columns else np.zeros((len(weight), 0), dtype=np.int64)
        return weight, values, np.array([name not in self.scales for name in self.values], dtype=np.bool_)


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
    targeting: Targeting | None = None
    partners: PartnerRule | None = None
    pairs_per_record: float = 0.25  # an estimate of how much of the order is needed; does not affect the result


class Need(StrEnum):
    """A capability that a method or a file may require; an engine declares those it lacks."""

    POSITIONS = "files without an identifier"
    ROW_ORDER = "records in the order of the source"
    WHOLE_FILE = "methods that need the whole file in memory"
    VALUE_CHANGES = "methods that change values record by record"
    HOUSEHOLDS = "attributes of households, changed for all members"
    RECORDS = "measures that need the records themselves, not counts"
    PARTNERS = "partners chosen by weight"
    SIZES = "targets in proportion to size (rule pps)"


def lacks_error(engine: str, need: Need, reason: str) -> EngineError:
    """Return the error for what an engine lacks, where only the request shows that it is needed."""
    return EngineError(
        f"{need.value} are not available on {engine}: {reason}",
        code="engine-lacks",
        hint="use the engine duckdb or memory",
        engine=engine,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells:
    """Records counted by some attributes: a row of codes, and of values, per occupied cell, in no particular order.

    Codes are those of tables drawn from the same records.
    """

    names: Names
    codes: Int64s
    counts: Counts
    values: pa.Table = field(repr=False)

    def __len__(self) -> int:
        return len(self.counts)

    def column(self, name: str) -> Int64s:
        """Return the codes of one attribute."""
        return self.codes[:, self.names.index(name)]

    def margin(self, names: Names) -> Cells:
        """Return the counts by some of the attributes."""
        codes = np.stack([self.column(name) for name in names], axis=1)
        number = number_labels(codes)
        counts = np.bincount(number, weights=self.counts).astype(np.int64)
        some = np.empty(len(counts), dtype=np.int64)
        some[number] = np.arange(len(number))
        return Cells(names=names, codes=codes[some], counts=counts, values=self.values.select(list(names)).take(some))


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The draws to keep: those below one number, and those from another number on."""

    below: int
    since: int


def find_kept(draws: UInt64s, keep: Ends | None) -> Int64s:
    """Return the places of the draws to keep: all of them without a choice."""
    if keep is None:
        return np.arange(len(draws), dtype=np.int64)
    return np.flatnonzero((draws < np.uint64(keep.below)) | (draws >= np.uint64(keep.since)))


class Derivation(Protocol):
    """A function of each record by itself that adds integer columns while records are read.

    A frozen dataclass: Spark sends it to its workers. The column ``KEEP``, if it adds that, drops records where it
    is 0.
    """

    @property
    def adds(self) -> Names:
        """The columns added."""
        ...

    def __call__(self, draws: UInt64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return the new columns, given the first word of each draw and the codes."""
        ...


class Kernel(Protocol):
    """A function on batches of whole groups. A frozen dataclass: Spark sends it to its workers.

    It sees positions within its batch, never a row, and compares codes for equality only: they have no order, and
    differ from engine to engine. Groups must not depend on each other.
    """

    @property
    def needs(self) -> Names:
        """The columns read."""
        ...

    @property
    def adds(self) -> Names:
        """The columns added."""
        ...

    @property
    def partner(self) -> str:
        """The added column that holds the position of another record of the batch, or −1; empty if there is none."""
        ...

    def __call__(self, bounds: Int64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return the new columns. Group g spans the positions from ``bounds[g]`` to ``bounds[g + 1]``."""
        ...


KEEP = "keep"
DRAW = "draw"
"""The draw as a column of a table: one logical number, the whole cipher text, which is unique."""


class Pairs(Protocol):
    """Disjoint pairs of records, wherever they are held, in the order of drawing."""

    def __len__(self) -> int: ...


class Table(Protocol):
    """Rows of integers drawn from the records. Nothing in it depends on the order of the rows."""

    def map_groups(self, by: Names, order: Names, kernel: Kernel) -> Table:
        """Sort by ``by``, which names at least one column, and ``order``, and run the kernel on whole groups.

        The result has the draw, ``by`` and what the kernel adds. Partners are read by :meth:`pairs` only: engines hold
        them in forms of their own.
        """
        ...

    def where(self, name: str, value: int) -> Table:
        """Return the rows with this value in a column."""
        ...

    def union(self, other: Table) -> Table:
        """Return the rows of both tables, which have the same columns."""
        ...

    def totals(self, *names: str) -> tuple[int, ...]:
        """Return the sums of some columns."""
        ...

    def distinct(self, names: Names) -> Int64s:
        """Return the distinct combinations of some columns, on the driver."""
        ...

    def pairs(self, first: str, partner: str, order: Names) -> Pairs:
        """Pair each row in which ``first`` is 1 with its partner; number the pairs in the order of these rows."""
        ...


class Records(Protocol):
    """The records of a source. An engine holds and moves them; it never decides: methods do, on counts and in kernels.

    Each operation is about one pass over the columns it names.
    """

    name: ClassVar[str]
    lacks: ClassVar[Mapping[Need, str]]
    schema: Schema

    def __len__(self) -> int: ...

    @property
    def attributes(self) -> Names:
        """The attributes that were opened, in file order."""
        ...

    @property
    def held(self) -> Microdata | None:
        """The records themselves where they are in memory, for reports that need more than counts."""
        ...

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        ...

    def is_unique(self, name: str) -> bool:
        """Return True if every record has a value of an attribute, and no two have the same."""
        ...

    def count(self, *keys: Names) -> tuple[Cells, ...]:
        """Count the records by each set of attributes, all in one pass."""
        ...

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by what decides which of them may be paired."""
        ...

    def pair(self, request: PairRequest) -> Pairs:
        """Pair consecutive records along the keyed order, as many as wanted or else as possible.

        The one pairing for groups that do not fit in memory: without attributes held fixed, the whole file is a group.
        """
        ...

    def draw(
        self,
        names: Names,
        key: bytes,
        *,
        keep: Ends | None = None,
        among: CellSet | None = None,
        derive: Derivation | None = None,
    ) -> Table:
        """Load the draw and the codes of some attributes, of all records or of those within ``keep`` and ``among``.

        The attributes of ``among`` are some of ``names``.
        """
        ...

    def load(self, names: Names) -> Microdata:
        """Load some attributes, as codes where that loses nothing, for a decision that no group of records can make.

        They are held on the driver: a method that calls it states how much that is.
        """
        ...

    def words(self, rows: Rows, key: bytes) -> Words:
        """Return the whole draws of some records, given by ascending row."""
        ...

    def pair_rows(self, rows: Rows) -> Pairs:
        """Return pairs that were decided on the driver, given by row, where the engine exchanges values."""
        ...


@dataclass(frozen=True, eq=False)
class Move:
    """These attributes are exchanged within these pairs; if ``directed``, the first of a pair takes from the second.

    If it is also ``mutual``, the second of a pair gets what the first had, though perhaps from another record with the
    same values: groups of different sizes exchange what their members share, and the same pairs undo it.
    """

    names: Names
    pairs: Any
    directed: bool = False
    mutual: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn:
    """The decision of an exchanging method, before anything is moved."""

    plan: Plan
    moves: tuple[Move, ...]
    made: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    releasable: bool = True


def prefix_share(request: PairRequest, records: int, expected: float, tried: float) -> float:
    """Return the share of the keyed order that should suffice, given the pairs expected per record.

    Three standard deviations of headroom, and half as much again as was tried before: a slightly long prefix costs
    little.
    """
    needed = request.wanted / max(expected, 1 / records)
    likely = (needed + 3 * np.sqrt(needed) + 1000) * 1.01 / records
    return float(min(1.0, max(1.5 * tried, likely)))


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


def order_classes(
    labels: Counts, counts: Counts, earliest: Sequence[tuple[int, ...]], constraint: Constraint
) -> tuple[Counts, Classes]:
    """Order classes by first appearance in the keyed order, strata likewise; return the order and the classes."""
    strata = number_labels(labels[:, : len(constraint.equal)])
    stratum_of: list[int] = strata.tolist()
    first: dict[int, tuple[int, ...]] = {}
    for stratum, draw in zip(stratum_of, earliest, strict=True):
        first[stratum] = min(draw, first.get(stratum, draw))
    places = range(len(labels))
    order = np.array(sorted(places, key=lambda i: (first[stratum_of[i]], earliest[i])), dtype=np.int64)
    groups, width = [], len(constraint.equal)
    for group in constraint.unequal:
        groups.append(number_labels(labels[order][:, width : width + len(group)]))
        width += len(group)
    return order, Classes(strata=strata[order], coordinates=np.stack(groups, axis=1), counts=counts[order])


def number_labels(labels: Int64s) -> Int64s:
    """Number the combinations, in ascending order.

    >>> number_labels(np.array([[3, 1], [2, 9], [3, 1]])).tolist()
    [1, 0, 1]
    """
    if not labels.size:
        return np.zeros(len(labels), dtype=np.int64)
    least = labels.min(axis=0)
    sizes = [int(most) - int(low) + 1 for most, low in zip(labels.max(axis=0), least, strict=True)]
    if prod(sizes) > cells.MOST_CELLS:
        return np.unique(labels, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    packed, _ = cells.pack([(column - low).view(np.uint64) for column, low in zip(labels.T, least, strict=True)], sizes)
    return sparse.rank_codes(packed.astype(np.uint64))[0].view(np.int64)
