"""Infer the kinds of columns by documented rules.

Each column is examined in a sample of at most 100,000 records, ten runs spread evenly over the file. In this order:

1. *identifier*: the name says so (``id``, ``person_id``, ``serial``…) and no value is missing or occurs twice in the
   whole file. Only the first such column; if there is none, the first that numbers the records by its structure:
   successive whole numbers in any order, each once.
2. *date*: all values are dates: by type, timestamps at midnight without a zone, or texts ``YYYY-MM-DD``.
3. *household*: the name says so (``hhid``, ``household``…) and values repeat, or it numbers households by its
   structure (:mod:`safeswap.files.identifiers`).
4. *weight*: the name says so (``weight``, ``wgt``, ``poids``…) and all values are numbers of at least 0.
5. *geography*: the name says so (``state``, ``nuts3``, ``Gemeinde``…) and the values are not fractions.
6. *ordinal*: ordered categories of a dataframe; or few texts, all of them numbers, ranges or bounds (``<25``,
   ``25-55``, ``65+``) and not all plain numbers. The order is recorded in ``levels``.
7. *numeric*: all values are numbers, and there are more than 20 distinct ones, or fractions among them, or they
   hardly repeat, or there is only one: a constant distinguishes no categories, and may be a weight. Numbers with
   leading zeros are codes.
8. *nominal*: everything else. In particular a number with few values: it may well be a code without an order. Times,
   timestamps with a time of day and periods belong here too: they are not quantities to add noise to.

Where one column numbers households, attributes with the same value for all members of every household are marked
``household``, unless so few members share one that it may be chance.

A guess is marked ``inferred`` until it is confirmed. Review it with ``describe`` and correct it with ``kinds=`` or in
the schema file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, SpecError
from safeswap.files.identifiers import (
    Lines,
    counts_records,
    describe_positions,
    find_missing,
    is_unique,
    numbers_households,
    numbers_persons,
    positions_of,
)
from safeswap.model.checked import check_types
from safeswap.model.dates import ISO_DATE, is_date_format, to_days
from safeswap.model.households import find_household_attributes, mark_household_attributes
from safeswap.model.microdata import Coded, Microdata, code_column
from safeswap.model.schema import Attribute, Kind, Schema, level_texts
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.files.parquet import ParquetFiles

_RANGE_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)"
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))", re.ASCII)
_UNIT = r"(?:[kKmM%]|\s?(?:years?|hours?))?"
_RANGE = re.compile(
    rf"(?P<bound><=|>=|<|>|≤|≥|under|over|below|above|less than|more than|at least|up to)?\s*"
    rf"(?P<low>{_RANGE_NUMBER})(?P<unit>{_UNIT})(?:\s*(?:-|–|to)\s*(?P<high>{_RANGE_NUMBER}){_UNIT})?"
    rf"\s*(?P<open>\+|and over|or more|or less|and under)?",
    re.IGNORECASE | re.ASCII,
)
_BELOW = {"<", "<=", "≤", "under", "below", "less than", "up to", "or less", "and under"}
_ABOVE = {">", ">=", "≥", "over", "above", "more than", "at least", "+", "and over", "or more"}
_FACTOR = {"k": 1e3, "m": 1e6}


def order_of_ranges(levels: Iterable[str]) -> tuple[str, ...]:
    """Return the levels from low to high, if each is a number, a range or a bound and they are not all plain numbers.

    >>> order_of_ranges([">55", "25-55", "<25"]), order_of_ranges(["50K+", "<50K"])
    (('<25', '25-55', '>55'), ('<50K', '50K+'))
    >>> order_of_ranges(["1", "2", "3"]), order_of_ranges(["<25", "unknown"])
    ((), ())
    """
    found: list[tuple[tuple[float, int, float], str]] = []
    plain = True
    for level in levels:
        match = _RANGE.fullmatch(level.strip())
        if match is None:
            return ()
        side = _side(match)
        plain = plain and side == 0 and match["high"] is None
        low = _parse_number(match["low"], match["unit"])
        high = _parse_number(match["high"], match["unit"]) if match["high"] else low
        found.append(((low, side, high), level))
    return () if plain else tuple(level for _, level in sorted(found))


def order_of_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """Return the natural order of the levels, as ranges or as numbers; empty if they are neither.

    >>> order_of_levels(["10", "9"]), order_of_levels(["low", "high"])
    (('9', '10'), ())
    """
    texts = list(levels)
    if ranges := order_of_ranges(texts):
        return ranges
    try:
        return tuple(sorted(texts, key=lambda text: (float(text), text)))
    except ValueError:
        return ()


def _side(match: re.Match[str]) -> int:
    words = {(match["bound"] or "").lower(), (match["open"] or "").lower()}
    return -1 if words & _BELOW else int(bool(words & _ABOVE))


def _parse_number(digits: str, unit: str) -> float:
    return float(_THOUSANDS.sub("", digits).replace(",", ".")) * _FACTOR.get(unit.strip().lower(), 1.0)


MOST_CATEGORIES = 20
_MOST_RANGES = 50
_RUNS, _RUN = 10, 10_000

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")  # of names without accents
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?inf", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_INDEX = re.compile(r"__index_level_\d+__")
MISSING_MARKS = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", ".", "?", "-"})

_IDENTIFIER = {"id", "ids", "pid", "uid", "uuid", "guid", "serial", "identifier", "recno", "caseid", "rowid", "persid"}
# In English, then in the languages of other agencies, without accents; only words that mean little else.
_HOUSEHOLD = {
    "hh", "hhid", "hhno", "household", "hhold", "dwelling", "hhserial", "hhnum",
    "haushalt", "hhnr", "menage", "hogar", "famiglia", "huishouden", "hushall", "husholdning",
}  # fmt: skip
_NUMBERING = {"id", "no", "nr", "num", "number", "serial", "key", "code", "nummer", "numero", "codigo", "codice"}
_WEIGHT = {
    "weight", "weights", "wt", "wgt", "pweight", "fnlwgt", "pwgt", "hwgt", "pwgtp", "wtfinl", "wgtp",
    "gewicht", "hochrechnungsfaktor", "poids", "ponderation", "peso", "ponderacion", "gewichtsfactor", "vikt", "vekt",
}  # fmt: skip
_GEOGRAPHY = {
    "geo", "geography", "region", "regions", "state", "province", "county", "canton", "district", "municipality",
    "place", "block", "tract", "ward", "parish", "nuts", "lau", "fips", "puma", "postcode", "zip", "zipcode",
    "bundesland", "kreis", "landkreis", "gemeinde", "kanton", "bezirk", "plz", "departement", "commune", "provincia",
    "regione", "comune", "municipio", "comunidad", "comarca", "gemeente", "provincie", "kommun", "kommune", "fylke",
}  # fmt: skip


def infer_schema(table: pa.Table, *, name: str = "", identifier: str | None = None) -> Schema:
    """Infer a schema for the table; every kind is marked as a guess, except a stated identifier.

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
    return schema.replace(*_find_by_structure(table, sample, schema, coded))


