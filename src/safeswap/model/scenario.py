"""Scenarios: who might attack a file, and what they know. The one place where keys are stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.model.combination import CombinationFields, Combinations
from safeswap.model.schema import Kind, Schema, attribute_hint, require_household
from safeswap.model.spec import refuse_repeats
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata

INTRUDERS = {
    "prosecutor": "knows that a certain person took part, and what the keys say about that person",
    "journalist": "wants to find anybody at all, to show that it can be done",
    "nosy neighbour": "knows the people next door, and what anyone can see of them",
    "own": "",
}
"""The intruders that practice guides name, each with what is assumed. A scenario may have any other name."""

BANDS = 7

ScenarioName = Annotated[
    str, Field(max_length=200, description="scenario that states the keys, instead of stating them here")
]
"""The scenario of a specification: given as a scenario, kept as its name."""


class Scenario(Combinations):
    """A possible attacker and what they know: the keys, stated once for every figure and every masking.

    It is a list of combinations to protect with a name: whatever takes combinations takes a scenario. ``population``
    is the number of people that the file was drawn from, or the column with each record's sampling fraction.

    >>> neighbour = Scenario(name="nosy neighbour", keys=["age", "sex", "town"], up_to=2, tolerance=5)
    >>> neighbour.names, neighbour.least
    (('age', 'sex', 'town'), 5)
    >>> Scenario(**neighbour.as_dict()) == neighbour
    True
    """

    called: ClassVar[str] = "the scenario"
    numbers_are_levels: ClassVar[bool] = True

    name: Annotated[str, Field(min_length=1, max_length=80, description="who might attack")] = "own"
    note: Annotated[str, Field(max_length=2000, description="what is assumed of them, in words")] = ""
    unit: Annotated[
        Literal["person", "household"], Field(description="what is to be found: a person, or a whole household")
    ] = "person"
    sensitive: Annotated[Names, Field(description="attributes that they want to learn; not keys")] = ()
    population: Annotated[
        float | str | None,
        Field(description="number of people the file was drawn from, or the column of sampling fractions"),
    ] = None

    @model_validator(mode="after")
    def _is_plausible(self) -> Scenario:
        if not self.name.strip() or not self.name.isprintable():
            raise ValueError("name: give a name in printable characters")
        refuse_repeats(self, "sensitive")
        if both := [name for name in self.sensitive if name in self.names]:
            raise ValueError(f"{both[0]!r} cannot be both a key and sensitive")
        if isinstance(self.population, float) and not 1 <= self.population < float("inf"):
            raise ValueError("population: give a number of people, at least 1, or the name of a column")
        return self

    @property
    def names(self) -> Names:
        """Every key, each once."""
        stated = (*(each.keys for each in self.combinations), self.keys, tuple(self.levels))
        return tuple(dict.fromkeys(name for keys in stated for name in keys))

    @property
    def least(self) -> int | None:
        """The number of records from which a combination is safe; None where weights are summed instead."""
        return None if self.weight is not None else ceil(self.default_tolerance)

    @property
    def sentence(self) -> str:
        """The scenario in words."""
        meaning = self.note or INTRUDERS.get(self.name, "")
        unit = "; whole households are looked for" if self.unit == "household" else ""
        return f"{self.name}: {meaning + '; ' if meaning else ''}keys {list_names(self.names)}{unit}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; ``Scenario(**values)`` restores the scenario from them."""
        # What is stated counts, even where it is the default: a measure has defaults of its own.
        stated = self.model_dump(mode="json", exclude_unset=True)
        return {"name": self.name, **{name: value for name, value in stated.items() if value is not None}}

    def require_persons(self, what: str) -> None:
        """Refuse a scenario that looks for households where persons are counted; ``what`` is done there."""
        if self.unit == "household":
            raise SpecError(
                f"the scenario {self.name!r} looks for households, and {what} counts persons",
                code="unit-not-supported",
                hint='set unit = "person", or use a file with one record per household',
                scenario=self.name,
                unit=self.unit,
            )

    def resolve(self, before: Schema, after: Schema) -> Resolved:
        """Look the keys up in the file as it is released: recoded keys count as they are, dropped ones are ``gone``."""
        others = [self.weight, *self.sensitive, self.population if isinstance(self.population, str) else None]
        for name in (*self.names, *(name for name in others if name is not None)):
            if name not in before and name not in after:
                raise SpecError(
                    f"the scenario {self.name!r} names {name!r}, which the file does not have",
                    code="unknown-attribute",
                    hint=attribute_hint(name, before.names),
                    attribute=name,
                    scenario=self.name,
                )
        if self.unit == "household":
            require_household(before)
        keys = tuple(name for name in self.names if name in after)
        return Resolved(
            scenario=self,
            keys=keys,
            gone=tuple(name for name in self.names if name not in after),
            numeric=tuple(name for name in keys if after[name].kind.is_numeric),
            dates=tuple(name for name in keys if after[name].kind is Kind.DATE),
            sensitive=tuple(name for name in self.sensitive if name in after),
        )

    def sampling_fraction(self, data: Microdata) -> float | None:
        """Return the share of the population that the file holds; None if the scenario does not say."""
        if self.population is None or not len(data):
            return None
        size = self.population if isinstance(self.population, float) else _sum_fractions(data, self.population)
        return min(1.0, len(data) / size)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The keys of a scenario in a file: those released, those gone, and those released that are numbers or dates.

    ``sensitive`` has the released ones of the sensitive attributes.
    """

    scenario: Scenario
    keys: Names
    gone: Names
    numeric: Names
    dates: Names = ()
    sensitive: Names = ()

    @property
    def note(self) -> str:
        """A sentence about the keys that are not released; empty if all are.

        >>> from safeswap.model.schema import Attribute
        >>> one, both = (Schema(attributes=tuple(Attribute(name=n) for n in names)) for names in (["a"], ["a", "b"]))
        >>> Scenario(keys=["a", "b"]).resolve(both, one).note
        'Without b, which is not released.'
        >>> Scenario(keys=["b"]).resolve(both, one).note
        'Without b, which is not released: no key is left to find anybody by.'
        """
        if not self.gone:
            return ""
        text = f"Without {list_names(self.gone)}, which {'is' if len(self.gone) == 1 else 'are'} not released"
        return f"{text}." if self.keys else f"{text}: no key is left to find anybody by."


def as_scenario(value: Any) -> Scenario:
    """Make a scenario from plain values or combinations; return a scenario unchanged.

    >>> as_scenario({"keys": ["age", "sex"]}).name
    'own'
    """
    if isinstance(value, Scenario):
        return value
    if isinstance(value, CombinationFields):
        return Scenario(**value.model_dump(include=set(CombinationFields.model_fields) & value.model_fields_set))
    if isinstance(value, Mapping):
        return Scenario(**{str(name): each for name, each in value.items()})
    raise SpecError(
        "a scenario must be a Scenario or a mapping",
        code="bad-spec",
        hint='e.g. Scenario(name="prosecutor", keys=["age", "sex"]); read_scenarios(path) reads those of a file',
    )


Scenarios = Scenario | Mapping[str, Any] | Sequence[Scenario | Mapping[str, Any]]
"""One scenario or several, as callers write them."""


def as_scenarios(value: Scenarios | None) -> tuple[Scenario, ...]:
    """Make the scenarios of one or several given, each with a name of its own; none for ``None``.

    >>> [each.name for each in as_scenarios([{"name": "journalist", "keys": ["age"]}, Scenario(keys=["sex"])])]
    ['journalist', 'own']
    """
    listed = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    found = tuple(as_scenario(each) for each in listed if value is not None)
    names = [each.name for each in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SpecError(
            f"two scenarios are called {twice[0]!r}", code="bad-spec", hint="figures name their scenario, so rename one"
        )
    return found


def fill_in(values: Any, **names: str) -> Any:
    """Fill in parameters of a specification from its ``scenario``, which becomes the scenario's name.

    ``names`` gives, by parameter, the property of the scenario; without any, the combinations to protect are filled in.
    What the specification states itself is kept. A name alone is kept too: the keys were filled in when it was made.

    >>> fill_in({"scenario": {"name": "journalist", "keys": ["age"]}, "n": 5}, keys="names", n="least")
    {'scenario': 'journalist (with its own n)', 'n': 5, 'keys': ('age',)}
    >>> fill_in({"scenario": Scenario(keys=["age", "sex"], up_to=2, threshold=4), "keys": ["age"]})
    {'scenario': 'own (with its own keys)', 'keys': ['age'], 'threshold': 4.0}
    """
    if not isinstance(values, Mapping) or isinstance(values.get("scenario", ""), str):
        return values
    scenario = as_scenario(values["scenario"])
    every = (
        {name: getattr(scenario, field) for name, field in names.items()}
        if names
        else _state_combinations(scenario, {})
    )
    supplied = every if names else _state_combinations(scenario, values)
    added = {name: value for name, value in supplied.items() if name not in values and value is not None}
    own = [name for name in every if name in values and _as_tuple(values[name]) != _as_tuple(every[name])]
    called = f"{scenario.name} (with its own {' and '.join(own)})" if own else scenario.name
    return {**values, "scenario": called, **added}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _state_combinations(scenario: Scenario, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the scenario states of its combinations; parameters that belong together come from one side."""
    stated = set(CombinationFields.model_fields) & scenario.model_fields_set
    for group in (("combinations", "keys", "up_to", "exactly", "levels"), ("tolerance", "threshold")):
        if any(name in values for name in group):
            stated -= set(group)
    return {name: getattr(scenario, name) for name in CombinationFields.model_fields if name in stated}


