"""Score a candidate from the records it touches, without making the masked file.

Cells that no touched record leaves or enters keep their count, so every measure is its value before plus what the
touched cells change. Of the 2-way tables only those with one exchanged and one other attribute can change. The cost
of a candidate follows the number of its pairs, not the number of records.

Where several rates are asked for, the pairs of a smaller rate are the first pairs of a larger one: the counts are
carried forward from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
from numba import njit

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint32]

SCORES = ("n_rule", "hellinger", "total_variation", "entropy_change")
TABLE_MEASURES = ("hellinger", "total_variation", "entropy_change", "adV", "adC")

_DENSE = 1 << 16  # above this many possible cells, only touched ones are numbered


@dataclass(frozen=True, eq=False)
class Baseline:
    """What the file is like before: counted once and shared by all candidates."""

    records: int
    cardinalities: Int64s
    strides: Int64s
    cells: Int64s  # occupied cells, ascending; empty where counts are dense
    counts: Int64s  # their counts; one per possible cell where counts are dense
    labels: Labels  # the labels of every possible cell, a row each, where counts are dense
    tables: Int64s  # (attribute a, attribute b, first place in table_counts), a row per 2-way table
    table_counts: Int64s
    table_before: Floats  # (Cramér's V, contingency C) of each table
    smallness: int  # the n of the n-rule
    small_records: int  # records in cells of fewer than n, before

    @property
    def is_dense(self) -> bool:
        """Whether counts has a place for every possible cell."""
        return len(self.cells) == 0


def fits(cardinalities: list[int]) -> bool:
    """Whether every possible cell has a number of 64 bits, as the quick way needs."""
    return prod(cardinalities) <= 1 << 62


def baseline(columns: list[Labels], cardinalities: list[int], smallness: int) -> Baseline:
    """Count the file once: all cells, and all 2-way tables."""
    from safeswap.kernels import cells as counting

    sizes = np.array(cardinalities, dtype=np.int64)
    strides = np.array([prod(cardinalities[i + 1 :]) for i in range(len(cardinalities))], dtype=np.int64)
    counted = counting.cell_counts(columns, cardinalities)
    occupied, counts = counted.codes.astype(np.int64), counted.counts
    small = int(counts[counts < smallness].sum())
    if prod(cardinalities) <= _DENSE:
        dense = np.zeros(prod(cardinalities), dtype=np.int64)
        dense[occupied] = counts
        tables, table_counts = _two_way(occupied, counts, strides, sizes)
        occupied, counts = np.zeros(0, dtype=np.int64), dense
        labels = _labels_of(np.arange(len(dense)), strides, sizes)
    else:
        tables, table_counts = _two_way(occupied, counts, strides, sizes)
        labels = np.zeros((0, len(sizes)), dtype=np.uint32)
    before = np.array([_association(table_counts, t, sizes) for t in tables]).reshape(len(tables), 2)
    return Baseline(
        len(columns[0]), sizes, strides, occupied, counts, labels, tables, table_counts, before, smallness, small
    )


def _labels_of(codes: Int64s, strides: Int64s, sizes: Int64s) -> Labels:
    return (codes[:, None] // strides % sizes).astype(np.uint32)


@njit(cache=True, nogil=True)
def _two_way(occupied: Int64s, counts: Int64s, strides: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
    attributes = len(sizes)
    tables = np.empty((attributes * (attributes - 1) // 2, 3), dtype=np.int64)
    total = 0
    t = 0
    for a in range(attributes):
        for b in range(a + 1, attributes):
            tables[t, 0], tables[t, 1], tables[t, 2] = a, b, total
            total += sizes[a] * sizes[b]
            t += 1
    table_counts = np.zeros(total, dtype=np.int64)
    digits = np.empty(attributes, dtype=np.int64)
    for i in range(len(occupied)):
        for a in range(attributes):
            digits[a] = occupied[i] // strides[a] % sizes[a]
        for t in range(len(tables)):
            a, b = tables[t, 0], tables[t, 1]
            table_counts[tables[t, 2] + digits[a] * sizes[b] + digits[b]] += counts[i]
    return tables, table_counts


@njit(cache=True, nogil=True)
def _association(table_counts: Int64s, table: Int64s, sizes: Int64s) -> tuple[float, float]:
    """Cramér's V and the contingency coefficient C of one table."""
    m, n = sizes[table[0]], sizes[table[1]]
    rows = np.zeros(m)
    columns = np.zeros(n)
    for i in range(m):
        for j in range(n):
            x = table_counts[table[2] + i * n + j]
            rows[i] += x
            columns[j] += x
    total = rows.sum()
    chi = 0.0
    for i in range(m):
        for j in range(n):
            expected = rows[i] * columns[j]
            if expected > 0:
                x = float(table_counts[table[2] + i * n + j])
                chi += x * x / expected
    chi = max(0.0, total * (chi - 1.0))
    used = min((rows > 0).sum(), (columns > 0).sum()) - 1
    if used < 1:
        return 0.0, 0.0
    return np.sqrt(chi / (total * used)), np.sqrt(chi / (chi + total))


