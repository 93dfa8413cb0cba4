"""The description of a file: attributes, kinds, levels, missing codes, hierarchies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.spec import Stated
from safeswap.model.text import list_names


def level_texts(levels: pa.Array) -> list[str]:
    """Return the text that represents each value in ``Attribute.levels``, ``labels`` and ``missing``.

    Text stays as it is. A whole number has no decimal point, even if the file stores it as a float, as SPSS does.

    >>> level_texts(pa.array([1.0, -2.5, float("nan")])), level_texts(pa.array(["1.0", "x"]))
    (['1', '-2.5', 'nan'], ['1.0', 'x'])
    >>> level_texts(pa.array([True, False])), level_texts(pa.array([7], type=pa.uint64()))
    (['true', 'false'], ['7'])
    """
    kind = levels.type
    if pa.types.is_dictionary(kind):
        return level_texts(levels.dictionary_decode())
    if pa.types.is_floating(kind):
        return [_number_text(value) for value in levels.to_pylist()]
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in levels.to_pylist()]
    # Bytes have no text; hexadecimal digits always work.
    return [value.hex() if isinstance(value, bytes) else str(value) for value in levels.to_pylist()]


def _number_text(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


BAND_HINT = "band it by year, quarter, month or age first (recode step date_band)"
"""The hint for a date where categories are needed."""


class Kind(StrEnum):
    """The kind of an attribute, in statisticians' terms."""

    NOMINAL = "nominal"
    ORDINAL = "ordinal"
    NUMERIC = "numeric"
    IDENTIFIER = "identifier"
    WEIGHT = "weight"
    HOUSEHOLD = "household"
    GEOGRAPHY = "geography"
    DATE = "date"

    @property
    def is_categorical(self) -> bool:
        """True if cells can be formed from it without recoding."""
        return self in (Kind.NOMINAL, Kind.ORDINAL, Kind.GEOGRAPHY)

    @property
    def is_numeric(self) -> bool:
        """True if its values are quantities."""
        return self in (Kind.NUMERIC, Kind.WEIGHT)

    @property
    def is_measurable(self) -> bool:
        """True if its values have distances and means: quantities, and dates by their days."""
        return self.is_numeric or self is Kind.DATE

    @property
    def is_unit_number(self) -> bool:
        """True if it only numbers records or households: other numbers for the same units change nothing."""
        return self in (Kind.IDENTIFIER, Kind.HOUSEHOLD)


Design = Literal["", "stratum", "psu", "replicate"]
"""The part of a column in the design of the sample: stratum, primary sampling unit, or a replicate weight."""


