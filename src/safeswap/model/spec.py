"""Specifications: one frozen value per method, validated when made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
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
    ValueError: a number is needed, not True or False
    """
    if given is taken:  # nothing was converted, nor in it: large tables need no second look
        return
    if isinstance(taken, bool):
        if not isinstance(given, bool):
            raise ValueError("True or False is needed")
    elif isinstance(taken, (int, float)):
        if isinstance(given, bool):
            raise ValueError("a number is needed, not True or False")
        if isinstance(given, (str, bytes)):
            raise ValueError("a number is needed, not text")
    elif isinstance(given, Mapping) and isinstance(taken, Mapping):
        for one, other in zip(given.values(), taken.values(), strict=False):
            refuse_other_type(one, other)
    elif isinstance(given, (list, tuple)) and isinstance(taken, (list, tuple)):
        for one, other in zip(given, taken, strict=False):
            refuse_other_type(one, other)


class MaskSpec(Strict):
    """The base of all specifications: frozen, no unknown fields, errors as :class:`SpecError`."""

    method: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error(f"the {self.method} specification", error) from None

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
    return str(problem["msg"]).removeprefix("Value error, ")


class Targeting(Strict):
    """Draw records at risk more often: those in cells of fewer than ``n`` records over ``keys``.

    Such a record is ``weight`` times as likely to be drawn next as one that is not at risk.
    """

    keys: Annotated[Names, Field(description="attributes that form the cells; all categorical ones if omitted")] = ()
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
    true_swap: Annotated[
        Literal["any", "all"],
        Field(description="whether any or all swap attributes of a pair must differ"),
    ] = "any"
    pairing: Annotated[
        Literal["repaired", "uniform"],
        Field(
            description="repaired: reach the requested number of pairs, or the maximum; uniform: pair consecutive "
            "records of one random order, and drop invalid pairs"
        ),
    ] = "repaired"
    mode: Annotated[
        Literal["simultaneous", "sequential"],
        Field(description="exchange all attributes of a pair together, or each attribute with its own pairs"),
    ] = "simultaneous"
    on_shortfall: Annotated[
        Literal["error", "take"],
        Field(description="if fewer pairs are feasible: refuse, or make as many as possible"),
    ] = "error"
    targeting: Annotated[Targeting | None, Field(description="draw records at risk more often")] = None

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
    Field(description="a missing value in a key: refuse the file, or treat it as a value of its own"),
]


def refuse_repeats(spec: MaskSpec, *roles: str) -> None:
    """Refuse a role that names an attribute twice."""
    for role in roles:
        names = getattr(spec, role)
        if len(set(names)) != len(names):
            raise ValueError(f"{role} names an attribute twice")
