"""Recoding: values are replaced by coarser ones. Nothing is drawn, and what is released is true.

Sources: Willenborg & de Waal 1996 and 2001; the software ARGUS (Hundepool & Willenborg 1996).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from safeswap.arrays.types import Names
from safeswap.engines.base import Engine
from safeswap.methods.recode.apply import check_step, pinned, values_of
from safeswap.methods.recode.recipe import Recipe, recoded
from safeswap.methods.recode.steps import (
    AnyStep,
    Blank,
    ByHierarchy,
    Drop,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
)
from safeswap.methods.value_change import ValuePlan, masked_by
from safeswap.model.audit import COARSENED, Replacement
from safeswap.model.columns import aligned_columns, different
from safeswap.model.invariant import Evidence, Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.schema import Attribute, Kind, level_texts
from safeswap.model.spec import MaskSpec
from safeswap.model.text import several

# What is asked of the method that recodes: steps, and no randomness.


def _as_steps(value: Any) -> Any:
    if isinstance(value, Recipe):
        return value.steps
    return (value,) if isinstance(value, Mapping | Step) else value


class RecodeSpec(MaskSpec):
    """Say less: recode by maps, ranges and hierarchies, truncate, round, blank and drop, one step after the other.

    >>> spec = RecodeSpec(steps=[{"step": "drop", "attributes": ["Name"]}])
    >>> spec.recipe.sentences, spec.dropped
    (('drop Name',), ('Name',))
    """

    method: ClassVar[str] = "recode"

    steps: Annotated[
        tuple[AnyStep, ...],
        BeforeValidator(_as_steps),
        Field(description="the steps, one after the other; see the steps of a recipe"),
    ] = ()

    @model_validator(mode="after")
    def _nothing_after_it_is_dropped(self) -> RecodeSpec:
        gone: set[str] = set()
        for number, step in enumerate(self.steps, start=1):
            if late := sorted(gone & set(step.names)):
                raise ValueError(f"step {number} names {late[0]!r}, which a step before it drops")
            gone |= set(step.names) if isinstance(step, Drop) else set()
        return self

    @property
    def recipe(self) -> Recipe:
        """The steps as a recipe."""
        return Recipe(tuple(self.steps))

    @property
    def names(self) -> Names:
        """Every attribute that a step names, each once."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.names))

    @property
    def dropped(self) -> Names:
        """The attributes that a release leaves out."""
        return tuple(name for step in self.steps if isinstance(step, Drop) for name in step.names)

    def as_dict(self) -> dict[str, Any]:
        """Plain values with the method's name."""
        return {"method": self.method, "steps": [step.as_dict() for step in self.steps]}


# What recoding promises of its result, checked value by value and without the code that recoded.


