"""A part of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report: sentences and a table, with bars, and lines or cells marked, where that helps."""

    title: str
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    numeric: tuple[int, ...] = ()
    bars: tuple[float, ...] = ()
    marked: tuple[int, ...] = ()
    marked_cells: tuple[tuple[int, int], ...] = ()
