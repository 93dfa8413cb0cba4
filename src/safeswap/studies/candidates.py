"""Score a candidate from the records it touches, without making the masked file.

Cells that no touched record leaves or enters keep their count, so every measure equals its value before plus the
change in the touched cells. The cost of a candidate grows with the number of its pairs, not the number of records.

With several rates, the pairs of a smaller rate are the first pairs of a larger one, so counts carry over from one rate
to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells as counting
from safeswap.arrays.compiled import njit
from safeswap.arrays.two_way import (
    MEASURES,
    X_LOG_X,
    TwoWay,
    count_two_way,
    first_pairs,
    locate_cells,
    moves,
    score_tables,
    times_log,
)
from safeswap.arrays.types import Codes, Flags, Floats, Int32s, Int64s, UInt32s

SCORES = ("hellinger", "total_variation", "entropy_change", "share_changed")
"""The columns of the cell scores; one n-rule per n follows."""

_DENSE = 1 << 16  # with more possible cells than this, only touched ones are numbered
_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Baseline:
    """Counts of the untouched file, made once and shared by all candidates."""

    records: int
    sizes: Int64s
    strides: Int64s
    counts: Int64s  # one per possible cell if dense, else one per slot of the hash table
    slots: Int64s  # the cell in each slot of the hash table, −1 for a free slot; empty if dense
    places: Int32s  # the position of each possible cell in each 2-way table; empty unless dense
    tables: TwoWay
    smallness: Int64s  # each n of a requested n-rule
    small_records: Int64s  # records in cells of fewer than n before masking

    @property
    def is_dense(self) -> bool:
        """True if every possible cell has its own count."""
        return len(self.slots) == 0

    @cached_property
    def facts(self) -> Facts:
        """The same in the form that kernels take."""
        two = self.tables
        return Facts(
            self.records, self.smallness, self.small_records, self.sizes, self.counts, self.slots, self.places,
            two.attributes, two.first, two.counts, two.expected, two.per_expected, two.steps, two.before, X_LOG_X,
        )  # fmt: skip

    def make_scores(self, candidates: int) -> tuple[Floats, Floats]:
        """Return the arrays that scores are written to: of the cells, and of each table."""
        return (
            np.zeros((candidates, len(SCORES) + len(self.smallness))),
            np.zeros((candidates, len(self.tables), len(MEASURES))),
        )


class Facts(NamedTuple):
    """The fields of a :class:`Baseline` and of its tables."""

    records: int
    smallness: Int64s
    small_records: Int64s
    sizes: Int64s
    counts: Int64s
    slots: Int64s
    places: Int32s
    attributes: Int64s
    first: Int64s
    table_counts: Int64s
    expected: Floats
    per_expected: Floats
    steps: Int64s
    before: Floats
    x_log_x: Floats


class Walks(NamedTuple):
    """Groups of candidates whose pairs come from one order.

    What a group has many of is listed group after group, and ends where ``ends`` says: the numbers of pairs of its
    candidates (ascending), the attributes exchanged, those that must differ, and the tables that can change.
    """

    asked: Int64s
    swapped: Int64s
    differ: Int64s
    tables: Int64s
    ends: Int64s
    every: Flags
    by_stratum: Flags


@dataclass(frozen=True, eq=False)
class Touched:
    """The effect of a candidate: its pairs as positions in ``labels``, the attributes they exchange, and the cells
    between which their records move (see :func:`safeswap.arrays.two_way.moves`)."""

    labels: Codes
    pairs: Int64s
    swapped: Int64s
    old: Int64s
    new: Int64s


def is_countable(cardinalities: Sequence[int]) -> bool:
    """Return whether every possible cell has a 64-bit number, as this way of scoring requires."""
    return prod(cardinalities) <= counting.MOST_CELLS


def strides_of(cardinalities: Sequence[int]) -> Int64s:
    """Return how much a step in each attribute changes the number of a cell.

    >>> strides_of([2, 3, 4]).tolist()
    [12, 4, 1]
    """
    return np.array([prod(cardinalities[i + 1 :]) for i in range(len(cardinalities))], dtype=np.int64)


def count_baseline(columns: Sequence[Codes], cardinalities: Sequence[int], smallness: Sequence[int] = (3,)) -> Baseline:
    """Count all cells and all 2-way tables of the file."""
    sizes = np.maximum(1, np.array(cardinalities, dtype=np.int64))
    strides = strides_of(sizes.tolist())
    counted = counting.count_cells(columns, sizes.tolist())
    occupied, counts = counted.codes.astype(np.int64), counted.counts
    tables = count_two_way(labels_of(occupied, strides, sizes), counts, sizes)
    dense = prod(sizes.tolist()) <= _DENSE
    if dense:
        every = np.arange(prod(sizes.tolist()), dtype=np.int64)
        place = locate_cells(
            labels_of(every, strides, sizes), tables.attributes, tables.first, sizes, np.arange(len(tables))
        )
        slots, table = _EMPTY, np.bincount(occupied, counts, len(every)).astype(np.int64)
    else:
        place = np.zeros((0, len(tables)), dtype=np.int32)
        slots, table = make_hash_table(occupied, counts)
    return Baseline(
        records=len(columns[0]),
        sizes=sizes,
        strides=strides,
        counts=table,
        slots=slots,
        places=place,
        tables=tables,
        smallness=np.array(smallness, dtype=np.int64),
        small_records=np.array([counts[counts < n].sum() for n in smallness], dtype=np.int64),
    )


def score(base: Baseline, touched: Touched, pairs: Int64s, tables: Int64s) -> tuple[Floats, Floats]:
    """Score the candidate after each number of pairs (ascending): a row each, columns :data:`SCORES`, then n-rules.

    The second array holds the measures of the given 2-way tables: (numbers of pairs, all tables, measures), zero for
    tables not given.
    """
    if len(pairs) and 2 * pairs[-1] > len(touched.old):
        raise ValueError("more pairs requested than there are")  # compiled code does not check bounds
    scores, of_tables = base.make_scores(len(pairs))
    _score_pairs(
        base.facts, touched.labels, touched.pairs, touched.swapped, touched.old, touched.new, pairs, tables, scores,
        of_tables,
    )  # fmt: skip
    return scores, of_tables


def score_walks(
    base: Baseline, order: tuple[Codes, Int64s, UInt32s, int], strides: Int64s, walks: Walks
) -> tuple[Floats, Floats, Flags]:
    """Find the pairs of several groups, and score their candidates as :func:`score` does; flag groups with too few.

    ``order`` has the labels, cells and strata of the first records, and the number of strata. One call does the work of
    many: threads that score different orders hardly ever wait for each other in Python.
    """
    scores, of_tables = base.make_scores(len(walks.asked))
    is_short = np.zeros(len(walks.ends), dtype=np.bool_)
    _score_walks(base.facts, *order, strides, walks, scores, of_tables, is_short)
    return scores, of_tables, is_short


def labels_of(codes: Int64s, strides: Int64s, sizes: Int64s) -> npt.NDArray[np.uint32]:
    """Return the labels of cells, a row each."""
    return (codes[:, None] // strides % sizes).astype(np.uint32)


@njit(cache=True, nogil=True, inline="always")
def _slot_of(code: int, capacity: int) -> np.int64:
    # The upper bits of the product are the well-mixed ones.
    mixed: np.int64 = np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(24)) & (capacity - 1)
    return mixed


@njit(cache=True, nogil=True)
def make_hash_table(codes: Int64s, counts: Any) -> tuple[Int64s, Any]:
    """Return a hash table of the occupied cells: the cell and the count, or the sum, of each slot."""
    capacity = 16
    while capacity < 2 * len(codes):
        capacity *= 2
    slots = np.full(capacity, -1, dtype=np.int64)
    table = np.zeros(capacity, dtype=counts.dtype)
    for i in range(len(codes)):
        slot = _slot_of(codes[i], capacity)
        while slots[slot] >= 0:
            slot = (slot + 1) & (capacity - 1)
        slots[slot] = codes[i]
        table[slot] = counts[i]
    return slots, table


@njit(cache=True, nogil=True)
def localise(old: Int64s, new: Int64s, slots: Int64s, table: Any) -> tuple[Int64s, Int64s, Any, Int64s]:
    """Number the touched cells, so that arrays of that length suffice.

    Returns both sides renumbered, the count of each touched cell before, and the move in which it was first seen (its
    complement if as the cell moved to).
    """
    capacity = 16
    while capacity < 4 * (len(old) + 1):
        capacity *= 2
    place = np.full(capacity, -1, dtype=np.int64)
    codes = np.empty(2 * len(old), dtype=np.int64)
    seen = np.empty(2 * len(old), dtype=np.int64)
    number = 0
    local = np.empty((2, len(old)), dtype=np.int64)
    for i in range(len(old)):
        for side in range(2):
            code = old[i] if side == 0 else new[i]
            slot = _slot_of(code, capacity)
            while place[slot] >= 0 and codes[place[slot]] != code:
                slot = (slot + 1) & (capacity - 1)
            if place[slot] < 0:
                place[slot] = number
                codes[number] = code
                seen[number] = i if side == 0 else ~i
                number += 1
            local[side, i] = place[slot]
    counts = np.zeros(number, dtype=table.dtype)
    for j in range(number):
        slot = _slot_of(codes[j], len(slots))
        while slots[slot] >= 0 and slots[slot] != codes[j]:
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] >= 0:
            counts[j] = table[slot]
    return local[0], local[1], counts, seen[:number].copy()


@njit(cache=True, nogil=True)
def labels_seen(seen: Int64s, labels: Codes, pairs: Int64s, swapped: Int64s) -> Codes:
    """Return the labels of each touched cell, from the record in which it was first seen."""
    found = np.empty((len(seen), labels.shape[1]), dtype=labels.dtype)
    for j in range(len(seen)):
        move = seen[j] if seen[j] >= 0 else ~seen[j]
        found[j] = labels[pairs[move // 2, move % 2]]
        if seen[j] < 0:
            partner = pairs[move // 2, 1 - move % 2]
            for s in swapped:
                found[j, s] = labels[partner, s]
    return found


@njit(cache=True, nogil=True)
def _score_walks(
    facts: Facts,
    labels: Codes,
    cells: Int64s,
    strata: UInt32s,
    number_of_strata: int,
    strides: Int64s,
    walks: Walks,
    scores: Floats,
    of_tables: Floats,
    is_short: Flags,
) -> None:
    begin = np.zeros(4, dtype=np.int64)
    for g in range(len(walks.ends)):
        end = walks.ends[g]
        asked, swapped = walks.asked[begin[0] : end[0]], walks.swapped[begin[1] : end[1]]
        differ, tables = walks.differ[begin[2] : end[2]], walks.tables[begin[3] : end[3]]
        wanted, here = asked[-1], slice(begin[0], end[0])
        pairs = first_pairs(
            labels, strata, number_of_strata, swapped, walks.every[g], differ, wanted, walks.by_stratum[g]
        )
        is_short[g] = len(pairs) < wanted
        if not is_short[g]:
            old, new = moves(labels, cells, pairs, swapped, strides)
            _score_pairs(facts, labels, pairs, swapped, old, new, asked, tables, scores[here], of_tables[here])
        begin = end


@njit(cache=True, nogil=True)
def _score_pairs(
    facts: Facts,
    labels: Codes,
    pairs: Int64s,
    swapped: Int64s,
    old: Int64s,
    new: Int64s,
    asked: Int64s,
    tables: Int64s,
    scores: Floats,
    of_tables: Floats,
) -> None:
    if len(facts.slots) == 0:
        _score(facts, facts.counts, old, new, asked, facts.places, tables, tables, scores, of_tables)
        return
    near, now, counts, seen = localise(old, new, facts.slots, facts.counts)
    found = labels_seen(seen, labels, pairs, swapped)
    place = locate_cells(found, facts.attributes, facts.first, facts.sizes, tables)
    _score(facts, counts, near, now, asked, place, np.arange(len(tables)), tables, scores, of_tables)


@njit(cache=True, nogil=True)
def _score(
    facts: Facts,
    counts: Int64s,
    old: Int64s,
    new: Int64s,
    asked: Int64s,
    place: Int32s,
    column: Int64s,
    chosen: Int64s,
    scores: Floats,
    of_tables: Floats,
) -> None:
    records = facts.records
    left = np.zeros(len(counts), dtype=np.int32)
    came = np.zeros(len(counts), dtype=np.int32)
    touched = np.empty(min(len(counts), 2 * len(old)), dtype=np.int64)
    number = 0
    change = np.zeros(len(facts.table_counts), dtype=np.int64)
    done = 0
    moved = 0
    for c in range(len(asked)):
        for i in range(done, 2 * asked[c]):
            a, b = old[i], new[i]
            moved += a != b
            if left[a] == 0 and came[a] == 0:
                touched[number] = a
                number += 1
            left[a] += 1
            if left[b] == 0 and came[b] == 0:
                touched[number] = b
                number += 1
            came[b] += 1
        done = 2 * asked[c]
        _score_cells(scores[c], records, counts, left, came, touched[:number], facts.x_log_x)
        scores[c, 3] = moved / records if records else 0.0
        for j in range(len(facts.smallness)):
            at_risk = _at_risk(facts.smallness[j], facts.small_records[j], counts, left, came, touched[:number])
            scores[c, 4 + j] = at_risk / (records - done) if records > done else 0.0
        for cell in touched[:number]:
            delta = np.int64(came[cell]) - np.int64(left[cell])
            if delta:
                for t in column:
                    change[place[cell, t]] += delta
        score_tables(
            of_tables[c], records, chosen, facts.first, facts.table_counts, facts.expected, facts.per_expected,
            facts.steps, facts.before, facts.x_log_x, change,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _score_cells(
    out: Floats, records: int, counts: Int64s, left: Int32s, came: Int32s, touched: Int64s, x_log_x: Floats
) -> None:
    hellinger = 0.0
    variation = 0
    entropy = 0.0
    for cell in touched:
        before = counts[cell]
        after = before - left[cell] + came[cell]
        if after != before:
            variation += abs(after - before)
            root = np.sqrt(float(before)) - np.sqrt(float(after))
            hellinger += root * root
            entropy += times_log(before, x_log_x) - times_log(after, x_log_x)
    if records:
        out[0] = np.sqrt(0.5 * hellinger / records)
        out[1] = 0.5 * variation / records
        out[2] = entropy / records


@njit(cache=True, nogil=True)
def _at_risk(n: int, small: int, counts: Int64s, left: Int32s, came: Int32s, touched: Int64s) -> int:
    """Count untouched records in cells of 1 to n − 1 records after masking."""
    at_risk = small
    for cell in touched:
        before = counts[cell]
        after = before - left[cell] + came[cell]
        if before < n:
            at_risk -= before
        if after < n:
            at_risk += before - left[cell]
    return at_risk
