"""Which records change, and to what: the search on counts and few records that makes all tables safe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safeswap.errors import InfeasibleError
from safeswap.kernels import safe_finish
from safeswap.kernels.safe_journal import Journal
from safeswap.kernels.safe_state import State
from safeswap.kernels.types import Flags, Int64s
from safeswap.methods.safe_renew import make_safe, renew, unsafe_slots
from safeswap.methods.safe_setup import Ready
from safeswap.model.several import several

# How many variables of a record may change, and how many partners and donors are looked at, pass by pass.
_PASSES = ((1, 8), (1, 64), (2, 1000), (2, 1000))
_MOST_GIVING_BACK = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Moves:
    """Rows and, for each variable, the level that they get in the file's own codes; only records that change."""

    rows: Int64s
    codes: dict[str, Int64s]
    changed: dict[str, Flags]


def search(found: Ready, *, end: float) -> bool:
    """Make all tables safe, in the state, until ``end`` at most; whether that was possible."""
    state, ties = found.state, found.ties
    journals = _journal(state), _journal(state)
    for variables, looks in _PASSES:
        order = _unsafe(state)
        if not order.size or not make_safe(found, journals, order, variables=variables, looks=looks, end=end):
            break
    if _unsafe(state).size and found.whole and not ties.tied.any() and len(found.rows) >= state.tolerance:
        safe_finish.into_one(state, _largest_profile(state))
    if _unsafe(state).size:
        return False
    _give_back(found)
    renew(found, journals, end=end)
    _give_back(found)
    return True


def _give_back(found: Ready) -> None:
    for _ in range(_MOST_GIVING_BACK):
        if not safe_finish.take_back_idle(found.state, found.ties.tied):
            break


def moves_of(found: Ready) -> Moves:
    """What the search has changed, as rows and codes of the file."""
    differs = found.state.codes != found.state.original
    records = np.flatnonzero(differs.any(axis=1))
    return Moves(
        rows=found.rows[records],
        codes={n: found.own[v][found.state.codes[records, v]] for v, n in enumerate(found.variables)},
        changed={n: differs[records, v] for v, n in enumerate(found.variables)},
    )


def unreached(found: Ready, *, time_limit: float | None) -> InfeasibleError:
    """The refusal where no changes were found, in the ``time_limit`` if that was reached; it proves nothing."""
    left, tolerance = int(_unsafe(found.state).size), int(found.state.tolerance)
    within = "" if time_limit is None else f" within {time_limit:g} seconds"
    hint = "keep fewer margins, lower the tolerance, leave out a table, or recode attributes to fewer levels"
    return InfeasibleError(
        f"no change of records was found{within} after which all cells are 0 or at least {tolerance} and kept margins "
        f"exact; {several(left, 'cell')} stayed below",
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
    """The slots below tolerance, those first that want most records, then as the key decides."""
    slots = unsafe_slots(state)
    wants = np.minimum(state.counts[slots], state.tolerance - state.counts[slots])
    # What is hard is done first, while most cells can still give and take.
    order = np.lexsort((slots, state.noise[(slots * 2_654_435_761) % state.noise.size], -wants))
    return np.asarray(slots[order])


def _largest_profile(state: State) -> int:
    """The record whose smallest cell is largest: where others find a place without doubt."""
    return int(state.counts[state.links[:, :, 0]].min(axis=0).argmax())