@njit(cache=True, nogil=True)
def moves(cells: Int64s, labels: Labels, pairs: Int64s, swapped: Int64s, strides: Int64s) -> tuple[Int64s, Int64s]:
    """The cell of each touched record before and after; records of pair i stand at 2i and 2i + 1."""
    old = np.empty(2 * len(pairs), dtype=np.int64)
    new = np.empty(2 * len(pairs), dtype=np.int64)
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        shift = 0
        for s in swapped:
            shift += (np.int64(labels[s, b]) - np.int64(labels[s, a])) * strides[s]
        old[2 * i] = cells[a]
        old[2 * i + 1] = cells[b]
        new[2 * i] = cells[a] + shift
        new[2 * i + 1] = cells[b] - shift
    return old, new


def score(
    base: Baseline, old: Int64s, new: Int64s, checkpoints: Int64s, swapped: Int64s, *, with_tables: bool
) -> tuple[Floats, Floats]:
    """Scores after so many touched records: a row per checkpoint, the columns of :data:`SCORES`, and the 2-way tables.

    The tables have the shape (checkpoints, tables, :data:`TABLE_MEASURES`).
    """
    if base.is_dense:
        local_old, local_new, labels, counts = old, new, base.labels, base.counts
    else:
        local_old, local_new, codes, counts = _localise(old, new, base.cells, base.counts)
        labels = _labels_of(codes, base.strides, base.cardinalities)
    involved = np.zeros(len(base.cardinalities), dtype=np.bool_)
    involved[swapped] = True
    chosen = (
        np.flatnonzero(involved[base.tables[:, 0]] != involved[base.tables[:, 1]])
        if with_tables
        else np.zeros(0, dtype=np.int64)
    )
    return _score(
        base.records,
        base.smallness,
        base.small_records,
        base.cardinalities,
        base.tables,
        base.table_counts,
        base.table_before,
        chosen,
        counts,
        labels,
        local_old,
        local_new,
        checkpoints,
    )


