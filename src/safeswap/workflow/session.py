"""Recode a file by a recipe, at once or in an interactive session.

A session has the combinations to protect, the steps so far, and the risk after each. Everything is a value. Adding,
undoing or editing a step returns a new session, which reuses the results up to the first step that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

from safeswap import registry
from safeswap.errors import SafeswapError, SpecError
from safeswap.measures.risk.risky import Risky, risky
from safeswap.measures.utility.information import InformationLoss
from safeswap.methods.recode.recipe import History, Recipe, RecipeStep, add_step_number, apply_recode, describe_step
from safeswap.methods.recode.steps import Labels, Step, as_step
from safeswap.model.checked import check_types
from safeswap.model.combination import Combinations, as_combinations
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison
from safeswap.model.spec import MaskSpec
from safeswap.workflow.masking import read

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

    several = [steps] if isinstance(steps, Step | MaskSpec) else steps
    return Recipe.of(as_recipe_step(each) for each in several)


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """The file after one step (or before the first), with its risk, computed on first use."""

    step: RecipeStep | None
    data: Microdata
    original: Microdata
    asked: Combinations
    labels: Labels = field(default_factory=dict)  # of the levels before the step

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return "the file as it is" if self.step is None else describe_step(self.step, self.labels)

    @cached_property
    def risky(self) -> Risky | None:
        """The unsafe combinations now; None if no key is left. A numeric key is refused until it is recoded."""
        left = combinations_left(self.asked, self.data)
        return None if left is None else risky(self.data, left)

    @property
    def unsafe(self) -> int | None:
        """The number of unsafe combinations of values; None while a numeric key is not recoded."""
        found = self._totals
        return None if found is None else found[0]

    @property
    def unsafe_records(self) -> int | None:
        """The number of records in an unsafe combination."""
        found = self._totals
        return None if found is None else found[1]

    @cached_property
    def _totals(self) -> tuple[int, int] | None:
        try:
            return (0, 0) if self.risky is None else (self.risky.unsafe, self.risky.unsafe_records)
        except SpecError as error:
            if error.code == "key-not-categorical":
                return None
            raise

    @cached_property
    def information_loss(self) -> float:
        """The share of the keys' information that was lost."""
        names = tuple(dict.fromkeys(name for keys, _ in self.asked.stated() for name in keys))
        compared = Comparison(before=self.original, after=self.data, attributes=names)
        return InformationLoss(attributes=names).score(compared).value

    def as_dict(self) -> dict[str, Any]:
        """Return totals only."""
        by_dimension = {} if self._totals is None or self.risky is None else self.risky.by_dimension
        return {
            "step": self.sentence,
            "unsafe_combinations": self.unsafe,
            "unsafe_records": self.unsafe_records,
            "by_dimension": {str(size): number for size, number in by_dimension.items()},
            "information_loss": self.information_loss,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ArgusSession:
    """The file, the combinations to protect and the recipe, with the result of every step.

    >>> from safeswap import datasets
    >>> session = ArgusSession.start(datasets.cps8d(), {"keys": ["Age", "Edu", "EmpTyp", "MS", "Race"]})
    >>> more = session.do({"step": "drop", "attributes": ["Race"]})
    >>> more.now.unsafe < session.now.unsafe, more.undo().recipe == session.recipe, len(more.undo().redo().recipe)
    (True, True, 1)
    """

    asked: Combinations
    history: History
    stages: tuple[Stage, ...] = field(repr=False)
    key: Key | None = field(default=None, repr=False)

    @classmethod
    @check_types
    def start(
        cls, data: Any, combinations: Any, *, recipe: Steps | None = None, key: Key | None = None
    ) -> ArgusSession:
        """Start a session with a file or dataframe, and the steps of a recipe applied; ``key`` is for steps that draw.

        Each step shows its effect on the unsafe combinations and can be undone or edited.
        """
        data, asked = read(data), as_combinations(combinations)
        for keys, _ in asked.stated():
            for name in keys:
                data.schema[name]
        first = Stage(step=None, data=data, original=data, asked=asked)
        session = cls(asked=asked, history=History(), stages=(first,), key=key)
        return session if recipe is None else session._move_to(History(as_recipe(recipe)))

    @property
    def recipe(self) -> Recipe:
        """The steps so far."""
        return self.history.present

    @property
    def now(self) -> Stage:
        """The file after all steps."""
        return self.stages[-1]

    def do(self, step: RecipeStep | Mapping[str, Any]) -> ArgusSession:
        """Return the session with one more step."""
        return self.edit(self.recipe + as_recipe_step(step))

    def replace(self, position: int, step: RecipeStep | Mapping[str, Any]) -> ArgusSession:
        """Return the session with the step at that position replaced; later steps are recomputed."""
        return self.edit(self.recipe.replace(position, as_recipe_step(step)))

    def insert(self, position: int, step: RecipeStep | Mapping[str, Any]) -> ArgusSession:
        """Return the session with a step inserted before that position."""
        return self.edit(self.recipe.insert(position, as_recipe_step(step)))

    def remove(self, position: int) -> ArgusSession:
        """Return the session without the step at that position."""
        return self.edit(self.recipe.remove(position))

    def edit(self, recipe: Recipe) -> ArgusSession:
        """Return the session with another recipe; undo returns to this one."""
        return self._move_to(self.history.do(recipe))

    def undo(self) -> ArgusSession:
        """Return the session with the previous recipe."""
        return self._move_to(self.history.undo())

    def redo(self) -> ArgusSession:
        """Return the session with the recipe that was undone last."""
        return self._move_to(self.history.redo())

    def _move_to(self, history: History) -> ArgusSession:
        same = self.recipe.common(history.present)
        stages = list(self.stages[: same + 1])
        for number, step in enumerate(history.present.steps[same:], start=same + 1):
            labels = stages[-1].data.schema.labels
            data = apply_step(stages[-1].data, step, number=number, key=self.key)
            stages.append(Stage(step=step, data=data, original=stages[0].data, asked=self.asked, labels=labels))
        return ArgusSession(asked=self.asked, history=history, stages=tuple(stages), key=self.key)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals after each step."""
        return {"stages": [stage.as_dict() for stage in self.stages]}


def combinations_left(asked: Combinations, data: Microdata) -> Combinations | None:
    """Remove keys that are no longer in the file from the combinations; None if none is left."""
    return asked.without(name for keys, _ in asked.stated() for name in keys if name not in data.schema)


def as_recipe_step(step: Any) -> RecipeStep:
    """Make a step of any kind from plain values: a recode by its ``step``, a masking by its ``method``.

    >>> as_recipe_step({"method": "pram", "attributes": ["Race"], "keep": 0.9}).method
    'pram'
    """
    if isinstance(step, MaskSpec):
        return step
    return registry.make_spec(step) if isinstance(step, Mapping) and "method" in step else as_step(step)


def apply_step(data: Microdata, step: RecipeStep, *, number: int, key: Key | None) -> Microdata:
    """Return the file after a step of any kind."""
    if isinstance(step, Step):
        return apply_recode(data, step, number=number)
    if key is None:
        raise SpecError(
            f"step {number} masks by {step.method!r} and needs a key",
            code="no-key",
            hint="give a key, or keep recodes and maskings apart",
            position=number,
        )
    try:
        return registry.method(step.method).apply(data, step, key=key).data
    except SafeswapError as error:
        raise add_step_number(error, number) from None
