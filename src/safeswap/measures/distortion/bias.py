"""The distortion of continuous items: PERCENTAGE BIAS, over several levels of the keys or record by record."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.base import Names, ParametricMeasure, chosen_attributes
from safeswap.measures.bias_figures import BiasReport, Reading
from safeswap.model.score import Axis, Comparison, Score


class PercentageBias(ParametricMeasure):
    """The root mean square change of continuous items in percent of their mean, the mean over items and levels.

    >>> PercentageBias(variables="INCOME", reading="pointwise").text
    'percentage_bias:variables=INCOME,reading=pointwise'
    """

    name: ClassVar[str] = "percentage_bias"
    title: ClassVar[str] = "percentage bias"
    axis: ClassVar[Axis] = Axis.DISTORTION
    sources: ClassVar[tuple[str, ...]] = (
        "Moore (1996), Preliminary Recommendations for Disclosure Limitation for the 2000 Census",
    )

    variables: Annotated[Names, Field(description="continuous items; all numeric attributes if empty")] = ()
    keys: Annotated[Names, Field(description="keys that make the classes; all categorical attributes if empty")] = ()
    reading: Annotated[
        Reading,
        Field(description="class: of the means of classes, at every level; pointwise: of each record's place"),
    ] = "class"
    p: Annotated[float, Field(ge=0, description="percent by which a swapped record should change on average")] = 10.0
    f: Annotated[float, Field(gt=0, description="by how much the spread may grow, as a part of it")] = 0.01

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence and the verdict; the detail has one line per item and level."""
        from safeswap.measures.bias import bias_report

        keys = chosen_attributes(comparison, self.keys)
        report = bias_report(comparison, self.variables, keys, readings=(self.reading,))
        known = [v for v in report.variables if not np.isnan(self._value(report, v))]
        if not known:
            raise SpecError(
                "percentage bias is relative to the mean, and no item has a mean other than zero",
                code="no-mean",
                hint="name other variables",
            )
        value = float(np.mean([self._value(report, variable) for variable in known]))
        return self._score(value, self._meaning(value, report, known), tuple(known), report.table())

    def _value(self, report: BiasReport, variable: str) -> float:
        return report.pointwise(variable) if self.reading == "pointwise" else report.average(variable)

    def _meaning(self, value: float, report: BiasReport, known: list[str]) -> str:
        what = "the value in a record's place" if self.reading == "pointwise" else "the mean of a record's class"
        text = f"{what.capitalize()} moved by {value:.4g}% of the overall mean on average"
        verdicts = [v for v in report.verdicts(self.p, self.f, reading=self.reading) if v.variable in known]
        weak = [v.variable for v in verdicts if not v.protected]
        spoilt = [v.variable for v in verdicts if not v.useful]
        text += f"; too little to protect: {', '.join(weak)}" if weak else ""
        text += f"; too much to be useful: {', '.join(spoilt)}" if spoilt else ""
        return text + ("." if weak or spoilt else ", within the acceptable range for every item.")
