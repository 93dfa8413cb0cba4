"""t-closeness: how far the sensitive values of records with the same keys are from those of all records."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.base import name_keys
from safeswap.measures.key_cells import KeyCells, KeyMeasure, read_weights
from safeswap.model.columns import missing_codes, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score


class TCloseness(KeyMeasure):
    """Records in cells whose sensitive values are distributed otherwise than in the file, by more than t.

    The distance is the earth mover's: half the sum of absolute differences for nominal values; for ordinal and numeric
    ones the sum of absolute cumulative differences over the ranks, divided by their number minus one. A missing
    sensitive value is left out; a missing key is a value of its own.

    >>> TCloseness(keys=("Age", "Sex"), sensitive="AnnSal", t=0.1).text
    't_closeness:keys=Age+Sex,sensitive=AnnSal,t=0.1'
    """

    name: ClassVar[str] = "t_closeness"
    title: ClassVar[str] = "share of records beyond t"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Li, Li & Venkatasubramanian (2007), t-closeness: Privacy beyond k-anonymity and l-diversity, ICDE",
    )

    sensitive: Annotated[str, Field(description="the attribute to protect; not a key")] = ""
    t: Annotated[float, Field(ge=0, le=1, description="largest distance of a safe cell")] = 0.2
    weight: Annotated[str, Field(description="survey weight by which values are counted")] = ""

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the largest and the mean distance."""
        if not self.sensitive or self.sensitive in self.keys:
            raise SpecError(
                "t-closeness needs a sensitive attribute that is not a key",
                code="no-sensitive-attribute" if not self.sensitive else "sensitive-key",
                hint="t_closeness:sensitive=Income",
            )
        data = comparison.after
        data.schema[self.sensitive]
        cells = self._cells(comparison)
        distance, known = distances(cells, data, self.sensitive, self.weight or None)
        beyond = (known > 0) & (distance > self.t * (1 + 1e-12))
        records = int(known[beyond].sum())
        value = records / cells.records if cells.records else 0.0
        largest = float(distance[known > 0].max()) if (known > 0).any() else 0.0
        detail = pa.table(
            {
                "t": [self.t],
                "records": [cells.records],
                "unsafe_records": [records],
                "unsafe_cells": [int(beyond.sum())],
                "largest_distance": [largest],
                "mean_distance": [float((distance * known).sum() / max(known.sum(), 1))],
            }
        )
        sentence = (
            f"{value:.2%} of the records ({records:,} of {cells.records:,}) lie in cells over {name_keys(cells.names)} "
            f"whose {self.sensitive} differs from that of the file by more than {self.t:g}; the largest distance is "
            f"{largest:.3g}."
        )
        return self._score(value, sentence, cells.names, detail)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the stated keys, or all attributes except the sensitive one."""
        names = super()._names(comparison)
        return names if self.keys else tuple(name for name in names if name != self.sensitive)


def distances(cells: KeyCells, data: Microdata, sensitive: str, weight: str | None) -> tuple[Floats, Floats]:
    """Return the distance of each cell from the file, and the number of its records with a known value."""
    coded = data.coded(sensitive)
    known = ~missing_codes(data, sensitive)[coded.codes]
    ranks, ordered = _ranks(data, sensitive)
    value, cell = ranks[known], cells.of_record[known].astype(np.int64)
    weights = np.ones(len(value)) if weight is None else read_weights(data, weight)[known]
    number, levels = len(cells.classes), int(ranks.max(initial=0)) + 1
    overall = np.bincount(value, weights, minlength=levels)
    overall = overall / max(overall.sum(), 1e-300)
    occupied, inverse = np.unique(cell * levels + value, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weights, minlength=len(occupied))
    cell_of, value_of = occupied // levels, occupied % levels
    totals = np.bincount(cell_of, counts, minlength=number)
    shares = counts / np.where(totals[cell_of] > 0, totals[cell_of], 1.0)
    records = np.bincount(cell, minlength=number).astype(np.float64)
    if not ordered or levels < 2:
        # Half the sum of |p − q|: what the cell has not of a value is q, so only occupied ones are listed.
        excess = np.maximum(shares - overall[value_of], 0.0)
        found: Floats = np.bincount(cell_of, excess, minlength=number).astype(np.float64)
        return found, records
    return _ordered(cell_of, value_of, shares, overall, number), records


def _ordered(cell: Int64s, value: Int64s, shares: Floats, overall: Floats, number: int) -> Floats:
    """Sum |P − Q| over the ranks, cell by cell."""
    cumulative = np.cumsum(overall)
    found = np.zeros(number)
    starts = np.searchsorted(cell, np.arange(number + 1))
    for each in range(number):
        own = slice(starts[each], starts[each + 1])
        steps = np.zeros(len(overall))
        steps[value[own]] = shares[own]
        found[each] = np.abs(np.cumsum(steps) - cumulative)[:-1].sum()
    return found / max(len(overall) - 1, 1)


def _ranks(data: Microdata, name: str) -> tuple[Int64s, bool]:
    """Return the rank of each record's value, and whether ranks have a meaning."""
    kind = data.schema[name].kind
    if kind is Kind.NOMINAL or kind is Kind.GEOGRAPHY:
        return data.coded(name).codes.astype(np.int64), False
    if kind is Kind.ORDINAL:
        from safeswap.model.columns import rank_of_code

        return np.asarray(rank_of_code(data, name))[data.coded(name).codes].astype(np.int64), True
    numbers = to_numbers(data, name)
    return np.unique(np.nan_to_num(numbers), return_inverse=True)[1].ravel().astype(np.int64), True
