"""Recipes, questions of studies and scenarios as TOML files.

Errors in a file are reported by position, never by quoting the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap import registry
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.formats import existing_file, unreadable_error
from safeswap.files.schema_file import PROJECT_FORMAT
from safeswap.methods.recode.recipe import Recipe, RecipeStep, add_step_number
from safeswap.methods.recode.steps import STEPS, as_step
from safeswap.model.scenario import Scenario
from safeswap.model.study import StudySpec
from safeswap.pipelines.spec import Pipeline
from safeswap.projects.argus import read_grc, read_hierarchy

if TYPE_CHECKING:
    from safeswap.projects.project import Project

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
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise bad(file, "the file is not UTF-8 text") from None
    except OSError as error:
        raise unreadable_error(file, error) from None
    return parse_toml(text, file, bad=bad)


def parse_toml(text: str, file: Path, *, bad: Callable[..., InputError]) -> dict[str, Any]:
    """Return the content of a TOML file from its text; ``bad`` makes the error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Only the position is used: the parser's message may quote the file.
        if (place := _AT_LINE.search(str(error))) is None:
            raise bad(file, "the file ends unexpectedly") from None
        line, column = int(place[1]), int(place[2])
        raise bad(file, f"line {line}, column {column} is not valid TOML", line=line, column=column) from None
    except RecursionError:
        raise bad(file, "the file is nested too deeply") from None


def name_place(file: Path, line: int | None) -> str:
    """Return a file with a line of it, for an error."""
    return f"{file.name!r}" if line is None else f"{file.name!r}, line {line}"


@dataclass(frozen=True)
class FileError:
    """Makes the error about a file of one kind; the hint says how to write such a file."""

    code: str
    hint: str

    def __call__(self, file: Path, what: str, *, hint: str = "", **where: Any) -> InputError:
        """Return the error; ``where`` has the line, the column or the section, as far as they are known."""
        line = None if where.get("column") else where.get("line")  # the parser's message names the line itself
        known = {name: value for name, value in where.items() if value}
        message = f"{name_place(file, line)}: {what}"
        return InputError(message, code=self.code, hint=hint or self.hint, file=str(file), **known)


_bad_recipe = FileError(code="bad-recipe-file", hint="write it as `safeswap recode --write-recipe FILE` does")
_bad_pipeline = FileError(
    code="bad-pipeline-file", hint='write [[steps]] with method = "swap" and its parameters, one block for each step'
)
_bad_study = FileError(code="bad-study-file", hint="write it as `safeswap study --write-study FILE` does")
_bad_scenario = FileError(
    code="bad-scenario-file", hint='write [[scenario]], name = "prosecutor" and keys = ["age", "sex"]'
)

RECIPE_FORMAT = "safeswap-recipe-1"
PIPELINE_FORMAT = "safeswap-pipeline-1"
_LARGEST = 2**24

_HEADER = """\
# Steps that are made one after the other. step: {steps}.
# A step with `method` in place of `step` is a masking by its specification, e.g. method = "suppress".
# `grc = "age.grc"` in a global_recode and `file = "towns.hrc"` in a hierarchy are read from beside this file.

"""


_PIPELINE_HEADER = """\
# Steps of any methods, carried out in this order. `name` fixes a step's random draws: keep it when other steps change.

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


def read_pipeline(path: str | os.PathLike[str]) -> Pipeline:
    """Read a pipeline: ``[[steps]]`` of any methods, or a recipe. Errors name the step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "steps.toml"
    ...     pipeline = Pipeline([{"method": "swap", "swap": ["Race"], "rate": 0.05}])
    ...     write_pipeline(pipeline, path)
    ...     read_pipeline(path) == pipeline
    True
    """
    file = existing_file(path)
    content = load_toml(file, what="pipeline", largest=_LARGEST, bad=_bad_pipeline)
    if content.get("format") == PROJECT_FORMAT:
        return _read_project(file).pipeline
    if content.pop("format", PIPELINE_FORMAT) not in (PIPELINE_FORMAT, RECIPE_FORMAT):
        raise _bad_pipeline(file, f"the format is not {PIPELINE_FORMAT!r}")
    listed = content.pop("steps", [])
    if content or not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
        raise _bad_pipeline(file, "a pipeline holds [[steps]] and nothing else")
    try:
        return Pipeline([read_step(values, file.parent) for values in listed])
    except SpecError as error:
        fields = {**error.fields, "file": str(file)}
        raise SpecError(f"{file.name!r}, {error.message}", code=error.code, hint=error.hint, **fields) from None


def scenarios_beside(path: str | os.PathLike[str]) -> tuple[Scenario, ...]:
    """Return the scenarios of the project whose steps :func:`read_pipeline` reads; none of a plain list of steps."""
    file = existing_file(path)
    content = load_toml(file, what="pipeline", largest=_LARGEST, bad=_bad_pipeline)
    return _read_project(file).scenarios if content.get("format") == PROJECT_FORMAT else ()


def write_pipeline(
    pipeline: Pipeline, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write a pipeline; :func:`read_pipeline` reads the same one back."""
    import tomli_w

    content = {"format": PIPELINE_FORMAT, "steps": drop_empty([step.as_dict() for step in pipeline])}
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes((_PIPELINE_HEADER + tomli_w.dumps(content)).encode("utf-8"))


def read_step(values: dict[str, Any], folder: Path) -> Any:
    """Return the values of a step, with what it names in other files read from beside it."""
    if "method" not in values and ("grc" in values or "file" in values):
        made = _make_step({name: value for name, value in values.items() if name != "name"}, folder)
        named = {"name": values["name"]} if "name" in values else {}
        return {**named, "method": "recode", "steps": [made.as_dict()]}
    return values


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


