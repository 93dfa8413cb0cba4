"""Run a pipeline: each step masks what the one before it made, under its own key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from safeswap import registry
from safeswap.errors import InfeasibleError, SafeswapError, SpecError
from safeswap.methods.base import Method
from safeswap.methods.exchange import ExchangingMethod
from safeswap.methods.value_change import ValueChangingMethod
from safeswap.model.audit import COARSENED, StepAudit, undo
from safeswap.model.effect import Blanked, Coarsened, Dropped, Effect, Replaced
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import AddNoise, MaskSpec, Plan, recorded_plan
from safeswap.model.text import plural
from safeswap.pipelines.spec import Pipeline, Step, at_step


@dataclass(frozen=True, kw_only=True)
class PipelinePlan(Plan):
    """The plan of each step.

    Recodes are carried out for the plans of later steps; what other steps will draw is not known yet, so plans after
    them are made as if they changed nothing.
    """

    steps: tuple[tuple[str, Plan], ...] = ()
    in_memory: tuple[str, ...] = ()  # the steps that need the whole file in memory

    @property
    def least_tolerance(self) -> float:
        """That of the steps."""
        return min((plan.least_tolerance for _, plan in self.steps), default=super().least_tolerance)

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in the totals of its steps."""
        steps = tuple((name, plan.blur(add)) for name, plan in self.steps)
        asked, feasible = (max((getattr(plan, n) for _, plan in steps), default=0) for n in ("asked", "feasible"))
        return replace(self, steps=steps, asked=asked, feasible=feasible)

    @property
    def is_feasible(self) -> bool:
        """True if every step is."""
        return all(plan.is_feasible for _, plan in self.steps)

    @property
    def sentence(self) -> str:
        """The plan of each step, and what the steps need, in plain words."""
        told = [f"{number}. {name}: {plan.sentence}" for number, (name, plan) in enumerate(self.steps, start=1)]
        if self.in_memory and len(self.steps) > len(self.in_memory):
            told.append(f"needs the file in memory: {', '.join(self.in_memory)}")
        return "; ".join(told) or "no steps"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        steps = [{"name": name, "method": plan.method, **plan.as_dict()} for name, plan in self.steps]
        return {**super().as_dict(), "details": {"steps": steps, "in_memory": list(self.in_memory)}}


class PipelineMethod:
    """Apply the steps of a pipeline in order."""

    name: ClassVar[str] = "pipeline"
    title: ClassVar[str] = "Several steps, one after the other"
    spec_type: ClassVar[type[Pipeline]] = Pipeline
    sources: ClassVar[tuple[str, ...]] = ()
    takes_households: ClassVar[bool] = True  # each step does

    def plan(self, data: Microdata, spec: Pipeline) -> PipelinePlan:
        """Plan each step on the file as the recodes before it leave it."""
        plans, records, schema = [], len(data), data.schema
        for number, step, method in _number_steps(spec):
            check_step(data.schema, spec, number)
            try:
                plans.append((step.name, method.plan(data, step.spec)))
                if _only_coarsens(declared_effects(method, data.schema, step.spec)):
                    data = method.apply(data, step.spec, key=Key.insecure(seed=0)).data
            except SafeswapError as error:
                raise explain_misfit(error, schema, spec, number) from None
        return PipelinePlan(
            method=self.name,
            records=records,
            asked=max((plan.asked for _, plan in plans), default=0),
            feasible=max((plan.feasible for _, plan in plans), default=0),
            steps=tuple(plans),
            in_memory=steps_in_memory(spec),
        )

    def apply(self, data: Microdata, spec: Pipeline, *, key: Key, replicate: int = 0) -> Masked:
        """Mask the data by every step."""
        return run(data, spec, key=key, replicate=replicate)

    def effects(self, schema: Schema, spec: Pipeline) -> tuple[Effect, ...]:
        """Return the effects of all steps, in order, as far as they follow from the description before any of them."""
        found = [declared_effects(method, schema, step.spec) for _, step, method in _number_steps(spec)]
        # A plug-in that does not say what it changes may have changed everything.
        return tuple(effect for each in found for effect in ((Replaced(schema.names),) if each is None else each))

    def invariants(self, data: Microdata, spec: Pipeline) -> tuple[Invariant, ...]:
        """Promise what no step affects, and that everything can be undone; ``account_for`` states the rest."""
        affected = {name for effect in self.effects(data.schema, spec) for name in effect.columns}
        untouched = tuple(name for name in data.attributes if name not in affected)
        return (SameRows(), *((UntouchedColumns(untouched),) if untouched else ()), ReplaysFromAudit())


