"""The parameters of a confidentiality plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from safeswap.arrays.names import Names
from safeswap.model.spec import Strict, spec_error

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata


class PlotSpec(Strict):
    """Parameters of a confidentiality plot: how records are compared, and which count as unsafe.

    >>> PlotSpec(k=10).k
    10.0
    """

    linkage: Annotated[str, Field(description="auto, distance, fellegi_sunter (needs splink) or frequency")] = "auto"
    alpha: Annotated[
        float | None, Field(description="share of non-matching pairs that count as near (default: 0.05)")
    ] = None
    scale: Annotated[str | None, Field(description="log (default), asinh or linear")] = None
    distance: Annotated[str | None, Field(description="relative (default), standardised or mahalanobis")] = None
    r: Annotated[float, Field(description="perturbation at which a record is safe without neighbours")] = 0.15
    k: Annotated[
        float | None,
        Field(
            description="neighbours (default: 15) or frequency (default: 3) at which it is safe without perturbation"
        ),
    ] = None
    curvature: Annotated[
        float, Field(description="curvature of the policy line: 0 straight, positive towards the origin, negative away")
    ] = 0.0
    weight: Annotated[str | None, Field(description="survey weight to sum")] = None
    sampling_fraction: Annotated[float | None, Field(description="share of the population in the file")] = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error("plot", error) from None

    def options_for(self, data: Microdata, keys: Names) -> dict[str, Any]:
        """Return keyword arguments of the plot: categorical keys have a least frequency, others a policy."""
        from safeswap.measures.plot.values import Policy

        names = ("linkage", "alpha", "scale", "distance", "weight", "sampling_fraction")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        by_kind = self.linkage == "auto" and all(data.schema[name].kind.is_categorical for name in keys)
        if self.linkage == "frequency" or by_kind:
            return found if self.k is None else {**found, "k": self.k}
        return {**found, "policy": Policy(r=self.r, k=15.0 if self.k is None else self.k, curvature=self.curvature)}
