"""Score weighted tables from the pairs moved, as :mod:`candidates` does for counts.

A record keeps its weight when its values move, so the total weight stays, and a cell gains and loses the weights of the
records that enter and leave it. Weighted one-way margins do move: the sums expected under independence are made anew
for every candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safeswap.arrays import cells as counting
from safeswap.arrays.compiled import njit
from safeswap.arrays.two_way import TwoWay, count_tables, locate_cells
from safeswap.arrays.types import Codes, Floats, Int32s, Int64s
from safeswap.measures.survey import positive_weights, sum_by
from safeswap.model.microdata import Microdata
from safeswap.studies.candidates import Baseline, Touched, labels_of, labels_seen, localise, make_hash_table

WEIGHTED_SCORES = ("hellinger", "total_variation", "entropy_change")
"""The columns of the weighted cell scores."""

_ROUNDING = 1e-12  # of the weights that came and went: what is below is no change


class Tables(NamedTuple):
    """The weighted 2-way tables before as shares of the total, their cells in one array, table after table."""

    first: Int64s
    columns: Int64s  # the number of columns of each table
    shares: Floats
    before: Floats  # (Cramér's V, contingency coefficient C) of each table


class Moves(NamedTuple):
    """The cell of each touched record before and after, and its weight."""

    old: Int64s
    new: Int64s
    weights: Floats


class Places(NamedTuple):
    """Where cells lie in the tables that can change: the columns of ``place``, and the tables these stand for."""

    place: Int32s
    column: Int64s
    chosen: Int64s


class WeightScorer:
    """Weighted cells and 2-way tables of the untouched file, and how far a candidate changes them."""

    def __init__(self, data: Microdata, weight: str, base: Baseline, keys: tuple[str, ...]) -> None:
        self._base = base
        weights = positive_weights(data, weight)
        self.weights = weights / weights.sum()  # shares of the total, which no swap changes
        packed, _ = counting.pack(*_columns(data, keys))
        distinct, place = np.unique(packed, return_inverse=True)
        occupied: Int64s = distinct.astype(np.int64)
        sums = sum_by(place, self.weights, len(occupied))
        if base.is_dense:
            self._sums = sum_by(occupied, sums, len(base.counts))
            self._slots = base.slots
        else:
            self._slots, self._sums = make_hash_table(occupied, sums)
        two: TwoWay = base.tables
        shares = count_tables(
            labels_of(occupied, base.strides, base.sizes), sums, two.attributes, two.first, base.sizes
        )
        columns = base.sizes[two.attributes[:, 1]] if len(two) else np.zeros(0, dtype=np.int64)
        parts = [shares[first:last] for first, last in zip(two.first[:-1], two.first[1:], strict=True)]
        before = [_association(part, int(width)) for part, width in zip(parts, columns, strict=True)]
        self._tables = Tables(two.first, columns, shares, np.array(before).reshape(-1, 2))

    def score(self, touched: Touched, weights: Floats, pairs: Int64s, tables: Int64s) -> tuple[Floats, Floats]:
        """Score the candidate after each number of pairs: :data:`WEIGHTED_SCORES`, and the measures of the tables.

        ``weights`` are those of the records that ``touched`` has as labels. The second array is as that of
        :func:`safeswap.studies.candidates.score`.
        """
        base, column = self._base, tables
        if base.is_dense:
            old, new, sums, place = touched.old, touched.new, self._sums, base.places
        else:
            old, new, sums, seen = localise(touched.old, touched.new, self._slots, self._sums)
            labels = labels_seen(seen, touched.labels, touched.pairs, touched.swapped)
            place = locate_cells(labels, base.tables.attributes, base.tables.first, base.sizes, tables)
            column = np.arange(len(tables), dtype=np.int64)
        moves = Moves(old, new, weights[touched.pairs.ravel()])
        return _score(sums, moves, 2 * pairs, Places(place, column, tables), self._tables)


def _columns(data: Microdata, keys: tuple[str, ...]) -> tuple[list[Codes], list[int]]:
    columns, sizes = data.coded_columns(keys)
    return list(columns), [max(1, size) for size in sizes]


@njit(cache=True, nogil=True)
def _score(shares: Floats, moves: Moves, checkpoints: Int64s, places: Places, tables: Tables) -> tuple[Floats, Floats]:
    change = np.zeros(len(shares))
    gross = np.zeros(len(shares))
    touched = np.empty(min(len(shares), 2 * len(moves.old)), dtype=np.int64)
    number = 0
    scores = np.zeros((len(checkpoints), 3))
    table_scores = np.zeros((len(checkpoints), len(tables.first) - 1, 5))
    table_change = np.zeros((len(tables.shares), 2))  # net and gross
    done = 0
    for c in range(len(checkpoints)):
        for i in range(done, checkpoints[c]):
            a, b, weight = moves.old[i], moves.new[i], moves.weights[i]
            if a == b:
                continue
            if gross[a] == 0.0:
                touched[number] = a
                number += 1
            change[a] -= weight
            gross[a] += weight
            if gross[b] == 0.0:
                touched[number] = b
                number += 1
            change[b] += weight
            gross[b] += weight
        done = checkpoints[c]
        table_change[:] = 0.0
        hellinger = variation = entropy = 0.0
        for cell in touched[:number]:
            delta = change[cell] if abs(change[cell]) > _ROUNDING * gross[cell] else 0.0
            if delta == 0.0:
                continue
            one, other = shares[cell], _after(shares[cell], delta)
            hellinger += (np.sqrt(one) - np.sqrt(other)) ** 2
            variation += abs(one - other)
            entropy += _times_log(one) - _times_log(other)
            for t in places.column:
                table_change[places.place[cell, t], 0] += delta
                table_change[places.place[cell, t], 1] += gross[cell]
        scores[c, 0] = np.sqrt(0.5 * hellinger)
        scores[c, 1] = 0.5 * variation
        scores[c, 2] = entropy
        for t in places.chosen:
            _score_table(table_scores[c, t], tables, t, table_change)
    return scores, table_scores


@njit(cache=True, nogil=True, inline="always")
def _after(before: float, delta: float) -> float:
    """Return the weight of a cell after a change; 0 if only rounding is left of it."""
    after = before + delta
    return after if after > _ROUNDING * before else 0.0


@njit(cache=True, nogil=True, inline="always")
def _times_log(share: float) -> float:
    value: float = share * np.log(share) if share > 0.0 else 0.0
    return value


@njit(cache=True, nogil=True)
def _score_table(out: Floats, tables: Tables, t: int, change: Floats) -> None:
    first, last = tables.first[t], tables.first[t + 1]
    now = tables.shares[first:last].copy()
    hellinger = variation = entropy = 0.0
    moved = False
    for p in range(first, last):
        if abs(change[p, 0]) <= _ROUNDING * change[p, 1]:
            continue
        moved = True
        one, other = tables.shares[p], _after(tables.shares[p], change[p, 0])
        now[p - first] = other
        hellinger += (np.sqrt(one) - np.sqrt(other)) ** 2
        variation += abs(one - other)
        entropy += _times_log(one) - _times_log(other)
    if not moved:
        return
    out[0] = np.sqrt(0.5 * hellinger)
    out[1] = 0.5 * variation
    out[2] = entropy
    cramer, contingency = _association(now, tables.columns[t])
    out[3] = tables.before[t, 0] - cramer
    out[4] = tables.before[t, 1] - contingency


@njit(cache=True, nogil=True)
def _association(cells: Floats, columns: int) -> tuple[float, float]:
    """Return Cramér's V and the contingency coefficient C of one table of shares, its rows one after the other."""
    rows = len(cells) // columns
    row_sums, column_sums = np.zeros(rows), np.zeros(columns)
    for i in range(rows):
        for j in range(columns):
            row_sums[i] += cells[i * columns + j]
            column_sums[j] += cells[i * columns + j]
    steps = min(np.count_nonzero(row_sums), np.count_nonzero(column_sums)) - 1
    if steps < 1:
        return 0.0, 0.0
    chi = 0.0
    for i in range(rows):
        for j in range(columns):
            expected = row_sums[i] * column_sums[j]
            if expected > 0.0:
                chi += (cells[i * columns + j] - expected) ** 2 / expected
    return min(1.0, np.sqrt(chi / steps)), np.sqrt(chi / (chi + 1.0))
