"""Specification of targeted record swapping of households."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.model.geography import geography_levels
from safeswap.model.scenario import ScenarioName, fill_in
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import CATEGORIES, GeographyCodes, MaskSpec, refuse_repeats, takes


class HouseholdSwapSpec(MaskSpec):
    """Exchange the geography of whole households between similar households, those at risk first.

    >>> spec = HouseholdSwapSpec(
    ...     household="HID",
    ...     geography=["Region", "District"],
    ...     risk_variables=["Age", "Origin"],
    ...     similar=[["Tenure", "Type"], ["Tenure"]],
    ...     rate=0.05,
    ... )
    >>> spec.k, spec.loosest
    (3, ('Tenure',))
    """

    method: ClassVar[str] = "household_swap"

    household: Annotated[
        str | None,
        Field(
            description="household number; default: the attribute of that kind", json_schema_extra=takes("household")
        ),
    ] = None
    geography: Annotated[
        Names,
        Field(
            description="levels of the geography, from coarse to fine; default: the attributes of that kind",
            json_schema_extra=takes("geography", ordered=True),
        ),
    ] = ()
    risk_variables: Annotated[
        Names,
        Field(
            description="attributes of persons whose combinations are counted in every area",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()
    k: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="persons are at risk in an area where fewer than k, themselves included, have their values; "
            "0: nobody",
        ),
    ] = 3
    risk: Annotated[
        Names,
        Field(
            description="numeric columns with risks of your own, one per level or one for all, instead of counts",
            json_schema_extra=takes("numeric"),
        ),
    ] = ()
    threshold: Annotated[
        float | None,
        Field(allow_inf_nan=False, description="persons whose own risk is at least this are at risk"),
    ] = None
    similar: Annotated[
        tuple[Names, ...],
        Field(
            description="attributes of households in which partners agree; further, looser profiles, each a subset of "
            "the one before, for households without a partner"
        ),
    ] = ()
    match_size: Annotated[
        bool, Field(description="require partners to have the same number of persons, which keeps counts of persons")
    ] = True
    rate: Annotated[float, Field(ge=0, le=1, description="share of the households of each finest area to swap")] = 0.0
    over_rate: Annotated[
        Literal["swap", "riskiest"],
        Field(description="if more are at risk than the rate allows: swap them all, or the riskiest up to the rate"),
    ] = "swap"
    partner: Annotated[
        Literal["risky", "near"],
        Field(description="look first for partners at risk, anywhere in the country, or first for near ones"),
    ] = "risky"
    crowd: Annotated[
        int, Field(ge=0, description="minimum number of candidates from which a near partner is chosen")
    ] = 10
    spread: Annotated[int, Field(ge=0, description="minimum number of other areas in which these candidates live")] = 3
    rounds: Annotated[
        int,
        Field(
            ge=1,
            le=10,
            description="maximum number of trial swaps; households still rare and in their true area after one must "
            "move too",
        ),
    ] = 3
    carry_along: Annotated[
        Names, Field(description="further attributes of households that move with the geography")
    ] = ()
    communal: Annotated[
        str | None,
        Field(
            description="attribute that marks communal establishments, counted but not swapped",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = None
    communal_values: Annotated[
        Names,
        Field(description="its values for communal establishments", json_schema_extra=takes(levels_of="communal")),
    ] = ()
    units: Annotated[
        Literal["households", "communal"],
        Field(description="swap private households or, in a separate run, communal establishments"),
    ] = "households"
    missing_household: Annotated[
        Literal["refuse", "outside"],
        Field(description="persons without a household number: refuse, or count them and leave them where they are"),
    ] = "refuse"
    missing_geography: Annotated[
        Literal["refuse", "immovable"],
        Field(description="households without a code at some level: refuse, or leave them where they are, uncounted"),
    ] = "refuse"
    geography_codes: GeographyCodes = "unique"
    scenario: ScenarioName = ""

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        return fill_in(values, risk_variables="names", k="least")

    @model_validator(mode="after")
    def _is_consistent(self) -> HouseholdSwapSpec:
        refuse_repeats(self, "geography", "risk_variables", "risk", "carry_along")
        for number, (strict, loose) in enumerate(pairwise(self.similar), start=1):
            if not set(loose) < set(strict):
                added = [repr(name) for name in loose if name not in strict]
                what = f"adds {', '.join(added)} to" if added else "is"
                raise ValueError(
                    f"profiles do not nest: profile {number + 1} {what} profile {number}; "
                    "each must be a subset of the one before, so that fallbacks are looser"
                )
        for names in self.similar:
            if len(set(names)) != len(names):
                raise ValueError("similar names an attribute twice in one profile")
        if self.risk and self.threshold is None:
            raise ValueError("risk needs a threshold: persons at or above it are at risk")
        if self.threshold is not None and not self.risk:
            raise ValueError("threshold needs risk: name its columns, or state k alone")
        if self.risk and self.risk_variables:
            raise ValueError("give risk_variables and k, or columns with a risk of your own, not both")
        if self.geography and self.risk and len(self.risk) not in (1, len(self.geography)):
            raise ValueError("risk names one column for all levels, or one per level")
        if (self.communal is None) != (not self.communal_values):
            raise ValueError("communal and communal_values belong together: give both or neither")
        if self.units == "communal" and self.communal is None:
            raise ValueError("units='communal' needs the attribute that marks them")
        self._refuse_exchanged(self.geography)
        return self

    def _refuse_exchanged(self, geography: Names) -> None:
        moved = {*geography, *self.carry_along}
        if twice := set(geography) & set(self.carry_along):
            raise ValueError(f"{min(twice)!r} moves with the geography anyway")
        used = {*self.risk_variables, *self.risk, *(name for names in self.similar for name in names)}
        used |= {name for name in (self.household, self.communal) if name is not None}
        if both := used & moved:
            raise ValueError(f"{min(both)!r} is exchanged and cannot have another role")

    @property
    def loosest(self) -> Names:
        """The attributes in which the households of every pair agree."""
        return self.similar[-1] if self.similar else ()

    @property
    def profiles(self) -> tuple[Names, ...]:
        """The profiles, strict to loose; without any, one that names nothing."""
        return self.similar or ((),)

    def resolve(self, schema: Schema) -> HouseholdSwapSpec:
        """Return the specification with household and geography as the schema states them, if they are not named."""
        household, geography = self.household, self.geography or geography_levels(schema)
        if household is None:
            found = [attribute.name for attribute in schema.iter_kind(Kind.HOUSEHOLD)]
            if len(found) != 1:
                raise SpecError(
                    "there is no household number" if not found else "there is more than one household number",
                    code="no-household",
                    hint="name it: household=…, or describe one attribute as household in the schema",
                )
            household = found[0]
        if not geography:
            raise SpecError(
                "there is no geography to exchange",
                code="no-geography",
                hint="name the levels from coarse to fine: geography=[…], or describe them in the schema",
            )
        return self.replace(household=household, geography=geography)

    def area(self, place: int) -> Names:
        """Return the attributes that together name an area of a level, in a specification with its geography."""
        return self.geography[: place + 1] if self.geography_codes == "local" else (self.geography[place],)
