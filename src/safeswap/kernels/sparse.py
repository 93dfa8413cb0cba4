"""Group records by a 64-bit code when the possible codes are too many for an array: partition, then hash.

Codes are scrambled by a bijection, spread over partitions by their top bits, and numbered inside each partition by an
open-addressing table that fits the cache. Spreading is stable and its positions are computed beforehand, so that the
result depends neither on the number of threads nor on their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.kernels import hashing as loops
from safeswap.kernels.threads import run_all, spans
from safeswap.kernels.types import Codes, Int32s, Int64s, UInt64s

_INVERSE = np.uint64(pow(loops.MULTIPLIER, -1, 1 << 64))
_PARTITION_RECORDS = 1 << 13  # the table of a partition then fits the second-level cache
_MOST_BITS = 12


@dataclass(frozen=True, eq=False)
class _Grouped:
    """Records by partition, in file order inside: partition p lies from ``starts[p]`` to ``starts[p + 1]``.

    ``places`` has one entry per record: where the name of its cell stands. The names of the cells of a partition, as
    scrambled codes, stand at the beginning of its stretch of ``names``; there are ``found[p]`` of them.
    """

    codes: Codes
    shift: np.uint64
    runs: list[tuple[int, int]]
    cursors: Int64s  # for each run of records and partition, where the run's first record of it lies
    starts: Int64s
    places: UInt64s
    names: UInt64s
    found: Int64s


def distinct(codes: Codes) -> tuple[UInt64s, Int64s]:
    """The distinct codes in ascending order and how often each occurs.

    >>> values, counts = distinct(np.array([7, 3, 7], dtype=np.uint64))
    >>> values.tolist(), counts.tolist()
    ([3, 7], [1, 2])
    """
    grouped = _grouped(codes)
    counts = _tallied(grouped, grouped.starts[:-1], grouped.starts[1:])
    values, places = _ascending(grouped)
    return values, counts[places].astype(np.int64)


def joint(before: Codes, after: Codes) -> tuple[UInt64s, Int64s, Int64s]:
    """The codes that occur on either side, in ascending order, and how often each occurs on both.

    >>> values, first, second = joint(np.array([7, 3, 7], np.uint64), np.array([9, 7], np.uint64))
    >>> values.tolist(), first.tolist(), second.tolist()
    ([3, 7, 9], [1, 2, 0], [0, 1, 1])
    """
    grouped = _grouped(np.concatenate([before, after]))
    # Spreading is stable: in each partition the records of the first side come first.
    sizes = np.zeros(grouped.found.size, np.int64)
    loops.partition_sizes(before, grouped.shift, sizes)
    splits = grouped.starts[:-1] + sizes
    first = _tallied(grouped, grouped.starts[:-1], splits)
    second = _tallied(grouped, splits, grouped.starts[1:])
    values, places = _ascending(grouped)
    return values, first[places].astype(np.int64), second[places].astype(np.int64)


def tally_among(codes: Codes, skipped: npt.NDArray[np.bool_], wanted: UInt64s) -> Int64s:
    """How many records have each of the ``wanted`` codes (distinct), leaving out the skipped records.

    >>> codes, skipped = np.array([7, 3, 7, 5], np.uint64), np.array([False, False, True, False])
    >>> tally_among(codes, skipped, np.array([7, 5], np.uint64)).tolist()
    [1, 1]
    """
    slots = np.zeros(1 << max(1, (2 * wanted.size - 1).bit_length()), np.int32)
    loops.enter(wanted, slots)
    runs = spans(codes.size)
    counts = np.zeros((len(runs), wanted.size), np.int32)

    def tally(r: int) -> None:
        run = slice(*runs[r])
        loops.tally_known(codes[run], skipped[run], wanted, slots, counts[r])

    run_all(tally, range(len(runs)))
    total: Int64s = counts.sum(axis=0, dtype=np.int64)
    return total


def occurrences(codes: Codes) -> Int32s:
    """For each record, how many records have its code.

    >>> occurrences(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [2, 1, 2]
    """
    grouped = _grouped(codes)
    counts = _tallied(grouped, grouped.starts[:-1], grouped.starts[1:])
    out = np.empty(codes.size, np.int32)
    _in_file_order(grouped, counts, out)
    return out


def ranks(codes: Codes) -> tuple[UInt64s, int]:
    """For each record the rank of its code among the distinct codes, and the number of those.

    >>> rank, number = ranks(np.array([7, 3, 7], dtype=np.uint64))
    >>> rank.tolist(), number
    ([1, 0, 1], 2)
    """
    grouped = _grouped(codes)
    _, places = _ascending(grouped)
    rank_at, out = np.empty(codes.size, np.uint64), np.empty(codes.size, np.uint64)
    rank_at[places] = np.arange(places.size, dtype=np.uint64)
    _in_file_order(grouped, rank_at, out)
    return out, places.size


def unscrambled(keys: UInt64s) -> UInt64s:
    """The codes of which these are the scrambled form.

    >>> unscrambled(np.array([loops.scramble(np.uint64(7))])).tolist()
    [7]
    """
    codes = keys ^ (keys >> loops.HALF)
    codes *= _INVERSE
    codes ^= codes >> loops.HALF
    return codes


def stretches(starts: Int64s, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cut the partitions into as many stretches as there are runs, of about the same number of records."""
    edges = [0, *np.searchsorted(starts[:-1], [first for first, _ in runs[1:]]).tolist(), starts.size - 1]
    return [(edges[i], edges[i + 1]) for i in range(len(runs))]


def _grouped(codes: Codes) -> _Grouped:
    bits = min(_MOST_BITS, max(1, int(codes.size // _PARTITION_RECORDS).bit_length()))
    shift, runs = np.uint64(64 - bits), spans(codes.size)
    sizes = np.zeros((len(runs), 1 << bits), np.int64)
    run_all(lambda r: loops.partition_sizes(codes[slice(*runs[r])], shift, sizes[r]), range(len(runs)))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.sum(axis=0))])
    cursors = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    keys, moving = np.empty(codes.size, np.uint64), cursors.copy()
    run_all(lambda r: loops.spread_run(codes[slice(*runs[r])], shift, moving[r], keys), range(len(runs)))
    names, found = np.empty(codes.size, np.uint64), np.zeros(1 << bits, np.int64)
    parts = stretches(starts, runs)
    run_all(lambda s: loops.number_partitions(starts, s[0], s[1], keys, names, found), parts)
    return _Grouped(codes, shift, runs, cursors, starts, keys, names, found)


def _tallied(grouped: _Grouped, first: Int64s, last: Int64s) -> Int32s:
    """At the place of each name, how many of its records lie from ``first[p]`` to ``last[p]`` of its partition."""
    counts = np.empty(grouped.places.size, np.int32)
    run_all(
        lambda s: loops.tally(grouped.starts, grouped.found, first, last, s[0], s[1], grouped.places, counts),
        stretches(grouped.starts, grouped.runs),
    )
    return counts


def _ascending(grouped: _Grouped) -> tuple[UInt64s, Int64s]:
    """The distinct codes in ascending order, and the places of their names."""
    found = grouped.found
    within = np.arange(found.sum()) - np.repeat(np.cumsum(found) - found, found)
    places = np.repeat(grouped.starts[:-1], found) + within
    codes = unscrambled(grouped.names[places])
    digits = -(-int(codes.max(initial=0)).bit_length() // loops.DIGIT_BITS)
    ordered: tuple[UInt64s, Int64s] = loops.sorted_by_digits(codes, places, digits)
    return ordered


def _in_file_order(grouped: _Grouped, at_place: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """For each record the value at its place; ``grouped.places`` is used up."""
    # Looked up in partition order, where the values of a partition are near each other, and then brought home.
    run_all(lambda run: loops.look_up(grouped.places[slice(*run)], at_place), grouped.runs)
    moving = grouped.cursors.copy()

    def bring(r: int) -> None:
        run = slice(*grouped.runs[r])
        loops.collect_run(grouped.codes[run], grouped.shift, moving[r], grouped.places, out[run])

    run_all(bring, range(len(grouped.runs)))
