"""Displacement of records on ordinal scales: the mean of |rank change| / (levels − 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import divergence
from safeswap.arrays.types import Int64s
from safeswap.errors import SpecError
from safeswap.measures.aligned import align, require_same_records
from safeswap.measures.base import recoding_note
from safeswap.measures.tables import Order, level_order
from safeswap.measures.utility.base import GOMATAM_KARR, DistortionMeasure
from safeswap.model.score import Comparison, Score


class OrdinalDisplacement(DistortionMeasure):
    """The mean displacement of a record's rank, relative to the length of the scale, over the ordinal attributes.

    Gomatam & Karr ask for a measure that penalises larger moves more. The obvious one, the Wasserstein distance of an
    attribute's distribution on ranks, is 0 after any swap, since swapping keeps every one-way margin. So moves are
    measured record by record; and in ``distortion_tables`` as the Wasserstein distance of each ordinal attribute
    *given* the others.

    >>> OrdinalDisplacement().name
    'ordinal'
    """

    name: ClassVar[str] = "ordinal"
    title: ClassVar[str] = "ordinal displacement"
    blind_to_recoding: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 4 (asked for there, defined here)",)

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per ordinal attribute."""
        require_same_records(comparison)
        names = self._names(comparison)
        orders = {name: order for name in names if (order := level_order(comparison, name)) is not None}
        if not orders:
            raise SpecError(
                "no attribute has an order of its levels",
                code="no-ordinal-attribute",
                hint="describe an attribute as ordinal and list its levels in order",
            )
        rows = [_measure_attribute(comparison, name, order) for name, order in orders.items()]
        value = float(np.mean([row["value"] for row in rows]))
        unordered = [name for name in names if name not in orders]
        sentence = f"A record moved by {value:.4f} of the scale's length on average, over {', '.join(orders)}." + (
            f" Without an order, and left out: {', '.join(unordered)}." if unordered else ""
        )
        sentence += recoding_note(comparison, tuple(orders))
        return self._score(value, sentence, tuple(orders), pa.Table.from_pylist(rows))


def _measure_attribute(comparison: Comparison, name: str, order: Order) -> dict[str, object]:
    before, after, records = _count_moves(comparison, name, order)
    total = max(1, int(records.sum()))
    moves = divergence.ordinal_displacement(before, after, levels=order.levels)
    moved = int(records[moves > 0].sum())
    counts = [np.bincount(ranks[ranks >= 0], records[ranks >= 0], minlength=order.levels) for ranks in (before, after)]
    return {
        "attribute": name,
        "levels": order.levels,
        "share_moved": moved / total,
        "mean_move_of_the_moved": float(moves @ records) / max(1, moved),
        "farthest_move": float(moves.max(initial=0.0)),
        "margin_wasserstein": divergence.wasserstein_ranks(counts[0], counts[1]),
        "value": float(moves @ records) / total,
    }


def _count_moves(comparison: Comparison, name: str, order: Order) -> tuple[Int64s, Int64s, Int64s]:
    """Return rank before, rank after and number of records of every move that occurs: few, however many records."""
    from safeswap.arrays import cells

    column = align(comparison, name)
    levels = max(1, column.cardinality)
    counted = cells.count_cells([column.before, column.after], [levels, levels])
    before, after = np.divmod(counted.codes.astype(np.int64), levels)
    return order.ranks[before], order.ranks[after], counted.counts
