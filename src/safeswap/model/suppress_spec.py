"""What is asked of local suppression."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.kernels.types import Names
from safeswap.model.combination import CombinationFields
from safeswap.model.spec import MaskSpec

Importance = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class SuppressSpec(CombinationFields, MaskSpec):
    """Blank as little as possible so that no combination of keys is left that singles out too few records.

    >>> spec = SuppressSpec(keys=["Age", "Sex", "Town"], up_to=2, importance={"Age": 2}, keep=["Sex"])
    >>> spec.names, spec.costs
    (('Age', 'Sex', 'Town'), {'Age': 2.0, 'Sex': 1.0, 'Town': 1.0})
    """

    method: ClassVar[str] = "suppress"

    importance: Annotated[
        dict[str, Importance],
        Field(description="what blanking a value costs: the higher, the rather it is kept; 1 where it is not stated"),
    ] = Field(default_factory=dict)
    keep: Annotated[Names, Field(description="attributes of which no value is blanked")] = ()
    objective: Annotated[
        Literal["weight", "values"],
        Field(description="weight: the least importance is lost in all; values: the fewest values, all alike"),
    ] = "weight"
    solver: Annotated[
        Literal["optimal", "greedy"],
        Field(description="optimal: by integer programmes, with the proved gap; greedy: a quick good answer"),
    ] = "optimal"
    time_limit: Annotated[
        float, Field(gt=0, le=86_400, allow_inf_nan=False, description="seconds after which the best answer is taken")
    ] = 60.0
    gap: Annotated[
        float, Field(ge=0, lt=1, description="be content with an answer proved to be so near to the least, as a share")
    ] = 0.0

    @model_validator(mode="after")
    def _is_consistent(self) -> SuppressSpec:
        names = set(self.names)
        for field, stated in (("importance", self.importance), ("keep", self.keep)):
            if strange := [name for name in stated if name not in names]:
                raise ValueError(f"{field} names {strange[0]!r}, which is in no combination")
        if self.objective == "values" and self.importance:
            raise ValueError("importance counts where the least weight is sought, not the fewest values")
        if not names - set(self.keep):
            raise ValueError("keep names every attribute: there is nothing left to blank")
        return self

    @property
    def names(self) -> Names:
        """The attributes of all combinations, each once."""
        return tuple(dict.fromkeys(name for keys, _ in self.stated() for name in keys))

    @property
    def guards_published_keys(self) -> bool:
        """Whether it follows that no record is below the lowest tolerance on the keys that are published of it.

        Who lacks keys is counted by the others: so every combination of all keys must be protected, as it is by
        default. Where a missing value is a value, or could be any one of its record, all keys together suffice.
        """
        lists = {frozenset(keys) for keys, _ in self.stated()}
        if self.missing == "none":
            return len(lists) == (1 << len(self.names)) - 1
        return self.missing != "vouching" and frozenset(self.names) in lists

    @property
    def blankable(self) -> Names:
        """Those of which values may be blanked."""
        return tuple(name for name in self.names if name not in self.keep)

    @property
    def costs(self) -> dict[str, float]:
        """What blanking a value of each attribute costs."""
        return {name: self.importance.get(name, 1.0) for name in self.names}
