"""Group records by a 64-bit code when the possible codes are too many for an array: partition, then hash.

Codes are scrambled by a bijection, spread over partitions by their top bits, and numbered inside each
partition by an open-addressing table that fits the cache. Spreading is stable and its positions are computed
beforehand, so that the result depends neither on the number of threads nor on their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels.threads import run_all, spans

Codes = npt.NDArray[np.unsignedinteger[Any]]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_MULTIPLIER = 0xD6E8FEB86659FD93  # odd, hence invertible; its bits are well mixed
_FACTOR = np.uint64(_MULTIPLIER)
_INVERSE = np.uint64(pow(_MULTIPLIER, -1, 1 << 64))
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_PARTITION_RECORDS = 1 << 13  # the table of a partition then fits the second-level cache
_MOST_BITS = 12
_SMALLEST_TABLE = 1 << 10


@dataclass(frozen=True, eq=False)
class _Spread:
    """Records by partition, in file order inside: partition p is ``keys[starts[p]:starts[p + 1]]``."""

    codes: Codes
    shift: np.uint64
    runs: list[tuple[int, int]]
    starts: Int64s
    cursors: Int64s  # for each run and partition, where the run's first record of it lies
    keys: UInt64s


@dataclass(frozen=True, eq=False)
class _Numbered:
    """Distinct scrambled codes and their counts, at the beginning of each partition's stretch."""

    names: UInt64s
    counts: npt.NDArray[np.int32]
    found: Int64s  # per partition, how many are distinct


def distinct(codes: Codes) -> tuple[UInt64s, Int64s]:
    """The distinct codes in ascending order and how often each occurs.

    >>> values, counts = distinct(np.array([7, 3, 7], dtype=np.uint64))
    >>> values.tolist(), counts.tolist()
    ([3, 7], [1, 2])
    """
    spread = _spread(codes)
    values, counts, _ = _gathered(spread, _numbered(spread, give_counts=False))
    order = np.argsort(values)
    return values[order], counts[order]


def occurrences(codes: Codes) -> npt.NDArray[np.int32]:
    """For each record, how many records have its code.

    >>> occurrences(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [2, 1, 2]
    """
    spread = _spread(codes)
    _numbered(spread, give_counts=True)
    out = np.empty(codes.size, np.int32)
    _bring_back(spread, out)
    return out


def ranks(codes: Codes) -> tuple[UInt64s, int]:
    """For each record the rank of its code among the distinct codes, and the number of those.

    >>> rank, number = ranks(np.array([7, 3, 7], dtype=np.uint64))
    >>> rank.tolist(), number
    ([1, 0, 1], 2)
    """
    spread = _spread(codes)
    values, _, positions = _gathered(spread, _numbered(spread, give_counts=False))
    rank_at = np.empty(codes.size, np.uint64)
    rank_at[positions[np.argsort(values)]] = np.arange(values.size, dtype=np.uint64)
    place = np.empty(codes.size, np.uint64)
    _bring_back(spread, place)
    return rank_at[place], values.size


def _spread(codes: Codes) -> _Spread:
    bits = min(_MOST_BITS, max(1, int(codes.size // _PARTITION_RECORDS).bit_length()))
    shift, runs = np.uint64(64 - bits), spans(codes.size)
    sizes = np.zeros((len(runs), 1 << bits), np.int64)
    run_all(lambda r: _partition_sizes(codes[slice(*runs[r])], shift, sizes[r]), range(len(runs)))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.sum(axis=0))])
    cursors = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    keys, moving = np.empty(codes.size, np.uint64), cursors.copy()
    run_all(lambda r: _spread_run(codes[slice(*runs[r])], shift, moving[r], keys), range(len(runs)))
    return _Spread(codes, shift, runs, starts, cursors, keys)


