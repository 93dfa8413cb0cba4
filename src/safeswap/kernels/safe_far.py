"""Ways out of a cell that change two variables or more, for records that no single change takes to a safe place."""

from __future__ import annotations

import numpy as np
from numba import njit

from safeswap.kernels.safe_journal import PER_WANT, make, take_back
from safeswap.kernels.safe_state import NEVER, copy_levels, gain, price

_PROFILES = 64
_FAR_PARTNERS = 4000
_MOST_PAIRS = 1 << 16  # levels of two variables up to which all pairs are tried
_NOBODY = np.int64(-1)


@njit(cache=True, nogil=True)
def far_way_out(state, ties, journal, r, table, focus):  # type: ignore[no-untyped-def]
    """The same by changing two variables, or all that another record differs in; only variables that are not tied."""
    best = NEVER
    found = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], found)
    target = np.empty(state.levels.size, dtype=np.int32)
    copy_levels(state.codes[r], target)
    for v in range(state.levels.size):
        if state.strides[table, v] == 0 or state.fixed[v] or ties.tied[v]:
            continue
        for new in range(state.levels[v]):
            if new == state.codes[r, v]:
                continue
            target[v] = new
            for u in range(state.levels.size):
                if u == v or state.fixed[u] or ties.tied[u] or state.levels[v] * state.levels[u] > _MOST_PAIRS:
                    continue
                for other in range(state.levels[u]):
                    if other == state.codes[r, u]:
                        continue
                    target[u] = other
                    wants = gain(state, r, target, focus)
                    if wants < NEVER:
                        cost = price(state, r, target) + PER_WANT * wants
                        if cost < best:
                            best = cost
                            copy_levels(target, found)
                target[u] = state.codes[r, u]
        target[v] = state.codes[r, v]
    if best == NEVER:
        records = state.codes.shape[0]
        for number in range(min(_PROFILES, records)):
            like = np.int64(state.noise[(r + 7919 * number) % state.noise.size] * records)
            for v in range(state.levels.size):
                free = not (state.fixed[v] or ties.tied[v])
                target[v] = state.codes[like, v] if free else state.codes[r, v]
            wants = gain(state, r, target, focus)
            if wants < NEVER and _leaves(state, r, table, target):
                cost = price(state, r, target) + PER_WANT * wants
                if cost < best:
                    best = cost
                    copy_levels(target, found)
    if best == NEVER or not make(state, journal, r, found):
        return NEVER
    return best


@njit(cache=True, nogil=True)
def far_exchange(state, ties, journal, r, table, focus):  # type: ignore[no-untyped-def]
    """Exchange two variables at once with a partner that agrees in all that is kept together with them."""
    best, found, first, second = NEVER, _NOBODY, _NOBODY, _NOBODY
    mine, theirs = np.empty(state.levels.size, dtype=np.int32), np.empty(state.levels.size, dtype=np.int32)
    length = journal.length[0]
    records = state.codes.shape[0]
    start = np.int64(state.noise[r % state.noise.size] * records)
    for number in range(min(records, _FAR_PARTNERS)):
        other = (start + number) % records
        for v in range(state.levels.size):
            if state.strides[table, v] == 0 or state.fixed[v] or state.codes[r, v] == state.codes[other, v]:
                continue
            for u in range(state.levels.size):
                if u == v or state.fixed[u] or not _may_exchange(state, ties, r, other, v, u):
                    continue
                _exchanged(state, r, other, v, u, mine)
                _exchanged(state, other, r, v, u, theirs)
                wants = gain(state, r, mine, focus)
                if wants == NEVER or price(state, r, mine) + PER_WANT * wants >= best:
                    continue
                cost = price(state, r, mine) + PER_WANT * wants
                if not make(state, journal, r, mine):
                    return NEVER
                wants = gain(state, other, theirs, focus)
                cost = NEVER if wants == NEVER else cost + price(state, other, theirs) + PER_WANT * wants
                take_back(state, journal, length)
                if cost < best:
                    best, found, first, second = cost, np.int64(other), np.int64(v), np.int64(u)
    if found >= 0:
        _exchanged(state, r, found, first, second, mine)
        _exchanged(state, found, r, first, second, theirs)
        if make(state, journal, r, mine) and make(state, journal, found, theirs):
            return best
        take_back(state, journal, length)
    return NEVER


@njit(cache=True, nogil=True)
def _may_exchange(state, ties, r, other, v, u):  # type: ignore[no-untyped-def]
    """Whether exchanging v and u keeps every margin: in what stands with either, both records agree."""
    agree = r != other
    for w in range(state.levels.size):
        if w not in (v, u) and ((ties.tied[v] and ties.context[v, w]) or (ties.tied[u] and ties.context[u, w])):
            agree &= state.codes[r, w] == state.codes[other, w]
    return agree


@njit(cache=True, nogil=True)
def _exchanged(state, r, other, v, u, target):  # type: ignore[no-untyped-def]
    copy_levels(state.codes[r], target)
    target[v] = state.codes[other, v]
    target[u] = state.codes[other, u]


@njit(cache=True, nogil=True)
def _leaves(state, r, table, target):  # type: ignore[no-untyped-def]
    left = False
    for v in range(state.levels.size):
        left |= state.strides[table, v] != 0 and target[v] != state.codes[r, v]
    return left
