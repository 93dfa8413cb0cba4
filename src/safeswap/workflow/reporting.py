"""Collect the facts of a masking and its release, from which every report is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

import numpy as np

from safeswap.errors import InfeasibleError, SpecError, UnsafeRelease
from safeswap.model.checked import Default, check_types, select_stated
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.model.score import Axis, Score
from safeswap.model.text import list_names
from safeswap.projects.settings import RISKY, Requirement
from safeswap.reports.facts import (
    AttackFacts,
    CheckFacts,
    ColumnFacts,
    DecisionFacts,
    EstimateFacts,
    Facts,
    Figure,
    MapFacts,
    ScenarioFacts,
    StepFacts,
    TriedFacts,
    WeightFacts,
    tell_raised,
)
from safeswap.workflow.assessing import assess, compare, default_measures
from safeswap.workflow.releasing import as_indicators, make_terms

if TYPE_CHECKING:
    from safeswap.releases.publish import Published
    from safeswap.studies.choice import Choice
    from safeswap.studies.study import Study

RISKY_TITLE = "unsafe combinations of keys"
_MOST_POINTS = 4_000
_ALSO = ("k_anonymity",)
"""Measures of risk beside the usual ones that anyone can compute from the release: members may see them."""


class PublicTerms(TypedDict, total=False):
    """The terms of the release, as the public report states them."""

    title: Annotated[str, Default("")]
    date: Annotated[str, Default("")]
    drop: Annotated[Sequence[str], Default(())]
    identifiers: Annotated[Literal["new", "none"], Default("new")]
    tolerance: Annotated[int, Default(3)]
    publish_errors: Annotated[str | PathLike[str], Default("")]


class ReportOptions(PublicTerms, total=False):
    """Facts for the report besides the masking itself: what was tried, found and decided."""

    study: Annotated[Study | None, Default(None)]
    choice: Annotated[Choice | None, Default(None)]
    attacks: Annotated[Iterable[Any], Default(())]
    decision: Annotated[Mapping[str, Any] | None, Default(None)]
    published: Annotated[Published | None, Default(None)]
    recipe: Annotated[Any, Default(None)]


@check_types
def report(
    masked: Masked,
    *,
    scenarios: Sequence[Scenario | Mapping[str, Any]] = (),
    measures: Sequence[str] | None = None,
    indicators: str | PathLike[str] = "",
    require: Mapping[str, Any] | None = None,
    **options: Unpack[ReportOptions],
) -> Facts:
    """Collect all facts of a masking, for its reports: analyst, chair, members, five-safes and public.

    Risk is measured under every scenario, before and after; ``require`` states limits by scenario, such as
    ``{"prosecutor": "risky <= 0"}``. ``study`` and its ``choice`` show what was tried, with the map. ``published`` is
    what :func:`release` returned: the reports then tell its checks, the attacks on it and the ledger's answer;
    ``attacks`` are those of :func:`attack`. ``decision`` has ``state``, ``asked_by``, ``decided_by``, ``decided_at``
    and ``reason``. ``drop``, ``identifiers``, ``tolerance`` and ``publish_errors`` are those of the release, for the
    public report. Where the file has a weight, the largest change of a weighted count is told. ``indicators`` names a
    TOML file of key indicators, or gives their text: what masking does to each estimate and its standard error is told.

    The facts are confidential. ``facts.page("members")`` renders a report, ``facts.write(folder)`` writes all of them.

    >>> from safeswap import datasets, swap
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> facts = report(
    ...     masked, scenarios=[{"name": "prosecutor", "keys": ["Age", "Sex", "Race"]}], measures=["hellinger"]
    ... )
    >>> [(each.scenario, each.title, each.before) for each in facts.figures]
    [('prosecutor', 'unsafe combinations of keys', 0.0), ('', 'Hellinger distance', 0.0)]
    >>> b"0.05" in facts.page("members")
    False
    """
    asked = [as_scenario(each) for each in scenarios]
    rules = list_requirements(require or {}, asked)
    published_errors = as_indicators(options["publish_errors"])
    figures, left_out = _measure(masked, asked, measures, as_indicators(indicators) or published_errors)
    terms = select_stated(options, PublicTerms)
    known = Known(
        scenarios=asked,
        figures=with_limits(masked, figures, rules, asked),
        left_out=left_out,
        study=options["study"],
        choice=options["choice"],
        attacks=[AttackFacts.of(each) for each in options["attacks"]],
        decision=options["decision"],
        published=options["published"],
        terms={**terms, "drop": tuple(options["drop"]), "publish_errors": published_errors},
        recipe=options["recipe"],
    )
    return collect(masked, known)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The facts about a masking; without ``verify`` its promises are not checked again."""

    scenarios: Sequence[Scenario] = ()
    figures: Sequence[Figure] = ()
    left_out: Sequence[str] = ()
    study: Study | None = None
    choice: Choice | None = None
    attacks: Sequence[AttackFacts] = ()
    decision: Mapping[str, Any] | None = None
    published: Published | None = None
    terms: Mapping[str, Any] | None = None
    recipe: Any = None
    verify: bool = True


