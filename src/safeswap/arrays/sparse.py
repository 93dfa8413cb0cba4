"""Group records by a 64-bit code when there are too many possible codes for an array: hash, partition first if needed.

As long as few distinct codes occur, one open-addressing table per thread numbers them in a single pass. Once that table
would outgrow the cache, records are spread over partitions by their codes, which are numbered inside each
(:mod:`safeswap.arrays.partitions`). Groups are merged by code, so the result depends neither on the number of threads
nor on their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import is_worth_compiling, njit, run_all, run_pieces, split_runs
from safeswap.arrays.types import Codes, Floats, Int32s, Int64s, UInt64s

if TYPE_CHECKING:
    from safeswap.arrays.partitions import Partitions

MULTIPLIER = 0xD6E8FEB86659FD93  # odd, hence invertible, with well-mixed bits
HALF = np.uint64(32)

_FACTOR = np.uint64(MULTIPLIER)
_ONE = np.uint64(1)
_SORTING = 8  # passes that cost as much as sorting in NumPy
_FEW, _MORE = 1 << 16, 1 << 20  # codes whose numbers have two bytes, and most codes of one table
_CACHED = 1 << 15  # with their table, this many codes fit the second-level cache
_AGAIN = 16  # more are worth a larger table if each has so many records on average: most then have a few frequent codes
_FULL, _RARE = -2, -1


@njit(cache=True, nogil=True)
def scramble(code):  # type: ignore[no-untyped-def]
    """Map a 64-bit code by a bijection that spreads neighbours over the whole range."""
    x = np.uint64(code)
    x ^= x >> HALF
    x *= _FACTOR
    return x ^ (x >> HALF)


@njit(cache=True, nogil=True)
def take_values(numbers, values, out):  # type: ignore[no-untyped-def]
    """Write the value of each number; ``ndarray.take`` would first widen all numbers to 64 bits."""
    for i in range(numbers.size):
        out[i] = values[numbers[i]]


@njit(cache=True, nogil=True)
def number_few(codes, numbers, names, first, sizes):  # type: ignore[no-untyped-def]
    """Number the codes in order of appearance and count them; return how many there are.

    Return ``_FULL`` if there are more than there is room for, ``_RARE`` if most have too few records for one table.
    ``first`` receives the first record of each code. A slot holds a code beside its number + 1: one look at memory.
    """
    slots, shift = np.zeros((1 << 10, 2), codes.dtype), np.uint64(64 - 10)
    mask, found = np.uint64(len(slots) - 1), np.uint64(0)
    for i in range(codes.size):
        code = codes[i]
        slot = (np.uint64(code) * _FACTOR) >> shift
        while slots[slot, 0] != code and slots[slot, 1] != 0:
            slot = (slot + _ONE) & mask
        if slots[slot, 1] != 0:  # each branch writes its own results: joined, they take several times as long
            numbers[i] = slots[slot, 1] - _ONE
            sizes[slots[slot, 1] - _ONE] += 1
        else:
            if found == names.size:
                return np.int64(_FULL)
            if found >= _CACHED and found & (found - _ONE) == 0 and i < _AGAIN * found:  # at each power of two
                return np.int64(_RARE)
            names[found], first[found], sizes[found], numbers[i] = code, i, 1, found
            found += _ONE
            slots[slot, 0], slots[slot, 1] = code, found
            if 3 * found > len(slots):
                slots, shift = np.zeros((2 * len(slots), 2), codes.dtype), shift - _ONE
                mask = np.uint64(len(slots) - 1)
                for j in range(found):
                    slot = (np.uint64(names[j]) * _FACTOR) >> shift
                    while slots[slot, 1] != 0:
                        slot = (slot + _ONE) & mask
                    slots[slot, 0], slots[slot, 1] = names[j], j + 1
    return np.int64(found)


@njit(cache=True, nogil=True)
def count_to_two(codes, shift, seen):  # type: ignore[no-untyped-def]
    """Count the codes in each slot, up to two."""
    for i in range(codes.size):
        slot = scramble(codes[i]) >> shift
        seen[slot] += seen[slot] < 2


@njit(cache=True, nogil=True)
def look_for_two(codes, shift, seen, flags):  # type: ignore[no-untyped-def]
    """Flag the codes whose slot has more than one."""
    for i in range(codes.size):
        flags[i] = seen[scramble(codes[i]) >> shift] > 1


@njit(cache=True, nogil=True)
def insert_codes(names, slots):  # type: ignore[no-untyped-def]
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
def find_slot(code, names, slots):  # type: ignore[no-untyped-def]
    """Return the slot of a code in the table, or the empty one where it would be."""
    mask = np.uint64(slots.size - 1)
    slot = scramble(code) & mask
    while slots[slot] != 0 and names[slots[slot] - 1] != code:
        slot = (slot + _ONE) & mask
    return slot


@njit(cache=True, nogil=True)
def sum_known(first, second, masses, names, slots, sums):  # type: ignore[no-untyped-def]
    """Add up the masses of the codes in the table on both sides, and at the end those of all others."""
    for i in range(first.size):
        one = slots[find_slot(np.uint64(first[i]), names, slots)] - 1  # an empty slot is -1, the last
        other = one if first[i] == second[i] else slots[find_slot(np.uint64(second[i]), names, slots)] - 1
        sums[0, one] += masses[i]
        sums[1, other] += masses[i]


@dataclass(frozen=True, eq=False)
class Groups:
    """Records by code. A run of records has groups of its own, so one code may have a group in each run.

    ``of_record`` numbers the groups of each run from 0; run r's groups start at ``offsets[r]`` of the arrays over all
    groups, which hold the code of a group, its first record and its number of records.
    """

    runs: list[tuple[int, int]]
    offsets: list[int]
    of_record: npt.NDArray[Any]
    codes: Codes
    first: Int64s
    sizes: Int64s

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return, for each record, the value of its group."""
        out = np.empty(self.of_record.size, values.dtype)

        def take(r: int) -> None:
            run = slice(*self.runs[r])
            take_values(self.of_record[run], values[self.offsets[r] : self.offsets[r + 1]], out[run])

        if len(self.runs) == 1 and not is_worth_compiling(out.size):
            np.copyto(out, values[self.of_record])
            return out
        run_all(take, range(len(self.runs)))
        return out


