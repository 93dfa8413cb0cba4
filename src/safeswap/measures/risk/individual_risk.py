"""Individual risk: how many records an intruder is expected to find in the population by their keys."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import Field

from safeswap.measures.record_risks import record_risks
from safeswap.measures.risk.key_measure import MEANING_OF_MISSING, KeyMeasure, over
from safeswap.model.combination import Missing
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.several import several
from safeswap.model.words import RiskModel


class IndividualRisk(KeyMeasure):
    """The expected share of re-identified records: the mean over all records of 1/F, or of its estimate.

    F is how many people of the population have the keys of the record. Without a weight the file is the population.

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
    weight: Annotated[str, Field(description="survey weight; none: the file is the population")] = ""
    model: Annotated[
        RiskModel, Field(description="with a weight: the expected 1/F given the sample, or 1 / sum of weights")
    ] = "franconi-polettini"
    threshold: Annotated[float, Field(gt=0, le=1, description="records above this risk are counted in the detail")] = (
        0.1
    )

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has the expected number, the highest risk and how many exceed."""
        names = self._names(comparison)
        found = record_risks(
            comparison.after, names, weight=self.weight or None, model=self.model, missing=self.missing
        )
        records, above = found.cells.records, found.above(self.threshold)
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
            f"{found.expected:,.4g} of {records:,} records ({value:.3%}) are expected to be found by {over(names)}; "
            f"the highest risk is {found.highest:.3g}, {several(above, 'record is', 'records are')} above "
            f"{self.threshold:g}."
        )
        if found.below_sample:
            sentence += (
                f" In the cells of {several(found.below_sample, 'record')} the weights add up to less than the "
                "records: the population is taken to be as large as the sample there."
            )
        return self._score(value, self._told(sentence, comparison, found.cells), names, detail)
