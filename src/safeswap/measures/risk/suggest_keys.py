"""Rank the attributes of a file by how identifying they are, as a start for a scenario. People decide.

Greedy: the next attribute is the one that, joined to those before it, leaves most cells, that is the highest expected
share of records found by a match (the mean over all records of one over the records with the same values, which is the
number of cells by the number of records). A record that is alone stays alone, so each step looks at fewer records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from safeswap.arrays.combinations import Classes, group_records
from safeswap.arrays.types import Codes
from safeswap.errors import SpecError
from safeswap.measures.risk.suda2 import minimal_uniques, score_weights
from safeswap.model.columns import missing_codes, to_numbers
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Kind
from safeswap.model.text import list_names, plural

MOST_COLUMNS = 40
"""Of a wider file, only the attributes with the most values are looked at."""

GROUPS = 10
_SUDA_SIZE = 3
_TEXT_LEVELS = 20  # an attribute with fewer values is not taken for text, however short the file


@dataclass(frozen=True, kw_only=True)
class KeySuggestion:
    """One attribute: what it adds to those before it.

    ``unique`` is the share of records that are alone with the attributes so far (or share their values with too few
    others, where the ranking was made so), ``added`` what this one adds to it,
    ``found`` the expected share of records found by a match, ``suda`` its share of the SUDA score of all suggested
    attributes. A number was ``banded`` to be ranked.
    """

    name: str
    levels: int
    unique: float
    added: float
    found: float
    suda: float
    banded: bool
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class KeySuggestions:
    """Attributes, the most identifying first, and those that were omitted, with the reason."""

    records: int
    suggestions: tuple[KeySuggestion, ...]
    skipped: tuple[tuple[str, str], ...]
    note: str = ""
    below: int = 2  # a record counts as unique if fewer records than this have its values

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, most identifying first."""
        return tuple(each.name for each in self.suggestions)

    def __iter__(self) -> Iterator[KeySuggestion]:
        return iter(self.suggestions)

    def __len__(self) -> int:
        return len(self.suggestions)

    def __getitem__(self, place: int) -> KeySuggestion:
        return self.suggestions[place]

    @property
    def skipped_sentences(self) -> tuple[str, ...]:
        """The omitted attributes, one sentence per reason."""
        reasons = dict.fromkeys(reason for _, reason in self.skipped)
        named = {reason: [name for name, why in self.skipped if why == reason] for reason in reasons}
        return tuple(f"Left out: {list_names(names)} ({reason})." for reason, names in named.items())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: totals, no value of a record."""
        return {
            "records": self.records,
            "suggestions": [each.as_dict() for each in self.suggestions],
            "skipped": [{"attribute": name, "reason": reason} for name, reason in self.skipped],
            "note": self.note,
        }

    def __repr__(self) -> str:
        width = max((len(each.name) for each in self.suggestions), default=0)
        lines = [f"{each.name:<{width}}  {each.unique:7.2%} unique  {each.sentence}" for each in self.suggestions] or [
            "no attribute to suggest"
        ]
        return "\n".join([*lines, *self.skipped_sentences, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(each.name)}</td><td style='text-align:right'>{each.unique:.2%}</td>"
            f"<td style='text-align:left'>{escape(each.sentence)}</td></tr>"
            for each in self.suggestions
        )
        table = f"<table><tr><th>attribute</th><th>unique so far</th><th>meaning</th></tr>{rows}</table>"
        return table + "".join(f"<p>{escape(text)}</p>" for text in (*self.skipped_sentences, self.note) if text)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Column:
    """One attribute in codes, the last of which is a missing value."""

    name: str
    codes: Codes
    levels: int
    banded: bool


def rank_keys(data: Microdata, *, among: Sequence[str] | None = None, most: int = 10, below: int = 2) -> KeySuggestions:
    """Rank attributes by what each adds to those before it, up to ``most``; ``among`` names those to look at.

    Identifiers, weights, constants and text are left out. Numbers and dates are ranked in groups of equal size.
    A missing value counts as a value. Takes one pass over the records per attribute and rank. With ``below``, records
    count that share their values with fewer than that many, themselves included: 2 for those that are alone.

    >>> from safeswap import datasets
    >>> rank_keys(datasets.cps8d(), most=3).names
    ('Edu', 'EmpTyp', 'AvgHrs')
    """
    if most < 1:
        raise SpecError("rank at least one attribute", code="bad-spec", hint="most=10")
    names = tuple(dict.fromkeys(data.attributes if among is None else among))
    kept, skipped = _sort_out(data, names)
    note = ""
    if len(kept) > MOST_COLUMNS:
        widest = sorted(kept, key=lambda name: -len(data.coded(name).levels))[:MOST_COLUMNS]
        note = f"Of {plural(len(kept), 'attribute')}, the {MOST_COLUMNS} with the most values were ranked."
        kept = [name for name in kept if name in widest]
    steps = list(_choose([_code(data, name) for name in kept], len(data), min(most, len(kept)), below))
    shares = _suda_shares([column for column, *_ in steps])
    rows = [
        _Row(name=column.name, levels=column.levels, banded=column.banded, unique=unique, cells=cells, suda=suda)
        for (column, unique, cells), suda in zip(steps, shares, strict=True)
    ]
    return KeySuggestions(
        records=len(data), suggestions=_suggest(rows, len(data), below), skipped=tuple(skipped), note=note, below=below
    )


def perturb_suggestions(found: KeySuggestions, add: Callable[..., int]) -> KeySuggestions:
    """Return the ranking with noise in the numbers of records and cells: ``add(count, *subject, most=…)``."""
    rows = []
    for each in found.suggestions:
        counts = [round(share * found.records) for share in (each.unique, each.found)]
        # By the counts and not by the names: an attribute that divides nothing gives no second figure.
        unique, cells = (add(count, "alone and occupied", *counts, most=found.records) for count in counts)
        suda = round(20 * each.suda) / 20  # a share of few records: to the nearest twentieth
        rows.append(_Row(name=each.name, levels=each.levels, banded=each.banded, unique=unique, cells=cells, suda=suda))
    return replace(found, suggestions=_suggest(rows, found.records, found.below))


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One ranked attribute, with the records alone and the cells occupied by those so far."""

    name: str
    levels: int
    banded: bool
    unique: int
    cells: int
    suda: float


