"""A threshold of risk: find the records above it, and blank or swap until none is left there.

:func:`thin_to` brings the PERCENTAGE BIAS of a targeted edit below its bound by exchanging less, and compares
prediction and outcome. Source: Moore 1996, section XIII and Appendix A, Theorems A.2 and A.3, Table 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Annotated, Any, Literal, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from safeswap.arrays import bias
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.utility.bias import BiasReport, Reading, percentage_bias
from safeswap.methods.edit_targeted.method import EditTargeted, EditTargetedSpec
from safeswap.model.checked import Default, check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.text import plural
from safeswap.workflow.masking import mask, read

_GROWTH = 1.3
_FIRST = 1e6
"""How many times as likely as others a record above the threshold is drawn: it comes first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Below:
    """A masking that leaves no record above a threshold of risk, and how many there were.

    ``masked.spec`` is the specification that was found: with the same key it gives the same records anywhere.
    """

    masked: Masked
    threshold: float
    above: int

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        how = "blanking values" if self.masked.spec.method == "suppress" else "swapping them first"
        return f"{plural(self.above, 'record')} had a risk above {self.threshold:g}; after {how}, none does."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        spec = self.masked.spec.as_dict()
        return {"threshold": self.threshold, "above": self.above, "spec": spec, "sentence": self.sentence}


@check_types
def mask_below(
    data: Any,
    keys: Sequence[str],
    *,
    threshold: float,
    by: Literal["suppress", "swap"] = "suppress",
    swap: Sequence[str] = (),
    fixed: Sequence[str] = (),
    weight: str | None = None,
    **secret: Any,
) -> Below:
    """Blank or swap as little as needed to bring every record below a risk threshold.

    The risk is that of :func:`~safeswap.measures.risk.individual_risk.record_risks`: one over the number of people who
    share the keys, or its estimate if a survey weight is given. With ``by="suppress"`` values of the keys are blanked,
    at the smallest tolerance that suffices. With ``by="swap"`` the keys in ``swap`` are exchanged, records above the
    threshold first, at the smallest rate that suffices: a search for a record above the threshold then finds
    someone else's, since at least one of its keys is not its own. ``secret`` is ``key`` or ``insecure_seed``.

    >>> import safeswap as ss
    >>> keys = ["Age", "Edu", "Race", "MS"]
    >>> found = mask_below(ss.datasets.cps8d(), keys, threshold=0.2, by="swap", swap=["Race"], insecure_seed=1)
    >>> found.above > 0, found.masked.audit.method
    (True, 'swap')
    """
    if not 0 < threshold <= 1:
        raise SpecError("a risk threshold must be above 0 and at most 1", code="bad-spec", hint="threshold=0.1")
    strange = [name for name in swap if name not in keys]
    if by == "swap" and (not swap or strange):
        raise SpecError(
            f"{strange[0]!r} is not a key: exchanging it protects no one" if strange else "name the keys to exchange",
            code="bad-spec",
            hint='swap=["Race"], some of the keys',
        )
    source = read(data)
    above, smallest = _find_above(source, keys, threshold, weight)
    tried = _suppressions(source, keys, threshold, weight) if by == "suppress" else _swaps(source, above, smallest)
    more = {} if by == "suppress" else {"keys": tuple(keys), "swap": tuple(swap), "fixed": tuple(fixed)}
    for make_spec in tried:
        masked = mask(source, make_spec(**more), **secret)
        if not _count_left(masked, keys, threshold, weight):
            return Below(masked=masked, threshold=threshold, above=above)
    raise InfeasibleError(
        "no tolerance brings every record below the threshold"
        if by == "suppress"
        else "no feasible rate reaches every record above the threshold",
        code="risk-stays",
        hint="recode the keys first, or allow a higher risk",
        threshold=threshold,
    )


def _find_above(data: Microdata, keys: Sequence[str], threshold: float, weight: str | None) -> tuple[int, int]:
    """Return how many records are above the threshold, and the size from which on every cell is below it."""
    from safeswap.measures.risk.individual_risk import record_risks

    risks = record_risks(data, keys, weight=weight)
    over = risks.risks > threshold
    return risks.count_above(threshold), int(risks.cells.like[over].max(initial=0)) + 1


