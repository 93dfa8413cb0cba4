"""Specifications of the methods that change numbers, and of post-randomisation, and their promises.

::

    RanksNear          values moved by at most the stated number of ranks
    AddedNoise         the noise has the requested moments
    GroupsOfAtLeast    every value is shared by at least k records
    KeptMean           the mean is unchanged up to rounding
    WithinBounds       no value lies beyond the bounds
    ExpectedMargin     counts are unchanged up to the draw of post-randomisation
    MissingStays       the same values are missing

Promises in expectation are tested at a level that chance exceeds once in 10¹² files.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays import moments
from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats
from safeswap.model.columns import as_codes, decode_dictionary, flag_changes, number_cells, to_bits
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import AttributePromise, AttributesPromise, Invariant
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers, ordered_numbers
from safeswap.model.schema import Kind
from safeswap.model.spec import CATEGORIES, IsoDate, MaskSpec, refuse_repeats, takes
from safeswap.model.text import join_names, plural

Attributes = Annotated[Names, Field(min_length=1, description="attributes to change")]
Numbers = Annotated[Attributes, Field(json_schema_extra=takes("numeric", "date"))]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Decimals = Annotated[
    int | None,
    Field(ge=0, le=15, description="decimal places of changed values; by default as many as the attribute has"),
]


class AttributesSpec(MaskSpec):
    """A specification that names the attributes to change, each once."""

    attributes: Attributes

    @model_validator(mode="after")
    def _check_names(self) -> AttributesSpec:
        refuse_repeats(self, "attributes")
        return self

    @property
    def treats_together(self) -> bool:
        """True if the change of an attribute depends on the others."""
        return False


class RankSwapSpec(AttributesSpec):
    """Exchange values between records near in rank, each attribute on its own.

    >>> RankSwapSpec(attributes=["turnover"], window=0.05).ranks(157)
    7
    """

    method: ClassVar[str] = "rank_swap"

    attributes: Annotated[Attributes, Field(json_schema_extra=takes("numeric", "ordinal", "date"))]
    window: Annotated[
        Share, Field(description="maximum distance in rank between two partners, as a share of all ranks")
    ] = 0.05
    top: Annotated[
        Share, Field(lt=0.5, description="share of the largest values that become their mean instead of being swapped")
    ] = 0.0
    bottom: Annotated[
        Share, Field(lt=0.5, description="share of the smallest values that become their mean instead of being swapped")
    ] = 0.0

    def ranks(self, records: int) -> int:
        """Return the window in ranks, at least one unless the window is 0."""
        # Round before truncating: 0.29 × 100 must be 29 and not 28.999…
        return max(1, int(round(self.window * records, 6))) if self.window else 0


class NoiseSpec(AttributesSpec):
    """Add normally distributed noise. Dates move by whole days.

    ``additive`` noise is independent from attribute to attribute: means stay, variances grow by the factor 1 + size²,
    correlations shrink. ``correlated`` noise has the correlations of the data: means and correlations stay, and the
    whole covariance matrix grows by the factor 1 + size² (Kim 1986). All this in expectation.
    """

    method: ClassVar[str] = "noise"

    attributes: Numbers
    size: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            allow_inf_nan=False,
            description="standard deviation of the noise, as a multiple of the data's",
        ),
    ] = 0.1
    kind: Annotated[
        Literal["additive", "correlated"],
        Field(description="additive: independent for each attribute; correlated: with the data's correlations"),
    ] = "additive"
    days: Annotated[
        float | None,
        Field(
            gt=0,
            le=36_525,
            allow_inf_nan=False,
            description="standard deviation of the noise of dates, in days, instead of `size`",
        ),
    ] = None
    decimals: Decimals = None

    @property
    def treats_together(self) -> bool:
        """True if the noise has the correlations of the data."""
        return self.kind == "correlated"


class MicroaggregationSpec(AttributesSpec):
    """Replace values by the mean of a group of at least ``k`` similar records; dates by the nearest day to it."""

    method: ClassVar[str] = "microaggregation"

    attributes: Numbers
    k: Annotated[int, Field(ge=1, le=1_000_000, description="minimum number of records in a group")] = 3
    groups: Annotated[
        Literal["mdav", "univariate"],
        Field(description="mdav: one grouping by all attributes together; univariate: each attribute on its own"),
    ] = "mdav"
    decimals: Decimals = None

    @property
    def treats_together(self) -> bool:
        """True if one grouping serves all attributes."""
        return self.groups == "mdav"


class TopBottomSpec(AttributesSpec):
    """Cut off the largest and smallest values, by a bound or by the share of records beyond it.

    ``top`` and ``bottom`` are bounds of numbers, ``latest`` and ``earliest`` of dates; shares apply to both.
    """

    method: ClassVar[str] = "top_bottom"

    attributes: Numbers
    top: Annotated[float | None, Field(allow_inf_nan=False, description="values above this bound are cut off")] = None
    bottom: Annotated[float | None, Field(allow_inf_nan=False, description="values below this bound are cut off")] = (
        None
    )
    latest: Annotated[IsoDate | None, Field(description="dates after this one are cut off")] = None
    earliest: Annotated[IsoDate | None, Field(description="dates before this one are cut off")] = None
    top_share: Annotated[Share, Field(lt=1, description="maximum share of the largest values to cut off")] = 0.0
    bottom_share: Annotated[Share, Field(lt=1, description="maximum share of the smallest values to cut off")] = 0.0
    replace_by: Annotated[
        Literal["bound", "mean"],
        Field(description="bound: the bound itself; mean: the mean of the values cut off, which keeps the total"),
    ] = "bound"
    decimals: Decimals = None

    @model_validator(mode="after")
    def _check_consistency(self) -> TopBottomSpec:
        high, low = (self.top, self.latest), (self.bottom, self.earliest)
        if not self.top_share and not self.bottom_share and all(bound is None for bound in (*high, *low)):
            raise ValueError("nothing would be cut off: give top, bottom, latest, earliest, top_share or bottom_share")
        if (self.top_share and high != (None, None)) or (self.bottom_share and low != (None, None)):
            raise ValueError("give a bound or a share, not both for the same end")
        if self.top is not None and self.bottom is not None and self.bottom >= self.top:
            raise ValueError("the bottom is not below the top")
        if self.latest is not None and self.earliest is not None and self.earliest >= self.latest:
            raise ValueError("the earliest date is not before the latest")
        if self.top_share + self.bottom_share >= 1:
            raise ValueError("the two shares leave no record between them")
        return self


class PramSpec(AttributesSpec):
    """Post-randomisation: keep a value with probability ``keep``, else redraw it from those of the file.

    Within each combination of ``within`` a category k with share t(k) becomes l with probability
    keep·1[k = l] + (1 − keep)·t(l). This matrix leaves t invariant, so margins are kept in expectation.
    """

    method: ClassVar[str] = "pram"

    attributes: Annotated[Attributes, Field(json_schema_extra=takes(*CATEGORIES))]
    keep: Annotated[Share, Field(description="probability of keeping a value; otherwise it is redrawn")] = 0.8
    within: Annotated[
        Names,
        Field(
            description="redraw within each combination of these attributes, which keeps the joint margin",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> PramSpec:
        refuse_repeats(self, "within")
        both = sorted(set(self.within) & set(self.attributes))
        if both:
            raise ValueError(f"{both[0]!r} cannot be changed and kept")
        return self


CHANCE = 1e-12
"""Probability with which chance alone may break a promise that holds in expectation."""


@dataclass(frozen=True)
class RanksNear(Invariant):
    """No value was exchanged with one more than ``ranks`` ranks away."""

    attribute: str
    ranks: int

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        return f"Values of {self.attribute} were exchanged over at most {self.ranks:,} ranks."

    def problem(self, evidence: Evidence) -> str:
        """Report the pairs further apart, counting equal values as near as possible."""
        values = ordered_numbers(evidence.before, self.attribute)
        ordered = np.sort(values[~np.isnan(values)])
        far = 0
        for exchange in evidence.audit.exchanges:
            if self.attribute in exchange.attributes:
                ends = np.sort(values[exchange.pairs], axis=1)
                apart = np.searchsorted(ordered, ends[:, 1]) - (np.searchsorted(ordered, ends[:, 0], side="right") - 1)
                far += int(np.count_nonzero(~(apart <= self.ranks)))
        return f"{plural(far, 'pair is', 'pairs are')} further apart in the ranks of {self.attribute}" if far else ""


@dataclass(frozen=True)
class AddedNoise(Invariant):
    """The noise in two attributes (or in one, named twice) has mean 0 and the requested variances and correlation.

    The sum and the difference of the two standardised deviates have the variances 2 ± 2·correlation, which are tested
    by their chi-squared distribution.
    """

    first: str
    second: str
    deviations: tuple[float, float]
    correlation: float
    rounding: tuple[float, float]

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        if self.first == self.second:
            return f"The noise in {self.first} has mean 0 and the requested variance, up to chance."
        return f"The noise in {self.first} and {self.second} has the requested correlation."

    def problem(self, evidence: Evidence) -> str:
        """Report the moment that fails."""
        parts, slack = [], 0.0
        for name, deviation, unit in zip((self.first, self.second), self.deviations, self.rounding, strict=True):
            before, after = (finite_numbers(data, name) for data in (evidence.before, evidence.after))
            slack += (unit + 1e-6 * float(np.abs(before[~np.isnan(before)]).max(initial=0.0))) / deviation
            parts.append((after - before) / deviation)
        names = self.first if self.first == self.second else f"{self.first} and {self.second} together"
        for sign in (1.0,) if self.first == self.second else (1.0, -1.0):
            added = parts[0] + sign * parts[1]
            deviation = sqrt(max(0.0, 2.0 + 2.0 * sign * self.correlation))
            if wrong := _find_implausible(added[~np.isnan(added)], deviation, slack):
                return f"the {wrong} of the noise in {names} is not as requested"
        return ""


def _find_implausible(added: Floats, deviation: float, slack: float) -> str:
    """Name the moment that normal deviates with this deviation would not have; ``slack`` allows for rounding."""
    if not len(added):
        return ""
    # A normal mean exceeds 7.2 standard errors once in 10¹² cases.
    if abs(moments.mean(added)) > 7.2 * deviation / sqrt(len(added)) + slack:
        return "mean"
    low, high = _plausible_scale(len(added))
    root_mean_square = float(np.sqrt(np.mean(added**2)))
    return "" if deviation * low - slack <= root_mean_square <= deviation * high + slack else "variance"


def _plausible_scale(number: int) -> tuple[float, float]:
    from scipy.stats import chi2

    return sqrt(chi2.ppf(CHANCE, number) / number), sqrt(chi2.isf(CHANCE, number) / number)


@dataclass(frozen=True)
class GroupsOfAtLeast(AttributesPromise):
    """Every combination of values of these attributes occurs in at least k records."""

    is_about_result: ClassVar[bool] = True

    k: int

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        names = join_names(self.attributes)
        return f"Every value of {names} that occurs in the file occurs in at least {plural(self.k, 'record')}."

    def problem(self, evidence: Evidence) -> str:
        """Report the number of groups that are too small, without records with a missing value."""
        complete = pa.array(_complete_rows(evidence.before, self.attributes))
        after = (to_bits(evidence.after.table.column(name).filter(complete)) for name in self.attributes)
        counts = np.bincount(number_cells([as_codes(column, column)[0] for column in after]))
        small = int(np.count_nonzero((counts > 0) & (counts < self.k)))
        by = join_names(self.attributes)
        found = plural(small, f"group by {by} has", f"groups by {by} have")
        return f"{found} fewer than {plural(self.k, 'record')}" if small else ""


@dataclass(frozen=True)
class KeptMean(AttributePromise):
    """The mean is unchanged up to the rounding of the values."""

    rounding: float

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        return f"The mean of {self.attribute} is unchanged, except for rounding."

    def problem(self, evidence: Evidence) -> str:
        """Report a mean that moved by more than a unit of the last decimal."""
        before, after = (finite_numbers(data, self.attribute) for data in (evidence.before, evidence.after))
        known = ~np.isnan(before)
        slack = self.rounding + 1e-6 * float(np.abs(before[known]).max(initial=0.0))
        moved = abs(moments.mean(after[known]) - moments.mean(before[known]))
        return "" if moved <= slack else f"the mean of {self.attribute} has moved"


@dataclass(frozen=True)
class WithinBounds(AttributePromise):
    """No value lies beyond the bounds, and values within them are unchanged."""

    low: float
    high: float
    limits: tuple[float, float]

    @property
    def sentence(self) -> str:
        """The promise in plain words: it says which end has a bound, not where the bound is."""
        told = {(False, True): "Large values", (True, False): "Small values"}
        cut = told.get((bool(np.isfinite(self.low)), bool(np.isfinite(self.high))), "Large and small values")
        return f"{cut} of {self.attribute} are cut off; all others are unchanged."

    def problem(self, evidence: Evidence) -> str:
        """Report records beyond the bounds or changed needlessly. ``limits`` replace the values cut off."""
        before, after = (finite_numbers(data, self.attribute) for data in (evidence.before, evidence.after))
        least, most = min(self.low, self.limits[0]), max(self.high, self.limits[1])
        beyond = int(np.count_nonzero((after < least) | (after > most)))
        if beyond:
            return f"{plural(beyond, 'record lies', 'records lie')} beyond the bounds of {self.attribute}"
        within = (before >= self.low) & (before <= self.high)
        moved = int(np.count_nonzero(within & (after != before)))
        inside = f"within the bounds of {self.attribute}"
        return plural(moved, f"record {inside} has changed", f"records {inside} have changed") if moved else ""


@dataclass(frozen=True)
class ExpectedMargin(AttributesPromise):
    """The counts by these attributes differ from those before by no more than the draw explains (Bernstein bound)."""

    keep: float

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        return f"The counts by {join_names(self.attributes)} are unchanged in expectation."

    def problem(self, evidence: Evidence) -> str:
        """Report the cells that changed by more than chance explains."""
        before, after = _count_cells(evidence, self.attributes)
        # A record enters or leaves a cell with probability at most (1 − keep)·share, so the variance of a count is at
        # most 2·(1 − keep)·count: in expectation as many records leave as enter.
        variance = 2.0 * (1.0 - self.keep) * before
        t = log(2.0 / CHANCE)
        bound = t / 3.0 + np.sqrt((t / 3.0) ** 2 + 2.0 * t * variance)
        moved = int(np.count_nonzero(np.abs(after - before) > bound))
        return (
            f"{plural(moved, 'cell')} by {join_names(self.attributes)} moved by more than chance explains"
            if moved
            else ""
        )


@dataclass(frozen=True)
class MissingStays(AttributesPromise):
    """Exactly the values that were missing are missing."""

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        return f"Missing values of {join_names(self.attributes)} are where they were."

    def problem(self, evidence: Evidence) -> str:
        """Report the attributes for which this fails."""
        bad = []
        for name in self.attributes:
            # NaN is a missing number, but a category like any other.
            numeric = not evidence.before.schema[name].kind.is_categorical
            columns = (data.table.column(name) for data in (evidence.before, evidence.after))
            if flag_changes(*(column.is_null(nan_is_null=numeric) for column in columns)).any():
                bad.append(name)
        return f"values of {' and '.join(bad)} became missing, or reappeared" if bad else ""


def _complete_rows(data: Microdata, names: Names) -> npt.NDArray[np.bool_]:
    missing = [_flag_missing(data, name) for name in names]
    return ~np.asarray(np.any(missing, axis=0))


def _flag_missing(data: Microdata, name: str) -> npt.NDArray[np.bool_]:
    """Flag missing numbers and dates; of a column that a later step has made categories, missing values."""
    kind = data.schema[name].kind
    if kind.is_numeric or kind is Kind.DATE:
        return np.isnan(finite_numbers(data, name))
    return np.asarray(data.table.column(name).is_null().to_numpy())


def _count_cells(evidence: Evidence, names: Names) -> tuple[Floats, Floats]:
    """Count before and after, over the cells that occur in either."""
    sides = []
    for data in (evidence.before, evidence.after):
        columns = {f"c{i}": decode_dictionary(data.table.column(name)) for i, name in enumerate(names)}
        sides.append(pa.table(columns))
    sign = np.repeat(np.array([0, 1], dtype=np.int8), len(evidence.before))
    both = pa.concat_tables(sides).append_column("after", pa.array(sign))
    counted = both.group_by(sides[0].column_names, use_threads=False).aggregate([("after", "sum"), ([], "count_all")])
    after = counted["after_sum"].to_numpy().astype(np.float64)
    return counted["count_all"].to_numpy() - after, after
