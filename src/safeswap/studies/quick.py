"""Score plain swaps quickly, from touched records alone.

All candidates of a replicate share one keyed order of the records; candidates that differ only in the rate share one
walk along it. Each replicate draws all records once; all further work is proportional to the pairs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap import registry
from safeswap.arrays import cells, order, two_way
from safeswap.arrays.names import Names
from safeswap.arrays.two_way import MEASURES as TABLE_MEASURES
from safeswap.arrays.types import Codes, Flags, Floats, Int64s
from safeswap.engines.memory import MemoryRecords
from safeswap.errors import SafeswapError
from safeswap.measures.base import Measure
from safeswap.measures.survey import find_weight, usable_weight
from safeswap.measures.utility.estimates import LineMeasure
from safeswap.methods.exchange import Nesting
from safeswap.methods.swap import check_attributes, draw_pairs, draw_shortfall_error, shortfall_error, stage_key
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata, signed_zeros
from safeswap.model.score import Comparison
from safeswap.model.spec import Plan, SwapSpec
from safeswap.model.study import Figures
from safeswap.studies import candidates
from safeswap.studies.candidates import SCORES
from safeswap.studies.quick_estimates import WEIGHTED_SCORES, LineScorer, WeightScorer


@dataclass(frozen=True)
class QuickMeasure:
    """A measure that touched records determine: a column of the scores, or the mean over the 2-way tables."""

    name: str
    n: int = 0  # of the n-rule
    of_tables: bool = False
    absolute: bool = False
    lines: LineMeasure | None = field(default=None, repr=False)  # estimates that touched records determine
    weight: str = field(default="", repr=False)  # of the tables; counts without one

    def read(self, scores: Floats, tables: Floats, smallness: npt.NDArray[np.int64]) -> Floats:
        """Return the value of each candidate."""
        if self.of_tables:
            # Magnitudes, so that opposite changes do not cancel.
            return np.asarray(np.abs(tables[:, :, TABLE_MEASURES.index(self.name)]).mean(axis=1))
        if self.n:
            return scores[:, len(SCORES) + int(np.searchsorted(smallness, self.n))]
        values = scores[:, (WEIGHTED_SCORES if self.weight else SCORES).index(self.name)]
        return np.abs(values) if self.absolute else values


def as_quick(measure: Measure, weight: str = "") -> QuickMeasure | None:
    """Return how to read the measure off the scores; None if it needs other attributes, other tables or records.

    ``weight`` is that of the file, which tables are weighted by unless the measure says otherwise.

    >>> from safeswap.registry import measure
    >>> as_quick(measure("n_rule:n=5"))
    QuickMeasure(name='n_rule', n=5, of_tables=False, absolute=False)
    >>> as_quick(measure("hellinger:ways=2"))
    QuickMeasure(name='hellinger', n=0, of_tables=True, absolute=False)
    >>> as_quick(measure("n_rule:keys=Age+Sex")) is None
    True
    """
    if isinstance(measure, LineMeasure):
        return QuickMeasure(measure.name, lines=measure) if not measure.has_slow_lines else None
    stated: dict[str, Any] = {name: value for name, value in measure.parameters.items() if value not in ([], None)}
    absolute, weighted = bool(stated.pop("absolute", False)), bool(stated.pop("weighted", False))
    by = weight if weighted else ""
    if weighted and stated.get("weight") == weight:
        del stated["weight"]
    if measure.name == "n_rule" and set(stated) == {"n"}:
        return QuickMeasure(measure.name, n=stated["n"])
    if measure.name in ("adV", "adC") and not stated:
        return QuickMeasure(measure.name, of_tables=True, absolute=absolute, weight=by)
    if measure.name in SCORES and not stated:
        return QuickMeasure(measure.name, absolute=absolute, weight=by)
    if measure.name in TABLE_MEASURES and stated == {"ways": 2}:
        return QuickMeasure(measure.name, of_tables=True, absolute=absolute, weight=by)
    return None


_FEW_RECORDS = 20_000
"""A replicate orders all records of a file up to this size, and only as many as it needs of a larger one."""


@dataclass(frozen=True, eq=False)
class SwapGroup:
    """Swaps that differ only in the rate (ascending), with everything their replicates share."""

    specs: tuple[SwapSpec, ...]
    asked: Int64s  # numbers of pairs
    swapped: Int64s  # the exchanged attributes, as columns of the labels
    differ: Int64s
    tables: Int64s  # the 2-way tables that can change
    refused: tuple[str, ...]  # why the last ones are infeasible whatever the draw, one reason each
    risk: SwapGroup | None = None  # the same swaps, over the keys of a scenario

    @property
    def fixed(self) -> Names:
        """Attributes that must be equal within a pair."""
        return self.specs[0].fixed


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first records of a replicate in keyed order: their rows, labels and cells."""

    share: float
    rows: Int64s
    labels: Codes
    cells: Int64s
    strata: dict[Names, tuple[npt.NDArray[np.uint32], int]] = field(default_factory=dict)
    numbers: dict[LineMeasure, Floats] = field(default_factory=dict)  # values and weights that estimates are made from


