"""Check a study and enumerate its candidates before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from safeswap import registry
from safeswap.arrays.names import Names
from safeswap.errors import EngineError, InfeasibleError, InputError, SafeswapError, SpecError
from safeswap.measures.base import Measure, ParametricMeasure
from safeswap.measures.households import score_by_unit
from safeswap.measures.utility.indicators import LineMeasure
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison
from safeswap.model.spec import SwapSpec
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.studies.choice import as_objective
from safeswap.studies.evaluate import Group, under

MOST_CANDIDATES = 2_000_000
"""A larger grid is refused, with its size and a search suggested instead."""

_GIVEN = frozenset({"touched"})
"""What a study can give a measure besides the two files."""


@dataclass(frozen=True, eq=False)
class Checked:
    """The measures of a valid study, and their values on the untouched original as far as they apply to it."""

    measures: dict[str, Measure]
    before: dict[str, float | None]


def check(data: Microdata, study: StudySpec, original: Microdata | None = None) -> Checked:
    """Refuse a study that cannot run; score the untouched original.

    ``data`` is the file after the steps that come first, ``original`` the one before them, if there are any.

    >>> from safeswap import datasets
    >>> round(check(datasets.cps8d(), StudySpec()).before["n_rule"], 5)
    0.01501
    """
    measures = check_question(data, study)
    before: dict[str, float | None] = {text: _score_before(data, study, measure) for text, measure in measures.items()}
    return Checked(measures, before if original is None else {**before, **_score_original(original, study, before)})


def check_question(data: Microdata, study: StudySpec) -> dict[str, Measure]:
    """Refuse a study that cannot run, as far as that shows without scoring; return its measures by text."""
    if not len(data):
        raise InputError("the file has no record", code="no-records", hint="give a file with records")
    as_objective(study.objective)
    _check_attributes(data, study)
    measures = make_measures(data, study)
    _check_axes(study, measures)
    _check_others(data, study)
    if not study.number_of_candidates(swap_attributes(data, study)):
        raise SpecError(
            "the study has no candidate",
            code="empty-study",
            hint="name at least one attribute that may be swapped",
        )
    return measures


def make_measures(data: Microdata, study: StudySpec) -> dict[str, Measure]:
    """Return the measures by text; those of risk with what the scenario states."""
    measures = {text: _for_all_candidates(registry.measure(text)) for text in study.measures}
    if study.scenario is None:
        return measures
    resolved = study.scenario.resolve(data.schema, data.schema)
    return {text: _pose_one(text, measure, resolved, data) for text, measure in measures.items()}


def _for_all_candidates(measure: Measure) -> Measure:
    """Return the measure that all candidates are scored by; what it leaves out is measured on the frontier."""
    return measure.for_study() if isinstance(measure, LineMeasure) else measure


def _pose_one(text: str, measure: Measure, resolved: Resolved, data: Microdata) -> Measure:
    if measure.axis is not Axis.RISK or not isinstance(measure, ParametricMeasure):
        return measure
    posed = measure.pose(resolved, data)
    if len(posed) != 1:
        raise SpecError(
            f"{text!r} has a figure for each of {len(posed)} sensitive attributes, and a candidate has one",
            code="several-sensitive",
            hint=f"name one: {measure.name}:sensitive={resolved.sensitive[0]}",
        )
    return posed[0][1]


def grid(data: Microdata, study: StudySpec) -> tuple[Group, ...]:
    """Enumerate the candidates of a study that passed :func:`check`, in groups that differ only in the rate.

    >>> from safeswap import datasets
    >>> len(grid(datasets.cps8d(), StudySpec()))
    36
    """
    names = swap_attributes(data, study)
    total = study.number_of_candidates(names)
    if total > MOST_CANDIDATES:
        raise SpecError(
            f"the study has {total:,} candidates, more than {MOST_CANDIDATES:,}",
            code="study-too-large",
            hint="swap fewer attributes together, name fewer attributes, or search: budget=N, or --search BUDGET",
            candidates=total,
        )
    groups = [swap_group(study, chosen, constraint, study.rates) for chosen, constraint in study.groups(names)]
    groups += [other_group(values, label) for values, label in study.stated()]
    return tuple(groups)


def count_candidates(data: Microdata, study: StudySpec) -> int:
    """Count the candidates of a study before it runs. An invalid study is refused; nothing is scored.

    >>> from safeswap import datasets
    >>> count_candidates(datasets.cps8d(), StudySpec(replicates=10))
    1080
    """
    check_question(data, study)
    return study.number_of_candidates(swap_attributes(data, study))


def swap_attributes(data: Microdata, study: StudySpec) -> Names:
    """Return the attributes that may be swapped: those given, or all categorical ones."""
    return study.attributes or data.schema.categorical


def swap_group(study: StudySpec, names: Names, constraint: ConstraintSet, rates: tuple[float, ...]) -> Group:
    """Return the same swap at several rates."""
    specs = tuple(study.swap_spec(names, constraint, rate) for rate in rates)
    return Group(specs=specs, labels=names, constraint=constraint)


def other_group(values: dict[str, object], label: str = "") -> Group:
    """Return the group of one fully specified candidate; ``label`` tells it from others of its method."""
    spec = registry.make_spec(values)
    return Group(specs=(spec,), labels=spec.swap if isinstance(spec, SwapSpec) else (), varied=label)


def _check_attributes(data: Microdata, study: StudySpec) -> None:
    names = swap_attributes(data, study)
    constrained = [name for c in study.constraints for name in (*c.fixed, *c.differ)]
    for name in (*names, *constrained, *study.keys):
        if data.schema[name].kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the record identifier and can have no role in a study",
                code="identifier-role",
                hint="leave it out; it stays with its record",
                attribute=name,
            )
    for constraint in study.constraints:
        if names and not set(names) - {*constraint.fixed, *constraint.differ}:
            raise SpecError(
                f"no attribute is left to swap under the constraints: {constraint.label}",
                code="empty-study",
                hint="name an attribute that is neither held fixed nor made to differ",
            )
    if not (study.keys or data.schema.categorical):
        raise SpecError(
            "the file has no categorical attribute to form cells from",
            code="no-categorical-attribute",
            hint="describe some attributes as nominal or ordinal, or name the attributes: keys",
        )


def _check_axes(study: StudySpec, measures: dict[str, Measure]) -> None:
    stated = [*((text, "risk") for text in study.risk), *((text, "distortion") for text in study.distortion)]
    for text, axis in stated:
        measure = measures[text]
        if measure.axis.value != axis:
            raise SpecError(
                f"{text!r} measures {measure.axis.value}, not {axis}",
                code="wrong-axis",
                hint=f"state it under {measure.axis.value}",
            )
        if missing := sorted(measure.needs - _GIVEN):
            raise SpecError(
                f"{text!r} needs {' and '.join(missing)} of the audit record, which candidates of a study do not keep",
                code="needs-audit",
                hint="choose another measure for the study, and assess the chosen release by this one",
            )


def _check_others(data: Microdata, study: StudySpec) -> None:
    for values, _ in study.stated():
        spec = registry.make_spec(values)
        try:
            registry.method(spec.method).plan(data, spec)
        except InfeasibleError:
            continue  # it will be a rejected candidate, with its reason


def _score_original(original: Microdata, study: StudySpec, scored: Iterable[str]) -> dict[str, float | None]:
    """Score the risk of the file before all steps, with its own levels; None where a measure does not apply to it.

    Its distortion is that of the file after the first steps, in whose categories distances are measured: none.
    """
    found: dict[str, float | None] = {}
    for text in (text for text in scored if registry.measure(text).axis is Axis.RISK):
        try:
            found[text] = _score_before(original, study, make_measures(original, study)[text])
        except SafeswapError:
            found[text] = None
    return found


def _score_before(data: Microdata, study: StudySpec, measure: Measure) -> float:
    """Score the untouched file, so that a measure that cannot be computed fails before anything runs."""
    keys = study.keys or data.schema.categorical
    untouched = np.zeros(len(data), dtype=np.bool_)
    seen = Comparison(before=data, after=data, attributes=keys, touched=untouched)
    try:
        return score_by_unit(measure, under(seen, study.scenario, measure)).value
    except SafeswapError:
        raise
    except Exception as error:  # noqa: BLE001  (a plug-in may fail in any way; its words could quote a record)
        raise EngineError(
            f"the measure {measure.text!r} cannot be computed on this file ({type(error).__name__})",
            code="measure-failed",
            hint="choose another measure, or report it to the author of this one",
        ) from None
