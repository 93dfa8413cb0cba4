"""Guess what the columns of a file are, by rules that can be read.

Each column is looked at in a sample of at most 100,000 records, ten runs spread evenly over the file. In this order:

1. *identifier*: the name says so (``id``, ``person_id``, ``serial``…) and no value is missing or occurs twice in the
   whole file. The first such column only; where there is none, the first that numbers the records by its structure:
   successive whole numbers in any order, each once.
2. *household*: the name says so (``hhid``, ``household``…) and values repeat, or it numbers households by its
   structure (:mod:`safeswap.io.numbering`).
3. *weight*: the name says so (``weight``, ``wgt``, ``fnlwgt``…) and all values are numbers of at least 0.
4. *geography*: the name says so (``state``, ``county``, ``nuts3``…) and the values are no fractions.
5. *ordinal*: ordered categories of a dataframe; or few texts, all of them numbers, ranges or bounds (``<25``,
   ``25-55``, ``65+``) and not all plain numbers. The order is put down in ``levels``.
6. *numeric*: all values are numbers, and there are more than 20 different ones, or fractions among them, or they
   hardly repeat, or there is only one: a constant tells no categories apart, and may be a weight. Numbers with
   leading zeros are codes.
7. *nominal*: everything else. In particular a number with few values: it may well be a code without an order. Dates
   and times are here too, whether a file has them as text or by type: they are no quantities to add noise to.

A guess is marked ``inferred`` until somebody confirms it. Look at it with ``describe`` and correct it with ``kinds=``
or in the schema file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from safeswap.io.identifiers import is_unique, missing_positions
from safeswap.io.numbering import counts_records, numbers_households, numbers_persons
from safeswap.io.ranges import order_of_ranges
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Coded, code_column
from safeswap.model.schema import Attribute, Kind, Schema

MOST_CATEGORIES = 20
_MOST_RANGES = 50
_RUNS, _RUN = 10, 10_000

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?inf", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_INDEX = re.compile(r"__index_level_\d+__")
MISSING_MARKS = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", ".", "?", "-"})

_IDENTIFIER = {"id", "ids", "pid", "uid", "uuid", "guid", "serial", "identifier", "recno", "caseid", "rowid", "persid"}
_HOUSEHOLD = {"hh", "hhid", "hhno", "household", "hhold", "dwelling", "hhserial", "hhnum"}
_NUMBERING = {"id", "no", "nr", "num", "number", "serial", "key", "code"}
_WEIGHT = {"weight", "weights", "wt", "wgt", "pweight", "fnlwgt", "pwgt", "hwgt", "pwgtp", "wtfinl", "wgtp"}
_GEOGRAPHY = {
    "geo", "geography", "region", "regions", "state", "province", "county", "canton", "district", "municipality",
    "place", "block", "tract", "ward", "parish", "nuts", "lau", "fips", "puma", "postcode", "zip", "zipcode",
}  # fmt: skip


def infer_schema(table: pa.Table, *, name: str = "", identifier: str | None = None) -> Schema:
    """A schema for the table, every kind in it marked as a guess, except that of the identifier if it is stated.

    >>> table = pa.table(
    ...     {
    ...         "person_id": ["007", "008", "009", "010"],
    ...         "Age": ["<25", "25-55", "<25", ">55"],
    ...         "Income": [1200.5, 0.0, 310.0, 99.9],
    ...         "Sex": ["F", "M", "M", "F"],
    ...     }
    ... )
    >>> schema = infer_schema(table)
    >>> [(a.name, a.kind.value) for a in schema.attributes]
    [('person_id', 'identifier'), ('Age', 'ordinal'), ('Income', 'numeric'), ('Sex', 'nominal')]
    >>> schema["Age"].levels
    ('<25', '25-55', '>55')
    """
    sample = _sample(table)
    attributes: list[Attribute] = []
    coded: dict[str, Coded] = {}
    identified = identifier is not None
    for position, column_name in enumerate(table.column_names):
        column, part = table.column(position), sample.column(position)
        if column_name == identifier:
            attributes.append(Attribute(name=column_name, kind=Kind.IDENTIFIER))
        elif not identified and _is_identifier(column_name, column, part):
            attributes.append(Attribute(name=column_name, kind=Kind.IDENTIFIER, inferred=True))
            identified = True
        else:
            coded[column_name] = code_column(part)
            attributes.append(_guess(column_name, column, coded[column_name]))
    schema = Schema(name=name, attributes=tuple(attributes))
    return schema.replace(*_by_structure(table, sample, schema, coded))


def _by_structure(table: pa.Table, sample: pa.Table, schema: Schema, coded: dict[str, Coded]) -> Iterator[Attribute]:
    """The columns that are numbers of persons or households, though their names do not say so."""
    plain = {name: found for name, found in coded.items() if schema[name].kind in (Kind.NUMERIC, Kind.NOMINAL)}
    records = table.num_rows
    identified = schema.identifier is not None
    for name, found in plain.items():
        scale = records / max(len(found.codes), 1)
        if not identified and numbers_persons(sample.column(name), distinct=len(found.levels), scale=scale):
            identified = counts_records(table.column(name))
            if identified:
                yield Attribute(name=name, kind=Kind.IDENTIFIER, inferred=True)
        elif numbers_households(found, {other: coded[other] for other in coded if other != name}, scale=scale):
            yield Attribute(name=name, kind=Kind.HOUSEHOLD, inferred=True)


def _sample(table: pa.Table) -> pa.Table:
    if table.num_rows <= _RUNS * _RUN:
        return table
    starts = np.linspace(0, table.num_rows - _RUN, _RUNS).astype(np.int64)
    return pa.concat_tables([table.slice(int(start), _RUN) for start in starts])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _is_identifier(name: str, column: pa.ChunkedArray, sample: pa.ChunkedArray) -> bool:
    named = _INDEX.fullmatch(name) or (_words(name) and _IDENTIFIER.intersection((_words(name)[-1], name.lower())))
    if not named or not is_unique(sample):
        return False
    return not missing_positions(column).size and is_unique(column)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What the sampled values of a column have in common, marks of missing values left aside."""

    distinct: int
    constant: bool
    repeat: bool  # on average each value occurs twice or more
    numbers: bool
    fractions: bool
    codes: bool
    least: float
    marks: tuple[str, ...]

    @property
    def are_categories(self) -> bool:
        return self.repeat and self.distinct <= MOST_CATEGORIES and not self.fractions and not self.constant


