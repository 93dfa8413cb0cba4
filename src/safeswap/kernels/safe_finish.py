"""After the search: take back what was not needed, and the last resort where some cells stayed unsafe."""

from __future__ import annotations

import numpy as np
from numba import njit

from safeswap.kernels.safe_state import NEVER, copy_levels, gain, move, want
from safeswap.kernels.types import Int64s


@njit(cache=True, nogil=True)
def take_back_idle(state, tied):  # type: ignore[no-untyped-def]
    """Give records the levels back that they had, all or one, where every cell stays safe; how many were given back.

    Variables that are ``tied`` to kept margins stay as they are: their partners would have to follow.
    """
    done = 0
    target = np.empty(state.levels.size, dtype=np.int32)
    for r in range(state.codes.shape[0]):
        copy_levels(state.codes[r], target)
        changed = False
        for v in range(state.levels.size):
            if target[v] != state.original[r, v] and not tied[v]:
                target[v] = state.original[r, v]
                changed = True
        if not changed:
            continue
        if _stays_safe(state, r, target):
            move(state, r, target)
            done += 1
            continue
        for v in range(state.levels.size):
            if state.codes[r, v] != state.original[r, v] and not tied[v]:
                copy_levels(state.codes[r], target)
                target[v] = state.original[r, v]
                if _stays_safe(state, r, target):
                    move(state, r, target)
                    done += 1
    return done


@njit(cache=True, nogil=True)
def _stays_safe(state, r, target):  # type: ignore[no-untyped-def]
    wants = gain(state, r, target, np.int64(-1))
    return wants != NEVER and wants <= 0


@njit(cache=True, nogil=True)
def into_one(state, sink):  # type: ignore[no-untyped-def]
    """Move the records of unsafe cells to the levels of one record, and those of the cells that this makes unsafe.

    It ends, since no record moves twice, and with all records in one place every table is safe if there are enough of
    them. All records of the file must be among those that may move. Whether every cell is safe in the end.
    """
    tables = state.strides.shape[0]
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[sink], target)
    there = np.zeros(state.codes.shape[0], dtype=np.bool_)
    for r in range(state.codes.shape[0]):
        there[r] = True
        for v in range(target.size):
            there[r] &= state.codes[r, v] == target[v]
    while True:
        moved = False
        unsafe = False
        for t in range(tables):
            for slot in range(state.starts[t], state.starts[t + 1]):
                if want(state.counts[slot], state.tolerance) == 0:
                    continue
                unsafe = True
                inside = np.int64(state.heads[slot])
                while inside >= 0:
                    following = np.int64(state.links[t, inside, 1])
                    if not there[inside]:
                        move(state, inside, target)
                        there[inside] = True
                        moved = True
                    inside = following
        if not unsafe:
            return True
        if not moved and not _one_more(state, there, target):
            return False


@njit(cache=True, nogil=True)
def _one_more(state, there, target):  # type: ignore[no-untyped-def]
    """The cell of the sink itself is too small: bring the next record there."""
    for r in range(there.size):
        if not there[r]:
            move(state, r, target)
            there[r] = True
            return True
    return False


def fewest_changes(counts: Int64s, tolerance: int) -> int:
    """How many records must change at least until no count of a table is above 0 and below the tolerance.

    Every small cell is emptied, by records that leave, or filled, by records that enter; a record can leave one cell
    and enter another. The larger of all that leave and all that enter is, for any λ, at least
    Σ min(λ·n, (1 − λ)·(Q − n)).

    >>> fewest_changes(np.array([1, 4, 2, 9]), 5)
    3
    """
    small = counts[(counts > 0) & (counts < tolerance)].astype(np.float64)
    best = 0.0
    for n in np.unique(small):  # the sum is concave in λ and bends at these only
        share = (tolerance - n) / tolerance
        best = max(best, float(np.minimum(share * small, (1 - share) * (tolerance - small)).sum()))
    return int(np.ceil(best - 1e-9))
