"""The protocol of a masking method. A new method is one file with one class that implements it."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from safeswap.model.effect import Effect
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import MaskSpec, Plan


class Method(Protocol):
    """A masking method.

    ``plan`` looks at counts and changes nothing; ``apply`` masks; ``invariants`` lists the promises about the result
    as values that check themselves, in the conformance tests and again on every real release.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    spec_type: ClassVar[type[MaskSpec]]
    sources: ClassVar[tuple[str, ...]]

    def plan(self, data: Microdata, spec: Any) -> Plan:
        """Return what would be done, and whether it is feasible."""
        ...

    def apply(self, data: Microdata, spec: Any, *, key: Key, replicate: int = 0) -> Masked:
        """Mask the data. The same data, spec, key and replicate give the same result everywhere."""
        ...

    def invariants(self, data: Microdata, spec: Any) -> tuple[Invariant, ...]:
        """Return what holds for every result of this spec on these data."""
        ...

    def effects(self, schema: Schema, spec: Any) -> tuple[Effect, ...]:
        """Return what may happen to which columns: what is said of them after several steps follows from it.

        A method that coarsens also has ``coarsen(data, spec, seen=)``, which does to other data what the rules say.
        """
        ...