def _suggest(rows: Sequence[_Row], records: int, below: int) -> tuple[KeySuggestion, ...]:
    found, before = [], 0.0
    for others, row in enumerate(rows):
        unique = row.unique / records
        found.append(
            KeySuggestion(
                name=row.name,
                levels=row.levels,
                unique=unique,
                added=unique - before,
                found=row.cells / records,
                suda=row.suda,
                banded=row.banded,
                sentence=_describe(row, unique, before, others=others, below=below),
            )
        )
        before = unique
    return tuple(found)


def _sort_out(data: Microdata, names: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the attributes to rank, and the others with the reason."""
    reasons = {name: _why_skipped(data, name) for name in names}
    return [name for name in names if not reasons[name]], [(name, why) for name, why in reasons.items() if why]


def _why_skipped(data: Microdata, name: str) -> str:
    kind = data.schema[name].kind
    if kind in (Kind.IDENTIFIER, Kind.HOUSEHOLD, Kind.WEIGHT):
        return f"described as {kind.value}"
    levels = len(data.coded(name).levels)
    if levels < 2:
        return "one value only"
    if kind is Kind.NOMINAL and levels > max(_TEXT_LEVELS, len(data) / 2):
        return "most records have a value of their own: a name, a number or text"
    return ""


def _code(data: Microdata, name: str) -> _Column:
    if data.schema[name].kind in (Kind.NUMERIC, Kind.DATE):
        is_date = data.schema[name].kind is Kind.DATE
        values = finite_numbers(data, name) if is_date else to_numbers(data, name)
        known = values[np.isfinite(values)]
        shares = np.arange(1, GROUPS) / GROUPS
        starts = np.unique(np.quantile(known, shares, method="inverted_cdf")) if known.size else known
        groups = np.searchsorted(starts, values, side="left")  # NaN sorts behind all: a group of its own
        groups = np.where(np.isfinite(values), groups, len(starts) + 1)
        return _Column(name=name, codes=groups.astype(np.uint8), levels=len(starts) + 1, banded=True)
    coded = data.coded(name)
    missing = missing_codes(data, name)
    table = np.where(missing, len(coded.levels), np.arange(missing.size)).astype(smallest_code_type(missing.size + 1))
    return _Column(name=name, codes=table[coded.codes], levels=int(np.count_nonzero(~missing)), banded=False)


def _choose(columns: list[_Column], records: int, most: int, below: int) -> Iterator[tuple[_Column, int, int]]:
    """Yield the columns in the order chosen, with the records in small cells and the cells occupied so far."""
    left, alone = list(columns), 0
    rows = np.arange(records)
    cell = np.zeros(records, dtype=np.uint32)
    for _ in range(most):
        tried = [_split(cell, column.codes[rows]) for column in left]
        # Of equals the one with most values: where all records are alone already, the order would say nothing else.
        best = max(range(len(left)), key=lambda place: (len(tried[place]), left[place].levels))
        split, column = tried[best], left.pop(best)
        new = int(np.count_nonzero(split.sizes == 1))
        yield column, alone + int(split.sizes[split.sizes < below].sum()), alone + len(split)
        alone += new
        shared = split.sizes[split.of_record] > 1
        rows, cell = rows[shared], split.of_record[shared]


def _split(cell: Codes, codes: Codes) -> Classes:
    """Split cells by one more column."""
    sizes = [int(part.max(initial=0)) + 1 for part in (cell, codes)]
    return group_records([cell, codes], sizes, sizes)


def _suda_shares(columns: list[_Column]) -> list[float]:
    """Return each column's share of the SUDA score: of minimal uniques of up to three of them."""
    if len(columns) < 2:
        return [0.0] * len(columns)
    sizes = [int(column.codes.max(initial=0)) + 1 for column in columns]
    found = group_records([column.codes for column in columns], sizes, sizes)
    most = min(_SUDA_SIZE, len(columns))
    unique = minimal_uniques(found, most=most, missing="own")
    scores = score_weights(len(columns), most, "elliot")[unique.sizes]
    total = max(float(scores.sum()), 1.0)
    return [float(scores[(unique.masks >> j) & 1 == 1].sum() / total) for j in range(len(columns))]


def _describe(row: _Row, unique: float, before: float, *, others: int, below: int) -> str:
    values = f"{plural(row.levels, 'group')} of its values" if row.banded else plural(row.levels, "value")
    rare = "unique" if below == 2 else f"shared by fewer than {below}"
    if others:
        before_it = f"the {others} before" if others > 1 else "the one before"
        more = f"{unique - before:.1%} more" if round(unique - before, 3) > 0 else "about as many as without it"
        how = f"with {before_it}, {unique:.1%} of the records are {rare}, {more}"
    else:
        how = f"alone, it makes {unique:.1%} of the records {rare}"
    return f"{values}; {how}" + (f"; {row.suda:.0%} of the SUDA score involves it." if row.suda else ".")
