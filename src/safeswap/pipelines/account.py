"""The account of a masking relative to the original: column by column, and as promises that were checked.

Reports say nothing else. What is claimed follows from the effects that the methods declare, and is counted again on
the original and the result; what merely happens to be equal is not claimed, since it would tell of a lucky draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from safeswap import registry
from safeswap.arrays.names import Names
from safeswap.errors import InternalError, SpecError
from safeswap.methods.numeric.spec import ExpectedMargin
from safeswap.methods.recode.recipe import Recipe
from safeswap.methods.recode.steps import Step as RecodeStep
from safeswap.methods.suppress.promises import OnlyBlanks
from safeswap.methods.value_change import is_other_kind
from safeswap.model.audit import Audit
from safeswap.model.checked import check_types
from safeswap.model.columns import aligned_columns, decode_dictionary, flag_changes
from safeswap.model.effect import (
    Blanked,
    Coarsened,
    Dropped,
    Effect,
    Permuted,
    Quality,
    Redrawn,
    Replaced,
    surviving_margins,
)
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import (
    AttributesPromise,
    Finding,
    Invariant,
    KeptMargin,
    UntouchedColumns,
    verify,
)
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, PastStep
from safeswap.model.schema import Kind, attribute_hint
from safeswap.model.text import join_names, list_names, plural
from safeswap.pipelines.method import effects_of

_NUMBERS_OF_UNITS = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
"""Kinds that get new numbers in a release, so that no count by them is claimed."""

_PUBLIC_WORDS: dict[type[Effect], str] = {
    Permuted: "values were exchanged between records",
    Redrawn: "some values were redrawn",
    Replaced: "values were replaced",
}
"""The words for users of the data on steps whose result depends on a draw."""

_GROUPED, _REMOVED = "values were grouped", "some values were removed"
_TRUE_VALUES = {_GROUPED: "each is true", _REMOVED: "those that stand are true"}
"""The claim about values while nothing was left to chance."""

_PAST_WORDS: dict[type[Effect], str] = {**_PUBLIC_WORDS, Coarsened: _GROUPED, Blanked: _REMOVED}

Status = Literal["unchanged", "recoded", "blanked", "perturbed", "dropped"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one column, all steps together. Numbers of values are confidential; names and words are not."""

    column: str
    recoded: tuple[str, ...] = ()  # the recodes, in plain words
    levels: tuple[int, int] | None = None  # distinct values of the original, before and after the recodes
    exchanged_by: Names = ()
    redrawn_by: Names = ()
    replaced_by: Names = ()
    blanked_by: Names = ()
    blanked: int = 0
    dropped: bool = False
    declared: tuple[str, ...] = ()  # what the steps do to it by chance, in public words, whether it came about or not

    @property
    def perturbed_by(self) -> Names:
        """The steps after which values may be untrue."""
        return tuple(dict.fromkeys((*self.exchanged_by, *self.redrawn_by, *self.replaced_by)))

    @property
    def status(self) -> Status:
        """The strongest of what happened, in one word."""
        if self.dropped:
            return "dropped"
        if self.perturbed_by:
            return "perturbed"
        if self.blanked_by:
            return "blanked"
        return "recoded" if self.recoded else "unchanged"

    @property
    def details(self) -> str:
        """The change with its steps and the number of blanked values: for use inside the building."""
        parts = [*self.recoded, *(f"by {name}" for name in self.perturbed_by)]
        parts += [f"{plural(self.blanked, 'value')} blanked by {list_names(self.blanked_by)}"] if self.blanked else []
        if self.levels is not None:
            parts.append(f"{self.levels[0]:,} to {plural(self.levels[1], 'value')}")
        return "; ".join(parts)

    @property
    def sentence(self) -> str:
        """All that a user of the data must know of the column; no number of values.

        What was left to chance is told as the steps declare it: that nothing came of it would tell of the draw.
        """
        return self.sentence_after(())

    @check_types
    def sentence_after(self, earlier: Sequence[PastStep], *, all_named: bool = True) -> str:
        """Return the sentence of a file that went through other steps before, which are named first.

        Without ``all_named``, some earlier step changed a column that has another name now, or is gone: then no column
        is called as collected.

        >>> swapped = PastStep(method="swap", attributes=("Race",))
        >>> Change(column="Race", recoded=("grouped",)).sentence_after([swapped])
        'Race: values were exchanged between records; values were grouped.'
        """
        if self.dropped:
            return f"{self.column}: not released."
        past = [_PAST_WORDS[_effect_of(step.method)] for step in earlier if self.column in step.attributes]
        own = [*([_GROUPED] if self.recoded else []), *self.declared, *([_REMOVED] if self.blanked_by else [])]
        told = list(dict.fromkeys((*past, *own)))
        if set(told) <= _TRUE_VALUES.keys():
            told = [f"{words}; {_TRUE_VALUES[words]}" for words in told]
        untouched = "as collected, in every record" if all_named else "not changed by any step known under this name"
        return f"{self.column}: {'; '.join(told) or untouched}."

    @check_types
    def state_after(self, earlier: Sequence[PastStep]) -> Status:
        """Return in a word what a user of the data must know, all steps together: what was left to chance as declared.

        >>> Change(column="Race").state_after([PastStep(method="swap", attributes=("Race",))])
        'perturbed'
        """
        past = {_effect_of(step.method) for step in earlier if self.column in step.attributes}
        if self.dropped:
            return "dropped"
        if self.declared or past & _PUBLIC_WORDS.keys():
            return "perturbed"
        if self.blanked_by or Blanked in past:
            return "blanked"
        return "recoded" if self.recoded or past else "unchanged"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for use inside the building."""
        return {
            "column": self.column,
            "status": self.status,
            "recoded": list(self.recoded),
            "levels": None if self.levels is None else list(self.levels),
            "perturbed_by": list(self.perturbed_by),
            "blanked_by": list(self.blanked_by),
            "blanked": self.blanked,
            "dropped": self.dropped,
        }


class Changes(tuple[Change, ...]):
    """The changes of all columns, in file order; they print as a table."""

    __slots__ = ()

    def __getitem__(self, which: Any) -> Any:
        """Return the change of a column by its name or place."""
        if isinstance(which, str):
            found = next((change for change in self if change.column == which), None)
            if found is None:
                raise SpecError(
                    f"there is no attribute {which!r}",
                    code="unknown-attribute",
                    hint=attribute_hint(which, tuple(change.column for change in self)),
                    attribute=which,
                )
            return found
        return super().__getitem__(which)

    def __repr__(self) -> str:
        width = max((len(change.column) for change in self), default=0)
        lines = []
        for change in self:
            told = f": {change.details}" if change.details else ""
            lines.append(f"{change.column:<{width}}  {change.status}{told}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ComposedMargin(AttributesPromise):
    """Counts by attributes that several steps affect, compared with the original in the released categories."""

    quality: Quality = Quality.EXACT
    grouped: Names = ()

    @property
    def sentence(self) -> str:
        """The promise."""
        by = join_names(self.attributes)
        together = " together" if len(self.attributes) > 1 else ""
        groups = ", in the groups that are released," if set(self.grouped) & set(self.attributes) else ""
        if self.quality is Quality.EXPECTED:
            return f"The counts by {by}{together}{groups} are right on average, not exactly."
        if self.quality is Quality.AT_MOST:
            return f"No combination of known values of {by}{groups} is counted more often than was collected."
        return f"The counts by {by}{together}{groups} are exactly those collected."

    def problem(self, evidence: Evidence) -> str:
        """Count the cells that break the promise; ``evidence`` has the original in the released categories."""
        if self.quality is Quality.EXPECTED:
            return ""  # the step that drew them checks its own counts
        if self.quality is Quality.EXACT:
            moved = evidence.count_moved_cells(self.attributes)
        else:
            moved = _count_grown_cells(evidence, self.attributes)
        by = list_names(self.attributes)
        return (
            f"{plural(moved, f'cell by {by} has', f'cells by {by} have')} another count than promised" if moved else ""
        )


def _count_grown_cells(evidence: Evidence, names: Names) -> int:
    """Count the cells of complete records that have more records than before."""
    counts = []
    for data in (evidence.before, evidence.after):
        columns = {
            f"c{i}": decode_dictionary(data.table.column(name)).cast(pa.string()) for i, name in enumerate(names)
        }
        table = pa.table(columns).drop_null()
        counts.append(table.group_by(list(columns), use_threads=False).aggregate([([], "count_all")]))
    keys = [name for name in counts[0].column_names if name != "count_all"]
    joined = counts[1].join(counts[0], keys, join_type="left outer", right_suffix="_before", use_threads=False)
    before = joined["count_all_before"].fill_null(0).to_numpy()
    return int((joined["count_all"].to_numpy() > before).sum())


@dataclass(frozen=True, eq=False)
class Account:
    """A masking accounted for: what changed, what is promised of the result, and every check that was made."""

    masked: Masked
    stated: tuple[tuple[Invariant, ...], ...] = ()  # the promises of each step, if not those of its method

    @cached_property
    def _effects(self) -> tuple[tuple[Effect, ...], ...]:
        return tuple(effects_of(stage) for stage in self.masked.stages)

    @cached_property
    def _names(self) -> Names:
        """The name of each step."""
        return tuple(step.name for step in self.masked.audit.steps) or (self.masked.spec.method,)

    def _named_effects(self) -> Iterator[tuple[str, Masked, Effect]]:
        for name, stage, effects in zip(self._names, self.masked.stages, self._effects, strict=True):
            yield from ((name, stage, effect) for effect in effects)

    @cached_property
    def changes(self) -> Changes:
        """The change of each column, as the steps declare it and the files show it."""
        original, data = self.masked.original, self.masked.data
        evidence = Evidence(original, data, Audit(records=len(original)))
        found = []
        for column in original.attributes:
            change = self._change_of(column)
            if change.status == "unchanged" and evidence.count_changed(column):
                raise InternalError(
                    f"{column!r} has changed although no step declares it",
                    code="undeclared-change",
                    hint="the method must name the column in its effects",
                    attribute=column,
                )
            found.append(change)
        return Changes(found)

    def _change_of(self, column: str) -> Change:
        parts: dict[str, list[str]] = {"exchanged_by": [], "redrawn_by": [], "replaced_by": [], "blanked_by": []}
        recoded: list[str] = []
        dropped, blanked = False, 0
        declared: list[str] = []
        for name, stage, effect in self._named_effects():
            if column in effect.columns:
                declared += [_PUBLIC_WORDS[type(effect)]] if type(effect) in _PUBLIC_WORDS else []
            if column not in effect.columns or not _differs(stage, column):
                dropped |= isinstance(effect, Dropped) and column in effect.columns
                continue
            match effect:
                case Coarsened():
                    recoded += _recode_sentences(stage, column)
                case Permuted():
                    parts["exchanged_by"].append(name)
                case Redrawn():
                    parts["redrawn_by"].append(name)
                case Replaced():
                    parts["replaced_by"].append(name)
                case Blanked():
                    parts["blanked_by"].append(name)
                    blanked += _count_blanked(stage, column)
                case Dropped():
                    dropped = True
        levels = None
        if recoded and not dropped:
            levels = (self.masked.original.count_distinct(column), self.reference.count_distinct(column))
        told = tuple(dict.fromkeys(declared))
        steps: dict[str, Any] = {"declared": told} | {
            part: tuple(dict.fromkeys(names)) for part, names in parts.items()
        }
        return Change(column=column, recoded=tuple(recoded), levels=levels, blanked=blanked, dropped=dropped, **steps)

    @cached_property
    def reference(self) -> Microdata:
        """The original in the categories of the result: recoded by the same rules, and nothing else done to it."""
        return self.coarsen(self.masked.original)

    def coarsen(self, data: Microdata) -> Microdata:
        """Return other records with the columns of the original, recoded by the rules that the original was."""
        for stage, effects in zip(self.masked.stages, self._effects, strict=True):
            if any(isinstance(effect, Coarsened | Dropped) for effect in effects):
                coarsen: Any = registry.method(stage.spec.method)
                data = coarsen.coarsen(data, stage.spec, seen=stage.original)
        return data

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every promise of every step, checked on its own input and output, and of the whole, on the original."""
        found: list[Finding] = []
        for name, stage, promises in zip(self._names, self.masked.stages, self._promises, strict=True):
            for finding in verify(promises, before=stage.original, after=stage.data, audit=stage.audit):
                found.append(finding if len(self._names) == 1 else _name_step(finding, name))
        if len(self._names) > 1:
            method = registry.method(self.masked.spec.method)
            own = method.invariants(self.masked.original, self.masked.spec)
            found += verify(own, before=self.masked.original, after=self.masked.data, audit=self.masked.audit)
            found += [promise.finding(self._compared) for promise in self._composed]
        return tuple(found)

    @cached_property
    def _promises(self) -> tuple[tuple[Invariant, ...], ...]:
        return self.stated or tuple(
            registry.method(stage.spec.method).invariants(stage.original, stage.spec) for stage in self.masked.stages
        )

    @cached_property
    def _compared(self) -> Evidence:
        return Evidence(self.reference, self.masked.data, Audit(records=len(self.masked.data)))

    @cached_property
    def statements(self) -> tuple[Invariant, ...]:
        """The claims about the result relative to the original; ``for_users_of`` restricts it to a release."""
        if len(self._names) == 1:
            own_step = (self._restrict_to_blanked(promise) for promise in self._promises[0])
            return tuple(promise for promise in own_step if promise is not None)
        untouched = self._columns_of(lambda steps: not steps)
        told: list[Invariant] = [UntouchedColumns(untouched)] if untouched else []
        for number, promises in enumerate(self._promises):
            own = self._columns_of(lambda steps, number=number: steps <= {number})
            for promise in promises:
                if not isinstance(promise, UntouchedColumns) and not promise.is_about_result:
                    restricted = promise.for_users_of(own)
                    left = None if restricted is None else self._restrict_to_blanked(restricted)
                    told += [left] if left is not None and not _is_trivial(left, untouched) else []
        told += [promise for _, promise, problem in self._about_result if not problem]
        return tuple({promise.sentence: promise for promise in (*told, *self._composed)}.values())

    def _restrict_to_blanked(self, promise: Invariant) -> Invariant | None:
        """Restrict what is said of blanks to columns that have some: others might have had, and are as they were."""
        if not isinstance(promise, OnlyBlanks):
            return promise
        return promise.for_users_of(tuple(change.column for change in self.changes if change.blanked))

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Promises of a step about its result that a later step has broken, each with what to do."""
        return tuple(
            f"step {number} ({self._names[number - 1]}) promised: {promise.sentence} After the later steps this no "
            f"longer holds: {problem}. Move the step to the end, or repeat it there."
            for number, promise, problem in self._about_result
            if problem
        )

    @cached_property
    def _about_result(self) -> tuple[tuple[int, Invariant, str], ...]:
        """The promises of steps that speak of a file alone: step, promise, and what breaks it in the last file."""
        if len(self._names) == 1:
            return ()
        last = Evidence(self.masked.data, self.masked.data, Audit(records=len(self.masked.data)))
        return tuple(
            (number, promise, promise.problem(last))
            for number, promises in enumerate(self._promises, start=1)
            for promise in promises
            if promise.is_about_result
        )

    @cached_property
    def _composed(self) -> tuple[ComposedMargin, ...]:
        """The margins that the steps together keep, of columns that some step perturbs."""
        if len(self._names) == 1:
            return ()
        effects = [effect for each in self._effects for effect in each]
        moved = {n for e in effects if isinstance(e, Permuted | Redrawn | Replaced) for n in e.columns}
        grouped = tuple(dict.fromkeys(n for e in effects if isinstance(e, Coarsened) for n in e.columns))
        names = [each.name for each in self.masked.original.schema.attributes if each.kind not in _NUMBERS_OF_UNITS]
        stated = self._stated_margins()
        found = []
        for margin in surviving_margins(names, effects):
            if margin.columns & moved and margin.columns not in stated:
                ordered = tuple(name for name in names if name in margin.columns)
                found.append(ComposedMargin(ordered, margin.quality, grouped))
        return tuple(found)

    def _stated_margins(self) -> set[frozenset[str]]:
        """Return the margins that single steps promise of columns no other step affects."""
        found = set()
        for number, promises in enumerate(self._promises):
            own = set(self._columns_of(lambda steps, number=number: steps <= {number}))
            margins = (p for p in promises if isinstance(p, KeptMargin | ExpectedMargin))
            found |= {frozenset(p.attributes) for p in margins if set(p.attributes) <= own}
        return found

    def _columns_of(self, wanted: Any) -> Names:
        """Return the columns for which the set of steps that affect them is as wanted."""
        return tuple(
            name
            for name in self.masked.original.attributes
            if wanted({n for n, effects in enumerate(self._effects) if any(e.reaches((name,)) for e in effects)})
        )


def _effect_of(method: str) -> type[Effect]:
    """Return what a method does to the columns that it changed, if its parameters are no longer known."""
    known: dict[str, type[Effect]] = {"recode": Coarsened, "suppress": Blanked, "pram": Redrawn}
    if method in known:
        return known[method]
    return Permuted if hasattr(registry.method(method), "draw") else Replaced


def _is_trivial(promise: Invariant, untouched: Sequence[str]) -> bool:
    """Return whether a promise only repeats that columns are untouched."""
    names = getattr(promise, "attributes", ())
    return bool(names) and set(names) <= set(untouched)


def _name_step(finding: Finding, name: str) -> Finding:
    return Finding(
        invariant=finding.invariant,
        sentence=f"{name}: {finding.sentence}",
        ok=finding.ok,
        problem=f"{name}: {finding.problem}" if finding.problem else "",
    )


def _differs(stage: Masked, column: str) -> bool:
    before, after = (data.table.column(column) for data in (stage.original, stage.data))
    return is_other_kind(before.type, after.type) or bool(flag_changes(*aligned_columns(before, after)).any())


def _count_blanked(stage: Masked, column: str) -> int:
    before, after = (data.table.column(column) for data in (stage.original, stage.data))
    return int(after.null_count - before.null_count)


def _recode_sentences(stage: Masked, column: str) -> list[str]:
    if not isinstance(recipe := getattr(stage.spec, "recipe", None), Recipe):
        return [stage.spec.method]
    told = zip(recipe, recipe.describe(stage.original.schema.labels), strict=True)
    return [sentence for step, sentence in told if isinstance(step, RecodeStep) and column in step.names]


def account_for(masked: Masked) -> Account:
    """Account for a masking by one method or a pipeline.

    >>> import safeswap as ss
    >>> swap = {"method": "swap", "swap": ["Race"], "fixed": ["Sex"], "rate": 0.02}
    >>> masked = ss.mask(ss.datasets.cps8d(), ss.Pipeline([swap, {**swap, "swap": ["MS"]}]), insecure_seed=1)
    >>> print(masked.changes["MS"].sentence)
    MS: values were exchanged between records.
    >>> for promise in masked.account.statements[1:]:
    ...     print(promise.sentence)
    The counts by Race are exactly as before.
    The counts by Race and Sex together are exactly as before.
    The counts by MS are exactly as before.
    The counts by MS and Sex together are exactly as before.
    """
    return Account(masked)
