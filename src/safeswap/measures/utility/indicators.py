"""Key indicators: what the users of a file compute, before and after.

An indicator is a total, mean, share, ratio, quantile or regression, of all records or by domains, usually weighted.
Each has its change, relative to its value and to its standard error under the sample design, and may state how much
of either is tolerable. The measure is the largest change, so that a map shows the release whose worst indicator moves
least.

The error of an estimate θ̃ from the masked file is v(θ̃) + (θ̃ − θ̂)²: see :mod:`safeswap.measures.survey`.

Totals, means, shares and ratios are quotients of sums over records, which a study updates from the records moved.
"""

from __future__ import annotations

import tomllib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from os import PathLike
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.regression import Family
from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.measures.aligned import align
from safeswap.measures.base import ParametricMeasure
from safeswap.measures.survey import (
    Quotient,
    SurveyDesign,
    divide,
    quantile_errors,
    quantiles_of,
    read_design,
    sum_by,
)
from safeswap.measures.utility.models import Formula, Model, compare_model
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Kind, level_texts, refuse_date
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.spec import Strict
from safeswap.model.text import plural

Statistic = Literal["total", "mean", "share", "ratio", "quantile", "regression"]
Unit = Literal["relative", "errors"]

MOST_DOMAINS = 200_000
"""An indicator with more possible domains is refused."""

NAMELESS = 10
"""A domain of fewer records has no name in results: its levels could tell who is in it."""

_ROUNDING = 1e-12  # of the sum of magnitudes: what is below is no change


