"""Spread records over partitions by their code, and number the codes of each: for more codes than a cache holds.

Codes are scrambled by a bijection and spread by their top bits. The codes of a partition are numbered by sorting words
that hold their positions too, or by a hash table if these do not fit. Spreading is stable and its positions are
computed beforehand, so the result depends neither on the number of threads nor on their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import inner, njit, run_all, run_pieces, split_runs
from safeswap.arrays.sparse import MULTIPLIER
from safeswap.arrays.types import Codes, Int32s, Int64s, UInt64s

_FACTOR = np.uint64(MULTIPLIER)
_INVERSE = np.uint64(pow(MULTIPLIER, -1, 1 << 64))
_ONE = np.uint64(1)
_LARGEST_FIRST_TABLE = 1 << 14  # tables start small and grow: one cell may hold most records
_PARTITION_RECORDS = 1 << 13  # the table of a partition then fits the second-level cache
_MOST_BITS = 12


class Scrambling(NamedTuple):
    """A bijection among the codes of so many bits as the mask has; ``shift`` leaves those that name the partition."""

    half: np.uint64
    mask: np.uint64
    shift: np.uint64

    @classmethod
    def of(cls, bits: int, partitions: int) -> Scrambling:
        """Return the bijection among codes of so many bits, the top ones of which name so many (bits) partitions."""
        return cls(np.uint64((bits + 1) // 2), np.uint64((1 << bits) - 1), np.uint64(bits - partitions))

    def undo(self, keys: UInt64s) -> UInt64s:
        """Return the codes of scrambled ones.

        >>> by = Scrambling.of(20, 3)
        >>> by.undo(scramble_by(np.array([7, 9], np.uint64), by)).tolist()
        [7, 9]
        """
        codes = keys ^ (keys >> self.half)
        codes *= _INVERSE
        codes &= self.mask
        codes ^= codes >> self.half
        return codes


@inner
def scramble_by(code, by):  # type: ignore[no-untyped-def]
    """Map a code by the bijection."""
    x = np.uint64(code)
    x ^= x >> by.half
    x = (x * _FACTOR) & by.mask
    return x ^ (x >> by.half)


@njit(cache=True, nogil=True)
def partition_sizes(codes, by, sizes):  # type: ignore[no-untyped-def]
    """Count the records of each partition; the top bits of the scrambled code name it."""
    for i in range(codes.size):
        sizes[scramble_by(codes[i], by) >> by.shift] += 1


@njit(cache=True, nogil=True)
def spread_run(codes, by, cursor, keys):  # type: ignore[no-untyped-def]
    """Write each record's scrambled code to the next free place of its partition."""
    for i in range(codes.size):
        key = scramble_by(codes[i], by)
        part = key >> by.shift
        keys[cursor[part]] = key
        cursor[part] += 1


@njit(cache=True, nogil=True)
def look_up(places, at_place):  # type: ignore[no-untyped-def]
    """Replace each place by the value at that place."""
    for i in range(places.size):
        places[i] = at_place[places[i]]


@njit(cache=True, nogil=True)
def collect_run(codes, by, cursor, values, out):  # type: ignore[no-untyped-def]
    """Bring values from partition order back to file order, by the same walk that spread the records."""
    for i in range(codes.size):
        part = scramble_by(codes[i], by) >> by.shift
        out[i] = values[cursor[part]]
        cursor[part] += 1


@njit(cache=True, nogil=True)
def collect_numbers(codes, start, by, cursor, places, skipped, first, out):  # type: ignore[no-untyped-def]
    """Like :func:`collect_run` with the places of names, numbered without gaps; find the first record of each."""
    for i in range(codes.size):
        part = scramble_by(codes[i], by) >> by.shift
        number = places[cursor[part]] - skipped[part]
        cursor[part] += 1
        out[i] = number
        first[number] = min(first[number], start + i)


@njit(cache=True, nogil=True)
def number_keys(keys, names):  # type: ignore[no-untyped-def]
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
        if slots[slot] != 0:
            keys[i] = slots[slot] - 1
        else:
            names[found], keys[i] = key, found
            found += 1
            slots[slot] = found
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
def add_places(keys, own, place_bits, words):  # type: ignore[no-untyped-def]
    """Write words of the bits that keys have of their own, and the place of each below."""
    for i in range(keys.size):
        words[i] = (keys[i] & own) << place_bits | np.uint64(i)


@njit(cache=True, nogil=True)
def number_sorted(words, place_bits, names, keys):  # type: ignore[no-untyped-def]
    """Like :func:`number_keys`, from sorted words; ``names`` receives the bits that keys have of their own."""
    found, last, place = np.int64(-1), ~np.uint64(0), (_ONE << place_bits) - _ONE
    for i in range(words.size):
        key = words[i] >> place_bits
        found += key != last
        names[found], keys[words[i] & place], last = key, found, key
    return found + 1


@njit(cache=True, nogil=True)
def tally_codes(starts, found, first, last, first_part, last_part, places, counts):  # type: ignore[no-untyped-def]
    """Count the records per place of name in some partitions, from ``first`` to ``last`` of each."""
    for part in range(first_part, last_part):
        counts[starts[part] : starts[part] + found[part]] = 0
        for i in range(first[part], last[part]):
            counts[places[i]] += 1


