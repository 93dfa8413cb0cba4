"""Fewer changes by trying again: take back some that meet in a cell, make the tables safe anew, keep what is better.

Shaw 1998 calls it large neighbourhood search. Only variables in no kept margin are tried again: the others change in
pairs, which would have to be taken back together.
"""

from __future__ import annotations

import time

import numpy as np

from safeswap.kernels import safe_moves
from safeswap.kernels.safe_journal import Journal
from safeswap.kernels.safe_near import with_wanting
from safeswap.kernels.safe_state import State, move
from safeswap.kernels.types import Flags, Int32s, Int64s
from safeswap.methods.safe_setup import Ready

MOST_ROUNDS = 400
MOST_CHANGED = 5_000
"""Changed records up to which trying again is worth its time: each round improves a handful of them at most."""

_TAKEN_BACK = 10
_ROUNDS_PER_RECORD = 10
_STEP = 7919
_FIRST_RUN = 64  # slots treated before the clock is looked at
_RUN_SECONDS = 0.1


Journals = tuple[Journal, Journal]


def make_safe(found: Ready, journals: Journals, order: Int64s, *, variables: int, looks: int, end: float) -> bool:
    """Treat the unsafe slots in this order; whether there was time for all of them.

    ``variables`` of a record may change; ``looks`` partners, and donors of each neighbouring cell, are looked at.
    """
    state = found.state
    tables = np.searchsorted(state.starts, order, side="right") - 1
    lines = with_wanting(found.lines, state, order)
    done, number = 0, _FIRST_RUN
    while done < order.size:
        began = time.monotonic()
        if began > end:
            return False
        run = slice(done, done + number)
        safe_moves.make_safe(state, found.ties, lines, *journals, order[run], tables[run], variables, looks)
        done += number
        if time.monotonic() - began < _RUN_SECONDS:
            number *= 2
    return True


def renew(found: Ready, journals: Journals, *, end: float) -> None:
    """Improve a safe state in place, until ``end`` at most. The secret key decides what is tried."""
    state, tied = found.state, found.ties.tied
    best, cost = state.codes.copy(), changes_cost(state, state.codes)
    rounds = min(MOST_ROUNDS, _ROUNDS_PER_RECORD * int((best != state.original).any(axis=1).sum()))
    for number in range(rounds):
        changed = np.flatnonzero((best != state.original).any(axis=1) & ~_bound(state, best, tied))
        if not changed.size or changed.size > MOST_CHANGED or time.monotonic() > end:
            return
        for r in _meeting(state, changed, number):
            move(state, int(r), state.original[r])
        _safe_again(found, journals, number, end)
        tried = changes_cost(state, state.codes)
        if not unsafe_slots(state).size and tried <= cost:
            best, cost = state.codes.copy(), tried
            continue
        for r in np.flatnonzero((state.codes != best).any(axis=1)):
            move(state, int(r), best[r])


def changes_cost(state: State, codes: Int32s) -> float:
    """What all changes cost together, as the search counts them: records, then values, then how far."""
    differs = codes != state.original
    moved = np.flatnonzero(differs.any(axis=1))
    apart = np.abs(codes[moved].astype(np.int64) - state.original[moved])
    far = np.where(state.steps > 0, state.steps * apart, apart > 0).sum()
    return float(1000 * moved.size + 100 * np.count_nonzero(differs) + 20 * far)


def unsafe_slots(state: State) -> Int64s:
    """The slots above 0 and below tolerance."""
    found: Int64s = np.flatnonzero((state.counts > 0) & (state.counts < state.tolerance))
    return found


def _bound(state: State, codes: Int32s, tied: Flags) -> Flags:
    """The records that changed a variable of a kept margin."""
    flags: Flags = (codes[:, tied] != state.original[:, tied]).any(axis=1)
    return flags


def _meeting(state: State, changed: Int64s, number: int) -> Int64s:
    """A changed record and some of those that are with it in a cell of any table, now."""
    picks = state.noise[(np.arange(_TAKEN_BACK) + _STEP * number) % state.noise.size]
    first = changed[int(picks[0] * changed.size)]
    slots = state.links[:, changed, 0]
    together = changed[(slots == state.links[:, first, 0][:, None]).any(axis=0)]
    most = 2 + int(picks[1] * (_TAKEN_BACK - 2))
    order = np.argsort(state.noise[(together + _STEP * number) % state.noise.size], kind="stable")
    return np.unique(np.append(together[order[:most]], first))


def _safe_again(found: Ready, journals: Journals, number: int, end: float) -> None:
    state = found.state
    for variables, looks in ((1, 64), (2, 256)):
        slots = unsafe_slots(state)
        if not slots.size:
            return
        keys = state.noise[(slots * 2_654_435_761 + _STEP * number) % state.noise.size]
        make_safe(found, journals, slots[np.lexsort((slots, keys))], variables=variables, looks=looks, end=end)
