"""Distances between tables before and after (Gomatam & Karr 2003).

===================  ==================================================================================
``hellinger``        sqrt(½ Σ (√f − √g)²) over the cells
``total_variation``  ½ Σ \\|f − g\\| over the cells
``entropy_change``   Shannon's entropy after − before, in nats
``adV``              Cramér's V before − after, V = sqrt(χ² / (N · min(m − 1, n − 1)))
``adC``              Pearson's contingency coefficient before − after, C = sqrt(χ² / (χ² + N))
``D``                ½ Σ \\|Xᵢ/X − Yᵢ/Y\\| of one-way counts, in the whole file or in each area (Moore 1996)
===================  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import divergence
from safeswap.errors import SpecError
from safeswap.measures.aligned import align
from safeswap.measures.base import AttributeNames, left_out_note, recoding_note
from safeswap.measures.tables import CrossTable, cross_table
from safeswap.measures.utility.base import (
    GOMATAM_KARR,
    AssociationChange,
    JointDistortion,
    WeighableMeasure,
    describe_change,
)
from safeswap.measures.weighted import weight_changed
from safeswap.model.score import Comparison, Score

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
    title: ClassVar[str] = "change of entropy"
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
    title: ClassVar[str] = "change of Cramér's V"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.4",)
    association: ClassVar[str] = "Cramér's V"


class ContingencyCChange(AssociationChange):
    """The loss of association between attributes, by Pearson's contingency coefficient; negative if it grew.

    The upper limit of C depends on the size of the table, so tables of different sizes are hard to compare.

    >>> ContingencyCChange().title
    "change of Pearson's contingency coefficient"
    """

    name: ClassVar[str] = "adC"
    title: ClassVar[str] = "change of Pearson's contingency coefficient"
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
                hint="name an attribute that does not make the areas",
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
