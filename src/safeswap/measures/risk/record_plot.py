"""What the two measures that stand on the confidentiality plot share: keys, distances and the plot itself."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.base import Names, ParametricMeasure
from safeswap.measures.key_points import Distance, Scale
from safeswap.model.confidentiality import ConfidentialityPlot
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.policy import Policy
from safeswap.model.schema import Kind, Schema
from safeswap.model.score import Axis, Comparison

# The two measures of one comparison look at the same plot.
_PLOTS: WeakKeyDictionary[Comparison, dict[tuple[Any, ...], ConfidentialityPlot]] = WeakKeyDictionary()


class PlotMeasure(ParametricMeasure):
    """A figure that is read off the confidentiality plot."""

    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Seri, A graphical framework to evaluate risk assessment and information loss at individual level (Istat)",
    )

    keys: Annotated[Names, Field(description="key variables; all numeric ones if empty, or all categorical ones")] = ()
    alpha: Annotated[float, Field(gt=0, lt=1, description="share of wrong pairs that count as near")] = 0.05
    scale: Annotated[
        Scale | Literal["auto"],
        Field(description="scale of numeric keys: log, asinh or linear; auto: log where all are above 0, else asinh"),
    ] = "auto"
    distance: Annotated[Distance, Field(description="relative, standardised or mahalanobis")] = "relative"

    def _keys(self, schema: Schema) -> tuple[tuple[str, ...], bool]:
        """The keys, and whether they are numeric; a mixture is refused, since no plot holds both."""
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
        from safeswap.measures.confidentiality import confidentiality_plot

        known = _PLOTS.setdefault(comparison, {})
        scale = _chosen_scale(comparison, names) if self.scale == "auto" else self.scale
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


def _chosen_scale(comparison: Comparison, names: tuple[str, ...]) -> Scale:
    """The logarithm where every key has one in both files, else asinh, which is like it and takes every number."""
    sides = (finite_numbers(side, name) for side in (comparison.before, comparison.after) for name in names)
    return "asinh" if any((values <= 0).any() for values in sides) else "log"
