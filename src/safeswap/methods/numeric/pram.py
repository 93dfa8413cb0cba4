"""Post-randomisation (PRAM) of categorical attributes by a matrix that keeps the margins in expectation.

Source: Gouweleeuw, Kooiman, Willenborg & de Wolf 1998. With t the categories' shares, P = keep·I + (1 − keep)·1tᵀ.
Claim: tᵀP = keep·tᵀ + (1 − keep)·(tᵀ1)·tᵀ = tᵀ, so the expected counts after are the counts before. A rare category is
left with probability (1 − keep)·(1 − t), a frequent one seldom: conspicuous values change most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.compiled import njit
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
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema, refuse_date
from safeswap.model.text import plural

_CHUNK = 1 << 15
_WORTH_SORTING = 8
"""With more possible cells than this per record, those that occur are found by sorting."""


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
        names = ", ".join(spec.attributes)
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
        """Return that values were drawn anew."""
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
                hint="describe it as nominal or ordinal, or leave it out",
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
    codes, ranks = batch.coded(name).codes, _level_places(batch, name, counted.levels)
    strata = counted.strata.number(batch)
    tables = (counted.is_missing, counted.ranks, counted.ends, counted.starts)
    rows, new = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for start, words in draws.word_chunks(batch, name):
        run = slice(start, start + len(words))
        where, drawn = _draw_ranks(ranks[codes[run]], strata[run], words, spec.keep, tables)
        rows.append(where + start)
        new.append(drawn)
    where, column = np.concatenate(rows), batch.table.column(name)
    if not len(where):
        return Change(column=column, replacement=None)
    before = column.take(pa.array(where)).combine_chunks()
    values = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(new)), counted.levels)
    return Change(
        column=replace_values(column, where, values),
        replacement=Replacement(attribute=name, rows=where, before=before),
    )


@njit(cache=True, nogil=True)
def _draw_ranks(
    ranks: Int64s, strata: Int64s, words: Words, keep: float, tables: tuple[Flags, Int64s, Int64s, Int64s]
) -> tuple[Int64s, Int64s]:
    """Return the rows whose value changes, and the ranks of the new values. Without strata there is one."""
    is_missing, cell_ranks, ends, starts = tables
    rows, new = np.empty(len(ranks), dtype=np.int64), np.empty(len(ranks), dtype=np.int64)
    kept = 0
    for i in range(len(ranks)):  # without a branch, since nobody can foresee it
        uniform = (float(words[i, 0] >> np.uint64(12)) + 0.5) * 2.0**-52  # as in keyed.uniforms
        rows[kept] = i
        kept += uniform >= keep
    found = 0
    for i in rows[:kept]:
        if is_missing[ranks[i]]:
            continue
        stratum = strata[i] if len(strata) else 0
        first, last = starts[stratum], starts[stratum + 1]
        offset = ((words[i, 1] >> np.uint64(32)) * np.uint64(last - first)) >> np.uint64(32)
        rank = cell_ranks[np.searchsorted(ends, first + np.int64(offset), side="right")]
        if rank != ranks[i]:
            rows[found], new[found] = i, rank
            found += 1
    return rows[:found].copy(), new[:found].copy()


def _places(batch: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Return the place of each record's value among the levels; a missing value comes after all of them."""
    found: Int64s = _level_places(batch, name, levels)[batch.coded(name).codes]
    return found


def _level_places(batch: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Return the place of each of the batch's own levels, and of a missing value, among the levels."""
    places = pc.index_in(batch.coded(name).levels, value_set=levels).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.append(places, len(levels))
