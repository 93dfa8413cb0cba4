"""The steps that reduce detail in a file, each a frozen value that is validated when made.

::

    recode            map each value to a new one, or to the group that lists it
    global_recode     map spans of codes, as in an ARGUS recode file
    ranges            replace numbers by ranges
    hierarchy         replace codes by their ancestors in a tree
    truncate          remove the last characters of a code
    date_band         replace dates by year, quarter, month or age
    top_bottom_code   replace values beyond a bound by the bound
    round             round numbers to multiples of a base
    blank             set values to missing
    drop              remove whole attributes

Steps are deterministic: what a value becomes depends on that value and, for ranges of equal width or count, on how
often each value occurs. :func:`safeswap.methods.recode.apply.apply_step` applies a step.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.methods.recode.hierarchy import Hierarchy
from safeswap.model.spec import CATEGORIES, IsoDate, Stated, Strict, takes
from safeswap.model.text import list_names, plural

Otherwise = Annotated[
    Literal["error", "keep", "blank"],
    Field(description="values that the step does not cover: refuse them, keep them, or set them to missing"),
]
_FEW = 5
# A value or label of an attribute, as opposed to an attribute's name: forms use another control.
Value = Annotated[
    str,
    BeforeValidator(lambda given: given.isoformat() if type(given) is dt.date else given),  # TOML has its own dates
    Field(json_schema_extra={"format": "value"}),
]

Labels: TypeAlias = Mapping[str, Mapping[str, str]]
"""The labels of the levels, by attribute."""

AttributeName = Annotated[str, Field(min_length=1, description="the attribute to change")]
Category = Annotated[AttributeName, Field(json_schema_extra=takes(*CATEGORIES))]


class Step(Stated):
    """The base of all steps: its name, its description in plain words, and errors as :class:`SpecError`."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    step: str

    @classmethod
    def _name_in_errors(cls) -> str:
        return f"the {cls.model_fields['step'].default} step"

    @model_serializer(mode="wrap")
    def _add_name(self, handler: Any) -> dict[str, Any]:
        # The name is needed to restore the step, so it is written even if defaults are left out.
        return {"step": self.step, **handler(self)}

    @property
    def names(self) -> Names:
        """The attributes that the step changes."""
        return (self.attribute,) if hasattr(self, "attribute") else ()

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The step in plain words, without a value of a record."""

    def describe(self, labels: Labels) -> str:
        """Return the sentence with the labels of the levels that it names."""
        return self.sentence

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels that mean the same after the step."""
        return {name: known for name, known in labels.items() if name not in self.names}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which :func:`as_step` restores the step."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def replace(self, **values: Any) -> Self:
        """Return a validated copy with some settings changed."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **values})


class Recode(Step):
    """Map each value by ``map``, or to the name of the group in ``groups`` that lists it.

    All values that neither lists become ``others``, if it is given: rare values can join a group without being named.

    >>> Recode(attribute="Marital", groups={"alone": ["Single", "Widowed"]}, otherwise="keep").target
    {'Single': 'alone', 'Widowed': 'alone'}
    >>> Recode(attribute="Marital", map={"Married": "Married"}, others="other").sentence
    'recode Marital: Married to Married, all others to other'
    """

    step: Literal["recode"] = "recode"
    attribute: Category
    map: Annotated[dict[str, str], Field(description="the new value of each value")] = Field(default_factory=dict)
    groups: Annotated[dict[str, Names], Field(description="new values, each with the values it replaces")] = Field(
        default_factory=dict
    )
    otherwise: Otherwise = "error"
    others: Annotated[Value | None, Field(description="the new value of all values that are not listed")] = None

    @model_validator(mode="after")
    def _check_values(self) -> Recode:
        if not self.map and not self.groups:
            raise ValueError("give a map, or groups")
        if self.others is not None and self.otherwise != "error":
            raise ValueError("others covers every value: omit otherwise")
        stated = [*self.map, *(value for values in self.groups.values() for value in values)]
        twice = sorted({value for value in stated if stated.count(value) > 1}) if len(set(stated)) < len(stated) else []
        if twice:
            raise ValueError(f"{twice[0]!r} is recoded twice")
        return self

    @property
    def target(self) -> dict[str, str]:
        """The new value of each value."""
        return {**self.map, **{value: group for group, values in self.groups.items() for value in values}}

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return self.describe({})

    def describe(self, labels: Labels) -> str:
        """Return the sentence with the labels of the levels that it names.

        >>> step = Recode(attribute="Marital", groups={"alone": ["1", "4"]}, otherwise="keep")
        >>> step.describe({"Marital": {"1": "Single", "4": "Widowed"}})
        'recode Marital: Single, Widowed to alone, the others are kept'
        """
        known, news = labels.get(self.attribute, {}), set(self.target.values())
        rest = {"error": "", "keep": ", the others are kept", "blank": ", the others become missing"}[self.otherwise]
        if self.others is not None:
            rest = f", all others to {self.others}"
        if len(self.target) <= _FEW and len(news) == 1:
            named = list_names(_name_level(code, known) for code in self.target)
            return f"recode {self.attribute}: {named} to {news.pop()}{rest}"
        become = plural(len(self.target), "value becomes", "values become")
        return f"recode {self.attribute}: {become} {len(news):,}{rest}"

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels that mean the same after the step: a level that takes in others means something else."""
        known, made = labels.get(self.attribute, {}), {new for old, new in self.target.items() if old != new}
        news = {code: self.target.get(code, self.others or code) for code in known}
        kept = {code: word for code, word in known.items() if news[code] == code and code not in {*made, self.others}}
        return {**labels, self.attribute: kept}