def resolve_files(scenario: Scenario, before: Microdata, after: Microdata) -> Resolved:
    """Resolve the keys in a released file; a column that was emptied is not released either."""
    return scenario.resolve(before.schema, _released_schema(before, after))


def _released_schema(before: Microdata, after: Microdata) -> Schema:
    """Return the description of the columns that hold anything."""
    emptied = {name for name in after.attributes if _is_empty(after, name) and not _is_empty(before, name)}
    if not emptied:
        return after.schema
    return Schema(name=after.schema.name, attributes=tuple(a for a in after.schema.attributes if a.name not in emptied))


def _is_empty(data: Microdata, name: str) -> bool:
    return name in data.schema and bool(data.table.column(name).null_count == len(data))


def describe_numbers(data: Microdata, names: Names) -> str:
    """Return a sentence about keys that are numbers or dates: how many values each has, and bands for it.

    >>> import pyarrow as pa
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute
    >>> schema = Schema(attributes=(Attribute(name="age", kind="numeric"),))
    >>> describe_numbers(Microdata(pa.table({"age": list(range(90))}), schema), ("age",))
    'Each value of age is a level of its own: 90 distinct values; proposed bands start at 10, 20, 40, 50, 60, 80.'
    """
    from safeswap.model.columns import to_numbers

    told = []
    for name in names:
        distinct = plural(len(data.coded(name).levels), "distinct value")
        if data.schema[name].kind is Kind.DATE:
            bands = "; band it by year, quarter, month or age"
        else:
            values = to_numbers(data, name)
            breaks = propose_bands(values[np.isfinite(values)])
            bands = f"; proposed bands start at {', '.join(f'{each:,.15g}' for each in breaks)}" if breaks else ""
        told.append(f"Each value of {name} is a level of its own: {distinct}{bands}.")
    return " ".join(told)


