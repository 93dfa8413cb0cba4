"""Lost detail: displacement on ordinal scales, and information loss.

Information loss is the share of the attributes' information, in bits, that recoding and blanking removed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, divergence
from safeswap.arrays.types import Counts, Floats, Int64s, Integers
from safeswap.errors import SpecError
from safeswap.measures.aligned import Order, align, level_order, require_same_records
from safeswap.measures.base import (
    Situation,
    names_attributes,
    recoding_note,
    require_cells,
)
from safeswap.measures.survey import WeightedMeasure, masses, sum_by
from safeswap.measures.utility.categories import (
    GOMATAM_KARR,
    DistortionMeasure,
)
from safeswap.model.columns import missing_codes
from safeswap.model.score import Comparison, Score
from safeswap.model.text import list_names, plural


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
                "no attribute has ordered levels",
                code="no-ordinal-attribute",
                hint="describe an attribute as ordinal and list its levels in order",
            )
        rows = [_measure_moves(comparison, name, order, weight) for name, order in orders.items()]
        value = float(np.mean([row["value"] for row in rows]))
        unordered = [name for name in names if name not in orders]
        sentence = f"A record moved by {value:.4f} of the scale's length on average, over {list_names(orders)}." + (
            f" Omitted, having no order: {list_names(unordered)}." if unordered else ""
        )
        sentence += recoding_note(comparison, tuple(orders))
        return self._score(value, sentence, tuple(orders), pa.Table.from_pylist(rows))


def _measure_moves(comparison: Comparison, name: str, order: Order, weight: str) -> dict[str, object]:
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


def entropy(counts: Counts) -> float:
    """Return Shannon's entropy of a distribution, per record.

    >>> entropy(np.array([2, 1, 1, 0]))
    1.5
    """
    known = counts[counts > 0].astype(np.float64)
    total = known.sum()
    return float(np.log2(total) - (known @ np.log2(known)) / total) if total else 0.0


def bits_lost(before: Integers, after: Integers, counts: Counts, *, missing: tuple[int, int]) -> tuple[float, int]:
    """Return the information about the values before that is lost after, summed over records; and the number of blanks.

    ``before`` and ``after`` are codes, one pair per kind of record with its number in ``counts``; ``missing`` are the
    codes of a missing value on either side. A record that was x and is y costs −log₂ of the share of x among the
    records that are y: nothing where y determines x, and for a recoding the entropy of the merged values. A blank
    costs −log₂ of the share of x among all known values. A value that was missing costs nothing.

    >>> then, now, each = np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2]), np.array([1, 1, 1, 1])
    >>> bits_lost(then, now, each, missing=(3, 2))  # 0 and 1 are merged: a bit each; one 2 is blank: a bit
    (3.0, 1)
    """
    known = (before != missing[0]) & (counts > 0)
    x, y, n = before[known], after[known], counts[known].astype(np.float64)
    if not len(x):
        return 0.0, 0
    of_value = np.bincount(x, n)
    blank = y == missing[1]
    among_alike = np.bincount(y, n)
    shares = np.where(blank, of_value[x] / n.sum(), n / among_alike[y])
    return float(-(n @ np.log2(shares))) + 0.0, int(n[blank].sum())


class InformationLoss(DistortionMeasure):
    """The share of the original's bits that the release no longer contains, each attribute on its own.

    A record whose value x became y loses −log₂ P(x | y), which for a recoding adds up to the conditional entropy
    H(before | after). A blanked value loses −log₂ P(x), all its information; a dropped attribute its whole entropy. 0:
    nothing is lost. 1: nothing is left.

    >>> InformationLoss(attributes=("Age",)).text
    'information_loss:attributes=Age'
    """

    name: ClassVar[str] = "information_loss"
    title: ClassVar[str] = "information loss"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"recoding"})
    sources: ClassVar[tuple[str, ...]] = (
        "de Waal & Willenborg (1999), Information Loss through Global Recoding and Local Suppression",
        "Gionis & Tassa (2009), k-Anonymization with Minimal Loss of Information, IEEE TKDE 21(2)",
    )

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        require_same_records(comparison)
        rows = [_measure_information(comparison, name) for name in self._choose_attributes(comparison)]
        told, lost = sum(row["bits"] for row in rows), sum(row["bits_lost"] for row in rows)
        value = float(lost / told) if told else 0.0
        sentence = f"{value:.2%} of the information in {_name_attributes(rows)} is lost"
        blanks = sum(row["blanked"] for row in rows)
        worst = max(rows, key=lambda row: row["bits_lost"])
        if worst["bits_lost"] > 0 and len(rows) > 1:
            sentence += f", most of it in {worst['attribute']} ({worst['value']:.2%} of its information)"
        blank = plural(blanks, "value was blanked", "values were blanked")
        sentence += f"; {blank}." if blanks else "."
        return self._score(value, sentence, tuple(row["attribute"] for row in rows), pa.Table.from_pylist(rows))

    def _choose_attributes(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the stated attributes; else those categorical before or after, so that ranges of numbers count."""
        before, after = comparison.before.schema, comparison.after.schema
        stated = self.attributes or (comparison.attributes if names_attributes(comparison) else ())
        recoded = [a.name for a in after.attributes if a.name in before and a.kind.is_categorical]
        names = stated or tuple(n for n in before.names if before[n].kind.is_categorical or n in recoded)
        return require_cells(before, names)


def _measure_information(comparison: Comparison, name: str) -> dict[str, Any]:
    """Measure one attribute's information and its loss. Codes for "no answer" are missing on both sides."""
    before = _encode(comparison.before, name)
    after = _encode(comparison.after, name) if name in comparison.after.schema else None
    codes, levels = before
    counts = np.bincount(codes, minlength=levels + 1)
    told = entropy(counts[:levels]) * int(counts[:levels].sum())
    if after is None:
        lost, blanked, left = told, int(counts[:levels].sum()), 0
    else:
        seen = cells.count_cells([codes, after[0]], [levels + 1, after[1] + 1])
        then, now = np.divmod(seen.codes.astype(np.int64), after[1] + 1)
        lost, blanked = bits_lost(then, now, seen.counts, missing=(levels, after[1]))
        left = int(np.count_nonzero(np.bincount(after[0], minlength=after[1] + 1)[: after[1]]))
    return {
        "attribute": name,
        "levels_before": int(np.count_nonzero(counts[:levels])),
        "levels_after": left,
        "blanked": blanked,
        "bits": told,
        "bits_lost": lost,
        "value": lost / told if told else 0.0,
    }


def _encode(data: Any, name: str) -> tuple[Any, int]:
    """Return the column as codes, with missing values as the last code, and that code."""
    coded = data.coded(name)
    levels = len(coded.levels)
    stated = missing_codes(data, name)[:levels]
    codes = coded.codes
    if stated.any():
        codes = np.where(np.append(stated, True)[codes], levels, codes).astype(np.uint32)
    return codes, levels


def _name_attributes(rows: list[dict[str, Any]]) -> str:
    names = [row["attribute"] for row in rows]
    return f"{len(names)} attributes" if len(names) > 4 else list_names(names)
