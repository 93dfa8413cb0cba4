"""Recipes: immutable lists of steps, and their history for undo and redo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, overload

from safeswap.errors import SafeswapError, SpecError
from safeswap.methods.recode.apply import apply_step, pin
from safeswap.methods.recode.steps import Labels, Step, as_step
from safeswap.model.microdata import Microdata, PastStep
from safeswap.model.spec import MaskSpec
from safeswap.model.text import plural

RecipeStep: TypeAlias = Step | MaskSpec


@dataclass(frozen=True)
class Recipe:
    """Steps applied in order: recodes, and maskings such as suppression by their specification.

    Immutable: ``recipe + step`` is a longer recipe, ``undo()`` a shorter one.

    >>> recipe = Recipe() + {"step": "truncate", "attribute": "NACE"} + {"step": "drop", "attributes": ["Name"]}
    >>> len(recipe), len(recipe.undo()), recipe.undo() + recipe[1] == recipe
    (2, 1, True)
    """

    steps: tuple[RecipeStep, ...] = ()

    @classmethod
    def of(cls, steps: Recipe | Step | MaskSpec | Mapping[str, Any] | Iterable[Any]) -> Recipe:
        """Make a recipe from steps, plain values, or one step."""
        if isinstance(steps, Recipe):
            return steps
        listed: Iterable[Any] = [steps] if isinstance(steps, Step | MaskSpec | Mapping) else steps
        return cls(tuple(_as_recipe_step(step) for step in listed))

    def __add__(self, other: Recipe | Step | MaskSpec | Mapping[str, Any]) -> Recipe:
        return Recipe((*self.steps, *Recipe.of(other).steps))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[RecipeStep]:
        return iter(self.steps)

    @overload
    def __getitem__(self, position: int) -> RecipeStep: ...
    @overload
    def __getitem__(self, position: slice) -> Recipe: ...
    def __getitem__(self, position: int | slice) -> RecipeStep | Recipe:
        return (
            Recipe(self.steps[position]) if isinstance(position, slice) else self.steps[self._check_position(position)]
        )

    def undo(self) -> Recipe:
        """Return the recipe without its last step; an empty recipe stays empty."""
        return Recipe(self.steps[:-1])

    def replace(self, position: int, step: RecipeStep | Mapping[str, Any]) -> Recipe:
        """Return the recipe with the step at this position replaced."""
        at = self._check_position(position)
        return Recipe((*self.steps[:at], _as_recipe_step(step), *self.steps[at + 1 :]))

    def insert(self, position: int, step: RecipeStep | Mapping[str, Any]) -> Recipe:
        """Return the recipe with a step inserted before this position."""
        at = self._check_position(position, end=True)
        return Recipe((*self.steps[:at], _as_recipe_step(step), *self.steps[at:]))

    def remove(self, position: int) -> Recipe:
        """Return the recipe without the step at this position."""
        at = self._check_position(position)
        return Recipe((*self.steps[:at], *self.steps[at + 1 :]))

    def common(self, other: Recipe) -> int:
        """Count the leading steps that two recipes share."""
        alike = 0
        for mine, theirs in zip(self.steps, other.steps, strict=False):
            if type(mine) is not type(theirs) or mine != theirs:
                break
            alike += 1
        return alike

    @property
    def is_recoding(self) -> bool:
        """Return whether all steps are recodes, which need no key."""
        return all(isinstance(step, Step) for step in self.steps)

    @property
    def past(self) -> tuple[PastStep, ...]:
        """Return the recipe as the past of a file: recodes name the attributes that they change."""
        return tuple(
            PastStep(method="recode", attributes=step.names)
            if isinstance(step, Step)
            else PastStep(method=step.method, attributes=())
            for step in self.steps
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each step in plain words."""
        return self.describe({})

    def describe(self, labels: Labels) -> tuple[str, ...]:
        """Return each step in plain words, with the labels of the levels that it names."""
        told = []
        for step in self.steps:
            told.append(describe_step(step, labels))
            labels = step.surviving_labels(labels) if isinstance(step, Step) else labels
        return tuple(told)

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels that mean the same after all steps."""
        for step in self.steps:
            labels = step.surviving_labels(labels) if isinstance(step, Step) else labels
        return labels

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the steps as plain values."""
        return [step.as_dict() for step in self.steps]

    def apply(self, data: Microdata) -> Microdata:
        """Return the file after all steps, for recipes of recodes; :func:`safeswap.workflow.recode` takes any."""
        for number, step in enumerate(self.steps, start=1):
            data = apply_recode(data, step, number=number)
        return data

    def pinned(self, data: Microdata) -> Recipe:
        """Return the recipe with everything its recodes take from the data fixed, to reuse on next year's file."""
        steps: list[RecipeStep] = []
        for number, step in enumerate(self.steps, start=1):
            if isinstance(step, Step):
                steps.append(pin(data, step) if hasattr(step, "attribute") else step)
            else:
                steps.append(step)
            data = apply_recode(data, step, number=number) if isinstance(step, Step) else data
        return Recipe(tuple(steps))

    def _check_position(self, position: int, *, end: bool = False) -> int:
        at = position + len(self.steps) if position < 0 else position
        if 0 <= at < len(self.steps) + end:
            return at
        raise SpecError(
            f"the recipe has {plural(len(self.steps), 'step')}, there is none in place {position}",
            code="no-such-step",
            hint="places are counted from 0",
            steps=len(self.steps),
        )


