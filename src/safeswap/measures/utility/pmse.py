"""Propensity score mean squared error: can a model distinguish the masked file from the original?

Both files are put together, and a logistic regression predicts which file a record comes from. With p̂ its fitted
probability, c the share of masked records and N the number of both,

    pMSE = (1/N) Σ (p̂ − c)²,

0 if the model cannot tell the files apart. If records were independent draws from one population, its mean would be
(k − 1)(1 − c)² c / N with k the rank of the design (Snoke et al. 2018), and S = pMSE / mean would be 1; for two
independent halves of one file it is 1/(1 − c), that is 2. A masked file is neither: S ranks releases of one file, it is
no test.

Swapping keeps every one-way margin, so with main effects only the pMSE of a swap is 0 whatever it did: the default is
all two-way interactions. Records are grouped by cell first, so the cost depends on the number of cells. Where the
schema has a weight, records count with it (scaled to a mean of 1): a swap between records of different weights then
shows in the main effects too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import regression
from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.aligned import align
from safeswap.measures.base import categorical_obstacle, left_out_note, recoding_note
from safeswap.measures.survey import WeightedMeasure, masses, sum_by
from safeswap.measures.utility.categories import DistortionMeasure
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural

MOST_COLUMNS = 800
"""A design with more columns is refused: the fit would take minutes, and most of its cells would be empty."""

MAIN_EFFECTS = "Without weights, main effects cannot detect a swap, which keeps the margins: this figure is then 0."
"""A note on what a model without interactions cannot see."""

_SEED = 20_060_101  # of the permutations: public, and the same for every run
_SAME = 1e-20  # of a mean square of probabilities: rounding


class Pmse(WeightedMeasure, DistortionMeasure):
    """The propensity score mean squared error of a logistic regression that distinguishes the two files.

    >>> Pmse(attributes=("Age", "Sex"), interactions=False).text
    'pmse:attributes=Age+Sex,interactions=false'
    """

    name: ClassVar[str] = "pmse"
    title: ClassVar[str] = "propensity score mean squared error"
    blind_to_recoding: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (
        "Woo, Reiter, Oganian & Karr (2009), Global measures of data utility for masked microdata",
        "Snoke, Raab, Nowok, Dibben & Slavkovic (2018), General and specific utility measures for synthetic data",
    )

    interactions: Annotated[
        bool, Field(description="all two-way interactions; without them a swap of single attributes is not detected")
    ] = True
    permutations: Annotated[
        int, Field(ge=0, le=1000, description="estimate the null by this many random splits of both files")
    ] = 0

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why a model of categories says nothing: there are none, or masking changed numbers only."""
        return categorical_obstacle(comparison, self.attributes)

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has the null, the ratio to it, and the rank of the design."""
        names = self._names(comparison)
        cells = _group(comparison, names, weight)
        design = _build(cells, interactions=self.interactions)
        design = design[:, regression.independent_columns(design)]
        found = _measure(cells, design)
        null = _null(found)
        detail: dict[str, list[Any]] = {
            "interactions": [self.interactions],
            "rank": [found.rank],
            "records": [cells.total],
            "share_masked": [cells.share],
            "pmse": [found.value],
            "null_mean": [null[0]],
            "null_deviation": [null[1]],
            "ratio": [found.value / null[0] if null[0] else 0.0],
            "standardised": [(found.value - null[0]) / null[1] if null[1] else 0.0],
            "permutation_mean": [self._permute(cells, design)],
        }
        detail["permutation_ratio"] = [_ratio(found.value, detail["permutation_mean"][0])]
        sentence = self._describe(found, detail) + left_out_note(comparison, names) + recoding_note(comparison, names)
        return self._score(found.value, sentence, names, pa.table(detail))

    def _describe(self, found: _Found, detail: dict[str, list[Any]]) -> str:
        kind = "main effects and two-way interactions" if self.interactions else "main effects only"
        text = (
            f"A logistic regression ({kind}, rank {found.rank}) distinguishes the files with a mean squared error of "
            f"{found.value:.3g}, that is {detail['ratio'][0]:.2f} of what chance gives (0: not at all)."
        )
        if self.permutations:
            text += f" By {plural(self.permutations, 'permutation')}: a ratio of {detail['permutation_ratio'][0]:.2f}."
        if found.problem:
            text += " Some cells occur in one file only, so that some fitted probabilities are 0 or 1."
        if not self.interactions:
            text += f" {MAIN_EFFECTS}"
        return text + " The ratio ranks releases of one file; it is not a test."

    def _permute(self, cells: _Cells, design: Floats) -> float | None:
        """Return the mean pMSE of random splits of both files together into two of the same sizes."""
        if not self.permutations:
            return None
        draw = np.random.Generator(np.random.PCG64(_SEED))
        wanted = round(float(cells.masked.sum()))
        values = []
        for _ in range(self.permutations):
            if cells.records is None:
                counts = cells.counts.astype(np.int64)
                masked = draw.multivariate_hypergeometric(counts, wanted, method="marginals").astype(np.float64)
            else:
                of_record, is_masked, mass = cells.records
                masked = sum_by(of_record, mass * draw.permutation(is_masked), len(cells.counts))
            values.append(_measure(_Cells(cells.columns, cells.counts, masked), design).value)
        return float(np.mean(values))


@dataclass(frozen=True, eq=False)
class _Cells:
    """The distinct records of both files: a column per attribute, how many there are, how many are masked.

    With weights the numbers are sums of these, scaled to a mean of 1; ``records`` then has each record's cell, whether
    it is masked, and its weight.
    """

    columns: tuple[tuple[Int64s | Floats, int], ...]  # codes and their number; 0 for a number as such
    counts: Floats
    masked: Floats
    records: tuple[Int64s, Floats, Floats] | None = None

    @property
    def total(self) -> int:
        return round(float(self.counts.sum()))

    @property
    def share(self) -> float:
        return float(self.masked.sum() / self.counts.sum()) if self.total else 0.0


@dataclass(frozen=True)
class _Found:
    value: float
    rank: int
    total: int
    share: float
    problem: str


def _group(comparison: Comparison, names: tuple[str, ...], weight: str = "") -> _Cells:
    """Put both files together and count the distinct records, or sum their weights."""
    columns = [align(comparison, name) for name in names]
    codes = [np.concatenate([c.before, c.after]).astype(np.int64) for c in columns]
    is_masked = np.repeat([0.0, 1.0], [len(comparison.before), len(comparison.after)])
    if not len(is_masked):
        return _Cells(
            tuple((code, c.cardinality) for code, c in zip(codes, columns, strict=True)), is_masked, is_masked
        )
    of_record = np.zeros(len(is_masked), dtype=np.int64)
    for code, column in zip(codes, columns, strict=True):
        # Renumbered after each attribute, so that products of many levels do not overflow.
        of_record = np.unique(of_record * max(1, column.cardinality) + code, return_inverse=True)[1]
    number = int(of_record.max()) + 1
    some = np.empty(number, dtype=np.int64)
    some[of_record] = np.arange(len(of_record))
    found: list[tuple[Int64s | Floats, int]] = []
    for name, code, column in zip(names, codes, columns, strict=True):
        if comparison.before.schema[name].kind.is_numeric and comparison.after.schema[name].kind.is_numeric:
            values = np.concatenate([finite_numbers(side, name) for side in (comparison.before, comparison.after)])
            found.append((values[some], 0))
        else:
            found.append((code[some], column.cardinality))
    if not weight:
        counts = np.bincount(of_record, minlength=number).astype(np.float64)
        return _Cells(tuple(found), counts, sum_by(of_record, is_masked, number))
    mass = np.concatenate(masses(comparison, weight))
    mass /= mass.mean()
    sums = [sum_by(of_record, values, number) for values in (mass, mass * is_masked)]
    return _Cells(tuple(found), sums[0], sums[1], (of_record, is_masked, mass))


def _build(cells: _Cells, *, interactions: bool) -> Floats:
    """Return the design: an intercept, a column per level but the first, and products of two attributes' columns."""
    blocks = [_block(values, levels, cells.counts) for values, levels in cells.columns]
    widths = [block.shape[1] for block in blocks]
    columns = 1 + sum(widths) + (sum(a * b for a, b in combinations(widths, 2)) if interactions else 0)
    if columns > MOST_COLUMNS:
        raise SpecError(
            f"the model that distinguishes the files would have {plural(columns, 'column')}, more than "
            f"{MOST_COLUMNS:,}",
            code="model-too-large",
            hint="name fewer attributes, or those with few levels: pmse:attributes=A+B+C; or interactions=false",
            columns=columns,
        )
    products = [
        one[:, i, None] * other
        for one, other in (combinations(blocks, 2) if interactions else ())
        for i in range(one.shape[1])
    ]
    return np.hstack([np.ones((len(cells.counts), 1)), *blocks, *products])


