"""The plan of a method, derived from counts alone before any record is touched."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from safeswap.model.text import plural


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A change of the specification and the number of pairs it would allow.

    ``at_most`` is an upper bound, given where that number is not proved to be the maximum.
    """

    change: str
    feasible: int
    at_most: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; ``at_most`` only if it is given."""
        bound = {} if self.at_most is None else {"at_most": self.at_most}
        return {"change": self.change, "feasible": self.feasible, **bound}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of pairs requested, the number that the data allow, and the binding constraint.

    >>> plan = Plan(method="swap", records=100, asked=60, feasible=40, binds=("Race",))
    >>> plan.is_feasible, plan.sentence
    (False, '60 pairs requested, at most 40 feasible; Race binds')

    Where the maximum is not proved, ``feasible`` is the number found and ``at_most`` an upper bound.

    >>> Plan(method="swap", records=100, asked=60, feasible=40, at_most=45).sentence
    '60 pairs requested, at least 40 and at most 45 feasible'
    """

    method: str
    records: int
    asked: int
    feasible: int
    at_most: int | None = None
    binds: tuple[str, ...] = ()
    relaxations: tuple[Relaxation, ...] = field(default=())
    pairs_per_record: tuple[float, ...] = field(default=(), repr=False)  # per stage, expected from one random pass

    @property
    def is_feasible(self) -> bool:
        """True if the number asked for is possible."""
        return self.asked <= self.feasible

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        text = f"{plural(self.asked, 'pair')} requested, {feasible_range(self.feasible, self.at_most)} feasible"
        verb = "binds" if len(self.binds) == 1 else "bind"
        return text + (f"; {' and '.join(self.binds)} {verb}" if self.binds else "")

    @property
    def details(self) -> dict[str, Any]:
        """Facts stated by the plan of this method only, such as the number of households moved."""
        common = {each.name for each in fields(Plan)}
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in common}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            "records": self.records,
            "asked": self.asked,
            "feasible": self.feasible,
            "at_most": self.at_most,
            "binds": list(self.binds),
            "is_feasible": self.is_feasible,
            "sentence": self.sentence,
            "details": self.details,
            "relaxations": [each.as_dict() for each in self.relaxations],
        }


def feasible_range(feasible: int, at_most: int | None) -> str:
    """Describe the feasible number of pairs: the maximum, or a range where it is not proved.

    >>> feasible_range(1200, None), feasible_range(1200, 1300)
    ('at most 1,200', 'at least 1,200 and at most 1,300')
    """
    return f"at most {feasible:,}" if at_most is None else f"at least {feasible:,} and at most {at_most:,}"


def recorded_plan(audit: Any) -> Plan:
    """Return the plan stored in a record."""
    known = {name: getattr(audit, name) for name in ("method", "records", "asked", "feasible", "at_most")}
    return Plan(**known)
