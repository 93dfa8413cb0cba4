"""Post-randomisation (PRAM) of categorical attributes by a matrix that keeps the margins in expectation.

Source: Gouweleeuw, Kooiman, Willenborg & de Wolf 1998. With t the categories' shares, P = keep·I + (1 − keep)·1tᵀ.
Claim: tᵀP = keep·tᵀ + (1 − keep)·(tᵀ1)·tᵀ = tᵀ, so the expected counts after are the counts before. A rare category is
left with probability (1 − keep)·(1 − t), a frequent one seldom: conspicuous values change most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Words
from safeswap.errors import SpecError
from safeswap.methods.exchange import Columns
from safeswap.methods.numeric.spec import ExpectedMargin, MissingStays, PramSpec
from safeswap.methods.value_change import Draws, FileFacts, ValueChangingMethod, ValuePlan
from safeswap.model.audit import Replacement
from safeswap.model.columns import missing_codes, rank_of_code, ranked_levels, replace_values
from safeswap.model.effect import Effect, Redrawn
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.schema import Schema, refuse_date
from safeswap.model.spec import Plan
from safeswap.model.text import list_names, plural

_CHUNK = 1 << 15
_WORTH_SORTING = 8
"""With more possible cells than this per record, those that occur are found by sorting."""
_GUIDE_BITS = 14
_HALF = np.uint64(32)


class Pram(ValueChangingMethod):
    """Redraw some values from those of the file."""

    name: ClassVar[str] = "pram"
    title: ClassVar[str] = "Post-randomisation of categorical attributes"
    spec_type: ClassVar[type[PramSpec]] = PramSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Gouweleeuw, Kooiman, Willenborg & de Wolf 1998, Post randomisation for statistical disclosure control",
    )

    def plan(self, data: Microdata, spec: PramSpec) -> Plan:
        """Count the records with a value that may be redrawn, and the changes expected."""
        return self.facts(data, spec).plan

    def columns(self, schema: Schema, spec: PramSpec) -> Columns:
        """Return the attributes, and those within which they are redrawn."""
        return Columns(read=(*spec.attributes, *spec.within), changed=spec.attributes)

    def facts(self, data: Microdata, spec: PramSpec) -> FileFacts:
        """Return the counts of the values of each attribute by ``within``."""
        _check(data, spec)
        strata = _Strata.of(data, spec.within)
        counted = {name: _Counted.of(data, name, strata) for name in spec.attributes}
        expected = sum(each.expect_changes(spec.keep) for each in counted.values())
        some = _count_known(data, spec.attributes) if spec.keep < 1 else 0
        names = list_names(spec.attributes)
        text = (
            f"about {plural(round(expected), f'value of {names} changes', f'values of {names} change')}; "
            "expected margins do not"
        )
        plan = ValuePlan.of(spec, len(data), some, text)
        return FileFacts(plan=plan, schema=data.schema, by_attribute=counted if spec.keep < 1 else {})

    def changes(self, batch: Microdata, facts: FileFacts, spec: PramSpec, draws: Draws) -> Mapping[str, Change]:
        """Decide for each value whether it is kept, and redraw the others."""
        counted: Mapping[str, _Counted] = facts.by_attribute
        return {name: _redraw(batch, name, spec, each, draws) for name, each in counted.items()}

    def effects(self, schema: Schema, spec: PramSpec) -> tuple[Effect, ...]:
        """Return that values were redrawn."""
        return (Redrawn(spec.attributes, spec.within),)

    def invariants(self, data: Microdata, spec: PramSpec) -> tuple[Invariant, ...]:
        """Promise margins kept in expectation, and untouched missing values and other columns."""
        _check(data, spec)
        return (
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in spec.attributes)),
            MissingStays(spec.attributes),
            ReplaysFromAudit(),
            *(ExpectedMargin((name, *spec.within), spec.keep) for name in spec.attributes),
        )


def _check(data: Microdata, spec: PramSpec) -> None:
    for name in (*spec.attributes, *spec.within):
        refuse_date(data.schema, name)
        if not data.schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value}, not categorical",
                code="not-categorical",
                hint="describe it as nominal or ordinal, or omit it",
                attribute=name,
            )


def _count_known(data: Microdata, names: Names) -> int:
    """Count the records with a known value of any of the attributes."""
    flags = {name: missing_codes(data, name) for name in names}
    if not all(each.any() for each in flags.values()):
        return len(data)
    missing = np.logical_and.reduce([each[data.coded(name).codes] for name, each in flags.items()])
    return len(data) - int(np.count_nonzero(missing))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Strata:
    """The combinations of ``within`` that occur, numbered in ascending order of the places of their values.

    Attributes are added one by one, and the combinations are renumbered with each, so that numbers stay small:
    ``found`` holds those that occur each time.
    """

    names: Names
    levels: tuple[pa.Array, ...]
    found: tuple[Int64s, ...]

    @classmethod
    def of(cls, data: Microdata, names: Names) -> _Strata:
        levels = tuple(data.coded(name).levels for name in names)
        found: list[Int64s] = []
        numbers = np.zeros(len(data), dtype=np.int64)
        for name, known in zip(names, levels, strict=True):
            numbers = numbers * (len(known) + 1) + _places(data, name, known)
            found.append(np.unique(numbers))
            numbers = np.searchsorted(found[-1], numbers)
        return cls(names=names, levels=levels, found=tuple(found))

    @property
    def size(self) -> int:
        """The number of combinations."""
        return len(self.found[-1]) if self.found else 1

    def number(self, batch: Microdata) -> Int64s:
        """Return the number of each record's combination; nothing if there are no attributes to combine."""
        numbers = np.zeros(len(batch) if self.names else 0, dtype=np.int64)
        for name, known, found in zip(self.names, self.levels, self.found, strict=True):
            numbers = np.searchsorted(found, numbers * (len(known) + 1) + _places(batch, name, known))
        return numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class _Counted:
    """Known values of an attribute, counted by stratum and sorted by value: from these others are redrawn."""

    strata: _Strata
    levels: pa.Array  # in the order of their ranks
    is_missing: Flags  # of each level, and of a missing value
    ranks: Int64s  # of each cell, cells of one stratum together, in the order of values
    ends: Int64s  # the number of records up to each cell
    starts: Int64s  # the number of records before each stratum, and in the end all

    @classmethod
    def of(cls, data: Microdata, name: str, strata: _Strata) -> _Counted:
        levels = ranked_levels(data, name)
        is_missing = np.ones(len(levels) + 1, dtype=np.bool_)
        is_missing[rank_of_code(data, name)[: len(levels)]] = missing_codes(data, name)[: len(levels)]
        if not strata.names:
            every = _count_ranks(data, name, levels)
            every[is_missing] = 0
            cells = np.flatnonzero(every)
            counts, sizes = every[cells], np.array([every.sum()])
        else:
            ranks, numbers = _places(data, name, levels), strata.number(data)
            if is_missing[:-1].any() or data.coded(name).has_missing:
                known = ~is_missing[ranks]
                ranks, numbers = ranks[known], numbers[known]
            sizes = np.bincount(numbers, minlength=strata.size)
            cells, counts = _count(numbers * len(levels) + ranks, strata.size * len(levels))
        return cls(
            strata=strata,
            levels=levels,
            is_missing=is_missing,
            ranks=cells % max(len(levels), 1),
            ends=np.cumsum(counts),
            starts=np.append(0, np.cumsum(sizes)),
        )

    def draw_ranks(self, words: Words, strata: Int64s | None) -> Int64s:
        """Return the rank at a uniform position of each stratum; without strata there is one."""
        first, last = self.starts[:-1], self.starts[1:]
        first, sizes = (first[0], last[0] - first[0]) if strata is None else (first[strata], (last - first)[strata])
        offsets = ((words >> _HALF) * np.asarray(sizes).astype(np.uint64)) >> _HALF
        found: Int64s = self.ranks[_find_cells(self.ends, first + offsets.astype(np.int64))]
        return found

    def expect_changes(self, keep: float) -> float:
        """Return Σ over records of (1 − keep)·(1 − t), where t is the share of the record's own category."""
        counts = np.diff(self.ends, prepend=0)
        sizes = np.diff(self.starts)[np.searchsorted(self.starts, self.ends) - 1]
        return float((1 - keep) * (counts - counts.astype(np.float64) ** 2 / sizes).sum())


