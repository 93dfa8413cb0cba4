"""Tables of a few attributes, before and after, as lists of the cells that hold records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from safeswap.kernels.divergence import conditional_wasserstein
from safeswap.kernels.types import Int64s
from safeswap.measures.aligned import aligned, joint_counts
from safeswap.measures.order import Order
from safeswap.model.score import Comparison

Association = Callable[[Int64s, Int64s, Int64s], float]


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossTable:
    """The cells of a table that hold records before or after: one level per attribute, and both counts."""

    attributes: tuple[str, ...]
    levels: tuple[Int64s, ...]
    before: Int64s
    after: Int64s


def cross_table(comparison: Comparison, attributes: tuple[str, ...], *, keep: bool = False) -> CrossTable:
    """One table, counted from the records."""
    joint = joint_counts(comparison, attributes, keep=keep)
    levels = []
    rest = joint.codes.astype(np.int64)
    for radix in reversed(_radices(comparison, attributes)):
        rest, level = np.divmod(rest, radix)
        levels.append(level)
    return CrossTable(attributes=attributes, levels=tuple(reversed(levels)), before=joint.before, after=joint.after)


def cross_tables(
    comparison: Comparison, attributes: tuple[str, ...], ways: int
) -> Iterator[tuple[tuple[str, ...], CrossTable | None]]:
    """Every table of so many attributes; None stands for one in which no attribute changed."""
    changed = {name for name in attributes if aligned(comparison, name).changed}
    # Where all attributes together have few cells, the records are counted once and tables are sums of cells.
    few = prod(_radices(comparison, attributes)) <= max(1 << 16, len(comparison.before) // 8)
    whole = cross_table(comparison, attributes, keep=True) if few and changed else None
    for names in combinations(attributes, ways):
        if changed.isdisjoint(names):
            yield names, None
        elif whole is None:
            yield names, cross_table(comparison, names)
        else:
            yield names, _margin(whole, names, _radices(comparison, names))


def association_change(table: CrossTable, association: Association) -> float:
    """The association of a two-way table before, less that after."""
    rows, columns = table.levels
    return association(rows, columns, table.before) - association(rows, columns, table.after)


def ordinal_distance(table: CrossTable, orders: Mapping[str, Order | None]) -> float | None:
    """How far the ordinal attributes of a table moved, each given the others; None where none has an order.

    For each ordinal attribute: the Wasserstein distance on its ranks between its distributions before and after
    within each cell of the other attributes, weighted by the size of that cell; then the mean over the ordinal
    attributes. Without the "given", swapping would leave it at 0, since it keeps every margin. Values without a
    rank are left out.
    """
    distances = [
        _distance(table, position, order)
        for position, name in enumerate(table.attributes)
        if (order := orders[name]) is not None
    ]
    return float(np.mean(distances)) if distances else None


def _distance(table: CrossTable, position: int, order: Order) -> float:
    ranks = order.ranks[table.levels[position]]
    ranked = ranks >= 0
    given = np.zeros(ranks.size, dtype=np.int64)
    for other, level in enumerate(table.levels):
        if other != position:
            given = given * (int(level.max(initial=0)) + 1) + level
    return conditional_wasserstein(
        given[ranked], ranks[ranked], table.before[ranked], table.after[ranked], levels=order.levels
    )


def _radices(comparison: Comparison, names: tuple[str, ...]) -> list[int]:
    return [max(1, aligned(comparison, name).cardinality) for name in names]


def _margin(whole: CrossTable, names: tuple[str, ...], radices: list[int]) -> CrossTable:
    chosen = [whole.levels[whole.attributes.index(name)] for name in names]
    code = np.ravel_multi_index(chosen, radices)
    cells = prod(radices)
    # Sums of whole numbers below 2**53 are exact in floating point.
    before = np.bincount(code, whole.before, cells).astype(np.int64)
    after = np.bincount(code, whole.after, cells).astype(np.int64)
    occupied = np.flatnonzero(before | after)
    return CrossTable(
        attributes=names,
        levels=np.unravel_index(occupied, radices),
        before=before[occupied],
        after=after[occupied],
    )
