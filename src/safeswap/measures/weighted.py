"""Measures that are weighted where the file has a weight, with the figure without weights beside it.

Users of a survey compute with weights, so a figure of tables, means or correlations is made with them by default. A
weight that is not in the masked file, or not positive and finite in every record, is not used unless it is asked for by
name; the sentence says so, and which record is the first.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats
from safeswap.errors import InputError
from safeswap.measures.base import ParametricMeasure
from safeswap.measures.survey import find_weight, positive_weights
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison, Score


class WeightedMeasure(ParametricMeasure):
    """A measure of sums over records, each with its weight."""

    weighted: Annotated[bool, Field(description="weighted by the weight of the schema, if it has one")] = True
    weight: Annotated[str | None, Field(description="weight; that of the schema if omitted")] = None

    def score(self, comparison: Comparison) -> Score:
        """Score the masking, weighted where there is a weight; the detail then has the figures without it too."""
        weight, note = find_usable(comparison, self.weight) if self.weighted else ("", "")
        plain = self._score_by(comparison, "")
        if not weight:
            return replace(plain, sentence=plain.sentence + note)
        found = self._score_by(comparison, weight)
        sentence = f"{found.sentence} Weighted by {weight}; without weights {plain.value:.4g}."
        return replace(found, sentence=sentence, detail=_beside(found.detail, plain))

    @abstractmethod
    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking with a weight that can be used, or without one."""


def find_usable(comparison: Comparison, stated: str | None = None) -> tuple[str, str]:
    """Return the weight to use, and a note where that of the schema cannot be used; a stated one is refused then."""
    before, after = comparison.before, comparison.after
    name = find_weight(before.schema, stated)
    if not name:
        return "", ""
    if not stated and name not in after.schema:
        return "", f" Not weighted: {name} is not in the masked file."
    try:
        for data in (before, after):
            positive_weights(data, name)
    except InputError as error:
        if stated:
            raise
        return "", f" Not weighted: {error.message}."
    return name, ""


def usable_weight(data: Microdata, stated: str | None = None) -> str:
    """Return the weight to use for a file and its swapped versions; nothing if it cannot be used."""
    return find_usable(Comparison(before=data, after=data, attributes=()), stated)[0]


def masses(comparison: Comparison, weight: str) -> tuple[Floats, Floats]:
    """Return the weight of each record before and after; 1 without a weight."""
    one, other = (
        positive_weights(data, weight) if weight else np.ones(len(data))
        for data in (comparison.before, comparison.after)
    )
    return one, other


def weight_changed(comparison: Comparison, weight: str) -> bool:
    """Return whether masking changed the weight itself."""
    return bool(weight) and not np.array_equal(*masses(comparison, weight))


def _beside(detail: pa.Table | None, plain: Score) -> pa.Table | None:
    """Add the figures without weights to the detail, row by row."""
    if detail is None or plain.detail is None or "unweighted" in detail.column_names:
        return detail
    if "value" in detail.column_names:
        return detail.append_column("unweighted", plain.detail.column("value"))
    return detail.append_column("unweighted", pa.array([plain.value] * detail.num_rows, pa.float64()))
