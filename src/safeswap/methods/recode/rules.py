"""The effect of each kind of step on a value: pure rules on texts, without files or records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Floats
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.recode.hierarchy import Hierarchy
from safeswap.methods.recode.steps import (
    Blank,
    ByHierarchy,
    DateBand,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
)
from safeswap.model.columns import not_a_date
from safeswap.model.dates import parse_date
from safeswap.model.schema import Attribute, Kind
from safeswap.model.text import plural

# Breaks derived from the data are round numbers between two values, never values: a label must not disclose one.

_CLOSE = 1e-6


def equal_width(values: Floats, number: int) -> tuple[float, ...]:
    """Return breaks of ``number`` ranges of equal width, rounded to two digits of the width.

    >>> equal_width(np.array([0.0, 37.3, 99.1]), 4)
    (25.0, 50.0, 74.0)
    """
    low, high = float(values.min()), float(values.max())
    width = (high - low) / number
    if width <= 0 or not isfinite(width):
        return ()
    digits = 1 - floor(log10(width))
    multiples = (round(low + i * width, digits) + 0.0 for i in range(1, number))
    return tuple(dict.fromkeys(each for each in multiples if low < each <= high))


def equal_count(values: Floats, counts: npt.NDArray[Any], number: int, *, closed: str = "left") -> tuple[float, ...]:
    """Return breaks of ``number`` ranges with about the same number of records; equal values stay together.

    A range may deviate by a fiftieth of its size if that gives a rounder break.

    >>> equal_count(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 1, 1, 3]), 3)
    (2.0, 4.0)
    >>> equal_count(np.arange(997.0, 2000.0), np.ones(1003), 4)
    (1250.0, 1500.0, 1750.0)
    """
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(counts[order])
    breaks: dict[float, None] = {}
    for i in range(1, number):
        # A cut after value `at` leaves below[at] records on its left; take the cut nearest to the i-th part.
        wanted, slack = below[-1] * i / number, below[-1] / number / 50
        at = int(np.argmin(np.abs(below - wanted)))
        first, last = np.searchsorted(below, [wanted - slack, wanted + slack])
        if at + 1 < len(values):
            first, last = min(int(first), at), max(min(int(last), len(values) - 1), at + 1)
            low, high = float(values[first]), float(values[last])
            breaks[roundest_between(low, high) if closed == "left" else 0.0 - roundest_between(-high, -low)] = None
    return tuple(sorted(breaks))


def roundest_between(low: float, high: float) -> float:
    """Return the number above ``low`` and at most ``high`` with the fewest digits.

    >>> pairs = (17.0, 18.0), (1234.5, 1987.1), (-0.37, 0.2), (0.12, 0.13)
    >>> tuple(roundest_between(low, high) for low, high in pairs)
    (18.0, 1900.0, 0.0, 0.13)
    """
    if low < 0 <= high:
        return 0.0
    size = floor(log10(max(abs(low), abs(high))))
    for power in range(size, size - 17, -1):
        unit = 10.0**power
        found = round(floor(round(high / unit, 9)) * unit, max(0, -power))
        if low < found <= high:
            return found + 0.0
    return high


def place_in_ranges(values: Floats, breaks: Sequence[float], *, closed: str = "left") -> npt.NDArray[np.int64]:
    """Return the index of each value's range: a break begins a range, or with ``closed="right"`` ends one.

    >>> place_in_ranges(np.array([19, 20, 65]), (20, 65)).tolist()
    [0, 1, 2]
    >>> place_in_ranges(np.array([20]), (20, 65), closed="right").tolist()
    [0]
    """
    return np.searchsorted(np.asarray(breaks, np.float64), values, side="right" if closed == "left" else "left")


def label_ranges(breaks: Sequence[float], *, whole: bool, closed: str = "left") -> tuple[str, ...]:
    """Label the ranges: by first and last value if all numbers are whole, else as intervals.

    >>> label_ranges((20, 65), whole=True), label_ranges((0.5,), whole=False)
    (('<20', '20-64', '>=65'), ('<0.5', '>=0.5'))
    >>> label_ranges((-5, 0, 1), whole=True), label_ranges((20, 65), whole=False, closed="right")
    (('<-5', '-5 to -1', '0', '>=1'), ('<=20', '(20, 65]', '>65'))
    """
    whole = whole and all(float(each).is_integer() for each in breaks)
    first, last = ("<", ">=") if closed == "left" else ("<=", ">")
    inner = []
    for low, high in pairwise(breaks):
        if whole:
            inner.append(_label_whole(*((low, high - 1) if closed == "left" else (low + 1, high))))
        else:
            inner.append(
                f"[{number_text(low)}, {number_text(high)})"
                if closed == "left"
                else f"({number_text(low)}, {number_text(high)}]"
            )
    return (f"{first}{number_text(breaks[0])}", *inner, f"{last}{number_text(breaks[-1])}") if breaks else ("all",)


def number_text(number: float) -> str:
    """Format a number, without a decimal point if it is whole.

    >>> number_text(65.0), number_text(0.5)
    ('65', '0.5')
    """
    return repr(float(number)).removesuffix(".0")


def round_to_multiple(value: float, base: float, how: str) -> float:
    """Round to a multiple of ``base``: nearest (halves away from zero), next below or next above.

    >>> asked = (12.5, 5, "nearest"), (-12.5, 5, "nearest"), (0.35, 0.1, "down"), (7, 5, "up")
    >>> tuple(round_to_multiple(*each) for each in asked)
    (15.0, -15.0, 0.3, 10.0)
    """
    parts = round(value / base, 9)
    if not isfinite(parts):  # the base is so small that the value is a multiple of it
        return value
    if how == "nearest":
        number = floor(abs(parts) + 0.5) * (1 if parts >= 0 else -1)
    else:
        number = floor(parts) if how == "down" else ceil(parts)
    return round(number * base, 9) + 0.0


def round_all(values: Floats, base: float, how: str) -> Floats:
    """Apply :func:`round_to_multiple` to all values at once.

    >>> round_all(np.array([12.5, -12.5, 0.3]), 5, "nearest").tolist()
    [15.0, -15.0, 0.0]
    """
    with np.errstate(over="ignore"):
        parts = values / base
    edges = parts - 0.5 if how == "nearest" else parts
    near = np.copysign(np.floor(np.abs(parts) + 0.5), parts)
    multiples = near if how == "nearest" else np.floor(parts) if how == "down" else np.ceil(parts)
    distinct, place = np.unique(multiples, return_inverse=True)
    found: Floats = np.array([round(each * base, 9) + 0.0 for each in distinct.tolist()])[place]
    # A value that may lie on an edge, up to floating-point error, is rounded individually.
    with np.errstate(invalid="ignore"):
        close = np.flatnonzero(~(np.abs(edges - np.rint(edges)) > _CLOSE))
    found[close] = [round_to_multiple(value, base, how) for value in values[close].tolist()]
    return found


def _label_whole(low: float, high: float) -> str:
    if low == high:
        return number_text(low)
    return f"{number_text(low)}-{number_text(high)}" if low >= 0 else f"{number_text(low)} to {number_text(high)}"


Targets = dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Values:
    """The values of an attribute as texts, in order, with the number of records of each."""

    attribute: Attribute
    counts: Mapping[str, int]

    @property
    def texts(self) -> tuple[str, ...]:
        """All values, including codes for missing ones."""
        return tuple(self.counts)

    @property
    def known(self) -> tuple[str, ...]:
        """All values except codes for missing ones."""
        absent = self.absent
        return tuple(text for text in self.counts if text not in absent)

    @property
    def absent(self) -> frozenset[str]:
        """Codes for a missing value; among numbers also "nan"."""
        numeric = self.attribute.kind in (Kind.NUMERIC, Kind.WEIGHT)
        return frozenset((*self.attribute.missing, "nan") if numeric else self.attribute.missing)


def map_values(step: Step, values: Values) -> Targets:
    """Return what each value becomes, None for missing; values that the step does not cover are omitted.

    >>> town = Values(attribute=Attribute(name="NACE"), counts={"4711": 3, "4719": 1, "5": 1})
    >>> map_values(Truncate(attribute="NACE", characters=2), town)
    {'4711': '47', '4719': '47'}
    """
    absent = values.absent
    found: Targets = {text: text for text in values.texts if text in absent}
    if "nan" in found and isinstance(step, Ranges | GlobalRecode) and "nan" not in values.attribute.missing:
        found["nan"] = None  # among categories it would be a value
    for kind, rule in _RULES.items():
        if isinstance(step, kind):
            found.update(rule(step, values))
            break
    otherwise = getattr(step, "otherwise", "error")
    if otherwise != "error":
        for text in values.texts:
            found.setdefault(text, text if otherwise == "keep" else None)
    return found


def pin_ranges(step: Ranges, values: Values) -> Ranges:
    """Return the same ranges with fixed breaks and labels, which no longer depend on the data.

    >>> age = Values(attribute=Attribute(name="Age", kind="numeric"), counts={"1": 5, "2": 1, "3": 1, "4": 3})
    >>> pin_ranges(Ranges(attribute="Age", equal_count=2), age).labels
    ('<2', '>=2')
    """
    known = values.known
    counts = np.array([values.counts[text] for text in known], dtype=np.int64)
    numbers = parse_numbers(values, known)
    return pin_to(step, numbers[counts > 0], counts[counts > 0])


def pin_to(step: Ranges, numbers: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Ranges:
    """Return the ranges with breaks and labels fixed from the numbers that occur and their counts."""
    breaks = step.breaks
    if not breaks:
        breaks = _breaks(step, numbers, counts)
        if not breaks:
            raise InfeasibleError(
                f"{step.attribute!r} has too few different values to be cut into ranges",
                code="constant-attribute",
                hint="leave it as it is, or state breaks",
                attribute=step.attribute,
            )
    if step.labels and len(step.labels) != len(breaks) + 1:
        raise InfeasibleError(
            f"the values of {step.attribute!r} make {plural(len(breaks) + 1, 'range')}, "
            f"{plural(len(step.labels), 'label is', 'labels are')} stated",
            code="labels-and-ranges",
            hint="state breaks, or omit the labels",
            attribute=step.attribute,
        )
    whole = bool((numbers == np.floor(numbers)).all())
    labels = step.labels or label_ranges(breaks, whole=whole, closed=step.closed)
    return Ranges(attribute=step.attribute, breaks=breaks, labels=labels, closed=step.closed)


def parse_numbers(values: Values, texts: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Parse values as numbers; refuse if one is not a number."""
    try:
        found = np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError:
        found = np.array([np.nan])
    if np.isfinite(found).all():
        return found
    raise SpecError(
        f"{values.attribute.name!r} does not hold numbers only",
        code="not-numeric",
        hint='recode it by a map or a hierarchy, or describe the codes that stand for "no answer"',
        attribute=values.attribute.name,
    )


