"""The share of records that the confidentiality plot calls unsafe."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.risk.record_plot import PlotMeasure
from safeswap.model.policy import Policy
from safeswap.model.score import Comparison, Score


class UnsafeShare(PlotMeasure):
    """Records under the policy line, as a share of those that can be placed.

    Numeric keys are compared by distance and the line goes from (0, r) to (k, 0). Categorical keys are counted: a
    record is unsafe if its combination has a frequency below k, by default 3.

    >>> UnsafeShare(keys="turnover+employees", k=10).text
    'unsafe_share:keys=turnover+employees,k=10.0'
    """

    name: ClassVar[str] = "unsafe_share"
    title: ClassVar[str] = "share of unsafe records"

    r: Annotated[float, Field(gt=0, description="perturbation that needs no neighbours")] = 0.15
    k: Annotated[
        float | None, Field(gt=0, description="neighbours (15) or frequency (3) that needs no perturbation")
    ] = None
    curvature: Annotated[float, Field(ge=-8, le=8, description="0: a straight line; above: bent to the origin")] = 0.0
    weight: Annotated[str, Field(description="survey weight by which categorical keys are counted")] = ""

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has the totals of the plot."""
        names, numeric = self._keys(comparison.before.schema)
        if numeric:
            policy = Policy(r=self.r, k=15.0 if self.k is None else self.k, curvature=self.curvature)
            plot = self._distance_plot(comparison, names).with_policy(policy)
        else:
            from safeswap.measures.key_frequencies import frequency_plot

            plot = frequency_plot(
                comparison.before,
                comparison.after,
                names,
                weight=self.weight or None,
                k=3.0 if self.k is None else self.k,
            )
        if not plot.placed.any():
            raise SpecError("no record has all the keys", code="no-keys", hint="name keys that are not all missing")
        unsafe = int(np.count_nonzero(plot.unsafe))
        detail = pa.table({"records": [len(plot)], "placed": [int(np.count_nonzero(plot.placed))], "unsafe": [unsafe]})
        sentence = f"{plot.unsafe_share:.2%} of the records ({unsafe:,}) are unsafe by {', '.join(names[:4])}."
        return self._score(plot.unsafe_share, sentence, names, detail)
