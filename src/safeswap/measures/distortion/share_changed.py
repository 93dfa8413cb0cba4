"""The share of records in which masking changed anything."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.measures.aligned import aligned, require_same_records
from safeswap.measures.base import left_out
from safeswap.measures.distortion.base import DistortionMeasure
from safeswap.model.score import Comparison, Score


class ShareChanged(DistortionMeasure):
    """The share of records that differ from the original in at least one of the attributes, record by record.

    >>> ShareChanged(attributes=("Race",)).text
    'share_changed:attributes=Race'
    """

    name: ClassVar[str] = "share_changed"
    title: ClassVar[str] = "share of records changed"
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam & Karr (2003), section 2: a true swap changes the record, a false one does not",
    )

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has one line per attribute."""
        require_same_records(comparison)
        names = self._names(comparison)
        anywhere = np.zeros(len(comparison.before), dtype=np.bool_)
        shares = []
        for column in (aligned(comparison, name) for name in names):
            differs = column.before != column.after if column.changed else np.zeros_like(anywhere)
            anywhere |= differs
            shares.append(_share(differs))
        value = _share(anywhere)
        sentence = f"{value:.2%} of the records differ from the original in at least one attribute."
        detail = pa.table({"attribute": list(names), "value": pa.array(shares, pa.float64())})
        return self._score(value, sentence + left_out(comparison, names), names, detail)


def _share(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return np.count_nonzero(flags) / flags.size if flags.size else 0.0
