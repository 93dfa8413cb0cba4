"""The public part of a result: the released values, a schema made from them alone, and public facts.

Nothing here can lead back to the confidential record: this module does not know that such a record exists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Integers
from safeswap.errors import InternalError, SpecError, UnsafeRelease
from safeswap.model.dates import is_text
from safeswap.model.key import Key
from safeswap.model.keyed_order import keyed_order, names_of
from safeswap.model.microdata import Coded, Microdata, code_column
from safeswap.model.schema import Attribute, Kind, Schema, household_attributes, level_texts, require_household

ONE_FILE, TWO_FILES = ("data",), ("households", "persons")
"""The names of the data files of a bundle, without ending."""

_REPEATED = 0.25
"""With at most as many levels per record, text is put in another order faster by its codes."""

MOST_LISTED = 10_000
"""A longer list of levels is not useful as documentation; the data have them all."""


@dataclass(frozen=True, eq=False)
class Released:
    """The values in their released order, and the attribute rebuilt from them."""

    attribute: Attribute
    values: pa.Array | pa.ChunkedArray


def released_column(data: Microdata, name: str, index: pa.Array, *, as_codes: bool = True) -> Released:
    """Return rows ``index`` of a column, and its description restricted to the values that occur.

    Text is coded, its levels in schema order or else sorted. Without ``as_codes``, more levels than a description lists
    are not worth sorting, and stay text, or as they were coded.

    >>> sex = pa.chunked_array([pa.DictionaryArray.from_arrays([2, 0, 2], ["m", "unused", "f"])])
    >>> schema = Schema(attributes=(Attribute(name="Sex", labels={"unused": "?", "f": "female"}),))
    >>> released = released_column(Microdata(pa.table({"Sex": sex}), schema), "Sex", pa.array([0, 1]))
    >>> released.attribute.levels, released.attribute.labels
    (('f', 'm'), {'f': 'female'})
    >>> released.values.dictionary.to_pylist(), released.values.indices.to_pylist()
    (['f', 'm'], [0, 1])
    """
    attribute, stored = data.schema[name], data.table.column(name)
    column = _plain_column(name, stored)
    kind = column.type
    if is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        described = attribute.labels or attribute.missing or attribute.levels
        if not as_codes and stored.type == kind and not described and data.has_more_values(name, MOST_LISTED):
            text = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
            restricted, known = _restrict_attribute(attribute, pa.array([], text.type)), data.cached_codes(name)
            if known is None or len(known.levels) > _REPEATED * len(data):
                return Released(restricted, text.take(index))
            return Released(restricted, _recode(known, np.arange(len(known.levels)), known.levels, index))
        coded = data.coded(name) if stored.type == kind else code_column(column)
        levels, order = _canonical_levels(attribute, coded)
        return Released(_restrict_attribute(attribute, levels), _recode(coded, order, levels, index))
    taken = column.take(index)
    return Released(_restrict_attribute(attribute, _occurring_values(attribute, column)), taken)


def _plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return _plain_column(name, pa.chunked_array(chunks, type=kind.storage_type))
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        return _plain_column(name, column.cast(kind.value_type))
    if pa.types.is_nested(kind):
        raise UnsafeRelease(
            f"column {name!r} holds lists or records, which cannot be checked before a release",
            code="nested-column",
            hint="drop the column, or convert it to plain columns",
            column=name,
        )
    return column


def _canonical_levels(attribute: Attribute, coded: Coded) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the levels that occur, in schema order or else sorted, and the old code of each."""
    used = np.sort(pa.array(coded.codes).unique().to_numpy()).astype(np.int64)
    used = used[used < len(coded.levels)]
    levels = coded.levels.take(pa.array(used))
    used = used[pc.sort_indices(levels).to_numpy()]
    if attribute.levels:
        rank = {text: i for i, text in enumerate(attribute.levels)}
        texts = level_texts(coded.levels.take(pa.array(used)))
        used = used[np.argsort([rank.get(text, len(rank)) for text in texts], kind="stable")]
    return coded.levels.take(pa.array(used)), used