class QuickWay:
    """State shared by all replicates: the file as labels, its counts, and how much of the order usually suffices."""

    def __init__(
        self, data: Microdata, keys: Names, further: Names, measures: Sequence[Measure], key: Key, *, tables: bool
    ) -> None:
        self.data = data
        self.keeps_tables = tables
        self.key = key
        self.keys = keys
        self.has_default_keys = keys == data.schema.categorical
        self.records = MemoryRecords(data, key)
        self._nesting = Nesting(self.records)
        self._plans: dict[SwapSpec, Plan] = {}
        self.weight = usable_weight(data)
        self._measures = [as_quick(measure, self.weight) for measure in measures]
        self._of_lines = [each.lines for each in self._measures if each is not None and each.lines is not None]
        seen = Comparison(before=data, after=data, attributes=keys)
        domains = [name for each in self._of_lines for line in each.lines_for(seen) for name in line.by]
        self.names = tuple(dict.fromkeys((*keys, *further, *domains)))
        self.likely_share = 0.0

    @cached_property
    def measures(self) -> list[QuickMeasure] | None:
        """The measures in the form that this fast path scores; None if one of them has no such form."""
        found = [measure for measure in self._measures if measure is not None]
        if len(found) < len(self._measures) or not candidates.is_countable(self.data.coded_columns(self.keys)[1]):
            return None
        needs_tables = any(measure.of_tables for measure in found)
        return None if needs_tables and not len(self.base.tables) else found

    @cached_property
    def base(self) -> candidates.Baseline:
        """The counts before masking."""
        smallness = sorted({measure.n for measure in self._measures if measure and measure.n}) or [3]
        return candidates.count_baseline(*self.data.coded_columns(self.keys), smallness)

    @cached_property
    def scorers(self) -> dict[LineMeasure, LineScorer]:
        """The scorer of each measure of estimates, with their values before masking."""
        return {each: LineScorer(self.data, each, self.keys, self.names) for each in self._of_lines}

    @cached_property
    def weight_scorer(self) -> WeightScorer | None:
        """The scorer of weighted tables, if any are asked for or kept and the file has a weight."""
        asked = self.keeps_tables or any(each is not None and each.weight for each in self._measures)
        return WeightScorer(self.data, self.weight, self.base, self.keys) if self.weight and asked else None

    def moves_weight(self, spec: SwapSpec) -> bool:
        """Return whether a swap exchanges a weight that estimates or tables are made with."""
        weights = [find_weight(self.data.schema, each.weight) for each in self._of_lines if each.weighted]
        return any(weight in spec.swap for weight in (*weights, *((self.weight,) if self.weight else ())))

    @cached_property
    def labels(self) -> Codes:
        """A row of labels per record, in the narrowest type that fits."""
        columns, _ = self.data.coded_columns(self.names)
        kind = np.result_type(*(column.dtype for column in columns))
        matrix = np.empty((len(self.data), len(columns)), dtype=kind)
        for position, column in enumerate(columns):
            matrix[:, position] = column
        return matrix

    @cached_property
    def strides(self) -> Int64s:
        """The stride of each attribute in the cell numbers; 0 if the attribute forms no cells."""
        return np.concatenate([self.base.strides, np.zeros(len(self.names) - len(self.keys), dtype=np.int64)])

    def group(self, specs: tuple[SwapSpec, ...]) -> SwapGroup:
        """Prepare swaps that differ only in the rate."""
        swapped, differ = (self._columns(names) for names in (specs[-1].swap, specs[-1].differ))
        asked = np.array([spec.pairs_for(len(self.data)) for spec in specs], dtype=np.int64)
        return SwapGroup(specs, asked, swapped, differ, self._tables(swapped), self._refusals(specs))

    def has_signed_zeros(self, spec: SwapSpec) -> bool:
        """Return whether an attribute that must differ has both −0.0 and 0.0, distinct as labels but not in swaps."""
        return any(signed_zeros(self.data.coded(name).levels) for name in (*spec.swap, *spec.differ))

    def _refusals(self, specs: tuple[SwapSpec, ...]) -> tuple[str, ...]:
        """Return the reasons why the highest rates are refused: what forbids a rate forbids every higher one."""
        found: list[str] = []
        for spec in reversed(specs):
            try:
                check_attributes(self.data, spec, self._nesting)
            except SafeswapError as error:
                found.insert(0, error.message)
            else:
                break
        return tuple(found)

    def plan(self, spec: SwapSpec) -> Plan:
        """Return the plan of a swap, computed once for all replicates."""
        if spec not in self._plans:
            self._plans[spec] = registry.method("swap").plan(self.data, spec)
        return self._plans[spec]

    def _tables(self, swapped: Int64s) -> Int64s:
        needed = self.keeps_tables or any(measure.of_tables for measure in self.measures or ())
        weighted = self.weight_scorer is not None
        return self.base.tables.that_change(swapped, weighted=weighted) if needed else swapped[:0]

    def _columns(self, names: Names) -> Int64s:
        return np.array([self.names.index(name) for name in names], dtype=np.int64)


