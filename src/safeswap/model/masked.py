"""A masked file with its original and the confidential record of the masking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.arrays import keyed
from safeswap.errors import SpecError
from safeswap.model.audit import Audit, undo
from safeswap.model.checked import check_types
from safeswap.model.invariant import Finding
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata, PastStep, add_step
from safeswap.model.score import Assessment
from safeswap.model.spec import MaskSpec, Plan
from safeswap.model.text import plural


@dataclass(frozen=True, eq=False, kw_only=True)
class Masked:
    """The result of a method. All of it is confidential; ``release`` makes the public part."""

    original: Microdata
    data: Microdata
    spec: MaskSpec
    plan: Plan
    audit: Audit
    parts: tuple[Masked, ...] = field(default=(), repr=False)

    @classmethod
    @check_types
    def by(
        cls, spec: MaskSpec, original: Microdata, data: Microdata, plan: Plan, *, key: Key, replicate: int, **facts: Any
    ) -> Masked:
        """Return what a method made of a file, with its audit record; ``facts`` are the fields that depend on it."""
        known: dict[str, Any] = {
            "method": spec.method,
            "spec": spec.as_dict(),
            "records": len(original),
            "algorithm": keyed.ALGORITHM,
        }
        known |= {"asked": plan.asked, "feasible": plan.feasible, "at_most": plan.at_most}
        known |= {"key_id": key.id, "releasable": key.releasable, "replicate": replicate}
        audit = Audit(**{**known, "data_name": original.schema.name, **facts})
        return cls(original=original, data=data, spec=spec, plan=plan, audit=audit)

    def __post_init__(self) -> None:
        data = replace(self.data, past=self.original.past)
        for audit in self.audit.single:
            if changed := audit.changed_attributes:
                step = PastStep(method=audit.method, attributes=changed, releasable=audit.releasable)
                data = add_step(replace(self.original, past=data.past), step, data)
        object.__setattr__(self, "data", data)

    @property
    def stages(self) -> tuple[Masked, ...]:
        """The masking by each step of a pipeline; otherwise this masking alone."""
        return self.parts or (self,)

    @cached_property
    def account(self) -> Any:
        """An account relative to the original: ``changes``, ``statements``, ``findings`` and ``flags``."""
        # By name: the account of a masking needs all methods, which are in a higher layer.
        return import_module("safeswap.pipelines.account").account_for(self)

    @property
    def changes(self) -> Any:
        """The changes of each column, all steps together; prints as a table."""
        return self.account.changes

    @check_types
    def with_parts(self, parts: tuple[Masked, ...]) -> Masked:
        """Return the masking with the stages of its pipeline, and the number of records that they touched."""
        made = int(np.count_nonzero(self.audit.touched()))
        return replace(self, parts=parts, audit=replace(self.audit, made=made, asked=made, feasible=made))

    def __repr__(self) -> str:
        stamp = f", {self.audit.stamp}" if self.audit.stamp else ""
        done = "exchanged" if self.audit.unit == "pairs" or self.audit.exchanges else "changed"
        made = f"{plural(self.audit.made, self.audit.unit.removesuffix('s'))} {done}"
        return f"<Masked by {self.audit.method}: {plural(len(self.data), 'record')}, {made}{stamp}>"

    def undo(self) -> Microdata:
        """Restore the original exactly, from the masked data and the audit record."""
        # A masking may change the description of attributes; restore that too.
        return replace(undo(self.data, self.audit), schema=self.original.schema)

    @check_types
    def undo_to(self, number: int) -> Microdata:
        """Return the file as it was after that many steps of the pipeline; 0 is the original."""
        if not 0 <= number <= len(self.stages):
            raise SpecError(
                f"the masking has {plural(len(self.stages), 'step')}: there is no file after {number}",
                code="no-such-step",
                hint="0 is the original",
            )
        return self.original if number == 0 else self.stages[number - 1].data

    @check_types
    def with_past(self, steps: tuple[PastStep, ...]) -> Masked:
        """Return the masking with steps that were applied to its file before all recorded ones."""
        return replace(self, original=replace(self.original, past=(*steps, *self.original.past)))

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


@dataclass(frozen=True, kw_only=True)
class MaskedFile:
    """A file masked on disk: totals and paths only, no pair, no value. The file and its record are confidential."""

    target: Path
    audit: Path
    engine: str
    method: str
    spec: Mapping[str, Any]
    records: int
    asked: int
    feasible: int
    made: int
    compensating: int
    releasable: bool
    at_most: int | None = None  # upper bound, given where ``feasible`` is not proved to be the maximum
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    assessment: Assessment | None = None

    @property
    def stamp(self) -> str:
        """Empty where a release may be made from it; else the stamp, with the reason."""
        return "" if self.releasable else f"NOT FOR RELEASE ({self.facts.get('not_for_release', 'insecure seed')})"

    @property
    def done(self) -> str:
        """A plain summary of the masking: pairs exchanged, or records changed."""
        unit = str(self.facts.get("unit", "pairs"))
        return f"{plural(self.made, unit.removesuffix('s'))} {'exchanged' if unit == 'pairs' else 'changed'}"

    def as_dict(self) -> dict[str, Any]:
        """Totals only: safe to print inside the building."""
        return {
            "method": self.method,
            "spec": dict(self.spec),
            "engine": self.engine,
            "records": self.records,
            "asked": self.asked,
            "feasible": self.feasible,
            "at_most": self.at_most,
            "made": self.made,
            "compensating": self.compensating,
            "for_release": self.releasable,
        }

    def __repr__(self) -> str:
        stamp = f", {self.stamp}" if self.stamp else ""
        return f"<MaskedFile by {self.method}: {plural(self.records, 'record')}, {self.done}{stamp}>"
