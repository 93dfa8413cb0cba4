"""What each kind of step makes of a value: pure rules on texts, without files and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.errors import InfeasibleError, SpecError
from safeswap.model import range_breaks
from safeswap.model.hierarchy import Hierarchy
from safeswap.model.recode_steps import (
    Blank,
    ByHierarchy,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
)
from safeswap.model.schema import Attribute, Kind

Targets = dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Values:
    """The values of an attribute as texts, in their order, with the number of records that have each."""

    attribute: Attribute
    counts: Mapping[str, int]

    @property
    def texts(self) -> tuple[str, ...]:
        """All values, codes for missing ones included."""
        return tuple(self.counts)

    @property
    def known(self) -> tuple[str, ...]:
        """All values that do not stand for a missing one."""
        absent = self.absent
        return tuple(text for text in self.counts if text not in absent)

    @property
    def absent(self) -> frozenset[str]:
        """Codes that stand for a missing value; among numbers, "not a number" is one."""
        numeric = self.attribute.kind in (Kind.NUMERIC, Kind.WEIGHT)
        return frozenset((*self.attribute.missing, "nan") if numeric else self.attribute.missing)


def targets(step: Step, values: Values) -> Targets:
    """What each value becomes, None for missing; values that the step says nothing about are left out.

    >>> town = Values(attribute=Attribute(name="NACE"), counts={"4711": 3, "4719": 1, "5": 1})
    >>> targets(Truncate(attribute="NACE", characters=2), town)
    {'4711': '47', '4719': '47'}
    """
    absent = values.absent
    found: Targets = {text: text for text in values.texts if text in absent}
    if "nan" in found and isinstance(step, Ranges | GlobalRecode) and "nan" not in values.attribute.missing:
        found["nan"] = None  # among categories it would be one
    for kind, rule in _RULES.items():
        if isinstance(step, kind):
            found.update(rule(step, values))
            break
    otherwise = getattr(step, "otherwise", "error")
    if otherwise != "error":
        for text in values.texts:
            found.setdefault(text, text if otherwise == "keep" else None)
    return found


def pinned_ranges(step: Ranges, values: Values) -> Ranges:
    """The same ranges by their breaks and labels, which no longer depend on the data.

    >>> age = Values(attribute=Attribute(name="Age", kind="numeric"), counts={"1": 5, "2": 1, "3": 1, "4": 3})
    >>> pinned_ranges(Ranges(attribute="Age", equal_count=2), age).labels
    ('<2', '>=2')
    """
    known = values.known
    counts = np.array([values.counts[text] for text in known], dtype=np.int64)
    numbers = numbers_of(values, known)
    return pinned_to(step, numbers[counts > 0], counts[counts > 0])


def pinned_to(step: Ranges, numbers: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Ranges:
    """The ranges by their breaks and labels, from the numbers that occur and how often each does."""
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
            f"the values of {step.attribute!r} make {len(breaks) + 1} ranges, {len(step.labels)} labels are stated",
            code="labels-and-ranges",
            hint="state breaks, or leave the labels out",
            attribute=step.attribute,
        )
    whole = bool((numbers == np.floor(numbers)).all())
    labels = step.labels or range_breaks.labels(breaks, whole=whole, closed=step.closed)
    return Ranges(attribute=step.attribute, breaks=breaks, labels=labels, closed=step.closed)


def numbers_of(values: Values, texts: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Values as numbers; refused where one is none."""
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
        return range_breaks.equal_width(numbers, step.equal_width)
    return range_breaks.equal_count(numbers, counts, step.equal_count or 2, closed=step.closed)


def _recode(step: Recode, values: Values) -> Targets:
    target = step.target
    return {text: target[text] for text in values.texts if text in target}


def _global_recode(step: GlobalRecode, values: Values) -> Targets:
    found: Targets = dict(zip(values.attribute.missing, step.missing, strict=False))
    for text in values.known:
        span = next((span for span in step.spans if span.holds(text)), None)
        if span is not None:
            found[text] = span.to
    return found


def _ranges(step: Ranges, values: Values) -> Targets:
    places = range_breaks.places(numbers_of(values, values.known), step.breaks, closed=step.closed)
    return {text: step.labels[place] for text, place in zip(values.known, places.tolist(), strict=True)}


def _hierarchy(step: ByHierarchy, values: Values) -> Targets:
    tree = step.tree or schema_tree(values.attribute)
    if step.level > tree.depth:
        raise SpecError(
            f"the hierarchy of {step.attribute!r} has {tree.depth} levels, {step.level} are asked for",
            code="hierarchy-too-shallow",
            hint=f"state a level of at most {tree.depth}",
            attribute=step.attribute,
        )
    codes = set(tree.codes)
    return {text: tree.at(text, level=step.level) for text in values.known if text in codes}


def schema_tree(attribute: Attribute) -> Hierarchy:
    """The tree that the schema gives an attribute."""
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
    if values.attribute.kind in (Kind.NUMERIC, Kind.WEIGHT) and (step.top_label or step.bottom_label):
        raise SpecError(
            f"{step.attribute!r} is numeric and takes no label",
            code="not-categorical",
            hint="use ranges with labels",
            attribute=step.attribute,
        )
    place = _by_level(step, values) or _by_number(step, values)
    low = -np.inf if step.bottom is None else place[step.bottom]
    high = np.inf if step.top is None else place[step.top]
    if low > high or (low == high and step.top is not None):
        raise SpecError(
            f"the bottom of {step.attribute!r} is not below the top",
            code="bad-spec",
            hint="exchange them",
            attribute=step.attribute,
        )
    top = step.top_label or step.top
    bottom = step.bottom_label or step.bottom
    found: Targets = {}
    for text in values.known:
        # A bound that has a label is called by it too: 80+ takes in 80.
        above = place[text] > high or (place[text] == high and step.top_label is not None)
        below = place[text] < low or (place[text] == low and step.bottom_label is not None)
        found[text] = top if above else bottom if below else text
    return found


def _by_level(step: TopBottomCode, values: Values) -> dict[str, float]:
    """The place of each level of an ordinal attribute whose levels include the bounds; else nothing."""
    bounds = [bound for bound in (step.top, step.bottom) if bound is not None]
    if values.attribute.kind is not Kind.ORDINAL or not all(bound in values.counts for bound in bounds):
        return {}
    return {text: float(place) for place, text in enumerate(values.known)}


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
            f"{step.attribute!r} has no order in which the bounds have a place",
            code="no-order",
            hint="describe it as ordinal and list its levels in order, or give bounds that are numbers",
            attribute=step.attribute,
        )
    texts = (*values.known, *bounds)
    return dict(zip(texts, numbers_of(values, texts).tolist(), strict=True))


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _round(step: Round, values: Values) -> Targets:
    numbers = numbers_of(values, values.known).tolist()
    return {
        text: range_breaks.text(range_breaks.rounded(number, step.base, step.how))
        for text, number in zip(values.known, numbers, strict=True)
    }


def _blank(step: Blank, values: Values) -> Iterator[tuple[str, str | None]]:
    chosen = set(step.values)
    return ((text, None if text in chosen or not chosen else text) for text in values.texts)


_RULES = {
    Recode: _recode,
    GlobalRecode: _global_recode,
    Ranges: _ranges,
    ByHierarchy: _hierarchy,
    Truncate: _truncate,
    TopBottomCode: _top_bottom,
    Round: _round,
    Blank: _blank,
}
