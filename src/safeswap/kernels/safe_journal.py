"""The moves of one attempt, which can be taken back, and what kept margins tie variables to."""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from safeswap.kernels.safe_state import copy_levels, move
from safeswap.kernels.types import Flags, Int32s, Int64s

PER_WANT = 900.0
"""What a record that serves a second table saves there: nearly a record."""


class Ties(NamedTuple):
    """Which variables are bound by kept margins, and to what.

    ``context[v, u]``: u stands with v in a kept margin. Partners of variable v are found by the packed levels of its
    context and its own: ``groups`` ascending, members from ``begins`` on in ``members``, variable after variable.
    """

    tied: Flags
    context: Flags
    strides: Int64s  # variable × variable: packs the context of v, and v itself with stride 1
    group_starts: Int64s
    groups: Int64s
    begins: Int64s
    members: Int32s


class Journal(NamedTuple):
    """The moves of one attempt, to be taken back or made again: record and levels before and after."""

    length: Int64s
    records: Int64s
    before: Int32s
    after: Int32s


@njit(cache=True, nogil=True)
def make(state, journal, r, target):  # type: ignore[no-untyped-def]
    """Move a record and note it; False where the journal is full and nothing was done."""
    n = journal.length[0]
    if n >= journal.records.size:
        return False
    journal.records[n] = r
    copy_levels(state.codes[r], journal.before[n])
    copy_levels(target, journal.after[n])
    journal.length[0] = n + 1
    move(state, r, target)
    return True


@njit(cache=True, nogil=True)
def take_back(state, journal, length):  # type: ignore[no-untyped-def]
    """Undo all moves but the first ``length``, the last one first."""
    for i in range(journal.length[0] - 1, length - 1, -1):
        move(state, journal.records[i], journal.before[i])
    journal.length[0] = length
