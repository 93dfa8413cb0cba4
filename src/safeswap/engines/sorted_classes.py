"""A file sorted by its key variables, and who exchanges with whom at the edges of its classes.

In memory only: the walk of the targeted Confidentiality Edit goes over all classes in their order.
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

from safeswap.kernels import cells, radix, walk
from safeswap.kernels.types import Codes, Flags, Int64s, Names, UInt32s
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.value_order import rank_of_code


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedClasses:
    """The classes of equal keys in sort order: class c holds the rows ``rows[starts[c]:starts[c + 1]]``.

    ``strata`` numbers, for each class, the part of the file within which it may exchange. Only counts are needed to
    know the classes, so the file is sorted when somebody asks for all of its ``rows``, and not before.
    """

    starts: Int64s
    strata: Int64s
    codes: Codes = field(repr=False)  # the cell of each row, ascending from class to class
    possible: int
    names: Codes  # the cell of each class
    ties: UInt32s | None = None

    @property
    def sizes(self) -> Int64s:
        """How many records each class has."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> UInt32s:
        """The row at each position of the sorted file."""
        return radix.sort_rows(self.codes, self.possible, self.ties)[1]

    def class_of(self, rows: npt.NDArray[np.integer[Any]]) -> Int64s:
        """The class of each of some rows."""
        found: Int64s = np.searchsorted(self.names, self.codes[rows])
        return found

    @property
    def is_counted(self) -> bool:
        """Whether a table with a place for each possible cell is worth having."""
        return cells.is_dense(self.possible, self.codes.size)

    def positions(self, chosen: Int64s) -> Int64s:
        """The positions of some classes, which are given in ascending order."""
        sizes = self.sizes[chosen]
        begins = np.cumsum(sizes) - sizes
        found: Int64s = np.repeat(self.starts[chosen] - begins, sizes) + np.arange(sizes.sum())
        return found

    def rows_of(self, chosen: Int64s) -> UInt32s:
        """The rows of some classes, which are given in ascending order: ``rows`` at their positions."""
        if not self.is_counted or self.ties is not None or "rows" in self.__dict__:
            return self.rows[self.positions(chosen)]
        return self.grouped(self.codes, chosen, self.sizes[chosen])

    def grouped(self, codes: Codes, chosen: Int64s, sizes: Int64s) -> UInt32s:
        """Where records of the chosen classes stand in ``codes``, class by class; ``sizes`` says how many of each."""
        cursor = np.full(self.possible, -1, dtype=np.int32)
        cursor[self.names[chosen]] = np.cumsum(sizes) - sizes
        return walk.collect(codes, cursor, int(sizes.sum()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Walked:
    """Who exchanges with whom: stages of pairs of rows."""

    pairs: tuple[Int64s, ...]

    @classmethod
    def of(cls, rows: UInt32s, stages: tuple[Int64s, ...]) -> Walked:
        """The pairs where ``rows`` tells the row at each position of the stages."""
        return cls(pairs=tuple(rows[stage].astype(np.int64) for stage in stages))


def sort_classes(data: Microdata, keys: Names, *, within: Names = (), ties: UInt32s | None = None) -> SortedClasses:
    """Sort by ``within``, then by the keys in the order of their values.

    Records with equal keys stand in the order of the rows in ``ties``, or in file order.

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
    starts = walk.class_starts(ordered)
    strata = np.zeros(starts.size - 1, dtype=np.int64)
    if within and strata.size:
        part = cells.pack(*data.coded_columns(within))[0][rows[starts[:-1]]]
        np.cumsum(part[1:] != part[:-1], out=strata[1:])
    names_of = ordered[starts[:-1]]
    classes = SortedClasses(starts=starts, strata=strata, codes=packed, possible=possible, names=names_of, ties=ties)
    classes.__dict__["rows"] = rows  # sorted already
    return classes


def _counted_classes(packed: Codes, possible: int, inner: int, ties: UInt32s | None) -> SortedClasses:
    """The classes from the counts of all possible cells, ``inner`` of which make up a stratum."""
    counts = cells.dense_counts(packed, possible)
    names = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts[names], dtype=np.int64)])
    strata = np.zeros(names.size, dtype=np.int64)
    np.cumsum(np.diff(names // inner) != 0, out=strata[1:])
    return SortedClasses(
        starts=starts, strata=strata, codes=packed, possible=possible, ties=ties, names=names.astype(packed.dtype)
    )


def letter_walk(classes: SortedClasses, failing: Flags) -> Walked:
    """The walk as printed: neighbours at the edges of failing classes exchange.

    The last class of a stratum exchanges with the record before it even if that one has exchanged already: such pairs
    make a second stage.
    """
    forward, backward, _ = walk.edges(classes.strata, failing)
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
    """The rows in the order of their identifiers, whole numbers as numbers; None where the file has that order.

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
    # Two texts that are the same number, such as 7 and 07, are told apart as texts.
    return _text_order(column) if (np.diff(numbers[order]) == 0).any() else order.astype(np.uint32)


def _text_order(column: pa.ChunkedArray) -> UInt32s:
    return np.asarray(pc.sort_indices(column).to_numpy(), dtype=np.uint32)
