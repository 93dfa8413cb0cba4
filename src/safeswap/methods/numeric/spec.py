"""Specifications of the methods that change numbers, and of post-randomisation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.model.spec import MaskSpec

Attributes = Annotated[Names, Field(min_length=1, description="attributes to change")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Decimals = Annotated[
    int | None,
    Field(ge=0, le=15, description="decimal places of changed values; by default as many as the attribute has"),
]


class AttributesSpec(MaskSpec):
    """A specification that names the attributes to change, each once."""

    attributes: Attributes

    @model_validator(mode="after")
    def _check_names(self) -> AttributesSpec:
        if len(set(self.attributes)) != len(self.attributes):
            raise ValueError("attributes names an attribute twice")
        return self


class RankSwapSpec(AttributesSpec):
    """Exchange values between records near in rank, each attribute on its own.

    >>> RankSwapSpec(attributes=["turnover"], window=0.05).ranks(157)
    7
    """

    method: ClassVar[str] = "rank_swap"

    window: Annotated[
        Share, Field(description="maximum distance in rank between two partners, as a share of all ranks")
    ] = 0.05
    top: Annotated[
        Share, Field(lt=0.5, description="share of the largest values that become their mean instead of being swapped")
    ] = 0.0
    bottom: Annotated[
        Share, Field(lt=0.5, description="share of the smallest values that become their mean instead of being swapped")
    ] = 0.0

    def ranks(self, records: int) -> int:
        """Return the window in ranks, at least one unless the window is 0."""
        # Round before truncating: 0.29 × 100 must be 29 and not 28.999…
        return max(1, int(round(self.window * records, 6))) if self.window else 0


class NoiseSpec(AttributesSpec):
    """Add normally distributed noise.

    ``additive`` noise is independent from attribute to attribute: means stay, variances grow by the factor 1 + size²,
    correlations shrink. ``correlated`` noise has the correlations of the data: means and correlations stay, and the
    whole covariance matrix grows by the factor 1 + size² (Kim 1986). All this in expectation.
    """

    method: ClassVar[str] = "noise"

    size: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            allow_inf_nan=False,
            description="standard deviation of the noise, as a multiple of the data's",
        ),
    ] = 0.1
    kind: Annotated[
        Literal["additive", "correlated"],
        Field(description="additive: independent for each attribute; correlated: with the data's correlations"),
    ] = "additive"
    decimals: Decimals = None


class MicroaggregationSpec(AttributesSpec):
    """Replace values by the mean of a group of at least ``k`` similar records."""

    method: ClassVar[str] = "microaggregation"

    k: Annotated[int, Field(ge=1, le=1_000_000, description="minimum number of records in a group")] = 3
    groups: Annotated[
        Literal["mdav", "univariate"],
        Field(description="mdav: one grouping by all attributes together; univariate: each attribute on its own"),
    ] = "mdav"
    decimals: Decimals = None


class TopBottomSpec(AttributesSpec):
    """Cut off the largest and smallest values, by a bound or by the share of records beyond it."""

    method: ClassVar[str] = "top_bottom"

    top: Annotated[float | None, Field(allow_inf_nan=False, description="values above this bound are cut off")] = None
    bottom: Annotated[float | None, Field(allow_inf_nan=False, description="values below this bound are cut off")] = (
        None
    )
    top_share: Annotated[Share, Field(lt=1, description="maximum share of the largest values to cut off")] = 0.0
    bottom_share: Annotated[Share, Field(lt=1, description="maximum share of the smallest values to cut off")] = 0.0
    replace_by: Annotated[
        Literal["bound", "mean"],
        Field(description="bound: the bound itself; mean: the mean of the values cut off, which keeps the total"),
    ] = "bound"
    decimals: Decimals = None

    @model_validator(mode="after")
    def _check_consistency(self) -> TopBottomSpec:
        if self.top is None and self.bottom is None and not self.top_share and not self.bottom_share:
            raise ValueError("nothing would be cut off: give top, bottom, top_share or bottom_share")
        if (self.top is not None and self.top_share) or (self.bottom is not None and self.bottom_share):
            raise ValueError("give a bound or a share, not both for the same end")
        if self.top is not None and self.bottom is not None and self.bottom >= self.top:
            raise ValueError("the bottom is not below the top")
        if self.top_share + self.bottom_share >= 1:
            raise ValueError("the two shares leave no record between them")
        return self


class PramSpec(AttributesSpec):
    """Post-randomisation: keep a value with probability ``keep``, else redraw it from those of the file.

    Within each combination of ``within`` a category k with share t(k) becomes l with probability
    keep·1[k = l] + (1 − keep)·t(l). This matrix leaves t invariant, so margins are kept in expectation.
    """

    method: ClassVar[str] = "pram"

    keep: Annotated[Share, Field(description="probability of keeping a value; otherwise it is redrawn")] = 0.8
    within: Annotated[
        Names, Field(description="redraw within each combination of these attributes, which keeps the joint margin")
    ] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> PramSpec:
        if len(set(self.within)) != len(self.within):
            raise ValueError("within names an attribute twice")
        both = sorted(set(self.within) & set(self.attributes))
        if both:
            raise ValueError(f"{both[0]!r} cannot be changed and kept")
        return self
