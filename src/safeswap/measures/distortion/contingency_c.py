"""adC: Pearson's contingency coefficient before − after, C = sqrt(χ² / (χ² + N))."""

from __future__ import annotations

from typing import ClassVar

from safeswap.measures.distortion.base import GOMATAM_KARR, AssociationChange


class ContingencyCChange(AssociationChange):
    """How much the association between attributes weakened, by Pearson's contingency coefficient.

    The upper limit of C depends on the size of the table, so that tables of different size compare badly.

    >>> ContingencyCChange().title
    "change of Pearson's contingency coefficient"
    """

    name: ClassVar[str] = "adC"
    title: ClassVar[str] = "change of Pearson's contingency coefficient"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.5",)
    association: ClassVar[str] = "contingency coefficient C"
