"""Report sections on safe tables: each before and after, with changed cells marked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.names import Names
from safeswap.charts.theme import css_variables
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.methods.safe.spec import ChangedTable, SafeSpec, SafeTables
from safeswap.model.table import CountTable, tabulate
from safeswap.model.text import list_names, plural
from safeswap.reports import load_template
from safeswap.reports.study import SCRIPTLESS

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.score import Score


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a report: sentences and a table, with optional bars and marked rows or cells."""

    title: str
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    numeric: tuple[int, ...] = ()
    bars: tuple[float, ...] = ()
    marked: tuple[int, ...] = ()
    marked_cells: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class InternalReport:
    """The contents of an internal report, on a masking or on safe tables."""

    title: str
    method: str
    plan: str
    spec: str
    date: str = ""
    facts: Sequence[tuple[str, Any]]
    kept: Sequence[str]
    scores: Sequence[Score] = ()
    left_out: Sequence[str] = ()
    sections: tuple[Section, ...]
    for_release: bool = True

    def write(self, path: str | os.PathLike[str], *, force: bool) -> Path:
        """Write the report atomically, readable by its owner only."""
        text = load_template("masking_report.html").render(
            **vars(self), colours=css_variables(), policy=SCRIPTLESS, product_version=version_of("safeswap")
        )
        with atomic_write(path, force=force, mode=PRIVATE_FILE) as part:
            part.write_text(text, encoding="utf-8")
        return Path(path)


OWN_FACTS = ("tables",)
"""Facts of the audit with sections of their own."""

_MOST_CELLS = 2_000_000
_MOST_COLUMNS = 24
_MOST_ROWS = 60
_FIGURES = ("occupied_before", "occupied_after", "small_before", "small_after", "changed_cells", "total_change")


def safe_sections(masked: Masked) -> tuple[Section, ...]:
    """Return each table before and after, if records were changed to make tables safe."""
    if not isinstance(masked.spec, SafeSpec):
        return ()
    return (_overview(masked), _margin_changes(masked), *(_table(masked, names) for names in masked.spec.tables))


