"""A recipe as a TOML file that people can read, change, keep under version control and use again next year."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safeswap import registry
from safeswap.errors import InputError, SafeswapError
from safeswap.io.argus_files import read_grc, read_hierarchy
from safeswap.io.atomic import PRIVATE_FILE, atomic_write
from safeswap.io.sources import existing_file
from safeswap.io.toml_text import parsed_toml
from safeswap.model.recipe import Recipe, RecipeStep, at_step
from safeswap.model.recode_steps import STEPS, as_step

FORMAT = "safeswap-recipe-1"
_LARGEST = 2**24

_HEADER = """\
# Steps that are made one after the other. step: {steps}.
# A step with `method` in place of `step` is a masking by its specification, e.g. method = "suppress".
# `grc = "age.grc"` in a global_recode and `file = "towns.hrc"` in a hierarchy are read from beside this file.

"""


def write_recipe(
    recipe: Recipe, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write a recipe; :func:`read_recipe` gives the same one back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "recipe.toml"
    ...     recipe = Recipe.of({"step": "ranges", "attribute": "Age", "breaks": [20, 65]})
    ...     write_recipe(recipe, path)
    ...     read_recipe(path) == recipe
    True
    """
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes(recipe_text(recipe).encode("utf-8"))


def recipe_text(recipe: Recipe) -> str:
    """A recipe as the text of its file.

    >>> "truncate" in recipe_text(Recipe.of({"step": "truncate", "attribute": "NACE"}))
    True
    """
    import tomli_w

    header = _HEADER.format(steps=", ".join(STEPS))
    return header + tomli_w.dumps({"format": FORMAT, "steps": recipe.as_dicts()})


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe. What is wrong is told with the number of the step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "age.toml"
    ...     _ = path.write_text('[[steps]]\\nstep = "ranges"\\nattribute = "Age"\\nbreaks = [65, 20]\\n')
    ...     read_recipe(path)
    Traceback (most recent call last):
    safeswap.errors.SpecError: 'age.toml', step 1: the ranges step is not valid: the breaks are not in ascending order
    """
    file = existing_file(path)
    content = parsed_toml(file, what="recipe", largest=_LARGEST, bad=_bad)
    if content.pop("format", FORMAT) != FORMAT:
        raise _bad(file, f"the format is not {FORMAT!r}")
    listed = content.pop("steps", [])
    if content or not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
        raise _bad(file, "a recipe holds [[steps]] and nothing else")
    steps: list[RecipeStep] = []
    for number, values in enumerate(listed, start=1):
        try:
            steps.append(_step(values, file.parent))
        except SafeswapError as error:
            told = at_step(error, number)
            fields = {**told.fields, "file": str(file)}
            raise type(error)(f"{file.name!r}, {told.message}", code=error.code, hint=error.hint, **fields) from None
    return Recipe(tuple(steps))


def _step(values: dict[str, Any], folder: Path) -> RecipeStep:
    if "method" in values:
        return registry.make_spec(values)
    if isinstance(grc := values.get("grc"), str):
        rest = {name: value for name, value in values.items() if name != "grc"}
        read = read_grc(_beside(folder, grc), str(values.get("attribute", "")))
        return as_step({**read.as_dict(), **rest})
    if values.get("step") == "hierarchy" and isinstance(tree := values.get("file"), str):
        rest = {name: value for name, value in values.items() if name != "file"}
        return as_step({**rest, "levels": read_hierarchy(_beside(folder, tree)).steps})
    return as_step(values)


def _beside(folder: Path, name: str) -> Path:
    """A file that a recipe names lies in the recipe's directory, wherever the program was started."""
    return folder / Path(name).name


def _bad(file: Path, what: str, **fields: Any) -> InputError:
    hint = "write it as `safeswap recode --write-recipe FILE` does"
    return InputError(f"{file.name!r}: {what}", code="bad-recipe-file", hint=hint, file=str(file), **fields)