def _recode(coded: Coded, order: npt.NDArray[np.int64], levels: pa.Array, index: pa.Array) -> pa.DictionaryArray:
    width = next(t for t in (np.int8, np.int16, np.int32, np.int64) if len(order) <= np.iinfo(t).max)
    lookup = np.zeros(len(coded.levels) + 1, dtype=width)
    lookup[order] = np.arange(len(order))
    # A value without a level is missing. Arrow releases the GIL here, so columns run in parallel.
    unknown = np.isin(np.arange(len(lookup)), order, invert=True)
    codes = pa.array(lookup, mask=unknown).take(pa.array(coded.codes)).take(index)
    return pa.DictionaryArray.from_arrays(codes, levels)


def _occurring_values(attribute: Attribute, column: pa.ChunkedArray) -> pa.Array:
    """Return the distinct values, if there is a reason to list them."""
    if not (attribute.kind.is_categorical or attribute.labels or attribute.missing):
        return pa.array([], type=column.type)
    distinct = column.unique().drop_null()
    return distinct.take(pc.sort_indices(distinct))


def _restrict_attribute(attribute: Attribute, levels: pa.Array) -> Attribute:
    """Remove from the attribute everything about values that do not occur."""
    listed = attribute.kind.is_categorical and len(levels) <= MOST_LISTED
    texts = dict.fromkeys(level_texts(levels)) if listed or attribute.labels or attribute.missing else {}
    if listed and attribute.kind is Kind.ORDINAL and attribute.levels:
        texts = dict.fromkeys([t for t in attribute.levels if t in texts] + list(texts))
    return Attribute(
        name=attribute.name,
        kind=attribute.kind,
        label=attribute.label,
        letter=attribute.letter,
        display=attribute.display,
        levels=tuple(texts) if listed else (),
        labels={text: label for text, label in attribute.labels.items() if text in texts},
        missing=tuple(text for text in attribute.missing if text in texts),
        hierarchy=_prune(attribute.hierarchy, set(texts)),
        geography_level=attribute.geography_level,
    )


def _prune(hierarchy: tuple[dict[str, str], ...], used: set[str]) -> tuple[dict[str, str], ...]:
    pruned = []
    for parents in hierarchy:
        step = {level: parent for level, parent in parents.items() if level in used}
        pruned.append(step)
        used = set(step.values())
    return tuple(pruned)


Identifiers = Literal["new", "none"]

_INDEX_COLUMN = re.compile(r"__index_level_\d+__|Unnamed: \d+(_level_\d+|\.\d+)?|__null_dask_index__")


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """The allow-list of facts published with the data. Anything that is not a field here is not published.

    ``rate`` stays None, and ``multipliers`` (by kind of estimate, the factor by which masking enlarges standard errors)
    empty, unless the data protection officer decides to publish them.
    """

    method: str
    records: int
    kept: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # a sentence for each released column, for the report
    states: tuple[tuple[str, str], ...] = ()  # each of them and what became of it in a word, for its picture
    title: str = ""
    date: str = ""
    rate: float | None = None
    multipliers: tuple[tuple[str, float], ...] = ()
    tolerance: int = 3
    product: str = "safeswap"
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without unset fields."""
        stated: dict[str, Any] = {"title": self.title, "date": self.date, "rate": self.rate}
        if self.multipliers:
            stated["error_multipliers"] = dict(self.multipliers)
        always = {"product": self.product, "version": self.version, "method": self.method}
        counted = {"kept_exactly": list(self.kept), "records": self.records, "tolerance": self.tolerance}
        return {**always, **counted, **{name: value for name, value in stated.items() if value not in ("", None)}}


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """The public table, its schema, and the public facts.

    If some columns are ``shared`` by the members of a household, the table is published as two files: one of households
    and one of persons, which join by the household's number to the table.
    """

    table: pa.Table = field(repr=False)
    schema: Schema = field(repr=False)
    facts: PublicFacts
    shared: Names = ()

    def __post_init__(self) -> None:
        if tuple(self.table.column_names) != self.schema.names or self.table.schema.metadata:
            raise InternalError("the released table does not match its schema", code="schema-mismatch")

    @cached_property
    def parts(self) -> dict[str, Release]:
        """The released files by their names without ending: all in one, or households and persons.

        >>> schema = Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="A")))
        >>> table = pa.table({"home": [2, 1, 2, None], "A": ["x", "y", "x", None]})
        >>> release = Release(table=table, schema=schema, facts=PublicFacts(method="none", records=4), shared=("A",))
        >>> {name: part.table.to_pydict() for name, part in release.parts.items()}
        {'households': {'home': [2, 1], 'A': ['x', 'y']}, 'persons': {'home': [2, 1, 2, None]}}
        """
        if not self.shared:
            return {ONE_FILE[0]: self}
        own = require_household(self.schema)
        numbers = self.table.column(own).combine_chunks()
        first = np.unique(numbers.fill_null(0).to_numpy(), return_index=True)[1]  # new numbers begin with 1
        first = np.sort(first[numbers.take(pa.array(first)).is_valid().to_numpy(zero_copy_only=False)])
        homes = [name for name in self.schema.names if name == own or name in self.shared]
        people = [name for name in self.schema.names if name not in self.shared]
        chosen = (self.table.select(homes).take(pa.array(first)), self.table.select(people))
        schemas = (self.schema.select(homes), self.schema.select(people))
        pairs = zip(TWO_FILES, chosen, schemas, strict=True)
        return {stem: Release(table=table, schema=schema, facts=self.facts) for stem, table, schema in pairs}


def is_index_column(name: str) -> bool:
    """Return whether a column is a dataframe's index that was written to the file.

    >>> [is_index_column(name) for name in ("__index_level_0__", "Unnamed: 0", "Age")]
    [True, True, False]
    """
    return not name or _INDEX_COLUMN.fullmatch(name) is not None


def released_names(schema: Schema, *, identifiers: Identifiers = "new", drop: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns that a release of the file has.

    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"), Attribute(name="A"), Attribute(name="B")))
    >>> released_names(schema, identifiers="none", drop=["B"])
    ('A',)
    """
    for name in drop:
        schema[name]
    left_out = {a.name for a in schema.attributes if is_index_column(a.name)} | set(drop)
    if identifiers == "none":
        left_out |= {a.name for a in schema.iter_kind(Kind.IDENTIFIER)}
    kept = [name for name in schema.names if name not in left_out]
    if all(schema[name].kind is Kind.IDENTIFIER for name in kept):
        raise SpecError("no column is left to release", code="nothing-left", hint="drop fewer columns")
    return tuple(kept)