def _suppressions(
    data: Microdata, keys: Sequence[str], threshold: float, weight: str | None
) -> Iterator[Callable[..., dict[str, Any]]]:
    # Without weights the risk of a cell of F records is 1/F; with them it is smaller.
    tolerance = 2 if weight is not None else max(2, ceil(1 / threshold - 1e-12))
    while tolerance <= max(2, len(data)):
        stated = {"method": "suppress", "combinations": [list(keys)], "tolerance": tolerance}
        yield lambda stated=stated: stated
        tolerance = ceil(tolerance * _GROWTH)


def _swaps(data: Microdata, above: int, smallest: int) -> Iterator[Callable[..., dict[str, Any]]]:
    """Yield swaps of growing numbers of pairs, from as few as could reach everyone above the threshold."""
    most = len(data) // 2
    pairs = min(most, ceil(above / 2))
    while True:

        def make_spec(keys: Any, swap: Any, fixed: Any, pairs: int = pairs) -> dict[str, Any]:
            targeting = {"keys": keys, "n": max(2, smallest), "weight": _FIRST}
            spec = {"method": "swap", "swap": swap, "fixed": fixed, "pairs": pairs, "on_shortfall": "take"}
            return {**spec, "targeting": targeting}

        yield make_spec
        if pairs in (0, most):
            return
        pairs = min(most, max(pairs + 1, ceil(pairs * _GROWTH)))


def _count_left(masked: Masked, keys: Sequence[str], threshold: float, weight: str | None) -> int:
    """Return how many released records are above the threshold and have their own keys."""
    from safeswap.measures.risk.individual_risk import record_risks
    from safeswap.model.columns import aligned_columns, flag_changes

    risks = record_risks(masked.data, keys, weight=weight)
    over = risks.risks[risks.cells.of_record] > threshold
    if masked.spec.method == "suppress":
        return int(np.count_nonzero(over))
    own = np.ones(len(masked.data), dtype=np.bool_)
    for name in keys:
        before, after = (each.table.column(name) for each in (masked.original, masked.data))
        own &= ~flag_changes(*aligned_columns(before, after))
    return int(np.count_nonzero(over & own))


