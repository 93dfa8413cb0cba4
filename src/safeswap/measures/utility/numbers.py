r"""Changes of means, standard deviations and correlations of numeric attributes.

With m and s the mean and the standard deviation of an attribute, r the correlation of two:

=====================  ============================================
``mean_change``        mean over attributes of \|m' − m\| / s
``deviation_change``   mean over attributes of \|s' / s − 1\|
``correlation_change`` mean over pairs of \|r' − r\|
=====================  ============================================

The means are of magnitudes; the detail has each signed change, and the sentence names the largest with its sign.

Record by record and jointly:

=================  ==================================================================================================
``il1s``           mean over values of \|x' − x\| / (√2 · sd(x)): how far values moved (Mateo-Sanz et al. 2004)
``eigen``          Σ \|e' − e\| / e over the eigenvalues of the correlation matrix, largest first
``correlations``   largest \|r' − r\| over pairs of attributes: Pearson's, or Spearman's with ``ranks``
=================  ==================================================================================================

An eigenvalue of 0 belongs to attributes that are sums of others; nothing is divided by it, and the sentence says so.
A swap of whole records' values moves values (il1s) and may keep every correlation; one of single attributes changes
correlations with all that did not move with them.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field
from scipy.stats import rankdata

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.measures.aligned import changed_names, require_same_records
from safeswap.measures.base import AttributeNames, Situation, numeric_names
from safeswap.measures.survey import WeightedMeasure, masses
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import list_names, plural

Sides = tuple[Floats, Floats]


class NumericMeasure(WeightedMeasure):
    """A measure of some numeric attributes, of at least ``least`` together."""

    axis: ClassVar[Axis] = Axis.DISTORTION
    least: ClassVar[int] = 1
    takes_weights: ClassVar[bool] = False  # also if they are not named

    variables: Annotated[AttributeNames, Field(description="numeric attributes; all of them if empty")] = ()

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why there is nothing to measure: too few numeric attributes, or none that changed."""
        names = self._names(comparison)
        if len(names) < self.least:
            return "there is no numeric attribute" if not names else "it needs two numeric attributes"
        changed = changed_names(comparison)
        return "" if not changed or changed.intersection(names) else "masking changed no numeric attribute"

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the numeric attributes of both files; weights only if they are named or taken."""
        for name in self.variables:
            comparison.before.schema[name]
        numeric, schema = numeric_names(comparison), comparison.before.schema
        numbers = (name for name in schema.names if name in numeric)
        return self.variables or tuple(n for n in numbers if self.takes_weights or schema[n].kind is not Kind.WEIGHT)

    def _matrices(self, comparison: Comparison) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return the attributes that vary in the original, and their values before and after, scaled to at most 1."""
        kept, before, after = [], [], []
        for name in self._names(comparison):
            one, other = _sides(comparison, name)
            known = one[~np.isnan(one)]
            if known.size > 1 and known.max() > known.min():
                kept.append(name)
                before.append(one)
                after.append(other)
        if len(kept) < self.least:
            raise self._unmeasurable()
        return tuple(kept), np.stack(before), np.stack(after)

    def _name_constant(self, comparison: Comparison, kept: tuple[str, ...]) -> str:
        """Return a note on the attributes that were left out, since they do not vary."""
        lacking = [name for name in self._names(comparison) if name not in kept]
        return f" Not measured, since they do not vary: {list_names(lacking, most=8)}." if lacking else ""

    def _unmeasurable(self, why: str = "", hint: str = "name numeric attributes whose values differ") -> SpecError:
        why = why or ("no numeric attribute varies" if self.least == 1 else "no two numeric attributes vary")
        return SpecError(f"{self.name} cannot be measured: {why}", code="no-numeric-attribute", hint=hint)


