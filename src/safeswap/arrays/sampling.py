"""Samples by keyed draw: a record is sampled if its draw is low enough, whatever the other records are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.arrays import keyed
from safeswap.arrays.types import Codes, Identity, Rows, Words

RESERVE = 1 / 32
"""The share of the file with the highest draws, kept as a reserve of possible partners."""

_TOP = (1 << 64) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn:
    """The sample, lowest draws first, and the reserve, highest draws first, each with the draws."""

    rows: Rows
    draws: Words
    reserve: Rows
    reserve_draws: Words


def draw_limit(rate: float) -> np.uint64:
    """Return the number below which this share of all possible draws lies.

    >>> int(draw_limit(0.0)), int(draw_limit(0.5)) == 2**63
    (0, True)
    """
    return np.uint64(min(int(rate * 2.0**64), _TOP))


RESERVED_FROM = np.uint64(_TOP) - draw_limit(RESERVE)
"""Draws from this value up are in the reserve, unless they are in the sample."""


def draw_sample(
    identity: Identity,
    key: bytes,
    *,
    rate: float,
    strata: Codes | None = None,
    is_dense: npt.NDArray[np.bool_] | None = None,
    dense_rate: float = 0.0,
) -> Drawn:
    """Draw records at a rate, and those of the ``is_dense`` strata at another.

    >>> drawn = draw_sample(np.arange(10_000), bytes(32), rate=0.1)
    >>> 900 < len(drawn.rows) < 1_100, bool((drawn.draws[1:] > drawn.draws[:-1]).all())
    (True, True)
    >>> stratum = np.repeat(np.array([0, 1], np.uint8), 5_000)
    >>> some = draw_sample(
    ...     np.arange(10_000), bytes(32), rate=0.1, strata=stratum, is_dense=np.array([False, True]), dense_rate=0.3
    ... )
    >>> set(some.rows[stratum[some.rows] == 0]) == {row for row in drawn.rows if row < 5_000}
    True
    """
    limits = np.array([draw_limit(rate), draw_limit(dense_rate)], dtype=np.uint64)
    nowhere = np.zeros(0, dtype=np.uint8)
    flags = nowhere if is_dense is None else is_dense.view(np.uint8)
    low: list[tuple[Rows, Words]] = []
    high: list[tuple[Rows, Words]] = []
    for start, draws in keyed.draw_chunks(identity, key):
        where = nowhere if strata is None else strata[start : start + len(draws)]
        sampled, reserved = _select_ends(draws, where, flags, limits, RESERVED_FROM)
        low.append((sampled + start, draws[sampled]))
        high.append((reserved + start, draws[reserved]))
    rows, values = _sort_parts(low)
    reserve, reserve_draws = _sort_parts(high)
    return Drawn(rows=rows, draws=values, reserve=reserve[::-1], reserve_draws=reserve_draws[::-1])


@njit(cache=True, nogil=True)
def _select_ends(draws, strata, flags, limits, highest):  # type: ignore[no-untyped-def]
    """Return the positions of the sampled records of a chunk, and of those in the reserve."""
    low = np.empty(draws.size, np.int64)
    high = np.empty(draws.size, np.int64)
    lows, highs = 0, 0
    for i in range(draws.size):
        draw = draws[i]
        if draw < limits[flags[strata[i]] if flags.size else 0]:
            low[lows] = i
            lows += 1
        elif draw >= highest:
            high[highs] = i
            highs += 1
    return low[:lows], high[:highs]


def _sort_parts(parts: list[tuple[Rows, Words]]) -> tuple[Rows, Words]:
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _ in parts)])
    draws = np.concatenate([np.zeros(0, dtype=np.uint64), *(draws for _, draws in parts)])
    order = np.argsort(draws, kind="stable")
    return rows[order], draws[order]