def _breaks(step: Ranges, numbers: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> tuple[float, ...]:
    if not len(numbers):
        return ()
    if step.equal_width is not None:
        return equal_width(numbers, step.equal_width)
    return equal_count(numbers, counts, step.equal_count or 2, closed=step.closed)


def _recode(step: Recode, values: Values) -> Targets:
    target = step.target
    if step.others is not None:
        return {text: target.get(text, step.others) for text in values.texts if text in target or text in values.known}
    return {text: target[text] for text in values.texts if text in target}


def _global_recode(step: GlobalRecode, values: Values) -> Targets:
    found: Targets = dict(zip(values.attribute.missing, step.missing, strict=False))
    for text in values.known:
        span = next((span for span in step.spans if span.holds(text)), None)
        if span is not None:
            found[text] = span.to
    return found


def _ranges(step: Ranges, values: Values) -> Targets:
    places = place_in_ranges(parse_numbers(values, values.known), step.breaks, closed=step.closed)
    return {text: step.labels[place] for text, place in zip(values.known, places.tolist(), strict=True)}


def _date_band(step: DateBand, values: Values) -> Targets:
    """Band each date; dates after the one at which ages are taken are omitted."""
    days = parse_dates(values, values.known)
    if step.by == "quarter":
        return {text: f"{day.year:04d}-Q{(day.month + 2) // 3}" for text, day in days.items()}
    if step.by == "month":
        return {text: f"{day.year:04d}-{day.month:02d}" for text, day in days.items()}
    at = None if step.at is None else dt.date.fromisoformat(step.at)
    numbers = {text: day.year if at is None else completed_years(day, at) for text, day in days.items()}
    known = {text: number for text, number in numbers.items() if at is None or number >= 0}
    if not step.breaks:
        return {text: f"{number:04d}" if at is None else str(number) for text, number in known.items()}
    labels = band_labels(step)
    places = place_in_ranges(np.array(list(known.values()), dtype=np.float64), step.breaks)
    return {text: labels[place] for text, place in zip(known, places.tolist(), strict=True)}


def band_labels(step: DateBand) -> tuple[str, ...]:
    """Return the labels of ranges of years or ages, from low to high; empty if there are no ranges."""
    return step.labels or (label_ranges(step.breaks, whole=True) if step.breaks else ())


def completed_years(birth: dt.date, at: dt.date) -> int:
    """Return the age in completed years; negative before birth.

    >>> [completed_years(dt.date(2000, 2, 29), dt.date(2023, *day)) for day in ((2, 28), (3, 1))]
    [22, 23]
    """
    return at.year - birth.year - ((at.month, at.day) < (birth.month, birth.day))


def parse_dates(values: Values, texts: tuple[str, ...]) -> dict[str, dt.date]:
    """Parse values as dates; refuse if one is not a date."""
    days = {text: parse_date(text) for text in texts}
    known = {text: day for text, day in days.items() if day is not None}
    if len(known) < len(days):
        raise not_a_date(values.attribute.name)
    return known


def _hierarchy(step: ByHierarchy, values: Values) -> Targets:
    tree = step.tree or schema_tree(values.attribute)
    if step.level > tree.depth:
        raise SpecError(
            f"the hierarchy of {step.attribute!r} has {plural(tree.depth, 'level')}, {step.level} were requested",
            code="hierarchy-too-shallow",
            hint=f"state a level of at most {tree.depth}",
            attribute=step.attribute,
        )
    codes = set(tree.codes)
    return {text: tree.at(text, level=step.level) for text in values.known if text in codes}


def schema_tree(attribute: Attribute) -> Hierarchy:
    """Return an attribute's hierarchy from the schema."""
    if not attribute.hierarchy:
        raise SpecError(
            f"{attribute.name!r} has no hierarchy",
            code="no-hierarchy",
            hint="state parents or levels in the step, or a hierarchy in the schema",
            attribute=attribute.name,
        )
    return Hierarchy(steps=attribute.hierarchy)


def _truncate(step: Truncate, values: Values) -> Targets:
    fill = step.fill * step.characters
    return {text: text[: -step.characters] + fill for text in values.known if len(text) > step.characters}


def _top_bottom(step: TopBottomCode, values: Values) -> Targets:
    if values.attribute.kind.is_measurable and (step.top_label or step.bottom_label):
        raise SpecError(
            f"{step.attribute!r} is {values.attribute.kind.value} and takes no label",
            code="not-categorical",
            hint="use ranges with labels; for dates, date_band",
            attribute=step.attribute,
        )
    if values.attribute.kind is Kind.DATE:
        step = _as_stored(step, values)
    place = _by_level(step, values) or _by_date(step, values) or _by_number(step, values)
    low = -np.inf if step.bottom is None else place[step.bottom]
    high = np.inf if step.top is None else place[step.top]
    if low > high or (low == high and step.top is not None):
        raise SpecError(
            f"the bottom of {step.attribute!r} is not below the top",
            code="bad-spec",
            hint="swap them",
            attribute=step.attribute,
        )
    top = step.top_label or step.top
    bottom = step.bottom_label or step.bottom
    found: Targets = {}
    for text in values.known:
        # The label of a bound includes the bound itself: 80+ includes 80.
        above = place[text] > high or (place[text] == high and step.top_label is not None)
        below = place[text] < low or (place[text] == low and step.bottom_label is not None)
        found[text] = top if above else bottom if below else text
    return found


def _by_level(step: TopBottomCode, values: Values) -> dict[str, float]:
    """Return the position of each level of an ordinal attribute whose levels include the bounds; else nothing."""
    bounds = [bound for bound in (step.top, step.bottom) if bound is not None]
    if values.attribute.kind is not Kind.ORDINAL or not all(bound in values.counts for bound in bounds):
        return {}
    return {text: float(place) for place, text in enumerate(values.known)}


def _as_stored(step: TopBottomCode, values: Values) -> TopBottomCode:
    """Return the step with its bounds spelled as the dates of the column: timestamps have a time."""
    time = next((text[10:] for text in values.known), "")
    bounds = {end: f"{bound}{time}" for end in ("top", "bottom") if (bound := getattr(step, end)) is not None}
    return step.replace(**bounds)


def _by_date(step: TopBottomCode, values: Values) -> dict[str, float]:
    """Return the day of each date and bound; nothing if the attribute is not a date."""
    bounds = tuple(bound for bound in (step.top, step.bottom) if bound is not None)
    if values.attribute.kind is not Kind.DATE:
        return {}
    if any(parse_date(bound) is None for bound in bounds):
        raise SpecError(
            f"a bound of {step.attribute!r} is not a date",
            code="no-order",
            hint="give bounds such as 2024-02-29",
            attribute=step.attribute,
        )
    return {text: float(day.toordinal()) for text, day in parse_dates(values, (*values.known, *bounds)).items()}


def _by_number(step: TopBottomCode, values: Values) -> dict[str, float]:
    bounds = tuple(bound for bound in (step.top, step.bottom) if bound is not None)
    if values.attribute.kind is Kind.ORDINAL and not all(_is_number(text) for text in (*bounds, *values.known)):
        raise SpecError(
            f"a bound is not a level of {step.attribute!r}",
            code="unknown-level",
            hint="name one of its levels; safeswap describe lists them",
            attribute=step.attribute,
        )
    if not all(_is_number(bound) for bound in bounds):
        raise SpecError(
            f"{step.attribute!r} has no order to place the bounds in",
            code="no-order",
            hint="describe it as ordinal and list its levels in order, or give bounds that are numbers",
            attribute=step.attribute,
        )
    texts = (*values.known, *bounds)
    return dict(zip(texts, parse_numbers(values, texts).tolist(), strict=True))


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _round(step: Round, values: Values) -> Targets:
    numbers = parse_numbers(values, values.known).tolist()
    return {
        text: number_text(round_to_multiple(number, step.base, step.how))
        for text, number in zip(values.known, numbers, strict=True)
    }


def _blank(step: Blank, values: Values) -> Iterator[tuple[str, str | None]]:
    chosen = set(step.values)
    return ((text, None if text in chosen or not chosen else text) for text in values.texts)


_RULES = {
    Recode: _recode,
    GlobalRecode: _global_recode,
    Ranges: _ranges,
    DateBand: _date_band,
    ByHierarchy: _hierarchy,
    Truncate: _truncate,
    TopBottomCode: _top_bottom,
    Round: _round,
    Blank: _blank,
}
