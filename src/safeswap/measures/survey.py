"""Estimates from a sample: weights, domains, and variances under the design.

An estimate is a total Σ w·a or a quotient Σ w·a / Σ w·b over the records of a domain; means, shares and ratios are
quotients. Its variance is that of the total of the linearised variable u, which is a for a total and (a − θb) / Σ w·b
for a quotient, 0 outside the domain. With z the sum of w·u over a primary sampling unit and m the number of these in a
stratum (Taylor linearisation, with replacement at the first stage):

    v = Σ_strata m / (m − 1) Σ_units (z − z̄)².

Without primary sampling units every record is its own; without strata there is one. With replicate weights the variance
is that of the estimates under them. A stratum with one unit has no variance: it is refused, or joined to the next one
on request.

After masking the error has two parts: v(θ̃) + (θ̃ − θ̂)², with θ̂ from the original and θ̃ from the masked file.

A :class:`WeightedMeasure` has the figure without weights beside it. Users of a survey compute with weights, so a figure
of tables, means or correlations is made with them by default. A weight that is not in the masked file, or not positive
and finite in every record, is not used unless it is asked for by name; the sentence says so, and which record is the
first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.measures.base import ParametricMeasure
from safeswap.model.columns import same_memory, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyDesign:
    """The weight of each record, the primary sampling units and their strata, and replicate weights if there are any.

    ``unit_of`` numbers the units, ``stratum_of`` has the stratum of each unit. ``scale`` multiplies the sum of squares
    over the replicates.
    """

    weight: str
    weights: Floats
    unit_of: Int64s
    stratum_of: Int64s
    replicates: Floats | None = None
    scale: float = 0.0

    @cached_property
    def _stratum_sizes(self) -> Int64s:
        return np.bincount(self.stratum_of)

    @property
    def lonely(self) -> int:
        """Number of strata with a single primary sampling unit, whose variance cannot be estimated."""
        return int(np.count_nonzero(self._stratum_sizes == 1))

    def variances(self, linear: Floats, of_domain: Int64s, domains: int) -> Floats:
        """Return the variance of Σ w·u of each domain; u is ``linear``, and records outside have the domain −1."""
        inside = of_domain >= 0
        units = len(self.stratum_of)
        place = self.unit_of[inside] * domains + of_domain[inside]
        sums = sum_by(place, (self.weights * linear)[inside], units * domains).reshape(units, domains)
        return self.variances_of_units(sums)

    def variances_of_units(self, sums: Floats) -> Floats:
        """Return the variance of each column of sums over the primary sampling units."""
        if self.lonely:
            raise lonely_error(self.lonely)
        sizes = self._stratum_sizes.astype(np.float64)
        order = np.argsort(self.stratum_of, kind="stable")
        starts = np.r_[0, np.cumsum(self._stratum_sizes)[:-1]]
        means = np.add.reduceat(sums[order], starts, axis=0) / sizes[:, None]
        gaps = sums - means[self.stratum_of]
        factors = (sizes / (sizes - 1))[self.stratum_of]
        return np.asarray((factors[:, None] * gaps**2).sum(axis=0))

    def covariance(self, scores: Floats) -> Floats:
        """Return the covariance matrix of the totals of some columns, which already have the weights in them."""
        if self.lonely:
            raise lonely_error(self.lonely)
        units = len(self.stratum_of)
        sums = np.stack([np.bincount(self.unit_of, column, units) for column in scores.T], axis=1)
        sizes = self._stratum_sizes.astype(np.float64)
        means = np.zeros((len(sizes), sums.shape[1]))
        np.add.at(means, self.stratum_of, sums)
        gaps = sums - (means / sizes[:, None])[self.stratum_of]
        return np.asarray(gaps.T @ (gaps * (sizes / (sizes - 1))[self.stratum_of][:, None]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Quotient:
    """Σ w·a over the records of each domain, divided by Σ w·b unless ``bottom`` is None; −1 is no domain."""

    top: Floats
    bottom: Floats | None
    of_domain: Int64s
    domains: int

    def sums(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return numerator and denominator of each domain; the denominator of a total is 1."""
        inside = self.of_domain >= 0
        where = self.of_domain[inside]
        top = sum_by(where, (weights * self.top)[inside], self.domains)
        if self.bottom is None:
            return top, np.ones(self.domains)
        return top, sum_by(where, (weights * self.bottom)[inside], self.domains)

    def estimates(self, weights: Floats) -> Floats:
        """Return the estimate of each domain; NaN where the denominator is 0."""
        top, bottom = self.sums(weights)
        return divide(top, bottom)

    def variances(self, design: SurveyDesign) -> Floats:
        """Return the variance of each estimate, by linearisation or by the replicate weights."""
        top, bottom = self.sums(design.weights)
        estimates = divide(top, bottom)
        if design.replicates is not None:
            found = np.stack([self.estimates(weights) for weights in design.replicates])
            return np.asarray(design.scale * ((found - estimates) ** 2).sum(axis=0))
        if self.bottom is None:
            return design.variances(self.top, self.of_domain, self.domains)
        known = np.where(np.isfinite(estimates), estimates, 0.0)
        per_unit = np.where(bottom != 0, 1 / np.where(bottom != 0, bottom, 1.0), 0.0)
        place = np.maximum(self.of_domain, 0)
        linear = (self.top - known[place] * self.bottom) * per_unit[place]
        return np.where(bottom != 0, design.variances(linear, self.of_domain, self.domains), np.nan)