class Attribute(Stated):
    """The description of one column.

    ``levels`` are the values as text, in order if the attribute is ordinal; empty means "those that occur". ``missing``
    lists the codes that mean "no answer". ``hierarchy`` gives, from fine to coarse, a map from each level to its
    parent. ``display`` is the format in which Stata, SPSS or SAS show the column (``F8.2``, ``%td``).
    ``geography_level`` counts from the coarsest (0, e.g. state) downwards. ``household`` marks an attribute with one
    value for all members of a household: methods change it for all of them or for none. ``inferred`` marks a
    description that was guessed from the data and not yet confirmed. ``design`` is the part of the column in the
    design of the sample, beside its kind: a stratum and a primary sampling unit may be categories or areas; a
    replicate weight has the kind weight.
    """

    called: ClassVar[str] = "the attribute"

    name: Annotated[str, Field(min_length=1)]
    kind: Kind = Kind.NOMINAL
    label: str = ""
    letter: Annotated[str, Field(max_length=3)] = ""
    levels: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()
    hierarchy: tuple[dict[str, str], ...] = ()
    geography_level: Annotated[int, Field(ge=0)] | None = None
    display: str = ""
    household: bool = False
    inferred: bool = False
    design: Design = ""

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Attribute:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError(f"attribute {self.name!r} lists a level twice")
        return self

    @model_validator(mode="after")
    def _design_suits_kind(self) -> Attribute:
        if self.design == "replicate" and not self.kind.is_numeric:
            raise ValueError(f"attribute {self.name!r} is a replicate weight and must have the kind weight")
        if self.design in ("stratum", "psu") and self.kind in (Kind.IDENTIFIER, Kind.WEIGHT, Kind.DATE):
            raise ValueError(f"attribute {self.name!r} is {self.kind.value} and cannot be a {self.design}")
        return self

    @model_serializer(mode="wrap")
    def _omit_no_design(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Descriptions without a design keep their form: digests of studies and runs of earlier versions stay valid.
        values: dict[str, Any] = write(self)
        if not values.get("design"):
            values.pop("design", None)
        return values


class Schema(Stated):
    """The attributes of a file, in column order, the name of the data set and the label of a Stata or SPSS file.

    >>> schema = Schema(name="toy", attributes=(Attribute(name="id", kind="identifier"), Attribute(name="Sex")))
    >>> schema.names, schema.identifier.name, schema["Sex"].kind.value
    (('id', 'Sex'), 'id', 'nominal')
    """

    called: ClassVar[str] = "the schema"

    name: str = ""
    label: str = ""
    attributes: tuple[Attribute, ...]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Schema:
        if len(set(self.names)) != len(self.names):
            raise ValueError("an attribute name occurs twice")
        if sum(a.kind is Kind.IDENTIFIER for a in self.attributes) > 1:
            raise ValueError("there can be one identifier only")
        for part in ("stratum", "psu"):
            if sum(a.design == part for a in self.attributes) > 1:
                raise ValueError(f"there can be one {part} only; combine them into one column first")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The attribute names in column order."""
        return tuple(a.name for a in self.attributes)

    @property
    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of the levels, by attribute."""
        return {a.name: a.labels for a in self.attributes if a.labels}

    @property
    def identifier(self) -> Attribute | None:
        """The record identifier, or None if records are identified by position."""
        return next((a for a in self.attributes if a.kind is Kind.IDENTIFIER), None)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the attributes from which cells are formed by default."""
        return tuple(a.name for a in self.attributes if a.kind.is_categorical)

    @property
    def weight(self) -> Attribute | None:
        """The survey weight: the first attribute of that kind that is no replicate weight."""
        return next((a for a in self.attributes if a.kind is Kind.WEIGHT and a.design != "replicate"), None)

    @cached_property
    def _by_name(self) -> dict[str, Attribute]:
        return {attribute.name: attribute for attribute in self.attributes}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._by_name

    def __getitem__(self, name: object) -> Attribute:
        if isinstance(name, str) and name in self._by_name:
            return self._by_name[name]
        raise SpecError(
            f"there is no attribute {name!r}" if isinstance(name, str | int) else "attributes are looked up by name",
            code="unknown-attribute",
            hint=attribute_hint(name, self.names),
            attribute=name if isinstance(name, str) else type(name).__name__,
        )

    @check_types
    def iter_kind(self, kind: Kind) -> Iterator[Attribute]:
        """Iterate over the attributes of one kind, in column order."""
        return (a for a in self.attributes if a.kind is kind)

    @check_types
    def select(self, names: Sequence[str]) -> Schema:
        """Return the schema of some attributes, in this order."""
        return Schema(name=self.name, label=self.label, attributes=tuple(self[name] for name in names))

    @check_types
    def replace(self, *attributes: Attribute, name: str | None = None) -> Schema:
        """Return a copy with new descriptions of the given attributes."""
        new = {a.name: a for a in attributes}
        for unknown in new.keys() - set(self.names):
            self[unknown]
        return Schema(
            name=self.name if name is None else name,
            label=self.label,
            attributes=tuple(new.get(a.name, a) for a in self.attributes),
        )


def attribute_hint(name: object, names: tuple[str, ...]) -> str:
    """Return what to do about a name that no attribute has."""
    if isinstance(name, int) and str(name) in names:
        return f"names are text, also those of numbered columns: write {str(name)!r}"
    return f"the attributes are: {list_names(names, most=20)}"


def household_column(schema: Schema) -> str | None:
    """Return the attribute that numbers the households; None if there is none.

    >>> household_column(Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="Sex"))))
    'home'
    """
    found = [attribute.name for attribute in schema.iter_kind(Kind.HOUSEHOLD)]
    if len(found) > 1:
        raise SpecError(
            f"{' and '.join(map(repr, found[:2]))} both number households",
            code="two-households",
            hint="describe one of them as nominal",
            attributes=found,
        )
    return found[0] if found else None


def household_attributes(schema: Schema) -> tuple[str, ...]:
    """Return the attributes with one value for all members of a household; none if households are not numbered."""
    marked = tuple(each.name for each in schema.attributes if each.household and each.kind is not Kind.HOUSEHOLD)
    return marked if marked and household_column(schema) is not None else ()


def require_household(schema: Schema) -> str:
    """Return the attribute that numbers the households; refuse a file without one."""
    name = household_column(schema)
    if name is None:
        raise SpecError(
            "the file does not say who lives together: no attribute is of kind household",
            code="no-household",
            hint='state the column that numbers households: kinds={"hhid": "household"}, or in the schema file',
        )
    return name


def refuse_date(schema: Schema, name: str) -> None:
    """Refuse a date where each value would be a category: hardly two records share one."""
    if schema[name].kind is Kind.DATE:
        raise SpecError(
            f"{name!r} is a date: combinations are formed from categorical attributes",
            code="key-not-categorical",
            hint=BAND_HINT,
            attribute=name,
        )
