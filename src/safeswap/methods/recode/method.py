"""The recoding method: replace values by coarser ones. Nothing is drawn, and released values are true.

Sources: Willenborg & de Waal 1996 and 2001; the software ARGUS (Hundepool & Willenborg 1996).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from safeswap.arrays.names import Names
from safeswap.methods.exchange import Columns
from safeswap.methods.recode.apply import check_step, pin, values_of
from safeswap.methods.recode.recipe import Recipe, apply_recode
from safeswap.methods.recode.steps import (
    AnyStep,
    Blank,
    ByHierarchy,
    DateBand,
    Drop,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
)
from safeswap.methods.value_change import Draws, FileFacts, ValueChangingMethod, ValuePlan, make_masked
from safeswap.model.audit import COARSENED, Replacement
from safeswap.model.columns import aligned_columns, decode_dictionary, flag_changes, flag_new_values
from safeswap.model.effect import Coarsened, Dropped, Effect
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import AttributePromise, Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, unify_dictionaries
from safeswap.model.numeric_column import Change
from safeswap.model.schema import Attribute, Kind, Schema, level_texts
from safeswap.model.spec import MaskSpec
from safeswap.model.text import plural


def _as_steps(value: Any) -> Any:
    if isinstance(value, Recipe):
        return value.steps
    return (value,) if isinstance(value, Mapping | Step) else value


class RecodeSpec(MaskSpec):
    """Reduce detail: recode by maps, ranges and hierarchies, truncate, round, blank and drop, step by step.

    >>> spec = RecodeSpec(steps=[{"step": "drop", "attributes": ["Name"]}])
    >>> spec.recipe.sentences, spec.dropped
    (('drop Name',), ('Name',))
    """

    method: ClassVar[str] = "recode"

    steps: Annotated[
        tuple[AnyStep, ...],
        BeforeValidator(_as_steps),
        Field(description="the steps, applied in order; see the steps of a recipe"),
    ] = ()

    @model_validator(mode="after")
    def _check_dropped(self) -> RecodeSpec:
        gone: set[str] = set()
        for number, step in enumerate(self.steps, start=1):
            if late := sorted(gone & set(step.names)):
                raise ValueError(f"step {number} names {late[0]!r}, which an earlier step drops")
            gone |= set(step.names) if isinstance(step, Drop) else set()
        return self

    @property
    def recipe(self) -> Recipe:
        """The steps as a :class:`Recipe`."""
        return Recipe(tuple(self.steps))

    @property
    def names(self) -> Names:
        """Attributes named by the steps, each once."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.names))

    @property
    def dropped(self) -> Names:
        """Attributes that a release omits."""
        return tuple(name for step in self.steps if isinstance(step, Drop) for name in step.names)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values with the method's name."""
        return {"method": self.method, "steps": [step.as_dict() for step in self.steps]}


@dataclass(frozen=True)
class Recoded(AttributePromise):
    """Every value became what the steps say, and equal values became equal in all records.

    Verified by code independent of the recoding. ``before`` describes the attribute before each step; ranges have
    their breaks fixed.
    """

    steps: tuple[Step, ...]
    before: tuple[Attribute, ...]

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        if isinstance(self.steps[-1], Drop):
            return f"{self.attribute} no longer says anything about any record."
        return f"Values of {self.attribute} are true and coarser: each became one value, the same in all records."

    def problem(self, evidence: Evidence) -> str:
        """Report values that became more than one value, or a wrong one."""
        pairs = _pairs(evidence, self.attribute)
        split = len(pairs) - len({old for old, _ in pairs})
        if split:
            return f"{plural(split, 'value')} of {self.attribute} became more than one value"
        wrong = sum(new != self._expect(old) for old, new in pairs)
        found = plural(wrong, f"value of {self.attribute} is", f"values of {self.attribute} are")
        return f"{found} not what the recoding says" if wrong else ""

    def _expect(self, value: str | None) -> str | None:
        for step, attribute in zip(self.steps, self.before, strict=True):
            value = value if value is None else expected_value(value, step, attribute)
        return value


def _pairs(evidence: Evidence, name: str) -> list[tuple[str | None, str | None]]:
    """Return the pairs of values before and after that occur in a record."""
    sides = [decode_dictionary(data.table.column(name)) for data in (evidence.before, evidence.after)]
    table = (
        pa.table({"before": sides[0], "after": sides[1]}).group_by(["before", "after"], use_threads=False).aggregate([])
    )
    columns = [_texts(table.column(side).combine_chunks()) for side in ("before", "after")]
    return list(zip(*columns, strict=True))