def prepare_release(
    data: Microdata,
    *,
    key: Key,
    facts: PublicFacts,
    context: Sequence[str | int] = (),
    identifiers: Identifiers = "new",
    drop: Sequence[str] = (),
    as_codes: bool = True,
    two_files: bool = False,
) -> tuple[Release, Integers]:
    """Return the public part of a masked file, and (confidential) the original row of each released one.

    Rows are in an order drawn with the key. Record identifiers number the rows of that order, or are dropped;
    household identifiers become numbers drawn with the key, the same for all members. Categories are those that
    occur, in schema order or else sorted. Anything else in the file is dropped. Without
    ``as_codes``, for a file that stores no levels, text with very many of them stays text. ``two_files`` asks for one
    of households and one of persons.

    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"), Attribute(name="Sex")))
    >>> data = Microdata(pa.table({"id": [901, 902, 903], "Sex": ["m", "f", "m"]}), schema)
    >>> release, rows = prepare_release(data, key=Key.generate(), facts=PublicFacts(method="none", records=3))
    >>> release.table["id"].to_pylist(), release.schema["Sex"].levels, sorted(rows.tolist())
    ([1, 2, 3], ('f', 'm'), [0, 1, 2])
    """
    refuse_insecure(key)
    names = released_names(data.schema, identifiers=identifiers, drop=drop)
    rows = _row_order(data, key, context, names)
    index = pa.array(rows)
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        released = partial(_release_column, data, index=index, key=key, context=context, as_codes=as_codes)
        columns = list(threads.map(released, names))
    table = pa.table([c.values for c in columns], names=list(names))
    schema = Schema(name=facts.title, label=facts.title, attributes=tuple(c.attribute for c in columns))
    shared = find_shared(data, names) if two_files else ()
    return Release(table=table, schema=schema, facts=facts, shared=shared), rows


def find_shared(data: Microdata, names: Sequence[str]) -> Names:
    """Return the released columns that go to a file of households; refuse a file that cannot be divided."""
    from safeswap.model.households import check_constant
    from safeswap.model.two_files import refuse_lost

    shared = tuple(name for name in household_attributes(data.schema) if name in names)
    numbered = any(data.schema[name].kind is Kind.HOUSEHOLD for name in names)
    if not shared or not numbered:
        absent = "no attribute of households" if numbered else "no household number"
        raise SpecError(
            f"two files cannot be released: the released columns have {absent}",
            code="no-household",
            hint="release one file; or describe the number as household, and mark what members share as the "
            "household's",
        )
    check_constant(data, shared)
    refuse_lost(data, shared)
    return shared


