"""Change of Shannon's entropy: H(after) − H(before), in nats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.kernels import divergence
from safeswap.measures.distortion.base import GOMATAM_KARR, JointDistortion

if TYPE_CHECKING:
    from safeswap.kernels.cells import JointCounts


class EntropyChange(JointDistortion):
    """How much uncertainty about a record masking added; negative where it took some away.

    The paper prints the entropy without its minus sign and then reads a positive change as more uncertainty; the
    words are kept here. Where "smaller is better" must hold, as in a search, use ``absolute``.

    >>> EntropyChange(absolute=True).text
    'entropy_change:absolute=true'
    """

    name: ClassVar[str] = "entropy_change"
    title: ClassVar[str] = "change of entropy"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.3",)

    absolute: Annotated[bool, Field(description="take changes without their sign")] = False

    def _divergence(self, joint: JointCounts) -> float:
        change = divergence.entropy_change(joint.before, joint.after, joint.alike)
        return abs(change) if self.absolute else change

    def _mean(self, detail: pa.Table) -> float:
        values = detail["value"].to_numpy()
        return float(np.mean(np.abs(values) if self.absolute else values))

    def _meaning(self, value: float, over: str) -> str:
        if value == 0:
            return f"Entropy is unchanged {over}."
        if self.absolute:
            return f"Entropy changed by {value:.4f} nats {over}, up or down."
        verb = "added" if value > 0 else "took away"
        return f"Masking {verb} {abs(value):.4f} nats of uncertainty {over}."
