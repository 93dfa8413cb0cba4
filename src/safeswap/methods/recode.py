"""Recoding: values are replaced by coarser ones. Nothing is drawn, and what is released is true.

Sources: Willenborg & de Waal 1996 and 2001; the software ARGUS (Hundepool & Willenborg 1996).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.engines.base import Engine
from safeswap.methods.value_change import ValuePlan, masked_by
from safeswap.model.audit import COARSENED, Replacement
from safeswap.model.equality import aligned_columns, different
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.recipe import recoded
from safeswap.model.recode_invariant import Recoded
from safeswap.model.recode_spec import RecodeSpec
from safeswap.model.recode_steps import Blank, Drop, Step
from safeswap.model.recoding import check_step, pinned, values_of
from safeswap.model.schema import Attribute, Kind
from safeswap.model.several import several


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