class Line(Strict):
    """One indicator.

    >>> Line(statistic="share", of="labour_status", level="1", by=("region",)).title
    'share of labour_status = 1 by region'
    """

    statistic: Annotated[Statistic, Field(description="total, mean, share, ratio, quantile or regression")]
    of: Annotated[str, Field(description="attribute; a total of none counts the records, or their weights")] = ""
    level: Annotated[str | None, Field(description="level of which the share is taken")] = None
    per: Annotated[str, Field(description="denominator of a ratio")] = ""
    at: Annotated[float, Field(gt=0, lt=1, description="share below a quantile; 0.5 is the median")] = 0.5
    by: Annotated[Names, Field(max_length=4, description="attributes that form the domains")] = ()
    formula: Annotated[str, Field(description="formula of a regression, e.g. income ~ age + sex")] = ""
    family: Annotated[Family, Field(description="family of a regression")] = "linear"
    relative: Annotated[float | None, Field(gt=0, description="tolerable change, relative to the value")] = None
    errors: Annotated[float | None, Field(gt=0, description="tolerable change, in standard errors")] = None
    name: Annotated[str, Field(max_length=200, description="how the indicator is called in reports")] = ""

    @model_validator(mode="after")
    def _is_complete(self) -> Line:
        needs = {"mean": ("of",), "share": ("of", "level"), "ratio": ("of", "per"), "quantile": ("of",)}
        needs["regression"] = ("formula",)
        for field in needs.get(self.statistic, ()):
            if not getattr(self, field):
                raise ValueError(f"a {self.statistic} needs {field!r}")
        allowed = {*needs.get(self.statistic, ("of",)), *(("by",) if self.statistic != "regression" else ("family",))}
        allowed |= {"at"} if self.statistic == "quantile" else set()
        stated = {f for f in ("of", "level", "per", "at", "by", "formula", "family") if f in self.model_fields_set}
        if wrong := sorted(f for f in stated - allowed if getattr(self, f)):
            raise ValueError(f"a {self.statistic} has no {wrong[0]!r}")
        if len(set(self.by)) != len(self.by):
            raise ValueError("by names an attribute twice")
        if self.formula:
            Model(formula=self.formula)
        return self

    @property
    def is_quotient(self) -> bool:
        """True if sums over records determine it, which a study can update."""
        return self.statistic not in ("quantile", "regression")

    @property
    def attributes(self) -> Names:
        """The attributes that it is computed from."""
        used = Formula.parse(self.formula).names if self.formula else (self.of, self.per, *self.by)
        return tuple(dict.fromkeys(name for name in used if name))

    @property
    def title(self) -> str:
        """The name, or else what is computed."""
        if self.name:
            return self.name
        if self.statistic == "regression":
            return self.formula
        what = f"{self.of} = {self.level}" if self.level is not None else self.of or "records"
        what += f" per {self.per}" if self.per else ""
        what += f" at {self.at:g}" if self.statistic == "quantile" else ""
        return f"{self.statistic} of {what}" + (f" by {', '.join(self.by)}" if self.by else "")


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of an indicator: codes of each side, −1 for a record with a missing level; names of the levels."""

    sides: tuple[Int64s, Int64s]
    number: int
    sizes: tuple[int, ...]
    levels: tuple[list[str], ...]

    def name(self, domain: int) -> list[str]:
        """Return the levels of a domain."""
        places = np.unravel_index(domain, self.sizes) if self.sizes else ()
        return [texts[int(place)] for texts, place in zip(self.levels, places, strict=True)]


def find_domains(comparison: Comparison, by: Names) -> Domains:
    """Code the domains of both files alike."""
    columns = [align(comparison, name) for name in by]
    for name in by:
        refuse_date(comparison.after.schema, name)
    sizes = tuple(max(1, len(column.levels)) for column in columns)
    if prod(sizes) > MOST_DOMAINS:
        raise SpecError(
            f"an indicator by {', '.join(by)} has {prod(sizes):,} possible domains, more than {MOST_DOMAINS:,}",
            code="too-many-domains",
            hint="name fewer or coarser attributes in by",
        )
    lengths = len(comparison.before), len(comparison.after)
    sides = [np.zeros(length, dtype=np.int64) for length in lengths]
    for column, size in zip(columns, sizes, strict=True):
        missing = missing_levels(comparison, column.name, column.levels)
        for side, codes in enumerate((column.before, column.after)):
            inside = (sides[side] >= 0) & ~missing[codes]
            sides[side] = np.where(inside, sides[side] * size + codes, -1)
    levels = tuple(level_texts(column.levels) for column in columns)
    return Domains((sides[0], sides[1]), prod(sizes), sizes, levels)


def missing_levels(comparison: Comparison, name: str, levels: pa.Array) -> Flags:
    """Flag the codes that mean "no answer"; the last one is that of a missing value."""
    stated = set(comparison.after.schema[name].missing)
    return np.array([text in stated for text in level_texts(levels)] + [True])


def read_values(comparison: Comparison, name: str, level: str | None = None) -> tuple[Floats, Floats]:
    """Return the numbers of an attribute before and after, or 1 where it has a level; missing as NaN, none as 1."""
    if not name:
        return np.ones(len(comparison.before)), np.ones(len(comparison.after))
    if level is None:
        return finite_numbers(comparison.before, name), finite_numbers(comparison.after, name)
    if comparison.before.schema[name].kind is Kind.IDENTIFIER:
        raise SpecError(
            f"{name!r} is the record identifier", code="identifier-in-measure", hint="name another attribute"
        )
    column = align(comparison, name)
    texts = level_texts(column.levels)
    if level not in texts:
        raise SpecError(
            f"{name!r} has no such level as an indicator names",
            code="unknown-level",
            hint="write the level as it is in the file",
            attribute=name,
        )
    values = np.array([float(text == level) for text in texts] + [0.0])
    values[missing_levels(comparison, name, column.levels)] = np.nan
    return values[column.before], values[column.after]


def quotients(comparison: Comparison, line: Line, domains: Domains) -> tuple[Quotient, Quotient]:
    """Return the sums behind an indicator, before and after."""
    tops = read_values(comparison, line.of, line.level)
    bottoms = read_values(comparison, line.per)
    made = []
    for side in (0, 1):
        top, bottom = tops[side], bottoms[side]
        known = ~(np.isnan(top) | np.isnan(bottom))
        made.append(
            Quotient(
                top=np.where(known, top, 0.0),
                bottom=None if line.statistic == "total" else np.where(known, bottom, 0.0),
                of_domain=domains.sides[side],
                domains=domains.number,
            )
        )
    return made[0], made[1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """One estimate, before and after, by domain: arrays of the same length."""

    line: Line
    names: list[list[str]]
    records: Int64s
    before: Floats
    change: Floats
    scale: float  # what the change of an estimate of 0 is relative to
    error: Floats  # standard error before
    error_after: Floats  # root of v(θ̃) + (θ̃ − θ̂)²
    plain_change: Floats  # without weights, relative
    problem: str = ""

    @property
    def relative(self) -> Floats:
        """The change relative to the value before."""
        return relative_change(self.before, self.change, self.scale)

    @property
    def in_errors(self) -> Floats:
        """The change in standard errors; NaN without one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            known = np.where(self.error > 0, np.abs(self.change) / self.error, np.nan)
        return np.where(self.change == 0, 0.0, known)

    def is_flagged(self) -> Flags:
        """Flag the domains whose change is beyond what the line tolerates."""
        beyond = np.zeros(len(self.before), dtype=np.bool_)
        for values, most in ((np.abs(self.relative), self.line.relative), (self.in_errors, self.line.errors)):
            if most is not None:
                beyond |= np.nan_to_num(values) > most
        return beyond


