"""What is asked of SAFE on microdata."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from safeswap.kernels.types import Names
from safeswap.model.spec import MaskSpec


class SafeSpec(MaskSpec):
    """Change few records so that in all of these tables every cell is 0 or at least the tolerance.

    >>> spec = SafeSpec(tables=[["Region", "Sex"], ["Region", "Age"]], tolerance=5, keep=[["Region"]])
    >>> spec.variables, spec.tolerance
    (('Region', 'Sex', 'Age'), 5)
    """

    method: ClassVar[str] = "safe"

    tables: Annotated[
        tuple[Names, ...],
        Field(description="the tables to be published, each by its attributes; none: nothing is done"),
    ]
    tolerance: Annotated[int, Field(ge=2, description="the smallest count above 0 that may be published")] = 3
    keep: Annotated[
        tuple[Names, ...], Field(description="margins that stay exactly as they are, each by its attributes")
    ] = ()
    search: Annotated[
        Literal["thorough", "quick"],
        Field(description="thorough: small files also by an integer programme that proves the fewest records"),
    ] = "thorough"
    time_limit: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            allow_inf_nan=False,
            description="seconds after which the search ends with the safe records that it has, or is given up",
        ),
    ] = 600.0

    @model_validator(mode="after")
    def _is_consistent(self) -> SafeSpec:
        for names in (*self.tables, *self.keep):
            if not names or len(set(names)) != len(names):
                raise ValueError("a table or margin is named by its attributes, each once")
        for what, given in (("table", self.tables), ("margin", self.keep)):
            if len({frozenset(names) for names in given}) != len(given):
                raise ValueError(f"a {what} is named twice")
        return self

    @property
    def variables(self) -> Names:
        """The attributes of all tables, each once: those that may change."""
        return tuple(dict.fromkeys(name for names in self.tables for name in names))

    @property
    def context(self) -> Names:
        """Attributes of kept margins that are in no table: they never change, but decide what may."""
        return tuple(dict.fromkeys(n for names in self.keep for n in names if n not in self.variables))
