"""A file sorted by its key variables, and who exchanges with whom at the edges of its classes.

In memory only: the walk of the targeted Confidentiality Edit needs the sorted file as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels import cells, radix, walk
from safeswap.model.microdata import Microdata
from safeswap.model.value_order import ranked_columns

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Names = tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedClasses:
    """The classes of equal keys in sort order: class c holds the rows ``rows[starts[c]:starts[c + 1]]``.

    ``strata`` numbers, for each class, the part of the file within which it may exchange.
    """

    rows: radix.Rows
    starts: Int64s
    strata: Int64s

    @property
    def sizes(self) -> Int64s:
        """How many records each class has."""
        return np.diff(self.starts)

    def class_of(self, positions: Int64s) -> Int64s:
        """The class in which each position of the sorted file lies."""
        found: Int64s = np.searchsorted(self.starts, positions, side="right") - 1
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Walked:
    """Who exchanges with whom: stages of pairs of positions, each with the row that stands there."""

    rows: radix.Rows
    stages: tuple[Int64s, ...]


def sort_classes(data: Microdata, keys: Names, *, within: Names = (), ties: radix.Rows | None = None) -> SortedClasses:
    """Sort by ``within``, then by the keys in the order of their values.

    Records with equal keys stand in the order of the rows in ``ties``, or in file order.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Beds"), Attribute(name="Baths")))
    >>> data = Microdata(pa.table({"Beds": [3, 1, 3], "Baths": [2, 1, 1]}), schema)
    >>> found = sort_classes(data, ("Beds", "Baths"))
    >>> found.rows.tolist(), found.starts.tolist()
    ([1, 2, 0], [0, 1, 2, 3])
    """
    codes, possible = cells.pack(*ranked_columns(data, (*within, *keys)))
    ordered, rows = radix.sort_rows(codes, possible, ties)
    starts = walk.class_starts(ordered)
    strata = np.zeros(starts.size - 1, dtype=np.int64)
    if within and strata.size:
        part = cells.pack(*data.coded_columns(within))[0][rows[starts[:-1]]]
        np.cumsum(part[1:] != part[:-1], out=strata[1:])
    return SortedClasses(rows=rows, starts=starts, strata=strata)


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
    return Walked(rows=classes.rows, stages=(np.concatenate([ahead, back[~again]]), back[again]))


def _neighbours(classes: SortedClasses, first: Int64s) -> Int64s:
    edge = classes.starts[first]
    return np.stack([edge - 1, edge], axis=1)


def identifier_order(data: Microdata) -> radix.Rows | None:
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


def _text_order(column: pa.ChunkedArray) -> radix.Rows:
    return np.asarray(pc.sort_indices(column).to_numpy(), dtype=np.uint32)