def _name_level(code: str, known: Mapping[str, str]) -> str:
    """Return the label of a level, with its code where the label could mean another level."""
    word = known.get(code) or code
    is_clear = word == code or (list(known.values()).count(word) == 1 and word not in known)
    return word if is_clear else f"{word} ({code})"


class Span(Strict):
    """Codes from ``low`` to ``high``, both included; an omitted end is open."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    to: Value
    low: Value | None = None
    high: Value | None = None

    @model_validator(mode="after")
    def _check_ends(self) -> Span:
        if self.low is not None and self.high is not None and not _not_above(self.low, self.high):
            raise ValueError("a span ends before it begins")
        return self

    def holds(self, code: str) -> bool:
        """Return whether the code lies in the span.

        >>> Span(to="1", low="5", high="12").holds("10"), Span(to="1", high="B").holds("C")
        (True, False)
        """
        above = self.low is None or _not_above(self.low, code)
        return above and (self.high is None or _not_above(code, self.high))

    def meets(self, other: Span) -> bool:
        """Return whether the two spans overlap."""
        apart = self.low is not None and other.high is not None and not _not_above(self.low, other.high)
        return not apart and (other.low is None or self.high is None or _not_above(other.low, self.high))


class GlobalRecode(Step):
    """Replace spans of codes by new codes, as in an ARGUS recode file.

    Numbers are compared as numbers, other codes as right-aligned text. ``missing`` replaces the codes for "no answer",
    in their order.

    >>> GlobalRecode(attribute="Age", spans=[{"to": "1", "high": "30"}, {"to": "2", "low": "31"}]).sentence
    'recode Age: 2 spans of codes become 2'
    """

    step: Literal["global_recode"] = "global_recode"
    attribute: Annotated[AttributeName, Field(json_schema_extra=takes(*CATEGORIES, "numeric"))]
    spans: Annotated[tuple[Span, ...], Field(min_length=1, description="codes from low to high become `to`")]
    missing: Annotated[tuple[Value, ...], Field(description='new codes for "no answer"')] = ()
    labels: Annotated[dict[str, str], Field(description="what the new codes mean")] = Field(default_factory=dict)
    otherwise: Otherwise = "error"

    @model_validator(mode="after")
    def _check_spans(self) -> GlobalRecode:
        for i, span in enumerate(self.spans):
            for j, other in enumerate(self.spans[:i]):
                if span.meets(other):
                    raise ValueError(f"span {j + 1} and span {i + 1} overlap")
        return self

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        to = len({span.to for span in self.spans})
        become = plural(len(self.spans), "span of codes becomes", "spans of codes become")
        return f"recode {self.attribute}: {become} {to:,}"


def _check_ranges(breaks: tuple[float, ...], labels: tuple[str, ...], number: int | None = None) -> None:
    number = len(breaks) + 1 if number is None else number
    if any(not -inf < each < inf for each in breaks):
        raise ValueError("a break is not a number")
    if any(low >= high for low, high in pairwise(breaks)):
        raise ValueError("the breaks are not in ascending order")
    if labels and len(labels) != number:
        raise ValueError(f"{plural(len(labels), 'label is', 'labels are')} given for {plural(number, 'range')}")
    if len(set(labels)) < len(labels):
        raise ValueError("two ranges have the same label")


class Ranges(Step):
    """Replace numbers by ranges: cut at ``breaks``, or into a number of ranges of ``equal_width`` or ``equal_count``.

    The first and the last range are open, so that every number is in a range. With ``closed="left"`` a break is the
    first number of a range, with ``"right"`` the last one of the range before it.

    >>> Ranges(attribute="Age", breaks=[20, 65]).sentence
    'Age to 3 ranges'
    """

    step: Literal["ranges"] = "ranges"
    attribute: Annotated[AttributeName, Field(json_schema_extra=takes("numeric", "ordinal"))]
    breaks: Annotated[tuple[float, ...], Field(description="where ranges begin, in ascending order")] = ()
    equal_width: Annotated[int | None, Field(ge=2, le=10_000, description="number of ranges of equal width")] = None
    equal_count: Annotated[
        int | None, Field(ge=2, le=10_000, description="number of ranges with about equal numbers of records")
    ] = None
    closed: Annotated[Literal["left", "right"], Field(description="which end of a range belongs to it")] = "left"
    labels: Annotated[tuple[Value, ...], Field(description="names of the ranges, one more than breaks")] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Ranges:
        if bool(self.breaks) + (self.equal_width is not None) + (self.equal_count is not None) != 1:
            raise ValueError("give breaks, equal_width or equal_count, one of them")
        _check_ranges(self.breaks, self.labels, self.number)
        return self

    @property
    def number(self) -> int:
        """Number of ranges."""
        return self.equal_width or self.equal_count or len(self.breaks) + 1

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        how = " of equal width" if self.equal_width else " of equal count" if self.equal_count else ""
        return f"{self.attribute} to {plural(self.number, 'range')}{how}"


class DateBand(Step):
    """Replace dates by their year, quarter or month, or by the age in completed years on the date ``at``.

    Who was born on 29 February is a year older from 1 March in years without that day. Years and ages can be cut into
    ranges that begin at ``breaks``. Years, quarters, months and ranges are ordered categories, an age is a number.

    >>> DateBand(attribute="born", by="age", at="2024-06-30", breaks=[15, 65]).sentence
    'born to age on 2024-06-30 in 3 ranges'
    """

    step: Literal["date_band"] = "date_band"
    attribute: Annotated[AttributeName, Field(json_schema_extra=takes("date"))]
    by: Annotated[
        Literal["year", "quarter", "month", "age"], Field(description="what replaces a date; age needs `at`")
    ] = "year"
    at: Annotated[IsoDate | None, Field(description="the date on which ages are taken, such as 2024-06-30")] = None
    breaks: Annotated[
        tuple[float, ...], Field(description="where ranges of years or ages begin, in ascending order; none by default")
    ] = ()
    labels: Annotated[tuple[Value, ...], Field(description="names of the ranges, one more than breaks")] = ()
    otherwise: Annotated[
        Literal["error", "blank"], Field(description="dates after `at`: refuse them, or set them to missing")
    ] = "error"

    @model_validator(mode="after")
    def _check_consistency(self) -> DateBand:
        if (self.by == "age") != (self.at is not None):
            raise ValueError(
                "an age needs the date on which it is taken" if self.by == "age" else "at is for ages only"
            )
        if self.breaks and self.by not in ("year", "age"):
            raise ValueError("only years and ages can be cut into ranges")
        if any(not float(each).is_integer() for each in self.breaks):
            raise ValueError("a break must be a whole number")
        if self.labels and not self.breaks:
            raise ValueError("labels are for ranges: give breaks")
        _check_ranges(self.breaks, self.labels)
        return self

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        on = "" if self.at is None else f" on {self.at}"
        ranges = f" in {plural(len(self.breaks) + 1, 'range')}" if self.breaks else ""
        return f"{self.attribute} to {self.by}{on}{ranges}"


class ByHierarchy(Step):
    """Replace codes by those ``level`` steps above, in the tree given here or else in the schema's.

    >>> ByHierarchy(attribute="Town", level=1, parents={"Delft": "South", "Leiden": "South"}).tree.depth
    1
    """

    step: Literal["hierarchy"] = "hierarchy"
    attribute: Category
    level: Annotated[int, Field(ge=1, le=99, description="number of steps up the tree")] = 1
    parents: Annotated[dict[str, str], Field(description="the parent of each code; by default the schema's tree")] = (
        Field(default_factory=dict)
    )
    levels: Annotated[
        tuple[dict[str, str], ...], Field(description="instead of parents: one map per level, from fine to coarse")
    ] = ()
    otherwise: Otherwise = "error"

    @model_validator(mode="after")
    def _check_level(self) -> ByHierarchy:
        if self.parents and self.levels:
            raise ValueError("give parents or levels, not both")
        if (tree := self.tree) is not None and self.level > tree.depth:
            raise ValueError(f"level is {self.level}, the hierarchy has {tree.depth}")
        return self

    @property
    def tree(self) -> Hierarchy | None:
        """The tree given in the step, if any."""
        if self.levels:
            return Hierarchy(steps=self.levels)
        return Hierarchy.from_parents(self.parents) if self.parents else None

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return f"{self.attribute} {self.level} level{'s' if self.level > 1 else ''} up its hierarchy"


class Truncate(Step):
    """Remove the last ``characters`` of each code, or replace each of them by ``fill``.

    ``otherwise`` applies to codes with no more characters than these.
    """

    step: Literal["truncate"] = "truncate"
    attribute: Category
    characters: Annotated[int, Field(ge=1, le=1_000, description="number of characters to remove from the end")] = 1
    fill: Annotated[Value, Field(max_length=1, description="replacement for each removed character, e.g. *")] = ""
    otherwise: Otherwise = "error"

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        last = "character" if self.characters == 1 else f"{self.characters:,} characters"
        return f"{self.attribute} without its last {last}"


class TopBottomCode(Step):
    """Replace values above ``top`` by ``top`` and values below ``bottom`` by ``bottom``, or by their labels.

    For an ordinal attribute these are levels, for numbers they are numbers; numbers take no labels.
    """

    step: Literal["top_bottom_code"] = "top_bottom_code"
    attribute: Annotated[AttributeName, Field(json_schema_extra=takes("numeric", "ordinal"))]
    top: Annotated[
        Value | None, Field(description="the highest value to keep", json_schema_extra=takes(levels_of="attribute"))
    ] = None
    bottom: Annotated[
        Value | None, Field(description="the lowest value to keep", json_schema_extra=takes(levels_of="attribute"))
    ] = None
    top_label: Annotated[Value | None, Field(description="label for the top and all above it, e.g. 80+")] = None
    bottom_label: Annotated[Value | None, Field(description="label for the bottom and all below it")] = None

    @model_validator(mode="after")
    def _check_ends(self) -> TopBottomCode:
        if self.top is None and self.bottom is None:
            raise ValueError("give top or bottom")
        if (self.top_label is not None and self.top is None) or (self.bottom_label is not None and self.bottom is None):
            raise ValueError("a label goes with its bound")
        return self

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return self.describe({})

    def describe(self, labels: Labels) -> str:
        """Return the sentence with the labels of the levels that it names."""
        known, ends = labels.get(self.attribute, {}), (("at most", self.top), ("at least", self.bottom))
        told = (f"{words} {_name_level(end, known)}" for words, end in ends if end is not None)
        return f"{self.attribute} coded to {' and '.join(told)}"

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels that mean the same after the step: the ends take in other levels."""
        known = labels.get(self.attribute, {})
        return {**labels, self.attribute: {c: word for c, word in known.items() if c not in (self.top, self.bottom)}}