STUDY_FORMAT = "safeswap-study-spec-1"
_LARGEST_STUDY = 2**20

_STUDY_HEADER = """\
# A risk-utility study. Every choice of up to `up_to` attributes × rates × constraint sets × replicates is a candidate.
# rates: shares of records that take part in a swap. attributes, keys: left out, all categorical ones.
# [[constraints]]: fixed = must be equal within a pair, differ = must differ; each block is a separate set.
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

    content = {"format": STUDY_FORMAT, **drop_empty(spec.model_dump(mode="json"))}
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
    if content.get("format") == PROJECT_FORMAT:
        content = _study_of(file)
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


def _study_of(file: Path) -> dict[str, Any]:
    """Return the settings of the study that a project file states."""
    study = _read_project(file).question
    if study is None:
        raise _bad_study(file, "the project has no [study]", hint="write [study] and its settings")
    return {name: getattr(study, name) for name in study.model_fields_set}


def _read_project(file: Path) -> Project:
    from safeswap.projects.project import Project

    return Project.read(file)


def drop_empty(value: Any) -> Any:
    """Remove null values, which TOML lacks, and empty lists."""
    if isinstance(value, dict):
        return {key: drop_empty(item) for key, item in value.items() if item is not None and item != []}
    return [drop_empty(item) for item in value] if isinstance(value, list) else value


_SCENARIO_HEADER = """\
# Who might attack, and what they know: one [[scenario]] each. keys: what they know of a person; up_to: how many of the
# keys together, all if left out; tolerance: a combination that fewer records share is unsafe.

"""
_SCENARIO_START = re.compile(r"^[ \t]*\[\[[ \t]*[\"']?scenario[\"']?[ \t]*\]\]", re.MULTILINE)


def write_scenarios(
    scenarios: Iterable[Scenario], path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write scenarios; :func:`read_scenarios` reads the same ones back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scenarios.toml"
    ...     stated = (Scenario(name="prosecutor", keys=["age", "sex"]), Scenario(keys=["town"], tolerance=5))
    ...     write_scenarios(stated, path)
    ...     read_scenarios(path) == stated
    True
    """
    import tomli_w

    content = {"scenario": [drop_empty(each.as_dict()) for each in scenarios]}
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes((_SCENARIO_HEADER + tomli_w.dumps(content)).encode("utf-8"))


def read_scenarios(path: str | os.PathLike[str]) -> tuple[Scenario, ...]:
    """Read the ``[[scenario]]`` sections of a file, which may hold other settings too. Errors name the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "project.toml"
    ...     _ = path.write_text('title = "Survey"\\n\\n[[scenario]]\\nname = "journalist"\\nkees = ["age"]\\n')
    ...     read_scenarios(path)
    Traceback (most recent call last):
    safeswap.errors.InputError: 'project.toml', line 3: there is no setting 'kees' in the scenario 'journalist'
    """
    file = existing_file(path)
    content = load_toml(file, what="scenario", largest=_LARGEST_STUDY, bad=_bad_scenario)
    listed = content.get("scenario")
    if not isinstance(listed, list) or not listed or not all(isinstance(values, dict) for values in listed):
        raise _bad_scenario(file, "there is no [[scenario]] in the file")
    starts = _section_lines(file, len(listed))
    found: dict[str, Scenario] = {}
    for values, line in zip(listed, starts, strict=True):
        made = _make_scenario(file, values, line)
        if made.name in found:
            raise _bad_scenario(file, f"two scenarios have the name {made.name!r}", line=line)
        found[made.name] = made
    return tuple(found.values())


def choose_scenario(place: str) -> Scenario:
    """Read one scenario by ``FILE`` or ``FILE:NAME``; the name may be omitted if the file has only one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scenarios.toml"
    ...     write_scenarios((Scenario(name="prosecutor", keys=["age"]), Scenario(keys=["town"])), path)
    ...     choose_scenario(f"{path}:prosecutor").keys
    ('age',)
    """
    text, colon, name = place.rpartition(":")
    if not colon or Path(place).is_file():
        text, name = place, ""
    scenarios = read_scenarios(text)
    named = [each for each in scenarios if each.name == name] if name else list(scenarios)
    if len(named) == 1:
        return named[0]
    known = ", ".join(each.name for each in scenarios)
    raise SpecError(
        f"there is no scenario {name!r} in the file" if name else f"the file has {len(scenarios)} scenarios",
        code="unknown-scenario",
        hint=f"name one of them, as FILE:NAME: {known}",
        file=text,
    )


def _make_scenario(file: Path, values: dict[str, Any], line: int | None) -> Scenario:
    for setting in values:
        if setting not in Scenario.model_fields:
            close = get_close_matches(setting, Scenario.model_fields, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the settings are: {', '.join(Scenario.model_fields)}"
            name = values.get("name", Scenario.model_fields["name"].default)
            raise _bad_scenario(file, f"there is no setting {setting!r} in the scenario {name!r}", hint=hint, line=line)
    try:
        return Scenario(**values)
    except SpecError as error:
        fields = {**error.fields, **({} if line is None else {"line": line}), "file": str(file)}
        raise SpecError(
            f"{name_place(file, line)}: {error.message}", code=error.code, hint=error.hint, **fields
        ) from None


def _section_lines(file: Path, number: int) -> list[int | None]:
    """Return the line on which each scenario starts; None where they are written in another way."""
    text = file.read_text(encoding="utf-8-sig")
    lines = [text.count("\n", 0, found.start()) + 1 for found in _SCENARIO_START.finditer(text)]
    return [*lines] if len(lines) == number else [None] * number
