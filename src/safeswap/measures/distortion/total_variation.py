"""Total variation distance: ½ Σ |f − g| over the cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from safeswap.kernels import divergence
from safeswap.measures.distortion.base import GOMATAM_KARR, JointDistortion

if TYPE_CHECKING:
    from safeswap.kernels.cells import JointCounts


class TotalVariation(JointDistortion):
    """The share of records that would have to change cell to bring the original table back.

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
