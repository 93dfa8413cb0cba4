"""Check a programme of tables: which cells are below tolerance, and which of them the published figures give back.

An intruder is taken to see every figure of every table and of its margins but those above 0 and below the tolerance,
and to know that rule: a withheld figure is at least 1 and at most the tolerance less 1. Further bounds come from the
sums in which it stands: a table adds up to its margins, and tables that share variables share margins.

Source: Dobra & Fienberg 2000, Bounds for cell entries in contingency tables given marginal totals, PNAS 97,
11885-11892.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from safeswap.kernels.interval_sums import Sum, sharpen, tighten, unknowns
from safeswap.kernels.types import Int64s, Names
from safeswap.model.table import CountTable, Programme, check_tolerance
from safeswap.model.table_check import CheckedTable, TableCheck, Way

MOST_PROGRAMMES = 300
"""Withheld cells up to which integer programmes are solved, two for each; above, propagation has to do."""

_MOST_OPEN = 20_000


def check_programme(programme: Programme, *, tolerance: int, margins: bool = True) -> TableCheck:
    """The small cells of all tables, with what the published figures tell about them.

    With ``margins=False`` only the tables themselves are published, none of their margins but the number of records.

    >>> table = CountTable.from_array([[1, 4], [6, 9]])
    >>> check_programme(Programme(tables=(table,)), tolerance=3).derived
    1
    """
    check_tolerance(tolerance)
    figures = _lattice(programme.tables)
    stated = {frozenset(table.names) for table in programme.tables}
    order = list(figures)
    sums = _sums(order)
    lower, upper = [], []
    total = programme.tables[0].total
    for names in order:
        counts = figures[names]
        known = margins or frozenset(names) in stated
        small = (counts > 0) & (counts < tolerance)
        shown = (~small & known) | (not names)  # how many records there are is known
        lower.append(np.where(shown, counts, int(known)))
        upper.append(np.where(shown, counts, tolerance - 1 if known else total))
    tighten(lower, upper, sums)
    way, is_exact = _by_programmes(programme, order, lower, upper, sums, true=list(figures.values()))
    return TableCheck(
        tables=tuple(_checked(table, order, lower, upper, tolerance) for table in programme.tables),
        tolerance=tolerance,
        way=way,
        is_exact=is_exact,
    )


def _lattice(tables: Sequence[CountTable]) -> dict[Names, Int64s]:
    """The counts by every set of variables that some table has, variables in one order throughout."""
    order = list(dict.fromkeys(name for table in tables for name in table.names))
    found: dict[Names, Int64s] = {}
    for table in tables:
        axes = sorted(range(table.ways), key=lambda axis: order.index(table.names[axis]))
        names = tuple(table.names[axis] for axis in axes)
        counts = table.counts.transpose(axes)
        for size in range(len(names), -1, -1):
            for kept in combinations(range(len(names)), size):
                part = tuple(names[axis] for axis in kept)
                if part not in found:
                    found[part] = np.asarray(counts.sum(axis=tuple(a for a in range(len(names)) if a not in kept)))
    return found


def _sums(order: Sequence[Names]) -> list[Sum]:
    """Every set of variables summed over one of them, where the result is in the lattice: it always is."""
    number = {names: i for i, names in enumerate(order)}
    return [
        (number[names], number[names[:axis] + names[axis + 1 :]], axis) for names in order for axis in range(len(names))
    ]


def _by_programmes(
    programme: Programme,
    order: Sequence[Names],
    lower: Sequence[Int64s],
    upper: Sequence[Int64s],
    sums: Sequence[Sum],
    *,
    true: Sequence[Int64s],
) -> tuple[Way, bool]:
    """Narrow the bounds of the withheld cells to the end where they are few; how, and whether the end was reached."""
    open_ones, starts = unknowns(lower, upper)
    stated = {frozenset(table.names) for table in programme.tables}
    wanted = [
        place
        for i, names in enumerate(order)
        if frozenset(names) in stated
        for place in open_ones[(open_ones >= starts[i]) & (open_ones < starts[i + 1])]
    ]
    if not wanted or len(wanted) > MOST_PROGRAMMES or open_ones.size > _MOST_OPEN:
        return "interval propagation", not wanted
    return "integer programming", sharpen(lower, upper, sums, np.array(wanted), true=true)


def _checked(
    table: CountTable, order: Sequence[Names], lower: Sequence[Int64s], upper: Sequence[Int64s], tolerance: int
) -> CheckedTable:
    place = next(i for i, names in enumerate(order) if set(names) == set(table.names))
    axes = [order[place].index(name) for name in table.names]
    return CheckedTable(
        table=table, tolerance=tolerance, lower=lower[place].transpose(axes), upper=upper[place].transpose(axes)
    )