def collect(masked: Masked, known: Known) -> Facts:
    """Collect the facts where figures are known already."""
    from safeswap.releases.publish import preview

    account, published = masked.account, known.published
    made = make_terms(masked, recipe=known.recipe, **(known.terms or {}))
    findings = published.findings if published else account.findings if known.verify else ()
    obstacles: tuple[str, ...] = ()
    try:
        public = preview(masked, account=account, terms=made)
    except (SpecError, UnsafeRelease) as error:
        public, obstacles = None, (error.message,)
    stated = {"state": "released" if published else "open", **(known.decision or {})}
    stated["obstacles"] = (*stated.get("obstacles", ()), *obstacles)
    changes = _columns(masked, released=[] if public is None else [each.name for each in public.columns])
    return Facts(
        version=version("safeswap"),
        title=made.title,
        date=made.date,
        name=masked.original.schema.name or "",
        records=len(masked.data),
        columns=len(masked.original.attributes),
        for_release=masked.audit.releasable,
        scenarios=tuple(_scenario(each, masked) for each in known.scenarios),
        figures=tuple(known.figures),
        weights=weight_facts(masked),
        left_out=tuple(known.left_out),
        steps=_steps(masked),
        earlier=made.earlier,
        changes=changes,
        statements=tuple(dict.fromkeys(promise.sentence for promise in account.statements)),
        checks=tuple(CheckFacts(sentence=each.sentence, ok=each.ok) for each in findings),
        flags=account.flags,
        raised=tell_raised(known.figures),
        attacks=tuple(known.attacks) or tuple(map(AttackFacts.of, published.attacks if published else ())),
        override=published.override if published else "",
        tried=None if known.study is None else tried_facts(known.study, known.choice, masked),
        touched=int(np.count_nonzero(masked.audit.perturbed())),
        removed=sum(each.blanked for each in changes),
        ledger=tuple(each.sentence for each in published.differencing) if published else (),
        released_before=bool(published and published.differencing),
        remarks=tuple(each.message for each in published.remarks) if published else (),
        decision=DecisionFacts(**stated),
        public=public,
    )


def _measure(
    masked: Masked, scenarios: Sequence[Scenario], measures: Sequence[str] | None, indicators: str
) -> tuple[list[Figure], list[str]]:
    """Measure risk under every scenario, and distortion and key indicators once."""
    from safeswap import registry

    names = default_measures(compare(masked)) if measures is None else tuple(measures)
    risk = [name for name in names if registry.measure(name).axis is Axis.RISK]
    others = [name for name in names if name not in risk]
    others += [indicators] if indicators and indicators not in others else []
    if measures is None:
        risk = [*_ALSO, *(name for name in risk if name not in _ALSO)]
    found: list[Figure] = []
    told: list[str] = []
    for scenario in scenarios:
        figure, note = count_unsafe(masked, scenario)
        found += [figure] if figure else []
        told += [f"{scenario.name}: {note}"] if note else []
        scores, left = _assess(masked, risk, scenario)
        found += figures_of(scores, masked.original)
        told += left
    scores, left = _assess(masked, others if scenarios else [*(n for n in risk if n not in _ALSO), *others], None)
    return [*found, *figures_of(scores, masked.original)], [*told, *left]


def _assess(masked: Masked, names: Sequence[str], scenario: Scenario | None) -> tuple[list[Score], list[str]]:
    """Score the measures that apply, and say why others do not."""
    scores: list[Score] = []
    told: list[str] = []
    for name in names:
        try:
            scores += assess(masked, measures=[name], scenario=scenario)
        except SpecError as error:
            if error.code == "unknown-attribute":
                raise
            told.append(f"Left out: {name} ({error.message}).")
    return scores, told


def figures_of(scores: Iterable[Score], original: Microdata) -> list[Figure]:
    """Return scores as facts, before and after."""
    return [_figure_of(score, original) for score in scores]


