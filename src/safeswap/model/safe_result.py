"""Tables made safe: before and after, how far apart they are, and how far they had to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.kernels.types import Counts, Names
from safeswap.model.proved import proved_bound
from safeswap.model.several import several
from safeswap.model.table import CountTable, long_table

Objective = Literal["total", "largest", "weighted"]
Status = Literal["optimal", "gap", "heuristic"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A figure of a kept margin that is not as it was: which margin, where in it, and the two figures."""

    margin: Names
    at: tuple[int, ...]
    before: int
    after: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"margin": list(self.margin), "at": list(self.at), "before": self.before, "after": self.after}


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangedTable:
    """One table before and after, and the margins that were to be kept.

    >>> before = CountTable.from_array([[4, 5], [1, 6]], names=("Region", "Sex"))
    >>> table = ChangedTable(before=before, after=before.with_counts(before.counts - 1), keep=())
    >>> table.total, table.largest, int(table.changed.sum())
    (4, 1, 4)
    """

    before: CountTable
    after: CountTable
    keep: tuple[Names, ...]

    @property
    def moves(self) -> Counts:
        """What was added to each cell."""
        difference: Counts = self.after.counts - self.before.counts
        return difference

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """The cells that are not as they were."""
        flags: npt.NDArray[np.bool_] = self.moves != 0
        return flags

    @property
    def total(self) -> int:
        """All changes together, without their signs."""
        return int(np.abs(self.moves).sum())

    @property
    def largest(self) -> int:
        """The largest change of a cell."""
        return int(np.abs(self.moves).max(initial=0))

    def violations(self) -> tuple[Violation, ...]:
        """The figures of the kept margins that moved."""
        found = []
        for names in self.keep:
            one, other = self.before.margin(names), self.after.margin(names)
            for place in np.argwhere(one != other):
                at = tuple(int(level) for level in place)
                found.append(Violation(margin=names, at=at, before=int(one[at]), after=int(other[at])))
        return tuple(found)

    def long(self) -> pa.Table:
        """The cells in rows, with the counts before and after."""
        return long_table(self.before, {"before": self.before.counts, "after": self.after.counts})

    def as_dict(self, tolerance: int) -> dict[str, Any]:
        """Totals only."""
        return {
            "variables": list(self.before.names),
            "cells": int(self.before.counts.size),
            "small_before": int(np.count_nonzero(self.before.small(tolerance))),
            "small_after": int(np.count_nonzero(self.after.small(tolerance))),
            "changed_cells": int(np.count_nonzero(self.changed)),
            "total_change": self.total,
            "largest_change": self.largest,
            "kept": [list(names) for names in self.keep],
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class SafeTables:
    """What came of making tables safe.

    ``value`` is what was to be small, by ``objective``; no safe table has less than ``bound``. ``status`` is "optimal"
    where the two meet, "gap" where the time ran out before that was proved, "heuristic" where no proof was tried. Of
    soft solutions ``violation`` units of the margins are off, and no safe table has fewer than ``violation_bound``.
    """

    tables: tuple[ChangedTable, ...]
    tolerance: int
    objective: Objective
    value: float
    bound: float
    status: Status
    violation: int = 0
    violation_bound: int = 0
    origin: Any = None

    def __post_init__(self) -> None:
        proved_bound(self.bound, self.value)
        proved_bound(self.violation_bound, self.violation)

    @property
    def after(self) -> CountTable:
        """The safe table; of several the first."""
        return self.tables[0].after

    @property
    def counts(self) -> Counts:
        """The counts of the safe table; of several of the first."""
        return self.after.counts

    @property
    def total(self) -> int:
        """All changes together, without their signs."""
        return sum(table.total for table in self.tables)

    @property
    def largest(self) -> int:
        """The largest change of a cell."""
        return max(table.largest for table in self.tables)

    @property
    def gap(self) -> float:
        """The share of the value by which the least one may be below it; 0 where it is the least."""
        return 0.0 if self.value <= self.bound else (self.value - self.bound) / self.value

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The figures of kept margins that are off; none unless a soft solution was asked for."""
        return tuple(violation for table in self.tables for violation in table.violations())

    @property
    def sentence(self) -> str:
        """The result in plain words."""
        cells = sum(int(np.count_nonzero(table.changed)) for table in self.tables)
        text = several(cells, "cell changes", "cells change")
        text += f", by {self.total:,} together and by {self.largest:,} at most"
        text += (
            "; that is the least possible" if self.status == "optimal" else f"; at most {self.gap:.1%} less is possible"
        )
        if self.violation:
            off = several(len(self.violations), "kept figure is", "kept figures are")
            least = self.violation <= self.violation_bound
            proved = "the least possible" if least else f"at least {self.violation_bound:,} is needed"
            text += f". {off} off, by {self.violation:,} together; {proved}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Totals, and the violations of margins where there are any."""
        return {
            "tolerance": self.tolerance,
            "objective": self.objective,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "total_change": self.total,
            "largest_change": self.largest,
            "violation": self.violation,
            "violation_bound": self.violation_bound,
            "violations": [violation.as_dict() for violation in self.violations],
            "tables": [table.as_dict(self.tolerance) for table in self.tables],
        }

    def __repr__(self) -> str:
        return f"<SafeTables, tolerance {self.tolerance}: {self.sentence}>"
