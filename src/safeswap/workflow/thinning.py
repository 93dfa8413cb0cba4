"""Bring PERCENTAGE BIAS of a targeted edit under its bound by exchanging less: prediction and outcome side by side.

Source: Moore 1996, section XIII and Appendix A, Theorems A.2 and A.3, Table 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import pyarrow as pa

from safeswap.arrays import bias
from safeswap.engines.base import Engine
from safeswap.engines.memory import MemoryEngine
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.utility.bias import BiasReport, Reading, percentage_bias
from safeswap.methods.edit_targeted.method import EditTargeted, EditTargetedSpec
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata

_MOST_TRIALS = 12
_MARGIN = 0.98  # each further trial aims a little below the bound, so that few are needed
_CLOSE = 1.25  # a share this close to one that is too large is as good as the largest


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One edit: what it keeps, how many records took part, PERCENTAGE BIAS per item; predicted and observed."""

    name: str
    spec: EditTargetedSpec
    kept: int
    expected_records: float
    records: int
    above: int
    expected: Mapping[str, float]
    observed: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """The specification that stays within the bounds, and every trial on the way to it."""

    spec: EditTargetedSpec
    bounds: Mapping[str, float]
    trials: tuple[Trial, ...]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    @property
    def chosen(self) -> Trial:
        """The trial whose specification was taken."""
        return next(trial for trial in self.trials if trial.spec == self.spec)

    def table(self) -> pa.Table:
        """Predicted and observed side by side, as in Table 8: a line for the records and one for each item."""
        columns: dict[str, list[float | str | None]] = {"figure": ["records", *self.bounds]}
        columns["bound"] = [None, *self.bounds.values()]
        for trial in self.trials:
            if trial is not self.trials[0]:
                columns[f"expected, {trial.name}"] = [
                    trial.expected_records,
                    *(trial.expected[variable] for variable in self.bounds),
                ]
            columns[f"observed, {trial.name}"] = [
                float(trial.records),
                *(trial.observed[variable] for variable in self.bounds),
            ]
        return pa.table(columns)


def thin_to(
    data: Microdata,
    spec: EditTargetedSpec,
    bound: float | Mapping[str, float] | None = None,
    *,
    key: Key,
    variables: tuple[str, ...] = (),
    how: Literal["fraction", "tolerance"] = "fraction",
    reading: Reading = "pointwise",
    f: float = 0.01,
    engine: Engine | None = None,
    replicate: int = 0,
) -> Thinning:
    """Lower the tolerance, or keep a keyed random fraction of the failing classes, until the bound holds.

    ``bound`` is the largest PERCENTAGE BIAS, one for all items or one for each; by default that of Theorem A.1 with
    ``f``. Of the trials within the bound the one that treats most classes is taken. The masked files of the trials are
    measured and forgotten: mask with the specification that comes out, and the same key and replicate.
    """
    edits = _Edits(
        data=data,
        key=key,
        variables=variables,
        reading=reading,
        engine=engine or MemoryEngine(),
        replicate=replicate,
    )
    first, report = edits.original(spec)
    bounds = _bounds(bound, report, f)
    trials = [first]
    if _excess(first, bounds) > 1:
        trials += (_by_fraction if how == "fraction" else _by_tolerance)(edits, first, bounds)
    good = [trial for trial in trials if _excess(trial, bounds) <= 1 and trial.kept]
    if not good and first.kept:
        raise _too_low(how, trials)
    best = max(good, key=lambda trial: trial.kept, default=first)
    return Thinning(spec=best.spec, bounds=bounds, trials=tuple(trials))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Edits:
    """Everything that the trials share."""

    data: Microdata
    key: Key
    variables: tuple[str, ...]
    reading: Reading
    engine: Engine
    replicate: int

    def original(self, spec: EditTargetedSpec) -> tuple[Trial, BiasReport]:
        """The edit as asked for, which is its own expectation."""
        facts, report = self._edited(spec)
        observed = {name: self._value(report, name) for name in report.variables}
        trial = Trial(
            name="as asked",
            spec=spec,
            kept=facts["kept"],
            expected_records=facts["took_part"],
            records=facts["took_part"],
            above=facts["from_above_tolerance"],
            expected=observed,
            observed=observed,
        )
        return trial, report

    def again(self, name: str, spec: EditTargetedSpec, first: Trial, expected_records: float) -> Trial:
        """A trial that exchanges less; BIAS is expected to follow the square root of the records."""
        facts, report = self._edited(spec)
        shrunk = sqrt(expected_records / first.records)
        return Trial(
            name=name,
            spec=spec,
            kept=facts["kept"],
            expected_records=expected_records,
            records=facts["took_part"],
            above=facts["from_above_tolerance"],
            expected={variable: shrunk * value for variable, value in first.observed.items()},
            observed={variable: self._value(report, variable) for variable in report.variables},
        )

    def below(self, spec: EditTargetedSpec) -> int:
        """How many classes are below the tolerance of a specification."""
        return EditTargeted().plan(self.data, spec, engine=self.engine).below

    def _edited(self, spec: EditTargetedSpec) -> tuple[Mapping[str, Any], BiasReport]:
        masked = EditTargeted().apply(self.data, spec, key=self.key, engine=self.engine, replicate=self.replicate)
        keys = tuple(dict.fromkeys((*spec.keys, *(n for e in masked.audit.exchanges for n in e.attributes))))
        keys = tuple(name for name in keys if self.data.schema[name].kind.is_categorical)
        report = percentage_bias(masked, variables=self.variables, keys=keys, readings=(self.reading,))
        return masked.audit.facts, report

    def _value(self, report: BiasReport, variable: str) -> float:
        return report.pointwise(variable) if self.reading == "pointwise" else report.average(variable)


