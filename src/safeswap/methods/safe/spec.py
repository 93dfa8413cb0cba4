"""Specification, results and promises of SAFE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts
from safeswap.model.evidence import Evidence, bit_codes
from safeswap.model.invariant import AttributesPromise
from safeswap.model.score import proved_bound
from safeswap.model.spec import CATEGORIES, MaskSpec, takes
from safeswap.model.table import CountTable, long_table
from safeswap.model.text import list_names, plural


class SafeSpec(MaskSpec):
    """Change few records so that in all of these tables every cell is 0 or at least the tolerance.

    >>> spec = SafeSpec(tables=[["Region", "Sex"], ["Region", "Age"]], tolerance=5, keep=[["Region"]])
    >>> spec.variables, spec.tolerance
    (('Region', 'Sex', 'Age'), 5)
    """

    method: ClassVar[str] = "safe"

    tables: Annotated[
        tuple[Names, ...],
        Field(
            description="tables to publish, each by its attributes; none: do nothing",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ]
    tolerance: Annotated[int, Field(ge=2, description="smallest count above 0 that may be published")] = 3
    keep: Annotated[
        tuple[Names, ...],
        Field(description="margins kept exactly, each by its attributes", json_schema_extra=takes(*CATEGORIES)),
    ] = ()
    search: Annotated[
        Literal["thorough", "quick"],
        Field(description="thorough: for small files, also prove the fewest records by an integer programme"),
    ] = "thorough"
    time_limit: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            allow_inf_nan=False,
            description="seconds after which the search stops with the safe records it has, or gives up",
        ),
    ] = 600.0

    @model_validator(mode="after")
    def _is_consistent(self) -> SafeSpec:
        for names in (*self.tables, *self.keep):
            if not names or len(set(names)) != len(names):
                raise ValueError("a table or margin is named by its attributes, each once")
        for what, given in (("table", self.tables), ("margin", self.keep)):
            if len({frozenset(names) for names in given}) != len(given):
                raise ValueError(f"a {what} is named twice")
        return self

    @property
    def variables(self) -> Names:
        """The attributes of all tables, each once: those that may change."""
        return tuple(dict.fromkeys(name for names in self.tables for name in names))

    @property
    def context(self) -> Names:
        """Attributes of kept margins that are in no table: they never change, but restrict what may."""
        return tuple(dict.fromkeys(n for names in self.keep for n in names if n not in self.variables))


Objective = Literal["total", "largest", "weighted"]
Status = Literal["optimal", "gap", "heuristic"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A changed figure of a kept margin: the margin, the position in it, and both figures."""

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
        """The change of each cell."""
        difference: Counts = self.after.counts - self.before.counts
        return difference

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """The cells that changed."""
        flags: npt.NDArray[np.bool_] = self.moves != 0
        return flags

    @property
    def total(self) -> int:
        """The sum of all absolute changes."""
        return int(np.abs(self.moves).sum())

    @property
    def largest(self) -> int:
        """The largest change of a cell."""
        return int(np.abs(self.moves).max(initial=0))

    def violations(self) -> tuple[Violation, ...]:
        """Return the figures of the kept margins that moved."""
        found = []
        for names in self.keep:
            one, other = self.before.margin(names), self.after.margin(names)
            for place in np.argwhere(one != other):
                at = tuple(int(level) for level in place)
                found.append(Violation(margin=names, at=at, before=int(one[at]), after=int(other[at])))
        return tuple(found)

    def long(self) -> pa.Table:
        """Return the cells as rows, with the counts before and after."""
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
    """The result of making tables safe.

    ``value`` is what was minimised, by ``objective``; no safe table has less than ``bound``. ``status`` is "optimal" if
    the two are equal, "gap" if time ran out before that was proved, "heuristic" if no proof was tried. In soft
    solutions ``violation`` units of the margins are off, and no safe table has fewer than ``violation_bound``.
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
        """The safe table; the first of several."""
        return self.tables[0].after

    @property
    def counts(self) -> Counts:
        """The counts of the safe table; of the first of several."""
        return self.after.counts

    @property
    def total(self) -> int:
        """The sum of all absolute changes."""
        return sum(table.total for table in self.tables)

    @property
    def largest(self) -> int:
        """The largest change of a cell."""
        return max(table.largest for table in self.tables)

    @property
    def gap(self) -> float:
        """The share of the value that a better table could save at most; 0 if proved optimal."""
        return 0.0 if self.value <= self.bound else (self.value - self.bound) / self.value

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The figures of kept margins that are off; none unless a soft solution was requested."""
        return tuple(violation for table in self.tables for violation in table.violations())

    @property
    def sentence(self) -> str:
        """The result in words."""
        cells = sum(int(np.count_nonzero(table.changed)) for table in self.tables)
        text = plural(cells, "cell changes", "cells change")
        text += f", by {self.total:,} together and by {self.largest:,} at most"
        text += (
            "; that is the least possible" if self.status == "optimal" else f"; at most {self.gap:.1%} less is possible"
        )
        if self.violation:
            off = plural(len(self.violations), "kept figure is", "kept figures are")
            least = self.violation <= self.violation_bound
            proved = "the least possible" if least else f"at least {self.violation_bound:,} is needed"
            text += f". {off} off, by {self.violation:,} together; {proved}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return totals, and any violations of margins."""
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


@dataclass(frozen=True)
class SafeCells(AttributesPromise):
    """In the masked file no combination of these attributes has fewer records than the tolerance.

    Recounted from the columns of the file, without the code that changed it. Values are compared bit for bit. Cells of
    a table of fewer attributes are sums of safe ones.
    """

    is_about_result: ClassVar[bool] = True

    tolerance: int

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return f"Every cell of the table by {list_names(self.attributes)} is 0 or at least {self.tolerance:,}."

    def problem(self, evidence: Evidence) -> str:
        """Count the small cells."""
        columns = {f"k{i}": bit_codes(evidence.after.table.column(name)) for i, name in enumerate(self.attributes)}
        counted = pa.table(columns).group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
        small = pc.sum(pc.less(counted["count_all"], self.tolerance)).as_py() or 0
        names = list_names(self.attributes)
        too_small = plural(small, f"cell by {names} has", f"cells by {names} have")
        return f"{too_small} fewer than {self.tolerance:,} records" if small else ""
