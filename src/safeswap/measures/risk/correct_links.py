"""The share of records that linkage to the nearest original finds."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.errors import SpecError
from safeswap.measures.base import Situation
from safeswap.measures.risk.record_plot import PlotMeasure
from safeswap.model.score import Comparison, Score


class CorrectLinks(PlotMeasure):
    """Records whose nearest original is their own, as a share of those that can be placed.

    The original file is the intruder's archive: the worst case. Where several originals are equally near the intruder
    guesses, and the record counts by the chance that he is right.

    >>> CorrectLinks(keys=("turnover",), scale="linear").text
    'correct_links:keys=turnover,scale=linear'
    """

    name: ClassVar[str] = "correct_links"
    title: ClassVar[str] = "share of correct links"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"numbers"})

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has the numbers behind it."""
        names, numeric = self._keys(comparison.before.schema)
        if not numeric:
            raise SpecError(
                "correct links are found by distance, which needs numeric keys",
                code="key-not-numeric",
                hint="name numeric keys, or use unsafe_share, which counts categorical ones",
            )
        plot = self._distance_plot(comparison, names)
        links, shared = (int(np.count_nonzero(f)) for f in (plot.links, plot.nearest_true & (plot.ties > 1)))
        within = int(np.count_nonzero(plot.within))
        detail = pa.table(
            {"records": [len(plot)], "correct_links": [links], "shared_links": [shared], "in_neighbourhood": [within]}
        )
        value = plot.correct_link_share
        sentence = f"{value:.2%} of the records are found by linkage to the nearest original by {', '.join(names[:4])}."
        return self._score(value, sentence, names, detail)