class NumberChange(NumericMeasure):
    """The mean magnitude of the changes of a statistic of numeric attributes, with one row per change."""

    takes_weights: ClassVar[bool] = True
    default_for: ClassVar[frozenset[Situation]] = frozenset({"numbers"})
    sources: ClassVar[tuple[str, ...]] = (
        "Domingo-Ferrer & Torra (2001), Disclosure Control Methods and Information Loss for Microdata",
    )

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per attribute or pair, with the sign."""
        weights = masses(comparison, weight)
        names = self._names(comparison)
        columns = {name: _sides(comparison, name) for name in names}
        rows: list[dict[str, Any]] = []
        for chosen in combinations(names, self.least):
            with np.errstate(all="ignore"):  # no spread, no figure
                change = self._change(weights, *(columns[name] for name in chosen))
            if np.isfinite(change):
                rows.append({"attributes": list(chosen), "value": float(change)})
        if not rows:
            raise self._unmeasurable()
        value = float(np.mean([abs(row["value"]) for row in rows]))
        seen = {name for row in rows for name in row["attributes"]}
        known = tuple(name for name in names if name in seen)
        sentence = self._meaning(value, len(rows)) + self._name_largest(rows) + self._name_constant(comparison, known)
        if self.least == 1 and not weight:
            sentence += " Exchanging values keeps it over the whole file: this figure cannot detect a swap."
        return self._score(value, sentence, known, _table(rows))

    @abstractmethod
    def _change(self, weights: Sides, *sides: Sides) -> float:
        """Return the signed change; not finite where the figure is not defined."""

    @abstractmethod
    def _meaning(self, value: float, number: int) -> str:
        """Describe the figure in plain words."""

    def _name_largest(self, rows: list[dict[str, Any]]) -> str:
        worst = max(rows, key=lambda row: abs(row["value"]))
        if worst["value"] == 0 or len(rows) < 2:
            return ""
        return f" Largest: {' × '.join(worst['attributes'])} ({worst['value']:+.4f})."


class MeanChange(NumberChange):
    """The change of means of numeric attributes, in standard deviations of the original.

    >>> MeanChange(variables="income").text
    'mean_change:variables=income'
    """

    name: ClassVar[str] = "mean_change"
    title: ClassVar[str] = "change in means"

    def _change(self, weights: Sides, *sides: Sides) -> float:
        (before, mass), (after, mass_after) = _drop_missing(sides[0], weights)
        if not len(before) or not len(after):
            return np.nan
        return float((_mean(after, mass_after) - _mean(before, mass)) / _spread(before, mass))

    def _meaning(self, value: float, number: int) -> str:
        return f"Means moved by {value:.4f} standard deviations on average over {_attributes(number)}, up or down."


class DeviationChange(NumberChange):
    """The relative change of standard deviations of numeric attributes.

    >>> DeviationChange().title
    'change in standard deviations'
    """

    name: ClassVar[str] = "deviation_change"
    title: ClassVar[str] = "change in standard deviations"

    def _change(self, weights: Sides, *sides: Sides) -> float:
        (before, mass), (after, mass_after) = _drop_missing(sides[0], weights)
        if not len(before) or not len(after):
            return np.nan
        return float(_spread(after, mass_after) / _spread(before, mass) - 1)

    def _meaning(self, value: float, number: int) -> str:
        return f"Standard deviations changed by {value:.2%} on average over {_attributes(number)}, up or down."


class CorrelationChange(NumberChange):
    """The change of correlations between numeric attributes.

    >>> CorrelationChange(variables="income+tax").text
    'correlation_change:variables=income+tax'
    """

    name: ClassVar[str] = "correlation_change"
    title: ClassVar[str] = "change in correlations"
    least: ClassVar[int] = 2

    def _change(self, weights: Sides, *sides: Sides) -> float:
        (before, after), (other_before, other_after) = sides
        return _correlation(after, other_after, weights[1]) - _correlation(before, other_before, weights[0])

    def _meaning(self, value: float, number: int) -> str:
        pairs = "one pair" if number == 1 else f"{number:,} pairs"
        return f"Correlations changed by {value:.4f} on average over {pairs} of numeric attributes, up or down."


def _sides(comparison: Comparison, name: str) -> Sides:
    """Return the column before and after, both divided by one number: no overflow of squares, no figure changes."""
    before, after = finite_numbers(comparison.before, name), finite_numbers(comparison.after, name)
    largest = max((float(np.nanmax(np.abs(side))) for side in (before, after) if not np.isnan(side).all()), default=0)
    return (before / largest, after / largest) if largest > 0 else (before, after)


def _drop_missing(sides: Sides, weights: Sides) -> tuple[Sides, Sides]:
    """Return the values that are not missing, with their weights, before and after."""
    one, other = ((side[~np.isnan(side)], mass[~np.isnan(side)]) for side, mass in zip(sides, weights, strict=True))
    return one, other


def _mean(values: Floats, weights: Floats) -> np.float64:
    """Return the weighted mean; of equal weights the plain one, to the last digit."""
    if weights.max() == weights.min():
        return np.float64(values.mean())
    return np.float64(weights @ values / weights.sum())


def _spread(values: Floats, weights: Floats) -> np.float64:
    """Return the standard deviation, exactly 0 if all values are equal."""
    if values.max() == values.min():
        return np.float64(0.0)
    return np.float64(np.sqrt(_mean((values - _mean(values, weights)) ** 2, weights)))


def _correlation(one: Floats, other: Floats, weights: Floats) -> float:
    """Return Pearson's correlation over the records with both values; NaN if one of them is constant."""
    both = ~(np.isnan(one) | np.isnan(other))
    x, y, mass = one[both], other[both], weights[both]
    if len(x) < 2 or x.max() == x.min() or y.max() == y.min():
        return np.nan
    x, y = x - _mean(x, mass), y - _mean(y, mass)
    mass = mass / mass.max()  # no overflow, and 1 where all are equal
    return float((mass * x @ y) / (np.sqrt(mass * x @ x) * np.sqrt(mass * y @ y)))


