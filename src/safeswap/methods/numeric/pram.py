"""Post-randomisation (PRAM) of categorical attributes by a matrix that keeps the margins in expectation.

Source: Gouweleeuw, Kooiman, Willenborg & de Wolf 1998. With t the categories' shares, P = keep·I + (1 − keep)·1tᵀ.
Claim: tᵀP = keep·tᵀ + (1 − keep)·(tᵀ1)·tᵀ = tᵀ, so the expected counts after are the counts before. A rare category is
left with probability (1 − keep)·(1 − t), a frequent one seldom: conspicuous values change most.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, keyed
from safeswap.arrays.types import Int64s, Rows, Words
from safeswap.errors import SpecError
from safeswap.methods.numeric.promises import ExpectedMargin, MissingStays
from safeswap.methods.numeric.spec import PramSpec
from safeswap.methods.value_change import ValuePlan, masked_by, record_words
from safeswap.model.audit import Replacement
from safeswap.model.columns import missing_codes, ranked
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change
from safeswap.model.text import several


class Pram:
    """Redraw some values from those of the file."""

    name: ClassVar[str] = "pram"
    title: ClassVar[str] = "Post-randomisation of categorical attributes"
    spec_type: ClassVar[type[PramSpec]] = PramSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Gouweleeuw, Kooiman, Willenborg & de Wolf 1998, Post randomisation for statistical disclosure control",
    )

    def plan(self, data: Microdata, spec: PramSpec) -> ValuePlan:
        """Count the records with a value that may be redrawn, and the changes expected."""
        _check(data, spec)
        expected = sum(_expected_changes(data, name, spec) for name in spec.attributes)
        known = [~missing_codes(data, name)[data.coded(name).codes] for name in spec.attributes]
        some = int(np.count_nonzero(np.any(known, axis=0))) if spec.keep < 1 else 0
        names = ", ".join(spec.attributes)
        return ValuePlan(
            method=self.name,
            records=len(data),
            asked=some,
            feasible=some,
            text=f"about {several(round(expected), f'value of {names} changes', f'values of {names} change')}; "
            "expected margins do not",
        )

    def apply(self, data: Microdata, spec: PramSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Decide for each value whether it is kept, and redraw the others."""
        plan = self.plan(data, spec)
        changes: dict[str, Change] = {}
        for name in spec.attributes if spec.keep < 1 else ():
            words = record_words(data, key, self.name, name, replicate=replicate)
            changes[name] = _redraw(data, name, spec, words)
        return masked_by(data, spec, plan, changes, key=key, replicate=replicate)

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


def _number_strata(data: Microdata, spec: PramSpec) -> Int64s:
    """Number each record's combination of ``within``."""
    if not spec.within:
        return np.zeros(len(data), dtype=np.int64)
    packed, _ = cells.pack(*data.coded_columns(spec.within))
    return np.unique(packed, return_inverse=True)[1].astype(np.int64)


def _expected_changes(data: Microdata, name: str, spec: PramSpec) -> float:
    """Return Σ over records of (1 − keep)·(1 − t) of the record's own category."""
    rows, strata, ranks, levels = _known_values(data, name, spec)
    if not len(rows):
        return 0.0
    table = np.bincount(strata * levels + ranks, minlength=(int(strata.max()) + 1) * levels).reshape(-1, levels)
    sizes = table.sum(axis=1)
    kept = (table.astype(np.float64) ** 2).sum(axis=1) / np.maximum(sizes, 1)
    return float((1 - spec.keep) * (sizes - kept).sum())


def _known_values(data: Microdata, name: str, spec: PramSpec) -> tuple[Rows, Int64s, Int64s, int]:
    """Return the rows with a known value, their strata, and their values as ranks, independent of file order."""
    known = np.flatnonzero(~missing_codes(data, name)[data.coded(name).codes])
    ranks, levels = ranked(data, name)
    return known, _number_strata(data, spec)[known], ranks[known].astype(np.int64), levels


def _redraw(data: Microdata, name: str, spec: PramSpec, words: Words) -> Change:
    """Redraw values: each from a uniform position in its stratum, sorted by value."""
    rows, strata, ranks, _ = _known_values(data, name, spec)
    redrawn = keyed.uniforms(words[rows, 0]) >= spec.keep
    by_value = np.lexsort((ranks, strata))
    sizes = np.bincount(strata, minlength=1)
    starts = np.cumsum(sizes) - sizes
    leading = words[rows, 1] >> np.uint64(32)
    offset = ((leading * sizes[strata].astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    donors = by_value[starts[strata] + offset]
    changed = redrawn & (ranks[donors] != ranks)
    column = data.table.column(name)
    if not changed.any():
        return Change(column=column, replacement=None)
    where = rows[changed]
    source = np.arange(len(data), dtype=np.int64)
    source[where] = rows[donors[changed]]
    before = column.take(pa.array(where)).combine_chunks()
    replaced = Replacement(attribute=name, rows=where, before=before)
    return Change(column=column.take(pa.array(source)), replacement=replaced)
