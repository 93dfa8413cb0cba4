"""All 2-way tables of a file, and how far a candidate changes them.

Swapping keeps every one-way margin, so the counts expected under independence are those of the original file for every
candidate and are computed once. Only tables with one exchanged and one other attribute can change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Codes, Floats, Int32s, Int64s, UInt32s

# Records are in keyed order, a row of labels each, so that a walk reads memory front to back and stops as soon as it
# has its pairs. The pairs are those of :func:`safeswap.arrays.order.walk`, found from the labels themselves, without
# a packed code per choice of attributes.


@njit(cache=True, nogil=True)
def gather(labels: Codes, rows: Int64s, strides: Int64s) -> tuple[Codes, Int64s]:
    """Return the labels of some rows, in that order, and the cell of each: the sum of labels times strides."""
    found = np.empty((len(rows), labels.shape[1]), dtype=labels.dtype)
    cells = np.empty(len(rows), dtype=np.int64)
    for i in range(len(rows)):
        cell = 0
        for a in range(labels.shape[1]):
            label = labels[rows[i], a]
            found[i, a] = label
            cell += np.int64(label) * strides[a]
        cells[i] = cell
    return found, cells


@njit(cache=True, nogil=True)
def first_pairs(
    labels: Codes,
    strata: UInt32s,
    number_of_strata: int,
    swapped: Int64s,
    every: bool,
    differ: Int64s,
    wanted: int,
    by_stratum: bool,
) -> Int64s:
    """Return the first ``wanted`` valid pairs as positions in the order; fewer if the records run out.

    A pair is valid if it differs in any attribute of ``swapped`` (in all of them if ``every``) and in all of
    ``differ``, within a stratum. ``strata`` is empty if there is one stratum. With ``by_stratum`` the consecutive
    records of each stratum are paired, else those of the whole order.
    """
    records = labels.shape[0]
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    waiting = np.full(max(number_of_strata, 1), -1, dtype=np.int64)
    made = 0
    i = 0
    while i < records and made < wanted:
        stratum = np.int64(strata[i]) if len(strata) else 0
        place = stratum if by_stratum else 0
        other = waiting[place]
        if other < 0:
            waiting[place] = i
        else:
            waiting[place] = -1
            if (not len(strata) or strata[other] == strata[i]) and _is_valid_pair(
                labels, other, i, swapped, every, differ
            ):
                pairs[made, 0] = other
                pairs[made, 1] = i
                made += 1
        i += 1
    return pairs[:made]


@njit(cache=True, nogil=True, inline="always")
def _is_valid_pair(labels: Codes, a: int, b: int, swapped: Int64s, every: bool, differ: Int64s) -> bool:
    different = 0
    for s in swapped:
        different += labels[a, s] != labels[b, s]
    if different < (len(swapped) if every else 1):
        return False
    for d in differ:  # noqa: SIM110  (a loop that Numba compiles)
        if labels[a, d] == labels[b, d]:
            return False
    return True


@njit(cache=True, nogil=True)
def moves(labels: Codes, cells: Int64s, pairs: Int64s, swapped: Int64s, strides: Int64s) -> tuple[Int64s, Int64s]:
    """Return the cell of each touched record before and after; the records of pair i are at 2i and 2i + 1."""
    old = np.empty(2 * len(pairs), dtype=np.int64)
    new = np.empty(2 * len(pairs), dtype=np.int64)
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        shift = 0
        for s in swapped:
            shift += (np.int64(labels[b, s]) - np.int64(labels[a, s])) * strides[s]
        old[2 * i] = cells[a]
        old[2 * i + 1] = cells[b]
        new[2 * i] = cells[a] + shift
        new[2 * i + 1] = cells[b] - shift
    return old, new


MEASURES = ("hellinger", "total_variation", "entropy_change", "adV", "adC")

MOST_PLACES = 1 << 20
"""If all tables together have more cells than this, none is kept: a candidate would cost more than its records."""


@dataclass(frozen=True, eq=False)
class TwoWay:
    """The tables before, their cells in one array, table after table."""

    attributes: Int64s  # (a, b), a row per table
    first: Int64s  # the first place of each table, and the end of the last
    counts: Int64s
    per_expected: Floats  # 1 / the count expected under independence; 0 where that is 0
    expected: Floats
    steps: Int64s  # min(m − 1, n − 1) over the non-empty rows and columns
    before: Floats  # (Cramér's V, contingency coefficient C) of each table

    def __len__(self) -> int:
        return len(self.attributes)

    def that_change(self, swapped: Int64s, *, weighted: bool = False) -> Int64s:
        """Return the tables with one exchanged and one other attribute; if weighted, also those of two exchanged."""
        first, second = (np.isin(self.attributes[:, side], swapped) for side in (0, 1))
        return np.flatnonzero(first | second if weighted else first != second)


def count_two_way(occupied: Codes, counts: Int64s, sizes: Int64s) -> TwoWay:
    """Count all 2-way tables from the occupied cells (a row of labels each) and their counts.

    There are none if they would have more than :data:`MOST_PLACES` cells.
    """
    chosen = list(combinations(range(len(sizes)), 2))
    if sum(int(sizes[a]) * int(sizes[b]) for a, b in chosen) > MOST_PLACES:
        chosen = []
    attributes = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    first = np.concatenate([[0], np.cumsum(sizes[attributes].prod(axis=1), dtype=np.int64)])
    table_counts = count_tables(occupied, counts, attributes, first, sizes)
    records = float(counts.sum())
    expected = np.zeros(len(table_counts))
    steps = np.zeros(len(attributes), dtype=np.int64)
    before = np.zeros((len(attributes), 2))
    for t, (a, b) in enumerate(attributes):
        table = table_counts[first[t] : first[t + 1]].reshape(sizes[a], sizes[b])
        rows, columns = table.sum(axis=1), table.sum(axis=0)
        steps[t] = min(np.count_nonzero(rows), np.count_nonzero(columns)) - 1
        if records:
            expected[first[t] : first[t + 1]] = np.outer(rows, columns).ravel() / records
    per_expected = np.divide(1.0, expected, out=np.zeros_like(expected), where=expected > 0)
    made = TwoWay(attributes, first, table_counts, per_expected, expected, steps, before)
    for t in range(len(attributes)):
        before[t] = _association(made.counts, expected, per_expected, first[t], first[t + 1], steps[t], records)
    return made


@njit(cache=True, nogil=True)
def count_tables(occupied: Codes, counts: Any, attributes: Int64s, first: Int64s, sizes: Int64s) -> Any:
    """Sum the counts, or weights, of the occupied cells over every table."""
    table_counts = np.zeros(first[-1], dtype=counts.dtype)
    for i in range(len(counts)):
        for t in range(len(attributes)):
            a, b = attributes[t, 0], attributes[t, 1]
            table_counts[first[t] + np.int64(occupied[i, a]) * sizes[b] + np.int64(occupied[i, b])] += counts[i]
    return table_counts


@njit(cache=True, nogil=True)
def locate_cells(cells: Codes, attributes: Int64s, first: Int64s, sizes: Int64s, chosen: Int64s) -> Int32s:
    """Return the place of each cell (a row of labels) in each chosen table."""
    found = np.empty((len(cells), len(chosen)), dtype=np.int32)
    for i in range(len(cells)):
        for j in range(len(chosen)):
            t = chosen[j]
            a, b = attributes[t, 0], attributes[t, 1]
            found[i, j] = first[t] + np.int64(cells[i, a]) * sizes[b] + np.int64(cells[i, b])
    return found


@njit(cache=True, nogil=True)
def _association(
    counts: Int64s, expected: Floats, per_expected: Floats, start: int, stop: int, steps: int, records: float
) -> tuple[float, float]:
    """Return Cramér's V and the contingency coefficient C of one table."""
    if steps < 1:
        return 0.0, 0.0
    chi = 0.0
    for p in range(start, stop):
        gap = counts[p] - expected[p]
        chi += gap * gap * per_expected[p]
    return min(1.0, np.sqrt(chi / (records * steps))), np.sqrt(chi / (chi + records))