def propose_bands(values: Floats, number: int = BANDS) -> tuple[float, ...]:
    """Return round numbers at which bands of about as many records each could start.

    Every quantile is rounded as coarsely as the distance to its neighbours allows.

    >>> propose_bands(np.array([0.0, 0.0, 1.0, 1.0])), propose_bands(np.ones(5))
    ((1.0,), ())
    """
    if not values.size:
        return ()
    starts = np.quantile(values, np.arange(1, number) / number, method="inverted_cdf")
    ends = np.unique([values.min(), *starts])
    gaps = np.diff(ends)
    nearest = np.minimum(gaps, np.append(gaps[1:], np.inf))
    rounded = {_round_to(end, _round_step(gap)) for end, gap in zip(ends[1:].tolist(), nearest.tolist(), strict=True)}
    return tuple(sorted(each for each in rounded if ends[0] < each <= values.max()))


def _round_step(gap: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above the gap."""
    power = 10.0 ** floor(log10(gap))
    return next(step * power for step in (5, 2, 1) if step * power <= gap * (1 + 1e-9) or step == 1)


def _round_to(value: float, step: float) -> float:
    return float(f"{round(value / step) * step:.12g}")


def _sum_fractions(data: Microdata, name: str) -> float:
    """Return the number of people that a column of sampling fractions stands for."""
    from safeswap.model.columns import to_numbers

    fractions = to_numbers(data, name) if data.schema[name].kind.is_numeric else np.zeros(1)
    if not ((fractions > 0) & (fractions <= 1)).all():
        raise SpecError(
            f"{name!r} has values that are not sampling fractions",
            code="bad-sampling-fraction",
            hint="every value must be above 0 and at most 1; or state population as a number",
            attribute=name,
        )
    return float((1 / fractions).sum())