def _count_ranks(data: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Count the records by the place of their value among the levels; missing ones last."""
    coded = data.coded(name)
    by_code = np.zeros(len(coded.levels) + 1, dtype=np.int64)
    for start in range(0, len(coded.codes), _CHUNK):  # NumPy copies what it counts: small parts stay in the cache
        by_code += np.bincount(coded.codes[start : start + _CHUNK], minlength=len(by_code))
    found = np.zeros(len(levels) + 1, dtype=np.int64)
    np.add.at(found, _level_places(data, name, levels), by_code)
    return found


def _find_cells(ends: Int64s, positions: Int64s) -> Int64s:
    """Return the first cell that ends beyond each position: few positions need a search if there are few cells.

    >>> _find_cells(np.array([2, 5]), np.array([0, 1, 2, 4])).tolist()
    [0, 0, 1, 1]
    """
    shift = max(0, int(ends[-1]).bit_length() - _GUIDE_BITS) if len(ends) else 0
    runs = np.arange((int(ends[-1]) >> shift) + 2 if len(ends) else 0) << shift
    if len(runs) > len(positions):
        return np.searchsorted(ends, positions, side="right")
    guide = np.searchsorted(ends, runs, side="right")
    is_split = guide[1:] != guide[:-1]  # of each run of positions, whether a cell ends in it
    places = positions >> shift
    found: Int64s = guide[places]
    rest = np.flatnonzero(is_split[places])
    found[rest] = np.searchsorted(ends, positions[rest], side="right")
    return found


def _count(cells: Int64s, most: int) -> tuple[Int64s, Int64s]:
    """Return the cells that occur among ``most`` possible ones, in ascending order, and their counts."""
    if most > _WORTH_SORTING * max(len(cells), 1):
        found, counts = np.unique(cells, return_counts=True)
        return found, counts
    all_counts = np.bincount(cells)
    found = np.flatnonzero(all_counts)
    return found, all_counts[found]


def _redraw(batch: Microdata, name: str, spec: PramSpec, counted: _Counted, draws: Draws) -> Change:
    """Redraw values: each from a uniform position in its stratum, sorted by value."""
    rows, words = _draw_rows(draws.word_chunks(batch, name), spec.keep)
    old = _level_places(batch, name, counted.levels)[batch.coded(name).codes[rows]]
    if counted.is_missing[old].any():
        known = ~counted.is_missing[old]
        rows, words, old = rows[known], words[known], old[known]
    new = counted.draw_ranks(words, counted.strata.number(batch)[rows] if counted.strata.names else None)
    differs = new != old
    where, column = rows[differs], batch.table.column(name)
    if not len(where):
        return Change(column=column, replacement=None)
    before = column.take(pa.array(where)).combine_chunks()
    values = pa.DictionaryArray.from_arrays(pa.array(new[differs]), counted.levels)
    return Change(
        column=replace_values(column, where, values),
        replacement=Replacement(attribute=name, rows=where, before=before),
    )


def _draw_rows(chunks: Iterator[tuple[int, Words]], keep: float) -> tuple[Int64s, Words]:
    """Return the rows whose value is not kept, and the second word of each.

    A value is kept if its uniform number, (w + ½) / 2⁵² with the leading 52 bits of the first word, is below ``keep``.
    """
    least = np.uint64(ceil(Fraction(keep) * 2**52 - Fraction(1, 2)) << 12)
    rows, words = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    for start, drawn in chunks:
        some = np.flatnonzero(drawn[:, 0] >= least)
        rows.append(some + start)
        words.append(drawn[some, 1])
    return np.concatenate(rows), np.concatenate(words)


def _places(batch: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Return the place of each record's value among the levels; a missing value comes after all of them."""
    found: Int64s = _level_places(batch, name, levels)[batch.coded(name).codes]
    return found


def _level_places(batch: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Return the place of each of the batch's own levels, and of a missing value, among the levels."""
    places = pc.index_in(batch.coded(name).levels, value_set=levels).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.append(places, len(levels))