def preview_release(data: Microdata, names: Sequence[str], *, facts: PublicFacts) -> Release:
    """Return the public part with its rows as they are: to describe it, not to be written."""
    index = pa.array(np.arange(len(data)))
    columns = []
    for name in names:
        attribute = data.schema[name]
        if attribute.kind in (Kind.IDENTIFIER, Kind.HOUSEHOLD):
            columns.append(Released(_drop_label(attribute), index))
        else:
            columns.append(released_column(data, name, index, as_codes=False))
    table = pa.table([c.values for c in columns], names=list(names))
    schema = Schema(name=facts.title, label=facts.title, attributes=tuple(c.attribute for c in columns))
    return Release(table=table, schema=schema, facts=facts)


def refuse_insecure(key: Key) -> None:
    """Refuse to release a result of an insecure seed."""
    if not key.releasable:
        raise UnsafeRelease(
            "this was masked with an insecure seed and must not be released",
            code="not-for-release",
            hint="mask again with a secret key (`safeswap keygen`)",
        )


def _row_order(data: Microdata, key: Key, context: Sequence[str | int], names: Sequence[str]) -> Integers:
    """Return the rows in an order drawn with the key; where members share attributes, household by household.

    If the number of households is not released, members are not kept together: their places would tell it.
    """
    identifier = data.schema.identifier
    if identifier is None:
        rows = keyed_order(np.arange(len(data)), _derive_key(key, "row-order", *context))
    else:
        column = data.table.column(identifier.name)
        rows = keyed_order(names_of(column, _derive_key(key, "mac")), _derive_key(key, "row-order", *context))
    if not household_attributes(data.schema) or all(data.schema[name].kind is not Kind.HOUSEHOLD for name in names):
        return rows
    from safeswap.model.households import find_households, number_units

    homes = find_households(data)
    units = names_of(number_units(data, homes), _derive_key(key, "mac"))
    place = np.empty(len(homes), dtype=np.int64)
    place[keyed_order(units, _derive_key(key, "household-order", *context))] = np.arange(len(homes))
    return rows[np.argsort(place[homes.of_record[rows]], kind="stable")]


def _release_column(
    data: Microdata, name: str, *, index: pa.Array, key: Key, context: Sequence[str | int], as_codes: bool
) -> Released:
    attribute, column = data.schema[name], data.table.column(name)
    if attribute.kind is Kind.IDENTIFIER:
        return Released(
            _drop_label(attribute), pa.array(np.arange(1, len(column) + 1, dtype=_counting_type(len(column))))
        )
    if attribute.kind is Kind.HOUSEHOLD:
        derived = _derive_key(key, "new-identifiers", attribute.name, *context)
        if attribute.missing or not pa.types.is_integer(column.type):  # persons outside do not live together
            from safeswap.model.households import absent_numbers

            outside = absent_numbers(data, name)[data.coded(name).codes]
            column = column.take(pa.array(np.arange(len(column)), mask=outside))
        return Released(_drop_label(attribute), _renumber(column, derived, _derive_key(key, "mac")).take(index))
    return released_column(data, name, index, as_codes=as_codes)


def _renumber(column: pa.ChunkedArray, key: bytes, mac_key: bytes) -> pa.Array:
    """Replace the distinct values by numbers 1, 2, … in keyed order; missing stays missing."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode().combine_chunks()
    order = keyed_order(names_of(pa.chunked_array([encoded.dictionary]), mac_key), key)
    number = np.empty(len(order), dtype=_counting_type(len(order)))
    number[order] = np.arange(1, len(order) + 1)
    return pa.array(number).take(encoded.indices)


def _counting_type(largest: int) -> type[np.int32 | np.int64]:
    return np.int32 if largest < 2**31 else np.int64


def _drop_label(attribute: Attribute) -> Attribute:
    """Drop the label of a renumbered column, which may describe the old numbers."""
    return Attribute(name=attribute.name, kind=attribute.kind)


def _derive_key(key: Key, stage: str, *context: str | int) -> bytes:
    from safeswap.arrays.keyed import derive

    return derive(key.secret, "release", stage, *context)
