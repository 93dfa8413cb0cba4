"""Hellinger distance: sqrt(½ Σ (√f − √g)²) over the cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from safeswap.kernels import divergence
from safeswap.measures.distortion.base import GOMATAM_KARR, JointDistortion

if TYPE_CHECKING:
    from safeswap.kernels.cells import JointCounts


class Hellinger(JointDistortion):
    """How far the table of cell shares moved, small cells weighing more than in total variation.

    0 for the same table, 1 for tables without a cell in common. Its square grows roughly with the swap rate.
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
