"""What is asked of the methods that change numbers, and of post-randomisation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.arrays.types import Names
from safeswap.model.spec import MaskSpec

Attributes = Annotated[Names, Field(min_length=1, description="attributes whose values are changed")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Decimals = Annotated[
    int | None,
    Field(ge=0, le=15, description="decimal places of changed values; not stated: as many as the attribute has"),
]


class AttributesSpec(MaskSpec):
    """A specification that names the attributes to be changed, each once."""

    attributes: Attributes

    @model_validator(mode="after")
    def _named_once(self) -> AttributesSpec:
        if len(set(self.attributes)) != len(self.attributes):
            raise ValueError("attributes names an attribute twice")
        return self


class RankSwapSpec(AttributesSpec):
    """Exchange values between records whose ranks are near, each attribute on its own.

    >>> RankSwapSpec(attributes=["turnover"], window=0.05).ranks(157)
    7
    """

    method: ClassVar[str] = "rank_swap"

    window: Annotated[
        Share, Field(description="how far apart in rank two partners may be, as a share of all ranks")
    ] = 0.05
    top: Annotated[
        Share, Field(lt=0.5, description="share of the largest values that become their mean instead of being swapped")
    ] = 0.0
    bottom: Annotated[
        Share, Field(lt=0.5, description="share of the smallest values that become their mean instead of being swapped")
    ] = 0.0

    def ranks(self, records: int) -> int:
        """The window in ranks, at least one unless it is to be none."""
        # Rounded before the fraction is cut off: 0.29 × 100 must be 29 and not 28.999…
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
        Field(ge=0, le=100, allow_inf_nan=False, description="standard deviation of the noise, in those of the data"),
    ] = 0.1
    kind: Annotated[
        Literal["additive", "correlated"],
        Field(description="additive: independent for each attribute; correlated: with the correlations of the data"),
    ] = "additive"
    decimals: Decimals = None


class MicroaggregationSpec(AttributesSpec):
    """Replace values by the mean of a group of at least ``k`` records that are alike."""

    method: ClassVar[str] = "microaggregation"

    k: Annotated[int, Field(ge=1, le=1_000_000, description="the least number of records in a group")] = 3
    groups: Annotated[
        Literal["mdav", "univariate"],
        Field(description="mdav: one grouping by all attributes together; univariate: each attribute on its own"),
    ] = "mdav"
    decimals: Decimals = None


class TopBottomSpec(AttributesSpec):
    """Cut off the largest and the smallest values, by a bound or by the share of records beyond it."""

    method: ClassVar[str] = "top_bottom"

    top: Annotated[float | None, Field(allow_inf_nan=False, description="values above this bound are cut off")] = None
    bottom: Annotated[float | None, Field(allow_inf_nan=False, description="values below this bound are cut off")] = (
        None
    )
    top_share: Annotated[Share, Field(lt=1, description="at most so many of the largest values are cut off")] = 0.0
    bottom_share: Annotated[Share, Field(lt=1, description="at most so many of the smallest values are cut off")] = 0.0
    replace_by: Annotated[
        Literal["bound", "mean"],
        Field(description="bound: by the bound itself; mean: by the mean of what was cut off, which keeps the total"),
    ] = "bound"
    decimals: Decimals = None

    @model_validator(mode="after")
    def _is_consistent(self) -> TopBottomSpec:
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
    """Post-randomisation: keep a value with probability ``keep``, else draw it anew from those of the file.

    Within each combination of ``within`` a category k with share t(k) becomes l with probability
    keep·1[k = l] + (1 − keep)·t(l). This matrix leaves t as it is, so that margins are kept in expectation.
    """

    method: ClassVar[str] = "pram"

    keep: Annotated[Share, Field(description="probability with which a value is kept; otherwise it is drawn anew")] = (
        0.8
    )
    within: Annotated[
        Names, Field(description="attributes within whose combinations values are drawn; they keep the joint margin")
    ] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> PramSpec:
        if len(set(self.within)) != len(self.within):
            raise ValueError("within names an attribute twice")
        both = sorted(set(self.within) & set(self.attributes))
        if both:
            raise ValueError(f"{both[0]!r} cannot be changed and kept")
        return self