class Replicate:
    """One keyed order of the records, extended on demand. Thread-safe."""

    def __init__(self, way: QuickWay, number: int) -> None:
        self._way = way
        self._number = number
        self._key = stage_key(way.data, way.key, stage=0, replicate=number)
        self._prefix: Prefix | None = None
        self._lock = threading.Lock()

    def evaluate_all(self, groups: Sequence[SwapGroup]) -> Figures:
        """Score the candidates of several groups, those that need pairs and counts only in one call of a kernel."""
        way = self._way
        parts: dict[int, Figures] = {}
        if way.weight_scorer is None and not any(measure.lines for measure in way.measures or ()):
            alike: dict[Names, list[int]] = {}
            for position, group in enumerate(groups):
                if not group.refused:
                    alike.setdefault(group.fixed, []).append(position)
            for places in alike.values():
                found, is_short, ends = self._score_walks([groups[place] for place in places])
                if len(places) == len(groups) and not is_short.any():
                    return found
                runs = zip(places, is_short, [0, *ends[:-1]], ends, strict=True)
                parts |= {place: found.rows(np.arange(start, end)) for place, short, start, end in runs if not short}
        return Figures.joined([parts.get(place) or self.evaluate(group) for place, group in enumerate(groups)])

    def _score_walks(self, groups: Sequence[SwapGroup]) -> tuple[Figures, Flags, Int64s]:
        """Score groups with the same fixed attributes; flag those that need more records; tell where each one ends."""
        way = self._way
        listed = [[group.asked, group.swapped, group.differ, group.tables] for group in groups]
        ends = np.cumsum([[len(each) for each in lists] for lists in listed], axis=0)
        asked, swapped, differ, tables = (np.concatenate(each) for each in zip(*listed, strict=True))
        every = np.array([group.specs[0].true_swap == "all" for group in groups])
        by_stratum = np.array([group.specs[0].pairing == "repaired" for group in groups])
        prefix = self._extend_prefix(self._first_guess(int(asked.max())))
        scores, of_tables, is_short = candidates.score_walks(
            way.base,
            (prefix.labels, prefix.cells, *self._strata(prefix, groups[0].fixed)),
            way.strides,
            candidates.Walks(asked, swapped, differ, tables, ends, every, by_stratum),
        )
        self._count_every_change(scores, asked)
        values = [measure.read(scores, of_tables, way.base.smallness) for measure in way.measures or ()]
        return self._as_figures(values, asked, of_tables), is_short, ends[:, 0]

    def evaluate(self, group: SwapGroup) -> Figures:
        """Score the candidates of a group, which need ever more pairs of one walk."""
        allowed = group.asked[: len(group.specs) - len(group.refused)]
        refused = [self._reject(list(group.refused))] if group.refused else []
        if not len(allowed):
            return refused[0]
        prefix, pairs = self.pairs(group, int(allowed[-1]))
        reached = int(np.searchsorted(allowed, len(pairs), side="right"))
        found = self._score(prefix, pairs, group, allowed[:reached])
        short = [self._repair(group, position, len(pairs)) for position in range(reached, len(allowed))]
        return Figures.joined([found, *short, *refused])

    def pairs(self, group: SwapGroup, wanted: int) -> tuple[Prefix, Int64s]:
        """Return the first ``wanted`` pairs of the walk, or as many as there are, as positions in the prefix."""
        spec = group.specs[0]
        every, by_stratum = spec.true_swap == "all", spec.pairing == "repaired"
        prefix = self._extend_prefix(self._first_guess(wanted))
        while True:
            strata, number = self._strata(prefix, group.fixed)
            found = two_way.first_pairs(
                prefix.labels, strata, number, group.swapped, every, group.differ, wanted, by_stratum
            )
            if len(found) >= wanted or prefix.share >= 1.0:
                return prefix, found
            prefix = self._extend_prefix(self._next_guess(prefix, len(found), wanted))

    def _first_guess(self, wanted: int) -> float:
        records = len(self._way.data)
        if records <= _FEW_RECORDS:
            return 1.0
        return max(self._way.likely_share, (2.5 * wanted + 1000) / records)

    def _next_guess(self, prefix: Prefix, found: int, wanted: int) -> float:
        """Extrapolate the share of records that should suffice, with a margin of three standard deviations."""
        needed = wanted * (len(prefix.rows) + 1) / (found + 1)
        return max(1.5 * prefix.share, 1.01 * (needed + 3 * sqrt(needed) + 1000) / len(self._way.data))

    def _extend_prefix(self, share: float) -> Prefix:
        with self._lock:
            if self._prefix is None or self._prefix.share < min(share, 1.0):
                share = 1.0 if share > 0.75 else share
                self._way.likely_share = max(self._way.likely_share, share)
                rows = order.draw_prefix(self._way.records.identity, self._key, share)
                self._prefix = Prefix(share, rows, *two_way.gather(self._way.labels, rows, self._way.strides))
            return self._prefix

    def _strata(self, prefix: Prefix, fixed: Names) -> tuple[npt.NDArray[np.uint32], int]:
        if fixed not in prefix.strata:
            prefix.strata[fixed] = self._make_strata(prefix, fixed)
        return prefix.strata[fixed]

    def _make_strata(self, prefix: Prefix, fixed: Names) -> tuple[npt.NDArray[np.uint32], int]:
        if not fixed:
            return np.zeros(0, dtype=np.uint32), 1
        columns = [np.ascontiguousarray(prefix.labels[:, self._way.names.index(name)]) for name in fixed]
        codes, number = cells.pack(columns, self._way.data.coded_columns(fixed)[1])
        if number > max(4 * len(codes), 1 << 16):  # too many possible strata: number only those that occur
            distinct, places = np.unique(codes, return_inverse=True)
            return places.astype(np.uint32), len(distinct)
        return codes.astype(np.uint32, copy=False), number

    def _score(self, prefix: Prefix, pairs: Int64s, group: SwapGroup, asked: Int64s) -> Figures:
        way = self._way
        old, new = two_way.moves(prefix.labels, prefix.cells, pairs, group.swapped, way.strides)
        done = candidates.Touched(prefix.labels, pairs, group.swapped, old, new)
        scores, tables = candidates.score(way.base, done, asked, group.tables)
        self._count_every_change(scores, asked)
        weighted = way.weight_scorer
        by_weight = (scores, tables)
        if weighted is not None:
            by_weight = weighted.score(done, weighted.weights[prefix.rows], asked, group.tables)
        values = []
        for measure in way.measures or ():
            if measure.lines is not None:
                scorer, swapped = way.scorers[measure.lines], group.specs[-1].swap
                if measure.lines not in prefix.numbers:
                    prefix.numbers[measure.lines] = scorer.gather(prefix.rows)
                numbers = prefix.numbers[measure.lines]
                values.append(scorer.score(numbers, prefix.labels, pairs, asked, swapped))
            else:
                found = by_weight if measure.weight else (scores, tables)
                values.append(measure.read(*found, way.base.smallness))
        return self._as_figures(values, asked, by_weight[1])

    def _count_every_change(self, scores: Floats, asked: Int64s) -> None:
        """With default attributes a change of any column counts, and a true swap changes both records."""
        if self._way.has_default_keys:
            scores[:, candidates.SCORES.index("share_changed")] = 2 * asked / len(self._way.data)

    def _as_figures(self, values: Sequence[Floats], asked: Int64s, tables: Floats) -> Figures:
        scores = np.stack(values, axis=1) if values else np.empty((len(asked), 0))
        return Figures(scores, asked, ("",) * len(asked), tables.astype(np.float32) if self._way.keeps_tables else None)

    def _repair(self, group: SwapGroup, position: int, found: int) -> Figures:
        """Repair a draw with too few pairs, or reject it with the reason, as masking would."""
        way, spec = self._way, group.specs[position]
        plan = way.plan(spec)
        if not plan.is_feasible:
            return self._reject([shortfall_error(plan).message])
        if spec.pairing == "uniform":
            return self._reject([draw_shortfall_error(plan, found, pairing=spec.pairing).message])
        pairs = draw_pairs(way.records, spec, spec.swap, self._key)
        if len(pairs) < plan.asked:
            return self._reject([draw_shortfall_error(plan, len(pairs), pairing=spec.pairing).message])
        rows = pairs.ravel()
        part = Prefix(1.0, rows, *two_way.gather(way.labels, rows, way.strides))
        places = np.arange(len(rows), dtype=np.int64).reshape(-1, 2)
        return self._score(part, places, group, group.asked[position : position + 1])

    def _reject(self, reasons: list[str]) -> Figures:
        tables = (len(self._way.base.tables), len(TABLE_MEASURES)) if self._way.keeps_tables else None
        return Figures.rejected(reasons, measures=len(self._way.measures or ()), tables=tables)