def _attributes(number: int) -> str:
    return "one numeric attribute" if number == 1 else f"{number:,} numeric attributes"


_NO_EIGENVALUE = 1e-8


class Il1s(NumericMeasure):
    """The distance that numbers moved, record by record, in units of √2 standard deviations.

    >>> Il1s(variables="income").text
    'il1s:variables=income'
    """

    name: ClassVar[str] = "il1s"
    title: ClassVar[str] = "distance of numbers from the original (IL1s)"
    sources: ClassVar[tuple[str, ...]] = (
        "Yancey, Winkler & Creecy (2002), Disclosure risk assessment in perturbative microdata protection",
        "Mateo-Sanz, Sebé & Domingo-Ferrer (2004), Outlier protection in continuous microdata masking, PSD 2004",
    )

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per attribute, with the sum as in the paper.

        Weights are scaled to a mean of 1, so that sums are as many as without them.
        """
        require_same_records(comparison)
        names, before, after = self._matrices(comparison)
        mass = masses(comparison, weight)[0]
        mass = mass / mass.mean()
        rows, total, number = [], 0.0, 0.0
        for name, one, other in zip(names, before, after, strict=True):
            known = ~(np.isnan(one) | np.isnan(other))
            loss = float(mass[known] @ np.abs(other - one)[known] / (np.sqrt(2) * _deviation(one, mass)))
            count = float(mass[known].sum())
            rows.append({"attributes": [name], "sum": loss, "value": loss / count if count else 0.0})
            total, number = total + loss, number + count
        value = total / number if number else 0.0
        sentence = (
            f"Numbers moved by {value:.4f} of √2 standard deviations on average over "
            f"{plural(len(names), 'numeric attribute')} (IL1s {total:,.4g} in total)."
        )
        return self._score(value, sentence + self._name_constant(comparison, names), names, _table(rows, "sum"))


class Eigen(NumericMeasure):
    """The relative change of the eigenvalues of the correlation matrix.

    >>> Eigen().name
    'eigen'
    """

    name: ClassVar[str] = "eigen"
    title: ClassVar[str] = "change in the eigenvalues of the correlations"
    least: ClassVar[int] = 2
    sources: ClassVar[tuple[str, ...]] = (
        "Templ, Kowarik & Meindl (2015), Statistical disclosure control with sdcMicro",
    )

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per eigenvalue, largest first."""
        names, before, after = self._matrices(comparison)
        weights = masses(comparison, weight)
        one, other = (_eigenvalues(side, mass) for side, mass in zip((before, after), weights, strict=True))
        counted = one > _NO_EIGENVALUE
        changes = np.abs(other - one)[counted] / one[counted]
        value = float(changes.sum())
        rows = [
            {"attributes": list(names), "before": float(a), "value": float(abs(b - a) / a) if ok else None}
            for a, b, ok in zip(one, other, counted, strict=True)
        ]
        zeros = int(np.count_nonzero(~counted))
        sentence = (
            f"The eigenvalues of the correlations of {plural(len(names), 'numeric attribute')} changed by "
            f"{value:.4f} in all, each relative to itself."
        )
        if zeros:
            word = plural(zeros, "eigenvalue is", "eigenvalues are")
            sentence += f" {word} 0, since attributes depend on each other, and left out."
        return self._score(value, sentence + self._name_constant(comparison, names), names, _table(rows, "before"))


