"""A set of combinations of integers, and which records have one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from safeswap.arrays import sparse
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int32s, Int64s, Integers, UInt64s

_ONE = np.uint64(1)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class CellSet:
    """Combinations of the values of some columns, one a row.

    >>> some = CellSet(("a", "b"), np.array([[1, 2], [2, 8]]))
    >>> some.flags([np.array([1, 1, 2]), np.array([2, 8, 8])]).tolist()
    [True, False, True]
    """

    names: Names
    rows: Int64s

    def flags(self, columns: Sequence[Integers]) -> Flags:
        """Flag the records with one of the combinations; ``columns`` are in the order of ``names``."""
        if not len(self.rows):
            return np.zeros(len(columns[0]), dtype=np.bool_)
        words, places, slots = self._table
        found = np.empty(len(columns[0]), dtype=np.int64)
        _find(_mix(columns), words, slots, found)
        flags = found >= 0
        near = np.flatnonzero(flags)
        # A word stands for a combination only almost surely, so the combinations themselves are compared.
        known = self.rows[places[found[near]]]
        flags[near] = np.all([column[near] == known[:, i] for i, column in enumerate(columns)], axis=0)
        return flags

    @cached_property
    def _table(self) -> tuple[UInt64s, Int64s, Int32s]:
        """The words of the combinations, the row of each, and the slots that find them."""
        words, places = np.unique(_mix(list(self.rows.T)), return_index=True)
        slots = np.zeros(1 << (4 * len(words) + 1).bit_length(), dtype=np.int32)
        sparse.insert_codes(words, slots)
        return words, places, slots


def _mix(columns: Sequence[Integers]) -> UInt64s:
    """Return a word for each combination."""
    words = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        _mix_in(words, column)
    return words


@njit(cache=True, nogil=True)
def _mix_in(words, column):  # type: ignore[no-untyped-def]
    for i in range(words.size):
        words[i] = sparse.scramble(words[i] * _FACTOR + np.uint64(column[i]))


@njit(cache=True, nogil=True)
def _find(packed, words, slots, found):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for i in range(packed.size):
        slot = sparse.scramble(packed[i]) & mask
        while slots[slot] != 0 and words[slots[slot] - 1] != packed[i]:
            slot = (slot + _ONE) & mask
        found[i] = slots[slot] - 1
