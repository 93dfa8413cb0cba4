"""Update estimates and weighted tables from the pairs moved, as :mod:`safeswap.studies.quick` does counts.

A swap changes an estimate only through the records it touches: their domain, their values, or both. The sums before are
made once; each candidate adds what its pairs change. The cost grows with the pairs, not with the records.

A record keeps its weight when its values move, so the total weight stays, and a cell gains and loses the weights of the
records that enter and leave it. Weighted one-way margins do move: the sums expected under independence are computed
again for every candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from safeswap.arrays import cells as counting
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.two_way import TwoWay, count_tables, locate_cells
from safeswap.arrays.types import Codes, Flags, Floats, Int32s, Int64s
from safeswap.measures.survey import Quotient, divide, positive_weights, read_design, sum_by
from safeswap.measures.utility.estimates import (
    Line,
    LineMeasure,
    line_scale,
    missing_levels,
    read_values,
    shown_domains,
)
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison
from safeswap.studies.candidates import Baseline, Touched, labels_of, labels_seen, localise, make_hash_table

_ROUNDING = 1e-12  # of what came and went, as where estimates are made from whole files: what is below is no change


class Lines(NamedTuple):
    """The estimates as arrays: per line its two values, its domains, and the attributes that make these."""

    top_value: Int64s  # columns of the values
    bottom_value: Int64s
    has_bottom: Flags
    by_first: Int64s  # where the attributes of each line begin
    by_column: Int64s  # columns of the labels
    by_size: Int64s
    by_lookup: Int64s  # where the place of each label begins
    lookup: Int64s  # the place of a label among the domain's levels; −1 for no answer
    domain_first: Int64s  # where the domains of each line begin
    top: Floats
    bottom: Floats
    per_scale: Floats  # one over what the change is relative to; 0 for a domain that is not shown


class Moved(NamedTuple):
    """The values that a group of swaps exchanges, per line."""

    lines: Int64s
    top: Flags
    bottom: Flags
    by: Flags


class LineScorer:
    """The largest change of some estimates, from the pairs of a candidate."""

    def __init__(self, data: Microdata, measure: LineMeasure, keys: Names, names: Names) -> None:
        seen = Comparison(before=data, after=data, attributes=keys)
        self._lines = measure.lines_for(seen)
        self._moved: dict[Names, Moved] = {}
        design = read_design(
            data,
            weight=measure.weight,
            weighted=measure.weighted,
            collapse=getattr(measure, "collapse", False),
            replicate_scale=getattr(measure, "replicate_scale", None),
        )
        self._weights = design.weights
        used = dict.fromkeys(value for line in self._lines for value in ((line.of, line.level), (line.per, None)))
        places = {value: place for place, value in enumerate(used)}
        self._values = np.stack([read_values(seen, *value)[0] for value in used], axis=1)
        parts, lookups, position = [], [], 0
        for line in self._lines:
            part, lookup = self._prepare(seen, line, names, position)
            position += sum(map(len, lookup))
            parts.append(part)
            lookups += lookup
        sums = []
        for line, part in zip(self._lines, parts, strict=True):
            quotient = self._quotient(line, places, part, lookups, data, names)
            top, bottom = quotient.sums(design.weights)
            before = divide(top, bottom)
            if measure.in_unit == "errors":
                scale = np.sqrt(quotient.variances(design))
            else:
                scale = np.where(
                    before != 0, np.abs(before), line_scale(before[shown_domains(quotient, measure.shown_from)])
                )
            shown = shown_domains(quotient, measure.shown_from) & np.isfinite(before) & np.isfinite(scale) & (scale > 0)
            sums.append((top, bottom, np.where(shown, 1 / np.where(shown, scale, 1.0), 0.0)))
        self.arrays = Lines(
            top_value=np.array([places[line.of, line.level] for line in self._lines], dtype=np.int64),
            bottom_value=np.array([places[line.per, None] for line in self._lines], dtype=np.int64),
            has_bottom=np.array([line.statistic != "total" for line in self._lines]),
            by_first=_starts([len(line.by) for line in self._lines]),
            by_column=np.array([names.index(name) for line in self._lines for name in line.by], dtype=np.int64),
            by_size=np.array([size for part in parts for size, _ in part], dtype=np.int64),
            by_lookup=np.array([start for part in parts for _, start in part], dtype=np.int64),
            lookup=np.concatenate([*lookups, np.zeros(0, dtype=np.int64)]),
            domain_first=_starts([len(top) for top, _, _ in sums]),
            top=np.concatenate([top for top, _, _ in sums]),
            bottom=np.concatenate([bottom for _, bottom, _ in sums]),
            per_scale=np.concatenate([scale for _, _, scale in sums]),
        )

    @staticmethod
    def _prepare(
        seen: Comparison, line: Line, names: Names, position: int
    ) -> tuple[list[tuple[int, int]], list[Int64s]]:
        """Return the number of levels of each attribute of the domains, where its lookup begins, and the lookups."""
        part, lookups = [], []
        for name in line.by:
            coded = seen.before.coded(name)
            missing = missing_levels(seen, name, coded.levels)
            lookups.append(np.where(missing, -1, np.arange(len(missing))))
            part.append((max(1, len(coded.levels)), position))
            position += len(missing)
        return part, lookups

    def _quotient(
        self, line: Line, places: dict[tuple[str, str | None], int], part: list[tuple[int, int]],
        lookups: list[Int64s], data: Microdata, names: Names,
    ) -> Quotient:  # fmt: skip
        flat = np.concatenate([*lookups, np.zeros(0, dtype=np.int64)])
        domain, number = np.zeros(len(data), dtype=np.int64), 1
        for name, (size, start) in zip(line.by, part, strict=True):
            place = flat[start + data.coded(name).codes.astype(np.int64)]
            domain = np.where((domain < 0) | (place < 0), -1, domain * size + place)
            number *= size
        top, bottom = (self._values[:, places[value]] for value in ((line.of, line.level), (line.per, None)))
        known = ~(np.isnan(top) | np.isnan(bottom))
        return Quotient(
            top=np.where(known, top, 0.0),
            bottom=None if line.statistic == "total" else np.where(known, bottom, 0.0),
            of_domain=domain,
            domains=number,
        )

    def gather(self, rows: Int64s) -> Floats:
        """Return the values of some records, in that order, and their weights as the last column."""
        return np.column_stack([self._values[rows], self._weights[rows]])

    def score(self, numbers: Floats, labels: Codes, pairs: Int64s, asked: Int64s, swapped: Names) -> Floats:
        """Return the largest change after each number of pairs (ascending); ``numbers`` are what was gathered."""
        if swapped not in self._moved:
            self._moved[swapped] = self._find_moved(swapped)
        return _score(self.arrays, self._moved[swapped], numbers, labels, pairs, asked)

    def _find_moved(self, swapped: Names) -> Moved:
        touched = [i for i, line in enumerate(self._lines) if set(line.attributes) & set(swapped)]
        return Moved(
            lines=np.array(touched, dtype=np.int64),
            top=np.array([line.of in swapped for line in self._lines]),
            bottom=np.array([line.per in swapped for line in self._lines]),
            by=np.array([name in swapped for line in self._lines for name in line.by], dtype=np.bool_),
        )


def _starts(sizes: Sequence[int]) -> Int64s:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@njit(cache=True, nogil=True)
def _score(lines: Lines, moved: Moved, numbers: Floats, labels: Codes, pairs: Int64s, asked: Int64s) -> Floats:
    largest = np.zeros(len(asked))
    for line in moved.lines:
        first, last = lines.domain_first[line], lines.domain_first[line + 1]
        change = np.zeros((last - first, 4))  # of numerator and denominator, and their magnitudes
        done = 0
        for c in range(len(asked)):
            for i in range(done, asked[c]):
                _move(lines, moved, numbers, labels, line, pairs[i, 0], pairs[i, 1], change)
                _move(lines, moved, numbers, labels, line, pairs[i, 1], pairs[i, 0], change)
            done = asked[c]
            largest[c] = max(largest[c], _largest(lines, line, first, change))
    return largest


@njit(cache=True, nogil=True, inline="always")
def _move(
    lines: Lines, moved: Moved, numbers: Floats, labels: Codes, line: int, own: int, partner: int, change: Floats
) -> None:
    """Take a record out of its domain with its old values, and put it into its new one with its new values."""
    left = entered = 0
    for b in range(lines.by_first[line], lines.by_first[line + 1]):
        column, start, size = lines.by_column[b], lines.by_lookup[b], lines.by_size[b]
        was = lines.lookup[start + np.int64(labels[own, column])]
        now = lines.lookup[start + np.int64(labels[partner, column])] if moved.by[b] else was
        left = -1 if left < 0 or was < 0 else left * size + was
        entered = -1 if entered < 0 or now < 0 else entered * size + now
    top, bottom = numbers[own, lines.top_value[line]], numbers[own, lines.bottom_value[line]]
    new_top = numbers[partner, lines.top_value[line]] if moved.top[line] else top
    new_bottom = numbers[partner, lines.bottom_value[line]] if moved.bottom[line] else bottom
    if left != entered or top != new_top or bottom != new_bottom:
        weight = numbers[own, numbers.shape[1] - 1]
        _add(change, left, top, bottom, -weight)
        _add(change, entered, new_top, new_bottom, weight)


@njit(cache=True, nogil=True, inline="always")
def _add(change: Floats, domain: int, top: float, bottom: float, weight: float) -> None:
    if domain >= 0 and not np.isnan(top) and not np.isnan(bottom):
        change[domain, 0] += weight * top
        change[domain, 1] += weight * bottom
        change[domain, 2] += abs(weight * top)
        change[domain, 3] += abs(weight * bottom)


@njit(cache=True, nogil=True)
def _largest(lines: Lines, line: int, first: int, change: Floats) -> float:
    found = 0.0
    for d in range(len(change)):
        per_scale = lines.per_scale[first + d]
        if per_scale == 0.0:
            continue
        top = change[d, 0] if abs(change[d, 0]) > _ROUNDING * change[d, 2] else 0.0
        if not lines.has_bottom[line]:
            found = max(found, abs(top) * per_scale)
            continue
        bottom = change[d, 1] if abs(change[d, 1]) > _ROUNDING * change[d, 3] else 0.0
        if top == 0.0 and bottom == 0.0:
            continue
        base = lines.bottom[first + d]
        before, after = lines.top[first + d] / base, base + bottom
        gone = abs(after) <= _ROUNDING * abs(base)
        moved = -before if gone else (top - before * bottom) / after
        found = max(found, abs(moved) * per_scale)
    return found


WEIGHTED_SCORES = ("hellinger", "total_variation", "entropy_change")
"""The columns of the weighted cell scores."""


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
    """The places of cells in the tables that can change: the columns of ``place``, and the tables these stand for."""

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
        return _score_tables(sums, moves, 2 * pairs, Places(place, column, tables), self._tables)


def _columns(data: Microdata, keys: tuple[str, ...]) -> tuple[list[Codes], list[int]]:
    columns, sizes = data.coded_columns(keys)
    return list(columns), [max(1, size) for size in sizes]


@njit(cache=True, nogil=True)
def _score_tables(
    shares: Floats, moves: Moves, checkpoints: Int64s, places: Places, tables: Tables
) -> tuple[Floats, Floats]:
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
            one, other = shares[cell], _update_weight(shares[cell], delta)
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
def _update_weight(before: float, delta: float) -> float:
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
        one, other = tables.shares[p], _update_weight(tables.shares[p], change[p, 0])
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
    """Return Cramér's V and the contingency coefficient C of one table of shares, its rows one after another."""
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
