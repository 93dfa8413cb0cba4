"""The points of the map: one per specification, at the mean of its draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap import registry
from safeswap.arrays import dominance
from safeswap.arrays.types import Floats, Int64s
from safeswap.charts.theme import axis_title
from safeswap.measures.base import to_comparable
from safeswap.model.spec import MaskSpec

TABLE_MEASURES = ("hellinger", "total_variation", "entropy_change", "adV", "adC")
"""The measures of every 2-way table, in the order of the last axis of ``two_way``."""


class StudyLike(Protocol):
    """The shape of a study as charts need it: charts must not import ``study``, which is above them."""

    @property
    def spec(self) -> Any:
        """The question: risk, distortion, measures, replicates and so on."""
        ...

    @property
    def table(self) -> pa.Table:
        """One row per candidate."""
        ...

    @property
    def specs(self) -> Sequence[Any]:
        """The specifications, by the number in the column ``specification``."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Non-disclosive facts about the data."""
        ...

    @property
    def two_way(self) -> npt.NDArray[np.float32] | None:
        """The distortion of every 2-way table of every candidate: (candidates, tables, measures)."""
        ...

    @property
    def table_pairs(self) -> tuple[tuple[str, str], ...]:
        """The attributes of each 2-way table."""
        ...

    def frontier(self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None) -> Int64s:
        """Return the undominated candidates."""
        ...

    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """Return a row per specification, with the share of replicates in which it is on the frontier."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Chosen:
    """A chosen candidate and the reasons for it."""

    candidate: int
    spec: MaskSpec
    replicate: int
    risk: float
    distortion: float
    objective: str  # the rule, in words
    dominates: int  # specifications that are no better in either score
    rivals: pa.Table
    certainty: float | None  # the share of resamples in which it is chosen again
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and reports."""
        values = {each.name: getattr(self, each.name) for each in fields(Chosen)}
        return {**values, "spec": self.spec.as_dict(), "rivals": self.rivals.to_pylist()}

    def __repr__(self) -> str:
        return self.sentence


@dataclass(frozen=True, eq=False, kw_only=True)
class Cloud:
    """Single draws, each with the index of its specification among the points."""

    risk: Floats
    distortion: Floats
    point: Int64s


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """The points of a map. ``rates`` is NaN for specifications without one, and None if rates must not be shown."""

    labels: tuple[str, ...]
    constraints: tuple[str, ...]
    rates: Floats | None
    risk: Floats
    distortion: Floats
    risk_title: str
    distortion_title: str
    chosen: int | None = None
    cloud: Cloud | None = None
    original: tuple[float, float] | None = None  # risk and distortion of the untouched file: a landmark, no candidate

    def __len__(self) -> int:
        return len(self.labels)

    def frontier(self, rate: float | None = None) -> Int64s:
        """Return the undominated points in order of distortion, of one rate or of all."""
        rows = np.arange(len(self))
        if rate is not None and self.rates is not None:
            rows = np.flatnonzero(np.isclose(self.rates, rate))
        best = rows[dominance.find_undominated(self.risk[rows], self.distortion[rows])]
        ordered: Int64s = best[np.lexsort((self.risk[best], self.distortion[best]))]
        return ordered

    def distinct_rates(self) -> list[float]:
        """Return the rates that occur, ascending."""
        if self.rates is None:
            return []
        return [float(rate) for rate in np.unique(self.rates[~np.isnan(self.rates)])]


def points_of(
    study: StudyLike, *, risk: str | None = None, distortion: str | None = None, choice: Chosen | None = None
) -> Points:
    """Return the specifications of a study that were made at least once, with their draws."""
    risk, distortion = risk or study.spec.risk[0], distortion or study.spec.distortion[0]
    number = specification_numbers(study)
    y, _ = mean_and_spread(study, risk)
    x, _ = mean_and_spread(study, distortion)
    made = np.flatnonzero(~(np.isnan(x) | np.isnan(y)))
    described = describe_specifications(study).take(pa.array(made))
    place = np.full(len(study.specs), -1, dtype=np.int64)
    place[made] = np.arange(len(made))
    cloud = None
    if study.spec.replicates > 1:
        dy, dx = figures(study, risk), figures(study, distortion)
        rows = np.flatnonzero(~(np.isnan(dx) | np.isnan(dy)))
        cloud = Cloud(risk=dy[rows], distortion=dx[rows], point=place[number[rows]])
    chosen = -1 if choice is None else int(place[number[choice.candidate]])
    return Points(
        labels=tuple(described["label"].to_pylist()),
        constraints=tuple(marks_of(study, made)[0]),
        rates=described["rate"].to_numpy(),
        risk=y[made],
        distortion=x[made],
        risk_title=axis_title(risk),
        distortion_title=axis_title(distortion),
        chosen=chosen if chosen >= 0 else None,
        cloud=cloud,
        original=original_point(study, risk, distortion),
    )


def original_figures(study: StudyLike) -> dict[str, float]:
    """Return the figures of the untouched original by measure, as a map shows them; empty for studies without them."""
    before = study.facts.get("before", {})
    found = {name: float(before[name]) for name in study.spec.measures if before.get(name) is not None}
    return {name: float(to_comparable(registry.measure(name), np.array([v]))[0]) for name, v in found.items()}


def original_point(study: StudyLike, risk: str, distortion: str) -> tuple[float, float] | None:
    """Return risk and distortion of the untouched original; None if a figure is not known."""
    known = original_figures(study)
    where = known.get(risk, np.nan), known.get(distortion, np.nan)
    return where if np.isfinite(where).all() else None


def column(study: StudyLike, name: str) -> Floats:
    """Return one column of the table of candidates, NaN for nulls."""
    values: Floats = study.table.column(name).to_numpy().astype(np.float64)
    return values


def figures(study: StudyLike, measure: str) -> Floats:
    """Return the scores of a measure as a map shows them: magnitudes if it is signed."""
    return to_comparable(registry.measure(measure), column(study, measure))


def specification_numbers(study: StudyLike) -> Int64s:
    """Return the specification number of each candidate."""
    numbers: Int64s = study.table.column("specification").to_numpy().astype(np.int64)
    return numbers


def describe_specifications(study: StudyLike) -> pa.Table:
    """Return label, swapped attributes, constraint and rate, a row per specification."""
    number = specification_numbers(study)
    first = np.full(len(study.specs), 0, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return study.table.select(["label", "swap", "constraint", "rate"]).take(pa.array(first))


def marks_of(study: StudyLike, numbers: Int64s) -> tuple[list[str], int]:
    """Return what the mark of each specification stands for, and the number of methods.

    It is the constraint under which it swaps, empty for none; with several methods, the method as well.
    """
    constraints = describe_specifications(study)["constraint"].to_pylist()
    kinds = [(str(study.specs[number].method).replace("_", " "), constraints[number]) for number in numbers]
    methods = len({method for method, _ in kinds})
    return [": ".join(filter(None, kind)) if methods > 1 else kind[1] for kind in kinds], methods


def mean_and_spread(study: StudyLike, name: str) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of a measure over the draws of each specification."""
    values, number, many = figures(study, name), specification_numbers(study), len(study.specs)
    known = ~np.isnan(values)
    count = np.bincount(number[known], minlength=many)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(number[known], weights=values[known], minlength=many) / count
        squares = np.bincount(number[known], weights=(values[known] - mean[number[known]]) ** 2, minlength=many)
        return mean, np.sqrt(squares / (count - 1))
