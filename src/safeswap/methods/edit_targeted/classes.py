"""A file sorted by its key variables, and the exchanges at the edges of its classes.

In memory only: the walk of the targeted Confidentiality Edit visits all classes in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays import cells
from safeswap.arrays import order as radix
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Int32s, Int64s, UInt32s, UInt64s
from safeswap.model.columns import rank_of_code
from safeswap.model.microdata import Microdata, smallest_code_type

# The classes of a sorted file, and the walk over them.
#
# A *class* is a run of equal codes in the sorted file. Moore (1996) walks the classes in order: one that has too few
# records exchanges its last record with the first one of the next class, and the next class then counts as treated.
# The last class has no next one and exchanges with the record before it. Both exchanges happen between neighbours at
# an edge of two classes, so an exchange is identified by the class that begins at its edge.


@njit(cache=True, nogil=True)
def class_starts(codes: Codes) -> Int64s:
    """Return the start of each class of the sorted codes, and the number of records at the end.

    >>> class_starts(np.array([3, 3, 4, 9], np.uint8)).tolist()
    [0, 2, 3, 4]
    """
    classes = 1 if codes.size else 0
    for i in range(1, codes.size):
        classes += codes[i] != codes[i - 1]
    starts = np.zeros(classes + 1, np.int64)
    c = 0
    for i in range(1, codes.size):
        if codes[i] != codes[i - 1]:
            c += 1
            starts[c] = i
    starts[classes] = codes.size
    return starts


@njit(cache=True, nogil=True)
def collect(cells: Codes, cursor: Int32s, number: int) -> UInt32s:
    """Return the ``number`` rows whose cell has a cursor (below 0: none), each at the next place of its cell.

    Rows of one cell come in file order. The cursors advance.

    >>> collect(np.array([3, 1, 2, 3], np.uint8), np.array([-1, 0, -1, 1], np.int32), 3).tolist()
    [1, 0, 3]
    """
    rows = np.empty(number, np.uint32)
    for i in range(cells.size):
        place = cursor[cells[i]]
        if place >= 0:
            rows[place] = i
            cursor[cells[i]] = place + 1
    return rows


@njit(cache=True, nogil=True)
def take_low(cells: Codes, draws: UInt64s, bounds: UInt32s, rows: UInt32s) -> int:
    """Write the records whose draw, by its upper half, is up to the bound of their cell; return their number.

    >>> rows = np.empty(2, np.uint32)
    >>> draws = np.array([5 << 32, 6 << 32], np.uint64)
    >>> take_low(np.array([0, 0], np.uint8), draws, np.array([5], np.uint32), rows), int(rows[0])
    (1, 0)
    """
    taken = 0
    for i in range(cells.size):
        if (draws[i] >> np.uint64(32)) <= bounds[cells[i]]:
            rows[taken] = i
            taken += 1
    return taken


@njit(cache=True, nogil=True)
def edges(strata: Int64s, failing: Flags) -> tuple[Int64s, Int64s, int]:
    """Walk the classes and return the edges at which records are exchanged.

    ``strata`` numbers the part of the file of each class (each part is walked on its own), ``failing`` flags classes
    with too few records. Returns the classes at whose first record the class before exchanges, the last classes of
    their strata that exchange backwards, and the number of classes without any partner.

    >>> one_file = np.zeros(5, np.int64)
    >>> forward, backward, alone = edges(one_file, np.array([True, True, False, False, True]))
    >>> forward.tolist(), backward.tolist(), alone
    ([1], [4], 0)
    """
    classes = failing.size
    forward, backward = np.empty(classes, np.int64), np.empty(classes, np.int64)
    ahead, behind, alone = 0, 0, 0
    treated = False
    for c in range(classes):
        is_first = c == 0 or strata[c - 1] != strata[c]
        is_last = c + 1 == classes or strata[c + 1] != strata[c]
        wanting = failing[c] and (is_first or not treated)
        treated = wanting and not is_last
        if treated:
            forward[ahead] = c + 1
            ahead += 1
        elif wanting and not is_first:
            backward[behind] = c
            behind += 1
        elif wanting:
            alone += 1
    return forward[:ahead], backward[:behind], alone


@njit(cache=True, nogil=True)
def flag_mixed(starts: Int64s, strata: Int64s, rows: UInt32s, labels: Codes) -> Flags:
    """Flag the classes whose stratum has several classes and several labels.

    These are exactly the classes with a record that can be exchanged with one of another class so that both change.
    ``labels`` are by row; ``rows`` gives the row at each position of the sorted file.

    >>> rows = np.array([3, 2, 1, 0], np.uint32)
    >>> flag_mixed(np.array([0, 1, 3, 4]), np.array([0, 0, 1]), rows, np.array([7, 6, 5, 5], np.uint64)).tolist()
    [True, True, False]
    """
    classes = strata.size
    result = np.zeros(classes, np.bool_)
    first = 0
    while first < classes:
        last = first
        while last + 1 < classes and strata[last + 1] == strata[first]:
            last += 1
        if last > first:
            i = starts[first] + 1
            while i < starts[last + 1] and labels[rows[i]] == labels[rows[i - 1]]:
                i += 1
            result[first : last + 1] = i < starts[last + 1]
        first = last + 1
    return result


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedClasses:
    """The classes of equal keys in sort order: class c holds the rows ``rows[starts[c]:starts[c + 1]]``.

    ``strata`` numbers, for each class, the part of the file within which it may exchange. The classes follow from
    counts alone, so the file is sorted only when all of its ``rows`` are requested.
    """

    starts: Int64s
    strata: Int64s
    codes: Codes = field(repr=False)  # the cell of each row, ascending from class to class
    possible: int
    names: Codes  # the cell of each class
    ties: UInt32s | None = None

    @property
    def sizes(self) -> Int64s:
        """The number of records in each class."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> UInt32s:
        """The row at each position of the sorted file."""
        return radix.sort_rows(self.codes, self.possible, self.ties)[1]

    def class_of(self, rows: npt.NDArray[np.integer[Any]]) -> Int64s:
        """Return the class of each of some rows."""
        found: Int64s = np.searchsorted(self.names, self.codes[rows])
        return found

    @property
    def is_counted(self) -> bool:
        """True if a table with a slot for each possible cell is worthwhile."""
        return cells.is_dense(self.possible, self.codes.size)

    def positions(self, chosen: Int64s) -> Int64s:
        """Return the positions of some classes, given in ascending order."""
        sizes = self.sizes[chosen]
        begins = np.cumsum(sizes) - sizes
        found: Int64s = np.repeat(self.starts[chosen] - begins, sizes) + np.arange(sizes.sum())
        return found

    def rows_of(self, chosen: Int64s) -> UInt32s:
        """Return the rows of some classes, given in ascending order: ``rows`` at their positions."""
        if not self.is_counted or self.ties is not None or "rows" in self.__dict__:
            return self.rows[self.positions(chosen)]
        return self.group_positions(self.codes, chosen, self.sizes[chosen])

    def group_positions(self, codes: Codes, chosen: Int64s, sizes: Int64s) -> UInt32s:
        """Return the positions in ``codes`` of records of the chosen classes, class by class; ``sizes`` counts each."""
        cursor = np.full(self.possible, -1, dtype=np.int32)
        cursor[self.names[chosen]] = np.cumsum(sizes) - sizes
        return collect(codes, cursor, int(sizes.sum()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Walked:
    """Stages of pairs of rows that exchange."""

    pairs: tuple[Int64s, ...]

    @classmethod
    def of(cls, rows: UInt32s, stages: tuple[Int64s, ...]) -> Walked:
        """Return the pairs, where ``rows`` gives the row at each position of the stages."""
        return cls(pairs=tuple(rows[stage].astype(np.int64) for stage in stages))


def sort_classes(data: Microdata, keys: Names, *, within: Names = (), ties: UInt32s | None = None) -> SortedClasses:
    """Sort by ``within``, then by the keys in the order of their values.

    Records with equal keys are in the order of the rows in ``ties``, or in file order.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Beds"), Attribute(name="Baths")))
    >>> data = Microdata(pa.table({"Beds": [3, 1, 3], "Baths": [2, 1, 1]}), schema)
    >>> found = sort_classes(data, ("Beds", "Baths"))
    >>> found.rows.tolist(), found.starts.tolist()
    ([1, 2, 0], [0, 1, 2, 3])
    """
    names = (*within, *keys)
    codes, sizes = data.coded_columns(names)
    ranks = [rank_of_code(data, name)[:size] for name, size in zip(names, sizes, strict=True)]
    packed, possible = cells.pack(codes, sizes, [r.astype(smallest_code_type(r.size)) for r in ranks])
    if prod(sizes) == possible and cells.is_dense(possible, packed.size):
        return _counted_classes(packed, possible, prod(sizes[len(within) :]), ties)
    ordered, rows = radix.sort_rows(packed, possible, ties)
    starts = class_starts(ordered)
    strata = np.zeros(starts.size - 1, dtype=np.int64)
    if within and strata.size:
        part = cells.pack(*data.coded_columns(within))[0][rows[starts[:-1]]]
        np.cumsum(part[1:] != part[:-1], out=strata[1:])
    names_of = ordered[starts[:-1]]
    classes = SortedClasses(starts=starts, strata=strata, codes=packed, possible=possible, names=names_of, ties=ties)
    classes.__dict__["rows"] = rows  # sorted already
    return classes


def _counted_classes(packed: Codes, possible: int, inner: int, ties: UInt32s | None) -> SortedClasses:
    """Build the classes from the counts of all possible cells, ``inner`` of which make up a stratum."""
    counts = cells.count_dense(packed, possible)
    names = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts[names], dtype=np.int64)])
    strata = np.zeros(names.size, dtype=np.int64)
    np.cumsum(np.diff(names // inner) != 0, out=strata[1:])
    return SortedClasses(
        starts=starts, strata=strata, codes=packed, possible=possible, ties=ties, names=names.astype(packed.dtype)
    )


def letter_walk(classes: SortedClasses, failing: Flags) -> Walked:
    """Walk as printed: neighbours at the edges of failing classes exchange.

    The last class of a stratum exchanges with the record before it even if that one has already exchanged: such pairs
    form a second stage.
    """
    forward, backward, _ = edges(classes.strata, failing)
    used = np.zeros(classes.rows.size + 1, dtype=np.bool_)
    ahead = _neighbours(classes, forward)
    used[ahead.ravel()] = True
    back = _neighbours(classes, backward)
    again = used[back[:, 0]]
    return Walked.of(classes.rows, (np.concatenate([ahead, back[~again]]), back[again]))


def _neighbours(classes: SortedClasses, first: Int64s) -> Int64s:
    edge = classes.starts[first]
    return np.stack([edge - 1, edge], axis=1)


def identifier_order(data: Microdata) -> UInt32s | None:
    """Sort the rows by identifier, whole numbers numerically; None if the file is already in that order.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> identifier_order(Microdata(pa.table({"id": ["10", "9"]}), schema)).tolist()
    [1, 0]
    """
    attribute = data.schema.identifier
    if attribute is None:
        return None
    column = data.table.column(attribute.name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        numbers = pc.cast(column, pa.int64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _text_order(column)
    if (numbers[1:] > numbers[:-1]).all():
        return None
    order = np.argsort(numbers)
    # Texts of equal numbers, such as 7 and 07, are ordered as texts.
    return _text_order(column) if (np.diff(numbers[order]) == 0).any() else order.astype(np.uint32)


def _text_order(column: pa.ChunkedArray) -> UInt32s:
    return np.asarray(pc.sort_indices(column).to_numpy(), dtype=np.uint32)
