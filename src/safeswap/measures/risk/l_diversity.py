"""l-diversity: the share of records in cells with too little diversity of sensitive values."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.measures.key_cells import KeyCells
from safeswap.measures.risk.key_measure import KeyMeasure, name_keys
from safeswap.model.columns import missing_codes
from safeswap.model.microdata import Microdata
from safeswap.model.score import Axis, Comparison, Score


class LDiversity(KeyMeasure):
    """Records whose sensitive value can be inferred, or nearly so, from their keys: their cell has a diversity below l.

    The diversity of a cell is the number of different sensitive values in it (``distinct``), or the exponential of
    their entropy (``entropy``), which is smaller where one value dominates. A missing sensitive value does not count:
    it adds nothing to the diversity, and its record has no value to infer.

    >>> LDiversity(keys=("Age", "Sex"), sensitive="AnnSal").text
    'l_diversity:keys=Age+Sex,sensitive=AnnSal'
    """

    name: ClassVar[str] = "l_diversity"
    title: ClassVar[str] = "share of records below l"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Machanavajjhala, Kifer, Gehrke & Venkitasubramaniam (2007), l-diversity: Privacy beyond k-anonymity, TKDD 1",
    )

    sensitive: Annotated[str, Field(description="the attribute to protect; not a key")] = ""
    l: Annotated[float, Field(gt=1, le=1_000_000, description="minimum diversity of a safe cell")] = 2  # noqa: E741
    kind: Annotated[Literal["distinct", "entropy"], Field(description="how diversity is counted")] = "distinct"

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the number of unsafe cells and the least diversity."""
        self._check(comparison)
        cells, data = self._cells(comparison), comparison.after
        diversity, known = diversities(cells, data, self.sensitive, entropy=self.kind == "entropy")
        exposed = known > 0
        # Rounding may put an entropy of exactly log l slightly below it.
        unsafe = exposed & (diversity < self.l * (1 - 1e-12))
        records = int(known[unsafe].sum())
        value = records / cells.records if cells.records else 0.0
        least = float(diversity[exposed].min()) if exposed.any() else None
        detail = pa.table(
            {
                "l": [self.l],
                "records": [cells.records],
                "unsafe_records": [records],
                "cells": [int(exposed.sum())],
                "unsafe_cells": [int(unsafe.sum())],
                "least_diversity": pa.array([least], pa.float64()),
            }
        )
        sentence = (
            f"{value:.2%} of the records ({records:,} of {cells.records:,}) lie in cells over "
            f"{name_keys(cells.names)} with fewer than {self.l:g} "
            f"{'different' if self.kind == 'distinct' else 'effective'} values of {self.sensitive}"
            + (f"; the least is {least:.3g}." if least is not None else ".")
        )
        return self._score(value, self._complete_sentence(sentence, comparison, cells), cells.names, detail)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the stated keys, or all attributes except the sensitive one."""
        names = super()._names(comparison)
        return names if self.keys else tuple(name for name in names if name != self.sensitive)

    def _check(self, comparison: Comparison) -> None:
        if not self.sensitive:
            raise SpecError(
                "l-diversity needs a sensitive attribute",
                code="no-sensitive-attribute",
                hint="l_diversity:sensitive=Income",
            )
        comparison.after.schema[self.sensitive]
        if self.sensitive in self.keys:
            raise SpecError(
                f"{self.sensitive!r} cannot be both a key and the sensitive attribute",
                code="sensitive-key",
                hint="leave it out of the keys",
                attribute=self.sensitive,
            )


def diversities(
    cells: KeyCells, data: Microdata, sensitive: str, *, entropy: bool
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the diversity of each cell, and the number of its own records with a known sensitive value."""
    coded = data.coded(sensitive)
    levels, number = coded.cardinality, len(cells.classes)
    is_known = ~missing_codes(data, sensitive)[coded.codes]
    known = np.bincount(cells.of_record[is_known], minlength=number)
    pairs = cells.of_record[is_known].astype(np.int64) * levels + coded.codes[is_known]
    occupied, counts = np.unique(pairs, return_counts=True)
    if cells.like is cells.members:  # no record matches another cell, so cells are disjoint
        return _diversity_of_disjoint(occupied // levels, counts, known, entropy=entropy), known
    found, totals = np.zeros(number), cells.sums(known).astype(np.float64)
    for level in np.unique(occupied % levels):
        here = occupied % levels == level
        sizes = np.zeros(number, np.int64)
        sizes[occupied[here] // levels] = counts[here]
        matched = cells.sums(sizes)
        found += _surprise(matched, totals) if entropy else matched > 0
    return np.exp(found) if entropy else found, known


def _diversity_of_disjoint(
    cell: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], known: npt.NDArray[np.int64], *, entropy: bool
) -> Floats:
    if not entropy:
        return np.bincount(cell, minlength=known.size).astype(np.float64)
    return np.exp(np.bincount(cell, _surprise(counts, known[cell]), known.size))


def _surprise(counts: npt.NDArray[np.int64], totals: npt.NDArray[np.int64] | Floats) -> Floats:
    shares = counts / np.maximum(totals, 1)
    return -shares * np.log(np.where(shares > 0, shares, 1.0))
