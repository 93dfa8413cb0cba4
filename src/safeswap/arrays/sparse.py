"""Group records by a 64-bit code when there are too many possible codes for an array: partition, then hash.

Codes are scrambled by a bijection, spread over partitions by their top bits, and numbered inside each partition by an
open-addressing table that fits the cache. Spreading is stable and its positions are computed beforehand, so the result
depends neither on the number of threads nor on their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.threads import run_all, spans
from safeswap.arrays.types import Codes, Int32s, Int64s, UInt64s

MULTIPLIER = 0xD6E8FEB86659FD93  # odd, hence invertible, with well-mixed bits
HALF = np.uint64(32)
DIGIT_BITS = 11

_FACTOR = np.uint64(MULTIPLIER)
_ONE = np.uint64(1)
_SORTING = 8  # in NumPy, sorting costs as much as so many passes
_LARGEST_FIRST_TABLE = 1 << 14  # tables start small and grow: one cell may hold most records


@njit(cache=True, nogil=True)
def scramble(code):  # type: ignore[no-untyped-def]
    """Map a 64-bit code by a bijection that spreads neighbours over the whole range."""
    x = np.uint64(code)
    x ^= x >> HALF
    x *= _FACTOR
    return x ^ (x >> HALF)


@njit(cache=True, nogil=True)
def partition_sizes(codes, shift, sizes):  # type: ignore[no-untyped-def]
    """Count the records of each partition; the top bits of the scrambled code name it."""
    for i in range(codes.size):
        sizes[scramble(codes[i]) >> shift] += 1


@njit(cache=True, nogil=True)
def spread_run(codes, shift, cursor, keys):  # type: ignore[no-untyped-def]
    """Write each record's scrambled code to the next free place of its partition."""
    for i in range(codes.size):
        key = scramble(codes[i])
        part = key >> shift
        keys[cursor[part]] = key
        cursor[part] += 1


@njit(cache=True, nogil=True)
def look_up(places, at_place):  # type: ignore[no-untyped-def]
    """Replace each place by the value at that place."""
    for i in range(places.size):
        places[i] = at_place[places[i]]


@njit(cache=True, nogil=True)
def collect_run(codes, shift, cursor, values, out):  # type: ignore[no-untyped-def]
    """Bring values from partition order back to file order, by the same walk that spread the records."""
    for i in range(codes.size):
        part = scramble(codes[i]) >> shift
        out[i] = values[cursor[part]]
        cursor[part] += 1


@njit(cache=True, nogil=True)
def number(keys, names):  # type: ignore[no-untyped-def]
    """Replace each key by its number in order of first appearance; ``names`` receives the distinct keys."""
    size = 2
    while size < 2 * keys.size and size < _LARGEST_FIRST_TABLE:
        size *= 2
    slots = np.zeros(size, np.int32)  # number + 1, so that 0 is an empty slot
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


@njit(cache=True, nogil=True)
def enter(names, slots):  # type: ignore[no-untyped-def]
    """Enter distinct codes into an empty table: each slot holds number + 1, or 0."""
    mask = np.uint64(slots.size - 1)
    for j in range(names.size):
        slot = scramble(names[j]) & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1


@njit(cache=True, nogil=True)
def tally_known(codes, skipped, names, slots, counts):  # type: ignore[no-untyped-def]
    """Count the records of the codes in the table, except the skipped records."""
    mask = np.uint64(slots.size - 1)
    for i in range(codes.size):
        if skipped[i]:
            continue
        code = np.uint64(codes[i])
        slot = scramble(code) & mask
        while slots[slot] != 0 and names[slots[slot] - 1] != code:
            slot = (slot + _ONE) & mask
        if slots[slot] != 0:
            counts[slots[slot] - 1] += 1


@njit(cache=True, nogil=True)
def number_partitions(starts, first, last, keys, names, found):  # type: ignore[no-untyped-def]
    """Replace each key of some partitions by the place of its name."""
    for part in range(first, last):
        here = keys[starts[part] : starts[part + 1]]
        found[part] = number(here, names[starts[part] : starts[part + 1]])
        here += np.uint64(starts[part])


@njit(cache=True, nogil=True)
def tally_codes(starts, found, first, last, first_part, last_part, places, counts):  # type: ignore[no-untyped-def]
    """Count the records per place of name in some partitions, from ``first`` to ``last`` of each."""
    for part in range(first_part, last_part):
        counts[starts[part] : starts[part] + found[part]] = 0
        for i in range(first[part], last[part]):
            counts[places[i]] += 1


