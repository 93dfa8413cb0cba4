"""Specifications: one frozen value per method, validated when made; and the plan that a method derives from one.

A plan comes from counts alone, before any record is touched.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import inf
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.dates import parse_date
from safeswap.model.text import plural


class Role(StrEnum):
    """The role of an attribute in a swap."""

    SWAP = "S"
    FIXED = "F"
    DIFFER = "D"
    OTHER = "O"


class Strict(BaseModel):
    """A frozen model without unknown fields that converts neither booleans nor text to numbers, nor the reverse.

    A model whose values are written as text (``takes_text``) reads numbers and truth values from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    takes_text: ClassVar[bool] = False

    # For the whole model: pydantic allows no such validator on the field by which members of a union are told apart.
    @model_validator(mode="wrap")
    @classmethod
    def _keeps_types(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        made = validate(values)
        wrong: list[InitErrorDetails] = []
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if cls.takes_text and isinstance(value, str):
                continue
            try:
                refuse_other_type(value, getattr(made, name))
            except ValueError as error:
                kind = PydanticCustomError("other_type", "{problem}", {"problem": str(error)})
                wrong.append({"type": kind, "loc": (name,), "input": value})
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return made


def refuse_other_type(given: Any, taken: Any) -> None:
    """Refuse what pydantic would convert: a boolean or text as a number, a number or text as a boolean.

    >>> refuse_other_type([1, 2.0], (1, 2))
    >>> refuse_other_type(True, 1)
    Traceback (most recent call last):
    ValueError: must be a number, not True or False
    """
    if given is taken:  # nothing was converted, nor in it: large tables need no second look
        return
    if isinstance(taken, bool):
        if not isinstance(given, bool):
            raise ValueError("must be True or False")
    elif isinstance(taken, (int, float)):
        if isinstance(given, bool):
            raise ValueError("must be a number, not True or False")
        if isinstance(given, (str, bytes)):
            raise ValueError("must be a number, not text")
    elif isinstance(given, Mapping) and isinstance(taken, Mapping):
        for one, other in zip(given.values(), taken.values(), strict=False):
            refuse_other_type(one, other)
    elif isinstance(given, (list, tuple)) and isinstance(taken, (list, tuple)):
        for one, other in zip(given, taken, strict=False):
            refuse_other_type(one, other)


def _check_date(value: Any) -> Any:
    """Return a date as ISO text; TOML has its own dates."""
    if type(value) is dt.date:
        return value.isoformat()
    if isinstance(value, str) and len(value) == len("2024-02-29") and parse_date(value) is not None:
        return value
    raise ValueError("must be a date such as 2024-02-29")


IsoDate = Annotated[str, BeforeValidator(_check_date), Field(json_schema_extra={"format": "date"})]
"""A date as text, such as 2024-02-29."""


CATEGORIES = ("nominal", "ordinal", "geography")
"""The kinds of attribute from which cells are formed."""


def takes(*kinds: str, ordered: bool = False, levels_of: str = "") -> Any:
    """Return what a form has to know of a field that names attributes, or levels of the one in another field.

    ``kinds`` are those of attributes that the field takes. In an ``ordered`` field the order of the names matters.
    """
    told = {"kinds": list(kinds) or None, "ordered": ordered or None, "levels_of": levels_of or None}
    return {name: value for name, value in told.items() if value is not None}


class Stated(Strict):
    """A strict model that refuses invalid values as :class:`SpecError`; ``called`` is its name in the message."""

    called: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error(self._name_in_errors(), error) from None

    @classmethod
    def _name_in_errors(cls) -> str:
        return cls.called


class MaskSpec(Stated):
    """The base of all specifications: frozen, no unknown fields, errors as :class:`SpecError`."""

    method: ClassVar[str]

    @classmethod
    def _name_in_errors(cls) -> str:
        return f"the {cls.method} specification"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values with the method's name; ``registry.make_spec`` restores the spec from them."""
        return {"method": self.method, **self.model_dump(mode="json", exclude_defaults=True)}

    def replace(self, **values: Any) -> Self:
        """Return a validated copy with some parameters changed."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **values})


def spec_error(title: str, error: ValidationError) -> SpecError:
    """Convert pydantic's report to an error with one plain sentence per problem."""
    problems = [
        (".".join(str(part) for part in item["loc"]), _describe_problem(item))
        for item in error.errors(include_url=False, include_context=False)
    ]
    text = "; ".join(f"{where}: {what}" if where else what for where, what in problems)
    return SpecError(
        f"{title} is not valid: {text}",
        code="bad-spec",
        hint="see the reference page of the method for its parameters",
        problems=[{"parameter": where, "problem": what} for where, what in problems],
    )


def _describe_problem(problem: Any) -> str:
    """Describe one problem without its value, except for two mistakes that involve only a name."""
    given = problem["input"]
    if problem["type"] == "tuple_type" and isinstance(given, str):
        return f"give a list, even of one: [{given!r}]"
    if problem["type"] == "string_type" and isinstance(given, int):
        return f"names are text, also those of numbered columns: write {str(given)!r}"
    text = str(problem["msg"]).removeprefix("Value error, ")
    for pydantic_words, plain in _PLAIN:
        text = text.replace(pydantic_words, plain)
    return text


_PLAIN = (
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be less than or equal to", "must be at most"),
    ("Input should be greater than", "must be above"),
    ("Input should be less than", "must be below"),
    ("Input should be", "must be"),
    ("Field required", "is needed"),
)


class Targeting(Strict):
    """Draw records at risk more often: those in cells of fewer than ``n`` records over ``keys``.

    Such a record is ``weight`` times as likely to be drawn next as one that is not at risk.
    """

    keys: Annotated[
        Names,
        Field(
            description="attributes that form the cells; all categorical ones if omitted",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()
    n: Annotated[int, Field(ge=2, description="records in cells with fewer records are at risk")] = 3
    weight: Annotated[
        float,
        Field(
            gt=0,
            le=1e6,
            allow_inf_nan=False,
            description="how many times as likely as others a record at risk is drawn",
        ),
    ] = 10.0
    scenario: Annotated[
        str, Field(max_length=200, description="scenario that states the keys, instead of stating them here")
    ] = ""
    rule: Annotated[
        Literal["weight", "pps"],
        Field(
            description="weight: records at risk are that many times as likely; pps: in proportion to one plus the "
            "number of records that their cell lacks of n, those that are certain first"
        ),
    ] = "weight"

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        from safeswap.model.scenario import fill_in  # a scenario is made of specifications itself

        return fill_in(values, keys="names", n="least")


# Fields that a swap and a study of swaps have.

TrueSwap = Annotated[
    Literal["any", "all"], Field(description="whether any or all swap attributes of a pair must differ")
]
Pairing = Annotated[
    Literal["repaired", "uniform"],
    Field(
        description="repaired: reach the requested number of pairs, or the maximum; uniform: pair consecutive "
        "records of one random order, and drop invalid pairs"
    ),
]


class SwapSpec(MaskSpec):
    """Exchange the values of the swap attributes between pairs of records.

    Give ``rate`` (the fraction of *records* that take part, 2k/N for k pairs) or ``pairs`` (k itself).

    >>> spec = SwapSpec(swap=["Race"], fixed=["Sex"], rate=0.05)
    >>> spec.role("Race").value, spec.role("Sex").value, spec.role("Age").value
    ('S', 'F', 'O')
    >>> spec.pairs_for(1000)
    25
    """

    method: ClassVar[str] = "swap"

    swap: Annotated[Names, Field(description="attributes whose values are exchanged")]
    fixed: Annotated[Names, Field(description="attributes that must be equal within a pair")] = ()
    differ: Annotated[
        Names, Field(description="attributes that must differ within a pair; swap attributes may be among them")
    ] = ()
    rate: Annotated[
        float | None,
        Field(gt=0, le=1, description="share of records that take part in a swap, above 0 and at most 1"),
    ] = None
    pairs: Annotated[int | None, Field(ge=0, description="number of pairs, instead of a rate")] = None
    true_swap: TrueSwap = "any"
    pairing: Pairing = "repaired"
    mode: Annotated[
        Literal["simultaneous", "sequential"],
        Field(description="exchange all attributes of a pair together, or each attribute with its own pairs"),
    ] = "simultaneous"
    on_shortfall: Annotated[
        Literal["error", "take"],
        Field(description="if fewer pairs are feasible: refuse, or make as many as possible"),
    ] = "error"
    targeting: Annotated[Targeting | None, Field(description="draw records at risk more often")] = None
    partner: Annotated[
        Literal["any", "nearest_weight", "least_bias"],
        Field(
            description="partner among the next 50 eligible records: any; the nearest in weight; or the one with which "
            "weighted sums change least"
        ),
    ] = "any"
    weight: Annotated[
        str | None,
        Field(
            description="survey weight by which partners are chosen; that of the schema if omitted",
            json_schema_extra=takes("weight", "numeric"),
        ),
    ] = None

    @model_validator(mode="after")
    def _chooses_partners(self) -> SwapSpec:
        if self.partner == "any" and self.weight is not None:
            raise ValueError("a weight is for choosing partners: give partner=nearest_weight or least_bias with it")
        if self.partner != "any" and self.pairing != "repaired":
            raise ValueError(f"partner={self.partner} needs pairing=repaired")
        if self.weight is not None and self.weight in self.swap:
            raise ValueError(f"the weight {self.weight!r} is swapped itself: it cannot choose partners")
        return self

    @model_validator(mode="after")
    def _is_consistent(self) -> SwapSpec:
        if not self.swap:
            raise ValueError("name at least one attribute to swap")
        for role in ("swap", "fixed", "differ"):
            twice = sorted(name for name, times in Counter(getattr(self, role)).items() if times > 1)
            if twice:
                raise ValueError(f"attribute {twice[0]!r} is named twice in {role}")
        fixed = sorted(set(self.fixed) & {*self.swap, *self.differ})
        if fixed:
            raise ValueError(f"attribute {fixed[0]!r} has two roles; what is fixed cannot be swapped or differ")
        if (self.rate is None) == (self.pairs is None):
            raise ValueError("give either rate or pairs")
        return self

    @check_types
    def role(self, name: str) -> Role:
        """Return the role of an attribute; those not named are Other."""
        if name in self.swap:
            return Role.SWAP
        if name in self.fixed:
            return Role.FIXED
        return Role.DIFFER if name in self.differ else Role.OTHER

    @check_types
    def pairs_for(self, records: int) -> int:
        """Return the number of pairs to make in a file of ``records`` records."""
        if self.pairs is not None:
            return self.pairs
        assert self.rate is not None  # noqa: S101  (the validator allows exactly one of the two)
        # Rounded before halving: 0.29 × 100 must be 29 and not 28.999…
        return int(round(self.rate * records, 6) // 2)

    @property
    def treats_together(self) -> bool:
        """True if all attributes of a pair are exchanged together."""
        return self.mode == "simultaneous"

    @property
    def stages(self) -> tuple[Names, ...]:
        """The groups of attributes that are exchanged together, in order."""
        return (self.swap,) if self.mode == "simultaneous" else tuple((name,) for name in self.swap)


# Fields that both Confidentiality Edits have.

GeographyCodes = Annotated[
    Literal["unique", "local"],
    Field(description="unique: a code names one area of the file; local: codes restart in each coarser area"),
]
MissingKeys = Annotated[
    Literal["refuse", "level"],
    Field(description="a missing value in a key: refuse the file, or treat it as a separate value"),
]


def require_distinct(names: Names) -> Names:
    """Return the names; refuse one that is there twice."""
    if len(set(names)) != len(names):
        raise ValueError("an attribute is named twice")
    return names


def refuse_repeats(spec: BaseModel, *roles: str) -> None:
    """Refuse a role that names an attribute twice."""
    for role in roles:
        names = getattr(spec, role)
        if len(set(names)) != len(names):
            raise ValueError(f"{role} names an attribute twice")


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A change of the specification and the number of pairs it would allow.

    ``at_most`` is an upper bound, given where that number is not proved to be the maximum.
    """

    change: str
    feasible: int
    at_most: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; ``at_most`` only if it is given."""
        bound = {} if self.at_most is None else {"at_most": self.at_most}
        return {"change": self.change, "feasible": self.feasible, **bound}


class AddNoise(Protocol):
    """Return a figure for a count of small cells, or of their records: noise that follows from count and subject."""

    def __call__(self, count: int, *subject: object, most: int | None = None) -> int:
        """Return the figure; 0 for 0."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of pairs requested, the number that the data allow, and the binding constraint.

    >>> plan = Plan(method="swap", records=100, asked=60, feasible=40, binds=("Race",))
    >>> plan.is_feasible, plan.sentence
    (False, '60 pairs requested, at most 40 feasible; Race binds')

    Where the maximum is not proved, ``feasible`` is the number found and ``at_most`` an upper bound.

    >>> Plan(method="swap", records=100, asked=60, feasible=40, at_most=45).sentence
    '60 pairs requested, at least 40 and at most 45 feasible'
    """

    method: str
    records: int
    asked: int
    feasible: int
    at_most: int | None = None
    binds: tuple[str, ...] = ()
    relaxations: tuple[Relaxation, ...] = field(default=())
    pairs_per_record: tuple[float, ...] = field(default=(), repr=False)  # per stage, expected from one random pass

    @property
    def is_feasible(self) -> bool:
        """True if the number asked for is possible."""
        return self.asked <= self.feasible

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        text = f"{plural(self.asked, 'pair')} requested, {feasible_range(self.feasible, self.at_most)} feasible"
        verb = "binds" if len(self.binds) == 1 else "bind"
        return text + (f"; {' and '.join(self.binds)} {verb}" if self.binds else "")

    @property
    def details(self) -> dict[str, Any]:
        """Facts stated by the plan of this method only, such as the number of households moved."""
        common = {each.name for each in fields(Plan)}
        own = (each for each in fields(self) if each.name not in common and each.repr)
        return {each.name: getattr(self, each.name) for each in own}

    @property
    def least_tolerance(self) -> float:
        """The smallest number of records below which this plan counts a cell as small; infinite if it counts none."""
        return inf

    def blur(self, add: AddNoise) -> Self:
        """Return the plan for readers who must not learn small counts: with noise in totals of small cells.

        What a total is about is told by the true totals, not by the specification, whose words can be varied.
        """
        return self

    def _with_totals(self, asked: int, feasible: int, **more: Any) -> Self:
        """Return the plan with other totals, as feasible as before."""
        if not self.is_feasible:
            asked = max(asked, 1)
        return replace(self, asked=asked, feasible=asked if self.is_feasible else min(feasible, asked - 1), **more)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            "records": self.records,
            "asked": self.asked,
            "feasible": self.feasible,
            "at_most": self.at_most,
            "binds": list(self.binds),
            "is_feasible": self.is_feasible,
            "sentence": self.sentence,
            "details": self.details,
            "relaxations": [each.as_dict() for each in self.relaxations],
        }


def feasible_range(feasible: int, at_most: int | None) -> str:
    """Describe the feasible number of pairs: the maximum, or a range where it is not proved.

    >>> feasible_range(1200, None), feasible_range(1200, 1300)
    ('at most 1,200', 'at least 1,200 and at most 1,300')
    """
    return f"at most {feasible:,}" if at_most is None else f"at least {feasible:,} and at most {at_most:,}"


def recorded_plan(audit: Any) -> Plan:
    """Return the plan stored in a record."""
    known = {name: getattr(audit, name) for name in ("method", "records", "asked", "feasible", "at_most")}
    return Plan(**known)
