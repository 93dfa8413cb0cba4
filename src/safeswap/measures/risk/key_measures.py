"""Measures that count records with the same keys in the released file alone: k-anonymity and l-diversity;
and t-closeness: how far the sensitive values of these records are from those of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.base import Measure, name_keys
from safeswap.measures.key_cells import KeyCells, KeyMeasure, read_weights
from safeswap.model.columns import missing_codes, rank_of_code, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved
from safeswap.model.schema import Kind, household_attributes
from safeswap.model.score import Axis, Comparison, Score


class KAnonymity(KeyMeasure):
    """Records of the released file that share their keys with fewer than k − 1 others, as a share of all.

    The file is k-anonymous exactly if the value is 0. Unlike the n-rule, it does not depend on which records were
    swapped.

    >>> KAnonymity(k=5, keys=("Age", "Sex")).text
    'k_anonymity:keys=Age+Sex,k=5'
    """

    name: ClassVar[str] = "k_anonymity"
    title: ClassVar[str] = "share of records below k"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Samarati & Sweeney (1998), Protecting privacy when disclosing information: k-anonymity, SRI-CSL-98-04",
    )

    k: Annotated[int, Field(ge=2, le=1_000_000, description="minimum number of records that share their keys")] = 3

    def read_scenario(self, resolved: Resolved, data: Microdata) -> dict[str, Any]:
        """Return the parameters that a scenario states: k is its tolerance."""
        return {**super().read_scenario(resolved, data), "k": resolved.scenario.least}

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the number of unsafe cells and the size of the smallest."""
        cells = self._cells(comparison)
        unsafe = cells.like < self.k
        records, listed = int(cells.members[unsafe].sum()), int(unsafe.sum())
        value = records / cells.records if cells.records else 0.0
        smallest = int(cells.like.min()) if cells.like.size else None
        detail = pa.table(
            {
                "k": [self.k],
                "records": [cells.records],
                "unsafe_records": [records],
                "cells": [len(cells.classes)],
                "unsafe_cells": [listed],
                "smallest_cell": pa.array([smallest], pa.int64()),
            }
        )
        sentence = (
            f"{value:.2%} of the records ({records:,} of {cells.records:,}) have keys that fewer than {self.k:,} "
            f"share, in {listed:,} unsafe cell{'' if listed == 1 else 's'} over {name_keys(cells.names)}"
            + (f"; the smallest cell has {smallest:,}." if smallest is not None else ".")
        )
        return self._score(value, self._complete_sentence(sentence, comparison, cells), cells.names, detail)


class LDiversity(KeyMeasure):
    """Records whose sensitive value can be inferred, or nearly so, from their keys: their cell has a diversity below l.

    The diversity of a cell is the number of different sensitive values in it (``distinct``), or the exponential of
    their entropy (``entropy``), which is smaller where one value dominates. With ``recursive``, a cell is safe if its
    most frequent value occurs less than ``c`` times as often as all values from the l-th on together. A missing
    sensitive value does not count: it adds nothing to the diversity, and its record has no value to infer.

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
    kind: Annotated[Literal["distinct", "entropy", "recursive"], Field(description="how diversity is counted")] = (
        "distinct"
    )
    c: Annotated[
        float, Field(gt=0, le=1_000_000, description="with recursive: how often the most frequent value may occur")
    ] = 3.0
    weight: Annotated[
        str, Field(description="survey weight by which values are counted; distinct values are counted without it")
    ] = ""

    def pose(self, resolved: Resolved, data: Microdata) -> tuple[tuple[str, Measure], ...]:
        """Return one measure for each sensitive attribute of the scenario, unless this one states its own."""
        if self.sensitive or not resolved.scenario.sensitive:
            return super().pose(resolved, data)
        each = [self._fill_in({"sensitive": name}) for name in resolved.sensitive]
        return tuple(posed for one in each for posed in one.pose(resolved, data))

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the number of unsafe cells and the least diversity."""
        self._check(comparison)
        cells, data = self._cells(comparison), comparison.after
        values = CellValues.of(cells, data, self.sensitive, self.weight or None)
        diversity, known = diversities(cells, values, entropy=self.kind == "entropy")
        exposed = known > 0
        if self.kind == "recursive":
            unsafe = exposed & ~flag_recursive(cells, values, c=self.c, least=int(np.ceil(self.l)))
        else:
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
            f"{name_keys(cells.names)} {self._lacks()} {self.sensitive}"
            + (f"; the least is {least:.3g}." if least is not None else ".")
        )
        return self._score(value, self._complete_sentence(sentence, comparison, cells), cells.names, detail)

    def score_households(self, comparison: Comparison) -> Score:
        """Score the file of households; the sensitive attribute must be the household's."""
        self._check(comparison)
        if self.sensitive not in household_attributes(comparison.after.schema):
            raise SpecError(
                f"{self.sensitive!r} belongs to the person: households have no diversity of it",
                code="unit-not-supported",
                hint='name an attribute that is the same for all members, or set unit = "person"',
                attribute=self.sensitive,
                unit="household",
            )
        return super().score_households(comparison)

    def _lacks(self) -> str:
        if self.kind == "recursive":
            return f"without recursive ({self.c:g}, {self.l:g})-diversity of"
        return f"with fewer than {self.l:g} {'different' if self.kind == 'distinct' else 'effective'} values of"

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


