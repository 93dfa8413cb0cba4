"""Find partners of the same code in another area: first within the sample, then among all others.

Claim 1, inside the sample. Of a group of n sampled records of one code, at most m of which lie in one area,
min(n // 2, n − m) pairs are made, the most possible. Records come in the order of their draws. A record waits as long
as its successors lie in its own area, and so do these; each record of another area is paired with a waiting one. So all
records left over in the end lie in one area a. While there are two of them, a pair with neither record in a is opened,
and each of its two records gets one from a. This ends with at most one record left over, or with a record from a in
every pair.

Claim 2, outside. The records left over lie in one area, so all of them want the same partners and the order of choice
does not matter: as many are placed as there are others of the code outside that area. One case remains: a single
record, and all others of the code lie in its own area a. Then a pair with neither record in a is opened: one of its
records takes the record left over, the other takes one from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from safeswap.arrays import keyed
from safeswap.arrays.sampling import RESERVED_FROM, Drawn
from safeswap.arrays.sparse import scramble
from safeswap.arrays.threads import run_all, spans
from safeswap.arrays.types import Codes, Flags, Identity, Rows, Words

_ONE = np.uint64(1)
_MARK_SHIFT = np.uint64(64 - 15)


@dataclass(frozen=True, eq=False, kw_only=True)
class Partners:
    """Pairs of sampled rows, pairs of a sampled row and one from outside, and the sampled rows left alone.

    Each list is in the order of the draws of the first row of a pair, independent of row order and codes.
    """

    inside: Rows
    outside: Rows
    alone: Rows


def find_partners(codes: Codes, areas: Codes, drawn: Drawn, identity: Identity, key: bytes) -> Partners:
    """Find a partner with the same code and another area for every sampled record, as far as there are any.

    ``codes`` and ``areas`` are those of all records; ``identity`` and ``key`` are those used for the draws. Partners
    from outside are those with the highest draws.

    >>> from safeswap.arrays.sampling import draw_sample
    >>> codes, areas = np.zeros(100, np.uint64), np.arange(100, dtype=np.uint8) % 5
    >>> drawn = draw_sample(np.arange(100), bytes(32), rate=0.2)
    >>> found = find_partners(codes, areas, drawn, np.arange(100), bytes(32))
    >>> 2 * len(found.inside) + len(found.outside) == len(drawn.rows), len(found.alone)
    (True, 0)
    """
    codes = codes.astype(np.uint64, copy=False)
    search = _Search(codes[drawn.rows], areas[drawn.rows])
    search.offer(drawn.reserve, codes[drawn.reserve], areas[drawn.reserve])
    if search.is_short:
        sampled = np.zeros(len(codes), dtype=np.bool_)
        sampled[drawn.rows] = True
        rows = search.rows_wanted(codes, sampled)
        draws = keyed.draws(_blocks(identity[rows]), key)
        fresh = draws < RESERVED_FROM  # the others were offered already
        rows = rows[fresh][np.argsort(draws[fresh], kind="stable")[::-1]]
        search.offer(rows, codes[rows], areas[rows])
    return search.partners(drawn.rows)


def count_matched(codes: Codes, areas: Codes, sampled: int) -> int:
    """Count the first ``sampled`` records that find a partner, among themselves or among the others.

    >>> count_matched(np.array([7, 7, 8, 8, 9], np.uint64), np.array([1, 2, 1, 1, 1], np.uint8), 3)
    2
    """
    search = _Search(codes[:sampled].astype(np.uint64), areas[:sampled])
    search.offer(np.arange(sampled, len(codes)), codes[sampled:].astype(np.uint64), areas[sampled:])
    return sampled - len(search.partners(np.arange(sampled)).alone)


def count_moved(codes: Codes, areas: Codes, sampled: Flags) -> int:
    """Count the records that a sample would move, partners from outside included.

    >>> count_moved(np.zeros(4, np.uint64), np.array([1, 2, 1, 1], np.uint8), np.array([False, True, False, False]))
    2
    """
    codes = codes.astype(np.uint64, copy=False)
    rows = np.flatnonzero(sampled)
    search = _Search(codes[rows], areas[rows])
    if search.is_short:
        others = search.rows_wanted(codes, sampled)
        search.offer(others, codes[others], areas[others])
    found = search.partners(rows)
    return 2 * (len(found.inside) + len(found.outside))


class _Search:
    """Sampled records grouped by code and paired among themselves; those left over take offered partners."""

    def __init__(self, codes: Words, areas: Codes) -> None:
        self.order = np.argsort(codes, kind="stable")  # stable: keeps the order within a code
        grouped = codes[self.order]
        self.areas = areas[self.order]
        self.bounds = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1], True]) if len(codes) else np.zeros(1, int)
        self.partner = pair_groups(self.bounds, self.areas)
        self.left = np.flatnonzero(self.partner < 0)
        self.other = np.full(len(self.left), -1, dtype=np.int64)
        codes_left = grouped[self.left]
        self.first = np.flatnonzero(np.r_[True, codes_left[1:] != codes_left[:-1]]) if len(self.left) else self.left
        self.names = codes_left[self.first]
        self.own = self.areas[self.left[self.first]]
        self.wanted = np.diff(np.r_[self.first, len(self.left)])
        self.same = np.full(len(self.first), -1, dtype=np.int64)
        self.slots = _table(self.names, np.arange(len(self.names)))

    @property
    def is_short(self) -> bool:
        return bool((self.wanted > 0).any())

    def rows_wanted(self, codes: Words, skipped: Flags) -> Rows:
        """Return the unskipped rows whose code is still wanted, in file order."""
        chosen = np.flatnonzero(self.wanted > 0)
        slots, marks = _table(self.names, chosen), _bitmap(self.names[chosen])
        runs = spans(len(codes))
        found: list[Rows] = [np.zeros(0, dtype=np.int64)] * len(runs)

        def look(number: int) -> None:
            start, stop = runs[number]
            found[number] = _matching(codes[start:stop], skipped[start:stop], self.names, slots, marks) + start

        run_all(look, range(len(runs)))
        return np.concatenate(found)

    def offer(self, rows: Rows, codes: Words, areas: Codes) -> None:
        """Let rows from outside, in order, become partners."""
        if len(self.left):
            groups = (self.names, self.slots, self.own, self.first, self.wanted, self.same)
            _place(rows, codes, areas, *groups, self.other)

    def partners(self, rows: Rows) -> Partners:
        """Return the result, in terms of the rows of the sample."""
        _open_pairs(self.bounds, self.areas, self.partner, self.left, self.first, self.wanted, self.same, self.other)
        first = np.flatnonzero(self.partner > np.arange(len(self.partner)))
        first = first[np.argsort(self.order[first])]
        by_draw = np.argsort(self.order[self.left])
        left, other = self.left[by_draw], self.other[by_draw]
        rows = rows[self.order]
        placed = other >= 0
        return Partners(
            inside=np.stack([rows[first], rows[self.partner[first]]], axis=1),
            outside=np.stack([rows[left[placed]], other[placed]], axis=1),
            alone=rows[left[~placed]],
        )


@njit(cache=True, nogil=True)
def pair_groups(bounds: Rows, areas: Codes) -> Rows:
    """Return the partner of each record, or −1. Group g spans ``bounds[g]`` to ``bounds[g + 1]``.

    >>> pair_groups(np.array([0, 4, 5]), np.array([1, 1, 2, 3, 1], np.uint8)).tolist()
    [3, 2, 1, 0, -1]
    """
    partner = np.full(len(areas), -1, dtype=np.int64)
    wait = np.empty(len(areas), dtype=np.int64)
    made = np.empty((len(areas) // 2 + 1, 2), dtype=np.int64)
    for g in range(len(bounds) - 1):
        waiting, pairs = 0, 0
        for i in range(bounds[g], bounds[g + 1]):
            if waiting == 0 or areas[wait[waiting - 1]] == areas[i]:
                wait[waiting] = i
                waiting += 1
            else:
                waiting -= 1
                made[pairs, 0], made[pairs, 1] = wait[waiting], i
                pairs += 1
        opened = pairs
        while waiting >= 2 and opened > 0:
            opened -= 1
            a, b = made[opened, 0], made[opened, 1]
            area = areas[wait[0]]
            if areas[a] != area and areas[b] != area:
                waiting -= 2
                made[opened, 1] = wait[waiting]
                made[pairs, 0], made[pairs, 1] = b, wait[waiting + 1]
                pairs += 1
        for p in range(pairs):
            partner[made[p, 0]] = made[p, 1]
            partner[made[p, 1]] = made[p, 0]
    return partner


def _blocks(identity: Identity) -> Words:
    return keyed.integer_blocks(identity.view(np.int64)) if identity.ndim == 1 else identity.view(np.uint64)


def _table(names: Words, chosen: Rows) -> npt.NDArray[np.int32]:
    """Build an open-addressing table of some of the codes: a slot holds number + 1, or 0."""
    slots = np.zeros(1 << max(2, (4 * len(chosen)).bit_length()), np.int32)
    _enter(names, chosen, slots)
    return slots


@njit(cache=True, nogil=True, inline="always")
def _group_of(code, names, slots):  # type: ignore[no-untyped-def]
    """Return the number of a code in the table, or −1."""
    mask = np.uint64(slots.size - 1)
    slot = scramble(code) & mask
    while slots[slot] != 0 and names[slots[slot] - 1] != code:
        slot = (slot + _ONE) & mask
    return slots[slot] - 1


def _bitmap(names: Words) -> npt.NDArray[np.bool_]:
    """Mark the hashes that occur: small enough for the fastest cache, so that most records need no table lookup."""
    marks = np.zeros(1 << 15, dtype=np.bool_)
    _set_marks(names, marks)
    return marks


@njit(cache=True, nogil=True)
def _set_marks(names, marks):  # type: ignore[no-untyped-def]
    for name in names:
        marks[scramble(name) >> _MARK_SHIFT] = True


@njit(cache=True, nogil=True)
def _matching(codes, skipped, names, slots, marks):  # type: ignore[no-untyped-def]
    rows = np.empty(1024, np.int64)
    found = 0
    for i in range(codes.size):
        if not marks[scramble(codes[i]) >> _MARK_SHIFT]:
            continue
        if _group_of(codes[i], names, slots) >= 0 and not skipped[i]:
            if found == rows.size:
                rows = np.concatenate((rows, np.empty_like(rows)))
            rows[found] = i
            found += 1
    return rows[:found].copy()


@njit(cache=True, nogil=True)
def _enter(names, chosen, slots):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for j in chosen:
        slot = scramble(names[j]) & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = j + 1


@njit(cache=True, nogil=True)
def _place(rows, codes, areas, names, slots, own, first, wanted, same, other):  # type: ignore[no-untyped-def]
    """Let candidates, in order, become partners of the records that want one."""
    for i in range(rows.size):
        g = _group_of(codes[i], names, slots)
        if g < 0:
            continue
        if areas[i] == own[g]:
            if same[g] < 0:
                same[g] = rows[i]
        elif wanted[g] > 0:
            wanted[g] -= 1
            end = first[g + 1] if g + 1 < first.size else other.size
            other[end - 1 - wanted[g]] = rows[i]


@njit(cache=True, nogil=True)
def _open_pairs(bounds, areas, partner, left, first, wanted, same, other):  # type: ignore[no-untyped-def]
    """Open a pair so that both the record left over and one of the pair find a partner (last case of claim 2)."""
    for g in range(first.size):
        end = first[g + 1] if g + 1 < first.size else left.size
        if wanted[g] != 1 or end - first[g] != 1 or same[g] < 0:
            continue
        alone = left[first[g]]
        group = np.searchsorted(bounds, alone, side="right") - 1
        for i in range(bounds[group], bounds[group + 1]):
            j = partner[i]
            if j > i and areas[i] != areas[alone] and areas[j] != areas[alone]:
                partner[i], partner[alone], partner[j] = alone, i, -1
                left[first[g]] = j
                other[first[g]] = same[g]
                wanted[g] = 0
                break
