r"""Distortion of categories: distances of tables, changes of single records, and lost information.

Distances between tables before and after (Gomatam & Karr 2003):

===================  ==================================================================================
``hellinger``        sqrt(½ Σ (√f − √g)²) over the cells
``total_variation``  ½ Σ \|f − g\| over the cells
``entropy_change``   Shannon's entropy after − before, in nats
``adV``              Cramér's V before − after, V = sqrt(χ² / (N · min(m − 1, n − 1)))
``adC``              Pearson's contingency coefficient before − after, C = sqrt(χ² / (χ² + N))
``D``                ½ Σ \|Xᵢ/X − Yᵢ/Y\| of one-way counts, in the whole file or in each area (Moore 1996)
===================  ==================================================================================

Of single records: the share that masking changed, and displacement on ordinal scales. Information loss is the share of
the attributes' information, in bits, that recoding and blanking removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import cells, divergence
from safeswap.arrays.types import Counts, Floats, Int64s, Integers
from safeswap.errors import SpecError
from safeswap.measures.aligned import CrossTable, Order, align, cross_table, level_order, require_same_records
from safeswap.measures.base import (
    AttributeNames,
    Situation,
    choose_attributes,
    left_out_note,
    names_attributes,
    recoding_note,
    require_cells,
)
from safeswap.measures.survey import WeightedMeasure, masses, sum_by, weight_changed
from safeswap.measures.utility.base import (
    GOMATAM_KARR,
    AssociationChange,
    DistortionMeasure,
    JointDistortion,
    WeighableMeasure,
    describe_change,
)
from safeswap.model.columns import flag_new_values, missing_codes
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.arrays.cells import JointCounts


class Hellinger(JointDistortion):
    """The Hellinger distance between cell shares; small cells weigh more than in total variation.

    0 for the same table, 1 for tables with no cell in common. Its square grows roughly with the swap rate.
    Table 3 of Gomatam & Karr prints sqrt(H/2) of this H.

    >>> Hellinger(ways=2).text
    'hellinger:ways=2'
    """

    name: ClassVar[str] = "hellinger"
    title: ClassVar[str] = "Hellinger distance"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.1",)

    def _divergence(self, joint: JointCounts) -> float:
        return divergence.hellinger(joint.before, joint.after, joint.alike)

    def _meaning(self, value: float, over: str) -> str:
        return f"Hellinger distance {value:.4f} {over} (0: the same table, 1: no cell in common)."


class TotalVariation(JointDistortion):
    """The share of records that would have to change cell to restore the original table.

    >>> TotalVariation().text
    'total_variation'
    """

    name: ClassVar[str] = "total_variation"
    title: ClassVar[str] = "total variation distance"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.2",)

    def _divergence(self, joint: JointCounts) -> float:
        return divergence.total_variation(joint.before, joint.after, joint.alike)

    def _meaning(self, value: float, over: str) -> str:
        return f"{value:.2%} of the records would have to change cell to restore the counts {over}."


class EntropyChange(JointDistortion):
    """The uncertainty about a record that masking added; negative if it removed some.

    The paper prints the entropy without its minus sign but reads a positive change as more uncertainty; we follow that
    reading. The joint figure keeps its sign; studies compare magnitudes, and the mean over tables is of magnitudes.

    >>> EntropyChange(absolute=True).text
    'entropy_change:absolute=true'
    """

    name: ClassVar[str] = "entropy_change"
    title: ClassVar[str] = "change in entropy"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.3",)

    signed: ClassVar[bool] = True

    absolute: Annotated[bool, Field(description="take the joint change without its sign")] = False

    def _divergence(self, joint: JointCounts) -> float:
        change = divergence.entropy_change(joint.before, joint.after, joint.alike)
        return abs(change) if self.absolute else change

    def _meaning(self, value: float, over: str) -> str:
        if value == 0:
            return f"Entropy is unchanged {over}."
        if self.absolute:
            return f"Entropy changed by {value:.4f} nats {over}, up or down."
        verb = "added" if value > 0 else "took away"
        return f"Masking {verb} {abs(value):.4f} nats of uncertainty {over}."

    def _mean_meaning(self, value: float, signed: float, over: str) -> str:
        if value == 0 or self.absolute:
            return self._meaning(value, over)
        added = describe_change(signed, "added uncertainty", "took uncertainty away")
        return f"Entropy changed by {value:.4f} nats {over}, up or down; with the sign masking {added}."


class CramersVChange(AssociationChange):
    """The loss of association between attributes, by Cramér's V; negative if it grew.

    >>> CramersVChange(attributes=("Age", "Sex")).text
    'adV:attributes=Age+Sex'
    """

    name: ClassVar[str] = "adV"
    title: ClassVar[str] = "change in Cramér's V"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.4",)
    association: ClassVar[str] = "Cramér's V"


class ContingencyCChange(AssociationChange):
    """The loss of association between attributes, by Pearson's contingency coefficient; negative if it grew.

    The upper limit of C depends on the size of the table, so tables of different sizes are hard to compare.

    >>> ContingencyCChange().title
    "change in Pearson's contingency coefficient"
    """

    name: ClassVar[str] = "adC"
    title: ClassVar[str] = "change in Pearson's contingency coefficient"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.5",)
    association: ClassVar[str] = "contingency coefficient C"


class Dissimilarity(WeighableMeasure):
    """The mean index of dissimilarity of the attributes' one-way distributions, optionally within areas.

    In the whole file it is 0 after any swap, since swapping keeps every one-way count: name the geography, or other
    attributes, ``within`` which to compare the distributions. Areas are weighted by their records, the mean of before
    and after; an area that is empty on one side only has D = 1.

    >>> Dissimilarity(within="State").text
    'D:within=State'
    """

    name: ClassVar[str] = "D"
    title: ClassVar[str] = "index of dissimilarity"
    blind_to_recoding: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (
        "Moore (1996), Preliminary Recommendations for Disclosure Limitation for the 2000 Census",
    )

    within: Annotated[AttributeNames, Field(description="attributes that make the areas; the whole file if empty")] = ()

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per attribute."""
        names = tuple(name for name in self._names(comparison) if name not in self.within)
        if not names:
            raise SpecError(
                "no attribute is left to compare within the areas",
                code="no-categorical-attribute",
                hint="name an attribute that does not define the areas",
            )
        rows = [self._row(comparison, name, weight) for name in names]
        value = float(np.mean([row["value"] for row in rows]))
        detail = pa.Table.from_pylist(rows)
        sentence = self._meaning(value, names) + left_out_note(comparison, (*self.within, *names))
        sentence += recoding_note(comparison, names)
        return self._score(value, sentence, names, detail)

    def _row(self, comparison: Comparison, name: str, weight: str) -> dict[str, object]:
        areas = (*self.within, name)
        if not any(align(comparison, part).changed for part in areas) and not weight_changed(comparison, weight):
            return {"attribute": name, "areas_changed": 0, "largest": 0.0, "value": 0.0}
        table = cross_table(comparison, areas, weight=weight)
        distances, weights = divergence.dissimilarity_within(_number_areas(table), table.before, table.after)
        return {
            "attribute": name,
            "areas_changed": int(np.count_nonzero(distances)),
            "largest": float(distances.max()),
            "value": float(distances @ weights),
        }

    def _meaning(self, value: float, names: tuple[str, ...]) -> str:
        of = names[0] if len(names) == 1 else f"{len(names)} attributes"
        if self.within:
            where = " × ".join(self.within)
            return f"Within {where}, {value:.2%} of the records are in another category of {of}, on average."
        return (
            f"In the whole file, {value:.2%} of the records are in another category of {of}, on average "
            "(0 after any swap: state `within`)."
        )


def _number_areas(table: CrossTable) -> npt.NDArray[np.int64]:
    """Return the area number of each cell, made from all attributes except the last."""
    area = np.zeros(table.before.size, dtype=np.int64)
    for level in table.levels[:-1]:
        area = np.unique(area * (int(level.max(initial=0)) + 1) + level, return_inverse=True)[1]
    return area


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
            differs = flag_new_values(*columns)
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
    return tuple(a.name for a in comparison.before.schema.attributes if not a.kind.is_unit_number and a.name in known)


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
                "no attribute has ordered levels",
                code="no-ordinal-attribute",
                hint="describe an attribute as ordinal and list its levels in order",
            )
        rows = [_measure_moves(comparison, name, order, weight) for name, order in orders.items()]
        value = float(np.mean([row["value"] for row in rows]))
        unordered = [name for name in names if name not in orders]
        sentence = f"A record moved by {value:.4f} of the scale's length on average, over {', '.join(orders)}." + (
            f" Omitted, having no order: {', '.join(unordered)}." if unordered else ""
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
    return f"{len(names)} attributes" if len(names) > 4 else ", ".join(names)
