"""Methods that change values record by record, and what all methods that replace values share.

The plan, checks of numeric columns, keyed draws, and the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Floats, Identity, Words
from safeswap.engines.base import Need
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.exchange import Columns
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.dates import is_text
from safeswap.model.effect import Effect, Replaced
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.numeric_column import Change, decimals_of, finite_numbers
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import MaskSpec, Plan

FEWEST = 3
"""Minimum number of values in a published mean; fewer would reveal too much about each."""

_FEW = 1_000
_LARGEST = 1e150
"""Values up to this have finite sums of squares; differences of at least its inverse have squares above 0."""


@dataclass(frozen=True, kw_only=True)
class ValuePlan(Plan):
    """The number of records that may change, and how, in plain words."""

    text: str = ""

    @classmethod
    def of(cls, spec: MaskSpec, records: int, number: int, text: str) -> ValuePlan:
        """Return the plan to change this many records, or exchange this many pairs, which is always feasible."""
        return cls(method=spec.method, records=records, asked=number, feasible=number, text=text)

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        return self.text

    @property
    def details(self) -> dict[str, Any]:
        """No further facts: the text is the sentence."""
        return {}


def numeric_columns(data: Microdata, names: Names, *, moments: bool = True) -> list[Floats]:
    """Return the attributes as numbers, missing values as NaN; refuse attributes that are not quantities or constant.

    With ``moments``, also refuse attributes whose moments cannot be computed.
    """
    for name in names:
        kind = data.schema[name].kind
        if kind.is_categorical or kind is Kind.HOUSEHOLD:
            raise SpecError(
                f"{name!r} is {kind.value}: its values are codes, not quantities",
                code="not-numeric",
                hint="describe it as numeric in the schema if it is a quantity, or omit it",
                attribute=name,
            )
    columns = [finite_numbers(data, name) for name in names]
    for name, values in zip(names, columns, strict=True):
        refuse_constant(name, values)
        if moments:
            refuse_extreme(name, values)
    return columns


def refuse_extreme(name: str, values: Floats) -> None:
    """Refuse an attribute whose squares, or their sum, exceed the range of double precision."""
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    largest, spread = max(-low, high), high / 2 - low / 2
    if largest > _LARGEST or spread < 1 / _LARGEST:
        what = "values beyond" if largest > _LARGEST else "values that differ by less than"
        raise InputError(
            f"{name!r} has {what} {_LARGEST if largest > _LARGEST else 1 / _LARGEST:g}: its mean and deviation cannot "
            "be computed in double precision",
            code="out-of-range",
            hint="use another unit, set codes that are not quantities to missing, or omit it",
            attribute=name,
        )


def refuse_constant(name: str, values: Floats) -> None:
    """Refuse an attribute without any variation."""
    for some in (values[:_FEW], values):  # most attributes vary in their first values
        if np.fmin.reduce(some, initial=np.inf) < np.fmax.reduce(some, initial=-np.inf):
            return
    raise InfeasibleError(
        f"{name!r} has the same value in every record, or none: there is nothing to mask it with",
        code="constant-attribute",
        hint="leave it out",
        attribute=name,
    )


def refuse_few(name: str, number: int, end: str) -> None:
    """Refuse a mean of fewer than ``FEWEST`` records, which would reveal their values."""
    if 0 < number < FEWEST:
        raise InfeasibleError(
            f"the {end} group of {name!r} has {number} of {FEWEST} records: their mean would reveal them",
            code="group-too-small",
            hint=f"choose a share or a bound that covers at least {FEWEST} records",
            attribute=name,
        )


def stated_decimals(schema: Schema, name: str, decimals: int | None) -> int | None:
    """Return the decimals stated for an attribute; dates have none."""
    return 0 if schema[name].kind is Kind.DATE else decimals


def rounding_step(values: Floats, decimals: int | None) -> float:
    """Return how far a written value may be from the computed one: a unit of its last decimal."""
    places = decimals_of(values) if decimals is None else decimals
    return 0.0 if places is None else 10.0**-places


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The keyed draws of one masking, for any batch of the file.

    A record is known by its identifier, or by its position in the whole file: ``start`` is that of the first record of
    the batch.
    """

    key: Key = field(repr=False)
    method: str
    data_name: str
    records: int
    replicate: int
    start: int = 0

    def words(self, batch: Microdata, purpose: str) -> Words:
        """Return two uniform words per record of the batch, specific to one purpose."""
        return self.lazy_words(batch, [purpose])[purpose].whole()

    def lazy_words(self, batch: Microdata, purposes: Iterable[str]) -> dict[str, keyed.KeyedWords]:
        """Return the words of several purposes, still to be made, of records that are identified once."""
        identity = self._identity(batch)
        return {purpose: keyed.KeyedWords(identity, self._purpose_key(purpose)) for purpose in purposes}

    def word_chunks(self, batch: Microdata, purpose: str, *, chunk: int = keyed.CHUNK) -> Iterator[tuple[int, Words]]:
        """Yield the same words a chunk at a time, with its first row, in a buffer that the next chunk reuses."""
        return keyed.word_chunks(self._identity(batch), self._purpose_key(purpose), chunk=chunk)

    def _identity(self, batch: Microdata) -> Identity:
        identity = record_identity(batch, keyed.derive(self.key.secret, "identity"))
        return identity + self.start if batch.schema.identifier is None and self.start else identity

    def _purpose_key(self, purpose: str) -> bytes:
        asked = ("data", self.data_name, self.records, self.method, purpose, self.replicate)
        return keyed.derive(self.key.secret, *asked)


