"""Estimates that users compute, before and after: what a line asks for, its domains, its sums, and their change.

Totals, means, shares and ratios are quotients of sums over records, which a study updates from the records moved.
:mod:`safeswap.measures.utility.indicators` and :mod:`safeswap.measures.utility.weighted_tables` are measures of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.regression import Family
from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.aligned import align
from safeswap.measures.base import ParametricMeasure
from safeswap.measures.survey import (
    Quotient,
    divide,
    sum_by,
)
from safeswap.measures.utility.models import Formula, Model
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Kind, level_texts, refuse_date
from safeswap.model.score import Axis, Comparison
from safeswap.model.spec import Strict
from safeswap.model.text import list_names

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
    name: Annotated[str, Field(max_length=200, description="name of the indicator in reports")] = ""

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
        return f"{self.statistic} of {what}" + (f" by {list_names(self.by)}" if self.by else "")


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
            f"an indicator by {list_names(by)} has {prod(sizes):,} possible domains, more than {MOST_DOMAINS:,}",
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
            f"{name!r} lacks a level that an indicator names",
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


def records_of(quotient: Quotient) -> Int64s:
    """Count the records of each domain that have a value."""
    has_value = np.ones(len(quotient.top)) if quotient.bottom is None else (quotient.bottom != 0).astype(np.float64)
    inside = quotient.of_domain >= 0
    return np.bincount(quotient.of_domain[inside], has_value[inside], quotient.domains).astype(np.int64)


def shown_domains(quotient: Quotient, least: int) -> Flags:
    """Flag the domains with at least this many records."""
    return records_of(quotient) >= max(1, least)