@njit(cache=True, nogil=True)
def score_tables(
    out: Floats,
    records: int,
    chosen: Int64s,
    first: Int64s,
    counts: Int64s,
    expected: Floats,
    per_expected: Floats,
    steps: Int64s,
    before: Floats,
    x_log_x: Floats,
    change: Int64s,
) -> None:
    """Score every chosen table by the change of its counts, into ``out``. ``change`` is reset to zeros."""
    for t in chosen:
        hellinger = 0.0
        variation = 0
        entropy = 0.0
        chi = 0.0
        for p in range(first[t], first[t + 1]):
            was, delta = counts[p], change[p]
            change[p] = 0
            now = was + delta
            gap = now - expected[p]
            chi += gap * gap * per_expected[p]
            if delta:
                variation += abs(delta)
                root = np.sqrt(float(was)) - np.sqrt(float(now))
                hellinger += root * root
                entropy += times_log(was, x_log_x) - times_log(now, x_log_x)
        out[t, 0] = np.sqrt(0.5 * hellinger / records)
        out[t, 1] = 0.5 * variation / records
        out[t, 2] = entropy / records
        if steps[t] >= 1:
            out[t, 3] = before[t, 0] - min(1.0, np.sqrt(chi / (records * steps[t])))
            out[t, 4] = before[t, 1] - np.sqrt(chi / (chi + records))


X_LOG_X: Floats = np.r_[0.0, np.arange(1, 1 << 12) * np.log(np.arange(1, 1 << 12))]
"""x · log x of small counts, tabulated: a lookup is cheaper than a logarithm."""


@njit(cache=True, nogil=True, inline="always")
def times_log(count: int, x_log_x: Floats) -> float:
    """Return x · log x, 0 for 0."""
    value: float = x_log_x[count] if count < len(x_log_x) else count * np.log(float(count))
    return value
