"""PERCENTAGE BIAS as values: the figures, the acceptable range, and the verdict on each continuous item.

Source: Moore 1996, sections X, XI and XIII, Appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from safeswap.errors import SpecError

Reading = Literal["class", "pointwise"]
"""Of the means of a record's class, or of the value that stands in a record's place."""


@dataclass(frozen=True, kw_only=True)
class BiasFigure:
    """One figure: of a continuous item, at one level (a set of keys) or record by record (no keys)."""

    variable: str
    reading: Reading
    level: tuple[str, ...]
    bias: float
    percentage: float
    gone: int = 0


@dataclass(frozen=True, kw_only=True)
class BiasBounds:
    """The range in which PERCENTAGE BIAS protects enough and leaves the item useful enough."""

    lower: float
    upper: float

    def protects(self, percentage: float) -> bool:
        """Whether the records that took part are disturbed enough."""
        return percentage > self.lower

    def is_useful(self, percentage: float) -> bool:
        """Whether the item is disturbed little enough."""
        return percentage < self.upper


def bias_bounds(p: float, f: float, *, swapped: int, records: int, mean: float, deviation: float) -> BiasBounds:
    """The acceptable range: p percent on average of each swapped record, a spread of at most 1 + f times.

    >>> bounds = bias_bounds(10, 0.01, swapped=582, records=64_998, mean=11_369, deviation=16_572)
    >>> round(bounds.lower, 2), round(bounds.upper, 2), bounds.protects(17.95) and bounds.is_useful(17.95)
    (0.09, 20.67, True)
    """
    from safeswap.kernels import bias

    if mean == 0 or records == 0:
        raise SpecError(
            "percentage bias is relative to the mean, which is zero or not there",
            code="no-mean",
            hint="leave this item out, or look at BIAS in its own unit",
        )
    return BiasBounds(
        lower=bias.lower_bound(p, swapped=swapped, records=records),
        upper=bias.upper_bound(f, mean=mean, deviation=deviation),
    )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One continuous item: its figure, the acceptable range, and what follows."""

    variable: str
    percentage: float
    bounds: BiasBounds

    @property
    def protected(self) -> bool:
        """Whether the records that took part are disturbed enough."""
        return self.bounds.protects(self.percentage)

    @property
    def useful(self) -> bool:
        """Whether the item is disturbed little enough."""
        return self.bounds.is_useful(self.percentage)

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        protected = "protected enough" if self.protected else "not protected enough"
        return f"{protected}, {'useful enough' if self.useful else 'not useful enough'}"


@dataclass(frozen=True, kw_only=True)
class BiasReport:
    """PERCENTAGE BIAS of every item at every level, and what the acceptable range is made from."""

    figures: tuple[BiasFigure, ...]
    swapped: int
    records: int
    moments: tuple[tuple[str, float, float], ...]  # item, mean and standard deviation before

    def __iter__(self) -> Iterator[BiasFigure]:
        return iter(self.figures)

    @property
    def variables(self) -> tuple[str, ...]:
        """The continuous items, in the order asked for."""
        return tuple(variable for variable, _, _ in self.moments)

    def average(self, variable: str) -> float:
        """The mean over the levels: one level alone can mislead."""
        return float(np.mean([f.percentage for f in self.figures if f.variable == variable and f.reading == "class"]))

    def pointwise(self, variable: str) -> float:
        """The figure record by record."""
        return next(f.percentage for f in self.figures if f.variable == variable and f.reading == "pointwise")

    def verdicts(self, p: float = 10, f: float = 0.01, *, reading: Reading = "pointwise") -> tuple[Verdict, ...]:
        """Per item with a mean other than zero: protected enough? useful enough?

        By default record by record, which is how the bounds are derived.
        """
        return tuple(
            Verdict(
                variable=variable,
                percentage=self.pointwise(variable) if reading == "pointwise" else self.average(variable),
                bounds=bias_bounds(p, f, swapped=self.swapped, records=self.records, mean=mean, deviation=deviation),
            )
            for variable, mean, deviation in self.moments
            if mean
        )

    def table(self) -> pa.Table:
        """One line per figure. For use inside the agency."""
        return pa.table(
            {
                "variable": [f.variable for f in self.figures],
                "reading": [f.reading for f in self.figures],
                "level": pa.array([list(f.level) for f in self.figures], pa.list_(pa.string())),
                "bias": pa.array([f.bias for f in self.figures], pa.float64()),
                "percentage_bias": pa.array([f.percentage for f in self.figures], pa.float64()),
                "records_of_classes_gone": pa.array([f.gone for f in self.figures], pa.int64()),
            }
        )