def describe_step(step: RecipeStep, labels: Labels) -> str:
    """Describe a step in plain words."""
    return step.describe(labels) if isinstance(step, Step) else f"{step.method} as specified"


def apply_recode(data: Microdata, step: RecipeStep, *, number: int) -> Microdata:
    """Return the file after one recode; an error names the step."""
    if not isinstance(step, Step):
        raise SpecError(
            f"step {number} masks by {step.method!r} and is not a recode",
            code="not-a-recode",
            hint="apply the recipe with safeswap.workflow.recode and a key",
            position=number,
        )
    try:
        return apply_step(data, step)
    except SafeswapError as error:
        raise add_step_number(error, number) from None


def add_step_number(error: SafeswapError, number: int) -> SafeswapError:
    """Return the error with the number of its step, counted from 1."""
    fields = {**error.fields, "position": number}
    return type(error)(f"step {number}: {error.message}", code=error.code, hint=error.hint, **fields)


def _as_recipe_step(step: RecipeStep | Mapping[str, Any]) -> RecipeStep:
    return step if isinstance(step, MaskSpec) else as_step(step)


@dataclass(frozen=True)
class History:
    """A recipe with its previous and its undone versions.

    >>> history = History().do(Recipe.of({"step": "drop", "attributes": ["Name"]}))
    >>> history.undo().redo() == history, len(history.undo().present), history.undo().undo().can_undo
    (True, 0, False)
    """

    present: Recipe = Recipe()
    past: tuple[Recipe, ...] = ()
    future: tuple[Recipe, ...] = ()

    @property
    def can_undo(self) -> bool:
        """Return whether there is something to undo."""
        return bool(self.past)

    @property
    def can_redo(self) -> bool:
        """Return whether something was undone and nothing done since."""
        return bool(self.future)

    def do(self, recipe: Recipe) -> History:
        """Return the history with another recipe as the current one."""
        return self if recipe == self.present else History(recipe, (*self.past, self.present))

    def undo(self) -> History:
        """Return the history one recipe back; unchanged if there is none."""
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (self.present, *self.future))

    def redo(self) -> History:
        """Return the history with the last undone recipe restored; unchanged if there is none."""
        if not self.future:
            return self
        return replace(self, present=self.future[0], past=(*self.past, self.present), future=self.future[1:])
