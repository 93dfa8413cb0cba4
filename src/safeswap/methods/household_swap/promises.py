"""Promises about households, checked on the files before and after, and about the areas they live in."""

from __future__ import annotations

from dataclasses import dataclass

from safeswap.arrays.names import Names
from safeswap.model.evidence import PairEvidence
from safeswap.model.invariant import AttributesPromise, PairPromise
from safeswap.model.text import plural


@dataclass(frozen=True)
class _HouseholdPromise(AttributesPromise, PairPromise):
    household: str = ""

    @property
    def compared(self) -> Names:
        """The attributes named, and the number of the household."""
        return (self.household, *self.attributes)

    @property
    def unit(self) -> str:
        """The number of the household."""
        return self.household


@dataclass(frozen=True)
class HouseholdsStayTogether(_HouseholdPromise):
    """All members of a household have the same values of these attributes after, as before."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The members of a household stay together: they have the same {', '.join(self.attributes)}."

    def problem(self, evidence: PairEvidence) -> str:
        """Count households that were torn apart: some members changed and others not, or they differ now."""
        torn = evidence.count_torn(self.household, self.attributes)
        return f"{plural(torn, 'household has', 'households have')} members in different areas" if torn else ""


@dataclass(frozen=True)
class KeptHouseholds(_HouseholdPromise):
    """The number of households by these attributes together is the same before and after."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The numbers of households by {', '.join(self.attributes)} are exactly as before."

    def problem(self, evidence: PairEvidence) -> str:
        """Count the cells whose number of households changed."""
        moved = evidence.count_moved_units(self.household, self.attributes)
        return (
            f"{plural(moved, 'cell has', 'cells have')} a different number of households from before" if moved else ""
        )
