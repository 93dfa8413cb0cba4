"""The specification of a pipeline: named steps, each the specification of any method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.methods.recode.recipe import Recipe
from safeswap.methods.recode.steps import Labels
from safeswap.methods.recode.steps import Step as RecodeStep
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.spec import MaskSpec, Strict
from safeswap.model.text import plural

AnyStep = Any
"""A step as callers write it: a :class:`Step`, a specification, or plain values of either, or of a recode."""


class Step(Strict):
    """A step of a pipeline. Its name is what its random draws depend on: keep it when other steps come and go.

    >>> step = Pipeline([{"method": "swap", "swap": ["Race"], "rate": 0.05}])[0]
    >>> step.name, step.spec.rate
    ('swap', 0.05)
    """

    name: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")]
    spec: MaskSpec

    @property
    def sentence(self) -> str:
        """The step in plain words: its name, and the method if the name does not say it."""
        return self.describe({})

    def describe(self, labels: Labels) -> str:
        """Return the sentence with the labels of the levels that it names."""
        method = self.spec.method
        said = self.name if self.name.startswith(method) else f"{self.name} ({method})"
        recipe = getattr(self.spec, "recipe", None)
        return f"{said}: {'; '.join(recipe.describe(labels))}" if isinstance(recipe, Recipe) else said

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels that mean the same after the step."""
        recipe = getattr(self.spec, "recipe", None)
        return recipe.surviving_labels(labels) if isinstance(recipe, Recipe) else labels

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, **self.spec.as_dict()}

    def key(self, key: Key) -> Key:
        """Return the key of the step's draws.

        A step with the plain name of its method draws as the method does by itself; every other name has draws of its
        own. The place of a step does not matter, so a later step can change without touching the earlier ones.
        """
        if self.name == self.spec.method:
            return key
        return Key(keyed.derive(key.secret, "step", self.name), key.releasable)


def _as_steps(given: Any) -> Any:
    if isinstance(given, Pipeline):
        return given.steps
    if isinstance(given, Recipe):
        given = given.steps
    listed = [given] if isinstance(given, Mapping | MaskSpec | RecodeStep | Step) else given
    if not isinstance(listed, Iterable) or isinstance(listed, str | bytes):
        return given
    steps: list[Step] = []
    for number, each in enumerate(listed, start=1):
        steps.append(_as_step(each, number, [step.name for step in steps]))
    return tuple(steps)


def _as_step(given: Any, number: int, taken: Iterable[str]) -> Step:
    """Make a step from plain values; a step without a name gets that of its method, with a number if it is taken."""
    if isinstance(given, Step):
        return given
    name = None
    if isinstance(given, Mapping) and "step" in given and "method" not in given:
        named = {"name": given["name"]} if "name" in given else {}
        given = {**named, "method": "recode", "steps": [{key: each for key, each in given.items() if key != "name"}]}
    if isinstance(given, RecodeStep):
        given = registry.make_spec({"method": "recode", "steps": [given]})
    if isinstance(given, Mapping):
        name = given.get("name")
        try:
            given = registry.make_spec({key: value for key, value in given.items() if key != "name"})
        except SpecError as error:
            raise at_step(error, number, str(name or given.get("method", ""))) from None
    if not isinstance(given, MaskSpec):
        raise SpecError(
            f"step {number} is not a specification",
            code="bad-spec",
            hint='give plain values such as {"method": "swap", "swap": ["Race"], "rate": 0.05}',
            position=number,
        )
    if isinstance(given, Pipeline):
        raise SpecError(
            f"step {number} is itself a pipeline",
            code="bad-spec",
            hint="add its steps one by one: pipeline + other",
            position=number,
        )
    return Step(name=free_name(given.method, taken) if name is None else name, spec=given)


def free_name(method: str, taken: Iterable[str]) -> str:
    """Return the name of a method, with a number if it is taken."""
    names, number = set(taken), 2
    if method not in names:
        return method
    while f"{method}-{number}" in names:
        number += 1
    return f"{method}-{number}"


def at_step(error: Any, number: int, name: str) -> Any:
    """Return the error with the place and the name of the step, counted from 1."""
    fields = {**error.fields, "position": number, "step": name}
    said = f"step {number} ({name})" if name else f"step {number}"
    return type(error)(f"{said}: {error.message}", code=error.code, hint=error.hint, **fields)


