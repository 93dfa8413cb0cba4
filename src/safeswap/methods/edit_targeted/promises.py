"""The promise that every combination below tolerance was changed or counted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Integers
from safeswap.model.columns import has_distinct_levels
from safeswap.model.evidence import Evidence, bit_codes
from safeswap.model.invariant import Invariant
from safeswap.model.text import plural

LEFT = "left"
"""The fact of an audit that counts the combinations below tolerance in which no record changed."""

_BLOCK = 1 << 15
_STEP = 1 << 22
_SMALL_TABLE = 1 << 16
_SHORT = (1 << 16) - 1


@dataclass(frozen=True)
class TreatedClasses(Invariant):
    """Every combination of the keys with fewer records than the tolerance has a changed record, or is counted.

    Combinations are recounted from the columns of the original, without the code that sorted it.
    """

    keys: Names
    tolerance: int

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return (
            f"Every combination of {', '.join(self.keys)} with fewer than {plural(self.tolerance, 'record')} "
            "has a record that was changed, or is counted as left in the audit record."
        )

    def problem(self, evidence: Evidence) -> str:
        """Compare the number left with the audit record."""
        left = self._left(evidence)
        stated = evidence.audit.facts.get(LEFT)
        if left == stated:
            return ""
        found = plural(left, "combination below tolerance has", "combinations below tolerance have")
        return f"{found} no changed record, the audit record counts {stated}"

    def _left(self, evidence: Evidence) -> int:
        changed = np.zeros(len(evidence.before), dtype=np.bool_)
        for name in evidence.before.attributes:
            flags = evidence.changed(name)
            if flags is not None:
                changed |= flags
        keys = [evidence.before.table.column(name) for name in self.keys]
        sizes = _dictionary_sizes(keys)
        if sizes is not None and prod(sizes) <= max(_SMALL_TABLE, 2 * len(changed)):
            return _left_by_places(keys, sizes, changed, self.tolerance)
        columns = {f"k{i}": bit_codes(column) for i, column in enumerate(keys)}
        table = pa.table({**columns, "changed": pa.array(changed)})
        classes = table.group_by(list(columns)).aggregate([("changed", "count"), ("changed", "any")])
        small = pc.less(classes["changed_count"], self.tolerance)
        return pc.sum(pc.and_(small, pc.invert(classes["changed_any"]))).as_py() or 0


def _dictionary_sizes(columns: list[pa.ChunkedArray]) -> list[int] | None:
    """Return the number of values of each column; None without a single dictionary, or with missing values."""
    for column in columns:
        if not pa.types.is_dictionary(column.type) or column.null_count or not has_distinct_levels(column):
            return None
    return [len(column.chunk(0).dictionary) for column in columns]


def _left_by_places(columns: list[pa.ChunkedArray], sizes: list[int], changed: Flags, tolerance: int) -> int:
    """Count the combinations left, in a table with a slot for each possible one."""
    groups = _groups([column.chunk(0).indices.to_numpy() for column in columns], sizes)
    possible = prod(sizes)
    counts = np.zeros(possible, dtype=np.int64)
    moved = np.zeros(possible, dtype=np.bool_)
    step = max(_STEP, possible)  # one table per step, so a step should not be shorter than the table
    room = np.empty(min(step, len(changed)), dtype=np.int64)
    for start in range(0, len(changed), step):
        places = room[: len(changed) - start]
        for first in range(0, len(places), _BLOCK):
            _put_places(places[first : first + _BLOCK], groups, start + first)
        counts += np.bincount(places, minlength=possible)
        moved[places[changed[start : start + step]]] = True
    return int(np.count_nonzero((counts > 0) & (counts < tolerance) & ~moved))


def _groups(indices: list[Integers], sizes: list[int]) -> list[list[tuple[Integers, int]]]:
    """Group adjacent columns whose combinations fit short integers, which are fastest in NumPy."""
    groups: list[list[tuple[Integers, int]]] = [[]]
    for column, size in zip(indices, sizes, strict=True):
        if groups[-1] and prod(n for _, n in groups[-1]) * size > _SHORT:
            groups.append([])
        groups[-1].append((column, size))
    return groups


def _put_places(places: Int64s, groups: list[list[tuple[Integers, int]]], start: int) -> None:
    """Write the slot of each record's combination from ``start`` on; in blocks, to stay in the cache."""
    some = slice(start, start + len(places))
    places[:] = 0
    for group in groups:
        size = prod(n for _, n in group)
        part: Integers = group[0][0][some].astype(np.uint16 if size <= _SHORT else np.int64)
        for column, number in group[1:]:
            part *= number
            part += column[some].astype(part.dtype)
        places *= size
        places += part
