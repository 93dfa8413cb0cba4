"""Changes of means, standard deviations and correlations of numeric attributes.

With m and s the mean and the standard deviation of an attribute, r the correlation of two:

=====================  ============================================
``mean_change``        mean over attributes of \\|m' − m\\| / s
``deviation_change``   mean over attributes of \\|s' / s − 1\\|
``correlation_change`` mean over pairs of \\|r' − r\\|
=====================  ============================================

The means are of magnitudes; the detail has each signed change, and the sentence names the largest with its sign.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.measures.aligned import changed_names
from safeswap.measures.base import AttributeNames, Situation, numeric_names
from safeswap.measures.weighted import WeightedMeasure, masses
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.score import Axis, Comparison, Score

Sides = tuple[Floats, Floats]


class NumberChange(WeightedMeasure):
    """The mean magnitude of the changes of a statistic of numeric attributes, with one row per change."""

    axis: ClassVar[Axis] = Axis.DISTORTION
    default_for: ClassVar[frozenset[Situation]] = frozenset({"numbers"})
    sources: ClassVar[tuple[str, ...]] = (
        "Domingo-Ferrer & Torra (2001), Disclosure Control Methods and Information Loss for Microdata",
    )
    together: ClassVar[int] = 1
    lacking: ClassVar[str] = "no numeric attribute varies"

    variables: Annotated[AttributeNames, Field(description="numeric attributes; all of them if empty")] = ()

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why there is nothing to measure: too few numeric attributes, or none that changed."""
        names = self._names(comparison)
        if len(names) < self.together:
            return "there is no numeric attribute" if not names else "it needs two numeric attributes"
        changed = changed_names(comparison)
        return "" if not changed or changed.intersection(names) else "masking changed no numeric attribute"

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per attribute or pair, with the sign."""
        weights = masses(comparison, weight)
        names = self._names(comparison)
        columns = {name: _sides(comparison, name) for name in names}
        rows: list[dict[str, Any]] = []
        for chosen in combinations(names, self.together):
            with np.errstate(all="ignore"):  # no spread, no figure
                change = self._change(weights, *(columns[name] for name in chosen))
            if np.isfinite(change):
                rows.append({"attributes": list(chosen), "value": float(change)})
        if not rows:
            raise SpecError(
                f"{self.name} cannot be measured: {self.lacking}",
                code="no-numeric-attribute",
                hint="name numeric attributes whose values differ",
            )
        value = float(np.mean([abs(row["value"]) for row in rows]))
        seen = {name for row in rows for name in row["attributes"]}
        known = tuple(name for name in names if name in seen)
        sentence = self._meaning(value, len(rows)) + self._name_largest(rows) + _unmeasured_note(names, known)
        if self.together == 1 and not weight:
            sentence += " Over the whole file, exchanged values keep it: this figure cannot see a swap."
        types = pa.schema([("attributes", pa.list_(pa.string())), ("value", pa.float64())])
        return self._score(value, sentence, known, pa.Table.from_pylist(rows, schema=types))

    @abstractmethod
    def _change(self, weights: Sides, *sides: Sides) -> float:
        """Return the signed change; not finite where the figure is not defined."""

    @abstractmethod
    def _meaning(self, value: float, number: int) -> str:
        """Describe the figure in plain words."""

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        for name in self.variables:
            comparison.before.schema[name]
        numeric = numeric_names(comparison)
        return self.variables or tuple(name for name in comparison.before.schema.names if name in numeric)

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
    title: ClassVar[str] = "change of means"

    def _change(self, weights: Sides, *sides: Sides) -> float:
        (before, mass), (after, mass_after) = _known(sides[0], weights)
        if not len(before) or not len(after):
            return np.nan
        return float((_mean(after, mass_after) - _mean(before, mass)) / _spread(before, mass))

    def _meaning(self, value: float, number: int) -> str:
        return f"Means moved by {value:.4f} standard deviations on average over {_attributes(number)}, up or down."


class DeviationChange(NumberChange):
    """The relative change of standard deviations of numeric attributes.

    >>> DeviationChange().title
    'change of standard deviations'
    """

    name: ClassVar[str] = "deviation_change"
    title: ClassVar[str] = "change of standard deviations"

    def _change(self, weights: Sides, *sides: Sides) -> float:
        (before, mass), (after, mass_after) = _known(sides[0], weights)
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
    title: ClassVar[str] = "change of correlations"
    together: ClassVar[int] = 2
    lacking: ClassVar[str] = "no two numeric attributes vary"

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


def _known(sides: Sides, weights: Sides) -> tuple[Sides, Sides]:
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


def _unmeasured_note(names: tuple[str, ...], known: tuple[str, ...]) -> str:
    lacking = [name for name in names if name not in known]
    shown = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
    return f" Not measured, since without spread: {shown}." if lacking else ""
