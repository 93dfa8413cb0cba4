"""adV: Cramér's V before − Cramér's V after, V = sqrt(χ² / (N · min(m − 1, n − 1)))."""

from __future__ import annotations

from typing import ClassVar

from safeswap.measures.distortion.base import GOMATAM_KARR, AssociationChange


class CramersVChange(AssociationChange):
    """How much the association between attributes weakened, by Cramér's V; negative where it grew.

    >>> CramersVChange(attributes=("Age", "Sex")).text
    'adV:attributes=Age+Sex'
    """

    name: ClassVar[str] = "adV"
    title: ClassVar[str] = "change of Cramér's V"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.4",)
    association: ClassVar[str] = "Cramér's V"