class Pipeline(MaskSpec):
    """Steps of any methods, applied in order. Immutable: every change returns another pipeline.

    >>> swap = {"method": "swap", "swap": ["Race"], "fixed": ["Sex"], "rate": 0.02}
    >>> pipeline = Pipeline([swap, {"method": "pram", "attributes": ["MS"]}, swap])
    >>> pipeline.names
    ('swap', 'pram', 'swap-2')
    >>> pipeline.remove("swap").move("swap-2", 0).edit("pram", keep=0.9).names
    ('swap-2', 'pram')
    """

    method: ClassVar[str] = "pipeline"

    steps: Annotated[
        tuple[Step, ...],
        BeforeValidator(_as_steps),
        Field(description="the steps, applied in order, each a specification with its method and, if wanted, a name"),
    ] = ()

    def __init__(self, steps: Any = (), /, **values: Any) -> None:
        super().__init__(**({"steps": steps} | values))

    @model_validator(mode="after")
    def _names_differ(self) -> Pipeline:
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise ValueError(f"two steps are called {twice[0]!r}: give one of them another name")
        return self

    @property
    def names(self) -> Names:
        """The names of the steps."""
        return tuple(step.name for step in self.steps)

    @property
    def sentences(self) -> Names:
        """Each step in plain words."""
        return tuple(step.sentence for step in self.steps)

    @property
    def dropped(self) -> Names:
        """The attributes that a release omits."""
        return tuple(dict.fromkeys(n for step in self.steps for n in getattr(step.spec, "dropped", ())))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values with the method's name."""
        return {"method": self.method, "steps": [step.as_dict() for step in self.steps]}

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:  # type: ignore[override]
        return iter(self.steps)

    @check_types
    def __getitem__(self, which: int | str | slice) -> Any:
        """Return a step by its place or name, or the pipeline of some of them."""
        return Pipeline(self.steps[which]) if isinstance(which, slice) else self.steps[self.find(which)]

    def __add__(self, other: Any) -> Pipeline:
        """Return the pipeline with more steps; those whose name is taken get another one if they stated none."""
        return self._insert_steps(len(self), other)

    @check_types
    def insert(self, which: int | str, step: AnyStep) -> Pipeline:
        """Return the pipeline with a step before that one."""
        return self._insert_steps(len(self) if which == len(self) else self.find(which), step)

    @check_types
    def remove(self, which: int | str) -> Pipeline:
        """Return the pipeline without that step."""
        at = self.find(which)
        return Pipeline((*self.steps[:at], *self.steps[at + 1 :]))

    @check_types
    def move(self, which: int | str, to: int) -> Pipeline:
        """Return the pipeline with that step in another place; −1 is the last."""
        step, rest = self[which], self.remove(which).steps
        if not -len(self) <= to < len(self):
            raise self._no_such_step(to)
        at = to % len(self)
        return Pipeline((*rest[:at], step, *rest[at:]))

    @check_types
    def edit(self, which: int | str, **parameters: Any) -> Pipeline:
        """Return the pipeline with some parameters of a step changed; its name stays."""
        at = self.find(which)
        step = self.steps[at]
        try:
            changed = Step(name=step.name, spec=step.spec.replace(**parameters))
        except SpecError as error:
            raise at_step(error, at + 1, step.name) from None
        return Pipeline((*self.steps[:at], changed, *self.steps[at + 1 :]))

    @check_types
    def put(self, which: int | str, step: AnyStep) -> Pipeline:
        """Return the pipeline with another step in that place."""
        at = self.find(which)
        return self.remove(at)._insert_steps(at, step)

    def undo(self) -> Pipeline:
        """Return the pipeline without its last step; an empty one stays empty."""
        return Pipeline(self.steps[:-1])

    @check_types
    def common(self, other: Pipeline) -> int:
        """Count the leading steps that two pipelines share."""
        alike = 0
        for mine, theirs in zip(self.steps, other.steps, strict=False):
            if mine != theirs or type(mine.spec) is not type(theirs.spec):
                break
            alike += 1
        return alike

    @check_types
    def find(self, which: int | str) -> int:
        """Return the place of a step, from 0."""
        if isinstance(which, str):
            if which in self.names:
                return self.names.index(which)
            raise self._no_such_step(which)
        at = which + len(self) if which < 0 else which
        if 0 <= at < len(self):
            return at
        raise self._no_such_step(which)

    def _insert_steps(self, at: int, given: Any) -> Pipeline:
        """Return the pipeline with the given steps inserted at a place."""
        listed = given.steps if isinstance(given, Pipeline | Recipe) else given
        added = list(self.steps)
        for number, each in enumerate(listed if isinstance(listed, list | tuple) else [listed]):
            added.insert(at + number, _as_step(each, at + number + 1, [step.name for step in added]))
        return Pipeline(tuple(added))

    def _no_such_step(self, which: int | str) -> SpecError:
        names = ", ".join(self.names) or "none"
        return SpecError(
            f"the pipeline has {plural(len(self), 'step')} ({names}), and none is {which!r}",
            code="no-such-step",
            hint="name a step, or give its place, counted from 0",
            steps=list(self.names),
        )
