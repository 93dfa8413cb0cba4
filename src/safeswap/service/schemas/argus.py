"""Risky combinations, recipes and advice as the contract shows them."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from safeswap.service.schemas.common import Wire, example


class RiskyRequest(Wire):
    """Which combinations of keys are to be looked at; the parameters are those of `risky` in Python.

    `keys` alone mean every combination of up to all of them.
    """

    model_config = ConfigDict(json_schema_extra=example(combinations={"keys": ["Age", "Edu", "Race"], "tolerance": 3}))

    combinations: dict[str, Any]


class RiskyAnswer(Wire):
    """How many combinations too few records share: totals, never the values."""

    sentence: str
    protected: str = Field(default="", description="The combinations that were looked at, in words.")
    records: int
    unsafe_records: int
    unsafe_combinations: int
    by_dimension: dict[str, int]
    keys: tuple[dict[str, Any], ...]
    combinations: tuple[dict[str, Any], ...]
    stages: tuple[dict[str, Any], ...] = Field(description="What became of the list after each step of the recipe.")


class RecipeRequest(Wire):
    """The steps of the project's recipe, all of them."""

    model_config = ConfigDict(
        json_schema_extra=example(steps=[{"step": "truncate", "attribute": "NACE", "characters": 2}])
    )

    steps: tuple[dict[str, Any], ...] = Field(max_length=1000)


class RecipeAnswer(Wire):
    """The project's recipe: the steps in force, and whether the last change can be taken back or made again."""

    steps: tuple[dict[str, Any], ...]
    can_undo: bool
    can_redo: bool
    sentences: tuple[str, ...]
    toml: str
    version: int


class AdviceRequest(Wire):
    """Which recode would help most."""

    model_config = ConfigDict(
        json_schema_extra=example(combinations={"keys": ["region", "age", "sex"], "up_to": 3}, most=5)
    )

    combinations: dict[str, Any]
    most: int = Field(default=10, ge=1, le=100)


class AdviceAnswer(Wire):
    """Single recodes, the best first, with what each removes and what it costs."""

    unsafe: int
    tried: int
    advice: tuple[dict[str, Any], ...]
    hidden: int = Field(default=0, description="Recodes not shown: they would name levels that few records have.")


class TablesRequest(Wire):
    """Tables to be made safe, or to be checked."""

    model_config = ConfigDict(json_schema_extra=example(tables=[["Race", "Edu"], ["Race", "Sex"]], tolerance=3))

    tables: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=100)
    tolerance: int | None = Field(
        default=None, ge=2, le=1_000_000, description="The project's own unless stated, and not below it."
    )
    keep: tuple[tuple[str, ...], ...] | None = Field(default=None, description="Margins that stay exact.")
    objective: str = Field(default="total", pattern="^(total|largest)$")
    soft: bool = False
    time_limit: float = Field(default=30.0, gt=0, le=3600)


class CheckAnswer(Wire):
    """Which tables have small cells, and how many of them the published figures give back."""

    sentence: str
    is_safe: bool
    tolerance: int
    small: int
    derived: int
    way: str
    is_exact: bool
    tables: tuple[dict[str, Any], ...]
