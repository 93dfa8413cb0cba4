"""Distances between tables before and after (Gomatam & Karr 2003).

===================  ==================================================================================
``hellinger``        sqrt(½ Σ (√f − √g)²) over the cells
``total_variation``  ½ Σ \\|f − g\\| over the cells
``entropy_change``   Shannon's entropy after − before, in nats
``adV``              Cramér's V before − after, V = sqrt(χ² / (N · min(m − 1, n − 1)))
``adC``              Pearson's contingency coefficient before − after, C = sqrt(χ² / (χ² + N))
===================  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from safeswap.arrays import divergence
from safeswap.measures.utility.base import GOMATAM_KARR, AssociationChange, JointDistortion, describe_change

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