@njit(cache=True, nogil=True)
def sort_by_digits(codes, places, digits):  # type: ignore[no-untyped-def]
    """Sort codes and places by code: one stable pass per digit, lowest first. Overwrites its arguments."""
    other_codes, other_places = np.empty_like(codes), np.empty_like(places)
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    for digit in range(digits):
        shift = np.uint64(digit * DIGIT_BITS)
        cursor = np.zeros((1 << DIGIT_BITS) + 1, np.int64)
        for code in codes:
            cursor[((code >> shift) & mask) + _ONE] += 1
        cursor = np.cumsum(cursor)
        for i in range(codes.size):
            bucket = (codes[i] >> shift) & mask
            other_codes[cursor[bucket]] = codes[i]
            other_places[cursor[bucket]] = places[i]
            cursor[bucket] += 1
        codes, other_codes = other_codes, codes
        places, other_places = other_places, places
    return codes, places


_INVERSE = np.uint64(pow(MULTIPLIER, -1, 1 << 64))
_PARTITION_RECORDS = 1 << 13  # the table of a partition then fits the second-level cache
_MOST_BITS = 12


@dataclass(frozen=True, eq=False)
class _Grouped:
    """Records by partition, in file order inside: partition p is ``starts[p]`` to ``starts[p + 1]``.

    ``places`` has one entry per record: the position of its cell's name. The names of a partition's cells, as scrambled
    codes, are the first ``found[p]`` entries of its stretch of ``names``.
    """

    codes: Codes
    shift: np.uint64
    runs: list[tuple[int, int]]
    cursors: Int64s  # per run of records and partition, the place of the run's first record
    starts: Int64s
    places: UInt64s
    names: UInt64s
    found: Int64s


def distinct(codes: Codes) -> tuple[UInt64s, Int64s]:
    """Return the distinct codes in ascending order, and their counts.

    >>> values, counts = distinct(np.array([7, 3, 7], dtype=np.uint64))
    >>> values.tolist(), counts.tolist()
    ([3, 7], [1, 2])
    """
    if not is_worth_compiling(_SORTING * codes.size):
        found, times = np.unique(codes.astype(np.uint64), return_counts=True)
        return found, times.astype(np.int64)
    grouped = _group(codes)
    counts = _tally(grouped, grouped.starts[:-1], grouped.starts[1:])
    values, places = _sort_codes(grouped)
    return values, counts[places].astype(np.int64)


def joint(before: Codes, after: Codes) -> tuple[UInt64s, Int64s, Int64s]:
    """Return the codes that occur on either side, in ascending order, and their counts on both.

    >>> values, first, second = joint(np.array([7, 3, 7], np.uint64), np.array([9, 7], np.uint64))
    >>> values.tolist(), first.tolist(), second.tolist()
    ([3, 7, 9], [1, 2, 0], [0, 1, 1])
    """
    if not is_worth_compiling(_SORTING * (before.size + after.size)):
        values, places = np.unique(np.concatenate([before, after]).astype(np.uint64), return_inverse=True)
        sides = (places[: before.size], places[before.size :])
        one, other = (np.bincount(side, minlength=values.size).astype(np.int64) for side in sides)
        return values, one, other
    grouped = _group(np.concatenate([before, after]))
    # Spreading is stable: in each partition the records of the first side come first.
    sizes = np.zeros(grouped.found.size, np.int64)
    partition_sizes(before, grouped.shift, sizes)
    splits = grouped.starts[:-1] + sizes
    first = _tally(grouped, grouped.starts[:-1], splits)
    second = _tally(grouped, splits, grouped.starts[1:])
    values, places = _sort_codes(grouped)
    return values, first[places].astype(np.int64), second[places].astype(np.int64)


def tally_among(codes: Codes, skipped: npt.NDArray[np.bool_], wanted: UInt64s) -> Int64s:
    """Count the records of each of the ``wanted`` codes (distinct), except the skipped records.

    >>> codes, skipped = np.array([7, 3, 7, 5], np.uint64), np.array([False, False, True, False])
    >>> tally_among(codes, skipped, np.array([7, 5], np.uint64)).tolist()
    [1, 1]
    """
    if not is_worth_compiling(_SORTING * (codes.size + wanted.size)):
        known, counted = np.unique(codes[~skipped].astype(np.uint64), return_counts=True)
        found = np.searchsorted(known, wanted).clip(max=max(known.size - 1, 0))
        return np.where(known[found] == wanted, counted[found], 0) if known.size else np.zeros(wanted.size, np.int64)
    slots = np.zeros(1 << max(1, (2 * wanted.size - 1).bit_length()), np.int32)
    enter(wanted, slots)
    runs = spans(codes.size)
    counts = np.zeros((len(runs), wanted.size), np.int32)

    def tally(r: int) -> None:
        run = slice(*runs[r])
        tally_known(codes[run], skipped[run], wanted, slots, counts[r])

    run_all(tally, range(len(runs)))
    total: Int64s = counts.sum(axis=0, dtype=np.int64)
    return total