def _texts(values: pa.Array) -> list[str | None]:
    known = iter(level_texts(values.drop_null()))
    return [next(known) if valid else None for valid in values.is_valid().to_pylist()]


def expected_value(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per case)
    """Return what a step makes of one value, computed as simply as possible.

    >>> expected_value("4711", Truncate(attribute="NACE", characters=2, fill="*"), Attribute(name="NACE"))
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
    found = _expected_known(value, step, attribute)
    if found is not None:
        return found
    return None if getattr(step, "otherwise", "blank") == "blank" else value


def _expected_known(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per step)
    match step:
        case Recode():
            return step.others
        case GlobalRecode():
            return next((span.to for span in step.spans if span.holds(value)), None)
        case Ranges():
            number = float(value)
            passed = [b for b in step.breaks if (number >= b if step.closed == "left" else number > b)]
            return step.labels[len(passed)]
        case DateBand():
            return _expected_band(value, step)
        case ByHierarchy():
            return _expected_parent(value, step, attribute)
        case Truncate():
            left = len(value) - step.characters
            return value[:left] + step.fill * step.characters if left > 0 else None
        case Round():
            return _expected_multiple(float(value), step)
        case TopBottomCode():
            return _expected_bound(value, step, attribute)
    return None


def _expected_parent(value: str, step: ByHierarchy, attribute: Attribute) -> str | None:
    maps = step.tree.steps if step.tree is not None else attribute.hierarchy
    if all(value not in each and value not in each.values() for each in maps):
        return None
    for each in maps[: step.level]:
        value = each.get(value, value)
    return value


def _expected_band(value: str, step: DateBand) -> str | None:
    """Return the band of a date by the digits of its text, without arithmetic on dates."""
    year, month, day = value[:4], value[5:7], value[8:10]
    if step.by == "month":
        return f"{year}-{month}"
    if step.by == "quarter":
        return f"{year}-Q{'111222333444'[int(month) - 1]}"
    number = int(year)
    if step.at is not None:
        birthdays = int(step.at[:4]) - number
        number = birthdays if step.at[5:] >= f"{month}-{day}" else birthdays - 1
        if number < 0:
            return None
    if not step.breaks:
        return str(number) if step.at is not None else year
    return _expected_range(number, step)


def _expected_range(number: int, step: DateBand) -> str:
    passed = sum(number >= each for each in step.breaks)
    if step.labels:
        return step.labels[passed]
    low, high = (None, *step.breaks)[passed], (*step.breaks, None)[passed]
    if low is None or high is None:
        return f"<{high:.0f}" if low is None else f">={low:.0f}"
    return f"{low:.0f}" if high == low + 1 else f"{low:.0f}{'-' if low >= 0 else ' to '}{high - 1:.0f}"


def _expected_multiple(number: float, step: Round) -> str:
    parts = round(number / step.base, 9)
    if abs(parts) == inf:
        return repr(number).removesuffix(".0")
    nearest = ceil(parts - 0.5) if parts < 0 else floor(parts + 0.5)
    whole = {"nearest": nearest, "down": floor(parts), "up": ceil(parts)}[step.how]
    return repr(round(whole * step.base, 9) + 0.0).removesuffix(".0")


def _expected_bound(value: str, step: TopBottomCode, attribute: Attribute) -> str:
    levels = [text for text in attribute.levels if text not in attribute.missing]
    bounds = [bound for bound in (step.top, step.bottom) if bound is not None]
    by_level = attribute.kind is Kind.ORDINAL and all(text in levels for text in (*bounds, value))
    if attribute.kind is Kind.DATE:  # ISO dates are in the order of their texts
        day, time = value[:10], value[10:]
        return max(min(day, step.top or day), step.bottom or day) + time

    def place(text: str) -> float:
        return levels.index(text) if by_level else float(text)

    at = place(value)
    if step.top is not None and (at > place(step.top) or (step.top_label is not None and at == place(step.top))):
        return step.top if step.top_label is None else step.top_label
    if step.bottom is not None and (at < place(step.bottom) or (step.bottom_label and at == place(step.bottom))):
        return step.bottom if step.bottom_label is None else step.bottom_label
    return value


class RecodeMethod(ValueChangingMethod):
    """Make values coarser, step by step.

    A dropped attribute remains in the masked file as an empty column, since the file is compared with the original
    column by column; a release omits it.
    """

    name: ClassVar[str] = "recode"
    title: ClassVar[str] = "Recoding to coarser values"
    spec_type: ClassVar[type[RecodeSpec]] = RecodeSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Willenborg & de Waal 1996, Statistical Disclosure Control in Practice, Lecture Notes in Statistics 111",
        "Hundepool & Willenborg 1996, μ- and τ-ARGUS: Software for Statistical Disclosure Control",
    )
    copies: ClassVar[int] = 32  # each different value is checked as text

    def columns(self, schema: Schema, spec: RecodeSpec) -> Columns:
        """Return the attributes named by the steps."""
        return Columns(read=spec.names, changed=spec.names)

    def plan(self, data: Microdata, spec: RecodeSpec) -> ValuePlan:
        """Count the records that would change, by applying the steps."""
        return _plan(data, spec, run_steps(data, spec)[1])

    def facts(self, data: Microdata, spec: RecodeSpec) -> FileFacts:
        """Return what each value of the file becomes, and the attributes afterwards."""
        stages, after = run_steps(data, spec)
        maps = {name: ValueMap.of(data, after, name) for name in spec.names}
        noted = _note_steps(stages, after)
        return FileFacts(plan=_plan(data, spec, after), schema=after.schema, by_attribute=maps, noted=noted)

    def changes(self, batch: Microdata, facts: FileFacts, spec: RecodeSpec, draws: Draws) -> Mapping[str, Change]:
        """Look up what each value becomes. Nothing is drawn."""
        columns = {name: each.look_up(batch, name) for name, each in facts.by_attribute.items()}
        after = batch.with_columns(columns, {})
        return {name: _change(batch, after, name) for name in columns}

    def apply(self, data: Microdata, spec: RecodeSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Recode the data. Key and replicate have no effect and are only recorded in the audit."""
        stages, after = run_steps(data, spec)  # the new columns exist already: nothing needs to be looked up
        after = after.with_columns({name: _keep_index(data, after, name) for name in spec.names}, {})
        changes = {name: _change(data, after, name) for name in spec.names}
        facts, plan = _note_steps(stages, after), _plan(data, spec, after)
        masked = make_masked(data, spec, plan, changes, key=key, replicate=replicate, facts=facts.items())
        return replace(masked, data=after)

    def effects(self, schema: Schema, spec: RecodeSpec) -> tuple[Effect, ...]:
        """Return that attributes were coarsened, or dropped."""
        coarser = tuple(name for name in spec.names if name not in spec.dropped)
        told: list[Effect] = [Coarsened(coarser)] if coarser else []
        return (*told, *([Dropped(spec.dropped)] if spec.dropped else ()))

    def coarsen(self, data: Microdata, spec: RecodeSpec, *, seen: Microdata) -> Microdata:
        """Return other data as the rules make them: those that the steps take from the data, from ``seen``."""
        # A value that an earlier step has removed everywhere is in no released cell, whatever the rules say of it.
        steps = (stage.step for stage in run_steps(seen, spec)[0])
        lenient = tuple(
            step.model_copy(update={"otherwise": "blank"}) if getattr(step, "otherwise", "") == "error" else step
            for step in steps
        )
        return run_steps(data, RecodeSpec(steps=lenient))[1]

    def invariants(self, data: Microdata, spec: RecodeSpec) -> tuple[Invariant, ...]:
        """Promise that every value became what the steps say, and that the other columns are untouched."""
        touched = spec.names
        stages, _ = run_steps(data, spec)
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in touched)),
            ReplaysFromAudit(),
        ]
        for name in touched:
            own = [stage for stage in stages if name in stage.step.names]
            described = tuple(_list_levels(stage.data, name) for stage in own)
            promises.append(Recoded(name, tuple(stage.step for stage in own), described))
        return tuple(promises)


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueMap:
    """The new value of each distinct value of an attribute, and of a missing one."""

    before: pa.Array = field(repr=False)
    after: pa.Array = field(repr=False)

    @classmethod
    def of(cls, before: Microdata, after: Microdata, name: str) -> ValueMap:
        """Read the map off a recoded file: equal values have become equal, so one record of each tells it."""
        coded = before.coded(name)
        rows = np.full(len(coded.levels) + 1, -1, dtype=np.int64)
        rows[coded.codes] = np.arange(len(before))
        column = decode_dictionary(after.table.column(name))
        index = pa.array(rows, mask=rows < 0)  # a missing value stays so, if there is none
        return cls(before=coded.levels, after=pa.concat_arrays(column.take(index).chunks))

    def look_up(self, batch: Microdata, name: str) -> pa.ChunkedArray:
        """Return the new column of a batch."""
        coded = batch.coded(name)
        places = pc.index_in(coded.levels, value_set=self.before).to_numpy(zero_copy_only=False).astype(np.int64)
        found = np.append(places, len(self.before))[coded.codes]
        return pa.chunked_array([self.after.take(pa.array(found))])


