"""Measures that are weighted where the file has a weight, with the figure without weights beside it.

Users of a survey compute with weights, so a figure of tables, means or correlations is made with them by default. A
weight that is not in the masked file, or not positive and finite in every record, is not used unless it is asked for by
name; the sentence says so, and which record is the first.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats
from safeswap.errors import InputError
from safeswap.measures.base import ParametricMeasure
from safeswap.measures.survey import find_weight, positive_weights
from safeswap.model.columns import same_memory
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
        masses(comparison, name)
    except InputError as error:
        if stated:
            raise
        return "", f" Not weighted: {error.message}."
    return name, ""


def usable_weight(data: Microdata, stated: str | None = None) -> str:
    """Return the weight to use for a file and its swapped versions; nothing if it cannot be used."""
    return find_usable(Comparison(before=data, after=data, attributes=()), stated)[0]


_MASSES: WeakKeyDictionary[Comparison, dict[str, tuple[Floats, Floats]]] = WeakKeyDictionary()


def masses(comparison: Comparison, weight: str) -> tuple[Floats, Floats]:
    """Return the weight of each record before and after, the same array if it is the same; 1 without a weight.

    Every measure of a comparison asks for them, so they are cached: do not write to them.
    """
    known = _MASSES.setdefault(comparison, {})
    if weight not in known:
        known[weight] = _masses(comparison, weight)
    return known[weight]


def _masses(comparison: Comparison, weight: str) -> tuple[Floats, Floats]:
    before, after = comparison.before, comparison.after
    if not weight:
        return np.ones(len(before)), np.ones(len(after))
    one = positive_weights(before, weight)
    shared = before.schema[weight] == after.schema[weight] and same_memory(
        before.table.column(weight), after.table.column(weight)
    )
    other = one if shared else positive_weights(after, weight)
    return one, one if np.array_equal(one, other) else other


def weight_changed(comparison: Comparison, weight: str) -> bool:
    """Return whether masking changed the weight itself."""
    if not weight:
        return False
    one, other = masses(comparison, weight)
    return one is not other


def _beside(detail: pa.Table | None, plain: Score) -> pa.Table | None:
    """Add the figures without weights to the detail, row by row."""
    if detail is None or plain.detail is None or "unweighted" in detail.column_names:
        return detail
    if "value" in detail.column_names:
        return detail.append_column("unweighted", plain.detail.column("value"))
    return detail.append_column("unweighted", pa.array([plain.value] * detail.num_rows, pa.float64()))