class Correlations(NumericMeasure):
    """The largest change of a correlation between two numeric attributes.

    >>> Correlations(ranks=True).text
    'correlations:ranks=true'
    """

    name: ClassVar[str] = "correlations"
    title: ClassVar[str] = "largest change in a correlation"
    least: ClassVar[int] = 2
    sources: ClassVar[tuple[str, ...]] = (
        "Domingo-Ferrer & Torra (2001), Disclosure Control Methods and Information Loss for Microdata",
    )

    ranks: Annotated[bool, Field(description="correlations of ranks (Spearman)")] = False

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per pair."""
        names, before, after = self._matrices(comparison)
        weights = masses(comparison, weight)
        rows: list[dict[str, Any]] = []
        for i, j in combinations(range(len(names)), 2):
            one, other = (self._correlate(m[i], m[j], w) for m, w in zip((before, after), weights, strict=True))
            if np.isfinite(one) and np.isfinite(other):
                rows.append({"attributes": [names[i], names[j]], "before": one, "value": other - one})
        if not rows:
            hint = "name numeric attributes that have values in the same records"
            raise self._unmeasurable("no two numeric attributes vary together", hint)
        worst = max(rows, key=lambda row: abs(row["value"]))
        value = float(abs(worst["value"]))
        kind = "rank correlation" if self.ranks else "correlation"
        sentence = f"The largest change of a {kind} is {worst['value']:+.4f}: {' × '.join(worst['attributes'])}."
        return self._score(value, sentence + self._name_constant(comparison, names), names, _table(rows, "before"))

    def _correlate(self, x: Floats, y: Floats, weights: Floats) -> float:
        both = ~(np.isnan(x) | np.isnan(y))
        if both.sum() < 2:
            return float("nan")
        one, other = (np.asarray(rankdata(v[both]) if self.ranks else v[both], dtype=np.float64) for v in (x, y))
        return correlate(one, other, weights[both])


def correlate(x: Floats, y: Floats, weights: Floats) -> float:
    """Return the weighted correlation; NaN if one of the two is constant."""
    if x.max() == x.min() or y.max() == y.min():
        return float("nan")
    x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
    return float((weights * x) @ y / np.sqrt(((weights * x) @ x) * ((weights * y) @ y)))


def _deviation(values: Floats, weights: Floats) -> float:
    """Return the standard deviation of the values that are not missing; weights have a mean of about 1."""
    known = ~np.isnan(values)
    x, mass = values[known], weights[known]
    middle = float(mass @ x / mass.sum())
    return float(np.sqrt(mass @ (x - middle) ** 2 / mass.sum() * len(x) / (len(x) - 1)))


def _eigenvalues(matrix: Floats, weights: Floats) -> Floats:
    """Return the eigenvalues of the correlations over complete records, largest first; a constant column has none."""
    is_complete = ~np.isnan(matrix).any(axis=0)
    complete, mass = matrix[:, is_complete], weights[is_complete]
    if complete.shape[1] < 2:
        return np.zeros(len(matrix))
    mass = mass / mass.sum()
    gaps = (complete - (complete @ mass)[:, None]) * np.sqrt(mass)
    lengths = np.sqrt((gaps**2).sum(axis=1))
    # A constant column has residues of rounding only: it correlates with nothing.
    varies = complete.max(axis=1) > complete.min(axis=1)
    scaled = np.where(varies[:, None], gaps / np.where(varies, lengths, 1.0)[:, None], 0.0)
    return np.asarray(np.linalg.eigvalsh(scaled @ scaled.T)[::-1])


def _table(rows: list[dict[str, Any]], *numbers: str) -> pa.Table:
    types = [("attributes", pa.list_(pa.string())), *((name, pa.float64()) for name in (*numbers, "value"))]
    return pa.Table.from_pylist(rows, schema=pa.schema(types))