@dataclass(frozen=True, eq=False)
class Stage:
    """A step, with the breaks of ranges fixed, and the file before it."""

    step: Step
    data: Microdata


def run_steps(data: Microdata, spec: RecodeSpec) -> tuple[list[Stage], Microdata]:
    """Run all steps; return each with the file before it, and the file after all of them."""
    stages = []
    for number, step in enumerate(spec.steps, start=1):
        check_step(data.schema, step)
        parts = [Blank(attribute=name) for name in step.names] if isinstance(step, Drop) else [step]
        after = data
        for part in parts:
            after = apply_recode(after, part, number=number)
        stages.append(Stage(step if isinstance(step, Drop) else pin(data, step), data))
        data = after
    return stages, data


def _note_steps(stages: list[Stage], after: Microdata) -> dict[str, Any]:
    """Describe each step in plain words, with the number of records it changed, for the audit."""
    told = []
    afters = [*(each.data for each in stages[1:]), after]
    for stage, following in zip(stages, afters, strict=False):  # without steps there is only the file
        changed = np.zeros(len(after), dtype=np.bool_)
        for name in stage.step.names:
            columns = (data.table.column(name) for data in (stage.data, following))
            changed |= flag_new_values(*columns)
        told.append({"step": stage.step.sentence, "records changed": int(np.count_nonzero(changed))})
    return {"values": COARSENED, "recipe": told}