@njit(cache=True, nogil=True)
def _localise(old: Int64s, new: Int64s, cells: Int64s, counts: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Number the cells that are touched, with the count of each before, so that arrays of that length suffice."""
    capacity = 16
    while capacity < 4 * (len(old) + 1):
        capacity *= 2
    place = np.full(capacity, -1, dtype=np.int64)
    codes = np.empty(2 * len(old), dtype=np.int64)
    before = np.empty(2 * len(old), dtype=np.int64)
    number = 0
    result = np.empty((2, len(old)), dtype=np.int64)
    for side in range(2):
        source = old if side == 0 else new
        for i in range(len(source)):
            code = source[i]
            slot = (np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & np.uint64(capacity - 1)
            while place[slot] >= 0 and codes[place[slot]] != code:
                slot = (slot + np.uint64(1)) & np.uint64(capacity - 1)
            if place[slot] < 0:
                place[slot] = number
                codes[number] = code
                at = np.searchsorted(cells, code)
                before[number] = counts[at] if at < len(cells) and cells[at] == code else 0
                number += 1
            result[side, i] = place[slot]
    return result[0], result[1], codes[:number].copy(), before[:number].copy()


@njit(cache=True, nogil=True)
def _score(
    records: int,
    smallness: int,
    small_records: int,
    sizes: Int64s,
    tables: Int64s,
    table_counts: Int64s,
    table_before: Floats,
    chosen: Int64s,
    counts: Int64s,
    labels: Labels,
    old: Int64s,
    new: Int64s,
    checkpoints: Int64s,
) -> tuple[Floats, Floats]:
    left = np.zeros(len(counts), dtype=np.int32)
    came = np.zeros(len(counts), dtype=np.int32)
    touched = np.empty(min(len(counts), 2 * len(old)), dtype=np.int64)
    number = 0
    scores = np.zeros((len(checkpoints), 4))
    table_scores = np.zeros((len(checkpoints), len(tables), 5))
    change = np.zeros(len(table_counts), dtype=np.int64)
    done = 0
    for c in range(len(checkpoints)):
        for i in range(done, checkpoints[c]):
            a, b = old[i], new[i]
            if left[a] == 0 and came[a] == 0:
                touched[number] = a
                number += 1
            left[a] += 1
            if left[b] == 0 and came[b] == 0:
                touched[number] = b
                number += 1
            came[b] += 1
        done = checkpoints[c]
        _score_cells(scores[c], records, smallness, small_records, done, counts, left, came, touched[:number])
        if len(chosen):
            _score_tables(
                table_scores[c], records, sizes, tables, table_counts, table_before, chosen, labels, left, came,
                touched[:number], change,
            )  # fmt: skip
    return scores, table_scores


@njit(cache=True, nogil=True)
def _score_cells(
    out: Floats,
    records: int,
    smallness: int,
    small_records: int,
    done: int,
    counts: Int64s,
    left: npt.NDArray[np.int32],
    came: npt.NDArray[np.int32],
    touched: Int64s,
) -> None:
    hellinger = 0.0
    variation = 0
    entropy = 0.0
    at_risk = small_records
    for cell in touched:
        before = counts[cell]
        after = before - left[cell] + came[cell]
        if before < smallness:
            at_risk -= before
        if 0 < after < smallness:
            at_risk += before - left[cell]
        if after != before:
            variation += abs(after - before)
            root = np.sqrt(float(before)) - np.sqrt(float(after))
            hellinger += root * root
            entropy += _x_log_x(before) - _x_log_x(after)
    unswapped = records - done
    out[0] = at_risk / unswapped if unswapped else 0.0
    out[1] = np.sqrt(0.5 * hellinger / records)
    out[2] = 0.5 * variation / records
    out[3] = entropy / records


_X_LOG_X = np.r_[0.0, np.arange(1, 4096) * np.log(np.arange(1, 4096))]


@njit(cache=True, nogil=True, inline="always")
def _x_log_x(count: int) -> float:
    value: float = _X_LOG_X[count] if count < 4096 else count * np.log(float(count))
    return value


@njit(cache=True, nogil=True)
def _score_tables(
    out: Floats,
    records: int,
    sizes: Int64s,
    tables: Int64s,
    table_counts: Int64s,
    table_before: Floats,
    chosen: Int64s,
    labels: Labels,
    left: npt.NDArray[np.int32],
    came: npt.NDArray[np.int32],
    touched: Int64s,
    change: Int64s,
) -> None:
    """All 2-way tables that can have changed. ``change`` comes and goes as zeros."""
    for cell in touched:
        delta = np.int64(came[cell]) - np.int64(left[cell])
        if delta == 0:
            continue
        for t in chosen:
            a, b = tables[t, 0], tables[t, 1]
            change[tables[t, 2] + labels[cell, a] * sizes[b] + labels[cell, b]] += delta
    for t in chosen:
        _score_table(out[t], records, sizes, tables[t], table_counts, table_before[t], change)


@njit(cache=True, nogil=True)
def _score_table(
    out: Floats,
    records: int,
    sizes: Int64s,
    table: Int64s,
    table_counts: Int64s,
    before: Floats,
    change: Int64s,
) -> None:
    m, n, first = sizes[table[0]], sizes[table[1]], table[2]
    rows = np.zeros(m)
    columns = np.zeros(n)
    hellinger = 0.0
    variation = 0
    entropy = 0.0
    for i in range(m):
        for j in range(n):
            place = first + i * n + j
            was = table_counts[place]
            delta = change[place]
            now = was + delta
            rows[i] += now
            columns[j] += now
            if delta:
                variation += abs(delta)
                root = np.sqrt(float(was)) - np.sqrt(float(now))
                hellinger += root * root
                entropy += _x_log_x(was) - _x_log_x(now)
    chi = 0.0
    for i in range(m):
        for j in range(n):
            place = first + i * n + j
            now = float(table_counts[place] + change[place])
            change[place] = 0
            if now > 0:
                chi += now * now / (rows[i] * columns[j])
    chi = max(0.0, records * (chi - 1.0))
    used = min((rows > 0).sum(), (columns > 0).sum()) - 1
    out[0] = np.sqrt(0.5 * hellinger / records)
    out[1] = 0.5 * variation / records
    out[2] = entropy / records
    if used >= 1:
        out[3] = before[0] - np.sqrt(chi / (records * used))
        out[4] = before[1] - np.sqrt(chi / (chi + records))
