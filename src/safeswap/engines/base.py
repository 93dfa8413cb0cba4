"""The narrow door to an engine: count classes, draw pairs, exchange columns.

Planning needs counts only and is the same for all engines; an engine never decides, it orders records by their keyed
draw and moves values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from safeswap.kernels.types import Counts, Names
from safeswap.model.schema import Schema
from safeswap.model.spec import Targeting


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Which records may be paired: same values of ``equal``, and a difference in each group of ``unequal``.

    A group differs if any of its attributes does. ``carried`` names attributes that decide nothing but are exchanged:
    engines keep their values with the pairs.
    """

    equal: Names
    unequal: tuple[Names, ...]
    carried: Names = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Records counted by stratum and coordinates; classes of one stratum stand together."""

    strata: Counts
    coordinates: Counts
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """How many pairs to draw under which constraint, and the derived keys that decide the order.

    With ``repair`` consecutive records of each stratum are paired along the order, and a shortfall is made good.
    Without, consecutive records of the whole order are paired, and pairs that the constraint forbids are dropped.
    """

    constraint: Constraint
    wanted: int
    repair: bool
    draw_key: bytes = field(repr=False)
    identity_key: bytes = field(repr=False)
    targeting: Targeting | None = None
    pairs_per_record: float = 0.25  # an estimate, for how much of the order is needed; the result does not depend on it


class Records(Protocol):
    """What planning needs to know of a file, wherever its records are."""

    @property
    def schema(self) -> Schema:
        """What is known about its columns."""
        ...

    def __len__(self) -> int: ...

    def is_constant(self, name: str) -> bool:
        """Whether all records have the same value of an attribute."""
        ...


class HouseholdCounts(Protocol):
    """What the Confidentiality Edit of 1990 asks of a file before any household is drawn, as counts."""

    def missing(self, name: str) -> int:
        """How many records have no value of an attribute, or one that stands for none."""
        ...

    def repeats(self, name: str) -> bool:
        """Whether a household number is missing or occurs twice."""
        ...

    def straddling(self, coarse: str, fine: str) -> int:
        """How many areas of a finer level lie in more than one of a coarser one."""
        ...

    def single_areas(self) -> tuple[int, int]:
        """How many areas have several households but nowhere to exchange them with, and how many households."""
        ...


class Engine(Protocol):
    """What every engine can do, with records as it holds them: columns in memory, or a stream of them."""

    name: str

    def classes(self, data: Any, constraint: Constraint) -> Classes:
        """Count the records by what decides who may be paired with whom."""
        ...

    def pairs(self, data: Any, request: PairRequest) -> Any:
        """Disjoint pairs of records, as many as wanted or, failing that, as there are; their number is its length."""
        ...

    def exchange(self, data: Any, attributes: Names, pairs: Any) -> Any:
        """The data with the values of these attributes exchanged within each pair."""
        ...