def group(codes: Codes) -> Groups:
    """Group the records by code.

    >>> groups = group(np.array([7, 3, 7], dtype=np.uint64))
    >>> groups.codes.tolist(), groups.sizes.tolist(), groups.first.tolist(), groups.of_record.tolist()
    ([7, 3], [2, 1], [0, 1], [0, 1, 0])
    """
    if not is_worth_compiling(_SORTING * codes.size):
        return _group_sorted(codes)
    return _group_few(codes) or _group_many(codes)


def merge(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the distinct keys in ascending order, and the rank of each key among them.

    >>> values, ranks = merge(np.array([7, 3, 7]))
    >>> values.tolist(), ranks.tolist()
    ([3, 7], [1, 0, 1])
    """
    order, ordered = _sort_keys(keys)
    is_new = np.ones(keys.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    ranks = np.empty(keys.size, np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    return ordered[is_new], ranks


def _sort_keys(keys: npt.NDArray[Any]) -> tuple[Int64s, npt.NDArray[Any]]:
    """Return an order of the keys, and the keys in it: sorted with their positions, if both fit a word."""
    place_bits = np.uint64(keys.size.bit_length())
    if keys.dtype.kind != "u" or int(keys.max(initial=0)).bit_length() + int(place_bits) > 64:
        order = np.argsort(keys)
        return order, keys[order]
    words = keys.astype(np.uint64) << place_bits
    words |= np.arange(keys.size, dtype=np.uint64)
    words.sort()
    order = (words & ((_ONE << place_bits) - _ONE)).view(np.int64)
    return order, (words >> place_bits).astype(keys.dtype)


def add_up(ranks: Int64s, sizes: Int64s, number: int) -> Int64s:
    """Return the sum of the sizes at each rank."""
    totals = np.zeros(number, np.int64)
    np.add.at(totals, ranks, sizes)
    return totals


def count_distinct(codes: Codes) -> tuple[UInt64s, Int64s]:
    """Return the distinct codes in ascending order, and their counts.

    >>> values, counts = count_distinct(np.array([7, 3, 7], dtype=np.uint64))
    >>> values.tolist(), counts.tolist()
    ([3, 7], [1, 2])
    """
    if not is_worth_compiling(_SORTING * codes.size):
        found, times = np.unique(codes.astype(np.uint64), return_counts=True)
        return found, times.astype(np.int64)
    few = _group_few(codes)
    if few is not None:
        values, ranks = merge(few.codes)
        return values.astype(np.uint64), add_up(ranks, few.sizes, values.size)
    parts = _partition(codes)
    values, places = parts.sorted_names()
    return values, parts.tally()[places].astype(np.int64)


def count_joint(before: Codes, after: Codes) -> tuple[UInt64s, Int64s, Int64s]:
    """Return the codes that occur on either side, in ascending order, and their counts on both.

    >>> values, first, second = count_joint(np.array([7, 3, 7], np.uint64), np.array([9, 7], np.uint64))
    >>> values.tolist(), first.tolist(), second.tolist()
    ([3, 7, 9], [1, 2, 0], [0, 1, 1])
    """
    if not is_worth_compiling(_SORTING * (before.size + after.size)):
        values, places = np.unique(np.concatenate([before, after]).astype(np.uint64), return_inverse=True)
        sides = (places[: before.size], places[before.size :])
        one, other = (np.bincount(side, minlength=values.size).astype(np.int64) for side in sides)
        return values, one, other
    both = np.concatenate([before, after])
    few = _group_few(both)
    if few is not None:
        values, ranks = merge(few.codes)
        counts = [np.bincount(side, minlength=values.size) for side in np.split(few.spread(ranks), [before.size])]
        return values.astype(np.uint64), counts[0], counts[1]
    parts = _partition(both)
    splits = parts.ends_of(before)
    values, places = parts.sorted_names()
    first, second = parts.tally(last=splits)[places], parts.tally(first=splits)[places]
    return values, first.astype(np.int64), second.astype(np.int64)


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
    insert_codes(wanted, slots)
    runs = split_runs(codes.size)
    counts = np.zeros((len(runs), wanted.size), np.int32)

    def tally(r: int) -> None:
        run = slice(*runs[r])
        tally_known(codes[run], skipped[run], wanted, slots, counts[r])

    run_all(tally, range(len(runs)))
    total: Int64s = counts.sum(axis=0, dtype=np.int64)
    return total


def flag_repeated(codes: UInt64s) -> npt.NDArray[np.bool_]:
    """Flag the records whose code occurs more than once, and about one in sixteen of the others.

    >>> flag_repeated(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [True, False, True]
    """
    bits = max(6, (16 * codes.size).bit_length())
    shift, seen = np.uint64(64 - bits), np.zeros(1 << bits, np.uint8)
    flags = np.empty(codes.size, np.bool_)
    count_to_two(codes, shift, seen)
    run_pieces(lambda run: look_for_two(codes[slice(*run)], shift, seen, flags[slice(*run)]), codes.size)
    return flags


def sum_among(first: Codes, second: Codes, masses: Floats, wanted: Codes) -> Floats:
    """Sum the masses of the records of each of the ``wanted`` codes (ascending), and last of all others, on two sides.

    Added in the order of the records, whatever the number of threads.

    >>> sides = np.array([7, 3, 7], np.uint64), np.array([7, 7, 5], np.uint64)
    >>> sum_among(*sides, np.array([1.0, 2.0, 4.0]), np.array([5, 7], np.uint64)).tolist()
    [[0.0, 5.0, 2.0], [4.0, 3.0, 0.0]]
    """
    if not is_worth_compiling(_SORTING * (first.size + wanted.size)):
        return np.stack([_sum_side(codes, masses, wanted) for codes in (first, second)])
    slots = np.zeros(1 << max(1, (2 * wanted.size - 1).bit_length()), np.int32)
    names, sums = wanted.astype(np.uint64), np.zeros((2, wanted.size + 1))
    insert_codes(names, slots)
    sum_known(first, second, masses, names, slots, sums)
    return sums


def _sum_side(codes: Codes, masses: Floats, wanted: Codes) -> Floats:
    places = np.searchsorted(wanted, codes)
    known = places < wanted.size
    known[known] = wanted[places[known]] == codes[known]
    places[~known] = wanted.size
    return np.bincount(places, masses, wanted.size + 1).astype(np.float64)  # without records, whole numbers


def count_occurrences(codes: Codes) -> Int32s:
    """Return, for each record, the number of records with its code.

    >>> count_occurrences(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [2, 1, 2]
    """
    if not is_worth_compiling(_SORTING * codes.size):
        _, places, times = np.unique(codes, return_inverse=True, return_counts=True)
        return times[places].astype(np.int32)
    few = _group_few(codes)
    if few is not None:
        values, place = merge(few.codes)
        return few.spread(add_up(place, few.sizes, values.size).astype(np.int32)[place])
    parts = _partition(codes)
    return parts.restore_order(parts.tally())


def rank_codes(codes: Codes) -> tuple[UInt64s, int]:
    """Return the rank of each record's code among the distinct codes, and their number.

    >>> rank, number = rank_codes(np.array([7, 3, 7], dtype=np.uint64))
    >>> rank.tolist(), number
    ([1, 0, 1], 2)
    """
    if not is_worth_compiling(_SORTING * codes.size):
        values, places = np.unique(codes, return_inverse=True)
        return places.astype(np.uint64), values.size
    few = _group_few(codes)
    if few is not None:
        values, place = merge(few.codes)
        return few.spread(place.astype(np.uint64)), values.size
    parts = _partition(codes)
    _, places = parts.sorted_names()
    rank_at = np.empty(codes.size, np.uint64)
    rank_at[places] = np.arange(places.size, dtype=np.uint64)
    return parts.restore_order(rank_at), places.size


def _group_few(codes: Codes) -> Groups | None:
    """Group in one pass; None if there are many distinct codes, or most have few records."""
    words = codes if codes.itemsize >= 4 else codes.astype(np.uint32)  # each type costs a compilation
    found = _group_in_one_table(words, _FEW, np.uint16)
    if found == _FULL:
        found = _group_in_one_table(words, _MORE, np.uint32)
    return found if isinstance(found, Groups) else None


def _group_in_one_table(words: Codes, most: int, width: type[np.unsignedinteger[Any]]) -> Groups | int:
    """Group in one pass, with a table per run; return ``_FULL`` or ``_RARE`` where that fails."""
    runs = split_runs(words.size)
    room = len(runs), min(most, words.size)
    names, first, sizes = np.empty(room, words.dtype), np.empty(room, np.int64), np.empty(room, np.int64)
    of_record, found = np.empty(words.size, width), np.zeros(len(runs), np.int64)

    def number_run(r: int) -> None:
        run = slice(*runs[r])
        found[r] = number_few(words[run], of_record[run], names[r], first[r], sizes[r])
        first[r] += run.start

    run_all(number_run, range(len(runs)))
    if (found < 0).any():
        return int(found[found < 0].max())
    parts = [np.concatenate([each[r, :number] for r, number in enumerate(found)]) for each in (names, first, sizes)]
    return Groups(runs, [0, *np.cumsum(found).tolist()], of_record, *parts)


def _group_sorted(codes: Codes) -> Groups:
    """Group as :func:`_group_few` does, in NumPy."""
    names, first, numbers, sizes = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)  # by appearance
    place = np.empty(order.size, np.uint32)
    place[order] = np.arange(order.size, dtype=np.uint32)
    return Groups([(0, codes.size)], [0, names.size], place[numbers], names[order], first[order], sizes[order])


def _group_many(codes: Codes) -> Groups:
    return Groups([(0, codes.size)], *_partition(codes).number_records())


def _partition(codes: Codes) -> Partitions:
    from safeswap.arrays.partitions import partition  # large files only

    return partition(codes)