def _find_by_structure(
    table: pa.Table, sample: pa.Table, schema: Schema, coded: dict[str, Coded]
) -> Iterator[Attribute]:
    """Yield the columns that number persons or households although their names do not say so."""
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


def _split_name(name: str) -> list[str]:
    plain = normalize("NFKD", name).encode("ascii", "ignore").decode()
    return [word.lower() for word in _WORD.findall(plain)]


def _is_identifier(name: str, column: pa.ChunkedArray, sample: pa.ChunkedArray) -> bool:
    named = _INDEX.fullmatch(name) or (
        _split_name(name) and _IDENTIFIER.intersection((_split_name(name)[-1], name.lower()))
    )
    if not named or not is_unique(sample):
        return False
    return not find_missing(column).size and is_unique(column)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Properties of the sampled values of a column, missing marks excluded."""

    distinct: int
    constant: bool
    repeat: bool  # on average each value occurs at least twice
    numbers: bool
    fractions: bool
    codes: bool
    least: float
    marks: tuple[str, ...]

    @property
    def are_categories(self) -> bool:
        return self.repeat and self.distinct <= MOST_CATEGORIES and not self.fractions and not self.constant


def _guess(name: str, column: pa.ChunkedArray, coded: Coded) -> Attribute:
    facts = _collect_facts(coded, len(coded.codes))
    words = set(_split_name(name))
    kind = Kind.NOMINAL
    levels: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    if (stated := _find_dates(coded)) is not None:
        kind, marks = Kind.DATE, stated
    elif words & _HOUSEHOLD and words <= _HOUSEHOLD | _NUMBERING and facts.repeat:
        kind = Kind.HOUSEHOLD
    elif words & _WEIGHT and facts.numbers and facts.least >= 0:
        kind, marks = Kind.WEIGHT, facts.marks
    elif words & _GEOGRAPHY and not facts.fractions:
        kind = Kind.GEOGRAPHY
    elif levels := _find_order(column, coded):
        kind = Kind.ORDINAL
    elif facts.numbers and not facts.codes and not facts.are_categories:
        kind, marks = Kind.NUMERIC, facts.marks
    return Attribute(name=name, kind=kind, levels=levels, missing=marks, inferred=True)


def _find_dates(coded: Coded) -> tuple[str, ...] | None:
    """Return the marks for missing values in a column of dates; None unless all other values are dates."""
    levels, marks = coded.levels, ()
    if pa.types.is_string(levels.type) or pa.types.is_large_string(levels.type):
        levels = levels.cast(pa.large_string())
        is_mark = pc.is_in(levels, pa.array(MISSING_MARKS, type=levels.type))
        marks = tuple(sorted(filter(None, levels.filter(is_mark).to_pylist())))
        levels = levels.filter(pc.invert(is_mark))
        if not len(levels) or not re.fullmatch(ISO_DATE, levels[0].as_py()):
            return None
    elif not pa.types.is_temporal(levels.type):
        return None
    return marks if (len(levels) or pa.types.is_date(levels.type)) and to_days(levels) is not None else None


def _collect_facts(coded: Coded, records: int) -> _Facts:
    used = np.unique(coded.codes)
    levels = coded.levels.take(pa.array(used[used < len(coded.levels)]))
    kind = levels.type
    marks: tuple[str, ...] = ()
    codes = False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        is_mark = pc.is_in(levels, pa.array(MISSING_MARKS, type=kind))
        marks = tuple(sorted(filter(None, levels.filter(is_mark).to_pylist())))
        texts = levels.filter(pc.invert(is_mark))
        found = _filter_matches(texts, _NUMBER).to_pylist()
        numbers = np.fromiter(map(float, found), np.float64, len(found))
        is_number = 0 < len(texts) == len(numbers)
        codes = len(_filter_matches(texts, _CODE)) > 0
    else:
        is_number = _is_numeric(kind)
        numbers = np.array([float(value) for value in levels.to_pylist()] if is_number else [])
    return _Facts(
        distinct=len(levels),
        constant=len(np.unique(numbers)) == 1,
        repeat=2 * len(levels) <= records,
        numbers=is_number,
        fractions=bool((np.isfinite(numbers) & (numbers != np.floor(numbers))).any()),
        codes=codes,
        least=float(min(numbers, default=0.0)),
        marks=marks,
    )


def _filter_matches(texts: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    """Return the texts that match a pattern as a whole, without a loop in Python."""
    return texts.filter(pc.match_substring_regex(texts, f"^(?:{pattern.pattern})$"))


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _find_order(column: pa.ChunkedArray, sampled: Coded) -> tuple[str, ...]:
    """Return the levels of the whole column in order, if it has one."""
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


def resolve_schema(
    table: pa.Table,
    *,
    schema: Schema | None,
    stated: Mapping[str, Attribute],
    identifier: str | None,
    kinds: Mapping[str, Kind | str],
    missing: Sequence[str],
    name: str,
    file: str,
) -> Schema:
    """Return the schema of the table; the caller's statements take precedence over the file's, and these over guesses.

    >>> table = pa.table({"Sex": ["1", "2", "9"]})
    >>> options = dict(schema=None, stated={}, identifier=None, name="", file="")
    >>> schema = resolve_schema(table, kinds={"Sex": "ordinal"}, missing=["9"], **options)
    >>> schema["Sex"].kind.value, schema["Sex"].levels, schema["Sex"].missing
    ('ordinal', ('1', '2'), ('9',))
    """
    if schema is None:
        guess = infer_schema(table, name=name, identifier=identifier)
        known = guess.replace(*(_merge(guess[own.name], own) for own in stated.values()))
    else:
        known = _align(schema, table.column_names, name or schema.name, file)
    if identifier is not None:
        known = _mark_identifier(known, identifier)
    known = known.replace(*(_set_kind(known[attribute], table, kind, missing) for attribute, kind in kinds.items()))
    if missing:
        known = known.replace(*(_add_missing(attribute, missing) for attribute in known.attributes))
    return known if schema is not None else _mark_shared(table, known)


def _mark_shared(table: pa.Table, schema: Schema) -> Schema:
    """Mark the attributes that are the same for all members of every household, where one column numbers these.

    A sample is looked at first: in most files most columns vary within households.
    """
    own = [attribute.name for attribute in schema.iter_kind(Kind.HOUSEHOLD)]
    if len(own) != 1 or table.num_rows < 2:
        return schema
    names = find_household_attributes(Microdata(_sample(table), schema))
    if names and table.num_rows > _RUNS * _RUN:
        columns = (own[0], *names)
        names = find_household_attributes(Microdata(table.select(columns), schema.select(columns)))
    return mark_household_attributes(schema, names)


def _merge(guess: Attribute, own: Attribute) -> Attribute:
    """Merge the description in a labelled file with the guess, which supplies a missing kind."""
    if not own.inferred:
        return own
    # Months as numbers are neither a quantity nor, where they are consecutive, the numbers of records.
    numbers = guess.kind in (Kind.NUMERIC, Kind.IDENTIFIER, Kind.HOUSEHOLD)
    periods = numbers and is_date_format(own.display)
    return own.model_copy(update={"kind": Kind.NOMINAL if periods else guess.kind, "levels": guess.levels})


def _align(schema: Schema, names: Sequence[str], name: str, file: str) -> Schema:
    present, known = set(names), set(schema.names)
    absent = [n for n in schema.names if n not in present]
    unknown = [n for n in names if n not in known]
    if absent or unknown:
        raise InputError(
            f"schema and data name different columns: {len(absent)} of the schema are not in the data, "
            f"{len(unknown)} of the data are not in the schema",
            code="schema-mismatch",
            hint="the schema must describe every column of the data and no other",
            **({"file": file} if file else {}),
            not_in_data=absent[:20],
            not_in_schema=unknown[:20],
        )
    return Schema(name=name, label=schema.label, attributes=tuple(schema[n] for n in names))


def _mark_identifier(schema: Schema, identifier: str) -> Schema:
    chosen = schema[identifier].model_copy(update={"kind": Kind.IDENTIFIER, "inferred": False})
    others = [a for a in schema.iter_kind(Kind.IDENTIFIER) if a.name != identifier]
    return schema.replace(chosen, *(a.model_copy(update={"kind": Kind.NOMINAL}) for a in others))


def _set_kind(attribute: Attribute, table: pa.Table, kind: Kind | str, missing: Sequence[str]) -> Attribute:
    try:
        stated = Kind(kind)
    except ValueError:
        raise SpecError(
            f"attribute {attribute.name!r} cannot be of that kind",
            code="unknown-kind",
            hint="the kinds are: " + ", ".join(k.value for k in Kind),
            attribute=attribute.name,
        ) from None
    levels = attribute.levels
    if stated is Kind.ORDINAL and not levels:
        texts = level_texts(code_column(table.column(attribute.name)).levels)
        levels = order_of_levels(text for text in texts if text not in {*attribute.missing, *missing})
    return attribute.model_copy(update={"kind": stated, "inferred": False, "levels": levels})


def _add_missing(attribute: Attribute, codes: Iterable[str]) -> Attribute:
    return attribute.model_copy(update={"missing": tuple(dict.fromkeys((*attribute.missing, *codes)))})


def check_levels(data: Microdata, *, file: str = "", lines: Lines | None = None) -> None:
    """Refuse a column with values outside its stated levels; guessed levels are not checked."""
    for attribute in data.schema.attributes:
        if not attribute.levels or attribute.inferred:
            continue
        coded = data.coded(attribute.name)
        allowed = {*attribute.levels, *attribute.missing}
        unlisted = np.array([text not in allowed for text in level_texts(coded.levels)] + [False])
        strangers = np.flatnonzero(unlisted[coded.codes])
        if strangers.size:
            raise InputError(
                f"{plural(strangers.size, 'record has', 'records have')} a value of {attribute.name!r} that is not "
                "among its levels, "
                f"the first in {describe_positions(strangers, lines)}",
                code="unlisted-level",
                hint="add the level to the schema, or correct the data",
                column=attribute.name,
                **({"file": file} if file else {}),
                **positions_of(strangers, lines),
            )


@check_types
def resolve_file_schema(
    files: ParquetFiles,
    *,
    schema: Schema | str | Path | None = None,
    identifier: str | None = None,
    kinds: Mapping[str, Any] | None = None,
    missing: Sequence[str] = (),
    name: str | None = None,
) -> Schema:
    """Return the schema that :func:`safeswap.files.read.read` would find; guesses are based on a sample."""
    from safeswap.files.columns import normalise_table
    from safeswap.files.schema_file import read_schema

    known = read_schema(schema) if isinstance(schema, str | Path) else schema
    sample = normalise_table(_sample_files(files), file=str(files.root))
    found = resolve_schema(
        sample,
        schema=known,
        stated={},
        identifier=identifier,
        kinds=kinds or {},
        missing=missing,
        name=files.root.name.split(".", 1)[0] if name is None else name,
        file=str(files.root),
    )
    # What members of a household share cannot be told from some of the records: it must be stated in the schema.
    return found if known is not None or sample.num_rows == len(files) else mark_household_attributes(found, ())


def _sample_files(files: ParquetFiles, *, records: int = 100_000, runs: int = 10) -> pa.Table:
    """Return all records of a small file, else runs of records from row groups spread over the files."""
    from pyarrow import parquet

    if len(files) <= records:
        return files.table(files.schema.names)
    places = [(part, group) for part in files.parts for group, rows in enumerate(part.groups) if rows]
    chosen = places[:: max(1, len(places) // runs)][:runs]
    tables = []
    for part, group in chosen:
        with parquet.ParquetFile(part.path) as file:
            first = next(file.iter_batches(batch_size=records // len(chosen), row_groups=[group], use_threads=False))
            tables.append(pa.Table.from_batches([first]).replace_schema_metadata(None))
    return pa.concat_tables(tables)