def _figure_of(score: Score, original: Microdata) -> Figure:
    """Return a score as a fact; the original has no distortion."""
    from safeswap import registry
    from safeswap.charts.theme import measure_title
    from safeswap.measures.base import tells_the_rate

    is_risk = score.axis is Axis.RISK
    return Figure(
        measure=score.measure,
        title=measure_title(score.measure),
        axis="risk" if is_risk else "utility",
        before=_risk_before(score, original) if is_risk else 0.0,
        after=score.value if np.isfinite(score.value) else None,
        scenario=score.scenario,
        sentence=score.sentence,
        tells_the_rate=tells_the_rate(registry.measure(score.measure)),
        **_estimates(score),
    )


def _risk_before(score: Score, original: Microdata) -> float | None:
    """Return the figure of the original, without a scenario over the same attributes; None if it has no such figure."""
    from safeswap import registry
    from safeswap.measures.base import score_original

    if score.before is not None or score.scenario:
        return score.before
    try:
        before = score_original(registry.measure(score.measure), original, score.attributes)
    except SpecError:  # e.g. a number that became a key by a recode
        return None
    return before if before is not None and np.isfinite(before) else None


def _estimates(score: Score) -> dict[str, Any]:
    """Return the estimates behind a figure of key indicators, and the multipliers of their standard errors."""
    if score.detail is None or "inflation" not in score.detail.column_names:
        return {}
    from safeswap.measures.utility.indicators import error_multipliers

    rows = score.detail.to_pylist()[:_MOST_POINTS]
    estimates = tuple(
        EstimateFacts(
            indicator=row["indicator"],
            statistic=row["statistic"],
            domain=", ".join(row["domain"] or ()),
            change=row["value"],
            flagged=bool(row["flagged"]),
            problem=row["problem"],
            **{name: row[name] for name in ("unweighted", "in_errors", "inflation")},
        )
        for row in rows
    )
    return {"estimates": estimates, "multipliers": tuple(error_multipliers(score).items())}


def weight_facts(masked: Masked) -> WeightFacts | None:
    """Return the largest change of a weighted count; None without a weight that can be used, or without categories."""
    from safeswap.measures.survey import find_usable
    from safeswap.measures.utility.weighted_tables import WeightedMargins

    comparison = compare(masked)
    weight, _ = find_usable(comparison)
    measure = WeightedMargins()
    if not weight or measure.find_obstacle(comparison):
        return None
    try:
        score = measure.score(comparison)
    except SpecError:  # too many domains, or a date that was not banded
        return None
    plain = [] if score.detail is None else score.detail["unweighted"].to_pylist()
    return WeightFacts(weight=weight, change=score.value, unweighted=max(plain, default=0.0), sentence=score.sentence)


def count_unsafe(masked: Masked, scenario: Scenario) -> tuple[Figure | None, str]:
    """Count the unsafe combinations before and after; or say why they cannot be counted."""
    from safeswap.measures.risk.risky import find_under

    original, data = masked.original, masked.data
    try:
        found = [find_under(file, resolve_files(scenario, original, file)) for file in (original, data)]
    except SpecError as error:
        if error.code == "unknown-attribute":
            raise
        return None, f"unsafe combinations were not counted: {error.message}."
    figure = Figure(
        measure=RISKY,
        title=RISKY_TITLE,
        axis="risk",
        before=found[0].unsafe,
        after=found[1].unsafe,
        scenario=scenario.name,
        tells_the_rate=False,
        is_count=True,
    )
    return figure, found[1].caution


def list_requirements(require: Mapping[str, Any], scenarios: Sequence[Scenario]) -> list[Requirement]:
    """Read limits by scenario, each a text or a list of texts."""
    known = {each.name for each in scenarios}
    found = []
    for name, texts in require.items():
        if name not in known:
            hint = f"state one of the scenarios: {', '.join(sorted(known)) or 'there are none'}"
            raise SpecError(f"a requirement names the scenario {name!r}", code="unknown-scenario", hint=hint)
        lines = [texts] if isinstance(texts, str) else list(texts)
        found += [Requirement.parse(name, line) for line in lines]
    return found