def write_safe_report(result: SafeTables, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write an internal page on the tables before and after, atomically."""
    kept = [f"The counts by {_join_names(names)} are exactly as before." for t in result.tables for names in t.keep]
    report = InternalReport(
        title="Tables made safe",
        method="SAFE: tables changed so that no cell is small",
        plan=result.sentence + ".",
        spec=f"tolerance {result.tolerance}, smallest {result.objective} change, {result.status}",
        facts=_result_facts(result),
        kept=list(dict.fromkeys(kept)) if not result.violation else [],
        sections=(*_violations(result), *(grid(table, result.tolerance) for table in result.tables)),
    )
    return report.write(path, force=force)


def grid(changed: ChangedTable, tolerance: int) -> Section:
    """Lay the table out with its last variable across; a changed cell shows both counts and is marked."""
    before, after = changed.before, changed.after
    names = before.names
    title = f"The table by {_join_names(names)}"
    if len(before.levels[-1]) > _MOST_COLUMNS:
        return _list_changes(changed, title)
    width = before.counts.shape[-1]
    one, other = before.counts.reshape(-1, width), after.counts.reshape(-1, width)
    occupied = (one + other).any(axis=1)
    differ = (one != other).any(axis=1)
    lines = np.flatnonzero(occupied if np.count_nonzero(occupied) <= _MOST_ROWS else differ)
    shown = lines[:_MOST_ROWS]
    places = np.unravel_index(shown, before.counts.shape[:-1]) if len(names) > 1 else ()
    heads = [[before.levels[axis][i] for i in place] for axis, place in enumerate(places)]
    rows = [
        (*(head[i] for head in heads), *(_cell(int(a), int(b)) for a, b in zip(one[line], other[line], strict=True)))
        for i, line in enumerate(shown)
    ]
    marked = [
        (i, len(heads) + int(c)) for i, line in enumerate(shown) for c in np.flatnonzero(one[line] != other[line])
    ]
    left = f"{len(lines):,} lines have changes; the first {len(shown)} are shown." if len(lines) > len(shown) else ""
    only = "Only lines in which a cell changed are shown." if len(lines) < np.count_nonzero(occupied) else ""
    text = f"Marked cells changed: the count before, then after. Every count after is 0 or at least {tolerance}."
    return Section(
        title=title,
        text=tuple(filter(None, (text, only, left))),
        columns=(*names[:-1], *(f"{names[-1]} {level}" for level in before.levels[-1])),
        rows=tuple(rows),
        numeric=tuple(range(len(heads), len(heads) + width)),
        marked_cells=tuple(marked),
    )


def _list_changes(changed: ChangedTable, title: str) -> Section:
    """List the changed cells of a table that is too wide to print, one per row."""
    places = np.argwhere(changed.changed)
    rows = [
        (
            *(changed.before.levels[axis][i] for axis, i in enumerate(place)),
            f"{changed.before.counts[tuple(place)]:,}",
            f"{changed.after.counts[tuple(place)]:,}",
        )
        for place in places[:_MOST_ROWS]
    ]
    ways = changed.before.ways
    more = f"{len(places):,} cells changed; the first {len(rows)} are listed." if len(places) > len(rows) else ""
    return Section(
        title=title,
        text=tuple(filter(None, ("The cells that changed.", more))),
        columns=(*changed.before.names, "before", "after"),
        rows=tuple(rows),
        numeric=(ways, ways + 1),
        marked_cells=tuple((i, ways + 1) for i in range(len(rows))),
    )


def _overview(masked: Masked) -> Section:
    tables = masked.audit.facts.get("tables", [])
    return Section(
        title="The tables before and after",
        columns=("table", *(name.replace("_", " ") for name in _FIGURES)),
        rows=tuple((_join_names(each["attributes"]), *(f"{each[name]:,}" for name in _FIGURES)) for each in tables),
        numeric=tuple(range(1, len(_FIGURES) + 1)),
    )


def _margin_changes(masked: Masked) -> Section:
    """Say which univariate margins changed: SAFE is not a swap."""
    facts: dict[str, Any] = dict(masked.audit.facts)
    names = facts.get("univariate_margins_moved", [])
    changed = facts.get("values_changed_by_attribute", {})
    text = (
        f"The counts by each of {list_names(names)} changed: unlike a swap, SAFE keeps only the stated margins."
        if names
        else "The counts by every single attribute are as before."
    )
    return Section(
        title="Univariate margins",
        text=(text,),
        columns=("attribute", "values changed", "its own counts"),
        rows=tuple((n, f"{k:,}", "changed" if n in names else "as before") for n, k in changed.items()),
        numeric=(1,),
    )


def _table(masked: Masked, names: Names) -> Section:
    sizes = [masked.original.coded(name).cardinality for name in names]
    if prod(sizes) > _MOST_CELLS:
        return Section(
            title=f"The table by {_join_names(names)}",
            text=(f"It has {plural(prod(sizes), 'cell')} and is not shown.",),
        )
    before, after = tabulate(masked.original, names), tabulate(masked.data, names)
    changed = ChangedTable(before=before, after=_align(after, before), keep=())
    return grid(changed, int(masked.spec.tolerance))  # type: ignore[attr-defined]


def _align(after: CountTable, before: CountTable) -> CountTable:
    """Return a table with the levels of another: a level that lost its last record may be missing."""
    counts = np.zeros_like(before.counts)
    counts[np.ix_(*([b.index(level) for level in a] for a, b in zip(after.levels, before.levels, strict=True)))] = (
        after.counts
    )
    return before.with_counts(counts)


def _violations(result: SafeTables) -> tuple[Section, ...]:
    if not result.violation:
        return ()
    rows = []
    for table in result.tables:
        for found in table.violations():
            at = (
                f"{name} {table.before.levels[table.before.names.index(name)][level]}"
                for name, level in zip(found.margin, found.at, strict=True)
            )
            rows.append((_join_names(found.margin) or "total", ", ".join(at), f"{found.before:,}", f"{found.after:,}"))
    return (
        Section(
            title="Kept figures that are off",
            text=(f"No safe table is off by fewer than {plural(result.violation_bound, 'unit')} together.",),
            columns=("margin", "figure", "before", "after"),
            rows=tuple(rows[:_MOST_ROWS]),
            numeric=(2, 3),
            marked_cells=tuple((i, 3) for i in range(min(len(rows), _MOST_ROWS))),
        ),
    )


def _result_facts(result: SafeTables) -> list[tuple[str, str]]:
    facts = {
        "total change": f"{result.total:,}",
        "largest change": f"{result.largest:,}",
        "objective": f"{result.value:g}",
        "lower bound of the objective": f"{result.bound:g}",
        "units by which margins are off": f"{result.violation:,}",
    }
    return list(facts.items())


def _cell(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"


def _join_names(names: Any) -> str:
    return " × ".join(names)
