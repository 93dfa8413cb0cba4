"""A masked file together with what it came from and the confidential record of the masking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from safeswap.model.audit import Audit
from safeswap.model.microdata import Microdata, PastStep
from safeswap.model.plan import Plan
from safeswap.model.several import several
from safeswap.model.spec import MaskSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class Masked:
    """What a method returns. Everything in here stays inside; ``release`` makes what may leave."""

    original: Microdata
    data: Microdata
    spec: MaskSpec
    plan: Plan
    audit: Audit

    def __post_init__(self) -> None:
        changed = self.audit.changed_attributes
        step = PastStep(method=self.audit.method, attributes=changed, releasable=self.audit.releasable)
        past = (*self.original.past, *((step,) if changed else ()))
        object.__setattr__(self, "data", replace(self.data, past=past))

    def __repr__(self) -> str:
        stamp = f", {self.audit.stamp}" if self.audit.stamp else ""
        done = "exchanged" if self.audit.unit == "pairs" else "changed"
        made = f"{several(self.audit.made, self.audit.unit.removesuffix('s'))} {done}"
        return f"<Masked by {self.audit.method}: {several(len(self.data), 'record')}, {made}{stamp}>"

    def as_dict(self) -> dict[str, Any]:
        """Totals only: safe to print inside the building."""
        return {
            "method": self.audit.method,
            "spec": self.spec.as_dict(),
            "records": len(self.data),
            "asked": self.plan.asked,
            "feasible": self.plan.feasible,
            "at_most": self.plan.at_most,
            "made": self.audit.made,
            "compensating": self.audit.compensating,
            "for_release": self.audit.releasable,
        }