def run(data: Microdata, spec: Pipeline, *, key: Key, replicate: int = 0, known: Masked | None = None) -> Masked:
    """Mask the data by every step; stages of ``known`` that the pipelines share are taken from it.

    ``known`` is an earlier result for the same data, key and replicate.
    """
    stages = _shared_stages(data, spec, known, key=key, replicate=replicate)
    for number, step, method in list(_number_steps(spec))[len(stages) :]:
        before = stages[-1].data if stages else data
        check_step(before.schema, spec, number)
        try:
            stages.append(method.apply(before, step.spec, key=step.key(key), replicate=replicate))
        except SafeswapError as error:
            raise explain_misfit(error, data.schema, spec, number) from None
    return join(data, spec, stages, key=key, replicate=replicate)


def join(data: Microdata, spec: Pipeline, stages: list[Masked], *, key: Key, replicate: int) -> Masked:
    """Return the stages as one masking of the data by the pipeline."""
    audits = [
        StepAudit(name=name, audit=stage.audit, schema=None if _same_schema(stage) else stage.original.schema)
        for name, stage in zip(spec.names, stages, strict=True)
    ]
    plans = tuple(zip(spec.names, (stage.plan for stage in stages), strict=True))
    plan = PipelinePlan(method=spec.method, records=len(data), asked=0, feasible=0, steps=plans)
    facts = _facts(stages)
    reasons = [stage.audit.facts["not_for_release"] for stage in stages if "not_for_release" in stage.audit.facts]
    facts |= {"not_for_release": reasons[0]} if reasons else {}
    masked = Masked.by(
        spec,
        data,
        stages[-1].data if stages else data,
        plan,
        key=key,
        replicate=replicate,
        steps=tuple(audits),
        releasable=key.releasable and all(stage.audit.releasable for stage in stages),
        facts=facts,
    )
    return masked.with_parts(tuple(stages))


def _facts(stages: Sequence[Masked]) -> dict[str, Any]:
    coarsened = bool(stages) and all(stage.audit.facts.get("values") == COARSENED for stage in stages)
    return {"unit": "records", **({"values": COARSENED} if coarsened else {})}


def first_steps(masked: Masked, number: int) -> Masked:
    """Return the masking as it was after its first steps."""
    if number == len(masked.stages):
        return masked
    assert isinstance(masked.spec, Pipeline)  # noqa: S101  (only a pipeline has several stages)
    spec, stages = masked.spec[:number], masked.parts[:number]
    audit = replace(
        masked.audit,
        spec=spec.as_dict(),
        steps=masked.audit.steps[:number],
        facts={**masked.audit.facts, **_facts(stages)},
    )
    plan = replace(masked.plan, steps=masked.plan.steps[:number])  # type: ignore[attr-defined, call-arg]
    return replace(masked, data=stages[-1].data, spec=spec, plan=plan, audit=audit, parts=()).with_parts(stages)


def unfold(masked: Masked) -> Masked:
    """Return a recorded masking by a pipeline with its stages, found by undoing the steps, last one first."""
    assert isinstance(masked.spec, Pipeline)  # noqa: S101  (the caller has looked)
    after, found = masked.data, []
    for step, audited in zip(reversed(masked.spec.steps), reversed(masked.audit.steps), strict=True):
        before = undo(after, audited.audit)
        before = before if audited.schema is None else replace(before, schema=audited.schema)
        found.append(
            Masked(original=before, data=after, spec=step.spec, plan=recorded_plan(audited.audit), audit=audited.audit)
        )
        after = before
    return replace(masked, parts=tuple(reversed(found)))


def _same_schema(stage: Masked) -> bool:
    return stage.original.schema == stage.data.schema


def _shared_stages(data: Microdata, spec: Pipeline, known: Masked | None, *, key: Key, replicate: int) -> list[Masked]:
    """Return the stages of an earlier result that the pipelines have in common."""
    if known is None or not isinstance(known.spec, Pipeline) or known.original.table is not data.table:
        return []
    if (known.audit.key_id, known.audit.replicate) != (key.id, replicate) or known.original.schema != data.schema:
        return []
    return list(known.parts[: spec.common(known.spec)])