@dataclass(frozen=True)
class Recoded(Invariant):
    """Every value became what the steps say, and the same value became the same everywhere.

    ``before`` describes the attribute as each step found it; ranges have their breaks written down.
    """

    attribute: str
    steps: tuple[Step, ...]
    before: tuple[Attribute, ...]

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        if isinstance(self.steps[-1], Drop):
            return f"{self.attribute} tells nothing any more, of any record."
        return f"Values of {self.attribute} are true and coarser: each became one value, the same in all records."

    def problem(self, evidence: Evidence) -> str:
        """The number of values that became several, or something else."""
        pairs = _pairs(evidence, self.attribute)
        several = len(pairs) - len({old for old, _ in pairs})
        if several:
            return f"{several:,} values of {self.attribute} became more than one value"
        wrong = sum(new != self._expected(old) for old, new in pairs)
        return f"{wrong:,} values of {self.attribute} are not what the recoding says" if wrong else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the promise if the attribute is released."""
        return self if self.attribute in names else None

    def _expected(self, value: str | None) -> str | None:
        for step, attribute in zip(self.steps, self.before, strict=True):
            value = value if value is None else expected(value, step, attribute)
        return value


def _pairs(evidence: Evidence, name: str) -> list[tuple[str | None, str | None]]:
    """The pairs of values before and after that occur in a record."""
    sides = [_plain(data.table.column(name)) for data in (evidence.before, evidence.after)]
    table = pa.table({"before": sides[0], "after": sides[1]}).group_by(["before", "after"]).aggregate([])
    columns = [_texts(table.column(side).combine_chunks()) for side in ("before", "after")]
    return list(zip(*columns, strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _texts(values: pa.Array) -> list[str | None]:
    known = iter(level_texts(values.drop_null()))
    return [next(known) if valid else None for valid in values.is_valid().to_pylist()]


def expected(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per case)
    """What a step makes of one value, said as plainly as can be.

    >>> expected("4711", Truncate(attribute="NACE", characters=2, fill="*"), Attribute(name="NACE"))
    '47**'
    """
    if isinstance(step, Drop):
        return None
    if isinstance(step, Blank):
        return None if not step.values or value in step.values else value
    if isinstance(step, Recode) and value in step.target:
        return step.target[value]
    numeric = attribute.kind in (Kind.NUMERIC, Kind.WEIGHT)
    if value in attribute.missing:
        place = attribute.missing.index(value)
        return step.missing[place] if isinstance(step, GlobalRecode) and place < len(step.missing) else value
    if numeric and value == "nan":
        return None if isinstance(step, Ranges | GlobalRecode) else value
    found = _found(value, step, attribute)
    if found is not None:
        return found
    return None if getattr(step, "otherwise", "blank") == "blank" else value


def _found(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per step)
    match step:
        case GlobalRecode():
            return next((span.to for span in step.spans if span.holds(value)), None)
        case Ranges():
            number = float(value)
            passed = [b for b in step.breaks if (number >= b if step.closed == "left" else number > b)]
            return step.labels[len(passed)]
        case ByHierarchy():
            return _above(value, step, attribute)
        case Truncate():
            left = len(value) - step.characters
            return value[:left] + step.fill * step.characters if left > 0 else None
        case Round():
            return _rounded(float(value), step)
        case TopBottomCode():
            return _bounded(value, step, attribute)
    return None


def _above(value: str, step: ByHierarchy, attribute: Attribute) -> str | None:
    maps = step.tree.steps if step.tree is not None else attribute.hierarchy
    if all(value not in each and value not in each.values() for each in maps):
        return None
    for each in maps[: step.level]:
        value = each.get(value, value)
    return value


def _rounded(number: float, step: Round) -> str:
    parts = round(number / step.base, 9)
    if abs(parts) == inf:
        return repr(number).removesuffix(".0")
    nearest = ceil(parts - 0.5) if parts < 0 else floor(parts + 0.5)
    whole = {"nearest": nearest, "down": floor(parts), "up": ceil(parts)}[step.how]
    return repr(round(whole * step.base, 9) + 0.0).removesuffix(".0")


def _bounded(value: str, step: TopBottomCode, attribute: Attribute) -> str:
    levels = [text for text in attribute.levels if text not in attribute.missing]
    bounds = [bound for bound in (step.top, step.bottom) if bound is not None]
    by_level = attribute.kind is Kind.ORDINAL and all(text in levels for text in (*bounds, value))

    def place(text: str) -> float:
        return levels.index(text) if by_level else float(text)

    at = place(value)
    if step.top is not None and (at > place(step.top) or (step.top_label is not None and at == place(step.top))):
        return step.top if step.top_label is None else step.top_label
    if step.bottom is not None and (at < place(step.bottom) or (step.bottom_label and at == place(step.bottom))):
        return step.bottom if step.bottom_label is None else step.bottom_label
    return value


class RecodeMethod:
    """Make values coarser, step by step.

    A dropped attribute stays in the masked file as an empty column, since the file is compared with the original
    column by column; a release leaves it out.
    """

    name: ClassVar[str] = "recode"
    title: ClassVar[str] = "Recoding to coarser values"
    spec_type: ClassVar[type[RecodeSpec]] = RecodeSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Willenborg & de Waal 1996, Statistical Disclosure Control in Practice, Lecture Notes in Statistics 111",
        "Hundepool & Willenborg 1996, μ- and τ-ARGUS: Software for Statistical Disclosure Control",
    )

    def plan(self, data: Microdata, spec: RecodeSpec, *, engine: Engine) -> ValuePlan:
        """How many records would change, tried on the values."""
        return _plan(data, spec, made(data, spec)[1])

    def apply(self, data: Microdata, spec: RecodeSpec, *, key: Key, engine: Engine, replicate: int = 0) -> Masked:
        """Recode. Key and replicate play no part but for the record that they were stated."""
        stages, after = made(data, spec)
        changes = {name: _change(data, after, name) for name in spec.names}
        facts = {"values": COARSENED, "recipe": _told(stages, after)}
        plan = _plan(data, spec, after)
        masked = masked_by(data, spec, plan, changes, key=key, replicate=replicate, facts=facts.items())
        return replace(masked, data=after)

    def invariants(self, data: Microdata, spec: RecodeSpec) -> tuple[Invariant, ...]:
        """Every value became what the steps say; the other columns are untouched."""
        touched = spec.names
        stages, _ = made(data, spec)
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in touched)),
            ReplaysFromAudit(),
        ]
        for name in touched:
            own = [stage for stage in stages if name in stage.step.names]
            described = tuple(_ordered(stage.data, name) for stage in own)
            promises.append(Recoded(name, tuple(stage.step for stage in own), described))
        return tuple(promises)


@dataclass(frozen=True, eq=False)
class Stage:
    """A step, ranges by their breaks, with the file that it finds."""

    step: Step
    data: Microdata


def made(data: Microdata, spec: RecodeSpec) -> tuple[list[Stage], Microdata]:
    """Every step with the file before it, and the file after all of them."""
    stages = []
    for number, step in enumerate(spec.steps, start=1):
        check_step(data.schema, step)
        parts = [Blank(attribute=name) for name in step.names] if isinstance(step, Drop) else [step]
        after = data
        for part in parts:
            after = recoded(after, part, number=number)
        stages.append(Stage(step if isinstance(step, Drop) else pinned(data, step), data))
        data = after
    return stages, data


def _told(stages: list[Stage], after: Microdata) -> list[dict[str, Any]]:
    """Each step in plain words, with the number of records in which it changed something."""
    told = []
    afters = [*(each.data for each in stages[1:]), after]
    for stage, following in zip(stages, afters, strict=False):  # without any step there is only the file
        changed = np.zeros(len(after), dtype=np.bool_)
        for name in stage.step.names:
            columns = (data.table.column(name) for data in (stage.data, following))
            changed |= different(*aligned_columns(*columns))
        told.append({"step": stage.step.sentence, "records changed": int(np.count_nonzero(changed))})
    return told


def _plan(data: Microdata, spec: RecodeSpec, after: Microdata) -> ValuePlan:
    changed = np.zeros(len(data), dtype=np.bool_)
    for name in spec.names:
        changed |= different(*aligned_columns(data.table.column(name), after.table.column(name)))
    number = int(np.count_nonzero(changed))
    steps = several(len(spec.steps), "step changes", "steps change")
    return ValuePlan(
        method=spec.method,
        records=len(data),
        asked=number,
        feasible=number,
        text=f"{steps} a value in {several(number, 'record')}",
    )


def _change(data: Microdata, after: Microdata, name: str) -> Change:
    before, column = data.table.column(name), after.table.column(name)
    flags = different(*aligned_columns(before, column))
    if not flags.any():
        return Change(column=before, replacement=None)
    rows = np.flatnonzero(flags) if before.type == column.type else np.arange(len(before), dtype=np.int64)
    # Another type: what was there is kept whole, since values of the new type need not fit the old one.
    values = before.take(pa.array(rows)) if before.type == column.type else before
    old = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], type=before.type)
    return Change(column=column, replacement=Replacement(attribute=name, rows=rows, before=old))


def _ordered(data: Microdata, name: str) -> Attribute:
    """The attribute; if its values have an order, with all of them in it, stated or not."""
    if data.schema[name].kind is not Kind.ORDINAL:
        return data.schema[name]
    values = values_of(data, name)
    return values.attribute.model_copy(update={"levels": values.texts})
