"""What is asked of the targeted Confidentiality Edit."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from safeswap.kernels.types import Names
from safeswap.model.spec import MaskSpec

EXCHANGES = ("geography", "continuous", "categorical")
"""What is exchanged, in the order in which Moore (1996) numbers the three methods from 1."""


def _by_number(value: Any) -> Any:
    """Methods may be given by the paper's number, also as text."""
    numbered = {str(number): name for number, name in enumerate(EXCHANGES, start=1)}
    return numbered.get(str(value), value)


class EditTargetedSpec(MaskSpec):
    """Sort by the key variables, and exchange in each combination of theirs that has too few records.

    >>> spec = EditTargetedSpec(keys=["Beds", "Baths"], exchange=1, geography=["County", "Tract"], within=["State"])
    >>> spec.exchange, spec.tolerance, spec.sorted_keys
    ('geography', 3, ('Beds', 'Baths'))
    """

    method: ClassVar[str] = "edit_targeted"

    keys: Annotated[Names, Field(min_length=1, description="key variables, in the order in which the file is sorted")]
    exchange: Annotated[
        Literal["geography", "continuous", "categorical"],
        BeforeValidator(_by_number),
        Field(
            description="what is exchanged: 1 geography (all levels together), 2 continuous (all such items together), "
            "3 categorical (the first key in which the two records differ)"
        ),
    ] = "geography"
    geography: Annotated[
        Names, Field(description="geographic codes that are exchanged, from coarse to fine; none: all of that kind")
    ] = ()
    geography_codes: Annotated[
        Literal["unique", "local"],
        Field(description="unique: a code names one area of the file; local: codes count anew in each coarser area"),
    ] = "unique"
    continuous: Annotated[Names, Field(description="continuous items that are exchanged; none: all numeric ones")] = ()
    within: Annotated[
        Names, Field(description="attributes, such as the state, across whose values nothing is exchanged")
    ] = ()
    tolerance: Annotated[int, Field(ge=2, description="Q: a combination of the keys with fewer records is treated")] = 3
    order: Annotated[
        Literal["given", "near_optimal"],
        Field(description="sort by the keys as they are given, or in the order that disturbs order_by least"),
    ] = "given"
    order_by: Annotated[Names, Field(description="continuous items for which a near-optimal order is sought")] = ()
    variant: Annotated[
        Literal["keyed", "letter"],
        Field(description="keyed: for release; letter: as printed, which anybody can replay, never for release"),
    ] = "keyed"
    candidates: Annotated[
        int, Field(ge=10, le=1000, description="among how many records a partner is drawn, where there are so many")
    ] = 10
    keep_fraction: Annotated[
        float, Field(gt=0, le=1, description="share of the combinations below tolerance that is treated")
    ] = 1.0
    missing_keys: Annotated[
        Literal["refuse", "level"],
        Field(description="a missing value in a key: refuse the file, or take it as a value of its own"),
    ] = "refuse"

    @model_validator(mode="after")
    def _is_consistent(self) -> EditTargetedSpec:
        for role in ("keys", "geography", "continuous", "within", "order_by"):
            names = getattr(self, role)
            if len(set(names)) != len(names):
                raise ValueError(f"{role} names an attribute twice")
        if not self.sorted_keys:
            raise ValueError("all keys are also in within: nothing is left to sort by")
        exchanged = {"geography": self.geography, "continuous": self.continuous, "categorical": ()}[self.exchange]
        fixed = sorted(set(exchanged) & set(self.within))
        if fixed:
            raise ValueError(f"{fixed[0]!r} cannot be exchanged and be the same within a pair")
        if set(self.continuous) & set(self.keys):
            raise ValueError("a continuous item cannot be a key")
        if self.order == "near_optimal" and not self.order_by:
            raise ValueError("a near-optimal order needs order_by, the continuous items that it is to disturb least")
        return self

    @property
    def sorted_keys(self) -> Names:
        """The keys without those that are the same within a pair anyway."""
        return tuple(name for name in self.keys if name not in self.within)