def occurrences(codes: Codes) -> Int32s:
    """Return, for each record, the number of records with its code.

    >>> occurrences(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [2, 1, 2]
    """
    if not is_worth_compiling(_SORTING * codes.size):
        _, places, times = np.unique(codes, return_inverse=True, return_counts=True)
        return times[places].astype(np.int32)
    grouped = _group(codes)
    counts = _tally(grouped, grouped.starts[:-1], grouped.starts[1:])
    out = np.empty(codes.size, np.int32)
    _restore_order(grouped, counts, out)
    return out


def ranks(codes: Codes) -> tuple[UInt64s, int]:
    """Return the rank of each record's code among the distinct codes, and their number.

    >>> rank, number = ranks(np.array([7, 3, 7], dtype=np.uint64))
    >>> rank.tolist(), number
    ([1, 0, 1], 2)
    """
    if not is_worth_compiling(_SORTING * codes.size):
        values, places = np.unique(codes, return_inverse=True)
        return places.astype(np.uint64), values.size
    grouped = _group(codes)
    _, places = _sort_codes(grouped)
    rank_at, out = np.empty(codes.size, np.uint64), np.empty(codes.size, np.uint64)
    rank_at[places] = np.arange(places.size, dtype=np.uint64)
    _restore_order(grouped, rank_at, out)
    return out, places.size


def unscrambled(keys: UInt64s) -> UInt64s:
    """Invert :func:`scramble`.

    >>> unscrambled(np.array([scramble(np.uint64(7))])).tolist()
    [7]
    """
    codes = keys ^ (keys >> HALF)
    codes *= _INVERSE
    codes ^= codes >> HALF
    return codes


def stretches(starts: Int64s, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide the partitions into one stretch per run, of about the same number of records each."""
    edges = [0, *np.searchsorted(starts[:-1], [first for first, _ in runs[1:]]).tolist(), starts.size - 1]
    return [(edges[i], edges[i + 1]) for i in range(len(runs))]


def _group(codes: Codes) -> _Grouped:
    bits = min(_MOST_BITS, max(1, int(codes.size // _PARTITION_RECORDS).bit_length()))
    shift, runs = np.uint64(64 - bits), spans(codes.size)
    sizes = np.zeros((len(runs), 1 << bits), np.int64)
    run_all(lambda r: partition_sizes(codes[slice(*runs[r])], shift, sizes[r]), range(len(runs)))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.sum(axis=0))])
    cursors = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    keys, moving = np.empty(codes.size, np.uint64), cursors.copy()
    run_all(lambda r: spread_run(codes[slice(*runs[r])], shift, moving[r], keys), range(len(runs)))
    names, found = np.empty(codes.size, np.uint64), np.zeros(1 << bits, np.int64)
    parts = stretches(starts, runs)
    run_all(lambda s: number_partitions(starts, s[0], s[1], keys, names, found), parts)
    return _Grouped(codes, shift, runs, cursors, starts, keys, names, found)


def _tally(grouped: _Grouped, first: Int64s, last: Int64s) -> Int32s:
    """Count, at the place of each name, its records from ``first[p]`` to ``last[p]`` of its partition."""
    counts = np.empty(grouped.places.size, np.int32)
    run_all(
        lambda s: tally_codes(grouped.starts, grouped.found, first, last, s[0], s[1], grouped.places, counts),
        stretches(grouped.starts, grouped.runs),
    )
    return counts


def _sort_codes(grouped: _Grouped) -> tuple[UInt64s, Int64s]:
    """Return the distinct codes in ascending order, and the places of their names."""
    found = grouped.found
    within = np.arange(found.sum()) - np.repeat(np.cumsum(found) - found, found)
    places = np.repeat(grouped.starts[:-1], found) + within
    codes = unscrambled(grouped.names[places])
    digits = -(-int(codes.max(initial=0)).bit_length() // DIGIT_BITS)
    ordered: tuple[UInt64s, Int64s] = sort_by_digits(codes, places, digits)
    return ordered


def _restore_order(grouped: _Grouped, at_place: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Write each record's value to ``out`` in file order; overwrites ``grouped.places``."""
    # Looked up in partition order, where the values of a partition are close together, then moved to file order.
    run_all(lambda run: look_up(grouped.places[slice(*run)], at_place), grouped.runs)
    moving = grouped.cursors.copy()

    def bring(r: int) -> None:
        run = slice(*grouped.runs[r])
        collect_run(grouped.codes[run], grouped.shift, moving[r], grouped.places, out[run])

    run_all(bring, range(len(grouped.runs)))
