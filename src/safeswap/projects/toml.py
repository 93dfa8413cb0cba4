"""Recipes and questions of studies as TOML files.

Errors in a file are reported by position, never by quoting the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safeswap import registry
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.sources import existing_file, unreadable_error
from safeswap.methods.recode.recipe import Recipe, RecipeStep, add_step_number
from safeswap.methods.recode.steps import STEPS, as_step
from safeswap.model.study import StudySpec
from safeswap.projects.argus import read_grc, read_hierarchy

_AT_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")


def load_toml(file: Path, *, what: str, largest: int, bad: Callable[..., InputError]) -> dict[str, Any]:
    """Load a TOML file of at most ``largest`` bytes that contains a ``what``; ``bad`` makes the error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     _ = path.write_text("rates = [0.1]")
    ...     load_toml(path, what="study", largest=100, bad=InputError)
    {'rates': [0.1]}
    """
    try:
        if file.stat().st_size > largest:
            raise bad(file, f"the file is too large for a {what}")
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise bad(file, "the file is not UTF-8 text") from None
    except OSError as error:
        raise unreadable_error(file, error) from None
    except tomllib.TOMLDecodeError as error:
        # Only the position is used: the parser's message may quote the file.
        if (place := _AT_LINE.search(str(error))) is None:
            raise bad(file, "the file ends in the middle of something") from None
        line, column = int(place[1]), int(place[2])
        raise bad(file, f"line {line}, column {column} is not valid TOML", line=line, column=column) from None
    except RecursionError:
        raise bad(file, "the file is nested too deeply") from None


RECIPE_FORMAT = "safeswap-recipe-1"
_LARGEST = 2**24

_HEADER = """\
# Steps that are made one after the other. step: {steps}.
# A step with `method` in place of `step` is a masking by its specification, e.g. method = "suppress".
# `grc = "age.grc"` in a global_recode and `file = "towns.hrc"` in a hierarchy are read from beside this file.

"""


def write_recipe(
    recipe: Recipe, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write a recipe; :func:`read_recipe` reads the same one back.

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
    """Serialise a recipe as TOML.

    >>> "truncate" in recipe_text(Recipe.of({"step": "truncate", "attribute": "NACE"}))
    True
    """
    import tomli_w

    header = _HEADER.format(steps=", ".join(STEPS))
    return header + tomli_w.dumps({"format": RECIPE_FORMAT, "steps": recipe.as_dicts()})


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe. Errors name the step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "age.toml"
    ...     _ = path.write_text('[[steps]]\\nstep = "ranges"\\nattribute = "Age"\\nbreaks = [65, 20]\\n')
    ...     read_recipe(path)
    Traceback (most recent call last):
    safeswap.errors.SpecError: 'age.toml', step 1: the ranges step is not valid: the breaks are not in ascending order
    """
    file = existing_file(path)
    content = load_toml(file, what="recipe", largest=_LARGEST, bad=_bad_recipe)
    if content.pop("format", RECIPE_FORMAT) != RECIPE_FORMAT:
        raise _bad_recipe(file, f"the format is not {RECIPE_FORMAT!r}")
    listed = content.pop("steps", [])
    if content or not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
        raise _bad_recipe(file, "a recipe holds [[steps]] and nothing else")
    steps: list[RecipeStep] = []
    for number, values in enumerate(listed, start=1):
        try:
            steps.append(_make_step(values, file.parent))
        except SafeswapError as error:
            located = add_step_number(error, number)
            fields = {**located.fields, "file": str(file)}
            raise type(error)(f"{file.name!r}, {located.message}", code=error.code, hint=error.hint, **fields) from None
    return Recipe(tuple(steps))


