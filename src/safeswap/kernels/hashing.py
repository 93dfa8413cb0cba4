"""The compiled loops behind :mod:`safeswap.kernels.sparse`: scrambling, spreading, hashing, sorting."""

from __future__ import annotations

import numba
import numpy as np

MULTIPLIER = 0xD6E8FEB86659FD93  # odd, hence invertible; its bits are well mixed
HALF = np.uint64(32)
DIGIT_BITS = 11

_FACTOR = np.uint64(MULTIPLIER)
_ONE = np.uint64(1)
_LARGEST_FIRST_TABLE = 1 << 14  # a cell that holds most records needs no large table: it grows where it must


@numba.njit(cache=True, nogil=True)
def scramble(code):  # type: ignore[no-untyped-def]
    """A bijection of 64-bit codes that spreads neighbours over the whole range."""
    x = np.uint64(code)
    x ^= x >> HALF
    x *= _FACTOR
    return x ^ (x >> HALF)


@numba.njit(cache=True, nogil=True)
def partition_sizes(codes, shift, sizes):  # type: ignore[no-untyped-def]
    """Count the records of each partition; the top bits of the scrambled code name it."""
    for i in range(codes.size):
        sizes[scramble(codes[i]) >> shift] += 1


@numba.njit(cache=True, nogil=True)
def spread_run(codes, shift, cursor, keys):  # type: ignore[no-untyped-def]
    """Write each record's scrambled code to the next free place of its partition."""
    for i in range(codes.size):
        key = scramble(codes[i])
        part = key >> shift
        keys[cursor[part]] = key
        cursor[part] += 1


@numba.njit(cache=True, nogil=True)
def look_up(places, at_place):  # type: ignore[no-untyped-def]
    """Replace each place by the value that stands there."""
    for i in range(places.size):
        places[i] = at_place[places[i]]


@numba.njit(cache=True, nogil=True)
def collect_run(codes, shift, cursor, values, out):  # type: ignore[no-untyped-def]
    """Bring values from partition order back to file order, by the very walk that spread the records."""
    for i in range(codes.size):
        part = scramble(codes[i]) >> shift
        out[i] = values[cursor[part]]
        cursor[part] += 1


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def enter(names, slots):  # type: ignore[no-untyped-def]
    """Enter distinct codes into an empty table: each slot holds number + 1, or 0."""
    mask = np.uint64(slots.size - 1)
    for j in range(names.size):
        slot = scramble(names[j]) & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1


@numba.njit(cache=True, nogil=True)
def tally_known(codes, skipped, names, slots, counts):  # type: ignore[no-untyped-def]
    """Count the records of the codes that are in the table, passing over the skipped ones."""
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


@numba.njit(cache=True, nogil=True)
def number_partitions(starts, first, last, keys, names, found):  # type: ignore[no-untyped-def]
    """Replace each key of some partitions by the place of its name."""
    for part in range(first, last):
        here = keys[starts[part] : starts[part + 1]]
        found[part] = number(here, names[starts[part] : starts[part + 1]])
        here += np.uint64(starts[part])


@numba.njit(cache=True, nogil=True)
def tally(starts, found, first, last, first_part, last_part, places, counts):  # type: ignore[no-untyped-def]
    """Count the records per place of name, in some partitions, from ``first`` to ``last`` of each."""
    for part in range(first_part, last_part):
        counts[starts[part] : starts[part] + found[part]] = 0
        for i in range(first[part], last[part]):
            counts[places[i]] += 1


@numba.njit(cache=True, nogil=True)
def sorted_by_digits(codes, places, digits):  # type: ignore[no-untyped-def]
    """Both in ascending order of the code: one stable pass per digit, the lowest first. Overwrites its arguments."""
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
