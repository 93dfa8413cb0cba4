"""Score specifications: quickly from touched records, or in general by masking with any method.

Both give the same numbers. The quick way covers plain swaps and the measures it knows; everything else is masked in
memory, measured and discarded. No masked file is kept or shown: from several draws of one file, the most frequent
value per record would reveal the original.

Several draws of one specification show the error that masking adds to key indicators. One masked file shows one draw:
θ̃ − θ̂. Over many draws under the same key, the mean of θ̃ − θ̂ is the bias of the method, and their variance is what
masking adds at random. With v(θ̂) the variance of the sample,

    total error² = v(θ̂) + variance between draws + bias².

It is the second estimate beside v(θ̃) + (θ̃ − θ̂)² of the release itself. A study with replicates makes it for the
specification that its rule chooses.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import comb, prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap import registry
from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.arrays.two_way import MEASURES as TABLE_MEASURES
from safeswap.arrays.two_way import MOST_PLACES
from safeswap.errors import InternalError, SafeswapError, SpecError
from safeswap.measures.aligned import distortion_tables, refuse_blind
from safeswap.measures.base import Measure, score_by_unit
from safeswap.measures.survey import usable_weight
from safeswap.measures.utility.estimates import LineMeasure
from safeswap.measures.utility.indicators import Indicators
from safeswap.model.effect import Coarsened, Dropped
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, resolve_files
from safeswap.model.schema import household_attributes
from safeswap.model.score import Axis, Comparison
from safeswap.model.spec import MaskSpec, SwapSpec
from safeswap.model.study import ConstraintSet, Figures, StudySpec
from safeswap.pipelines.method import effects_of, run
from safeswap.pipelines.spec import Pipeline, Step, free_name
from safeswap.studies.quick import QuickWay, Replicate, SwapGroup
from safeswap.studies.study import Study


def replicate_errors(
    data: Microdata, spec: MaskSpec, indicators: Indicators, *, key: Key, replicates: int = 20
) -> pa.Table:
    """Mask the file several times; return bias and spread of every estimate, a row each. Confidential.

    A line that cannot be computed in some draw has one row, with the problem.

    >>> from safeswap import SwapSpec, datasets
    >>> means = Indicators(lines=[{"statistic": "share", "of": "AnnSal", "level": "50K+", "by": ["Sex"]}])
    >>> spec = SwapSpec(swap=["AnnSal"], rate=0.05)
    >>> found = replicate_errors(datasets.cps8d(), spec, means, key=Key.insecure(seed=1), replicates=3)
    >>> found.num_rows, found.column_names[-3:]
    (2, ['bias', 'between', 'total_error'])
    """
    if replicates < 2:
        raise SpecError("a variance needs two draws", code="bad-spec", hint="ask for at least 2 replicates")
    method = registry.method(spec.method)
    masked = (method.apply(data, spec, key=key, replicate=replicate).data for replicate in range(replicates))
    return spread_of(indicators, (Comparison(before=data, after=after, attributes=()) for after in masked))


def spread_of(indicators: Indicators, draws_seen: Iterable[Comparison]) -> pa.Table:
    """Return bias and spread of every estimate over several draws of one specification."""
    # The errors of the sample are the same for all draws.
    draws = [list(indicators.evaluate(seen, errors=not number)) for number, seen in enumerate(draws_seen)]
    rows: list[dict[str, Any]] = []
    for number, first in enumerate(draws[0]):
        known = {"indicator": first.line.title, "statistic": first.line.statistic}
        # A quantile or a regression may be missing in some draw: such a line has no spread.
        problem = next((draw[number].problem for draw in draws if draw[number].problem), "")
        changes = [draw[number].change for draw in draws]
        if problem or len({len(change) for change in changes}) > 1:
            rows.append({**known, "problem": problem or "its domains differ between draws"})
            continue
        bias, between = np.mean(changes, axis=0), np.std(changes, axis=0, ddof=1)
        total = np.sqrt(first.error**2 + between**2 + bias**2)
        for i, names in enumerate(first.names):
            numbers = {
                "before": first.before[i],
                "error": first.error[i],
                "bias": bias[i],
                "between": between[i],
                "total_error": total[i],
            }
            rows.append({**known, "problem": "", "domain": names, **numbers})
    texts = [(name, pa.string()) for name in ("indicator", "statistic", "problem")]
    kinds = [*texts, ("domain", pa.list_(pa.string()))]
    kinds += [(name, pa.float64()) for name in ("before", "error", "bias", "between", "total_error")]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


MOST_TABLE_BYTES = 1 << 30
"""If the 2-way tables of all candidates would take more than this, none are kept."""


@dataclass(frozen=True, eq=False)
class Group:
    """Candidates that differ only in the rate: their pairs are the first ones of the same walk."""

    specs: tuple[MaskSpec, ...]
    labels: Names = ()
    varied: str = ""
    constraint: ConstraintSet | None = None


class FixedSteps:
    """The steps of a study's pipelines that are the same for all candidates, before and after the one that varies.

    Candidates are compared with the original in the categories of the release. If the first steps only recode and none
    come last, that is the file after them: candidates are then scored from touched records, as without fixed steps.
    """

    def __init__(self, original: Microdata, study: StudySpec, key: Key) -> None:
        self.original, self.study, self.key = original, study, key
        self.first = Pipeline(study.first)
        self._masked: dict[int, Masked] = {}
        self._lock = threading.Lock()
        self.data = self.mask_first(0).data
        effects = [effect for stage in self.mask_first(0).parts for effect in effects_of(stage)]
        self.only_recode = not study.last and all(isinstance(effect, Coarsened | Dropped) for effect in effects)

    def mask_first(self, replicate: int) -> Masked:
        """Return the file after the first steps, masked once per replicate."""
        with self._lock:
            if replicate not in self._masked:
                self._masked[replicate] = run(self.original, self.first, key=self.key, replicate=replicate)
            return self._masked[replicate]

    def pipeline(self, spec: MaskSpec) -> Pipeline:
        """Return all steps of a candidate."""
        return Pipeline([*self.first.steps, Step(name=self.name_of(spec), spec=spec), *self.study.last])

    def name_of(self, spec: MaskSpec) -> str:
        """Return the name of the step that varies: that of its method, unless a fixed step has it."""
        stated = (str(each["name"]) for each in self.study.last if "name" in each)
        return free_name(spec.method, (*self.first.names, *stated))

    def scores_quickly(self, spec: MaskSpec) -> bool:
        """Return whether a candidate draws on the file after the first steps as its method does alone."""
        return self.only_recode and self.name_of(spec) == spec.method

    def mask(self, spec: MaskSpec, replicate: int) -> Masked:
        """Mask by all steps of a candidate; only those from the varied one on are run."""
        known = self.mask_first(replicate)
        return run(self.original, self.pipeline(spec), key=self.key, replicate=replicate, known=known)

    @classmethod
    def of(cls, original: Microdata, study: StudySpec, key: Key) -> FixedSteps | None:
        """Return the fixed steps of a study; None if it has none."""
        return cls(original, study, key) if study.first or study.last else None


class Evaluator:
    """Scorer of candidates, with everything that they share. Thread-safe."""

    def __init__(
        self,
        data: Microdata,
        study: StudySpec,
        key: Key,
        *,
        candidates: int,
        measures: Sequence[Measure] | None = None,
        fixed: FixedSteps | None = None,
    ) -> None:
        self.data = data
        self.study = study
        self.key = key
        self.fixed = fixed
        self.keys = study.keys or data.schema.categorical
        self.table_pairs = choose_tables(data, self.keys, candidates)
        self._measures = measures or [registry.measure(text) for text in study.measures]
        further = _other_attributes(study, data)
        self._way, self._risk_way = self._make_ways(further)
        self._replicates: OrderedDict[tuple[int, QuickWay], Replicate] = OrderedDict()
        self._most_replicates = ((os.cpu_count() or 1) + 1) * (1 if self._risk_way is None else 2)
        self._lock = threading.Lock()

    def _make_ways(self, further: Names) -> tuple[QuickWay, QuickWay | None]:
        """Return the quick way; under a scenario, also one over its keys, which scores the risk."""
        keeps, scenario = bool(self.table_pairs), self.study.scenario
        if scenario is None:
            return QuickWay(self.data, self.keys, further, self._measures, self.key, tables=keeps), None
        risk = [measure for measure in self._measures if measure.axis is Axis.RISK]
        rest = self._measures[len(risk) :]  # measures of risk come first
        return (
            QuickWay(self.data, self.keys, further, rest, self.key, tables=keeps),
            QuickWay(self.data, scenario.names, further, risk, self.key, tables=False),
        )

    def prepare(self, group: Group) -> SwapGroup | Group:
        """Return the group with everything its replicates share, if it can be scored from touched records."""
        risk_way, scenario = self._risk_way, self.study.scenario
        if scenario is not None and scenario.unit == "household":
            return group
        if self._way.measures is None or (risk_way is not None and risk_way.measures is None):
            return group
        if self.fixed is not None and not all(map(self.fixed.scores_quickly, group.specs)):
            return group
        swaps = plain_swaps(group.specs)
        if len(swaps) < len(group.specs) or not all(map(self._is_quick, swaps)):
            return group
        first = self._way.group(swaps)
        return first if risk_way is None else replace(first, risk=risk_way.group(swaps))

    def _is_quick(self, spec: SwapSpec) -> bool:
        """Return whether a swap can be scored from touched records alone.

        A swap of numeric attributes only, or one with signed zeros, is masked instead: that says what does not apply.
        """
        if set(spec.swap) & set(household_attributes(self.data.schema)):
            return False  # whole households are exchanged
        seen = any(name in self.keys or self.data.schema[name].kind.is_categorical for name in spec.swap)
        return seen and not self._way.has_signed_zeros(spec) and not self._way.moves_weight(spec)

    def cost(self, group: SwapGroup | Group) -> int:
        """Estimate the cost of a group in records read."""
        if isinstance(group, SwapGroup):
            return 4 * int(group.asked[-1]) + 3000 * len(group.specs)
        return 20 * len(self.data) * len(group.specs)

    def figures(self, groups: Sequence[SwapGroup | Group], replicate: int) -> Figures:
        """Score the candidates of groups under one keyed order. A failing candidate does not stop the others."""
        parts: list[Figures] = []
        for _, alike in groupby(groups, key=type):
            some = list(alike)
            swaps = [group for group in some if isinstance(group, SwapGroup)]
            if swaps:
                parts.append(self._score_swaps(swaps, replicate))
            else:
                parts += [self._mask_and_score(spec, replicate) for group in some for spec in group.specs]
        return Figures.joined(parts)

    def _score_swaps(self, groups: Sequence[SwapGroup], replicate: int) -> Figures:
        found = self._replicate(replicate, self._way).evaluate_all(groups)
        if self._risk_way is None:
            return found
        posed = [group.risk for group in groups if group.risk is not None]
        risk = self._replicate(replicate, self._risk_way).evaluate_all(posed)
        return replace(found, scores=np.hstack([risk.scores, found.scores]))

    def _replicate(self, number: int, way: QuickWay) -> Replicate:
        """Return a replicate from a small cache, since several threads work on one replicate."""
        with self._lock:
            found = self._replicates.pop((number, way), None) or Replicate(way, number)
            self._replicates[number, way] = found
            while len(self._replicates) > self._most_replicates:
                self._replicates.popitem(last=False)
            return found

    def _mask_and_score(self, spec: MaskSpec, replicate: int) -> Figures:
        try:
            seen, masked = self._compare(spec, replicate)
            scores = np.array([[self._score(measure, seen) for measure in self._measures]])
            made = (masked if self.fixed is None else masked.parts[len(self.fixed.first)]).audit.made
            return Figures(scores, np.array([made]), ("",), self._two_way(seen))
        except InternalError:
            raise
        except SafeswapError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001  (a plug-in may fail in any way; its words could quote a record)
            reason = f"it failed with {type(error).__name__}"
        tables = (len(self.table_pairs), len(TABLE_MEASURES)) if self.table_pairs else None
        return Figures.rejected([reason], measures=len(self._measures), tables=tables)

    def _compare(self, spec: MaskSpec, replicate: int) -> tuple[Comparison, Masked]:
        """Mask by a candidate; refuse one that the axes of the map do not see."""
        if self.fixed is None:
            method = registry.method(spec.method)
            masked = method.apply(self.data, spec, key=self.key, replicate=replicate)
            touched = masked.audit.perturbed()
            seen = Comparison(before=self.data, after=masked.data, attributes=self.keys, touched=touched)
            refuse_blind(seen, self._measures)
            return seen, masked
        masked = self.fixed.mask(spec, replicate)
        touched = masked.audit.perturbed()
        # What the fixed steps do is the same for all candidates: the axes need not see it.
        varied = masked.parts[len(self.fixed.first)]
        own = Comparison(before=varied.original, after=varied.data, attributes=self.keys, touched=touched)
        refuse_blind(own, self._measures)
        recoded = masked.account.reference
        seen = Comparison(
            before=self.fixed.original, after=masked.data, attributes=self.keys, touched=touched, recoded=recoded
        )
        return seen, masked

    def score_one(self, measure: Measure, study: Study, number: int) -> float | None:
        """Mask by one candidate of a study and return a further measure of it; None if it cannot be measured."""
        row = study.table.slice(number, 1).to_pylist()[0]
        try:
            return self._score(measure, self.compare_again(study, row["specification"], row["replicate"]))
        except SafeswapError:
            return None

    def compare_again(self, study: Study, specification: int, replicate: int) -> Comparison:
        """Mask by a specification of a study once more."""
        varied = study.specs[specification]
        if self.fixed is not None and isinstance(varied, Pipeline):
            varied = varied.steps[len(self.fixed.first)].spec
        return self._compare(varied, replicate)[0]

    def _score(self, measure: Measure, seen: Comparison) -> float:
        posed = pose_comparison(seen, self.study.scenario, measure)
        if posed.scenario is not None and not posed.scenario.keys:
            return 0.0
        return score_by_unit(measure, posed).value

    def _two_way(self, seen: Comparison) -> npt.NDArray[np.float32] | None:
        if not self.table_pairs:
            return None
        table = distortion_tables(seen, ways=2, measures=TABLE_MEASURES, attributes=self.keys)
        values = [table.column(measure).to_numpy() for measure in TABLE_MEASURES]
        return np.stack(values, axis=1).astype(np.float32)[None]


def pose_comparison(seen: Comparison, scenario: Scenario | None, measure: Measure) -> Comparison:
    """Return the comparison as the measure is to see it: for one of risk, over the keys of the scenario."""
    if scenario is None or measure.axis is not Axis.RISK:
        return seen
    resolved = resolve_files(scenario, seen.before, seen.after)
    return replace(seen, attributes=resolved.keys, scenario=resolved)


def plain_swaps(specs: Sequence[MaskSpec]) -> tuple[SwapSpec, ...]:
    """Return the swaps whose pairs are the first ones of a walk, all attributes at once."""
    swaps = (spec for spec in specs if isinstance(spec, SwapSpec))
    plain = (s for s in swaps if s.targeting is None and s.partner == "any" and s.on_shortfall == "error")
    return tuple(s for s in plain if len(s.stages) == 1)


def choose_tables(data: Microdata, keys: Names, candidates: int) -> tuple[tuple[str, str], ...]:
    """Return the 2-way tables whose distortion is kept for every candidate: all, or none if that is too much."""
    _, sizes = data.coded_columns(keys)
    places = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    kept_bytes = candidates * comb(len(keys), 2) * len(TABLE_MEASURES) * 4
    if places > MOST_PLACES or kept_bytes > MOST_TABLE_BYTES:
        return ()
    return tuple((a, b) for i, a in enumerate(keys) for b in keys[i + 1 :])


def _other_attributes(study: StudySpec, data: Microdata) -> Names:
    """Return the attributes that swaps may use in addition to those that form the cells."""
    stated = plain_swaps([registry.make_spec(values) for values, _ in study.stated()])
    named = [
        *(study.attributes or data.schema.categorical),
        *(name for constraint in study.constraints for name in (*constraint.fixed, *constraint.differ)),
        *(name for spec in stated for name in (*spec.swap, *spec.fixed, *spec.differ)),
    ]
    return tuple(dict.fromkeys(named))


def study_of(
    spec: StudySpec, evaluator: Evaluator, groups: Sequence[Group], figures: Figures, before: Mapping[str, float | None]
) -> Study:
    """Make a study from the scores of all candidates, replicate after replicate."""
    specs = [(s, group) for group in groups for s in group.specs]
    replicates = len(figures) // len(specs)
    fixed = evaluator.fixed
    whole = [s if fixed is None else fixed.pipeline(s) for s, _ in specs]
    per_spec = _per_spec(evaluator.data, specs, whole)
    number = np.tile(np.arange(len(specs)), replicates)
    columns: dict[str, Any] = {"candidate": np.arange(len(figures)), "specification": number}
    columns |= {name: values.take(pa.array(number)) for name, values in per_spec.items()}
    columns["replicate"] = np.repeat(np.arange(replicates), len(specs))
    columns["outcome"] = pa.array(np.where([bool(reason) for reason in figures.reasons], "rejected", "made"))
    columns["pairs"] = figures.made
    columns["reason"] = pa.array(figures.reasons, type=pa.string())
    # A rejected candidate has nulls, not NaN.
    columns |= {name: pa.array(figures.scores[:, i], from_pandas=True) for i, name in enumerate(spec.measures)}
    return Study(
        spec=spec,
        table=pa.table(columns),
        specs=tuple(whole),
        facts=facts_of(evaluator.data, evaluator.keys, evaluator.key, before, spec),
        two_way=figures.tables,
        table_pairs=evaluator.table_pairs if figures.tables is not None else (),
    )


MOST_DRAWS = 20
"""Draws of the chosen specification from which the spread of its indicators is estimated."""

MOST_ON_FRONTIER = 100
"""Candidates of the frontier, least distortion first, for which quantiles and regressions are computed."""


def measure_frontier(study: Study, evaluator: Evaluator) -> Study:
    """Add what is measured on the frontier only: the quantiles and regressions among key indicators.

    All candidates are compared without them, since each needs the masked file. ``facts["frontier_only"]`` has, per
    measure, the lines concerned, and the value with them of each candidate on the frontier.
    """
    found = []
    for text in study.spec.distortion:
        measure = registry.measure(text)
        if isinstance(measure, LineMeasure) and measure.slow_lines:
            chosen = study.frontier(distortion=text)[:MOST_ON_FRONTIER].tolist()
            values = {str(number): evaluator.score_one(measure, study, number) for number in chosen}
            found.append({"measure": text, "lines": [line.title for line in measure.slow_lines], "values": values})
    added = {**({"frontier_only": found} if found else {}), **_measure_spread(study, evaluator)}
    return replace(study, facts={**study.facts, **added}) if added else study


def _measure_spread(study: Study, evaluator: Evaluator) -> dict[str, Any]:
    """Return, for the specification that the study's rule chooses, bias and spread of its indicators over the draws.

    ``facts["indicator_spread"]`` is the second estimate of what masking adds to standard errors; confidential.
    """
    measures = [registry.measure(text) for text in study.spec.distortion]
    measure = next((each for each in measures if isinstance(each, Indicators)), None)
    draws = min(study.spec.replicates, MOST_DRAWS)
    if measure is None or draws < 2:
        return {}
    try:
        number = study.table["specification"][study.choose().candidate].as_py()
        seen = [evaluator.compare_again(study, number, replicate) for replicate in range(draws)]
        rows = spread_of(measure, seen).to_pylist()
    except SafeswapError:  # nothing can be chosen, or a draw of it was rejected
        return {}
    return {"indicator_spread": {"measure": measure.text, "specification": number, "draws": draws, "rows": rows}}


def _per_spec(
    data: Microdata, specs: Sequence[tuple[MaskSpec, Group]], whole: Sequence[MaskSpec]
) -> dict[str, pa.Array]:
    """Return the columns that candidates of one specification share; ``whole`` has the fixed steps too."""
    return {
        "label": pa.array([label_of(data, s, group) for s, group in specs], type=pa.string()),
        "swap": pa.array([list(group.labels) for _, group in specs], type=pa.list_(pa.string())),
        "constraint": pa.array([group.constraint.label if group.constraint else "" for _, group in specs]),
        "rate": pa.array([getattr(s, "rate", None) for s, _ in specs], type=pa.float64()),
        "spec": pa.array([spec_text(s) for s in whole], type=pa.string()),
    }


def spec_text(spec: MaskSpec) -> str:
    """Serialise a specification to one line of JSON.

    >>> from safeswap.model.spec import SwapSpec
    >>> spec_text(SwapSpec(swap=["Race"], rate=0.05))
    '{"method": "swap", "swap": ["Race"], "rate": 0.05}'
    """
    return json.dumps(spec.as_dict(), ensure_ascii=False)


def label_of(data: Microdata, spec: MaskSpec, group: Group) -> str:
    """Return a short label: the letters of the swapped attributes, or their names, else the method; and what varies."""
    letters = [data.schema[name].letter for name in group.labels]
    what = ("".join(letters) if all(letters) else "+".join(group.labels)) or spec.method
    return f"{what} {group.varied}" if group.varied else what


def facts_of(
    data: Microdata, keys: Names, key: Key, before: Mapping[str, float | None], spec: StudySpec
) -> dict[str, Any]:
    """Return the facts about the data: names, numbers of levels, scores before. No record, no small count."""
    columns, cardinalities = data.coded_columns(keys)
    return {
        "name": data.schema.name,
        "records": len(data),
        "attributes": [
            {
                "name": name,
                "letter": data.schema[name].letter,
                "kind": data.schema[name].kind.value,
                "levels": len(data.coded(name).levels),
            }
            for name in keys
        ],
        "cells": len(cells.count_cells(columns, cardinalities).counts),
        "possible_cells": prod(cardinalities),
        "before": dict(before),
        "risk_before": before[spec.risk[0]],
        **({"weight": weight} if (weight := usable_weight(data)) else {}),
        **({"scenario": spec.scenario.as_dict()} if spec.scenario else {}),
        "for_release": key.releasable,
        "key_id": key.id,
    }
