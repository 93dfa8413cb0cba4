"""Promises of a masking by household: about mates, about some attributes only, and about the file of households."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.model.audit import Audit
from safeswap.model.evidence import Evidence
from safeswap.model.households import Households, Reduction, find_holders, find_households, find_split
from safeswap.model.invariant import Invariant
from safeswap.model.text import list_names, plural


@dataclass(frozen=True)
class MatesAgree(Invariant):
    """The members of a household still have the same value, in every household in which they had."""

    attributes: Names
    household: str

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return f"{list_names(self.attributes)} changed for all members of a household or for none."

    def problem(self, evidence: Evidence) -> str:
        """Count the households that agreed before and do not now."""
        homes = find_households(evidence.before)
        for name in self.attributes:
            was, now = (find_split(data, name, homes) for data in (evidence.before, evidence.after))
            if split := int(np.count_nonzero(now & ~was)):
                return f"{plural(split, 'household has', 'households have')} several values of {name}, unlike before"
        return ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the promise about the released attributes, if households are told."""
        left = tuple(name for name in self.attributes if name in names)
        return replace(self, attributes=left) if left and self.household in names else None


@dataclass(frozen=True, eq=False)
class OfAttributes(Invariant):
    """A promise about the masking of some attributes, whatever happened to others."""

    inner: Invariant
    names: Names

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return self.inner.sentence

    def problem(self, evidence: Evidence) -> str:
        """Check the promise on what the audit tells of these attributes."""
        audit = evidence.audit
        exchanges = tuple(each for each in audit.exchanges if set(each.attributes) <= set(self.names))
        replacements = tuple(each for each in audit.replacements if each.attribute in self.names)
        own = replace(audit, exchanges=exchanges, replacements=replacements)
        return self.inner.problem(Evidence(evidence.before, evidence.after, own))

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the part of the promise about released columns."""
        left = self.inner.for_users_of(names)
        return None if left is None else OfAttributes(left, self.names)


class HouseholdView:
    """Evidence of the file of households, found once for all promises about it."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction
        self._seen: tuple[Evidence, Evidence] | None = None

    def of(self, evidence: Evidence) -> Evidence:
        """Return the evidence of the file of households: first members, and the exchanges between them."""
        if self._seen is None or self._seen[0] is not evidence:
            homes = find_holders(evidence.before, self.reduction.names)
            before, after = (self.reduction.apply(data, homes) for data in (evidence.before, evidence.after))
            self._seen = evidence, Evidence(before, after, _audit_of(evidence.audit, homes))
        return self._seen[1]


def _audit_of(audit: Audit, homes: Households) -> Audit:
    """Return the audit of the file of households: what happened to first members."""
    household = np.full(audit.records, -1, dtype=np.int64)
    household[homes.first] = np.arange(len(homes))
    exchanges = tuple(replace(each, pairs=household[each.pairs]) for each in audit.exchanges)
    replacements = []
    for each in audit.replacements:
        kept = np.flatnonzero(household[each.rows] >= 0)
        rows = household[each.rows[kept]]
        replacements.append(replace(each, rows=rows, before=each.before.take(pa.array(kept))))
    facts: Mapping[str, Any] = audit.facts
    return replace(audit, records=len(homes), exchanges=exchanges, replacements=tuple(replacements), facts=facts)


@dataclass(frozen=True, eq=False)
class OfHouseholds(Invariant):
    """A promise about the file of households, one record each."""

    inner: Invariant
    view: HouseholdView

    @property
    def sentence(self) -> str:
        """The promise in words, with its unit."""
        return f"Counting households, one record each: {self.inner.sentence}"

    def problem(self, evidence: Evidence) -> str:
        """Check the promise on the file of households."""
        seen = self.view.of(evidence)
        return seen.obstacle or self.inner.problem(seen)

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the part of the promise about released columns."""
        left = self.inner.for_users_of(names)
        return None if left is None else OfHouseholds(left, self.view)
