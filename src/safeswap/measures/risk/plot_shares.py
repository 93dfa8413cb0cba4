"""Measures read off the confidentiality plot: the shares of correct links and of unsafe records."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.base import AttributeNames, ParametricMeasure, Situation, numeric_names
from safeswap.measures.plot.numeric_keys import Distance, Scale, confidentiality_plot
from safeswap.measures.plot.values import ConfidentialityPlot, Policy
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.scenario import Resolved
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import list_names

# Both measures of a comparison use the same plot.
_PLOTS: WeakKeyDictionary[Comparison, dict[tuple[Any, ...], ConfidentialityPlot]] = WeakKeyDictionary()


class PlotMeasure(ParametricMeasure):
    """A figure read off the confidentiality plot."""

    axis: ClassVar[Axis] = Axis.RISK
    by_distance: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (
        "Seri, A graphical framework to evaluate risk assessment and information loss at individual level (Istat)",
    )

    keys: Annotated[
        AttributeNames, Field(description="key variables; all numeric ones if empty, or all categorical ones")
    ] = ()
    alpha: Annotated[float, Field(gt=0, lt=1, description="share of false pairs that count as near")] = 0.05
    scale: Annotated[
        Scale | Literal["auto"],
        Field(description="scale of numeric keys: log, asinh or linear; auto: log where all are above 0, else asinh"),
    ] = "auto"
    distance: Annotated[Distance, Field(description="relative, standardised or mahalanobis")] = "relative"

    def _keys(self, comparison: Comparison) -> tuple[tuple[str, ...], bool]:
        """Return the keys, and whether they are numeric; refuse a mixture, since no plot takes both.

        Under a scenario the keys are its own, and numbers among categories are counted, each value a level.
        """
        schema, resolved = comparison.before.schema, comparison.scenario
        if resolved is not None and not self.keys:
            return resolved.keys, set(resolved.keys) <= set(numeric_names(comparison))
        names = self.keys or tuple(a.name for a in schema.iter_kind(Kind.NUMERIC)) or schema.categorical
        numeric = {schema[name].kind in (Kind.NUMERIC, Kind.WEIGHT) for name in names}
        if len(numeric) != 1:
            raise SpecError(
                f"measure {self.name!r} needs keys that are all numeric or all categorical",
                code="mixed-keys" if numeric else "no-keys",
                hint="name the keys: " + f"{self.name}:keys=turnover+employees",
            )
        return names, numeric.pop()

    def _distance_plot(self, comparison: Comparison, names: tuple[str, ...]) -> ConfidentialityPlot:

        known = _PLOTS.setdefault(comparison, {})
        scale = _choose_scale(comparison, names) if self.scale == "auto" else self.scale
        asked = (names, self.alpha, scale, self.distance)
        if asked not in known:
            known[asked] = confidentiality_plot(
                comparison.before,
                comparison.after,
                names,
                alpha=self.alpha,
                scale=scale,
                distance=self.distance,
                largest_units=0,
                densities=False,
                policy=Policy(),
            )
        return known[asked]


def _choose_scale(comparison: Comparison, names: tuple[str, ...]) -> Scale:
    """Choose log if every key has a logarithm in both files, else asinh, which is similar and takes every number."""
    sides = (finite_numbers(side, name) for side in (comparison.before, comparison.after) for name in names)
    return "asinh" if any((values <= 0).any() for values in sides) else "log"


class CorrectLinks(PlotMeasure):
    """Records whose nearest original is their own, as a share of those that can be placed.

    The original file is the intruder's archive: the worst case. If several originals are equally near, the intruder
    guesses, and the record counts by the chance of a correct guess.

    >>> CorrectLinks(keys=("turnover",), scale="linear").text
    'correct_links:keys=turnover,scale=linear'
    """

    name: ClassVar[str] = "correct_links"
    title: ClassVar[str] = "share of correct links"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"numbers"})

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the numbers behind the figure."""
        names, numeric = self._keys(comparison)
        if comparison.scenario is not None and not self.keys:
            names = tuple(name for name in names if name in numeric_names(comparison))
            numeric = bool(names)
        if not numeric:
            raise SpecError(
                "correct links are found by distance, which needs numeric keys",
                code="key-not-numeric",
                hint="name numeric keys, or use unsafe_share, which counts categorical ones",
            )
        plot = self._distance_plot(comparison, names)
        links, shared = (int(np.count_nonzero(f)) for f in (plot.links, plot.nearest_true & (plot.ties > 1)))
        within = int(np.count_nonzero(plot.within))
        detail = pa.table(
            {"records": [len(plot)], "correct_links": [links], "shared_links": [shared], "in_neighbourhood": [within]}
        )
        value = plot.correct_link_share
        sentence = (
            f"{value:.2%} of the records are found by linkage to the nearest original by {list_names(names[:4])}."
        )
        return self._score(value, sentence, names, detail)


class UnsafeShare(PlotMeasure):
    """Records under the policy line, as a share of those that can be placed.

    Numeric keys are compared by distance, with the line from (0, r) to (k, 0). Categorical keys are counted: a record
    is unsafe if its combination has a frequency below k, by default 3.

    >>> UnsafeShare(keys="turnover+employees", k=10).text
    'unsafe_share:keys=turnover+employees,k=10.0'
    """

    name: ClassVar[str] = "unsafe_share"
    title: ClassVar[str] = "share of unsafe records"

    r: Annotated[float, Field(gt=0, description="perturbation that needs no neighbours")] = 0.15
    k: Annotated[
        float | None, Field(gt=0, description="neighbours (15) or frequency (3) that needs no perturbation")
    ] = None
    curvature: Annotated[float, Field(ge=-8, le=8, description="0: straight line; above 0: bent to the origin")] = 0.0
    weight: Annotated[str, Field(description="survey weight by which categorical keys are counted")] = ""

    def read_scenario(self, resolved: Resolved, data: Microdata) -> dict[str, Any]:
        """Return the parameters that a scenario states: for keys that are counted, k is its tolerance."""
        counted = set(resolved.keys) != set(resolved.numeric)
        return {
            "weight": resolved.scenario.weight if counted else None,
            "k": float(resolved.scenario.default_tolerance) if counted else None,
        }

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the totals of the plot."""
        names, numeric = self._keys(comparison)
        if numeric:
            policy = Policy(r=self.r, k=15.0 if self.k is None else self.k, curvature=self.curvature)
            plot = self._distance_plot(comparison, names).with_policy(policy)
        else:
            from safeswap.measures.plot.frequencies import count_plot, frequency_plot

            make = frequency_plot if comparison.scenario is None else count_plot
            plot = make(
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
        sentence = f"{plot.unsafe_share:.2%} of the records ({unsafe:,}) are unsafe by {list_names(names[:4])}."
        return self._score(plot.unsafe_share, sentence, names, detail)
