"""What a programme of tables would give away: cells below tolerance, and those that published figures give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.kernels.types import Counts
from safeswap.model.table import CountTable, long_table

Way = Literal["interval propagation", "integer programming"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedTable:
    """One table and bounds of its withheld cells that follow from what is published: ``lower`` and ``upper``."""

    table: CountTable
    tolerance: int
    lower: Counts
    upper: Counts

    @property
    def small(self) -> int:
        """How many cells are above 0 and below the tolerance."""
        return int(np.count_nonzero(self.table.small(self.tolerance)))

    @property
    def derived(self) -> int:
        """How many of them follow exactly from what is published."""
        return int(np.count_nonzero(self.table.small(self.tolerance) & (self.lower == self.upper)))

    def long(self) -> pa.Table:
        """The small cells in rows, each with the bounds that follow from the published figures. For inside."""
        figures = {"count": self.table.counts, "at_least": self.lower, "at_most": self.upper}
        rows = long_table(self.table, {**figures, "derived": self.lower == self.upper})
        return rows.filter(pa.array(self.table.small(self.tolerance).ravel()))

    def as_dict(self) -> dict[str, Any]:
        """Totals only."""
        return {
            "variables": list(self.table.names),
            "cells": int(self.table.counts.size),
            "occupied": int(np.count_nonzero(self.table.counts)),
            "small": self.small,
            "derived": self.derived,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class TableCheck:
    """A programme of tables, checked.

    ``way`` says how bounds were found: by "interval propagation", one published sum at a time, or by "integer
    programming", all of them together. Bounds always hold. Where ``is_exact``, both ends of each are the count of some
    table with the published figures; where not, more cells than ``derived`` may follow from them.
    """

    tables: tuple[CheckedTable, ...]
    tolerance: int
    way: Way
    is_exact: bool

    @property
    def small(self) -> int:
        """How many cells of all tables are above 0 and below the tolerance."""
        return sum(table.small for table in self.tables)

    @property
    def derived(self) -> int:
        """How many of these would be known exactly if they alone were withheld."""
        return sum(table.derived for table in self.tables)

    @property
    def is_safe(self) -> bool:
        """Whether the tables can be published as they are."""
        return not self.small

    @property
    def sentence(self) -> str:
        """The finding in plain words."""
        tables = f"{len(self.tables):,} tables" if len(self.tables) > 1 else "the table"
        if self.is_safe:
            return f"no cell of {tables} is above 0 and below {self.tolerance:,}"
        withheld = f" above 0 and below {self.tolerance:,}; were"
        if self.small == 1:
            back = "give" if self.derived else "not give" if self.is_exact else "perhaps give"
            given = f"one cell of {tables} is{withheld} it withheld, the published figures would {back} it back"
        else:
            number = f"{'' if self.is_exact else 'at least '}{self.derived:,}"
            given = f"{self.small:,} cells of {tables} are{withheld} they withheld, the published figures would give "
            given += f"{number} of them back"
        return f"{given} (found by {self.way})"

    def as_dict(self) -> dict[str, Any]:
        """Totals only."""
        return {
            "tolerance": self.tolerance,
            "is_safe": self.is_safe,
            "small": self.small,
            "derived": self.derived,
            "way": self.way,
            "is_exact": self.is_exact,
            "tables": [table.as_dict() for table in self.tables],
        }

    def __repr__(self) -> str:
        return f"<TableCheck, tolerance {self.tolerance}: {self.sentence}>"