class CellValues(NamedTuple):
    """The frequency of each sensitive value in each cell, and the number of a cell's records with a known one."""

    cell: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]
    counts: npt.NDArray[Any]
    known: npt.NDArray[np.int64]

    @classmethod
    def of(cls, cells: KeyCells, data: Microdata, sensitive: str, weight: str | None) -> CellValues:
        """Count the values of a file, by the weight if one is given."""
        coded = data.coded(sensitive)
        is_known = ~missing_codes(data, sensitive)[coded.codes]
        known = np.bincount(cells.of_record[is_known], minlength=len(cells.classes))
        pairs = cells.of_record[is_known].astype(np.int64) * coded.cardinality + coded.codes[is_known]
        occupied, inverse, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        if weight is not None:
            counts = np.bincount(inverse.ravel(), read_weights(data, weight)[is_known], minlength=len(occupied))
        return cls(occupied // coded.cardinality, occupied % coded.cardinality, counts, known)

    def iter_matched(self, cells: KeyCells) -> Iterator[npt.NDArray[Any]]:
        """Yield the count of each value in each cell, where a record may match several of them."""
        for each in np.unique(self.level):
            sizes = np.zeros(len(cells.classes), self.counts.dtype)
            sizes[self.cell[self.level == each]] = self.counts[self.level == each]
            yield cells.sums(sizes)


def diversities(cells: KeyCells, values: CellValues, *, entropy: bool) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the diversity of each cell, and the number of its own records with a known sensitive value."""
    number = len(cells.classes)
    own: Floats = np.bincount(values.cell, values.counts, minlength=number).astype(np.float64)
    if cells.like is cells.members:  # no record matches another cell, so cells are disjoint
        return _diversity_of_disjoint(values, own, entropy=entropy), values.known
    totals, found = cells.sums(own.astype(values.counts.dtype)).astype(np.float64), np.zeros(number)
    for part in values.iter_matched(cells):
        found += _entropy_terms(part, totals) if entropy else part > 0
    return np.exp(found) if entropy else found, values.known


def flag_recursive(cells: KeyCells, values: CellValues, *, c: float, least: int) -> npt.NDArray[np.bool_]:
    """Flag the cells whose most frequent value occurs less than ``c`` times as often as those from a rank on."""
    number, cell, counts = len(cells.classes), values.cell, values.counts
    if cells.like is not cells.members:  # a record may match several cells: count each value in all of them
        parts = list(values.iter_matched(cells))
        matched = np.stack(parts, axis=1) if parts else np.zeros((number, 0), np.int64)
        cell, column = np.nonzero(matched)
        counts = matched[cell, column]
    order = np.lexsort((-counts, cell))
    cell, counts = cell[order], counts[order]
    rank = np.arange(len(cell)) - np.searchsorted(cell, cell)
    most = np.bincount(cell[rank == 0], counts[rank == 0], minlength=number)
    rest = np.bincount(cell[rank >= least - 1], counts[rank >= least - 1], minlength=number)
    safe: npt.NDArray[np.bool_] = most < c * rest
    return safe


def _diversity_of_disjoint(values: CellValues, totals: Floats, *, entropy: bool) -> Floats:
    if not entropy:
        return np.bincount(values.cell, minlength=totals.size).astype(np.float64)
    return np.exp(np.bincount(values.cell, _entropy_terms(values.counts, totals[values.cell]), totals.size))


def _entropy_terms(counts: npt.NDArray[Any], totals: Floats) -> Floats:
    shares = counts / np.where(totals > 0, totals, 1.0)
    return -shares * np.log(np.where(shares > 0, shares, 1.0))


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
    return _ordinal_distances(cell_of, value_of, shares, overall, number), records


def _ordinal_distances(cell: Int64s, value: Int64s, shares: Floats, overall: Floats, number: int) -> Floats:
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
        return np.asarray(rank_of_code(data, name))[data.coded(name).codes].astype(np.int64), True
    numbers = to_numbers(data, name)
    return np.unique(np.nan_to_num(numbers), return_inverse=True)[1].ravel().astype(np.int64), True
