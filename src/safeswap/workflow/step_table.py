"""The effect of each step of a pipeline: risk under every scenario before and after it, values blanked, utility."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from safeswap.errors import SpecError
from safeswap.measures.risk.risky import Risky, find_under
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.model.text import list_names, plural, quote_name
from safeswap.pipelines.method import first_steps
from safeswap.pipelines.spec import Pipeline, Step
from safeswap.workflow.assessing import assess

UTILITY = ("information_loss", "hellinger")
"""The measures of utility: what recoding and blanking took, and what perturbation did to the tables that are left."""


Count: TypeAlias = "Callable[[Microdata, Microdata | None, Scenario], tuple[int | None, str]]"
"""Counts the unsafe combinations of a released file (None: the original), or says why it cannot."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The unsafe combinations under a scenario, before and after a step; a note instead of what cannot be counted."""

    scenario: str
    before: int | None
    after: int | None
    note: str = ""

    @property
    def sentence(self) -> str:
        """The figure in a few words.

        >>> Figure(scenario="prosecutor", before=1338, after=170).sentence
        'prosecutor: unsafe 1,338 → 170'
        """
        before, after = ("?" if count is None else f"{count:,}" for count in (self.before, self.after))
        return f"{self.scenario}: unsafe {before} → {after}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """The effect of one step.

    ``blanked`` has, by column, how many more values are missing after the step. The utility is that of the file after
    the step, compared with the original; None where a measure does not apply.
    """

    number: int
    name: str
    done: str
    figures: tuple[Figure, ...]
    blanked: Mapping[str, int] = field(default_factory=dict)
    information_loss: float | None = None
    hellinger: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StepTable:
    """The rows of a pipeline's steps, with the masking and the scenarios that they are about."""

    masked: Masked = field(repr=False)
    scenarios: tuple[Scenario, ...]
    rows: tuple[StepRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Totals only: safe to print inside the building."""
        return {"scenarios": [each.name for each in self.scenarios], "steps": [asdict(row) for row in self.rows]}


@check_types
def assess_steps(
    masked: Masked,
    *,
    scenarios: Sequence[Scenario | Mapping[str, Any]] = (),
    known: StepTable | None = None,
) -> StepTable:
    """Return what each step of a pipeline did, with the risk under each scenario and the utility after it.

    ``known`` is an earlier table for the same data and scenarios: rows of the steps that both maskings share, as
    ``mask(…, known=…)`` leaves them, are taken from it.

    >>> import safeswap as ss
    >>> keys = {"name": "prosecutor", "keys": ["Age", "Edu", "Race"], "tolerance": 20}
    >>> steps = [{"step": "drop", "attributes": ["Edu"]}, {"method": "swap", "swap": ["Race"], "rate": 0.05}]
    >>> masked = ss.mask(ss.datasets.cps8d(), ss.Pipeline(steps), insecure_seed=1)
    >>> [row.name for row in assess_steps(masked, scenarios=[keys]).rows]
    ['recode', 'swap']
    """
    return make_table(masked, tuple(as_scenario(each) for each in scenarios), known)


def make_table(
    masked: Masked, asked: tuple[Scenario, ...], known: StepTable | None, count: Count | None = None
) -> StepTable:
    """Return the table of :func:`assess_steps`; ``count`` may count the unsafe combinations in another way."""
    count, rows = count or count_unsafe, list(_shared_rows(masked, asked, known))
    for number in range(len(rows) + 1, len(masked.stages) + 1):
        earlier = rows[-1].figures if rows else None
        part = first_steps(masked, number)
        figures = []
        for position, scenario in enumerate(asked):
            before, then = (earlier[position].after, "") if earlier else count(masked.original, None, scenario)
            after, now = count(masked.original, part.data, scenario)
            figures.append(Figure(scenario=scenario.name, before=before, after=after, note=now or then))
        rows.append(describe_step(part, tuple(figures), measure_utility(part)))
    return StepTable(masked=masked, scenarios=asked, rows=tuple(rows))


def describe_step(masked: Masked, figures: tuple[Figure, ...], utility: Mapping[str, float | None]) -> StepRow:
    """Return the row of the last step of a masking, with the figures that were found for it."""
    stage, number = masked.stages[-1], len(masked.stages)
    step = (
        masked.spec[number - 1] if isinstance(masked.spec, Pipeline) else Step(name=stage.spec.method, spec=stage.spec)
    )
    return StepRow(
        number=number,
        name=step.name,
        done=tell_step(step, stage),
        figures=figures,
        blanked=count_blanked(stage),
        **utility,
    )


def _shared_rows(masked: Masked, scenarios: tuple[Scenario, ...], known: StepTable | None) -> tuple[StepRow, ...]:
    """Return the rows of an earlier table that are still true: those of the leading stages that both have."""
    if known is None or known.scenarios != scenarios or known.masked.original is not masked.original:
        return ()
    alike = 0
    for mine, theirs in zip(masked.stages, known.masked.stages, strict=False):
        if mine is not theirs:
            break
        alike += 1
    return known.rows[:alike]


def find_unsafe(original: Microdata, data: Microdata | None, scenario: Scenario) -> Risky | str:
    """Find the unsafe combinations of a released file; None is the original. If that is not possible, say why."""
    after = original if data is None else data
    try:
        return find_under(after, resolve_files(scenario, original, after))
    except SpecError as error:
        if error.code == "unknown-attribute":
            raise
        return f"not counted: {error.message}"


def count_unsafe(original: Microdata, data: Microdata | None, scenario: Scenario) -> tuple[int | None, str]:
    """Count the unsafe combinations; where that is not possible, say why."""
    found = find_unsafe(original, data, scenario)
    return (None, found) if isinstance(found, str) else (found.unsafe, "")


def measure_utility(masked: Masked) -> dict[str, float | None]:
    """Return the measures of utility that apply, by name."""
    return {name: _measure(masked, name) for name in UTILITY}


def _measure(masked: Masked, name: str) -> float | None:
    try:
        return assess(masked, measures=[name])[name].value
    except SpecError:
        return None


def count_blanked(stage: Masked) -> dict[str, int]:
    """Return, by column, how many more values are missing after a step than before; dropped columns are omitted."""
    before, after, dropped = stage.original, stage.data, getattr(stage.spec, "dropped", ())
    found = {
        name: after.table.column(name).null_count - before.table.column(name).null_count
        for name in after.attributes
        if name in before.schema and name not in dropped
    }
    return {name: count for name, count in found.items() if count > 0}


def tell_step(step: Step, stage: Masked) -> str:
    """Return what a step did, in words and totals."""
    audit = stage.audit
    if step.spec.method == "recode":
        return step.describe(stage.original.schema.labels).partition(": ")[2] or "nothing"
    if audit.exchanges:
        names = dict.fromkeys(name for each in audit.exchanges for name in each.attributes)
        unit = audit.unit.removesuffix("s")
        return f"{plural(sum(len(each.pairs) for each in audit.exchanges), unit)} exchange {list_names(names)}"
    done = "blanked" if step.spec.method == "suppress" else "replaced"
    counts = {each.attribute: len(each.rows) for each in audit.replacements if len(each.rows)}
    parts = ", ".join(f"{quote_name(name)} {count:,}" for name, count in counts.items())
    return f"{plural(sum(counts.values()), 'value')} {done}" + (f" ({parts})" if parts else "")