def with_limits(
    masked: Masked, figures: Sequence[Figure], requirements: Sequence[Requirement], scenarios: Sequence[Scenario]
) -> list[Figure]:
    """Return the figures with what is required of them; a requirement without a figure gets one."""
    by_name = {each.name: each for each in scenarios}
    found = list(figures)
    for rule in requirements:
        value = measure_requirement(masked, rule.measure, by_name[rule.scenario])
        limits = _limits(rule, value)
        place = next((i for i, f in enumerate(found) if _is_about(f, rule)), None)
        if place is None:
            scores, _ = _assess(masked, [rule.measure], by_name[rule.scenario])
            made = figures_of(scores, masked.original)
            found += [each.model_copy(update={**limits, "scenario": rule.scenario}) for each in made]
        else:
            found[place] = found[place].model_copy(update=limits)
    return found


def compare_with_limits(
    figures: Sequence[Figure], requirements: Sequence[Requirement]
) -> tuple[list[Figure], list[str]]:
    """Return figures measured earlier with the requirements that apply now, and in words which of them fail."""
    found, unmet = [each.model_copy(update={"limit": "", "ok": None}) for each in figures], []
    for rule in requirements:
        place = next((i for i, figure in enumerate(found) if _is_about(figure, rule)), None)
        value = None if place is None else found[place].after
        if place is None or value is None:
            unmet.append(f"Required: {rule.text}, which was not measured.")
            continue
        found[place] = found[place].model_copy(update=_limits(rule, abs(value)))
        if not found[place].ok:
            unmet.append(f"Required: {rule.text}; found {value:.6g}.")
    return found, unmet


def _limits(rule: Requirement, value: float) -> dict[str, Any]:
    return {"limit": f"{rule.sign.replace('<=', '≤')} {rule.limit:g}", "ok": rule.holds(value)}


def _is_about(figure: Figure, rule: Requirement) -> bool:
    return figure.measure == rule.measure and figure.scenario in (rule.scenario, "") and not figure.limit


def measure_requirement(masked: Masked, measure: str, scenario: Scenario) -> float:
    """Return the figure that a requirement speaks of."""
    if measure == RISKY:
        from safeswap.measures.risk.risky import find_under

        return float(find_under(masked.data, resolve_files(scenario, masked.original, masked.data)).unsafe)
    scores = assess(masked, measures=[measure], scenario=scenario)
    return max(abs(score.value) for score in scores)


def _scenario(scenario: Scenario, masked: Masked) -> ScenarioFacts:
    try:
        gone = resolve_files(scenario, masked.original, masked.data).gone
    except SpecError as error:
        if error.code == "unknown-attribute":
            raise
        gone = ()
    return ScenarioFacts(
        name=scenario.name,
        sentence=scenario.sentence,
        keys=scenario.names,
        sensitive=scenario.sensitive,
        gone=gone,
    )


def _steps(masked: Masked) -> tuple[StepFacts, ...]:
    from safeswap import registry

    names = [step.name for step in masked.audit.steps] or [masked.spec.method]
    found = []
    for name, stage in zip(names, masked.stages, strict=True):
        touched = int(np.count_nonzero(stage.audit.touched()))
        found.append(
            StepFacts(
                name=name,
                method=stage.spec.method,
                title=registry.method(stage.spec.method).title,
                plan=stage.plan.sentence,
                done=f"{stage.audit.made:,} {stage.audit.unit}",
                parameters=stage.spec.as_dict(),
                records=touched,
                share=touched / max(1, len(masked.data)),
            )
        )
    return tuple(found)


def _columns(masked: Masked, *, released: Sequence[str]) -> tuple[ColumnFacts, ...]:
    """Describe every column, with the number of values that differ from the original in the released categories."""
    reference, schema = masked.account.reference, masked.original.schema
    found = []
    for change in masked.account.changes:
        untrue = _count_untrue(reference, masked.data, change.column)
        found.append(
            ColumnFacts(
                column=change.column,
                label=schema[change.column].label,
                status=change.status,
                details=change.details,
                sentence=change.sentence_after(masked.original.past),
                untrue=untrue,
                share=untrue / max(1, len(masked.data)),
                blanked=change.blanked,
                released=not released or change.column in released,
            )
        )
    return tuple(found)


def _count_untrue(before: Any, after: Any, name: str) -> int:
    from safeswap.methods.value_change import is_other_kind
    from safeswap.model.columns import aligned_columns, flag_changes

    then, now = before.table.column(name), after.table.column(name)
    is_known = now.is_valid().to_numpy()
    if is_other_kind(then.type, now.type):  # no value can be compared: all of them are others
        return int(np.count_nonzero(is_known))
    return int(np.count_nonzero(flag_changes(*aligned_columns(then, now)) & is_known))


