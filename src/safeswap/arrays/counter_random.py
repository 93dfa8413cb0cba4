"""Counter-based random numbers: the draw of an item depends on (seed, item, purpose) and on no earlier draw.

For *synthetic data* only. The generator and its seed are public and must never decide a swap: that is what
:mod:`safeswap.arrays.keyed` is for.

A draw is the finaliser of SplitMix64 (Steele, Lea & Flood 2014) on a counter. All shapes made from draws use
``+ − × ÷ √`` alone, which are exact to the last bit everywhere, so a seed gives the same data on every machine.
"""

from __future__ import annotations

import numpy as np

from safeswap.arrays.compiled import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STRIDE = np.uint64(0xD1B54A32D192ED03)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@njit(cache=True, nogil=True, inline="always")
def mix_word(x):  # type: ignore[no-untyped-def]
    """Map a 64-bit word by a bijection that makes neighbours unrelated."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@njit(cache=True, nogil=True, inline="always")
def item_state(seed, item):  # type: ignore[no-untyped-def]
    """Return the state from which the draws of one item start."""
    return mix_word(np.uint64(seed) + (np.uint64(item) + np.uint64(1)) * _GOLDEN)


@njit(cache=True, nogil=True, inline="always")
def uniform(state, purpose):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1) with 53 random bits, one per purpose of an item."""
    return np.float64(mix_word(state + np.uint64(purpose) * _STRIDE) >> _S11) * 2.0**-53


@njit(cache=True, nogil=True, inline="always")
def odds(u):  # type: ignore[no-untyped-def]
    """Return u / (1 − u), clipped: its powers are log-logistic (Fisk), the usual model for incomes."""
    v = 0.0005 + 0.999 * u
    return v / (1.0 - v)


@njit(cache=True, nogil=True, inline="always")
def level_of(u, thresholds):  # type: ignore[no-untyped-def]
    """Return the level whose share of [0, 1) holds u; ``thresholds`` are cumulative shares without the last one, 1."""
    level = 0
    while level < thresholds.size and u >= thresholds[level]:
        level += 1
    return level


@njit(cache=True, nogil=True)
def uniforms(seed, number, purpose):  # type: ignore[no-untyped-def]
    """Return the draws of one purpose of items 0, 1, …

    >>> bool((uniforms(7, 1000, 2)[:10] == uniforms(7, 10, 2)).all())
    True
    """
    out = np.empty(number)
    for item in range(number):
        out[item] = uniform(item_state(seed, item), purpose)
    return out
