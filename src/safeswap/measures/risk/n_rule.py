"""The n-rule: the share of unswapped records that lie in small cells of the masked file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Counts
from safeswap.errors import SpecError
from safeswap.measures.base import (
    AttributeNames,
    ParametricMeasure,
    Situation,
    categorical_obstacle,
    choose_attributes,
    counted_obstacle,
    left_out_note,
    left_out_note_of,
    name_keys,
)
from safeswap.measures.households import compare_households, tell_unit
from safeswap.model.columns import missing_codes
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved
from safeswap.model.score import Axis, Comparison, CountedCells, Score
from safeswap.model.text import join_phrases


class NRule(ParametricMeasure):
    """(Unswapped records in post-swap cells of 1 to n − 1 records) / (all unswapped records).

    If every record was swapped, no record is known to have its own values: the value is 0.

    >>> NRule(n=5, keys=("Age", "Sex")).text
    'n_rule:n=5,keys=Age+Sex'
    """

    name: ClassVar[str] = "n_rule"
    title: ClassVar[str] = "n-rule"
    axis: ClassVar[Axis] = Axis.RISK
    needs: ClassVar[frozenset[str]] = frozenset({"touched"})
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories", "study"})
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam, Karr & Sanil (2003), A Risk-Utility Framework for Categorical Data Swapping, NISS report 132",
    )

    n: Annotated[int, Field(ge=2, le=10_000, description="a cell of fewer than n records is small")] = 3
    keys: Annotated[
        AttributeNames, Field(description="key variables that make the cells; all categorical if empty")
    ] = ()

    def read_scenario(self, resolved: Resolved, data: Microdata) -> dict[str, Any]:
        """Return the parameters that a scenario states: n is its tolerance."""
        return {**super().read_scenario(resolved, data), "n": resolved.scenario.least}

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why the n-rule does not apply: no cells, or no change in them, so that no record was swapped."""
        return categorical_obstacle(comparison, self.keys)

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has one row per size of small cell."""
        names = choose_attributes(comparison, self.keys)
        _require_no_obstacle(self.find_obstacle(comparison))
        found = self._count(comparison, names)
        return replace(found, sentence=found.sentence + _tell_difference(comparison, names)) if found.value else found

    def _count(self, comparison: Comparison, names: tuple[str, ...]) -> Score:
        from safeswap.arrays import cells

        unswapped = ~self._require_touched(comparison)
        counts = cells.record_cell_counts(*comparison.after.coded_columns(names))
        of_all = np.bincount(counts[counts < self.n], minlength=self.n)[1:]
        of_unswapped = np.bincount(counts[(counts < self.n) & unswapped], minlength=self.n)[1:]
        return self._make_score(
            of_all, of_unswapped, int(np.count_nonzero(unswapped)), names, left_out_note(comparison, names)
        )

    def score_households(self, comparison: Comparison) -> Score:
        """Score the file of households: one was swapped if any member was."""
        names = choose_attributes(comparison, self.keys)
        _require_no_obstacle(self.find_obstacle(comparison))
        seen = compare_households(comparison, names)
        return tell_unit(self._count(seen, seen.attributes), len(seen.after))

    @property
    def small(self) -> int | None:
        """n if cells are formed from all attributes; else None, since records are needed."""
        return None if self.keys else self.n

    def score_counts(self, counted: CountedCells) -> Score:
        """Score from counts alone."""
        _require_no_obstacle(counted_obstacle(counted))
        names = counted.attributes
        of_all = counted.small_cells[1 : self.n] * np.arange(1, self.n)
        of_unswapped = counted.small_untouched[1 : self.n]
        return self._make_score(of_all, of_unswapped, counted.untouched, names, left_out_note_of(counted.schema, names))

    def _make_score(self, of_all: Counts, of_unswapped: Counts, total: int, names: tuple[str, ...], note: str) -> Score:
        sizes = np.arange(1, self.n)
        value = float(of_unswapped.sum() / total) if total else 0.0
        detail = pa.table(
            {"cell_size": sizes, "cells": of_all // sizes, "records": of_all, "unswapped_records": of_unswapped}
        )
        sentence = self._meaning(value, int(of_unswapped.sum()), total, names) + note
        return self._score(value, sentence, names, detail)

    def _require_touched(self, comparison: Comparison) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if comparison.touched is None or comparison.touched.size != len(comparison.after):
            raise SpecError(
                "the n-rule needs to know which records took part in the masking",
                code="needs-touched",
                hint="assess the masked result itself, or give both files in the same order of records",
            )
        return comparison.touched

    def _meaning(self, value: float, small: int, total: int, names: tuple[str, ...]) -> str:
        if total == 0:
            return "Every record took part in the masking: the n-rule applies to none."

        return (
            f"{value:.2%} of the records that took no part in the masking ({small:,} of {total:,}) lie in cells of "
            f"fewer than {self.n} records over {name_keys(names)}."
        )


def _tell_difference(comparison: Comparison, names: tuple[str, ...]) -> str:
    """Return why the n-rule can be above 0 where no combination is unsafe under the scenario; empty if it cannot."""
    if comparison.scenario is None:
        return ""
    asked = comparison.scenario.scenario
    reasons = []
    if asked.missing != "own" and any(_has_missing(comparison.after, name) for name in names):
        reasons.append("counts a missing value as a value of its own")
    if all(len(set(names).intersection(keys)) < len(names) for keys, _ in asked.stated()):
        reasons.append("takes all keys together, more than any combination of the scenario has")
    if asked.weight is not None:
        reasons.append("counts records where the scenario sums weights")
    if not reasons:
        return ""
    return f" It can differ from the unsafe combinations of the scenario, since it {join_phrases(reasons)}."


def _has_missing(data: Microdata, name: str) -> bool:
    return bool(missing_codes(data, name)[data.coded(name).codes].any())


def _require_no_obstacle(obstacle: str) -> None:
    """Refuse to score: records masked in another way are as easy to find by their keys as before, and 0 is wrong."""
    if obstacle:
        raise SpecError(
            f"the n-rule does not apply: {obstacle}",
            code="measure-does-not-apply",
            hint="use correct_links for numeric keys, or k_anonymity for the small cells of the released file",
        )