def _number_steps(spec: Pipeline) -> Iterator[tuple[int, Step, Method]]:
    for number, step in enumerate(spec.steps, start=1):
        yield number, step, registry.method(step.spec.method)


def effects_of(stage: Masked) -> tuple[Effect, ...]:
    """Return what a step did to columns; a plug-in that does not say has replaced whatever differs."""
    declared = declared_effects(registry.method(stage.spec.method), stage.original.schema, stage.spec)
    if declared is not None:
        return declared
    changed = stage.audit.changed_attributes
    return (Replaced(changed),) if changed else ()


def declared_effects(method: Method, schema: Schema, spec: MaskSpec) -> tuple[Effect, ...] | None:
    """Return the effects that a method declares; None for a plug-in that declares none."""
    return method.effects(schema, spec) if hasattr(method, "effects") else None


def _only_coarsens(effects: tuple[Effect, ...] | None) -> bool:
    return effects is not None and all(isinstance(effect, Coarsened | Dropped) for effect in effects)


def check_step(schema: Schema, spec: Pipeline, number: int) -> None:
    """Refuse a step that changes the identifier, or a column that an earlier step has dropped.

    Draws of later steps know a record by its identifier. Values that are to be blanked may be gone already.
    """
    step, earlier = spec.steps[number - 1], spec[: number - 1]
    method, own = registry.method(step.spec.method), schema.identifier
    effects = declared_effects(method, schema, step.spec) or ()
    if own is not None and any(effect.reaches((own.name,)) for effect in effects):
        error: SafeswapError = SpecError(
            f"a step cannot change the record identifier {own.name!r}",
            code="identifier-role",
            hint="a release gives new identifiers or none; omit it from the step",
            attribute=own.name,
        )
        raise at_step(error, number, step.name)
    changed = [name for each in effects if not isinstance(each, Blanked | Dropped) for name in each.columns]
    if gone := [name for name in changed if name in earlier.dropped]:
        error = InfeasibleError(f"{gone[0]!r} has no values left", code="dropped-attribute", attribute=gone[0])
        raise explain_misfit(error, schema, spec, number)


def explain_misfit(error: SafeswapError, schema: Schema, spec: Pipeline, number: int) -> SafeswapError:
    """Return the error of a step with its place, which earlier step changed the column it is about, and what to do.

    ``schema`` describes the file before all steps.
    """
    step = spec.steps[number - 1]
    if len(getattr(step.spec, "steps", ())) == 1:  # a recode that is one step: its place within that tells nothing
        error = type(error)(error.message.removeprefix("step 1: "), code=error.code, hint=error.hint, **error.fields)
    located: SafeswapError = at_step(error, number, step.name)
    column = error.fields.get("attribute", error.fields.get("column"))
    found = [
        (place, other.name, _VERBS.get(type(effect), "changed"))
        for place, other, method in _number_steps(spec[: number - 1])
        for effect in declared_effects(method, schema, other.spec) or ()
        if effect.reaches((column,))
    ]
    if not found:
        return located
    place, name, verb = found[-1]
    return type(error)(
        f"{located.message}; step {place} ({name}) has {verb} {column!r}",
        code=error.code,
        hint=f"put step {number} before step {place}, or leave {column!r} out of one of them",
        **{**located.fields, "changed_by": name},
    )


_VERBS: dict[type[Effect], str] = {Dropped: "dropped", Coarsened: "recoded", Blanked: "blanked values of"}


def steps_in_memory(spec: Pipeline) -> tuple[str, ...]:
    """Return the steps that need the whole file in memory, whatever the engine."""
    from safeswap.engines.base import Need

    def is_global(spec: MaskSpec) -> bool:
        method = registry.method(spec.method)
        if not isinstance(method, ExchangingMethod | ValueChangingMethod):
            return True
        return Need.WHOLE_FILE in method.needs

    return tuple(step.name for step in spec.steps if is_global(step.spec))


def describe(masked: Masked) -> str:
    """Say how many steps a pipeline had, and how many records they touched."""
    return f"{plural(len(masked.stages), 'step')}, {plural(masked.audit.made, 'record')} changed"