def _block(values: Int64s | Floats, levels: int, counts: Floats) -> Floats:
    if levels:
        return np.asarray(values[:, None] == np.arange(1, levels), dtype=np.float64)
    known = ~np.isnan(values)
    middle = float(np.average(values[known], weights=counts[known])) if known.any() else 0.0
    spread = float(np.sqrt(np.average((values[known] - middle) ** 2, weights=counts[known]))) if known.any() else 0.0
    plain = np.where(known, (values - middle) / (spread or 1.0), 0.0)
    return plain[:, None] if known.all() else np.column_stack([plain, (~known).astype(np.float64)])


def _measure(cells: _Cells, design: Floats) -> _Found:
    """Fit the model of independent columns on the distinct records; return the mean squared distance from the share."""
    if not cells.total:
        return _Found(0.0, 0, 0, 0.0, "")
    share, rank = cells.share, design.shape[1]
    if np.array_equal(cells.masked, cells.counts * share):
        return _Found(0.0, rank, cells.total, share, "")
    if rank >= len(design):  # a coefficient per cell: the model is the table itself
        fitted, problem = cells.masked / cells.counts, ""
    else:
        fit = regression.fit_logistic(design, cells.masked / cells.counts, cells.counts)
        fitted, problem = fit.fitted, fit.problem
    value = float(cells.counts @ (fitted - share) ** 2 / cells.total)
    return _Found(value if value > _SAME else 0.0, rank, cells.total, share, problem)


def _null(found: _Found) -> tuple[float, float]:
    """Return mean and standard deviation of the pMSE of Snoke et al., as if records were independent draws."""
    if not found.total:
        return 0.0, 0.0
    unit = (1 - found.share) ** 2 * found.share / found.total
    return (found.rank - 1) * unit, float(np.sqrt(2 * max(0, found.rank - 1))) * unit


def _ratio(value: float, null: float | None) -> float | None:
    return value / null if null else None
