"""Update estimates from the pairs moved: totals, means, shares and ratios by domain, as :mod:`quick` does counts.

A swap changes an estimate only through the records it touches: their domain, their values, or both. The sums before are
made once; each candidate adds what its pairs change. The cost grows with the pairs, not with the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Floats, Int64s
from safeswap.measures.survey import Quotient, divide, read_design
from safeswap.measures.utility.indicators import (
    Line,
    LineMeasure,
    line_scale,
    missing_levels,
    read_values,
    shown_domains,
)
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison

_ROUNDING = 1e-12  # as where estimates are made from whole files


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
    """What a group of swaps exchanges, per line."""

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