def _numbered(spread: _Spread, *, give_counts: bool) -> _Numbered:
    """Number the cells; ``spread.keys`` then holds per record its cell's count, or the place of its name."""
    size, starts = spread.keys.size, spread.starts
    names, counts = np.empty(size, np.uint64), np.empty(size, np.int32)
    found = np.zeros(starts.size - 1, np.int64)
    edges = np.searchsorted(starts[:-1], [first for first, _ in spread.runs] + [size])
    edges[0], edges[-1] = 0, found.size
    run_all(
        lambda r: _number_partitions(starts, edges[r], edges[r + 1], spread.keys, names, counts, found, give_counts),
        range(len(spread.runs)),
    )
    return _Numbered(names, counts, found)


def _gathered(spread: _Spread, numbered: _Numbered) -> tuple[UInt64s, Int64s, Int64s]:
    """Distinct codes, counts, and the places at which they stood, in partition order."""
    found = numbered.found
    within = np.arange(found.sum()) - np.repeat(np.cumsum(found) - found, found)
    places = np.repeat(spread.starts[:-1], found) + within
    keys = numbered.names[places]
    keys ^= keys >> _HALF
    keys *= _INVERSE
    keys ^= keys >> _HALF
    return keys, numbered.counts[places].astype(np.int64), places


def _bring_back(spread: _Spread, out: npt.NDArray[Any]) -> None:
    moving = spread.cursors.copy()

    def bring(r: int) -> None:
        run = slice(*spread.runs[r])
        _collect_run(spread.codes[run], spread.shift, moving[r], spread.keys, out[run])

    run_all(bring, range(len(spread.runs)))


@numba.njit(cache=True, nogil=True)
def _scramble(code):  # type: ignore[no-untyped-def]
    x = np.uint64(code)
    x ^= x >> _HALF
    x *= _FACTOR
    return x ^ (x >> _HALF)


@numba.njit(cache=True, nogil=True)
def _partition_sizes(codes, shift, sizes):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        sizes[_scramble(codes[i]) >> shift] += 1


@numba.njit(cache=True, nogil=True)
def _spread_run(codes, shift, cursor, keys):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        key = _scramble(codes[i])
        part = key >> shift
        keys[cursor[part]] = key
        cursor[part] += 1


@numba.njit(cache=True, nogil=True)
def _collect_run(codes, shift, cursor, values, out):  # type: ignore[no-untyped-def]
    """Bring values from partition order back to record order, by the very walk that spread the records."""
    for i in range(codes.size):
        part = _scramble(codes[i]) >> shift
        out[i] = values[cursor[part]]
        cursor[part] += 1


@numba.njit(cache=True, nogil=True)
def _number(keys, names):  # type: ignore[no-untyped-def]
    """Replace each key by its number in order of first appearance; ``names`` receives the distinct keys."""
    slots = np.zeros(_SMALLEST_TABLE, np.int32)  # number + 1, so that 0 is an empty slot
    mask = np.uint64(slots.size - 1)
    found = 0
    for i in range(keys.size):
        key = keys[i]
        slot = key & mask
        while slots[slot] != 0 and names[slots[slot] - 1] != key:
            slot = (slot + _ONE) & mask
        if slots[slot] == 0:
            names[found] = key
            found += 1
            slots[slot] = found
        keys[i] = slots[slot] - 1
        if 2 * found > slots.size:
            slots = np.zeros(2 * slots.size, np.int32)
            mask = np.uint64(slots.size - 1)
            for j in range(found):
                slot = names[j] & mask
                while slots[slot] != 0:
                    slot = (slot + _ONE) & mask
                slots[slot] = j + 1
    return found


@numba.njit(cache=True, nogil=True)
def _number_partitions(starts, first, last, keys, names, counts, found, give_counts):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        lo, hi = starts[part], starts[part + 1]
        here, tally = keys[lo:hi], counts[lo:hi]
        found[part] = _number(here, names[lo:hi])
        tally[: found[part]] = 0
        for i in range(here.size):
            tally[here[i]] += 1
        for i in range(here.size):
            here[i] = np.uint64(tally[here[i]]) if give_counts else np.uint64(lo) + here[i]
