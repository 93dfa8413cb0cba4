"""What is asked of the method that recodes: steps, and no randomness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from safeswap.kernels.types import Names
from safeswap.model.recipe import Recipe
from safeswap.model.recode_steps import AnyStep, Drop, Step
from safeswap.model.spec import MaskSpec


def _as_steps(value: Any) -> Any:
    if isinstance(value, Recipe):
        return value.steps
    return (value,) if isinstance(value, Mapping | Step) else value


class RecodeSpec(MaskSpec):
    """Say less: recode by maps, ranges and hierarchies, truncate, round, blank and drop, one step after the other.

    >>> spec = RecodeSpec(steps=[{"step": "drop", "attributes": ["Name"]}])
    >>> spec.recipe.sentences, spec.dropped
    (('drop Name',), ('Name',))
    """

    method: ClassVar[str] = "recode"

    steps: Annotated[
        tuple[AnyStep, ...],
        BeforeValidator(_as_steps),
        Field(description="the steps, one after the other; see the steps of a recipe"),
    ] = ()

    @model_validator(mode="after")
    def _nothing_after_it_is_dropped(self) -> RecodeSpec:
        gone: set[str] = set()
        for number, step in enumerate(self.steps, start=1):
            if late := sorted(gone & set(step.names)):
                raise ValueError(f"step {number} names {late[0]!r}, which a step before it drops")
            gone |= set(step.names) if isinstance(step, Drop) else set()
        return self

    @property
    def recipe(self) -> Recipe:
        """The steps as a recipe."""
        return Recipe(tuple(self.steps))

    @property
    def names(self) -> Names:
        """Every attribute that a step names, each once."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.names))

    @property
    def dropped(self) -> Names:
        """The attributes that a release leaves out."""
        return tuple(name for step in self.steps if isinstance(step, Drop) for name in step.names)

    def as_dict(self) -> dict[str, Any]:
        """Plain values with the method's name."""
        return {"method": self.method, "steps": [step.as_dict() for step in self.steps]}
