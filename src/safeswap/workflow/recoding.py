"""Recode a file by a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from safeswap.methods.recode.recipe import Recipe
from safeswap.methods.recode.steps import Step
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.workflow.reading import read

Steps = Recipe | Step | MaskSpec | Mapping[str, Any] | Iterable[Any] | str | PathLike[str]


@check_types
def recode(data: Any, steps: Steps, *, key: Key | None = None) -> Microdata:
    """Apply steps to a file: a :class:`Recipe`, a list of steps, one step, or a TOML file with a recipe.

    Recodes need no key; steps that mask by another method do. For a release, mask by the method ``recode``: it keeps
    the record that a release needs.

    >>> from safeswap import datasets
    >>> after = recode(
    ...     datasets.cps8d(),
    ...     {"step": "recode", "attribute": "Edu", "groups": {"up to HS": ["<HS", "HS"]}, "otherwise": "keep"},
    ... )
    >>> after.schema["Edu"].levels
    ('up to HS', 'Coll', 'Bach', 'Bach+')
    """
    from safeswap.workflow.session import apply_step

    recipe, found = as_recipe(steps), read(data)
    for number, step in enumerate(recipe, start=1):
        found = apply_step(found, step, number=number, key=key)
    return found


@check_types
def as_recipe(steps: Steps) -> Recipe:
    """Make a recipe from steps, plain values (maskings by their ``method`` too), or a TOML file."""
    if isinstance(steps, str | PathLike):
        from safeswap.projects.toml import read_recipe

        return read_recipe(steps)
    if isinstance(steps, Mapping):
        return as_recipe([steps])
    if isinstance(steps, Recipe):
        return steps
    from safeswap.workflow.session import as_recipe_step

    several = [steps] if isinstance(steps, Step | MaskSpec) else steps
    return Recipe.of(as_recipe_step(each) for each in several)
