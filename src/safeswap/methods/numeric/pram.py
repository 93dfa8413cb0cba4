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

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Words
from safeswap.errors import SpecError
from safeswap.methods.exchange import Columns
from safeswap.methods.numeric.promises import ExpectedMargin, MissingStays
from safeswap.methods.numeric.spec import PramSpec
from safeswap.methods.value_change import Draws, FileFacts, ValueChangingMethod, ValuePlan
from safeswap.model.audit import Replacement
from safeswap.model.columns import missing_codes, rank_of_code, ranked_levels, replaced_column
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.text import several


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
        known = [~missing_codes(data, name)[data.coded(name).codes] for name in spec.attributes]
        some = int(np.count_nonzero(np.any(known, axis=0))) if spec.keep < 1 else 0
        names = ", ".join(spec.attributes)
        plan = ValuePlan(
            method=self.name,
            records=len(data),
            asked=some,
            feasible=some,
            text=f"about {several(round(expected), f'value of {names} changes', f'values of {names} change')}; "
            "expected margins do not",
        )
        return FileFacts(plan=plan, schema=data.schema, by_attribute=counted if spec.keep < 1 else {})

    def changes(self, batch: Microdata, facts: FileFacts, spec: PramSpec, draws: Draws) -> Mapping[str, Change]:
        """Decide for each value whether it is kept, and redraw the others."""
        counted: Mapping[str, _Counted] = facts.by_attribute
        return {name: _redraw(batch, name, spec, each, draws.words(batch, name)) for name, each in counted.items()}

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
        if not data.schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value}, not categorical",
                code="not-categorical",
                hint="describe it as nominal or ordinal, or leave it out",
                attribute=name,
            )


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

    def number(self, batch: Microdata) -> Int64s:
        """Return the number of each record's combination."""
        numbers = np.zeros(len(batch), dtype=np.int64)
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
        ranks, numbers = _places(data, name, levels), strata.number(data)
        known = ~is_missing[ranks]
        cells, counts = np.unique(numbers[known] * len(levels) + ranks[known], return_counts=True)
        sizes = np.bincount(numbers[known], minlength=int(numbers.max(initial=0)) + 1)
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


def _redraw(batch: Microdata, name: str, spec: PramSpec, counted: _Counted, words: Words) -> Change:
    """Redraw values: each from a uniform position in its stratum, sorted by value."""
    ranks = _places(batch, name, counted.levels)
    rows = np.flatnonzero(~counted.is_missing[ranks])
    strata = counted.strata.number(batch)[rows]
    redrawn = keyed.uniforms(words[rows, 0]) >= spec.keep
    sizes = counted.starts[strata + 1] - counted.starts[strata]
    leading = words[rows, 1] >> np.uint64(32)
    offset = ((leading * sizes.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    new = counted.ranks[np.searchsorted(counted.ends, counted.starts[strata] + offset, side="right")]
    changed = redrawn & (new != ranks[rows])
    column = batch.table.column(name)
    if not changed.any():
        return Change(column=column, replacement=None)
    where = rows[changed]
    before = column.take(pa.array(where)).combine_chunks()
    made = replaced_column(column, where, counted.levels.take(pa.array(new[changed])))
    return Change(column=made, replacement=Replacement(attribute=name, rows=where, before=before))


def _places(batch: Microdata, name: str, levels: pa.Array) -> Int64s:
    """Return the place of each record's value among the levels; a missing value comes after all of them."""
    coded = batch.coded(name)
    places = pc.index_in(coded.levels, value_set=levels).to_numpy(zero_copy_only=False).astype(np.int64)
    found: Int64s = np.append(places, len(levels))[coded.codes]
    return found