def sum_by(groups: Int64s, values: Floats, number: int) -> Floats:
    """Return the sum of the values of each group 0, 1, …"""
    return np.asarray(np.bincount(groups, values, number), dtype=np.float64)


def divide(top: Floats, bottom: Floats) -> Floats:
    """Return the quotients, NaN where the denominator is 0."""
    return np.where(bottom != 0, top / np.where(bottom != 0, bottom, 1.0), np.nan)


def mean_of(values: Floats, of_domain: Int64s | None = None, domains: int = 1) -> Quotient:
    """Return the mean over the records with a value, in each domain."""
    known = ~np.isnan(values)
    where = np.zeros(len(values), dtype=np.int64) if of_domain is None else of_domain
    return Quotient(top=np.where(known, values, 0.0), bottom=known.astype(np.float64), of_domain=where, domains=domains)


def quantiles_of(values: Floats, share: float, weights: Floats, of_domain: Int64s, domains: int) -> Floats:
    """Return the smallest value up to which a domain has at least this share of its weight; NaN in an empty one."""
    known = ~np.isnan(values) & (of_domain >= 0)
    where, numbers, mass = of_domain[known], values[known], weights[known]
    order = np.lexsort((numbers, where))
    where, numbers, mass = where[order], numbers[order], mass[order]
    found = np.full(domains, np.nan)
    bounds = np.searchsorted(where, np.arange(domains + 1))
    for domain in range(domains):
        first, last = bounds[domain], bounds[domain + 1]
        if first < last:
            passed = np.cumsum(mass[first:last])
            place = np.searchsorted(passed, share * passed[-1] * (1 - 1e-12))
            found[domain] = numbers[first + min(int(place), last - first - 1)]
    return found


def quantile_errors(values: Floats, share: float, design: SurveyDesign, of_domain: Int64s, domains: int) -> Floats:
    """Return Woodruff's standard errors: half the distance between the quantiles at share ± its standard error."""
    middle = quantiles_of(values, share, design.weights, of_domain, domains)
    place = np.maximum(of_domain, 0)
    below = np.where(np.isnan(values), np.nan, (values <= middle[place]).astype(np.float64))
    spread = np.sqrt(mean_of(below, of_domain, domains).variances(design))
    errors = np.full(domains, np.nan)
    for domain in np.flatnonzero(np.isfinite(spread)):
        alone = np.where(of_domain == domain, 0, -1)
        ends = [
            quantiles_of(values, float(np.clip(share + side * spread[domain], 0, 1)), design.weights, alone, 1)[0]
            for side in (-1, 1)
        ]
        errors[domain] = (ends[1] - ends[0]) / 2
    return errors


def find_weight(schema: Schema, stated: str | None = None) -> str:
    """Return the name of the weight: the stated one, else that of the schema, else nothing.

    >>> from safeswap.model.schema import Attribute
    >>> find_weight(Schema(attributes=(Attribute(name="w", kind="weight"),)))
    'w'
    """
    if stated:
        if schema[stated].kind not in (Kind.WEIGHT, Kind.NUMERIC):
            raise SpecError(
                f"{stated!r} is {schema[stated].kind.value} and not a weight",
                code="not-a-weight",
                hint="name the survey weight, described as weight or numeric",
                attribute=stated,
            )
        return stated
    return "" if schema.weight is None else schema.weight.name