def _make_step(values: dict[str, Any], folder: Path) -> RecipeStep:
    if "method" in values:
        return registry.make_spec(values)
    if isinstance(grc := values.get("grc"), str):
        rest = {name: value for name, value in values.items() if name != "grc"}
        read = read_grc(_sibling(folder, grc), str(values.get("attribute", "")))
        return as_step({**read.as_dict(), **rest})
    if values.get("step") == "hierarchy" and isinstance(tree := values.get("file"), str):
        rest = {name: value for name, value in values.items() if name != "file"}
        return as_step({**rest, "levels": read_hierarchy(_sibling(folder, tree)).steps})
    return as_step(values)


def _sibling(folder: Path, name: str) -> Path:
    """Return the path of a file that a recipe names: always in the recipe's own folder."""
    return folder / Path(name).name


def _bad_recipe(file: Path, what: str, **fields: Any) -> InputError:
    hint = "write it as `safeswap recode --write-recipe FILE` does"
    return InputError(f"{file.name!r}: {what}", code="bad-recipe-file", hint=hint, file=str(file), **fields)


STUDY_FORMAT = "safeswap-study-spec-1"
_LARGEST_STUDY = 2**20

_STUDY_HEADER = """\
# A risk-utility study. Every choice of up to `up_to` attributes × rates × constraint sets × replicates is a candidate.
# rates: shares of records that take part in a swap. attributes, keys: left out, all categorical ones.
# [[constraints]]: fixed = must be equal within a pair, differ = must differ; each block is a collection of its own.
# [[others]]: further candidates, each a specification of any method. objective: how one candidate is chosen,
# "linear:a=2" (smallest risk + 2 × distortion), "cap_risk:0.01" or "cap_distortion:0.05".

"""


def write_study_spec(
    spec: StudySpec, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write the question of a study; ``read_study_spec`` reads the same one back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     spec = StudySpec(rates=(0.05,), constraints=({"fixed": ("Sex",)}, {}))
    ...     write_study_spec(spec, path)
    ...     read_study_spec(path) == spec
    True
    """
    import tomli_w

    content = {"format": STUDY_FORMAT, **_drop_empty(spec.model_dump(mode="json"))}
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes((_STUDY_HEADER + tomli_w.dumps(content)).encode("utf-8"))


def read_study_spec(path: str | os.PathLike[str], **overrides: Any) -> StudySpec:
    """Read the question of a study; ``overrides`` replace settings of the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     _ = path.write_text("rats = [0.1]")
    ...     read_study_spec(path)
    Traceback (most recent call last):
    safeswap.errors.InputError: 'study.toml': there is no setting 'rats'
    """
    file = existing_file(path)
    content = load_toml(file, what="study", largest=_LARGEST_STUDY, bad=_bad_study)
    if content.pop("format", STUDY_FORMAT) != STUDY_FORMAT:
        raise _bad_study(file, f"the format is not {STUDY_FORMAT!r}")
    for name in content:
        if name not in StudySpec.model_fields:
            close = get_close_matches(name, StudySpec.model_fields, n=1)
            known = ", ".join(StudySpec.model_fields)
            hint = f"did you mean {close[0]}?" if close else f"the settings are: {known}"
            raise _bad_study(file, f"there is no setting {name!r}", hint=hint)
    try:
        return StudySpec(**{**content, **overrides})
    except SpecError as error:
        raise SpecError(
            f"{file.name!r}: {error.message}", code=error.code, hint=error.hint, file=str(file), **error.fields
        ) from None


def _drop_empty(value: Any) -> Any:
    """Remove null values, which TOML lacks, and empty lists."""
    if isinstance(value, dict):
        return {key: _drop_empty(item) for key, item in value.items() if item is not None and item != []}
    return [_drop_empty(item) for item in value] if isinstance(value, list) else value


def _bad_study(file: Path, what: str, *, hint: str = "", **fields: Any) -> InputError:
    return InputError(
        f"{file.name!r}: {what}",
        code="bad-study-file",
        hint=hint or "write it as `safeswap study --write-study FILE` does",
        file=str(file),
        **fields,
    )