def relative_change(before: Floats, change: Floats, scale: float) -> Floats:
    """Return changes relative to the values before; an estimate of 0 is compared with the largest of its line."""
    divisor = np.where(before != 0, np.abs(before), scale)
    return np.where(change == 0, 0.0, change / divisor)


def line_scale(before: Floats) -> float:
    """Return the largest magnitude of a line's estimates, 1 if all are 0."""
    known = np.abs(before[np.isfinite(before)])
    largest = float(known.max(initial=0.0))
    return largest if largest > 0 else 1.0


def change_of_sums(one: Quotient, other: Quotient, weights: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return the changes of numerator and denominator, summed over the records that changed: 0 means unchanged."""
    if len(one.top) != len(other.top):
        first, second = one.sums(weights[0]), other.sums(weights[1])
        return second[0] - first[0], second[1] - first[1]
    moved = one.of_domain != other.of_domain
    found = []
    for old, new in ((one.top, other.top), (one.bottom, other.bottom)):
        if old is None or new is None:
            found.append(np.zeros(one.domains))
            continue
        before, after = weights[0] * old, weights[1] * new
        rows = np.flatnonzero(moved | (before != after))
        found.append(_sum_moves(one.of_domain[rows], other.of_domain[rows], before[rows], after[rows], one.domains))
    return found[0], found[1]


def _sum_moves(left: Int64s, entered: Int64s, before: Floats, after: Floats, domains: int) -> Floats:
    away, there = left >= 0, entered >= 0
    change = sum_by(entered[there], after[there], domains) - sum_by(left[away], before[away], domains)
    gross = sum_by(entered[there], np.abs(after[there]), domains) + sum_by(left[away], np.abs(before[away]), domains)
    return np.where(np.abs(change) <= _ROUNDING * gross, 0.0, change)


def change_of_quotient(top: Floats, bottom: Floats, more_top: Floats, more_bottom: Floats) -> Floats:
    """Return how much top / bottom changes; a denominator that became 0 counts as an estimate of 0."""
    before = divide(top, bottom)
    after = bottom + more_bottom
    gone = np.abs(after) <= _ROUNDING * np.abs(bottom)
    change = np.where(gone, -before, (more_top - before * more_bottom) / np.where(gone, 1.0, after))
    return np.where((more_top == 0) & (more_bottom == 0), 0.0, change)


class LineMeasure(ParametricMeasure):
    """The largest change of some estimates; a study updates it from the records moved."""

    axis: ClassVar[Axis] = Axis.DISTORTION

    weighted: Annotated[bool, Field(description="weighted by the weight of the schema, if it has one")] = True
    weight: Annotated[str | None, Field(description="weight; that of the schema if omitted")] = None

    @abstractmethod
    def lines_for(self, comparison: Comparison) -> tuple[Line, ...]:
        """Return the estimates that are compared."""

    @property
    def shown_from(self) -> int:
        """Number of records from which on a domain counts."""
        return 1

    @property
    def in_unit(self) -> Unit:
        """The figure that changes are relative to."""
        return "relative"

    def for_study(self) -> Self:
        """Return the measure of all candidates: without what sums over records do not determine."""
        return self

    @property
    def slow_lines(self) -> tuple[Line, ...]:
        """The lines that a study evaluates on the frontier only."""
        return ()

    @property
    def has_slow_lines(self) -> bool:
        """True if sums over records do not determine all estimates."""
        return False


class Indicators(LineMeasure):
    """The largest change of a list of key indicators.

    >>> Indicators(lines=[{"statistic": "mean", "of": "income", "by": ["region"]}]).lines[0].title
    'mean of income by region'
    """

    name: ClassVar[str] = "indicators"
    title: ClassVar[str] = "largest change of a key indicator"
    sources: ClassVar[tuple[str, ...]] = (
        "Wolter (2007), Introduction to Variance Estimation, chapter 6 (Taylor series)",
        "Woodruff (1952), Confidence intervals for medians and other position measures",
    )

    lines: Annotated[tuple[Line, ...], Field(max_length=1000, description="the indicators")] = ()
    unit: Annotated[Unit, Field(description="changes relative to the value, or in standard errors")] = "relative"
    least: Annotated[int, Field(ge=1, description="domains of fewer records are left out")] = 30
    collapse: Annotated[bool, Field(description="join a stratum with one sampling unit to the next one")] = False
    replicate_scale: Annotated[
        float | None, Field(gt=0, description="factor of the squares over replicate weights; 1/R if omitted")
    ] = None

    @property
    def shown_from(self) -> int:
        """Number of records from which on a domain counts."""
        return self.least

    @property
    def in_unit(self) -> Unit:
        """The figure that changes are relative to."""
        return self.unit

    @property
    def has_slow_lines(self) -> bool:
        """True if there are quantiles or regressions."""
        return not all(line.is_quotient for line in self.lines)

    @property
    def slow_lines(self) -> tuple[Line, ...]:
        """The quantiles and regressions, if there is anything else."""
        quick = [line for line in self.lines if line.is_quotient]
        return tuple(line for line in self.lines if not line.is_quotient) if quick else ()

    def for_study(self) -> Self:
        """Return the measure without quantiles and regressions, unless there is nothing else."""
        quick = tuple(line for line in self.lines if line.is_quotient)
        return self if not self.slow_lines else self.model_copy(update={"lines": quick})

    def lines_for(self, comparison: Comparison) -> tuple[Line, ...]:
        """Return the stated lines."""
        if not self.lines:
            raise SpecError(
                "no indicator is stated",
                code="no-indicator",
                hint="state them in a TOML file ([[indicators]] statistic = …, of = …, by = …) and pass --indicators "
                "FILE, or read_indicators(path)",
            )
        return self.lines

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return that no indicator is stated; one that did not change is an answer."""
        return "" if self.lines else "no indicator is stated"

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per indicator and domain."""
        rows = list(self.evaluate(comparison))
        good = [row for row in rows if not row.problem and len(row.before)]
        failed = [f"{row.line.title} ({row.problem})" for row in rows if row.problem]
        if not good:
            raise SpecError(
                "no indicator can be computed"
                + (": " + "; ".join(failed) if failed else f": no domain has {plural(self.least, 'record')}"),
                code="no-indicator",
                hint="name attributes with values, coarser domains, or a smaller least",
            )
        figures = [np.abs(row.relative) if self.unit == "relative" else row.in_errors for row in good]
        if all(np.isnan(each).all() for each in figures):
            raise lacking_errors()
        worst = max(range(len(good)), key=lambda i: float(np.nanmax(figures[i], initial=-1.0)))
        value = float(np.nanmax(figures[worst]))
        place = int(np.nanargmax(figures[worst]))
        names = tuple(dict.fromkeys(name for line in self.lines for name in line.attributes))
        sentence = self._describe(good, worst, place, value) + (
            f" Not computed: {'; '.join(failed)}." if failed else ""
        )
        return self._score(value, sentence, names, detail_table(rows))

    def _describe(self, rows: list[Row], worst: int, place: int, value: float) -> str:
        row, number = rows[worst], sum(len(each.before) for each in rows)
        where = _domain_text(row, place)
        moved = f"{value:.2%}" if self.unit == "relative" else f"{value:.2f} standard errors"
        text = f"The largest change among {plural(number, 'estimate')} of {plural(len(rows), 'indicator')} is {moved}"
        text += f": {row.line.title}{where}." if value > 0 else "."
        stated = [each for each in rows if each.line.relative is not None or each.line.errors is not None]
        if stated:
            beyond = sum(int(each.is_flagged().sum()) for each in stated)
            text += f" Beyond their tolerance: {beyond:,} of {sum(len(each.before) for each in stated):,}."
        return text

    def evaluate(self, comparison: Comparison, *, errors: bool = True) -> Iterator[Row]:
        """Compute every indicator before and after; one that cannot be computed says why.

        Without ``errors`` totals, means, shares and ratios have their change alone, in a fraction of the time.
        """
        designs = self._designs(comparison)
        for line in self.lines_for(comparison):
            try:
                if line.is_quotient and not errors:
                    yield self._change(comparison, line, designs)
                else:
                    yield self._row(comparison, line, designs)
            except SpecError as error:
                yield _failed_row(line, error.message)

    def _designs(self, comparison: Comparison) -> tuple[SurveyDesign, SurveyDesign]:
        one, other = (
            read_design(
                data,
                weight=self.weight,
                weighted=self.weighted,
                collapse=self.collapse,
                replicate_scale=self.replicate_scale,
                sampled=comparison.before,
            )
            for data in (comparison.before, comparison.after)
        )
        return one, other

    def _change(self, comparison: Comparison, line: Line, designs: tuple[SurveyDesign, SurveyDesign]) -> Row:
        """Return how far each estimate of a line moved, and nothing else."""
        one, other = quotients(comparison, line, find_domains(comparison, line.by))
        weights = designs[0].weights, designs[1].weights
        top, bottom = one.sums(weights[0])
        change = change_of_quotient(top, bottom, *change_of_sums(one, other, weights))
        shown = shown_domains(one, self.least) & np.isfinite(divide(top, bottom))
        return replace(_failed_row(line, ""), change=change[shown])

    def _row(self, comparison: Comparison, line: Line, designs: tuple[SurveyDesign, SurveyDesign]) -> Row:
        if line.statistic == "regression":
            return self._regression(comparison, line)
        domains = find_domains(comparison, line.by)
        if line.statistic == "quantile":
            return self._quantile(comparison, line, domains, designs)
        one, other = quotients(comparison, line, domains)
        top, bottom = one.sums(designs[0].weights)
        before = divide(top, bottom)
        weights = designs[0].weights, designs[1].weights
        change = change_of_quotient(top, bottom, *change_of_sums(one, other, weights))
        even = tuple(np.ones(len(w)) for w in weights)
        plain_top, plain_bottom = one.sums(even[0])
        plain = change_of_quotient(plain_top, plain_bottom, *change_of_sums(one, other, (even[0], even[1])))
        shown = shown_domains(one, self.least) & np.isfinite(before)
        variance, variance_after = (q.variances(design) for q, design in zip((one, other), designs, strict=True))
        return Row(
            line=line,
            names=_names(domains, shown, one),
            records=records_of(one)[shown],
            before=before[shown],
            change=change[shown],
            scale=line_scale(before[shown]),
            error=np.sqrt(variance)[shown],
            error_after=np.sqrt(variance_after + change**2)[shown],
            plain_change=relative_change(
                divide(plain_top, plain_bottom), plain, line_scale(divide(plain_top, plain_bottom))
            )[shown],
        )

    def _quantile(
        self, comparison: Comparison, line: Line, domains: Domains, designs: tuple[SurveyDesign, SurveyDesign]
    ) -> Row:
        values = read_values(comparison, line.of)
        found, errors, plain = [], [], []
        for side, design in enumerate(designs):
            where = domains.sides[side]
            found.append(quantiles_of(values[side], line.at, design.weights, where, domains.number))
            plain.append(quantiles_of(values[side], line.at, np.ones(len(where)), where, domains.number))
            errors.append(quantile_errors(values[side], line.at, design, where, domains.number))
        counted = Quotient(
            top=(~np.isnan(values[0])).astype(np.float64),
            bottom=None,
            of_domain=domains.sides[0],
            domains=domains.number,
        )
        shown = (
            (counted.estimates(np.ones(len(values[0]))) >= self.least) & np.isfinite(found[0]) & np.isfinite(found[1])
        )
        change = found[1] - found[0]
        return Row(
            line=line,
            names=_names(domains, shown, counted),
            records=records_of(counted)[shown],
            before=found[0][shown],
            change=change[shown],
            scale=line_scale(found[0][shown]),
            error=errors[0][shown],
            error_after=np.sqrt(errors[1] ** 2 + change**2)[shown],
            plain_change=relative_change(plain[0], plain[1] - plain[0], line_scale(plain[0]))[shown],
        )

    def _regression(self, comparison: Comparison, line: Line) -> Row:
        model = Model(formula=line.formula, family=line.family, weight=self.weight, weighted=self.weighted)
        rows = compare_model(comparison, model)
        if rows[0]["problem"]:
            return _failed_row(line, rows[0]["problem"])
        before, after, error = (np.array([row[name] for row in rows]) for name in ("before", "after", "error_before"))
        behind = np.array([row["error_after"] for row in rows])
        nothing = np.full(len(rows), np.nan)
        return Row(
            line=line,
            names=[[row["coefficient"]] for row in rows],
            records=np.full(len(rows), len(comparison.before), dtype=np.int64),
            before=before,
            change=after - before,
            scale=line_scale(before),
            error=error,
            error_after=np.sqrt(behind**2 + (after - before) ** 2),
            plain_change=nothing,
        )


def lacking_errors() -> SpecError:
    """Return the error where no standard error is known."""
    return SpecError(
        "no indicator has a standard error", code="no-indicator", hint="measure relative changes: unit=relative"
    )


def records_of(quotient: Quotient) -> Int64s:
    """Count the records of each domain that have a value."""
    has_value = np.ones(len(quotient.top)) if quotient.bottom is None else (quotient.bottom != 0).astype(np.float64)
    inside = quotient.of_domain >= 0
    return np.bincount(quotient.of_domain[inside], has_value[inside], quotient.domains).astype(np.int64)


def shown_domains(quotient: Quotient, least: int) -> Flags:
    """Flag the domains with at least this many records."""
    return records_of(quotient) >= max(1, least)


def _names(domains: Domains, shown: Flags, quotient: Quotient) -> list[list[str]]:
    counts = records_of(quotient)
    return [
        domains.name(int(place)) if counts[place] >= NAMELESS else ["(rare)"] * len(domains.sizes)
        for place in np.flatnonzero(shown)
    ]


def _domain_text(row: Row, place: int) -> str:
    names = row.names[place]
    if not names:
        return ""
    if row.line.statistic == "regression":
        return f", coefficient {names[0]}"
    return " (" + ", ".join(f"{by} {level}" for by, level in zip(row.line.by, names, strict=True)) + ")"


def _failed_row(line: Line, problem: str) -> Row:
    none = np.zeros(0)
    return Row(
        line=line, names=[], records=none.astype(np.int64), before=none, change=none, scale=1.0, error=none,
        error_after=none, plain_change=none, problem=problem,
    )  # fmt: skip


def detail_table(rows: Sequence[Row]) -> pa.Table:
    """Return all estimates as a table, a row each; a line that could not be computed has its problem."""
    kinds = [
        ("indicator", pa.string()),
        ("statistic", pa.string()),
        ("domain", pa.list_(pa.string())),
        ("records", pa.int64()),
        *((name, pa.float64()) for name in ("before", "after", "value", "unweighted")),
        *((name, pa.float64()) for name in ("error", "error_after", "in_errors", "inflation")),
        ("flagged", pa.bool_()),
        ("problem", pa.string()),
    ]
    found: list[dict[str, Any]] = []
    for row in rows:
        known = {"indicator": row.line.title, "statistic": row.line.statistic}
        if row.problem:
            found.append({**known, "problem": row.problem})
        inflation = _inflation(row)
        flagged = row.is_flagged()
        for i, names in enumerate(row.names):
            numbers = {
                "before": row.before[i],
                "after": row.before[i] + row.change[i],
                "value": row.relative[i],
                "unweighted": row.plain_change[i],
                "error": row.error[i],
                "error_after": row.error_after[i],
                "in_errors": row.in_errors[i],
                "inflation": inflation[i],
            }
            plain = {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()}
            found.append(
                {
                    **known,
                    "domain": names,
                    "records": int(row.records[i]),
                    **plain,
                    "flagged": bool(flagged[i]),
                    "problem": "",
                }
            )
    return pa.Table.from_pylist(found, schema=pa.schema(kinds))


def _inflation(row: Row) -> Floats:
    """Return how many times as large the standard error is with the masking's error in it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(row.error > 0, row.error_after / row.error, np.nan)


def error_multipliers(score: Score) -> dict[str, float]:
    """Return, per kind of estimate, the median factor by which masking enlarges standard errors.

    These few figures are what a public report can say of the error that masking adds, if the officer agrees: users
    multiply their standard errors by them. They are rounded up to two digits, and a kind with fewer than three
    estimates has none.

    >>> from safeswap import datasets
    >>> survey = datasets.household_survey()
    >>> same = Comparison(before=survey, after=survey, attributes=())
    >>> lines = [{"statistic": "mean", "of": "income", "by": ["region"]}]
    >>> error_multipliers(Indicators(lines=lines).score(same))
    {'mean': 1.0}
    """
    if score.detail is None or "inflation" not in score.detail.column_names:
        raise SpecError(
            f"{score.measure!r} has no standard errors", code="no-indicator", hint="give the score of indicators"
        )
    found: dict[str, list[float]] = {}
    for row in score.detail.to_pylist():
        if row["inflation"] is not None:
            found.setdefault(row["statistic"], []).append(row["inflation"])
    return {kind: float(np.ceil(np.median(each) * 100 - 1e-9) / 100) for kind, each in found.items() if len(each) > 2}


def read_indicators(path: str | PathLike[str]) -> Indicators:
    """Read a TOML file of indicators: ``[[indicators]]`` blocks, and settings such as ``unit`` above them.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "indicators.toml"
    ...     _ = file.write_text('unit = "errors"\\n[[indicators]]\\nstatistic = "mean"\\nof = "income"\\n')
    ...     read_indicators(file).lines[0].statistic
    'mean'
    """
    from safeswap.files.sources import existing_file, unreadable_error

    file = existing_file(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable_error(file, error) from None
    except UnicodeDecodeError:
        raise _file_error(f"of {file.name!r} ", "it is not valid TOML", file=str(file)) from None
    try:
        return parse_indicators(text)
    except InputError as error:
        problem = str(error.fields["problem"])
        raise _file_error(f"of {file.name!r} ", problem, file=str(file)) from None


def parse_indicators(text: str) -> Indicators:
    """Read indicators from the text of such a file.

    >>> parse_indicators('[[indicators]]\\nstatistic = "mean"\\nof = "income"').lines[0].title
    'mean of income'
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise _file_error("", "it is not valid TOML") from None
    blocks = content.pop("indicators", ())
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise _file_error("", "it has no [[indicators]] blocks")
    try:
        return Indicators(**content, lines=tuple(blocks))
    except SpecError as error:
        first = error.fields.get("problems", [{"parameter": "", "problem": error.message}])[0]
        where = first["parameter"].split(".")
        place = f"indicator {int(where[1]) + 1}, " if where[0] == "lines" and len(where) > 1 else ""
        last = where[-1] if len(where) != 2 else ""
        raise _file_error("", f"{place}{last + ': ' if last else ''}{first['problem']}") from None


def _file_error(where: str, problem: str, **fields: str) -> InputError:
    return InputError(
        f"the indicators {where}cannot be read: {problem}",
        code="bad-indicators",
        hint='write blocks such as: [[indicators]] statistic = "mean", of = "income", by = ["region"]',
        problem=problem,
        **fields,
    )
