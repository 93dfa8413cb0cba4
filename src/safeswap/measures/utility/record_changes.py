"""Changes of single records: the share that masking changed, and displacement on ordinal scales."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import divergence
from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.aligned import align, require_same_records
from safeswap.measures.base import Situation, choose_attributes, names_attributes, recoding_note
from safeswap.measures.survey import sum_by
from safeswap.measures.tables import Order, level_order
from safeswap.measures.utility.base import GOMATAM_KARR, DistortionMeasure
from safeswap.measures.weighted import WeightedMeasure, masses
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison, Score


class ShareChanged(DistortionMeasure):
    """The share of records that differ from the original in at least one of the attributes, record by record.

    >>> ShareChanged(attributes=("Race",)).text
    'share_changed:attributes=Race'
    """

    name: ClassVar[str] = "share_changed"
    title: ClassVar[str] = "share of records changed"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories", "numbers"})
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam & Karr (2003), section 2: a true swap changes the record, a false one does not",
    )

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        require_same_records(comparison)
        names = self._names(comparison) if self._is_stated(comparison) else _all_columns(comparison)
        anywhere = np.zeros(len(comparison.before), dtype=np.bool_)
        shares = []
        for name in names:
            columns = (side.table.column(name) for side in (comparison.before, comparison.after))
            differs = flag_changes(*aligned_columns(*columns))
            anywhere |= differs
            shares.append(_share(differs))
        value = _share(anywhere)
        among = f" of {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if self._is_stated(comparison) else ""
        sentence = f"{value:.2%} of the records differ from the original in at least one attribute{among}."
        detail = pa.table({"attribute": list(names), "value": pa.array(shares, pa.float64())})
        return self._score(value, sentence, names, detail)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        return choose_attributes(comparison, self.attributes, with_dates=True)

    def _is_stated(self, comparison: Comparison) -> bool:
        """Return whether attributes were stated; else all columns count, also numbers, since no cells are formed."""
        return bool(self.attributes) or names_attributes(comparison)


def _all_columns(comparison: Comparison) -> tuple[str, ...]:
    known = comparison.after.schema
    return tuple(
        a.name for a in comparison.before.schema.attributes if a.kind is not Kind.IDENTIFIER and a.name in known
    )


def _share(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return float(np.count_nonzero(flags) / flags.size) if flags.size else 0.0


class OrdinalDisplacement(WeightedMeasure, DistortionMeasure):
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

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
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
        rows = [_measure_attribute(comparison, name, order, weight) for name, order in orders.items()]
        value = float(np.mean([row["value"] for row in rows]))
        unordered = [name for name in names if name not in orders]
        sentence = f"A record moved by {value:.4f} of the scale's length on average, over {', '.join(orders)}." + (
            f" Without an order, and left out: {', '.join(unordered)}." if unordered else ""
        )
        sentence += recoding_note(comparison, tuple(orders))
        return self._score(value, sentence, tuple(orders), pa.Table.from_pylist(rows))


def _measure_attribute(comparison: Comparison, name: str, order: Order, weight: str) -> dict[str, object]:
    before, after, records = _count_moves(comparison, name, order, weight)
    total = float(records.sum()) or 1.0
    moves = divergence.ordinal_displacement(before, after, levels=order.levels)
    moved = float(records[moves > 0].sum())
    counts = [np.bincount(ranks[ranks >= 0], records[ranks >= 0], minlength=order.levels) for ranks in (before, after)]
    return {
        "attribute": name,
        "levels": order.levels,
        "share_moved": moved / total,
        "mean_move_of_the_moved": float(moves @ records) / (moved or 1.0),
        "farthest_move": float(moves.max(initial=0.0)),
        "margin_wasserstein": divergence.wasserstein_ranks(counts[0], counts[1]),
        "value": float(moves @ records) / total,
    }


def _count_moves(comparison: Comparison, name: str, order: Order, weight: str) -> tuple[Int64s, Int64s, Floats]:
    """Return rank before, rank after and number of records, or their weight, of every move that occurs: few."""
    from safeswap.arrays import cells

    column = align(comparison, name)
    levels = max(1, column.cardinality)
    if weight:
        packed, _ = cells.pack([column.before, column.after], [levels, levels])
        codes, places = np.unique(packed, return_inverse=True)
        sums = sum_by(places, masses(comparison, weight)[0], len(codes))
    else:
        counted = cells.count_cells([column.before, column.after], [levels, levels])
        codes, sums = counted.codes, counted.counts.astype(np.float64)
    before, after = np.divmod(codes.astype(np.int64), levels)
    return order.ranks[before], order.ranks[after], sums
