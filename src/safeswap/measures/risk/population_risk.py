"""Population risk: the sample uniques that are unique in the population, and the correct matches, by log-linear models.

A log-linear model of the sample counts f over the keys gives the expected counts μ. If a share π of the population is
in the sample, λ = μ / π is the expected population count of a cell, and for the cells with f = 1

    τ₁ = Σ exp(−(1 − π) λ)                              expected number of population uniques,
    τ₂ = Σ (1 − exp(−(1 − π) λ)) / ((1 − π) λ)          expected number of correct matches.

The choice of interactions: B = Σ a (f − μ) + b ((f − μ)² − f) estimates the error of τ, v = Σ a² μ + 2 b² μ² its
variance if the model holds, and z = B / √v. z far above 0 under-fits, z below 0 over-fits. It chooses a model; it does
not correct the bias. Sums are over all cells, also those without a record.

The models are main effects, all two-way and all three-way interactions, fitted by iterative proportional fitting.
Where sampling fractions differ between records, a cell has the one that its own weights imply, f / Σ 1/π, and an empty
cell that of the file.

Source: Skinner & Shlomo 2008, Assessing identification risk in survey microdata using log-linear models, JASA 103.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod, sqrt
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.base import AttributeNames, ParametricMeasure, choose_attributes, name_keys
from safeswap.measures.key_cells import check_keys, read_weights
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import plural

MOST_CELLS = 4_000_000
_MOST_SWEEPS = 500
_CLOSE = 1e-9
_FITS = 2.0
"""Largest absolute z of a model that fits well enough."""

Interactions = Literal["auto", "1", "2", "3"]


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """One log-linear model: its estimates of τ₁ and τ₂, and how well it fits for each."""

    order: int
    tau1: float
    tau2: float
    b1: float
    b2: float
    v1: float
    v2: float
    sweeps: int

    @property
    def z1(self) -> float:
        """B₁ / √v₁; 0 if there is nothing to estimate."""
        return self.b1 / sqrt(self.v1) if self.v1 > 0 else 0.0

    @property
    def z2(self) -> float:
        """B₂ / √v₂; 0 if there is nothing to estimate."""
        return self.b2 / sqrt(self.v2) if self.v2 > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("order", "tau1", "tau2", "b1", "v1", "z1", "b2", "v2", "z2", "sweeps")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class LoglinearRisk:
    """The models fitted, the one chosen, and the size of the problem."""

    models: tuple[FittedModel, ...]
    chosen: FittedModel
    records: int
    cells: int
    uniques: int
    fraction: float

    def __repr__(self) -> str:
        return (
            f"<LoglinearRisk: of {self.uniques:,} sample uniques {self.chosen.tau1:,.4g} are expected to be unique in "
            f"the population; {self.chosen.tau2:,.4g} correct matches>"
        )


def loglinear_risk(
    data: Microdata,
    keys: Sequence[str],
    *,
    population: float | str | None = None,
    weight: str | None = None,
    interactions: Interactions = "auto",
) -> LoglinearRisk:
    """Estimate population uniques and correct matches among the sample uniques of some keys.

    ``population`` is the number of people, or the column with each record's sampling fraction; or ``weight`` names the
    survey weights, whose inverses are the fractions. A missing key is a level of its own. With ``"auto"`` the smallest
    model that fits both τ is chosen, or else the one that fits best.

    >>> from safeswap import datasets
    >>> found = loglinear_risk(datasets.cps8d(), ["Age", "Sex", "Race"], population=1e6, interactions="2")
    >>> found.chosen.order, found.uniques
    (2, 0)
    """
    names = check_keys(data, keys)
    columns, sizes = data.coded_columns(names)
    cells = prod(max(1, size) for size in sizes)
    if cells > MOST_CELLS:
        raise InfeasibleError(
            f"these keys have {plural(cells, 'combination')}, more than {MOST_CELLS:,}",
            code="too-many-cells",
            hint="name fewer keys, or recode them first",
            cells=cells,
        )
    shape = tuple(max(1, size) for size in sizes)
    packed = np.ravel_multi_index(tuple(columns), shape) if len(data) else np.zeros(0, dtype=np.int64)
    counts = np.bincount(packed, minlength=cells).astype(np.float64)
    fractions, overall = _read_fractions(data, population, weight)
    persons = np.bincount(packed, 1 / fractions, minlength=cells)
    share = np.where(counts > 0, counts / np.where(persons > 0, persons, 1.0), overall)
    orders = range(1, min(3, len(names)) + 1) if interactions == "auto" else (min(int(interactions), len(names)),)
    models = []
    for order in orders:
        fitted, sweeps = fit_counts(counts.reshape(shape), order)
        models.append(_estimate(counts, fitted.ravel(), share, order=order, sweeps=sweeps))
        if interactions == "auto" and max(abs(models[-1].z1), abs(models[-1].z2)) < _FITS:
            break
    return LoglinearRisk(
        models=tuple(models),
        chosen=min(models, key=lambda model: max(abs(model.z1), abs(model.z2), _FITS)),
        records=len(data),
        cells=cells,
        uniques=int(np.count_nonzero(counts == 1)),
        fraction=overall,
    )


def _read_fractions(data: Microdata, population: float | str | None, weight: str | None) -> tuple[Floats, float]:
    """Return each record's sampling fraction, and that of the file."""
    if (population is None) == (weight is None):
        raise SpecError(
            "state either the population or a survey weight",
            code="bad-population",
            hint="population=80_000_000, or the column of sampling fractions, or weight=…",
        )
    records = len(data)
    if isinstance(population, str):
        fractions = to_numbers(data, population)
    elif population is not None:
        fractions = np.full(records, records / population if population > 0 else np.nan)
    else:
        weights = read_weights(data, str(weight))
        fractions = 1 / np.where(weights > 0, weights, np.nan)
    if records and not ((fractions > 0) & (fractions <= 1)).all():
        raise SpecError(
            "a sampling fraction must be above 0 and at most 1",
            code="bad-sampling-fraction",
            hint="a population is at least as large as the file, a weight at least 1",
        )
    return fractions, records / float((1 / fractions).sum()) if records else 1.0


