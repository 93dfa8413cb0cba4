"""Search for the records to change, on counts and few records, until all tables are safe."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from safeswap.arrays.types import Flags, Int32s, Int64s
from safeswap.errors import InfeasibleError
from safeswap.methods.safe.records import moves
from safeswap.methods.safe.records.setup import Ready
from safeswap.methods.safe.records.state import Journal, State, move, record_wanting
from safeswap.model.text import plural

# Improve by trying again: undo some changes that share a cell, make the tables safe again, keep the better result.
#
# This is large neighbourhood search (Shaw 1998). Only variables in no kept margin are retried: the others change in
# pairs, which would have to be undone together.

MOST_ROUNDS = 400
MOST_CHANGED = 5_000
"""Changed records up to which retrying pays: each round improves a handful of them at most."""

_TAKEN_BACK = 10
_ROUNDS_PER_RECORD = 10
_STEP = 7919
_FIRST_RUN = 64  # slots treated before the first look at the clock
_RUN_SECONDS = 0.1


Journals = tuple[Journal, Journal]


def make_safe(found: Ready, journals: Journals, order: Int64s, *, variables: int, looks: int, end: float) -> bool:
    """Treat the unsafe slots in this order; return False if time ran out.

    ``variables`` of a record may change; ``looks`` partners, and donors of each neighbouring cell, are considered.
    """
    state = found.state
    tables = np.searchsorted(state.starts, order, side="right") - 1
    lines = record_wanting(found.lines, state, order)
    done, number = 0, _FIRST_RUN
    while done < order.size:
        began = time.monotonic()
        if began > end:
            return False
        run = slice(done, done + number)
        moves.make_safe(state, found.ties, lines, *journals, order[run], tables[run], variables, looks)
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
        changed = np.flatnonzero((best != state.original).any(axis=1) & ~_flag_bound(state, best, tied))
        if not changed.size or changed.size > MOST_CHANGED or time.monotonic() > end:
            return
        for r in _pick_meeting(state, changed, number):
            move(state, int(r), state.original[r])
        _make_safe_again(found, journals, number, end)
        tried = changes_cost(state, state.codes)
        if not unsafe_slots(state).size and tried <= cost:
            best, cost = state.codes.copy(), tried
            continue
        for r in np.flatnonzero((state.codes != best).any(axis=1)):
            move(state, int(r), best[r])


def changes_cost(state: State, codes: Int32s) -> float:
    """Return the total cost of all changes as the search counts it: records, then values, then distance."""
    differs = codes != state.original
    moved = np.flatnonzero(differs.any(axis=1))
    apart = np.abs(codes[moved].astype(np.int64) - state.original[moved])
    far = np.where(state.steps > 0, state.steps * apart, apart > 0).sum()
    return float(1000 * moved.size + 100 * np.count_nonzero(differs) + 20 * far)


def unsafe_slots(state: State) -> Int64s:
    """Return the slots above 0 and below tolerance."""
    found: Int64s = np.flatnonzero((state.counts > 0) & (state.counts < state.tolerance))
    return found


def _flag_bound(state: State, codes: Int32s, tied: Flags) -> Flags:
    """Flag the records that changed a variable of a kept margin."""
    flags: Flags = (codes[:, tied] != state.original[:, tied]).any(axis=1)
    return flags


def _pick_meeting(state: State, changed: Int64s, number: int) -> Int64s:
    """Return a changed record and some of those that now share a cell of any table with it."""
    picks = state.noise[(np.arange(_TAKEN_BACK) + _STEP * number) % state.noise.size]
    first = changed[int(picks[0] * changed.size)]
    slots = state.links[:, changed, 0]
    together = changed[(slots == state.links[:, first, 0][:, None]).any(axis=0)]
    most = 2 + int(picks[1] * (_TAKEN_BACK - 2))
    order = np.argsort(state.noise[(together + _STEP * number) % state.noise.size], kind="stable")
    return np.unique(np.append(together[order[:most]], first))


def _make_safe_again(found: Ready, journals: Journals, number: int, end: float) -> None:
    state = found.state
    for variables, looks in ((1, 64), (2, 256)):
        slots = unsafe_slots(state)
        if not slots.size:
            return
        keys = state.noise[(slots * 2_654_435_761 + _STEP * number) % state.noise.size]
        make_safe(found, journals, slots[np.lexsort((slots, keys))], variables=variables, looks=looks, end=end)


# The number of variables that may change, and of partners and donors to consider, pass by pass.
_PASSES = ((1, 8), (1, 64), (2, 1000), (2, 1000))
_MOST_GIVING_BACK = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Moves:
    """Rows, and for each variable their new level in the file's own codes; only records that change."""

    rows: Int64s
    codes: dict[str, Int64s]
    changed: dict[str, Flags]