def split_partitions(starts: Int64s, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide the partitions into one stretch per run, of about the same number of records each."""
    edges = [0, *np.searchsorted(starts[:-1], [first for first, _ in runs[1:]]).tolist(), starts.size - 1]
    return [(edges[i], edges[i + 1]) for i in range(len(runs))]


@dataclass(frozen=True, eq=False)
class Partitions:
    """Records by partition, in file order inside: partition p is ``starts[p]`` to ``starts[p + 1]``.

    ``places`` has one entry per record: the position of its cell's name. The names of a partition's cells, as scrambled
    codes, are the first ``found[p]`` entries of its stretch of ``names``.
    """

    codes: Codes
    by: Scrambling
    runs: list[tuple[int, int]]
    cursors: Int64s  # per run of records and partition, the place of the run's first record
    starts: Int64s
    places: UInt64s
    names: UInt64s
    found: Int64s

    def places_of_names(self) -> Int64s:
        """Return the place of each name, by partition."""
        within = np.arange(self.found.sum()) - np.repeat(np.cumsum(self.found) - self.found, self.found)
        places: Int64s = np.repeat(self.starts[:-1], self.found) + within
        return places

    def sorted_names(self) -> tuple[UInt64s, Int64s]:
        """Return the distinct codes in ascending order, and the places of their names."""
        places = self.places_of_names()
        codes = self.by.undo(self.names[places])
        order = np.argsort(codes)
        return codes[order], places[order]

    def tally(self, first: Int64s | None = None, last: Int64s | None = None) -> Int32s:
        """Count, at the place of each name, its records from ``first[p]`` to ``last[p]`` of its partition."""
        counts = np.empty(self.places.size, np.int32)
        first = self.starts[:-1] if first is None else first
        last = self.starts[1:] if last is None else last
        run_all(
            lambda s: tally_codes(self.starts, self.found, first, last, s[0], s[1], self.places, counts),
            split_partitions(self.starts, self.runs),
        )
        return counts

    def number_records(self) -> tuple[list[int], npt.NDArray[np.uint32], UInt64s, Int64s, Int64s]:
        """Return 0 and the number of codes; the number of each record's code; codes, first records and sizes."""
        places = self.places_of_names()
        skipped = (self.starts[:-1] - np.cumsum(self.found) + self.found).astype(np.uint64)
        of_record = np.empty(self.codes.size, np.uint32)
        first = np.full((len(self.runs), places.size), self.codes.size, np.int64)
        moving = self.cursors.copy()

        def collect(r: int) -> None:
            run = slice(*self.runs[r])
            start, codes, out = run.start, self.codes[run], of_record[run]
            collect_numbers(codes, start, self.by, moving[r], self.places, skipped, first[r], out)

        run_all(collect, range(len(self.runs)))
        sizes = self.tally()[places].astype(np.int64)
        names = self.by.undo(self.names[places])
        return [0, places.size], of_record, names, first.min(axis=0), sizes

    def ends_of(self, first: Codes) -> Int64s:
        """Return where the first of the records, whose codes these are, end in each partition: spreading is stable."""
        sizes = np.zeros(self.found.size, np.int64)
        partition_sizes(first, self.by, sizes)
        ends: Int64s = self.starts[:-1] + sizes
        return ends

    def restore_order(self, at_place: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return each record's value, in file order; overwrites ``places``."""
        # Looked up in partition order, where the values of a partition are close together, then moved to file order.
        run_pieces(lambda run: look_up(self.places[slice(*run)], at_place), self.codes.size)
        out, moving = np.empty(self.codes.size, at_place.dtype), self.cursors.copy()

        def bring(r: int) -> None:
            run = slice(*self.runs[r])
            collect_run(self.codes[run], self.by, moving[r], self.places, out[run])

        run_all(bring, range(len(self.runs)))
        return out


def partition(codes: Codes) -> Partitions:
    """Spread the records over partitions, and number their codes."""
    bits = min(_MOST_BITS, max(1, int(codes.size // _PARTITION_RECORDS).bit_length()))
    by, runs = Scrambling.of(max(bits, int(codes.max(initial=0)).bit_length()), bits), split_runs(codes.size)
    sizes = np.zeros((len(runs), 1 << bits), np.int64)
    run_all(lambda r: partition_sizes(codes[slice(*runs[r])], by, sizes[r]), range(len(runs)))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.sum(axis=0))])
    cursors = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
    keys, moving = np.empty(codes.size, np.uint64), cursors.copy()
    run_all(lambda r: spread_run(codes[slice(*runs[r])], by, moving[r], keys), range(len(runs)))
    names, found = np.empty(codes.size, np.uint64), np.zeros(1 << bits, np.int64)

    def number(part: int) -> None:
        here = slice(starts[part], starts[part + 1])
        found[part] = _number_partition(keys[here], names[here], part, by)
        keys[here] += np.uint64(starts[part])

    run_all(number, range(1 << bits), len(runs))
    return Partitions(codes, by, runs, cursors, starts, keys, names, found)


def _number_partition(keys: UInt64s, names: UInt64s, part: int, by: Scrambling) -> int:
    """Number the keys of a partition, in any order. Sorting takes a fourth of the time of a table."""
    place_bits = np.uint64(keys.size.bit_length())
    if int(by.shift) + int(place_bits) > 64:
        return int(number_keys(keys, names))
    words, own = np.empty_like(keys), (_ONE << by.shift) - _ONE
    add_places(keys, own, place_bits, words)
    words.sort()
    found = int(number_sorted(words, place_bits, names, keys))
    names[:found] |= np.uint64(part) << by.shift
    return found