def record_words(data: Microdata, key: Key, method: str, purpose: str, *, replicate: int) -> Words:
    """Return two uniform words per record of a whole file, specific to one purpose."""
    return make_draws(data, key, method, replicate=replicate).words(data, purpose)


def make_draws(data: Microdata, key: Key, method: str, *, replicate: int) -> Draws:
    """Return the draws of a masking of these data, which are the whole file."""
    return Draws(key=key, method=method, data_name=data.schema.name, records=len(data), replicate=replicate)


@dataclass(frozen=True, eq=False, kw_only=True)
class FileFacts:
    """File-wide facts on which the changes to single records depend.

    ``by_attribute`` is the method's own; ``schema`` describes the columns read, as they are afterwards; ``noted`` goes
    into the audit.
    """

    plan: Plan
    schema: Schema
    by_attribute: Mapping[str, Any] = field(repr=False)
    noted: Mapping[str, Any] = field(default_factory=dict)


class ValueChangingMethod(ABC):
    """A method that changes each record by itself, given facts about the whole file.

    So files are masked batch by batch: the result does not depend on how they are cut.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    spec_type: ClassVar[type[MaskSpec]]
    sources: ClassVar[tuple[str, ...]]
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE_CHANGES})
    copies: ClassVar[int] = 16
    """Memory that facts and verification take, as a multiple of the columns read: measured, and rounded up."""

    @abstractmethod
    def columns(self, schema: Schema, spec: Any) -> Columns:
        """Return the columns on which the result depends, and those it may change."""

    @abstractmethod
    def plan(self, data: Microdata, spec: Any) -> Plan:
        """Return what would be done, and whether it is feasible."""

    @abstractmethod
    def facts(self, data: Microdata, spec: Any) -> FileFacts:
        """Return all that :meth:`changes` needs to know of the whole file, from the columns read."""

    @abstractmethod
    def changes(self, batch: Microdata, facts: FileFacts, spec: Any, draws: Draws) -> Mapping[str, Change]:
        """Return the new columns of a batch. They depend on its own records and the facts only."""

    @abstractmethod
    def invariants(self, data: Microdata, spec: Any) -> tuple[Invariant, ...]:
        """Return what holds for every result of this spec on these data."""

    def effects(self, schema: Schema, spec: Any) -> tuple[Effect, ...]:
        """Return that values were replaced; a method that knows more says more."""
        return (Replaced(self.columns(schema, spec).changed),)

    def apply(self, data: Microdata, spec: Any, *, key: Key, replicate: int = 0) -> Masked:
        """Change all records as one batch."""
        facts = self.facts(data, spec)
        changes = self.changes(data, facts, spec, make_draws(data, key, self.name, replicate=replicate))
        return make_masked(data, spec, facts.plan, changes, key=key, replicate=replicate, facts=facts.noted.items())


def _flag_changed(before: pa.ChunkedArray, change: Change) -> Flags:
    """Flag the records with another value; in a column of another kind, all."""
    everywhere = change.replacement is not None and len(change.replacement.rows) == len(before)
    if is_other_kind(before.type, change.column.type) or (everywhere and change.column.type == before.type):
        return np.ones(len(before), dtype=np.bool_)
    if change.replacement is None or change.column.type != before.type:
        return flag_changes(*aligned_columns(before, change.column))
    flags = np.zeros(len(before), dtype=np.bool_)
    flags[change.replacement.rows] = True
    return flags


def is_other_kind(before: pa.DataType, after: pa.DataType) -> bool:
    """Return True if two types hold different values, and not just one kind of them in two forms.

    >>> is_other_kind(pa.dictionary(pa.int8(), pa.string()), pa.large_string()), is_other_kind(pa.int64(), pa.float64())
    (False, True)
    """
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (before, after)]
    return not all(is_text(kind) for kind in kinds) and kinds[0] != kinds[1]


def make_masked(
    data: Microdata,
    spec: MaskSpec,
    plan: Plan,
    changes: Mapping[str, Change],
    *,
    key: Key,
    replicate: int,
    facts: Iterable[tuple[str, Any]] = (),
) -> Masked:
    """Return the masked data, with an audit from which the original can be restored."""
    replacements = tuple(c.replacement for c in changes.values() if c.replacement is not None)
    columns = {name: c.column for name, c in changes.items() if c.replacement is not None}
    touched = np.zeros(len(data), dtype=np.bool_)
    for name, change in changes.items():
        if change.replacement is not None:
            touched |= _flag_changed(data.table.column(name), change)
    made = int(np.count_nonzero(touched))
    noted = {"made": made, "replacements": replacements, "facts": {"unit": "records", **dict(facts)}}
    return Masked.by(spec, data, data.with_columns(columns, {}), plan, key=key, replicate=replicate, **noted)