def _guess(name: str, column: pa.ChunkedArray, coded: Coded) -> Attribute:
    facts = _facts(coded, len(coded.codes))
    words = set(_words(name))
    kind = Kind.NOMINAL
    levels: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    if words & _HOUSEHOLD and words <= _HOUSEHOLD | _NUMBERING and facts.repeat:
        kind = Kind.HOUSEHOLD
    elif words & _WEIGHT and facts.numbers and facts.least >= 0:
        kind, marks = Kind.WEIGHT, facts.marks
    elif words & _GEOGRAPHY and not facts.fractions:
        kind = Kind.GEOGRAPHY
    elif levels := _order(column, coded):
        kind = Kind.ORDINAL
    elif facts.numbers and not facts.codes and not facts.are_categories:
        kind, marks = Kind.NUMERIC, facts.marks
    return Attribute(name=name, kind=kind, levels=levels, missing=marks, inferred=True)


def _facts(coded: Coded, records: int) -> _Facts:
    used = np.unique(coded.codes)
    levels = coded.levels.take(pa.array(used[used < len(coded.levels)]))
    kind = levels.type
    marks: tuple[str, ...] = ()
    codes = False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = [text for text in levels.to_pylist() if text not in MISSING_MARKS]
        marks = tuple(sorted(text for text in levels.to_pylist() if text in MISSING_MARKS and text))
        numbers = [float(text) for text in texts if _NUMBER.fullmatch(text)]
        is_number = bool(texts) and len(numbers) == len(texts)
        codes = any(_CODE.fullmatch(text) for text in texts)
    else:
        is_number = _is_numeric(kind)
        numbers = [float(v) for v in levels.to_pylist()] if is_number else []
    return _Facts(
        distinct=len(levels),
        constant=len(set(numbers)) == 1,
        repeat=2 * len(levels) <= records,
        numbers=is_number,
        fractions=any(math.isfinite(value) and not value.is_integer() for value in numbers),
        codes=codes,
        least=min(numbers, default=0.0),
        marks=marks,
    )


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _order(column: pa.ChunkedArray, sampled: Coded) -> tuple[str, ...]:
    """The levels in their order, where the column has one; levels that occur in the whole column, not the sample."""
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.ordered:
        return tuple(dict.fromkeys(level_texts(code_column(column).levels)))
    if len(sampled.levels) > _MOST_RANGES or not (
        pa.types.is_string(sampled.levels.type) or pa.types.is_large_string(sampled.levels.type)
    ):
        return ()
    if not order_of_ranges(level_texts(sampled.levels)):
        return ()
    levels = code_column(column).levels
    return order_of_ranges(level_texts(levels)) if len(levels) <= _MOST_RANGES else ()