def tried_facts(study: Study, choice: Choice | None = None, masked: Masked | None = None) -> TriedFacts:
    """Return what a study tried, and which candidate is released.

    Without a ``choice`` that is the one that the masking is, if it is among them; without a masking, that of the
    study's own rule.
    """
    from safeswap.charts.map import study_sentence
    from safeswap.charts.points import points_of
    from safeswap.charts.theme import number_text
    from safeswap.reports.study import public_rule, tell_question

    told = ""
    if choice is None:
        try:
            choice = study.choose()
        except InfeasibleError:
            choice = None
        if masked is not None:
            choice, told = _find_released(study, choice, masked)
    points = points_of(study, choice=choice)
    shown = np.arange(len(points))
    if len(points) > _MOST_POINTS:  # a picture on paper needs no more; the frontier and the choice are always in it
        some = np.linspace(0, len(points) - 1, _MOST_POINTS).astype(np.int64)
        shown = np.union1d(np.union1d(some, points.frontier()), [] if points.chosen is None else [points.chosen])
        shown = shown.astype(np.int64)
    rates = np.full(len(points), np.nan) if points.rates is None else np.asarray(points.rates, dtype=np.float64)
    chosen = None if points.chosen is None else int(np.searchsorted(shown, points.chosen))
    drawn = MapFacts(
        labels=tuple(points.labels[i] for i in shown),
        constraints=tuple(points.constraints[i] for i in shown),
        rates=tuple(None if np.isnan(rates[i]) else float(rates[i]) for i in shown),
        risk=tuple(points.risk[shown].tolist()),
        distortion=tuple(points.distortion[shown].tolist()),
        risk_title=points.risk_title,
        distortion_title=points.distortion_title,
        chosen=chosen,
        original=points.original,
    )
    row = None if choice is None else study.table.slice(choice.candidate, 1).to_pylist()[0]
    rivals = [] if choice is None else choice.rivals.to_pylist()
    return TriedFacts(
        sentence=study_sentence(study),
        candidates=len(study),
        specifications=len(study.specs),
        frontier=len(points.frontier()),
        rejected=study.rejected().num_rows,
        details=(*tell_question(study)[1:], *((told,) if told else ())),
        chosen="" if choice is None else choice.sentence,
        swapped="" if row is None or choice is None else _tell_chosen(row, choice),
        objective="" if choice is None else choice.objective,
        rule="" if choice is None or not choice.objective else public_rule(choice.objective),
        certainty=None if choice is None else choice.certainty,
        rivals=tuple(
            (
                str(r["label"]),
                str(r["constraint"] or "–"),
                "–" if r["rate"] is None else f"{r['rate']:g}",
                number_text(r["risk_mean"]),
                number_text(r["distortion_mean"]),
            )
            for r in rivals
        ),
        **_spread(study, row),
        map=drawn,
    )


def _find_released(study: Study, ruled: Choice | None, masked: Masked) -> tuple[Choice | None, str]:
    """Return the candidate that a masking is as the choice, and what the study's rule would choose if that differs."""
    row = study.find(masked.spec, masked.audit.replicate)
    number = len(study.specs)
    if ruled is not None and row is not None and row % number == ruled.candidate % number:
        return ruled, ""
    other = "" if ruled is None else ruled.sentence.removeprefix("Chosen: ")
    told = f"By its rule the study would choose {other}" if other else ""
    if row is None or any(np.isnan(values[row]) for values in study.axes()):
        return None, f"The release is not one of these candidates. {told}".rstrip()
    return study.take(row), told


def _spread(study: Study, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the spread of the indicators over draws of the chosen specification, if the study has it."""
    found = study.facts.get("indicator_spread")
    if not found or row is None or row["specification"] != found["specification"]:
        return {}
    rows = [
        (each["indicator"], ", ".join(each["domain"] or ()), *(each[name] / each["error"] for name in _SPREAD))
        for each in found["rows"]
        if not each["problem"] and each["error"]
    ]
    rows.sort(key=lambda each: -each[-1])
    return {"draws": found["draws"], "spread": tuple(rows[:_MOST_SPREAD])}


_SPREAD = ("bias", "between", "total_error")
_MOST_SPREAD = 200


def _tell_chosen(row: Mapping[str, Any], choice: Choice) -> str:
    """Name the choice without its rate or any other parameter."""
    names = list_names(row["swap"] or getattr(choice.spec, "swap", ()))
    what = f"exchange of {names}" if names else f"method {choice.spec.method}"
    return f"{what} ({row['constraint']})" if row["constraint"] else what
