"""What may be said about a file without showing a record: the value that ``describe`` gives."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from safeswap.errors import SpecError
from safeswap.model.checked import checked
from safeswap.model.schema import Kind
from safeswap.model.several import several

_LONGEST_TEXT = 40
_LEVELS_IN_A_LINE = 8


@dataclass(frozen=True, kw_only=True)
class LevelCount:
    """A level that at least a tolerable number of records have; no count where it would give a smaller one away."""

    level: str
    count: int | None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class AttributeSummary:
    """One attribute: what it is, how many different values it has, and the frequent ones if it is categorical.

    ``levels`` holds no level with fewer records than the tolerance: those are counted in ``levels_below``. Where there
    are any, another level is named without its count, so that theirs do not come back by subtraction.
    ``missing`` counts empty values, ``missing_codes`` the records that bear a code declared as missing.
    """

    name: str
    kind: Kind
    inferred: bool
    distinct: int
    missing: int
    label: str = ""
    letter: str = ""
    missing_codes: int = 0
    levels: tuple[LevelCount, ...] = ()
    levels_below: int = 0

    def as_dict(self, tolerance: int) -> dict[str, Any]:
        """Plain values; small counts are given as "<Q"."""
        frequent = [{"level": x.level, "label": x.label, "count": x.count} for x in self.levels]
        return {
            "name": self.name,
            "label": self.label,
            "letter": self.letter,
            "kind": self.kind.value,
            "inferred": self.inferred,
            "distinct": self.distinct,
            "missing": self.missing,
            "missing_codes": self.missing_codes,
            "levels": frequent if self.kind.is_categorical else None,
            "levels_below_tolerance": {"number": self.levels_below, "count": f"<{tolerance}"},
        }


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """The cells that the categorical attributes form: possible, occupied, and small ones by their count."""

    attributes: tuple[str, ...]
    possible: int
    occupied: int
    small: tuple[int, ...]  # how many cells have 1, 2, … tolerance-1 records; empty if the cells are levels

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attributes": list(self.attributes),
            "possible": self.possible,
            "occupied": self.occupied,
            "small": {str(count): number for count, number in enumerate(self.small, start=1)},
        }

    @property
    def sentence(self) -> str:
        """The cells in plain words."""
        if not self.attributes:
            return "No attribute is categorical, so there are no cells."
        small = ", ".join(
            f"{number:,} hold{'s' if number == 1 else ''} {count:,} record{'s' if count > 1 else ''}"
            for count, number in enumerate(self.small, start=1)
        )
        return (
            f"{several(len(self.attributes), 'categorical attribute forms', 'categorical attributes form')} "
            f"{several(self.possible, 'cell')}; {self.occupied:,} {'is' if self.occupied == 1 else 'are'} occupied"
            f"{f', of which {small}' if small else ''}."
        )


@dataclass(frozen=True, kw_only=True)
class Description:
    """A file described by its attributes, levels and small cells, and by what gives reason to look twice.

    Made for people inside the building: counts at or above the tolerance are exact.
    """

    name: str
    records: int
    tolerance: int
    attributes: tuple[AttributeSummary, ...]
    cells: CellSummary
    warnings: tuple[str, ...]

    @checked
    def __getitem__(self, name: str) -> AttributeSummary:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SpecError(
            f"there is no attribute {name!r}",
            code="unknown-attribute",
            hint="the attributes are: " + ", ".join(shown(a.name) for a in self.attributes[:20]),
            attribute=name,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {
            "name": self.name,
            "records": self.records,
            "tolerance": self.tolerance,
            "attributes": [a.as_dict(self.tolerance) for a in self.attributes],
            "cells": self.cells.as_dict(),
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """One row per attribute: name, kind, number of levels, missing, levels. Safe to print on a terminal."""
        return [
            (
                shown(a.name) + (f" ({shown(a.letter)})" if a.letter else ""),
                a.kind.value + (" ?" if a.inferred else ""),
                f"{a.distinct:,}",
                f"{a.missing + a.missing_codes:,}",
                self._levels(a),
            )
            for a in self.attributes
        ]

    def _levels(self, attribute: AttributeSummary) -> str:
        frequent = [
            f"{shown(x.level)} {'hidden' if x.count is None else f'{x.count:,}'}"
            for x in attribute.levels[:_LEVELS_IN_A_LINE]
        ]
        if more := len(attribute.levels) - len(frequent):
            frequent.append(f"and {more:,} more")
        if attribute.levels_below:
            plural = "s" if attribute.levels_below > 1 else ""
            frequent.append(f"{attribute.levels_below:,} level{plural} <{self.tolerance}")
        return ", ".join(frequent)

    def __repr__(self) -> str:
        header = ("attribute", "kind", "levels", "missing", "records per level")
        rows = [header, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *map(str.rjust, row[2:4], widths[2:]), row[4]])
            for row in rows
        ]
        size = f"{several(self.records, 'record')}, {several(len(self.attributes), 'attribute')}"
        title = f"{shown(self.name) or 'data'}: {size}"
        return "\n".join([title, *map(str.rstrip, lines), self.cells.sentence, *(f"! {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in ("attribute", "kind", "levels", "missing", "records per level"))
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        warnings = "".join(f"<li>{escape(w)}</li>" for w in self.warnings)
        title = f"{escape(shown(self.name)) or 'data'}: {several(self.records, 'record')}"
        return (
            f"<p><b>{title}</b></p><table><tr>{head}</tr>{body}</table>"
            f"<p>{escape(self.cells.sentence)}</p><ul>{warnings}</ul>"
        )


def shown(text: str) -> str:
    """A text as it can be printed: control characters spelled out, long ones cut.

    >>> shown("a\\x1b[31m"), len(shown("x" * 100))
    ('a\\\\x1b[31m', 40)
    """
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return plain if len(plain) <= _LONGEST_TEXT else plain[: _LONGEST_TEXT - 1] + "…"
