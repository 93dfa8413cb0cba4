"""Households of a synthetic census: who lives in them, what they earn, what their homes cost.

Each household is made from its own draws (see :mod:`safeswap.kernels.counter_random`) and from those of the place and
the tract in which it lies, so that neighbours are alike as neighbours are: places differ in who lives there, tracts
in how well off they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.kernels.counter_random import item_state, level_of, odds, uniform
from safeswap.kernels.types import Int64s

# Kinds of neighbourhood: countryside, suburb, mixed city, mostly Black, mostly Hispanic, reservation, mostly Asian.
_KINDS = np.cumsum(np.array([0.27, 0.38, 0.16, 0.08, 0.07, 0.01]))
# Race of the householder per kind of neighbourhood: White, Black, American Indian, Asian, Other (cumulative).
_RACE = np.array(
    [
        [0.950, 0.980, 0.988, 0.992],
        [0.900, 0.950, 0.953, 0.985],
        [0.640, 0.880, 0.887, 0.945],
        [0.180, 0.960, 0.963, 0.973],
        [0.530, 0.600, 0.607, 0.627],
        [0.250, 0.260, 0.980, 0.985],
        [0.480, 0.540, 0.543, 0.953],
    ]
)
# Share of Hispanic householders per race; more in mostly Hispanic neighbourhoods.
_HISPANIC = np.array([0.05, 0.02, 0.06, 0.02, 0.88])
_HISPANIC_THERE = np.array([0.74, 0.12, 0.25, 0.06, 0.97])
_OTHER_RACE = np.array([0.52, 0.68, 0.76, 0.88])  # of those in a household who are not of the householder's race
_TRAILER = np.array([0.16, 0.05, 0.015, 0.02, 0.04, 0.18, 0.01])
_BETTER_OFF = np.array([0.88, 1.22, 0.95, 0.68, 0.74, 0.60, 1.08])

_SIZE = np.cumsum(np.array([0.245, 0.325, 0.172, 0.152, 0.068, 0.0245, 0.0085, 0.003, 0.0012, 0.0005, 0.0002, 0.00007]))
_ADULTS_OF_TWO = np.array([0.09])
_ADULTS_OF_THREE = np.array([0.10, 0.68])
_ADULTS_OF_MORE = np.array([0.06, 0.72, 0.92])

# Occupations in the order of the data set, cumulative, of the well off and of the others; the last one is "none".
_OCCUPATION_HIGH = np.cumsum(np.array([0.20, 0.22, 0.05, 0.13, 0.11, 0.001, 0.02, 0.04, 0.01, 0.08, 0.03, 0.02, 0.019]))
_OCCUPATION_LOW = np.cumsum(np.array([0.05, 0.05, 0.02, 0.08, 0.12, 0.01, 0.02, 0.11, 0.04, 0.11, 0.09, 0.05, 0.06]))
_PAY = np.array([1.7, 1.55, 1.25, 1.15, 0.9, 0.5, 1.05, 0.65, 0.7, 1.05, 0.85, 0.95, 0.75, 0.55])

MORTGAGED, OUTRIGHT, RENTED, NO_RENT = range(4)


@njit(cache=True, nogil=True)
def make_households(
    seed: int,
    first: int,
    start: int,
    stop: int,
    tracts: Int64s,
    counts: npt.NDArray[np.int8],
    categories: npt.NDArray[np.int8],
    money: npt.NDArray[np.int32],
) -> None:
    """Make the households of the census from number ``first`` on, those at the places from ``start`` to ``stop``.

    ``tracts`` holds the code of each household's tract, of which the leading digits are those of its place and its
    state. ``counts`` has a row each for persons by race (5), Hispanic, other origin, adults and family units;
    ``categories`` for trailer, tenure and occupation; ``money`` for income, home value, mortgage, maintenance, taxes.
    """
    tract = np.int64(-1)
    kind = 0
    rich = 1.0
    prices = 1.0
    tax = 0.0
    for i in range(start, stop):
        if tracts[i] != tract:
            tract = tracts[i]
            kind, rich, prices, tax = _neighbourhood(seed, tract)
        state = item_state(seed, first + i)
        size = _persons(state, kind)
        _races(state, kind, size, counts[:, i])
        adults = _adults(state, size)
        counts[7, i] = adults
        counts[8, i] = _families(state, size, adults)
        categories[0, i] = uniform(state, 20) < _TRAILER[kind]
        _means(state, rich, prices, tax, adults, categories[:, i], money[:, i])


@njit(cache=True, nogil=True)
def _neighbourhood(seed: int, tract: int) -> tuple[int, float, float, float]:
    """Kind, how well off, price of homes and yearly tax on a dollar of home: what the tract's households share."""
    here = item_state(seed + 1, tract)
    place = item_state(seed + 2, tract // 10_000)
    county = item_state(seed + 3, tract // 10_000_000)
    kind = level_of(uniform(place if uniform(here, 0) < 0.6 else here, 1), _KINDS)
    rich = _BETTER_OFF[kind] * np.sqrt(np.sqrt(np.sqrt(odds(uniform(here, 2)))))
    prices = np.sqrt(np.sqrt(odds(uniform(county, 1))))
    return kind, rich, prices, 0.006 + 0.016 * uniform(county, 2)


@njit(cache=True, nogil=True)
def _persons(state, kind):  # type: ignore[no-untyped-def]
    larger = kind in (4, 5) and uniform(state, 1) < 0.25
    return 1 + level_of(uniform(state, 0), _SIZE) + larger


@njit(cache=True, nogil=True)
def _races(state: Any, kind: int, size: int, counts: npt.NDArray[np.int8]) -> None:
    """Persons by race and by origin: each of the two ways of counting adds up to the size of the household."""
    counts[:7] = 0
    race = level_of(uniform(state, 2), _RACE[kind])
    hispanic = uniform(state, 3) < (_HISPANIC_THERE[race] if kind == 4 else _HISPANIC[race])
    several_races = uniform(state, 4) < 0.03
    second = level_of(uniform(state, 5), _OTHER_RACE)
    several_origins = uniform(state, 6) < (0.10 if hispanic else 0.012)
    for person in range(size):
        other = several_races and person > 0 and uniform(state, 30 + person) < 0.5
        counts[second if other else race] += 1
        changed = several_origins and person > 0 and uniform(state, 60 + person) < 0.5
        counts[5 if hispanic != changed else 6] += 1


@njit(cache=True, nogil=True)
def _adults(state, size):  # type: ignore[no-untyped-def]
    u = uniform(state, 7)
    if size == 1:
        return 1
    if size == 2:
        return 1 + level_of(u, _ADULTS_OF_TWO)
    if size == 3:
        return 1 + level_of(u, _ADULTS_OF_THREE)
    more = min(size // 3, 2) if uniform(state, 8) < 0.25 * (size - 4) else 0
    return min(size, 1 + level_of(u, _ADULTS_OF_MORE) + more)


@njit(cache=True, nogil=True)
def _families(state, size, adults):  # type: ignore[no-untyped-def]
    if adults < 2 or size < 3:
        return 1
    u = uniform(state, 9)
    return 1 + (u < 0.015 * (size - 1)) + (adults > 3 and u < 0.003 * (size - 3))


@njit(cache=True, nogil=True)
def _means(
    state: Any,
    rich: float,
    prices: float,
    tax: float,
    adults: int,
    categories: npt.NDArray[np.int8],
    money: npt.NDArray[np.int32],
) -> None:
    """Tenure, occupation, and what comes in and goes out, in dollars."""
    trailer = categories[0] == 1
    skilled = uniform(state, 21) < 0.5 * rich
    occupation = level_of(uniform(state, 22), _OCCUPATION_HIGH if skilled else _OCCUPATION_LOW)
    # The 3/8-th power of the odds: a log-logistic distribution of shape 8/3, about as skewed as incomes are.
    root = np.sqrt(np.sqrt(odds(uniform(state, 23))))
    earned = 21_000.0 * rich * _PAY[occupation] * (0.62 + 0.30 * min(adults, 4)) * root * np.sqrt(root)
    income = 0.0 if uniform(state, 24) < 0.015 else earned
    worth = 2.1 * prices * (0.45 * 34_000.0 * rich + 0.55 * earned) * np.sqrt(np.sqrt(odds(uniform(state, 25))))
    if trailer:
        worth *= 0.25
    tenure = _tenure(uniform(state, 26), income, trailer)
    owned = tenure in (MORTGAGED, OUTRIGHT)
    value = 500.0 * np.floor(min(max(worth, 5_000.0), 5e6) / 500.0) if owned else 0.0
    loan = value * (0.25 + 0.7 * uniform(state, 27)) * 0.0088 if tenure == MORTGAGED else 0.0
    kept = 0.0035 * value * np.sqrt(odds(uniform(state, 28))) if owned else 90.0
    categories[1] = tenure
    categories[2] = occupation
    money[0] = np.int32(10.0 * np.floor(min(income, 4e6) / 10.0))
    money[1] = np.int32(value)
    money[2] = np.int32(loan)
    money[3] = np.int32(kept) if uniform(state, 29) < (0.75 if owned else 0.06) else 0
    money[4] = np.int32(value * tax / 12.0)


@njit(cache=True, nogil=True)
def _tenure(u: float, income: float, trailer: bool) -> int:
    share = min(0.85, 0.42 + income / 150_000.0) + (0.08 if trailer else 0.0)
    if u < share:
        return OUTRIGHT if u < (0.62 if trailer else 0.36) * share else MORTGAGED
    return NO_RENT if u > 0.985 else RENTED
