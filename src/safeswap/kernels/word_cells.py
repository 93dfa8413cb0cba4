"""Count cells that are known by two random words each, with a hash table that grows as it is told to.

The words of a cell are as good as random numbers, so their own bits serve as the hash. The two lowest bits of the
second word give way to what became of the record: 0 it stayed, 1 it left the cell, 2 it entered it.
"""

from __future__ import annotations

import numba
import numpy as np

STAYED, LEFT, ENTERED = 0, 1, 2
SMALL = 32
"""Counts below this are tallied in an array."""

_KIND = np.uint64(3)
_ONE = np.uint64(1)


@numba.njit(cache=True, nogil=True)
def mark(words, touched):  # type: ignore[no-untyped-def]
    """Say of each record whether it stayed or left; overwrites the lowest bits of its second word."""
    for i in range(touched.size):
        words[i, 1] = (words[i, 1] & ~_KIND) | np.uint64(touched[i])


@numba.njit(cache=True, nogil=True)
def count(entries, slots, names, counts, found, rest):  # type: ignore[no-untyped-def]
    """Count entries into a table; those of new cells for which it has no room go to ``rest``.

    ``counts`` holds, per cell, the records before, after, and those that stayed. Returns how many cells the table
    holds now, and how many entries are left over.
    """
    mask = np.uint64(slots.size - 1)
    left = 0
    for i in range(entries.shape[0]):
        high, low = entries[i, 0], entries[i, 1] & ~_KIND
        kind = entries[i, 1] & _KIND
        slot = high & mask
        while slots[slot] != 0 and (names[slots[slot] - 1, 0] != high or names[slots[slot] - 1, 1] != low):
            slot = (slot + _ONE) & mask
        if slots[slot] == 0:
            if found == names.shape[0]:
                rest[left, 0], rest[left, 1] = high, entries[i, 1]
                left += 1
                continue
            names[found, 0], names[found, 1] = high, low
            counts[found, 0] = counts[found, 1] = counts[found, 2] = 0
            found += 1
            slots[slot] = found
        place = slots[slot] - 1
        counts[place, 0] += kind != 2
        counts[place, 1] += kind != 1
        counts[place, 2] += kind == 0
    return found, left


@numba.njit(cache=True, nogil=True)
def enter(names, found, slots):  # type: ignore[no-untyped-def]
    """Enter the cells of a table into slots that are empty and more than the old ones."""
    mask = np.uint64(slots.size - 1)
    for j in range(found):
        slot = names[j, 0] & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1


@numba.njit(cache=True, nogil=True)
def spread(entries, shift, out):  # type: ignore[no-untyped-def]
    """Bring entries together by the top bits of their first word; how many have which."""
    sizes = np.zeros(np.int64(_ONE << (np.uint64(64) - shift)), np.int64)
    for i in range(entries.shape[0]):
        sizes[entries[i, 0] >> shift] += 1
    cursor = np.cumsum(sizes) - sizes
    for i in range(entries.shape[0]):
        part = entries[i, 0] >> shift
        out[cursor[part], 0], out[cursor[part], 1] = entries[i, 0], entries[i, 1]
        cursor[part] += 1
    return sizes


@numba.njit(cache=True, nogil=True)
def tally(counts, cells, stayed):  # type: ignore[no-untyped-def]
    """Tally cells by their counts before and after, where both are small; the places of the others."""
    large = np.empty(counts.shape[0], np.int64)
    others = 0
    for i in range(counts.shape[0]):
        before, after = counts[i, 0], counts[i, 1]
        if before < SMALL and after < SMALL:
            cells[before, after] += 1
            stayed[before, after] += counts[i, 2]
        else:
            large[others] = i
            others += 1
    return large[:others]


@numba.njit(cache=True, nogil=True)
def mix(words, codes, table):  # type: ignore[no-untyped-def]
    """Add, without carry, to the words of each record those that the table has for its code."""
    for i in range(codes.size):
        words[i, 0] ^= table[codes[i], 0]
        words[i, 1] ^= table[codes[i], 1]