def search(found: Ready, *, end: float) -> bool:
    """Make all tables safe in the state, until ``end`` at most; return True if that was possible."""
    state, ties = found.state, found.ties
    journals = _journal(state), _journal(state)
    for variables, looks in _PASSES:
        order = _unsafe(state)
        if not order.size or not make_safe(found, journals, order, variables=variables, looks=looks, end=end):
            break
    if _unsafe(state).size and found.whole and not ties.tied.any() and len(found.rows) >= state.tolerance:
        moves.move_into_one(state, _largest_profile(state))
    if _unsafe(state).size:
        return False
    _give_back(found)
    renew(found, journals, end=end)
    _give_back(found)
    return True


def _give_back(found: Ready) -> None:
    for _ in range(_MOST_GIVING_BACK):
        if not moves.take_back_idle(found.state, found.ties.tied):
            break


def moves_of(found: Ready) -> Moves:
    """Return the changes of the search, as rows and codes of the file."""
    differs = found.state.codes != found.state.original
    records = np.flatnonzero(differs.any(axis=1))
    return Moves(
        rows=found.rows[records],
        codes={n: found.own[v][found.state.codes[records, v]] for v, n in enumerate(found.variables)},
        changed={n: differs[records, v] for v, n in enumerate(found.variables)},
    )


def search_failed(found: Ready, *, time_limit: float | None) -> InfeasibleError:
    """Return the refusal where no changes were found, within ``time_limit`` if that was reached; it proves nothing."""
    left, tolerance = int(_unsafe(found.state).size), int(found.state.tolerance)
    within = "" if time_limit is None else f" within {time_limit:g} second{'' if time_limit == 1 else 's'}"
    hint = "keep fewer margins, lower the tolerance, leave out a table, or recode attributes to fewer levels"
    return InfeasibleError(
        f"no change of records was found{within} after which all cells are 0 or at least {tolerance} and kept margins "
        f"exact; {plural(left, 'cell')} stayed below",
        code="no-safe-records-found",
        hint=hint if time_limit is None else f"allow more time (time_limit), {hint}",
        cells_left=left,
        timed_out=time_limit is not None,
    )


def _journal(state: State) -> Journal:
    room = 4 * int(state.tolerance) + 16
    variables = state.levels.size
    return Journal(
        length=np.zeros(1, dtype=np.int64),
        records=np.zeros(room, dtype=np.int64),
        before=np.zeros((room, variables), dtype=np.int32),
        after=np.zeros((room, variables), dtype=np.int32),
    )


def _unsafe(state: State) -> Int64s:
    """Return the slots below tolerance: those that want most records first, then as the key decides."""
    slots = unsafe_slots(state)
    wants = np.minimum(state.counts[slots], state.tolerance - state.counts[slots])
    # The hardest come first, while most cells can still give and take.
    order = np.lexsort((slots, state.noise[(slots * 2_654_435_761) % state.noise.size], -wants))
    return np.asarray(slots[order])


def _largest_profile(state: State) -> int:
    """Return the record whose smallest cell is largest: a safe place for others."""
    return int(state.counts[state.links[:, :, 0]].min(axis=0).argmax())
