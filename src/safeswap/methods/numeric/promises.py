"""What methods that change numbers promise of their result, checked on the result.

::

    RanksNear          values moved no further than so many ranks
    AddedNoise         what was added has the moments that were asked for
    GroupsOfAtLeast    every value stands for at least k records
    KeptMean           the mean is as before, but for rounding
    WithinBounds       nothing lies beyond the bounds
    ExpectedMargin     counts are as before, but for the draw of post-randomisation

Draws can be unlucky: what holds in expectation is checked at a level that chance reaches once in 10¹² files.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import moments
from safeswap.arrays.types import Floats, Names
from safeswap.model.columns import different
from safeswap.model.invariant import Evidence, Invariant
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers, ordered_numbers

CHANCE = 1e-12
"""How seldom chance alone may break a promise that holds in expectation."""


@dataclass(frozen=True)
class RanksNear(Invariant):
    """No value was exchanged with one that is more than so many ranks away."""

    attribute: str
    ranks: int

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"Values of {self.attribute} were exchanged over at most {self.ranks:,} ranks."

    def problem(self, evidence: Evidence) -> str:
        """The number of pairs further apart, equal values taken as near as they can be."""
        values = ordered_numbers(evidence.before, self.attribute)
        ordered = np.sort(values[~np.isnan(values)])
        far = 0
        for exchange in evidence.audit.exchanges:
            if self.attribute in exchange.attributes:
                ends = np.sort(values[exchange.pairs], axis=1)
                apart = np.searchsorted(ordered, ends[:, 1]) - (np.searchsorted(ordered, ends[:, 0], side="right") - 1)
                far += int(np.count_nonzero(~(apart <= self.ranks)))
        return f"{far:,} pairs are further apart in the ranks of {self.attribute}" if far else ""


@dataclass(frozen=True)
class AddedNoise(Invariant):
    """What was added to two attributes (or to one, named twice) has mean 0 and the variances that were asked for.

    The sum and the difference of the two deviates, each in its own standard deviation, have the variances
    2 ± 2·correlation, which are compared by the distribution that they have (chi squared).
    """

    first: str
    second: str
    deviations: tuple[float, float]
    correlation: float
    rounding: tuple[float, float]

    @property
    def sentence(self) -> str:
        """What is promised."""
        if self.first == self.second:
            return f"The noise in {self.first} has mean 0 and the variance that was asked for, as far as chance allows."
        return f"The noise in {self.first} and {self.second} has the correlation that was asked for."

    def problem(self, evidence: Evidence) -> str:
        """How the moments fail."""
        parts, slack = [], 0.0
        for name, deviation, unit in zip((self.first, self.second), self.deviations, self.rounding, strict=True):
            before, after = (finite_numbers(data, name) for data in (evidence.before, evidence.after))
            slack += (unit + 1e-6 * float(np.abs(before[~np.isnan(before)]).max(initial=0.0))) / deviation
            parts.append((after - before) / deviation)
        names = self.first if self.first == self.second else f"{self.first} and {self.second} together"
        for sign in (1.0,) if self.first == self.second else (1.0, -1.0):
            added = parts[0] + sign * parts[1]
            deviation = sqrt(max(0.0, 2.0 + 2.0 * sign * self.correlation))
            if wrong := _implausible(added[~np.isnan(added)], deviation, slack):
                return f"the {wrong} of the noise in {names} is not what was asked for"
        return ""


def _implausible(added: Floats, deviation: float, slack: float) -> str:
    """Which moment is not that of normal deviates with this deviation; ``slack`` is what rounding may add."""
    if not len(added):
        return ""
    # A normal mean is beyond 7.2 standard errors once in 10¹² cases.
    if abs(moments.mean(added)) > 7.2 * deviation / sqrt(len(added)) + slack:
        return "mean"
    low, high = _plausible_scale(len(added))
    root_mean_square = float(np.sqrt(np.mean(added**2)))
    return "" if deviation * low - slack <= root_mean_square <= deviation * high + slack else "variance"


def _plausible_scale(number: int) -> tuple[float, float]:
    from scipy.stats import chi2

    return sqrt(chi2.ppf(CHANCE, number) / number), sqrt(chi2.isf(CHANCE, number) / number)


@dataclass(frozen=True)
class GroupsOfAtLeast(Invariant):
    """Every combination of values of these attributes occurs in at least k records."""

    attributes: Names
    k: int

    @property
    def sentence(self) -> str:
        """What is promised."""
        names = " and ".join(self.attributes)
        return f"Every value of {names} that occurs in the file occurs in at least {self.k:,} records."

    def problem(self, evidence: Evidence) -> str:
        """The number of groups that are too small, records with a missing value left out."""
        complete = _complete(evidence.before, self.attributes)
        table = pa.table({f"c{i}": evidence.after.table.column(name) for i, name in enumerate(self.attributes)})
        counts = table.filter(pa.array(complete)).group_by(table.column_names).aggregate([([], "count_all")])
        small = int(np.count_nonzero(counts["count_all"].to_numpy() < self.k))
        return (
            f"{small:,} groups by {' and '.join(self.attributes)} have fewer than {self.k:,} records" if small else ""
        )

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same for those of the attributes that are released: a coarser grouping has larger groups."""
        left = tuple(name for name in self.attributes if name in names)
        return GroupsOfAtLeast(left, self.k) if left else None