def positive_weights(data: Microdata, name: str) -> Floats:
    """Return the weight of each record; refuse one that is missing, infinite, negative or zero, by its position."""
    found = to_numbers(data, name)
    kinds = (
        (np.isnan(found), "missing"),
        (np.isinf(found), "infinite"),
        (found < 0, "negative"),
        (found == 0, "zero"),
    )
    for wrong, word in kinds:
        if wrong.any():
            raise _weight_error(name, wrong, word)
    return found


def read_design(
    data: Microdata,
    *,
    weight: str | None = None,
    weighted: bool = True,
    collapse: bool = False,
    replicate_scale: float | None = None,
    sampled: Microdata | None = None,
) -> SurveyDesign:
    """Return the design that the schema describes; equal weights if it has none, or not ``weighted``.

    ``sampled`` is the original of a masked file: its strata and units are used where the masked file has lost them,
    since leaving them out does not change how the sample was drawn.

    ``collapse`` joins a stratum with one primary sampling unit to the next one. ``replicate_scale`` is what the sum of
    squares over the replicates is multiplied by: by default 1/R, as for bootstrap and balanced repeated replication;
    (R − 1)/R for the jackknife.
    """
    name = find_weight(data.schema, weight) if weighted else ""
    weights = positive_weights(data, name) if name else np.ones(len(data))
    files = (data,) if sampled is None or len(sampled) != len(data) else (data, sampled)
    stratum_of_record = _codes(files, "stratum")
    units = _codes(files, "psu")
    unit_of = np.arange(len(data)) if units is None else units
    strata = np.zeros(len(data), dtype=np.int64) if stratum_of_record is None else stratum_of_record
    # Numbers of units may restart in every stratum.
    width = int(unit_of.max(initial=0)) + 1
    distinct, unit_of = np.unique(strata * width + unit_of, return_inverse=True)
    stratum_of = np.unique(distinct // width, return_inverse=True)[1]
    if collapse:
        stratum_of = _join_lonely(stratum_of)
    replicates = _read_replicates(data) if name and weight in (None, "", name) else None
    scale = (1 / len(replicates) if replicate_scale is None else replicate_scale) if replicates is not None else 0.0
    return SurveyDesign(
        weight=name,
        weights=weights,
        unit_of=unit_of.astype(np.int64),
        stratum_of=stratum_of.astype(np.int64),
        replicates=replicates,
        scale=scale,
    )


def lonely_error(strata: int) -> InputError:
    """Return the error for strata whose variance cannot be estimated."""
    return InputError(
        f"{plural(strata, 'stratum has', 'strata have')} only one primary sampling unit: its variance cannot be "
        "estimated",
        code="one-unit-stratum",
        hint="state collapse=true to join it to the next stratum, or correct the strata",
        strata=strata,
    )


def _codes(files: Sequence[Microdata], part: str) -> Int64s | None:
    """Return the codes of the stratum or the unit in the first file that has any; a missing code is one of its own."""
    for data in files:
        for attribute in data.schema.attributes:
            if attribute.design == part and data.table.column(attribute.name).null_count < len(data):
                return data.coded(attribute.name).codes.astype(np.int64)
    return None


def _join_lonely(stratum_of: Int64s) -> Int64s:
    """Join each stratum with one unit to the next one, the last ones to the one before."""
    sizes = np.bincount(stratum_of)
    joined = np.empty(len(sizes), dtype=np.int64)
    group, inside = 0, 0
    for stratum, size in enumerate(sizes.tolist()):
        joined[stratum] = group
        inside += size
        if inside > 1:
            group, inside = group + 1, 0
    if inside == 1 and group > 0:
        joined[joined == group] = group - 1
    return joined[stratum_of]


def _read_replicates(data: Microdata) -> Floats | None:
    names = [a.name for a in data.schema.attributes if a.design == "replicate"]
    if not names:
        return None
    found = np.stack([to_numbers(data, name) for name in names])
    for name, values in zip(names, found, strict=True):
        wrong: Flags = ~(np.isfinite(values) & (values >= 0))  # a jackknife leaves units out: 0 is right there
        if wrong.any():
            raise _weight_error(name, wrong, "missing, infinite or negative")
    return found


def _weight_error(name: str, wrong: Flags, word: str) -> InputError:
    first = int(np.flatnonzero(wrong)[0]) + 1
    number = int(np.count_nonzero(wrong))
    if wrong.all() and word == "missing":
        return InputError(
            f"no record has a weight {name!r}: a step dropped it, or the file never had one",
            code="bad-weight",
            hint="drop the weight when releasing, not before; or state weighted=false",
            column=name,
            record=first,
        )
    return InputError(
        f"{plural(number, 'record has', 'records have')} a weight {name!r} that is {word}; "
        f"the first is record {first:,}",
        code="bad-weight",
        hint="complete the weights, and drop records that represent nobody",
        column=name,
        record=first,
    )


class WeightedMeasure(ParametricMeasure):
    """A measure of sums over records, each with its weight."""

    weighted: Annotated[bool, Field(description="weighted by the weight of the schema, if it has one")] = True
    weight: Annotated[str | None, Field(description="weight; that of the schema if omitted")] = None

    def score(self, comparison: Comparison) -> Score:
        """Score the masking, weighted where there is a weight; the detail then has the figures without it too."""
        weight, note = find_usable(comparison, self.weight) if self.weighted else ("", "")
        plain = self._score_by(comparison, "")
        if not weight:
            return replace(plain, sentence=plain.sentence + note)
        found = self._score_by(comparison, weight)
        sentence = f"{found.sentence} Weighted by {weight}; without weights {plain.value:.4g}."
        return replace(found, sentence=sentence, detail=_add_unweighted(found.detail, plain))

    @abstractmethod
    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking with a weight that can be used, or without one."""


def find_usable(comparison: Comparison, stated: str | None = None) -> tuple[str, str]:
    """Return the weight to use, and a note where that of the schema cannot be used; a stated one is refused then."""
    before, after = comparison.before, comparison.after
    name = find_weight(before.schema, stated)
    if not name:
        return "", ""
    if not stated and name not in after.schema:
        return "", f" Not weighted: {name} is not in the masked file."
    try:
        masses(comparison, name)
    except InputError as error:
        if stated:
            raise
        return "", f" Not weighted: {error.message}."
    return name, ""


def usable_weight(data: Microdata, stated: str | None = None) -> str:
    """Return the weight to use for a file and its swapped versions; nothing if it cannot be used."""
    return find_usable(Comparison(before=data, after=data, attributes=()), stated)[0]


_MASSES: WeakKeyDictionary[Comparison, dict[str, tuple[Floats, Floats]]] = WeakKeyDictionary()


def masses(comparison: Comparison, weight: str) -> tuple[Floats, Floats]:
    """Return the weight of each record before and after, the same array if it is the same; 1 without a weight.

    Every measure of a comparison asks for them, so they are cached: do not write to them.
    """
    known = _MASSES.setdefault(comparison, {})
    if weight not in known:
        known[weight] = _masses(comparison, weight)
    return known[weight]


def _masses(comparison: Comparison, weight: str) -> tuple[Floats, Floats]:
    before, after = comparison.before, comparison.after
    if not weight:
        return np.ones(len(before)), np.ones(len(after))
    one = positive_weights(before, weight)
    shared = before.schema[weight] == after.schema[weight] and same_memory(
        before.table.column(weight), after.table.column(weight)
    )
    other = one if shared else positive_weights(after, weight)
    return one, one if np.array_equal(one, other) else other


def weight_changed(comparison: Comparison, weight: str) -> bool:
    """Return whether masking changed the weight itself."""
    if not weight:
        return False
    one, other = masses(comparison, weight)
    return one is not other


def _add_unweighted(detail: pa.Table | None, plain: Score) -> pa.Table | None:
    """Add the figures without weights to the detail, row by row."""
    if detail is None or plain.detail is None or "unweighted" in detail.column_names:
        return detail
    if "value" in detail.column_names:
        return detail.append_column("unweighted", plain.detail.column("value"))
    return detail.append_column("unweighted", pa.array([plain.value] * detail.num_rows, pa.float64()))
