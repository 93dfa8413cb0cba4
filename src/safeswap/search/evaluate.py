"""From specifications to figures: the quick way from touched records, the general way through any method.

Both give the same numbers. The quick way serves plain swaps and the measures it knows; everything else is masked in
memory, measured and forgotten. No masked file is kept or shown: several draws of one file could be averaged, and
the most frequent value per record would give the original back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from safeswap import registry
from safeswap.engines.identity import record_identity
from safeswap.engines.memory import MemoryEngine, pair_labels
from safeswap.errors import InternalError, SafeswapError
from safeswap.kernels import candidate, keyed, order, pairing
from safeswap.methods.swap import check_attributes, constraint_of, draw, shortfall, stage_key, uniform_shortfall
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.score import Comparison
from safeswap.model.spec import MaskSpec, Names, SwapSpec
from safeswap.model.study import ConstraintSet, StudySpec

QUICK_MEASURES = (*candidate.SCORES, "adV", "adC", "share_changed")

_WHOLE_FILE = 200_000
"""Up to so many records a replicate orders all of them; above, as many as its candidates are likely to need."""


@dataclass(frozen=True, eq=False)
class Group:
    """Candidates that differ in the rate only: their pairs are the first ones of one and the same walk."""

    specs: tuple[MaskSpec, ...]
    labels: Names = ()
    constraint: ConstraintSet | None = None


@dataclass(frozen=True, eq=False)
class Figures:
    """The outcome of a group in one replicate, a row per candidate; figures of a rejected one are not numbers."""

    scores: npt.NDArray[np.float64]
    made: npt.NDArray[np.int64]
    reasons: tuple[str, ...]
    tables: npt.NDArray[np.float32] | None = None


class Evaluator:
    """Everything about a file that candidates share, made once."""

    def __init__(self, data: Microdata, study: StudySpec, key: Key) -> None:
        self.data = data
        self.study = study
        self.key = key
        self.keys = study.keys or data.schema.categorical
        self.engine = MemoryEngine()
        self.columns, self._cardinalities = data.coded_columns(self.keys)
        self._measures_are_quick = all(name in QUICK_MEASURES for name in study.measures)

    @cached_property
    def identity(self) -> npt.NDArray[np.int64] | npt.NDArray[np.uint64]:
        """What the draws are made from."""
        return record_identity(self.data, keyed.derive(self.key.secret, "identity"))

    @cached_property
    def base(self) -> candidate.Baseline:
        """The counts before, over the key attributes."""
        return candidate.baseline(self.columns, self._cardinalities, 3)

    @property
    def table_pairs(self) -> tuple[tuple[str, str], ...]:
        """The attributes of each 2-way table, in the order of the figures."""
        return tuple((self.keys[a], self.keys[b]) for a, b, _ in self.base.tables)

    def is_quick(self, group: Group) -> bool:
        """Whether the group can be scored from touched records."""
        return (
            group.constraint is not None
            and self._measures_are_quick
            and candidate.fits(self._cardinalities)
            and all(name in self.keys for name in group.labels)
        )

    def evaluate(self, groups: tuple[Group, ...], replicate: int) -> list[Figures]:
        """All groups under one keyed order. A candidate that fails does not stop the others."""
        quick = Replicate(self, replicate) if any(map(self.is_quick, groups)) else None
        return [
            quick.evaluate(group) if quick and self.is_quick(group) else self._generally(group, replicate)
            for group in groups
        ]

    def _generally(self, group: Group, replicate: int) -> Figures:
        """Mask, measure, forget."""
        scores = np.full((len(group.specs), len(self.study.measures)), np.nan)
        made = np.zeros(len(group.specs), dtype=np.int64)
        reasons = [""] * len(group.specs)
        for i, spec in enumerate(group.specs):
            try:
                method = registry.method(spec.method)
                masked = method.apply(self.data, spec, key=self.key, engine=self.engine, replicate=replicate)
                seen = Comparison(
                    before=self.data, after=masked.data, attributes=self.keys, touched=masked.audit.touched()
                )
                scores[i] = [registry.measure(name).score(seen).value for name in self.study.measures]
                made[i] = masked.audit.made
            except InternalError:
                raise
            except SafeswapError as error:
                reasons[i] = error.message
        return Figures(scores, made, tuple(reasons))


class Replicate:
    """The records of one replicate in keyed order, as far as they are needed, with their cells."""

    def __init__(self, of: Evaluator, number: int) -> None:
        self._of = of
        self._number = number
        self._draw_key = stage_key(of.data, of.key, stage=0, replicate=number)
        whole = len(of.data) <= _WHOLE_FILE
        self._extend(1.0 if whole else min(1.0, 2.2 * max(of.study.rates) + 0.001))

    def _extend(self, share: float) -> None:
        self._share = share
        self._rows = order.prefix(self._of.identity, self._draw_key, share)
        self._labels = np.empty((len(self._of.keys), len(self._rows)), dtype=np.uint32)
        self._cells = np.zeros(len(self._rows), dtype=np.int64)
        for i, column in enumerate(self._of.columns):
            self._labels[i] = column[self._rows]
            self._cells += self._labels[i] * self._of.base.strides[i]

    def evaluate(self, group: Group) -> Figures:
        """The candidates of a group, which ask for ever more pairs of one walk."""
        of = self._of
        specs = [spec for spec in group.specs if isinstance(spec, SwapSpec)]
        try:
            check_attributes(of.data, specs[-1])
        except SafeswapError as error:
            return self._none([error.message] * len(specs))
        asked = [spec.pairs_for(len(of.data)) for spec in specs]
        found = self._walk(specs[-1], asked[-1])
        reached = [number for number in asked if number <= len(found)]
        figures = self._of_pairs(group.labels, found, reached) if reached else self._none([])
        for spec in specs[len(reached) :]:
            figures = _joined(figures, self._short(spec, len(found)))
        return figures

    def _walk(self, spec: SwapSpec, wanted: int) -> pairing.Rows:
        while True:
            labels = pair_labels(self._of.data, constraint_of(spec, spec.swap), self._rows, self._column)
            found, _, _ = pairing.walk(*labels, wanted)
            if len(found) >= wanted or self._share >= 1.0:
                return found
            self._extend(min(1.0, 2 * self._share))

    def _column(self, name: str) -> npt.NDArray[np.uint32] | None:
        return self._labels[self._of.keys.index(name)] if name in self._of.keys else None

    def _of_pairs(self, names: Names, pairs: pairing.Rows, asked: list[int]) -> Figures:
        swapped = self._places(names)
        old, new = candidate.moves(self._cells, self._labels, pairs, swapped, self._of.base.strides)
        return self._scored(old, new, swapped, asked)

    def _places(self, names: Names) -> candidate.Int64s:
        return np.array([self._of.keys.index(name) for name in names], dtype=np.int64)

    def _scored(
        self, old: candidate.Int64s, new: candidate.Int64s, swapped: candidate.Int64s, asked: list[int]
    ) -> Figures:
        made = np.array(asked, dtype=np.int64)
        cells, tables = candidate.score(self._of.base, old, new, 2 * made, swapped, with_tables=True)
        values = dict(zip(candidate.SCORES, cells.T, strict=True))
        if tables.shape[1]:
            values["adV"], values["adC"] = tables.mean(axis=1)[:, 3:].T
        values["share_changed"] = 2 * made / len(self._of.data)
        scores = np.stack([values.get(name, np.zeros(len(made))) for name in self._of.study.measures], axis=1)
        return Figures(scores, made, ("",) * len(asked), tables.astype(np.float32))

    def _short(self, spec: SwapSpec, found: int) -> Figures:
        """Fewer random pairs than asked for: repair them, or say why that cannot be."""
        of = self._of
        asked = spec.pairs_for(len(of.data))
        if spec.pairing == "uniform":
            plan = Plan(method="swap", records=len(of.data), asked=asked, feasible=found)
            return self._none([uniform_shortfall(plan, found).message])
        plan = registry.method("swap").plan(of.data, spec, engine=of.engine)
        if not plan.is_feasible:
            return self._none([shortfall(plan).message])
        rows = draw(of.data, spec, spec.swap, stage=0, key=of.key, engine=of.engine, replicate=self._number).ravel()
        labels = np.stack([column[rows] for column in of.columns]).astype(np.uint32)
        swapped = self._places(spec.swap)
        places = np.arange(len(rows), dtype=np.int64).reshape(-1, 2)
        old, new = candidate.moves(of.base.strides @ labels, labels, places, swapped, of.base.strides)
        return self._scored(old, new, swapped, [asked])

    def _none(self, reasons: list[str]) -> Figures:
        empty = np.full((len(reasons), len(self._of.study.measures)), np.nan)
        tables = np.full((len(reasons), len(self._of.base.tables), len(candidate.TABLE_MEASURES)), np.nan, np.float32)
        return Figures(empty, np.zeros(len(reasons), dtype=np.int64), tuple(reasons), tables)


def _joined(a: Figures, b: Figures) -> Figures:
    tables = None if a.tables is None or b.tables is None else np.concatenate([a.tables, b.tables])
    return Figures(
        np.concatenate([a.scores, b.scores]), np.concatenate([a.made, b.made]), a.reasons + b.reasons, tables
    )