def _by_fraction(edits: _Edits, first: Trial, bounds: Mapping[str, float]) -> list[Trial]:
    """Theorem A.2, then A.3; if neither suffices ever less, and then back as far as the bound allows."""
    p = 1 / _excess(first, bounds)
    whole = first.spec.keep_fraction

    def tried(name: str, share: float, expected: float) -> Trial:
        return edits.again(name, first.spec.replace(keep_fraction=whole * share), first, expected)

    corrected = bias.corrected_fraction(p, changed=first.records, above=first.above)
    trials = [tried("A.2", bias.first_fraction(p), p * p * first.records)]
    trials.append(tried("A.3", corrected, p * p * first.records))
    if min(_excess(trial, bounds) for trial in trials) <= 1:
        return trials
    least, most = 0.0, corrected  # shares known to be within the bound, and above it
    while len(trials) < _MOST_TRIALS and (least == 0 or most > _CLOSE * least) and trials[-1].kept:
        share = sqrt(least * most) if least else most * _MARGIN * min(0.5, 1 / _excess(trials[-1], bounds) ** 2)
        expected = bias.expected_records(share, changed=first.records, above=first.above)
        trials.append(tried(f"further {len(trials) - 1}", share, expected))
        least, most = (share, most) if _excess(trials[-1], bounds) <= 1 else (least, share)
    return trials


def _by_tolerance(edits: _Edits, first: Trial, bounds: Mapping[str, float]) -> list[Trial]:
    """The largest lower tolerance at which few enough classes fail by Theorem A.3, then ever lower ones."""
    p = 1 / _excess(first, bounds)
    wanted = bias.corrected_fraction(p, changed=first.records, above=first.above)
    trials: list[Trial] = []
    all_failing = max(1, edits.below(first.spec))
    for tolerance in range(first.spec.tolerance - 1, 1, -1):
        spec = first.spec.replace(tolerance=tolerance)
        share = edits.below(spec) / all_failing
        if share > wanted and tolerance > 2:
            continue
        expected = bias.expected_records(share, changed=first.records, above=first.above)
        trials.append(edits.again(f"Q = {tolerance}", spec, first, expected))
        if _excess(trials[-1], bounds) <= 1:
            break
    return trials


def _bounds(bound: float | Mapping[str, float] | None, report: BiasReport, f: float) -> Mapping[str, float]:
    """The bound of every item that has one."""
    if bound is None:
        return {
            verdict.variable: verdict.bounds.upper
            for verdict in report.verdicts(f=f, reading=report.figures[0].reading)
        }
    found = dict(bound) if isinstance(bound, Mapping) else dict.fromkeys(report.variables, bound)
    unknown = sorted(set(found) - set(report.variables))
    if unknown or not found or min(found.values()) <= 0:
        raise SpecError(
            f"{unknown[0]!r} has a bound and is not looked at" if unknown else "a bound is above zero",
            code="bad-spec",
            hint="state bounds above zero for continuous items that are looked at",
        )
    return found


def _excess(trial: Trial, bounds: Mapping[str, float]) -> float:
    """The largest ratio of an item's figure to its bound; at most 1 where all bounds hold."""
    return max(trial.observed[variable] / limit for variable, limit in bounds.items())


def _too_low(how: str, trials: list[Trial]) -> InfeasibleError:
    other = (
        'how="fraction" keeps a share of the failing classes' if how == "tolerance" else "another sort order may help"
    )
    return InfeasibleError(
        "percentage bias stays above its bound however little is exchanged",
        code="bound-too-low",
        hint=f"{other}; or state a higher bound",
        least={variable: min(t.observed[variable] for t in trials) for variable in trials[0].observed},
    )
