"""What a method will do, known from counts alone before any record is touched."""

from __future__ import annotations

from dataclasses import dataclass, field

from safeswap.model.several import several


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A change of the specification and the number of pairs it would allow."""

    change: str
    feasible: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many pairs are asked for, how many the data allow, and which constraint binds.

    >>> plan = Plan(method="swap", records=100, asked=60, feasible=40, binds=("Race",))
    >>> plan.is_feasible, plan.sentence
    (False, '60 pairs asked for, at most 40 feasible; Race binds')
    """

    method: str
    records: int
    asked: int
    feasible: int
    binds: tuple[str, ...] = ()
    relaxations: tuple[Relaxation, ...] = field(default=())
    pairs_per_record: tuple[float, ...] = field(default=(), repr=False)  # per stage, what one random pass would give

    @property
    def is_feasible(self) -> bool:
        """Whether the asked-for number can be had."""
        return self.asked <= self.feasible

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        text = f"{several(self.asked, 'pair')} asked for, at most {self.feasible:,} feasible"
        verb = "binds" if len(self.binds) == 1 else "bind"
        return text + (f"; {' and '.join(self.binds)} {verb}" if self.binds else "")
