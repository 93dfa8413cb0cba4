"""The parameters of the risk of a file and of a confidentiality plot, as the command line takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from safeswap.arrays.names import Names
from safeswap.model.combination import Missing
from safeswap.model.spec import Stated
from safeswap.model.text import RiskModel

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.model.scenario import Resolved, Scenario


def choose_linkage(resolved: Resolved) -> str:
    """Return how the keys of a scenario are compared: by distance if all are numbers, else by counting."""
    return "distance" if set(resolved.keys) == set(resolved.numeric) else "frequency"


class RiskSpec(Stated):
    """The ease of singling records out: the parameters of ``file_risk`` and ``write_record_risks``.

    >>> RiskSpec(keys=("Age", "Sex"), k=5).k
    5
    """

    called: ClassVar[str] = "risk"

    keys: Annotated[Names, Field(description="attributes that an intruder may know")]
    sensitive: Annotated[str | None, Field(description="sensitive attribute to protect (l-diversity)")] = None
    weight: Annotated[str | None, Field(description="survey weight; if omitted, the file is the population")] = None
    model: Annotated[
        RiskModel, Field(description="with a weight: expected 1/F given the sample, or 1 / sum of weights")
    ] = "franconi-polettini"
    k: Annotated[int, Field(ge=2, description="smallest number of records that must share their keys")] = 3
    l: Annotated[float, Field(description="smallest acceptable diversity of the sensitive attribute")] = 2  # noqa: E741
    max_size: Annotated[
        int, Field(ge=1, le=62, description="search for records that are unique on up to this many keys")
    ] = 3
    sampling_fraction: Annotated[float, Field(description="sampling fraction of the file, for the DIS scores")] = 0.01
    missing: Annotated[
        Missing | None,
        Field(
            description="missing keys: count a record by the keys that it has (none, any), treat missing as a value "
            "(own), or let it match everything both ways (vouching)"
        ),
    ] = None

    def select(self, *names: str) -> dict[str, Any]:
        """Return some parameters, as keyword arguments; without those that are not set."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def from_scenario(cls, scenario: Scenario, data: Microdata, **stated: Any) -> RiskSpec:
        """Return the parameters that a scenario states for a file; values stated explicitly take precedence."""
        from safeswap.model.scenario import resolve_files

        resolved = resolve_files(scenario, data, data)
        supplied: dict[str, Any] = {
            "keys": resolved.keys,
            "weight": scenario.weight,
            "k": scenario.least,
            "max_size": scenario.up_to,
            "sampling_fraction": scenario.sampling_fraction(data),
            "missing": scenario.missing if "missing" in scenario.model_fields_set else None,
        }
        return cls(**{**{name: value for name, value in supplied.items() if value is not None}, **stated})


class PlotSpec(Stated):
    """Parameters of a confidentiality plot: how records are compared, and which count as unsafe.

    >>> PlotSpec(k=10).k
    10.0
    """

    called: ClassVar[str] = "plot"

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

    def for_scenario(self, resolved: Resolved, *, keys: Names = ()) -> PlotSpec:
        """Return the parameters for the keys of a scenario, unless others are stated: its categories are counted."""
        if self.linkage != "auto" or keys:
            return self
        return self.model_copy(update={"linkage": choose_linkage(resolved)})

    def options_for(self, data: Microdata, keys: Names) -> dict[str, Any]:
        """Return keyword arguments of the plot: categorical keys have a least frequency, others a policy."""
        from safeswap.measures.plot.values import Policy

        names = ("linkage", "alpha", "scale", "distance", "weight", "sampling_fraction")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        by_kind = self.linkage == "auto" and all(data.schema[name].kind.is_categorical for name in keys)
        if self.linkage == "frequency" or by_kind:
            return found if self.k is None else {**found, "k": self.k}
        return {**found, "policy": Policy(r=self.r, k=15.0 if self.k is None else self.k, curvature=self.curvature)}