class Round(Step):
    """Round numbers to multiples of ``base``: the nearest (halves away from zero), the next below or above."""

    step: Literal["round"] = "round"
    attribute: Annotated[AttributeName, Field(json_schema_extra=takes("numeric"))]
    base: Annotated[float, Field(ge=1e-9, le=1e15, allow_inf_nan=False, description="e.g. 5, 1000 or 0.1")]
    how: Annotated[Literal["nearest", "down", "up"], Field(description="direction of rounding")] = "nearest"

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return (
            f"{self.attribute} rounded {'' if self.how == 'nearest' else self.how + ' '}to multiples of {self.base:g}"
        )


class Blank(Step):
    """Set these values to missing; without ``values``, all of them."""

    step: Literal["blank"] = "blank"
    attribute: AttributeName
    values: Annotated[
        tuple[Value, ...],
        Field(
            description="the values to set to missing; all by default", json_schema_extra=takes(levels_of="attribute")
        ),
    ] = ()

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        what = plural(len(self.values), "value") if self.values else "every value"
        return f"blank {what} of {self.attribute}"

    def surviving_labels(self, labels: Labels) -> Labels:
        """Return the labels: they mean the same."""
        return labels


class Drop(Step):
    """Remove attributes."""

    step: Literal["drop"] = "drop"
    attributes: Annotated[Names, Field(min_length=1, description="the attributes to remove")]

    @property
    def names(self) -> Names:
        """The attributes to remove."""
        return self.attributes

    @property
    def sentence(self) -> str:
        """The step in plain words."""
        return f"drop {list_names(self.attributes)}"


