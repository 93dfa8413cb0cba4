"""Weighted tables: what a survey publishes, where counts say little.

=========================  ==========================================================================================
``weighted_margins``       largest relative change of a weighted count, over all tables of one (or two) attributes
``restricted_hellinger``   Hellinger distance over the cells with at least ``least`` records before, weighted if asked
=========================  ==========================================================================================

A swap keeps unweighted margins exactly. It keeps weighted ones only if partners have the same weight: hold the weight,
or classes of it, fixed. Otherwise these measures say how far they moved.
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import divergence
from safeswap.arrays.types import Flags
from safeswap.measures.aligned import CrossTable, sum_weights
from safeswap.measures.base import AttributeNames, categorical_obstacle, choose_attributes, recoding_note
from safeswap.measures.survey import WeightedMeasure, find_weight, read_design
from safeswap.measures.utility.categories import GOMATAM_KARR, KEPT_BY_SWAPS, DistortionMeasure
from safeswap.measures.utility.estimates import (
    NAMELESS,
    Line,
    LineMeasure,
    change_of_quotient,
    change_of_sums,
    find_domains,
    line_scale,
    quotients,
    records_of,
    relative_change,
    shown_domains,
)
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


class WeightedMargins(LineMeasure):
    """The largest relative change of a weighted count in any table of ``ways`` attributes.

    >>> WeightedMargins(attributes="region+sex", ways=2).text
    'weighted_margins:attributes=region+sex,ways=2'
    """

    name: ClassVar[str] = "weighted_margins"
    title: ClassVar[str] = "largest change in a weighted margin"
    sources: ClassVar[tuple[str, ...]] = (
        "Kaufman, Seastrom & Roey (2005), Do disclosure controls degrade the quality of the data?",
    )

    attributes: Annotated[AttributeNames, Field(description="attributes; all categorical ones if empty")] = ()
    ways: Annotated[int, Field(ge=1, le=2, description="tables of one or of two attributes")] = 1
    least: Annotated[int, Field(ge=1, description="cells of fewer records are omitted")] = 1

    @property
    def shown_from(self) -> int:
        """Number of records from which on a cell counts."""
        return self.least

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why these tables say nothing: there are none, or masking changed numbers only."""
        return categorical_obstacle(comparison, self.attributes, least=self.ways)

    def lines_for(self, comparison: Comparison) -> tuple[Line, ...]:
        """Return the weighted count by each attribute, or each pair."""
        names = choose_attributes(comparison, self.attributes)
        return tuple(Line(statistic="total", by=chosen) for chosen in combinations(names, min(self.ways, len(names))))

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has the cell of each table that changed most, also without weights."""
        schema = comparison.before.schema
        weight = find_weight(schema, self.weight) if self.weighted else ""
        designs = [read_design(d, weight=weight, weighted=bool(weight)) for d in (comparison.before, comparison.after)]
        weights = designs[0].weights, designs[1].weights
        even = np.ones(len(weights[0])), np.ones(len(weights[1]))
        rows: list[dict[str, Any]] = []
        for line in self.lines_for(comparison):
            domains = find_domains(comparison, line.by)
            one, other = quotients(comparison, line, domains)
            shown = shown_domains(one, self.least)
            if not shown.any():
                continue
            figures = []
            for masses in (weights, even):
                before = one.estimates(masses[0])
                change = change_of_quotient(
                    before, np.ones(len(before)), change_of_sums(one, other, masses)[0], np.zeros(len(before))
                )
                figures.append(np.abs(relative_change(before, change, line_scale(before)))[shown])
            place = int(np.argmax(figures[0]))
            where = int(np.flatnonzero(shown)[place])
            named = records_of(one)[where] >= NAMELESS
            rows.append(
                {
                    "attributes": list(line.by),
                    "cell": domains.name(where) if named else ["(rare)"] * len(line.by),
                    "value": float(figures[0][place]),
                    "unweighted": float(figures[1].max()),
                }
            )
        value = max((row["value"] for row in rows), default=0.0)
        plain = max((row["unweighted"] for row in rows), default=0.0)
        types = [("attributes", pa.list_(pa.string())), ("cell", pa.list_(pa.string()))]
        types += [("value", pa.float64()), ("unweighted", pa.float64())]
        names = choose_attributes(comparison, self.attributes)
        sentence = self._describe(rows, value, plain, weight) + recoding_note(comparison, names)
        return self._score(value, sentence, names, pa.Table.from_pylist(rows, schema=pa.schema(types)))

    def _describe(self, rows: list[dict[str, Any]], value: float, plain: float, weight: str) -> str:
        kind = "one-way" if self.ways == 1 else "two-way"
        tables = plural(len(rows), f"{kind} table")
        if not weight:
            text = f"The largest change of a count in {tables} is {value:.2%}; the file has no weight."
            return text + (KEPT_BY_SWAPS if self.ways == 1 else "")
        text = f"The largest change of a weighted count in {tables} is {value:.2%}"
        if value > 0:
            worst = max(rows, key=lambda row: float(row["value"]))
            text += f", in {' × '.join(worst['attributes'])}"
        return f"{text}; without the weight {weight} it is {plain:.2%}."


class RestrictedHellinger(WeightedMeasure, DistortionMeasure):
    """The Hellinger distance over cells with enough records: those that users look at.

    Cells below ``least`` before are merged into one.

    >>> RestrictedHellinger(least=10).text
    'restricted_hellinger:least=10'
    """

    name: ClassVar[str] = "restricted_hellinger"
    title: ClassVar[str] = "Hellinger distance over cells of a minimum size"
    blind_to_recoding: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.1",)

    least: Annotated[int, Field(ge=1, description="cells of fewer records before are merged into one")] = 3

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why these cells say nothing: there are none, or masking changed numbers only."""
        return categorical_obstacle(comparison, self.attributes)

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has the number of cells."""
        names = self._names(comparison)
        small = sum_weights(comparison, names, "").before < self.least
        value = divergence.hellinger(*_merge(sum_weights(comparison, names, weight), small))
        kept, merged = int(np.count_nonzero(~small)), int(np.count_nonzero(small))
        detail = pa.table({"value": [value], "cells": [kept], "merged": [merged]})
        sentence = (
            f"Hellinger distance {value:.4f} over {plural(kept, 'cell')} of at least {plural(self.least, 'record')} "
            f"and the {merged:,} smaller ones taken together (0: the same table)."
        )
        return self._score(value, sentence + recoding_note(comparison, names), names, detail)


def _merge(table: CrossTable, small: Flags) -> tuple[Any, Any]:
    one, other = (np.append(side[~small], side[small].sum()) for side in (table.before, table.after))
    return one, other
