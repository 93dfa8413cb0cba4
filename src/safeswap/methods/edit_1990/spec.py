"""Specification of the Confidentiality Edit of 1990."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.model.scenario import ScenarioName, fill_in
from safeswap.model.spec import CATEGORIES, GeographyCodes, MaskSpec, MissingKeys, refuse_repeats, takes


class Edit1990Spec(MaskSpec):
    """Sample households and exchange the geography of each with a household of the same key elsewhere.

    >>> spec = Edit1990Spec(
    ...     keys=["Persons", "Adults"],
    ...     geography=["State", "County", "Place", "Tract", "Block"],
    ...     across="Place",
    ...     rate=0.01,
    ... )
    >>> spec.within_level, spec.across_level, spec.exchanged
    ('State', 'Place', ('County', 'Place', 'Tract', 'Block'))
    """

    method: ClassVar[str] = "edit_1990"

    keys: Annotated[
        Names,
        Field(
            min_length=1,
            description="key characteristics, equal in both households of a pair",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ]
    geography: Annotated[
        Names,
        Field(
            min_length=2,
            description="levels of the geography, from coarse to fine",
            json_schema_extra=takes("geography", ordered=True),
        ),
    ]
    within: Annotated[
        str | None,
        Field(
            description="level across whose areas nothing is exchanged; default: the coarsest",
            json_schema_extra=takes("geography"),
        ),
    ] = None
    across: Annotated[
        str | None,
        Field(
            description="level in whose areas the households of a pair differ; default: the one after within",
            json_schema_extra=takes("geography"),
        ),
    ] = None
    rate: Annotated[
        float,
        Field(ge=0, le=1, description="share of households to sample; partners from outside the sample move too"),
    ]
    small_block_units: Annotated[
        int, Field(ge=0, description="an area of the finest level with fewer households is a small block")
    ] = 0
    small_block_rate: Annotated[
        float | None, Field(ge=0, le=1, description="share of households of small blocks to sample")
    ] = None
    geography_codes: GeographyCodes = "unique"
    missing_keys: MissingKeys = "refuse"
    single_areas: Annotated[
        Literal["refuse", "leave"],
        Field(
            description="households without a possible partner, because all of one within area lie in one across area: "
            "refuse, or leave them unchanged"
        ),
    ] = "refuse"
    on_unmatched: Annotated[
        Literal["report", "error"],
        Field(description="sampled households without a partner: report how many, or refuse"),
    ] = "report"
    scenario: ScenarioName = ""

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        return fill_in(values, keys="names")

    @model_validator(mode="after")
    def _is_consistent(self) -> Edit1990Spec:
        refuse_repeats(self, "keys", "geography")
        for role in ("within", "across"):
            name = getattr(self, role)
            if name is not None and name not in self.geography:
                raise ValueError(f"{role} names {name!r}, which is no level of the geography")
        if self.within_level == self.geography[-1]:
            raise ValueError(f"within names the finest level, {self.within_level!r}: nothing is left to exchange")
        if self.across_level not in self.exchanged:
            raise ValueError(f"across must be finer than within: {self.across_level!r} is not")
        moved = sorted(set(self.keys) & set(self.exchanged))
        if moved:
            raise ValueError(f"{moved[0]!r} is exchanged and cannot be a key")
        if (self.small_block_units > 0) != (self.small_block_rate is not None):
            raise ValueError("small_block_units and small_block_rate belong together: give both or neither")
        if self.small_block_rate is not None and self.small_block_rate < self.rate:
            raise ValueError("small blocks are sampled at a higher rate than others: small_block_rate is below rate")
        return self

    @property
    def within_level(self) -> str:
        """The level across whose areas nothing is exchanged."""
        return self.within if self.within is not None else self.geography[0]

    @property
    def across_level(self) -> str:
        """The level in which the two households of a pair differ."""
        if self.across is not None:
            return self.across
        place = self.geography.index(self.within_level) + 1
        return self.geography[min(place, len(self.geography) - 1)]

    @property
    def exchanged(self) -> Names:
        """The levels whose codes are exchanged together: all finer than ``within``."""
        return self.geography[self.geography.index(self.within_level) + 1 :]

    @property
    def matched(self) -> Names:
        """The attributes equal in both households of a pair: geography down to ``within``, and the keys."""
        coarse = self.geography[: self.geography.index(self.within_level) + 1]
        return (*coarse, *(name for name in self.keys if name not in coarse))

    @property
    def differing(self) -> Names:
        """The attributes of which at least one differs within a pair: those that name the area across."""
        return tuple(name for name in self.area(self.across_level) if name in self.exchanged)

    def area(self, level: str) -> Names:
        """Return the attributes that together name an area of a level."""
        if self.geography_codes == "unique":
            return (level,)
        return self.geography[: self.geography.index(level) + 1]