STEPS: dict[str, type[Step]] = {
    kind.model_fields["step"].default: kind
    for kind in (Recode, GlobalRecode, Ranges, DateBand, ByHierarchy, Truncate, TopBottomCode, Round, Blank, Drop)
}
"""Every step class by name."""

AnyStep = Annotated[
    Recode | GlobalRecode | Ranges | DateBand | ByHierarchy | Truncate | TopBottomCode | Round | Blank | Drop,
    Field(discriminator="step"),
]


def as_step(values: Any) -> Step:
    """Make a step from plain values; return a step as it is.

    >>> as_step({"step": "truncate", "attribute": "NACE", "characters": 2}).characters
    2
    """
    if isinstance(values, Step):
        return values
    name = values.get("step") if isinstance(values, Mapping) else None
    if not isinstance(name, str) or name not in STEPS:
        raise SpecError(
            "a step must name what it does" if name is None else "there is no such step",
            code="unknown-step",
            hint="the steps are: " + ", ".join(STEPS),
        )
    return STEPS[name](**{str(field): value for field, value in values.items()})


def _not_above(one: str, other: str) -> bool:
    """Return whether a code does not come after another: numbers as numbers, text right-aligned, as in ARGUS."""
    try:
        return float(one) <= float(other)
    except ValueError:
        width = max(len(one), len(other))
        return one.rjust(width) <= other.rjust(width)
