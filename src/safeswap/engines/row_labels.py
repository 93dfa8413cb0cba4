"""Labels of records, equal where an exchange of the two would change nothing, made for the records that need them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from safeswap.engines.sorted_classes import SortedClasses
from safeswap.kernels import cells, walk
from safeswap.kernels.types import Flags, Int64s, Integers, UInt64s
from safeswap.model.microdata import Microdata


class RowLabels(Protocol):
    """A number for each record; two records with the same one would not change by an exchange."""

    def at(self, rows: Integers) -> UInt64s:
        """The labels of some rows, which can be compared with each other and not with those of another call."""
        ...

    def all(self) -> UInt64s:
        """The labels of all rows."""
        ...


class CellLabels:
    """The combination of some attributes as the label.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Place": ["a", "b", "b"]}), Schema(attributes=(Attribute(name="Place"),)))
    >>> CellLabels(data, ("Place",)).at(np.array([2, 0, 1])).tolist()
    [1, 0, 1]
    """

    def __init__(self, data: Microdata, names: tuple[str, ...]) -> None:
        self._columns, self._sizes = data.coded_columns(names)

    def at(self, rows: Integers) -> UInt64s:
        """The labels of some rows."""
        return cells.pack([column[rows] for column in self._columns], self._sizes)[0].astype(np.uint64)

    def all(self) -> UInt64s:
        """The labels of all rows."""
        return cells.pack(self._columns, self._sizes)[0].astype(np.uint64, copy=False)


class ClassLabels:
    """The class of a sorted file as the label."""

    def __init__(self, classes: SortedClasses) -> None:
        self._classes = classes

    def at(self, rows: Integers) -> UInt64s:
        """The labels of some rows."""
        return self._classes.class_of(rows).view(np.uint64)

    def all(self) -> UInt64s:
        """The labels of all rows."""
        return self.at(np.arange(self._classes.codes.size))


def mixed_strata(classes: SortedClasses, chosen: Flags, labels: RowLabels) -> Flags:
    """For each of the chosen classes, whether its stratum has several classes and not the same label everywhere.

    Two chosen records of a stratum that have different labels tell it; where there are none the whole file is asked.
    """
    found = np.flatnonzero(chosen)
    if not found.size:
        return chosen
    rows = classes.rows_of(found)
    owners = np.repeat(found, classes.sizes[found])
    part = _told(classes, owners, labels.at(rows))
    if part[found].all():
        return part
    return walk.mixed(classes.starts, classes.strata, classes.rows, labels.all())


def _told(classes: SortedClasses, owners: Int64s, labels: UInt64s) -> Flags:
    """For each class, whether records of several labels and classes are known in its stratum."""
    strata = classes.strata[owners]
    differ = (strata[1:] == strata[:-1]) & (labels[1:] != labels[:-1])
    several = np.bincount(classes.strata) > 1
    told = np.zeros(several.size, dtype=np.bool_)
    told[strata[1:][differ]] = True
    flags: Flags = (told & several)[classes.strata]
    return flags