def _plan(data: Microdata, spec: RecodeSpec, after: Microdata) -> ValuePlan:
    changed = np.zeros(len(data), dtype=np.bool_)
    for name in spec.names:
        changed |= flag_new_values(data.table.column(name), after.table.column(name))
    number = int(np.count_nonzero(changed))
    steps = plural(len(spec.steps), "step changes", "steps change")
    text = f"{steps} a value in {plural(number, 'record')}"
    return ValuePlan.of(spec, len(data), number, text)


def _keep_index(data: Microdata, after: Microdata, name: str) -> pa.ChunkedArray:
    """Return a recoded column with the type it had, where that is another index into the same kind of values."""
    before, column = data.table.column(name).type, after.table.column(name)
    both = pa.types.is_dictionary(before) and pa.types.is_dictionary(column.type)
    if not both or before == column.type or before.value_type != column.type.value_type:
        return column
    column = unify_dictionaries(column)
    most = max((len(chunk.dictionary) for chunk in column.chunks), default=0)
    if most > np.iinfo(before.index_type.to_pandas_dtype()).max:
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices.cast(before.index_type), chunk.dictionary)
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, type=pa.dictionary(before.index_type, before.value_type))


def _change(data: Microdata, after: Microdata, name: str) -> Change:
    before, column = data.table.column(name), after.table.column(name)
    flags = flag_changes(*aligned_columns(before, column))
    if not flags.any():
        return Change(column=before, replacement=None)
    rows = np.flatnonzero(flags) if before.type == column.type else np.arange(len(before), dtype=np.int64)
    # Another type: keep the whole old column, since values of the new type need not fit the old one.
    values = before.take(pa.array(rows)) if before.type == column.type else before
    old = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], type=before.type)
    return Change(column=column, replacement=Replacement(attribute=name, rows=rows, before=old))


def _list_levels(data: Microdata, name: str) -> Attribute:
    """Return the attribute; if its values have an order, with all of them listed, stated or not."""
    if data.schema[name].kind is not Kind.ORDINAL:
        return data.schema[name]
    values = values_of(data, name)
    return values.attribute.model_copy(update={"levels": values.texts})
