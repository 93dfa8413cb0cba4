"""What every masking method offers. A new method is one file with one class of this shape."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from safeswap.engines.base import Engine
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.spec import MaskSpec


class Method(Protocol):
    """One way of masking.

    ``plan`` looks at counts and touches nothing; ``apply`` masks; ``invariants`` lists what is promised of the result,
    as values that check themselves, in the conformance tests and again on every real release.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    spec_type: ClassVar[type[MaskSpec]]
    sources: ClassVar[tuple[str, ...]]

    def plan(self, data: Microdata, spec: Any, *, engine: Engine) -> Plan:
        """What would be done, and whether it can be."""
        ...

    def apply(self, data: Microdata, spec: Any, *, key: Key, engine: Engine, replicate: int = 0) -> Masked:
        """Mask the data. The same data, spec, key and replicate give the same result everywhere."""
        ...

    def invariants(self, data: Microdata, spec: Any) -> tuple[Invariant, ...]:
        """What holds of every result of this spec on these data."""
        ...
