"""The cells of a large file before and after, counted from coded columns and from the few records that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

import numpy as np

from safeswap.errors import SpecError
from safeswap.kernels import cells
from safeswap.kernels.cell_changes import cell_changes
from safeswap.kernels.geography import parents
from safeswap.kernels.types import Codes, Names, Rows
from safeswap.model.schema import Kind, Schema
from safeswap.model.score import CountedCells

_TRIED = 10_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingColumn:
    """A column as codes: of all records before, and of the records that took part after; None where it is the same."""

    before: Codes
    after: Codes | None
    cardinality: int


def cell_attributes(schema: Schema, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """The attributes from which cells are formed; refused where there are none, or where one is the identifier."""
    names = tuple(attributes) if attributes is not None else schema.categorical
    if not names:
        raise SpecError(
            "there is no categorical attribute to form cells from",
            code="no-categorical-attribute",
            hint="describe some attributes as nominal or ordinal, or name the attributes to compare",
        )
    for name in names:
        if schema[name].kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the identifier: every record would be a cell of its own",
                code="identifier-in-measure",
                hint="leave it out of the attributes to compare",
                attribute=name,
            )
    return names


def counted_cells(
    schema: Schema, names: Names, columns: Mapping[str, ChangingColumn], rows: Rows, *, limit: int
) -> CountedCells:
    """Count the cells of the attributes ``names``; ``rows`` are the records that took part, in ascending order."""
    records = len(columns[names[0]].before)
    was, now, possible, inner = packed([columns[name] for name in names], rows)
    found = cell_changes(was, possible, rows, now, limit, inner=inner)
    return CountedCells(
        schema=schema,
        attributes=names,
        changed=frozenset(name for name in names if _moves(columns[name], rows)),
        joint=found.joint,
        small_cells=found.cells,
        small_untouched=found.untouched,
        untouched=records - len(rows),
        moved=int(np.count_nonzero(was[rows] != now)),
    )


def packed(columns: Sequence[ChangingColumn], rows: Rows) -> tuple[Codes, Codes, int, int]:
    """The cells of all records before and of ``rows`` after, how many are possible, and how many of the leading value.

    Areas that are told by the code of a finer one are left out where there are too many cells otherwise.
    """
    kept = list(columns)
    if prod(each.cardinality for each in kept) > cells.MOST_CELLS:
        kept = _without_told(kept, rows)
    sizes = [each.cardinality for each in kept]
    after = [each.before[rows] if each.after is None else each.after for each in kept]
    if prod(sizes) <= cells.MOST_CELLS:
        was, possible = cells.pack([each.before for each in kept], sizes)
        return was, cells.pack(after, sizes)[0], possible, max(1, prod(sizes[1:]))
    # Ranks have a meaning within one call only, so both sides are packed in one.
    both = [np.concatenate([each.before, now]) for each, now in zip(kept, after, strict=True)]
    codes, possible = cells.pack(both, sizes)
    return codes[: -len(rows) or None], codes[len(codes) - len(rows) :], possible, 1


def _without_told(columns: list[ChangingColumn], rows: Rows) -> list[ChangingColumn]:
    """The columns without those whose value follows from another one, before and after."""
    kept = columns
    by_size = [(each, _Tried(each)) for each in sorted(columns, key=lambda each: each.cardinality)]
    for (coarse, outer), (fine, inner) in permutations(by_size, 2):
        both_there = any(coarse is each for each in kept) and any(fine is each for each in kept)
        sizes = 1 < coarse.cardinality <= fine.cardinality
        if both_there and sizes and inner.may_tell(outer) and _tells(fine, coarse, rows):
            kept = [each for each in kept if each is not coarse]
    return kept


class _Tried:
    """A few records of a column: most columns have nothing to do with each other, and these show it."""

    def __init__(self, column: ChangingColumn) -> None:
        self.codes = column.before[:: max(1, len(column.before) // _TRIED)]
        _, self.first, self.place = np.unique(self.codes, return_index=True, return_inverse=True)

    def may_tell(self, other: _Tried) -> bool:
        """Whether the other column has one value wherever this one has."""
        return bool((other.codes[self.first][self.place] == other.codes).all())


def _tells(fine: ChangingColumn, coarse: ChangingColumn, rows: Rows) -> bool:
    around = parents(fine.before, coarse.before, fine.cardinality)
    if around is None:
        return False
    if fine.after is None and coarse.after is None:
        return True
    inner, outer = (each.before[rows] if each.after is None else each.after for each in (fine, coarse))
    return bool((around[inner] == outer).all())


def _moves(column: ChangingColumn, rows: Rows) -> bool:
    return column.after is not None and not np.array_equal(column.before[rows], column.after)


def net_change(joint: cells.JointCounts) -> int:
    """By how many records the cells differ."""
    return int(np.abs(joint.after - joint.before).sum()) // 2


def at_rows(column: ChangingColumn, rows: Rows) -> ChangingColumn:
    """The column of some records only."""
    return replace(column, before=column.before[rows])
