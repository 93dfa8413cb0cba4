"""Which measures can be read off the scores of touched records, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.kernels.candidate import SCORES
from safeswap.kernels.two_way import MEASURES as TABLE_MEASURES
from safeswap.kernels.types import Floats
from safeswap.measures.base import Measure


@dataclass(frozen=True)
class QuickMeasure:
    """A measure with its default attributes: a column of the scores, or the mean over the 2-way tables."""

    name: str
    n: int = 0  # of the n-rule
    of_tables: bool = False
    absolute: bool = False

    def read(self, scores: Floats, tables: Floats, smallness: npt.NDArray[np.int64]) -> Floats:
        """The figure of each candidate."""
        if self.of_tables:
            # Magnitudes: changes in opposite directions do not cancel.
            return np.asarray(np.abs(tables[:, :, TABLE_MEASURES.index(self.name)]).mean(axis=1))
        if self.n:
            return scores[:, len(SCORES) + int(np.searchsorted(smallness, self.n))]
        values = scores[:, SCORES.index(self.name)]
        return np.abs(values) if self.absolute else values


def as_quick(measure: Measure) -> QuickMeasure | None:
    """How the measure is read off; None where it looks at other attributes, other tables or records one by one.

    >>> from safeswap.registry import measure
    >>> as_quick(measure("n_rule:n=5"))
    QuickMeasure(name='n_rule', n=5, of_tables=False, absolute=False)
    >>> as_quick(measure("hellinger:ways=2"))
    QuickMeasure(name='hellinger', n=0, of_tables=True, absolute=False)
    >>> as_quick(measure("n_rule:keys=Age+Sex")) is None
    True
    """
    stated: dict[str, Any] = {name: value for name, value in measure.parameters.items() if value not in ([], None)}
    absolute = bool(stated.pop("absolute", False))
    if measure.name == "n_rule" and set(stated) == {"n"}:
        return QuickMeasure(measure.name, n=stated["n"])
    if measure.name in ("adV", "adC") and not stated:
        return QuickMeasure(measure.name, of_tables=True, absolute=absolute)
    if measure.name in SCORES and not stated:
        return QuickMeasure(measure.name, absolute=absolute)
    if measure.name in TABLE_MEASURES and stated == {"ways": 2}:
        return QuickMeasure(measure.name, of_tables=True, absolute=absolute)
    return None
