"""Specifications of the methods that change numbers, and of post-randomisation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.model.spec import CATEGORIES, IsoDate, MaskSpec, takes

Attributes = Annotated[Names, Field(min_length=1, description="attributes to change")]
Numbers = Annotated[Attributes, Field(json_schema_extra=takes("numeric", "date"))]
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

    @property
    def treats_together(self) -> bool:
        """Whether what happens to an attribute depends on the others."""
        return False


class RankSwapSpec(AttributesSpec):
    """Exchange values between records near in rank, each attribute on its own.

    >>> RankSwapSpec(attributes=["turnover"], window=0.05).ranks(157)
    7
    """

    method: ClassVar[str] = "rank_swap"

    attributes: Annotated[Attributes, Field(json_schema_extra=takes("numeric", "ordinal", "date"))]
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
    """Add normally distributed noise. Dates move by whole days.

    ``additive`` noise is independent from attribute to attribute: means stay, variances grow by the factor 1 + size²,
    correlations shrink. ``correlated`` noise has the correlations of the data: means and correlations stay, and the
    whole covariance matrix grows by the factor 1 + size² (Kim 1986). All this in expectation.
    """

    method: ClassVar[str] = "noise"

    attributes: Numbers
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
    days: Annotated[
        float | None,
        Field(
            gt=0,
            le=36_525,
            allow_inf_nan=False,
            description="standard deviation of the noise of dates, in days, instead of `size`",
        ),
    ] = None
    decimals: Decimals = None

    @property
    def treats_together(self) -> bool:
        """Whether the noise has the correlations of the data."""
        return self.kind == "correlated"


class MicroaggregationSpec(AttributesSpec):
    """Replace values by the mean of a group of at least ``k`` similar records; dates by the nearest day to it."""

    method: ClassVar[str] = "microaggregation"

    attributes: Numbers
    k: Annotated[int, Field(ge=1, le=1_000_000, description="minimum number of records in a group")] = 3
    groups: Annotated[
        Literal["mdav", "univariate"],
        Field(description="mdav: one grouping by all attributes together; univariate: each attribute on its own"),
    ] = "mdav"
    decimals: Decimals = None

    @property
    def treats_together(self) -> bool:
        """Whether one grouping serves all attributes."""
        return self.groups == "mdav"


class TopBottomSpec(AttributesSpec):
    """Cut off the largest and smallest values, by a bound or by the share of records beyond it.

    ``top`` and ``bottom`` are bounds of numbers, ``latest`` and ``earliest`` of dates; shares apply to both.
    """

    method: ClassVar[str] = "top_bottom"

    attributes: Numbers
    top: Annotated[float | None, Field(allow_inf_nan=False, description="values above this bound are cut off")] = None
    bottom: Annotated[float | None, Field(allow_inf_nan=False, description="values below this bound are cut off")] = (
        None
    )
    latest: Annotated[IsoDate | None, Field(description="dates after this one are cut off")] = None
    earliest: Annotated[IsoDate | None, Field(description="dates before this one are cut off")] = None
    top_share: Annotated[Share, Field(lt=1, description="maximum share of the largest values to cut off")] = 0.0
    bottom_share: Annotated[Share, Field(lt=1, description="maximum share of the smallest values to cut off")] = 0.0
    replace_by: Annotated[
        Literal["bound", "mean"],
        Field(description="bound: the bound itself; mean: the mean of the values cut off, which keeps the total"),
    ] = "bound"
    decimals: Decimals = None

    @model_validator(mode="after")
    def _check_consistency(self) -> TopBottomSpec:
        high, low = (self.top, self.latest), (self.bottom, self.earliest)
        if not self.top_share and not self.bottom_share and all(bound is None for bound in (*high, *low)):
            raise ValueError("nothing would be cut off: give top, bottom, latest, earliest, top_share or bottom_share")
        if (self.top_share and high != (None, None)) or (self.bottom_share and low != (None, None)):
            raise ValueError("give a bound or a share, not both for the same end")
        if self.top is not None and self.bottom is not None and self.bottom >= self.top:
            raise ValueError("the bottom is not below the top")
        if self.latest is not None and self.earliest is not None and self.earliest >= self.latest:
            raise ValueError("the earliest date is not before the latest")
        if self.top_share + self.bottom_share >= 1:
            raise ValueError("the two shares leave no record between them")
        return self


class PramSpec(AttributesSpec):
    """Post-randomisation: keep a value with probability ``keep``, else redraw it from those of the file.

    Within each combination of ``within`` a category k with share t(k) becomes l with probability
    keep·1[k = l] + (1 − keep)·t(l). This matrix leaves t invariant, so margins are kept in expectation.
    """

    method: ClassVar[str] = "pram"

    attributes: Annotated[Attributes, Field(json_schema_extra=takes(*CATEGORIES))]
    keep: Annotated[Share, Field(description="probability of keeping a value; otherwise it is redrawn")] = 0.8
    within: Annotated[
        Names,
        Field(
            description="redraw within each combination of these attributes, which keeps the joint margin",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> PramSpec:
        if len(set(self.within)) != len(self.within):
            raise ValueError("within names an attribute twice")
        both = sorted(set(self.within) & set(self.attributes))
        if both:
            raise ValueError(f"{both[0]!r} cannot be changed and kept")
        return self