_MOST_TRIALS = 12
_MARGIN = 0.98  # each further trial aims a little below the bound, so that few are needed
_CLOSE = 1.25  # a share this close to one that is too large is as good as the largest


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One edit: classes treated, records that took part, and PERCENTAGE BIAS per item, predicted and observed."""

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
    """The specification within the bounds, and every trial that led to it."""

    spec: EditTargetedSpec
    bounds: Mapping[str, float]
    trials: tuple[Trial, ...]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    @property
    def chosen(self) -> Trial:
        """The trial with the chosen specification."""
        return next(trial for trial in self.trials if trial.spec == self.spec)

    def table(self) -> pa.Table:
        """Return predicted and observed values side by side, as in Table 8: a row for the records and one per item."""
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


class BiasOptions(TypedDict, total=False):
    """Options for PERCENTAGE BIAS: the items, how it is read, and ``f`` of Theorem A.1."""

    variables: Annotated[tuple[str, ...], Default(())]
    reading: Annotated[Reading, Default("pointwise")]
    f: Annotated[float, Default(0.01)]


@check_types
def thin_to(
    data: Microdata,
    spec: EditTargetedSpec,
    bound: float | Mapping[str, float] | None = None,
    *,
    key: Key,
    how: Literal["fraction", "tolerance"] = "fraction",
    replicate: int = 0,
    **options: Unpack[BiasOptions],
) -> Thinning:
    """Lower the tolerance, or keep a keyed random fraction of the failing classes, until the bound holds.

    ``bound`` is the largest allowed PERCENTAGE BIAS, one for all items or one for each; by default that of Theorem A.1
    with ``f``. Of the trials within the bound, the one that treats most classes is chosen. The masked files of the
    trials are discarded: mask with the resulting specification, and the same key and replicate.
    """
    edits = _Edits(
        data=data,
        key=key,
        variables=options["variables"],
        reading=options["reading"],
        replicate=replicate,
    )
    first, report = edits.run("as asked", spec)
    bounds = _bounds(bound, report, options["f"])
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
    """State that the trials share."""

    data: Microdata
    key: Key
    variables: tuple[str, ...]
    reading: Reading
    replicate: int

    def run(self, name: str, spec: EditTargetedSpec) -> tuple[Trial, BiasReport]:
        """Run an edit, which is its own expectation."""
        masked = EditTargeted().apply(self.data, spec, key=self.key, replicate=self.replicate)
        keys = tuple(dict.fromkeys((*spec.keys, *(n for e in masked.audit.exchanges for n in e.attributes))))
        keys = tuple(name for name in keys if self.data.schema[name].kind.is_categorical)
        report = percentage_bias(masked, variables=self.variables, keys=keys, readings=(self.reading,))
        facts = masked.audit.facts
        value = report.pointwise if self.reading == "pointwise" else report.average
        observed = {variable: value(variable) for variable in report.variables}
        trial = Trial(
            name=name,
            spec=spec,
            kept=facts["kept"],
            expected_records=facts["took_part"],
            records=facts["took_part"],
            above=facts["from_above_tolerance"],
            expected=observed,
            observed=observed,
        )
        return trial, report

    def retry(self, name: str, spec: EditTargetedSpec, first: Trial, expected_records: float) -> Trial:
        """Run an edit that exchanges less; BIAS is expected to follow the square root of the records."""
        shrunk = sqrt(expected_records / first.records)
        expected = {variable: shrunk * value for variable, value in first.observed.items()}
        return replace(self.run(name, spec)[0], expected_records=expected_records, expected=expected)

    def count_below(self, spec: EditTargetedSpec) -> int:
        """Count the classes below the tolerance of a specification."""
        return EditTargeted().plan(self.data, spec).below


def _by_fraction(edits: _Edits, first: Trial, bounds: Mapping[str, float]) -> list[Trial]:
    """Try Theorem A.2, then A.3; if neither suffices, ever less, then back up as far as the bound allows."""
    p = 1 / _excess(first, bounds)
    whole = first.spec.keep_fraction

    def try_share(name: str, share: float, expected: float) -> Trial:
        return edits.retry(name, first.spec.replace(keep_fraction=whole * share), first, expected)

    corrected = bias.compute_corrected_fraction(p, changed=first.records, above=first.above)
    trials = [try_share("A.2", bias.compute_first_fraction(p), p * p * first.records)]
    trials.append(try_share("A.3", corrected, p * p * first.records))
    if min(_excess(trial, bounds) for trial in trials) <= 1:
        return trials
    least, most = 0.0, corrected  # shares known to be within and above the bound
    while len(trials) < _MOST_TRIALS and (least == 0 or most > _CLOSE * least) and trials[-1].kept:
        share = sqrt(least * most) if least else most * _MARGIN * min(0.5, 1 / _excess(trials[-1], bounds) ** 2)
        expected = bias.estimate_records(share, changed=first.records, above=first.above)
        trials.append(try_share(f"further {len(trials) - 1}", share, expected))
        least, most = (share, most) if _excess(trials[-1], bounds) <= 1 else (least, share)
    return trials


def _by_tolerance(edits: _Edits, first: Trial, bounds: Mapping[str, float]) -> list[Trial]:
    """Try the highest tolerance at which few enough classes fail by Theorem A.3, then ever lower ones."""
    p = 1 / _excess(first, bounds)
    wanted = bias.compute_corrected_fraction(p, changed=first.records, above=first.above)
    trials: list[Trial] = []
    all_failing = max(1, edits.count_below(first.spec))
    for tolerance in range(first.spec.tolerance - 1, 1, -1):
        spec = first.spec.replace(tolerance=tolerance)
        share = edits.count_below(spec) / all_failing
        if share > wanted and tolerance > 2:
            continue
        expected = bias.estimate_records(share, changed=first.records, above=first.above)
        trials.append(edits.retry(f"Q = {tolerance}", spec, first, expected))
        if _excess(trials[-1], bounds) <= 1:
            break
    return trials


def _bounds(bound: float | Mapping[str, float] | None, report: BiasReport, f: float) -> Mapping[str, float]:
    """Return the bound of every item that has one."""
    if bound is None:
        return {
            verdict.variable: verdict.bounds.upper
            for verdict in report.verdicts(f=f, reading=report.figures[0].reading)
        }
    found = dict(bound) if isinstance(bound, Mapping) else dict.fromkeys(report.variables, bound)
    unknown = sorted(set(found) - set(report.variables))
    if unknown or not found or min(found.values()) <= 0:
        raise SpecError(
            f"{unknown[0]!r} has a bound but is not examined" if unknown else "a bound must be above zero",
            code="bad-spec",
            hint="state bounds above zero, for continuous items that are examined",
        )
    return found


def _excess(trial: Trial, bounds: Mapping[str, float]) -> float:
    """Return the largest ratio of an item's bias to its bound; at most 1 if all bounds hold."""
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