def fit_counts(counts: Floats, order: int) -> tuple[Floats, int]:
    """Fit the model with all interactions of ``order`` keys to a table of counts; return μ and the number of sweeps.

    >>> fit_counts(np.array([[3.0, 1.0], [1.0, 3.0]]), 1)[0].tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    total = counts.sum()
    axes = range(counts.ndim)
    others = [tuple(axis for axis in axes if axis not in group) for group in combinations(axes, min(order, len(axes)))]
    margins = [counts.sum(axis=other, keepdims=True) for other in others]
    fitted = np.full(counts.shape, total / counts.size)
    if order >= counts.ndim:
        return counts.copy(), 0
    for sweep in range(1, _MOST_SWEEPS + 1):
        worst = 0.0
        for other, margin in zip(others, margins, strict=True):
            now = fitted.sum(axis=other, keepdims=True)
            worst = max(worst, float(np.abs(now - margin).max()))
            fitted *= np.divide(margin, now, out=np.zeros_like(now), where=now > 0)
        if (sweep > 1 or order == 1) and worst <= _CLOSE * max(total, 1.0):
            return fitted, sweep
    return fitted, _MOST_SWEEPS


def _estimate(counts: Floats, fitted: Floats, share: Floats, *, order: int, sweeps: int) -> FittedModel:
    possible = fitted > 0
    f, mu, pi = counts[possible], fitted[possible], share[possible]
    rest, population = 1 - pi, mu / pi
    exponent = rest * population
    uniques = f == 1
    matches = -np.expm1(-exponent) / np.where(exponent > 0, exponent, 1.0) + (exponent == 0)
    with np.errstate(under="ignore"):
        seen, unseen = np.exp(-mu), np.exp(-population)
    a1, b1 = exponent * unseen, rest**2 * population * unseen / (2 * pi)
    a2 = seen * matches - unseen
    b2 = (seen * matches - unseen * (1 + exponent / 2)) / mu
    errors = [(a * (f - mu) + b * ((f - mu) ** 2 - f)).sum() for a, b in ((a1, b1), (a2, b2))]
    variances = [(a**2 * mu + 2 * b**2 * mu**2).sum() for a, b in ((a1, b1), (a2, b2))]
    return FittedModel(
        order=order,
        tau1=float(np.exp(-exponent[uniques]).sum()),
        tau2=float(matches[uniques].sum()),
        b1=float(errors[0]),
        b2=float(errors[1]),
        v1=float(variances[0]),
        v2=float(variances[1]),
        sweeps=sweeps,
    )


class PopulationRisk(ParametricMeasure):
    """The expected number of correct matches among sample uniques, as a share of the records, by a log-linear model.

    >>> PopulationRisk(keys=("Age", "Sex"), population="500000").text
    'population_risk:keys=Age+Sex,population=500000'
    """

    name: ClassVar[str] = "population_risk"
    title: ClassVar[str] = "expected share of correct matches in the population"
    axis: ClassVar[Axis] = Axis.RISK
    tells_the_rate: ClassVar[bool] = False
    sources: ClassVar[tuple[str, ...]] = (
        "Skinner & Shlomo (2008), Assessing identification risk in survey microdata using log-linear models, JASA 103",
    )

    keys: Annotated[AttributeNames, Field(description="key variables; all categorical ones if empty")] = ()
    population: Annotated[str, Field(description="number of people, or the column of sampling fractions")] = ""
    weight: Annotated[str, Field(description="survey weight, instead of a population")] = ""
    interactions: Annotated[
        Interactions, Field(description="interactions of how many keys; auto: the smallest model that fits")
    ] = "auto"

    def read_scenario(self, resolved: Resolved, data: Microdata) -> dict[str, Any]:
        """Return the parameters that a scenario states: its population, or else its weight."""
        stated = resolved.scenario.population
        if stated is not None:
            return {"population": stated if isinstance(stated, str) else f"{stated:.17g}"}
        return {"weight": resolved.scenario.weight}

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has one row for each model that was fitted."""
        names, data = choose_attributes(comparison, self.keys), comparison.after
        found = loglinear_risk(
            data,
            names,
            population=self._population(data),
            weight=self.weight or None,
            interactions=self.interactions,
        )
        best = found.chosen
        detail = pa.Table.from_pylist([{**m.as_dict(), "chosen": m is best} for m in found.models])
        value = best.tau2 / found.records if found.records else 0.0
        sentence = (
            f"Of {plural(found.uniques, 'record')} unique by {name_keys(names)}, {best.tau1:,.4g} are expected to be "
            f"unique in the population, and {best.tau2:,.4g} to be matched correctly "
            f"({'main effects' if best.order == 1 else f'{best.order}-way interactions'}, z = {best.z2:.2f})."
        )
        return self._score(value, sentence, names, detail)

    def _population(self, data: Microdata) -> float | str | None:
        if not self.population or self.population in data.schema:
            return self.population or None
        try:
            return float(self.population)
        except ValueError:
            data.schema[self.population]  # raises for an unknown attribute, with a hint
            raise