@dataclass(frozen=True)
class KeptMean(Invariant):
    """The mean is as before, but for the rounding of the values."""

    attribute: str
    rounding: float

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"The mean of {self.attribute} is as before, but for rounding."

    def problem(self, evidence: Evidence) -> str:
        """Whether it moved by more than a unit of the last decimal."""
        before, after = (finite_numbers(data, self.attribute) for data in (evidence.before, evidence.after))
        known = ~np.isnan(before)
        slack = self.rounding + 1e-6 * float(np.abs(before[known]).max(initial=0.0))
        moved = abs(moments.mean(after[known]) - moments.mean(before[known]))
        return "" if moved <= slack else f"the mean of {self.attribute} has moved"

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same, where the attribute is released."""
        return self if self.attribute in names else None


@dataclass(frozen=True)
class WithinBounds(Invariant):
    """No value lies beyond the bounds, and values that lay within them are as before."""

    attribute: str
    low: float
    high: float
    limits: tuple[float, float]

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"Large and small values of {self.attribute} are cut off; all others are unchanged."

    def problem(self, evidence: Evidence) -> str:
        """The number of records beyond, or changed without need. ``limits`` are what stands for the values cut off."""
        before, after = (finite_numbers(data, self.attribute) for data in (evidence.before, evidence.after))
        least, most = min(self.low, self.limits[0]), max(self.high, self.limits[1])
        beyond = int(np.count_nonzero((after < least) | (after > most)))
        if beyond:
            return f"{beyond:,} records lie beyond the bounds of {self.attribute}"
        within = (before >= self.low) & (before <= self.high)
        moved = int(np.count_nonzero(within & (after != before)))
        return f"{moved:,} records within the bounds of {self.attribute} have changed" if moved else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same, where the attribute is released."""
        return self if self.attribute in names else None


@dataclass(frozen=True)
class ExpectedMargin(Invariant):
    """The counts by these attributes differ from those before by no more than the draw explains (Bernstein)."""

    attributes: Names
    keep: float

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"The counts by {' and '.join(self.attributes)} are as before in expectation."

    def problem(self, evidence: Evidence) -> str:
        """The number of cells that moved by more than chance moves them."""
        before, after = _counts(evidence, self.attributes)
        # A record enters or leaves a cell with probability at most (1 − keep)·share, so the variance of a count is at
        # most 2·(1 − keep)·count: those that may leave and those that may come are equally many in expectation.
        variance = 2.0 * (1.0 - self.keep) * before
        t = log(2.0 / CHANCE)
        bound = t / 3.0 + np.sqrt((t / 3.0) ** 2 + 2.0 * t * variance)
        moved = int(np.count_nonzero(np.abs(after - before) > bound))
        return (
            f"{moved:,} cells by {' and '.join(self.attributes)} moved by more than chance moves them" if moved else ""
        )

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same for those of the attributes that are released."""
        left = tuple(name for name in self.attributes if name in names)
        return ExpectedMargin(left, self.keep) if left else None


@dataclass(frozen=True)
class MissingStays(Invariant):
    """What was missing is missing, and nothing else is."""

    attributes: Names

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"Missing values of {' and '.join(self.attributes)} are where they were."

    def problem(self, evidence: Evidence) -> str:
        """The attributes for which that is not so."""
        bad = []
        for name in self.attributes:
            # Not a number is a missing number, but a category like any other.
            numeric = not evidence.before.schema[name].kind.is_categorical
            columns = (data.table.column(name) for data in (evidence.before, evidence.after))
            if different(*(column.is_null(nan_is_null=numeric) for column in columns)).any():
                bad.append(name)
        return f"values of {' and '.join(bad)} have gone missing, or come back" if bad else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same for those of the attributes that are released."""
        left = tuple(name for name in self.attributes if name in names)
        return MissingStays(left) if left else None


def _complete(data: Microdata, names: Names) -> npt.NDArray[np.bool_]:
    missing = np.isnan([finite_numbers(data, name) for name in names])
    return ~np.asarray(missing.any(axis=0))


def _counts(evidence: Evidence, names: Names) -> tuple[Floats, Floats]:
    """Counts before and after, over the cells that occur in either."""
    sides = []
    for data in (evidence.before, evidence.after):
        columns = {f"c{i}": _plain(data.table.column(name)) for i, name in enumerate(names)}
        sides.append(pa.table(columns))
    sign = np.repeat(np.array([0, 1], dtype=np.int8), len(evidence.before))
    both = pa.concat_tables(sides).append_column("after", pa.array(sign))
    counted = both.group_by(sides[0].column_names).aggregate([("after", "sum"), ([], "count_all")])
    after = counted["after_sum"].to_numpy().astype(np.float64)
    return counted["count_all"].to_numpy() - after, after


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
