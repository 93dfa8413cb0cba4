"""Change of Shannon's entropy: H(after) − H(before), in nats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from safeswap.kernels import divergence
from safeswap.measures.distortion.base import GOMATAM_KARR, JointDistortion, direction

if TYPE_CHECKING:
    from safeswap.kernels.cells import JointCounts


class EntropyChange(JointDistortion):
    """How much uncertainty about a record masking added; negative where it took some away.

    The paper prints the entropy without its minus sign and then reads a positive change as more uncertainty; the
    words are kept here. The sign of the joint figure is kept; studies compare magnitudes, and the mean over tables is
    one of magnitudes.

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
        added = direction(signed, "added uncertainty", "took uncertainty away")
        return f"Entropy changed by {value:.4f} nats {over}, up or down; with the sign masking {added}."
