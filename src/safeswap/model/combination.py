"""Combinations of key variables to protect, and the count from which each is safe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import combinations as choices
from math import comb
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.model.schema import Kind, Schema, refuse_date
from safeswap.model.spec import CATEGORIES, Stated, Strict, refuse_repeats, takes
from safeswap.model.text import plural

MOST_COMBINATIONS = 20_000
MOST_KEYS = 62
"""A set of keys is stored as the bits of one machine integer."""

Missing = Literal["none", "own", "any", "vouching"]
"""The meaning of a missing value when combinations are counted.

``none``: it matches nothing, so a record has no combination with a missing key. ``own``: it is a value of its own.
``any``: a record is counted by the keys that it has, as if the missing ones had any value, but it counts for no other
record by a key that it lacks. ``vouching``: it matches every value both ways, so a record with missing keys also
counts for all records that it could be.
"""


class KeyCombination(Strict):
    """Keys whose values together must not single out too few records.

    >>> KeyCombination(keys=("Age", "Sex"), tolerance=5).keys
    ('Age', 'Sex')
    """

    keys: Annotated[Names, Field(min_length=1, json_schema_extra=takes(*CATEGORIES))]
    tolerance: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _names_differ(self) -> KeyCombination:
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("a combination names an attribute twice")
        return self


def _as_combinations(value: Any) -> Any:
    """Accept combinations written as their names alone."""
    if not isinstance(value, list | tuple):
        return value
    return [item if isinstance(item, Mapping | KeyCombination) else {"keys": item} for item in value]


class CombinationFields(Strict):
    """The fields that state what to protect, shared by the specifications that need them."""

    numbers_are_levels: ClassVar[bool] = False  # whether a number may be a key, each of its values a level

    combinations: Annotated[
        tuple[KeyCombination, ...],
        BeforeValidator(_as_combinations),
        Field(description="combinations of keys to protect, each a list of names, optionally with its own tolerance"),
    ] = ()
    keys: Annotated[
        Names,
        Field(
            description="protect every combination of up to `up_to` of these attributes",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()
    up_to: Annotated[
        int | None,
        Field(
            ge=1, description="maximum number of `keys` to combine; all if omitted, within the limit on combinations"
        ),
    ] = None
    exactly: Annotated[bool, Field(description="only combinations of exactly `up_to` keys, not of fewer")] = False
    levels: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=9)]],
        Field(description="identification level per attribute: level 1 × level ≤ 2 × level ≤ 3 …, as in ARGUS"),
    ] = Field(default_factory=dict)
    tolerance: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="Q: a combination with fewer records is unsafe")
    ] = 3
    threshold: Annotated[
        float | None,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="as in ARGUS: a combination with this many records or fewer is unsafe",
        ),
    ] = None
    missing: Annotated[
        Missing,
        Field(
            description="a missing value matches nothing (none), is a value (own), could be any value of its record "
            "(any), or matches all and counts for others too (vouching)"
        ),
    ] = "none"
    weight: Annotated[
        str | None,
        Field(
            description="sum this attribute instead of counting records", json_schema_extra=takes("weight", "numeric")
        ),
    ] = None

    @model_validator(mode="after")
    def _is_complete(self) -> CombinationFields:
        if not (self.combinations or self.keys or self.levels):
            raise ValueError("state what to protect: combinations, keys or levels")
        refuse_repeats(self, "keys")
        if self.up_to is not None and self.up_to > len(self.keys):
            raise ValueError(f"up_to is {self.up_to}, but the number of keys is {len(self.keys)}")
        if self.exactly and self.up_to is None:
            raise ValueError("exactly needs up_to")
        if self.threshold is not None and "tolerance" in self.model_fields_set:
            raise ValueError("give tolerance (unsafe: fewer) or threshold (unsafe: this many or fewer), not both")
        if self.threshold is not None and self.weight is not None:
            raise ValueError("a threshold is a number of records; sums of weights are compared with a tolerance")
        _check_levels(self.levels)
        return self

    @property
    def default_tolerance(self) -> float:
        """The tolerance of combinations that do not state their own."""
        return self.tolerance if self.threshold is None else int(self.threshold) + 1

    def stated(self) -> tuple[tuple[Names, float], ...]:
        """Return every combination with its tolerance, each once: stated ones first, then by number of keys."""
        general = self.default_tolerance
        found: dict[frozenset[str], tuple[Names, float]] = {}
        for each in self.combinations:
            tolerance = general if each.tolerance is None else each.tolerance
            known = found.get(frozenset(each.keys))
            # Stated twice: the stricter tolerance applies.
            found[frozenset(each.keys)] = (each.keys, max(tolerance, known[1] if known else 0))
        for names in (*self._combine_keys(), *self._combine_levels()):
            found.setdefault(frozenset(names), (names, general))
        return tuple(found.values())

    @property
    def most_together(self) -> int:
        """The largest number of ``keys`` combined: ``up_to``, or all of them as far as the limit allows."""
        return largest_size(len(self.keys)) if self.up_to is None else self.up_to

    @property
    def protected(self) -> str:
        """The combinations in plain words."""
        parts = [self._describe_keys()] if self.keys else []
        if self.combinations:
            parts.append(plural(len(self.combinations), "stated combination"))
        if self.levels:
            parts.append(f"the combinations of {plural(len(self.levels), 'attribute')} by identification level")
        return ", ".join(parts)

    def _describe_keys(self) -> str:
        most, number = self.most_together, len(self.keys)
        if self.exactly:
            return f"every combination of exactly {most} of {plural(number, 'key')}"
        if most == number:
            return f"every combination of up to all {number} keys" if number > 1 else "1 key"
        text = f"every combination of up to {most} of {plural(number, 'key')}"
        return text if self.up_to is not None else f"{text}, the most that {MOST_COMBINATIONS:,} combinations allow"

    def _combine_keys(self) -> Iterable[Names]:
        if not self.keys:
            return ()
        most = self.most_together
        sizes = (most,) if self.exactly else tuple(range(1, most + 1))
        if sum(comb(len(self.keys), size) for size in sizes) > MOST_COMBINATIONS:
            raise SpecError(
                f"these are more than {MOST_COMBINATIONS:,} combinations",
                code="too-many-combinations",
                hint="name fewer keys, or combinations of fewer of them",
            )
        return _choices(self.keys, sizes)

    def _combine_levels(self) -> Iterable[Names]:
        """Yield an attribute of level 1 with another of level at most 2, another of level at most 3, and so on."""
        groups: list[frozenset[str]] = [frozenset()] if self.levels else []
        for depth in range(1, max(self.levels.values(), default=0) + 1):
            free = [name for name, level in self.levels.items() if level <= depth]
            grown = {group | {name} for group in groups for name in free if name not in group}
            groups = sorted(grown, key=sorted)
            if len(groups) > MOST_COMBINATIONS:
                raise SpecError(
                    f"these are more than {MOST_COMBINATIONS:,} combinations",
                    code="too-many-combinations",
                    hint="give fewer attributes an identification level",
                )
        order = {name: place for place, name in enumerate(self.levels)}
        return [tuple(sorted(group, key=order.__getitem__)) for group in groups]


def largest_size(keys: int) -> int:
    """Return how many of ``keys`` keys can be combined, all smaller combinations included, within the limit.

    >>> largest_size(8), largest_size(14), largest_size(15), largest_size(20), largest_size(62)
    (8, 14, 7, 4, 2)
    """
    size, total = 0, 0
    while size < keys and (total := total + comb(keys, size + 1)) <= MOST_COMBINATIONS:
        size += 1
    return max(1, size)


@lru_cache(maxsize=8)
def _choices(keys: Names, sizes: tuple[int, ...]) -> tuple[Names, ...]:
    return tuple(names for size in sizes for names in choices(keys, size))


def _check_levels(levels: Mapping[str, int]) -> None:
    """Refuse identification levels by which an attribute would be in no combination."""
    if levels and 1 not in levels.values():
        raise ValueError("no attribute has identification level 1")
    for depth in range(1, max(levels.values(), default=0) + 1):
        able = sum(level <= depth for level in levels.values())
        if able < depth:
            lost = next(name for name, level in levels.items() if level > depth)
            raise ValueError(
                f"{lost!r} would be in no combination: {plural(able, 'attribute has', 'attributes have')} "
                f"identification level {depth} or less, and {depth} are needed before a higher level counts; "
                "number the levels without a gap"
            )


class Combinations(CombinationFields, Stated):
    """The combinations to protect.

    >>> Combinations(keys=["A", "B", "C"], up_to=2).stated()[-1]
    (('B', 'C'), 3)
    >>> len(Combinations(keys=["A", "B", "C"]).stated())
    7
    >>> [names for names, _ in Combinations(levels={"Town": 1, "Job": 2, "Age": 3, "Sex": 3}).stated()]
    [('Town', 'Job', 'Age'), ('Town', 'Job', 'Sex')]
    >>> Combinations(combinations=[("A",)], threshold=2).stated()
    ((('A',), 3),)
    """

    called: ClassVar[str] = "list of combinations"

    def without(self, gone: Iterable[str]) -> Self | None:
        """Return the combinations of an intruder who cannot use some keys; None if no key is left.

        Combinations that become equal are merged, with the stricter tolerance.

        >>> Combinations(keys=["A", "B"], up_to=2, exactly=True).without(["A"]).stated()
        ((('B',), 3.0),)
        """
        lost = set(gone)
        stated = self.stated()
        if not any(lost.intersection(keys) for keys, _ in stated):
            return self
        shrunk = ((tuple(name for name in keys if name not in lost), tolerance) for keys, tolerance in stated)
        left = tuple(KeyCombination(keys=keys, tolerance=tolerance) for keys, tolerance in shrunk if keys)
        kept = self.model_dump(exclude=_WHICH, exclude_unset=True)
        return type(self)(combinations=left, **kept) if left else None


_WHICH = {"combinations", "keys", "up_to", "exactly", "levels", "tolerance", "threshold"}
"""The fields that say which combinations are protected, and from which count."""


def as_combinations(value: Any) -> Combinations:
    """Build :class:`Combinations` from plain values or a list of combinations; pass an instance through.

    >>> as_combinations([("Age", "Sex"), ("Town",)]).stated()[1]
    (('Town',), 3)
    """
    if isinstance(value, Combinations):
        return value
    if isinstance(value, CombinationFields):
        stated = value.model_dump(include=set(CombinationFields.model_fields) & value.model_fields_set)
        return Combinations(**stated)
    if not isinstance(value, Mapping | Iterable):
        raise SpecError(
            "combinations to protect must be a list or a mapping",
            code="bad-spec",
            hint='e.g. [("Age", "Sex")] or {"keys": ["Age", "Sex", "Town"], "up_to": 2}',
        )
    if isinstance(value, Mapping):
        return Combinations(**{str(name): each for name, each in value.items()})
    return Combinations(combinations=tuple(value))


def check_combinations(asked: CombinationFields, schema: Schema, *, records: int) -> tuple[tuple[Names, float], ...]:
    """Return every combination with its tolerance; refuse those that make no sense for the file."""
    stated = asked.stated()
    names = list(dict.fromkeys(name for keys, _ in stated for name in keys))
    for name in names:
        check_key(schema, name, numbers=asked.numbers_are_levels)
    if len(names) > MOST_KEYS:
        raise SpecError(
            f"the combinations name {len(names)} attributes; the limit is {MOST_KEYS}",
            code="too-many-keys",
            hint="split them into several lists",
        )
    if asked.weight is not None:
        _check_weight(schema, asked.weight)
        return stated
    for keys, tolerance in stated:
        if tolerance > records:
            many = f"{records:,} record{'' if records == 1 else 's'}"
            raise _tolerance_error(keys, f"{tolerance:g}, the file has {many}", records=records)
    return stated


def check_sum(stated: tuple[tuple[Names, float], ...], total: float) -> None:
    """Refuse a tolerance above the sum of all weights of the file."""
    for keys, tolerance in stated:
        if tolerance > total * (1 + 1e-9):
            raise _tolerance_error(keys, f"{tolerance:g}, more than all weights of the file together")


def _tolerance_error(keys: Names, value: str, **fields: Any) -> SpecError:
    return SpecError(
        f"the tolerance of {' × '.join(keys)} is {value}",
        code="tolerance-above-records",
        hint="no combination can be safe: lower the tolerance",
        combination=list(keys),
        **fields,
    )


def check_key(schema: Schema, name: str, *, numbers: bool = False) -> None:
    """Refuse what cannot be a key: an unknown attribute, an identifier, a number or date unless ``numbers``."""
    kind = schema[name].kind
    if kind.is_categorical or (numbers and kind in (Kind.NUMERIC, Kind.DATE)):
        return
    hint = "leave it out of the combinations"
    refuse_date(schema, name)
    if kind is Kind.NUMERIC:
        hint = "recode it to ranges first, or describe it as ordinal if its values are categories"
    raise SpecError(
        f"{name!r} is {kind.value}: combinations are formed from categorical attributes",
        code="key-not-categorical",
        hint=hint,
        attribute=name,
    )


def _check_weight(schema: Schema, name: str) -> None:
    if schema[name].kind not in (Kind.WEIGHT, Kind.NUMERIC):
        raise SpecError(
            f"{name!r} is {schema[name].kind.value}, not a weight",
            code="not-a-weight",
            hint="name an attribute of kind weight, or omit weight to count records",
            attribute=name,
        )
