"""Recode a file step by step: recipes, their effect on risk, and advice on the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from safeswap.methods.recode.recipe import Recipe
from safeswap.methods.recode.steps import Step
from safeswap.model.checked import checked
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.workflow.reading import read

if TYPE_CHECKING:
    from safeswap.methods.recode.hierarchy import Hierarchy
    from safeswap.methods.recode.steps import GlobalRecode
    from safeswap.workflow.recode_advice import AdviceList
    from safeswap.workflow.session import ArgusSession

Steps = Recipe | Step | MaskSpec | Mapping[str, Any] | Iterable[Any] | str | PathLike[str]


@checked
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


@checked
def as_recipe(steps: Steps) -> Recipe:
    """Make a recipe from steps, plain values (maskings by their ``method`` too), or a TOML file."""
    if isinstance(steps, str | PathLike):
        return read_recipe(steps)
    if isinstance(steps, Mapping):
        return as_recipe([steps])
    if isinstance(steps, Recipe):
        return steps
    from safeswap.workflow.session import as_recipe_step

    several = [steps] if isinstance(steps, Step | MaskSpec) else steps
    return Recipe.of(as_recipe_step(each) for each in several)


@checked
def read_recipe(path: str | PathLike[str]) -> Recipe:
    """Read a recipe from a TOML file."""
    from safeswap.projects.toml import read_recipe as read_toml

    return read_toml(path)


@checked
def write_recipe(recipe: Steps, path: str | PathLike[str], *, data: Any = None, force: bool = False) -> None:
    """Write a recipe as TOML. Given the ``data``, breaks and range labels that depend on them are written too."""
    from safeswap.projects.toml import write_recipe as write_toml

    found = as_recipe(recipe)
    write_toml(found if data is None else found.pinned(read(data)), path, force=force)


@checked
def read_grc(path: str | PathLike[str], attribute: str, **options: Any) -> GlobalRecode:
    """Read an ARGUS recode file as a step on an attribute; see :func:`safeswap.projects.argus.read_grc`."""
    from safeswap.projects.argus import read_grc as read_file

    return read_file(path, attribute, **options)


@checked
def read_hierarchy(path: str | PathLike[str]) -> Hierarchy:
    """Read a tree of codes from an indented ARGUS file or a CSV file of levels."""
    from safeswap.projects.argus import read_hierarchy as read_file

    return read_file(path)


@checked
def advice(
    data: Any, combinations: Any, *, candidates: Iterable[Any] | None = None, most: int | None = None
) -> AdviceList:
    """Rank single recodes by unsafe combinations removed per unit of information lost, best first.

    ``combinations`` as for :func:`risky`. Without ``candidates`` the obvious ones are tried: merge neighbouring levels
    of an ordered key, merge the rarest levels, use fewer ranges, top or bottom code, drop the last character of
    codes, go one level up a hierarchy, drop the key.

    >>> from safeswap import datasets
    >>> found = advice(datasets.cps8d(), {"keys": ["Age", "Edu", "EmpTyp", "AvgHrs", "MS", "Race"]}, most=3)
    >>> [each.removed for each in found][0] > 0, found[0].worth >= found[1].worth
    (True, True)
    """
    from safeswap.workflow.recode_advice import advice as find

    return find(read(data), combinations, candidates=candidates, most=most)


@checked
def argus_session(data: Any, combinations: Any, *, recipe: Steps | None = None, key: Key | None = None) -> ArgusSession:
    """Start an interactive session: each step shows its effect on the unsafe combinations and can be undone or edited.

    >>> from safeswap import datasets
    >>> session = argus_session(datasets.cps8d(), {"keys": ["Age", "Edu", "EmpTyp", "MS", "Race"]})
    >>> session = session.do({"step": "blank", "attribute": "Race", "values": ["Non-White"]})
    >>> [stage.unsafe for stage in session.stages]
    [21, 6]
    """
    from safeswap.workflow.session import ArgusSession

    return ArgusSession.start(read(data), combinations, recipe=None if recipe is None else as_recipe(recipe), key=key)


@checked
def risky_after(recipe: Steps, data: Any, combinations: Any, *, key: Key | None = None) -> list[dict[str, Any]]:
    """Return the totals of unsafe combinations before a recipe and after each of its steps."""
    return [stage.as_dict() for stage in argus_session(data, combinations, recipe=recipe, key=key).stages]
