"""The n-rule: the share of unswapped records that lie in small cells of the masked file."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.base import Names, ParametricMeasure, chosen_attributes, left_out
from safeswap.model.score import Axis, Comparison, Score


class NRule(ParametricMeasure):
    """(Unswapped records in post-swap cells of 1 to n − 1 records) / (all unswapped records).

    Where every record was swapped there is none left whose values are known to be its own: the value is 0.

    >>> NRule(n=5, keys=("Age", "Sex")).text
    'n_rule:n=5,keys=Age+Sex'
    """

    name: ClassVar[str] = "n_rule"
    title: ClassVar[str] = "n-rule"
    axis: ClassVar[Axis] = Axis.RISK
    needs: ClassVar[frozenset[str]] = frozenset({"touched"})
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam, Karr & Sanil (2003), A Risk-Utility Framework for Categorical Data Swapping, NISS report 132",
    )

    n: Annotated[int, Field(ge=2, le=10_000, description="a cell of fewer than n records is small")] = 3
    keys: Annotated[Names, Field(description="key variables that make the cells; all categorical if empty")] = ()

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has one line per size of small cell."""
        from safeswap.kernels import cells

        names = chosen_attributes(comparison, self.keys)
        unswapped = ~self._touched(comparison)
        counts = cells.record_cell_counts(*comparison.after.coded_columns(names))
        sizes = np.arange(1, self.n)
        of_all = np.bincount(counts[counts < self.n], minlength=self.n)[1:]
        of_unswapped = np.bincount(counts[(counts < self.n) & unswapped], minlength=self.n)[1:]
        total = int(np.count_nonzero(unswapped))
        value = float(of_unswapped.sum() / total) if total else 0.0
        detail = pa.table(
            {"cell_size": sizes, "cells": of_all // sizes, "records": of_all, "unswapped_records": of_unswapped}
        )
        sentence = self._meaning(value, int(of_unswapped.sum()), total, names) + left_out(comparison, names)
        return self._score(value, sentence, names, detail)

    def _touched(self, comparison: Comparison) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if comparison.touched is None or comparison.touched.size != len(comparison.after):
            raise SpecError(
                "the n-rule needs to know which records took part in the masking",
                code="needs-touched",
                hint="assess the masked result itself, or give both files in the same order of records",
            )
        return comparison.touched

    def _meaning(self, value: float, small: int, total: int, names: tuple[str, ...]) -> str:
        if total == 0:
            return "Every record took part in the masking: none is left to which the n-rule applies."
        over = " × ".join(names) if len(names) <= 4 else f"{len(names)} attributes"
        return (
            f"{value:.2%} of the records that were not swapped ({small:,} of {total:,}) lie in cells of fewer than "
            f"{self.n} records over {over}."
        )
