"""Individual risk: the expected number of records an intruder finds in the population by their keys.

Given f records of the sample in a cell, the population count F has a negative binomial distribution with success
probability p = f / Σ w, and the risk is the expectation of 1/F:

    r = p ∫₀¹ (1 − t)^(f−1) / (1 − q t) dt = (p / f) ₂F₁(1, 1; f + 1; q),   q = 1 − p.

With r_m the risk for m records, r_1 = p log(1/p) / q and r_(m+1) = (p / q) (1/m − r_m): the closed forms for f up to 3
are the first steps. A step multiplies errors by p / q, so the recursion is used for p below 1/2 only; the series has
only positive terms, each at most q times the one before, and converges quickly for p above 1/2 or for many records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.measures.base import name_keys
from safeswap.measures.households import household_risks
from safeswap.measures.key_cells import MEANING_OF_MISSING, KeyCells, KeyMeasure, key_cells, read_weights
from safeswap.model.combination import Missing
from safeswap.model.households import find_households
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import RiskModel, plural

_FEW = 40  # for more records the series needs only a few dozen terms, whatever p


def expected_inverse(counts: npt.NDArray[np.int64], population: Floats) -> Floats:
    """Return E[1/F] for each cell of f records whose weights sum to ``population``; 1/f if that is not above f.

    >>> expected_inverse(np.array([1, 2, 5]), np.array([215.0, 360.0, 5.0])).round(4).tolist()
    [0.0251, 0.0054, 0.2]
    """
    found = np.empty(counts.size)
    _fill(np.asarray(counts, np.int64), np.asarray(population, np.float64), found)
    return found


@njit(cache=True, nogil=True)
def _fill(counts, population, found):  # type: ignore[no-untyped-def]
    for i in range(counts.size):
        found[i] = _risk(counts[i], population[i])


@njit(cache=True, nogil=True)
def _risk(count, population):  # type: ignore[no-untyped-def]
    if count <= 0:
        return 0.0
    if not population > count:
        return 1.0 / count
    p = count / population
    q = (population - count) / population  # exact where p is near 1
    if p < 0.5 and count <= _FEW:
        risk = p * -np.log(p) / q
        for m in range(1, count):
            risk = p / q * (1.0 / m - risk)
        return risk
    total, term, n = 1.0, 1.0, 0
    while term > 1e-17 * total:
        term *= (n + 1) * q / (count + 1 + n)
        total += term
        n += 1
    return p / count * total


@dataclass(frozen=True, eq=False, repr=False)
class RecordRisks:
    """Risks by cell, equal for all records of a cell. ``population`` is F, or its estimate from the weights."""

    cells: KeyCells
    model: str
    population: Floats
    risks: Floats

    @property
    def expected(self) -> float:
        """Expected number of re-identified records: the sum of all risks."""
        return float(self.risks @ self.cells.members)

    @property
    def highest(self) -> float:
        """Largest risk of a record; 0 in an empty file."""
        return float(self.risks.max(initial=0.0))

    @property
    def below_sample(self) -> int:
        """Number of records in cells whose weights sum to less than their records, where F is taken to be f."""
        short = self.population < self.cells.like
        return int(self.cells.members[short].sum())

    def __repr__(self) -> str:
        return f"<RecordRisks: {self.expected:,.4g} of {plural(self.cells.records, 'record')} expected to be found>"

    def count_above(self, threshold: float) -> int:
        """Count the records with a risk above the threshold."""
        return int(self.cells.members[self.risks > threshold].sum())

    def table(self) -> pa.Table:
        """Return one row per record, in the order of the file. Confidential."""
        of_record = self.cells.of_record
        return pa.table(
            {
                "sample_count": self.cells.like[of_record],
                "population_count": self.population[of_record],
                "risk": self.risks[of_record],
            }
        )


def record_risks(
    data: Microdata,
    keys: Sequence[str],
    *,
    weight: str | None = None,
    model: RiskModel = "franconi-polettini",
    missing: Missing = "any",
) -> RecordRisks:
    """Compute every record's risk from its keys.

    Without a weight the file is the population, and the risk is 1/F. With one it is a sample: the risk is the expected
    1/F given the sample (Franconi and Polettini), or one over the sum of the weights (``inverse``). A record with a
    missing key is searched for by its known keys.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="w", kind="weight")))
    >>> data = Microdata(pa.table({"Sex": ["f", "m", "m"], "w": [215.0, 180.0, 180.0]}), schema)
    >>> record_risks(data, ["Sex"], weight="w").table()["risk"].to_numpy().round(4).tolist()
    [0.0251, 0.0054, 0.0054]
    """
    if model not in get_args(RiskModel):
        raise SpecError(
            f"there is no risk model {model!r}",
            code="bad-spec",
            hint="the models are: " + ", ".join(get_args(RiskModel)),
        )
    cells = key_cells(data, keys, missing=missing)
    counts = cells.like
    if weight is None:
        population = counts.astype(np.float64)
        risks, told = 1 / np.maximum(counts, 1), "population"
    else:
        population = cells.sums(np.bincount(cells.of_record, _weights(data, weight), len(cells.classes)))
        risks, told = _estimate_risks(counts, population, model), model
    return RecordRisks(cells, told, population, risks)


def _estimate_risks(counts: npt.NDArray[np.int64], population: Floats, model: RiskModel) -> Floats:
    if model == "inverse":
        return 1 / np.maximum(population, counts)  # the population contains the sample

    return expected_inverse(counts, population)


def _weights(data: Microdata, name: str) -> Floats:
    if data.schema[name].kind not in (Kind.WEIGHT, Kind.NUMERIC):
        raise SpecError(
            f"{name!r} is {data.schema[name].kind.value} and not a weight",
            code="not-a-weight",
            hint="name the survey weight, described as weight or numeric",
            attribute=name,
        )
    return read_weights(data, name)


class IndividualRisk(KeyMeasure):
    """The expected share of re-identified records: the mean over all records of 1/F, or of its estimate.

    F is the number of people in the population with the record's keys. Without a weight the file is the population.

    >>> IndividualRisk(keys=("Age", "Sex"), weight="w").text
    'individual_risk:keys=Age+Sex,weight=w'
    """

    name: ClassVar[str] = "individual_risk"
    title: ClassVar[str] = "expected share of re-identifications"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Benedetti & Franconi (1998), Statistical and technological solutions for controlled data dissemination",
        "Franconi & Polettini (2004), Individual risk estimation in μ-Argus: a review, PSD 2004, LNCS 3050",
    )

    missing: Annotated[Missing, Field(description=MEANING_OF_MISSING)] = "any"
    weight: Annotated[str, Field(description="survey weight; without one the file is the population")] = ""
    model: Annotated[
        RiskModel, Field(description="with a weight: the expected 1/F given the sample, or 1 / sum of weights")
    ] = "franconi-polettini"
    threshold: Annotated[float, Field(gt=0, le=1, description="records above this risk are counted in the detail")] = (
        0.1
    )

    def score_households(self, comparison: Comparison) -> Score:
        """Score the file by households: the mean over persons of the risk that any member of theirs is found."""
        names, homes = self._names(comparison), find_households(comparison.before)
        found = record_risks(
            comparison.after, names, weight=self.weight or None, model=self.model, missing=self.missing
        )
        risks = household_risks(found.risks[found.cells.of_record], homes)
        expected, records = float(risks @ homes.sizes), found.cells.records
        value, highest = expected / records if records else 0.0, float(risks.max(initial=0.0))
        above = int(np.count_nonzero(risks > self.threshold))
        detail = pa.table(
            {
                "records": [records],
                "households": [len(homes)],
                "expected": [expected],
                "expected_households": [float(risks.sum())],
                "highest": [highest],
                "threshold": [self.threshold],
                "above_threshold": [above],
                "weights_below_count": [found.below_sample],
            }
        )
        sentence = (
            f"{float(risks.sum()):,.4g} of {plural(len(homes), 'household')} are expected to be found through any of "
            f"their members by {name_keys(names)}: {value:.3%} on average over persons; the highest risk of a "
            f"household is {highest:.3g}, {plural(above, 'household is', 'households are')} above {self.threshold:g}."
        )
        return self._score(value, self._complete_sentence(sentence, comparison, found.cells), names, detail)

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the expected number, the highest risk and the number above the threshold."""
        names = self._names(comparison)
        found = record_risks(
            comparison.after, names, weight=self.weight or None, model=self.model, missing=self.missing
        )
        records, above = found.cells.records, found.count_above(self.threshold)
        value = found.expected / records if records else 0.0
        detail = pa.table(
            {
                "records": [records],
                "expected": [found.expected],
                "highest": [found.highest],
                "threshold": [self.threshold],
                "above_threshold": [above],
                "weights_below_count": [found.below_sample],
            }
        )
        sentence = (
            f"{found.expected:,.4g} of {plural(records, 'record')} ({value:.3%}) "
            f"{'is' if records == 1 else 'are'} expected to be found by {name_keys(names)}; "
            f"the highest risk is {found.highest:.3g}, {plural(above, 'record is', 'records are')} above "
            f"{self.threshold:g}."
        )
        if found.below_sample:
            sentence += (
                f" In the cells of {plural(found.below_sample, 'record')} the weights add up to less than the "
                "records: the population is taken to be as large as the sample there."
            )
        return self._score(value, self._complete_sentence(sentence, comparison, found.cells), names, detail)
