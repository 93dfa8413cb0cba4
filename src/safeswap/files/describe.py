"""Describe a file: attributes, levels, small cells. Shows no record, and no value that few records have."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.hiding import Areas, find_thin, hide_levels, hide_nested
from safeswap.arrays.types import Flags
from safeswap.errors import SpecError
from safeswap.files.columns import distinct_count
from safeswap.files.delimited import has_decimal_commas
from safeswap.files.identifiers import numbers_persons
from safeswap.files.infer import MISSING_MARKS
from safeswap.model.checked import check_types
from safeswap.model.dates import is_text
from safeswap.model.geography import check_nesting, geography_levels, is_nested
from safeswap.model.households import find_households, find_varying
from safeswap.model.microdata import Coded, Microdata
from safeswap.model.schema import Attribute, Kind, household_attributes, level_texts
from safeswap.model.text import list_names, plural

_LONGEST_TEXT = 40
_LEVELS_IN_A_LINE = 8


@dataclass(frozen=True, kw_only=True)
class LevelCount:
    """A level with at least ``tolerance`` records; without its count where that would reveal a smaller one."""

    level: str
    count: int | None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class AttributeSummary:
    """One attribute: its kind, its number of distinct values, and the frequent ones if it is categorical.

    ``levels`` has no level with fewer records than the tolerance: those are counted in ``levels_below``. If there are
    any, another level is listed without its count, so that theirs cannot be found by subtraction. ``missing`` counts
    empty values, ``missing_codes`` the records with a code declared as missing; each is None if it is below the
    tolerance, or would reveal a count that is. ``household`` is whether all members of a household have the same value,
    ``design`` the part in the design of the sample.
    """

    name: str
    kind: Kind
    inferred: bool
    distinct: int
    missing: int | None
    label: str = ""
    letter: str = ""
    missing_codes: int | None = 0
    levels: tuple[LevelCount, ...] = ()
    levels_below: int = 0
    household: bool = False
    design: str = ""

    def as_dict(self, tolerance: int) -> dict[str, Any]:
        """Return plain values; small counts are given as "<Q"."""
        frequent = [{"level": x.level, "label": x.label, "count": x.count} for x in self.levels]
        return {
            "name": self.name,
            "label": self.label,
            "letter": self.letter,
            "kind": self.kind.value,
            "inferred": self.inferred,
            "household": self.household,
            "design": self.design,
            "distinct": self.distinct,
            "missing": self.missing,
            "missing_codes": self.missing_codes,
            "levels": frequent if self.kind.is_categorical else None,
            "levels_below_tolerance": {"number": self.levels_below, "count": f"<{tolerance}"},
        }


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """The cells that the categorical attributes form: possible, occupied, and small ones by their count."""

    attributes: tuple[str, ...]
    possible: int
    occupied: int
    small: tuple[int, ...]  # number of cells with 1, 2, … tolerance-1 records; empty if the cells are levels
    squares: int = field(default=0, repr=False)  # of their counts, summed: tells cells, however they are called

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "attributes": list(self.attributes),
            "possible": self.possible,
            "occupied": self.occupied,
            "small": {str(count): number for count, number in enumerate(self.small, start=1)},
        }

    @property
    def sentence(self) -> str:
        """The cells in plain words."""
        if not self.attributes:
            return "No attribute is categorical, so there are no cells."
        small = ", ".join(
            f"{number:,} hold{'s' if number == 1 else ''} {count:,} record{'s' if count > 1 else ''}"
            for count, number in enumerate(self.small, start=1)
        )
        return (
            f"{plural(len(self.attributes), 'categorical attribute forms', 'categorical attributes form')} "
            f"{plural(self.possible, 'cell')}; {self.occupied:,} {'is' if self.occupied == 1 else 'are'} occupied"
            f"{f', of which {small}' if small else ''}."
        )


@dataclass(frozen=True, kw_only=True)
class Description:
    """The attributes, levels and small cells of a file, and warnings.

    For internal use: counts at or above the tolerance are exact.
    """

    name: str
    records: int
    tolerance: int
    attributes: tuple[AttributeSummary, ...]
    cells: CellSummary
    warnings: tuple[str, ...]

    @check_types
    def __getitem__(self, name: str) -> AttributeSummary:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SpecError(
            f"there is no attribute {name!r}",
            code="unknown-attribute",
            hint=f"the attributes are: {list_names((escape_text(a.name) for a in self.attributes), most=20)}",
            attribute=name,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            "name": self.name,
            "records": self.records,
            "tolerance": self.tolerance,
            "attributes": [a.as_dict(self.tolerance) for a in self.attributes],
            "cells": self.cells.as_dict(),
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return one row per attribute: name, kind, number of levels, missing, levels. Safe to print on a terminal."""
        return [
            (
                escape_text(a.name) + (f" ({escape_text(a.letter)})" if a.letter else ""),
                a.kind.value + (", household's" if a.household else "") + (" ?" if a.inferred else ""),
                f"{a.distinct:,}",
                "hidden" if a.missing is None or a.missing_codes is None else f"{a.missing + a.missing_codes:,}",
                self._levels(a),
            )
            for a in self.attributes
        ]

    def _levels(self, attribute: AttributeSummary) -> str:
        frequent = [
            f"{escape_text(x.level)} {'hidden' if x.count is None else f'{x.count:,}'}"
            for x in attribute.levels[:_LEVELS_IN_A_LINE]
        ]
        if more := len(attribute.levels) - len(frequent):
            frequent.append(f"and {more:,} more")
        if attribute.levels_below:
            frequent.append(f"{plural(attribute.levels_below, 'level')} <{self.tolerance}")
        return ", ".join(frequent)

    def __repr__(self) -> str:
        header = ("attribute", "kind", "levels", "missing", "records per level")
        rows = [header, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *map(str.rjust, row[2:4], widths[2:]), row[4]])
            for row in rows
        ]
        size = f"{plural(self.records, 'record')}, {plural(len(self.attributes), 'attribute')}"
        title = f"{escape_text(self.name) or 'data'}: {size}"
        return "\n".join([title, *map(str.rstrip, lines), self.cells.sentence, *(f"! {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in ("attribute", "kind", "levels", "missing", "records per level"))
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        warnings = "".join(f"<li>{escape(w)}</li>" for w in self.warnings)
        title = f"{escape(escape_text(self.name)) or 'data'}: {plural(self.records, 'record')}"
        return (
            f"<p><b>{title}</b></p><table><tr>{head}</tr>{body}</table>"
            f"<p>{escape(self.cells.sentence)}</p><ul>{warnings}</ul>"
        )


def escape_text(text: str) -> str:
    """Return a printable form of a text: control characters escaped, long texts truncated.

    >>> escape_text("a\\x1b[31m"), len(escape_text("x" * 100))
    ('a\\\\x1b[31m', 40)
    """
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return plain if len(plain) <= _LONGEST_TEXT else plain[: _LONGEST_TEXT - 1] + "…"


_FEW_RECORDS = 20
_MANY_LEVELS = 10_000  # above that, spelling is not checked
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")


def find_warnings(data: Microdata, summaries: Sequence[AttributeSummary]) -> tuple[str, ...]:
    """Return the warnings for a file, those about the whole file first.

    >>> import pyarrow as pa
    >>> from safeswap.files.describe import describe
    >>> from safeswap.files.read import read
    >>> data = read(pa.table({"id": ["1", "2"], "Sex": ["M", "m"], "Year": ["x", "x"]}), kinds={"Sex": "nominal"})
    >>> for warning in describe(data, tolerance=1).warnings:
    ...     print(warning)
    The kinds of 2 attributes are guesses (id, Year): check them.
    Sex: 1 group of levels differs in case, spaces or accents only; they may be meant to be the same.
    Year: every record has the same value; swapping it changes nothing.
    """
    found = [*_warn_about_file(data)]
    for attribute, summary in zip(data.schema.attributes, summaries, strict=True):
        found += [f"{escape_text(attribute.name)}: {text}" for text in _warn_about_attribute(data, attribute, summary)]
    return tuple(found)


def _warn_about_file(data: Microdata) -> Iterator[str]:
    guessed = [escape_text(a.name) for a in data.schema.attributes if a.inferred]
    if guessed:
        names = list_names(guessed[:10]) + (", …" if len(guessed) > 10 else "")
        if len(guessed) == 1:
            yield f"The kind of one attribute is a guess ({names}): check it."
        else:
            yield f"The kinds of {len(guessed):,} attributes are guesses ({names}): check them."
    yield from _warn_about_households(data)
    if data.schema.identifier is None:
        yield "There is no identifier: records are known by their position, so keep the row order of the file."
    if not data.schema.categorical:
        yield "No attribute is categorical."


def _warn_about_households(data: Microdata) -> Iterator[str]:
    """Yield what to check of households: what is said to be theirs, persons outside, and areas that do not nest."""
    shared = [escape_text(a.name) for a in data.schema.attributes if a.household and a.inferred]
    if shared:
        names = list_names(shared[:10]) + (", …" if len(shared) > 10 else "")
        yield f"The same for all members of every household, and changed for all or none: {names}: check them."
    if theirs := household_attributes(data.schema):
        for name in theirs:
            if find_varying(data, name).size:
                yield f"{escape_text(name)}: it is marked as the household's, but members of a household differ in it."
        if find_households(data).outside.any():
            yield "Some persons live outside households: each is a separate unit."
    stated = [name for name in geography_levels(data.schema) if data.schema[name].geography_level is not None]
    try:
        check_nesting(data, tuple(stated))
    except SpecError as error:
        yield f"{error.message}."


def _warn_about_attribute(data: Microdata, attribute: Attribute, summary: AttributeSummary) -> Iterator[str]:
    if _INDEX.fullmatch(attribute.name):
        yield "this looks like the index of a dataframe, written along with it."
    if summary.distinct == 0:
        yield "every value is missing."
    elif summary.distinct == 1 and summary.missing == 0 and len(data) > 1:
        yield "every record has the same value; swapping it changes nothing."
    elif attribute.inferred and attribute.kind in (Kind.NUMERIC, Kind.NOMINAL) and _numbers_persons(data, attribute):
        yield "it looks like the number of a person; if so, make it the identifier, which is never released."
    if attribute.kind.is_categorical:
        yield from _warn_about_levels(data, attribute, summary)


def _numbers_persons(data: Microdata, attribute: Attribute) -> bool:
    column = data.table.column(attribute.name)
    return numbers_persons(column, distinct=distinct_count(column))


def _warn_about_levels(data: Microdata, attribute: Attribute, summary: AttributeSummary) -> Iterator[str]:
    if len(data) >= _FEW_RECORDS and 2 * summary.distinct > len(data):
        yield "most values occur once or twice; this is hardly a category (an identifier, a number, free text?)."
    levels = data.coded(attribute.name).levels
    if is_text(levels.type) and has_decimal_commas(levels):
        yield "its commas look like decimal commas; if so, state the decimal mark when the file is read."
    if attribute.kind is Kind.ORDINAL and not attribute.levels:
        yield "it is ordinal, but the order of its levels is not stated."
    if summary.distinct > _MANY_LEVELS:
        return
    texts = level_texts(data.coded(attribute.name).levels)
    alike = Counter(_fold(text) for text in texts)
    if groups := sum(number > 1 for number in alike.values()):
        verb = "group of levels differs" if groups == 1 else "groups of levels differ"
        yield f"{groups:,} {verb} in case, spaces or accents only; they may be meant to be the same."
    if "" in texts and summary.missing != 0:
        yield "some values are missing and some are empty strings."
    if marks := sum(text in MISSING_MARKS and text not in ("", *attribute.missing) for text in texts):
        yield f"{marks:,} level{'s look' if marks > 1 else ' looks'} like a mark for missing values; declare it if so."
    if unused := len(set(attribute.levels) - set(texts)):
        yield f"{unused:,} of the levels stated in the schema never occur{'s' if unused == 1 else ''}."


def _fold(text: str) -> str:
    """Normalise a text for comparison: case, surrounding spaces, accents and forms of letters."""
    bare = unicodedata.normalize("NFKD", text)
    return "".join(c for c in bare if not unicodedata.combining(c)).casefold().strip()


_MANY_RECORDS = 1_000_000
_MOST_CODES = 1 << 62
MOST_TOLERANCE = 1_000_000


def describe(data: Microdata, *, tolerance: int = 3, keys: Sequence[str] | None = None) -> Description:
    """Describe the file; counts below ``tolerance`` are only shown as such.

    For categorical attributes the levels with at least ``tolerance`` records are listed; for identifiers, weights and
    numbers only the number of distinct values: their smallest and largest values are too identifying to show. ``keys``
    are the attributes that form the cells, all categorical ones by default.

    >>> from safeswap import datasets
    >>> description = describe(datasets.cps8d())
    >>> description.cells.sentence
    '8 categorical attributes form 2,880 cells; 1,695 are occupied, of which 361 hold 1 record, 186 hold 2 records.'
    >>> [(level.level, level.count) for level in description["Race"].levels]
    [('White', 41762), ('Non-White', 7080)]
    """
    if not 1 <= tolerance <= MOST_TOLERANCE:
        raise SpecError(
            f"the tolerance must be from 1 to {MOST_TOLERANCE:,}",
            code="bad-tolerance",
            hint="3 is usual",
            parameter="tolerance",
        )
    names = data.schema.categorical if keys is None else tuple(keys)
    attributes = tuple(_summarise(data, attribute, tolerance) for attribute in data.schema.attributes)
    cells = _summarise_cells(data, names, tolerance)
    return Description(
        name=data.schema.name,
        records=len(data),
        tolerance=tolerance,
        attributes=attributes,
        cells=cells,
        warnings=find_warnings(data, attributes),
    )


def _summarise(data: Microdata, attribute: Attribute, tolerance: int) -> AttributeSummary:
    column = data.table.column(attribute.name)
    facts: dict[str, Any] = {
        "name": attribute.name,
        "label": attribute.label,
        "letter": attribute.letter,
        "kind": attribute.kind,
        "inferred": attribute.inferred,
        "household": attribute.household,
        "design": attribute.design or "",
    }
    missing = int(column.null_count)
    if not attribute.kind.is_categorical:
        distinct = distinct_count(column)
        is_hidden = _hides_missing(column, distinct, tolerance)
        return AttributeSummary(distinct=distinct, missing=None if is_hidden else missing, **facts)
    coded = data.coded(attribute.name)
    counts = level_counts(coded)
    (*rare_levels, rare_missing), (*hidden_levels, hidden_missing) = hide_levels_of(data, attribute.name, tolerance)
    rare, hidden = np.array(rare_levels, dtype=np.bool_), np.array(hidden_levels, dtype=np.bool_)
    frequent = _list_frequent(coded, np.where(rare, 0, counts), attribute, hidden=hidden)
    return AttributeSummary(
        distinct=int((counts > 0).sum()),
        missing=None if rare_missing or hidden_missing else missing,
        missing_codes=_count_missing_codes(coded, counts, attribute, shown=~(rare | hidden)),
        levels=frequent,
        levels_below=int(rare.sum()),
        **facts,
    )


def _hides_missing(column: pa.ChunkedArray, distinct: int, tolerance: int) -> bool:
    """Return whether the missing values of a column without levels must not be counted.

    They are not where they would not be if it had levels: another description of the column would give a rare one away.
    """
    missing = int(column.null_count)
    known = len(column) - missing
    if any(0 < count < tolerance for count in (missing, known)):
        return True
    if not missing or not _has_levels(distinct, known):
        return False
    counts = column.drop_null().value_counts().field("counts").to_numpy()
    rare, hidden = hide_levels(np.append(counts, missing), tolerance)
    return bool(rare[-1] or hidden[-1])


def _has_levels(distinct: int, known: int) -> bool:
    """Return whether values are repeated; those that nearly every record has for itself are no levels."""
    return 2 * distinct <= known


def hide_levels_of(data: Microdata, name: str, tolerance: int) -> tuple[Flags, Flags]:
    """Return the levels that must not be named, and those that must not be counted; missing is the last.

    Counts of areas add up to those of the coarser areas they lie in, so both are hidden together, and so are those of
    other levels that follow from finer ones.
    """
    if data not in _OUTER:
        _OUTER[data] = _find_outer_areas(data)
    return _hide(data, name, tolerance, _OUTER[data])


_OUTER: WeakKeyDictionary[Microdata, dict[str, str | None]] = WeakKeyDictionary()
"""The coarser areas by file: they are asked for once per attribute."""


def _hide(data: Microdata, name: str, tolerance: int, outer: Mapping[str, str | None]) -> tuple[Flags, Flags]:
    thin, around = _find_thin(data, name, tolerance, outer), outer.get(name)
    if around is None:
        counts = np.append(level_counts(data.coded(name)), data.table.column(name).null_count)
        return hide_levels(counts, tolerance, also=thin)
    areas = _count_areas(data, name, around, thin)
    return hide_nested(areas, _hide(data, around, tolerance, outer), tolerance)


def _find_thin(data: Microdata, name: str, tolerance: int, outer: Mapping[str, str | None]) -> Flags:
    """Return the areas, missing last, in which the counts of finer areas cannot be hidden among each other."""
    found = np.zeros(len(data.coded(name).levels) + 1, dtype=np.bool_)
    for fine in [each for each, around in outer.items() if around == name]:
        areas = _count_areas(data, fine, name, _find_thin(data, fine, tolerance, outer))
        found |= find_thin(areas, tolerance)
    return found


def _count_areas(data: Microdata, name: str, around: str, thin: Flags) -> Areas:
    areas, places = data.coded(name), data.coded(around)
    nowhere = len(areas.levels)
    outer = np.zeros(nowhere + 1, dtype=np.int64)
    outer[areas.codes] = places.codes
    return Areas(
        counts=np.bincount(areas.codes, minlength=nowhere + 1),
        outer=outer[:-1],
        unplaced=np.bincount(places.codes[areas.codes == nowhere], minlength=len(places.levels) + 1),
        thin=thin,
    )


def _find_outer_areas(data: Microdata) -> dict[str, str | None]:
    """Return for each attribute the one with the smallest areas in which its own lie, whether stated or not.

    Any attribute that another follows from divides its levels as districts divide a region, whatever its kind.
    """
    areas = set(geography_levels(data.schema))
    levels = {name: data.count_distinct(name) for name in data.schema.categorical}
    names = [n for n in levels if n in areas or (levels[n] > 1 and _has_levels(levels[n], len(data)))]
    names.sort(key=lambda each: len(data.coded(each).levels))
    return {
        fine: next((coarse for coarse in reversed(names[:place]) if is_nested(data, coarse, fine)), None)
        for place, fine in enumerate(names)
    }


def level_counts(coded: Coded) -> npt.NDArray[np.int64]:
    """Count the records of each level, missing excluded.

    >>> import pyarrow as pa
    >>> from safeswap.model.microdata import code_column
    >>> level_counts(code_column(pa.chunked_array([["b", "a", None, "b"]]))).tolist()
    [2, 1]
    """
    return np.bincount(coded.codes, minlength=len(coded.levels))[: len(coded.levels)]


def _list_frequent(
    coded: Coded, counts: npt.NDArray[np.int64], attribute: Attribute, *, hidden: npt.NDArray[np.bool_]
) -> tuple[LevelCount, ...]:
    """List the frequent levels in schema order if stated, otherwise most frequent first; hidden counts come last."""
    positions = np.flatnonzero(counts)
    texts = level_texts(coded.levels.take(positions))
    order = {level: i for i, level in enumerate(attribute.levels)}
    found = [
        LevelCount(level=text, count=None if hidden[i] else int(counts[i]), label=attribute.labels.get(text, ""))
        for text, i in zip(texts, positions, strict=True)
    ]
    return tuple(sorted(found, key=lambda x: (order.get(x.level, len(order)), -(x.count or 0), x.level)))


def _count_missing_codes(
    coded: Coded, counts: npt.NDArray[np.int64], attribute: Attribute, *, shown: npt.NDArray[np.bool_]
) -> int | None:
    if not attribute.missing:
        return 0
    is_code = np.array([text in attribute.missing for text in level_texts(coded.levels)], dtype=np.bool_)
    return int(counts[is_code].sum()) if shown[is_code].all() else None


def _summarise_cells(data: Microdata, names: Sequence[str], tolerance: int) -> CellSummary:
    if not names:
        return CellSummary(attributes=(), possible=0, occupied=0, small=(0,) * (tolerance - 1))
    columns, cardinalities = data.coded_columns(names)
    sizes = cell_sizes(columns, cardinalities)
    counted = np.bincount(sizes[sizes < tolerance], minlength=tolerance)[1:tolerance]
    # The cells of a single attribute are its levels, and these would be the counts of the rare ones.
    small = tuple(counted.tolist()) if len(names) > 1 else ()
    squares = int(np.square(sizes).sum())
    return CellSummary(
        attributes=tuple(names), possible=prod(cardinalities), occupied=sizes.size, small=small, squares=squares
    )


def cell_sizes(columns: Sequence[npt.NDArray[Any]], cardinalities: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the counts of the occupied cells, in no particular order.

    >>> sorted(cell_sizes([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3]).tolist())
    [1, 2]
    """
    if columns[0].size > _MANY_RECORDS:
        from safeswap.arrays.cells import count_cells

        return count_cells(columns, cardinalities).counts
    codes = np.zeros(columns[0].size, dtype=np.int64)
    span = 1
    for column, cardinality in zip(columns, cardinalities, strict=True):
        if span * cardinality > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            span = int(codes.max()) + 1
        codes = codes * cardinality + column
        span *= cardinality
    return np.unique(codes, return_counts=True)[1]
