"""Reports as documents for paper: a picture and a decision first, then sections of sentences and numbered tables.

A document is one self-contained HTML file without scripts, light on every screen, that prints on A4 or letter with its
tables whole. This module knows neither original nor audit record: what a page may tell is decided by who fills it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from typing import Any, ClassVar, Literal

from safeswap.charts.theme import LIGHT, shorten
from safeswap.reports import load_template, read_asset

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"

Tone = Literal["good", "bad", "open"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A numbered table. Numbers of columns in ``numeric`` are set to the right."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numeric: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A numbered figure: SVG that we have made ourselves, and what it shows in words."""

    kind: ClassVar[str] = "figure"
    caption: str
    svg: str
    text: str


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    kind: ClassVar[str] = "items"
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    note: bool = False


@dataclass(frozen=True)
class Blank:
    """Something that a program cannot know: a marked space for people to fill in."""

    kind: ClassVar[str] = "blank"
    question: str


@dataclass(frozen=True)
class Code:
    """Text to be copied verbatim."""

    kind: ClassVar[str] = "code"
    text: str


Block = Table | Picture | Items | Text | Blank | Code


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document; ``new_page`` begins it on a new sheet."""

    title: str
    blocks: tuple[Block, ...]
    new_page: bool = False


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The box at the head: the state in a few words, and the lines below it."""

    state: str
    tone: Tone
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report. ``stamp`` says who may read it; empty for a public one."""

    title: str
    about: str
    stamp: str = ""
    warning: str = ""
    decision: Decision | None = None
    pictures: tuple[Picture, ...] = ()
    sections: tuple[Section, ...]
    made: str = ""


def render(document: Document) -> bytes:
    """Return the document as HTML; every text is escaped."""
    made = document.made or f"Made with safeswap {version('safeswap')}."
    css = read_asset("paper.css")
    text: str = load_template("paper.html").render(document=document, policy=POLICY, css=css, made=made)
    return text.encode()


_WIDTH, _ROW, _NAMES, _NUMBERS = 720, 26, 320, 160
_STATUS = {
    "unchanged": ("#dfe7ee", "as collected"),
    "recoded": ("#a9d3c5", "grouped"),
    "blanked": ("#f3d08a", "some values removed"),
    "perturbed": ("#b9a6dd", "values changed"),
    "dropped": ("#ffffff", "not released"),
}
"""Colour and name of what became of a column; the colours differ in lightness too."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One line of the picture of risk: lengths as shares of the full width, and the text beside them."""

    name: str
    after: float
    text: str
    ok: bool | None = None


def bars_picture(bars: Sequence[Bar], *, caption: str) -> Picture:
    """Draw each figure as a bar, the original's at full length behind it."""
    lines, room = [], _WIDTH - _NAMES - _NUMBERS
    for number, bar in enumerate(bars):
        top, colour = number * _ROW, LIGHT.gain if bar.ok is False else LIGHT.accent
        length = room * min(1.0, max(0.0, bar.after))
        lines += [
            _label(_NAMES - 8, top + 17, shorten(bar.name, 42), anchor="end"),
            f'<rect x="{_NAMES}" y="{top + 4}" width="{room}" height="18" fill="{LIGHT.line}"/>',
            f'<rect x="{_NAMES}" y="{top + 7}" width="{length:.1f}" height="12" fill="{colour}"/>',
            _label(_NAMES + room + 8, top + 17, bar.text),
        ]
    told = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    return Picture(caption=caption, svg=_svg(len(bars) * _ROW + 2, lines), text=told)


def columns_picture(columns: Sequence[tuple[str, str]], *, caption: str) -> Picture:
    """Draw a tile per column, coloured by what became of it; columns are (name, status)."""
    across, wide, high = 6, _WIDTH // 6, 28
    lines = []
    for number, (name, status) in enumerate(columns):
        x, y = number % across * wide, number // across * high
        lines += [_tile(x, y, wide - 4, high - 4, status), _label(x + 7, y + 17, shorten(name, 17))]
    base = (len(columns) + across - 1) // across * high + 8
    present = [status for status in _STATUS if any(each == status for _, each in columns)]
    x = 0
    for status in present:
        lines += [_tile(x, base, 14, 14, status), _label(x + 21, base + 12, _STATUS[status][1])]
        x += 48 + 8 * len(_STATUS[status][1])
    grouped = {status: [name for name, each in columns if each == status] for status in present}
    told = "; ".join(f"{_STATUS[status][1]}: {', '.join(names)}" for status, names in grouped.items())
    return Picture(caption=caption, svg=_svg(base + 20, lines), text=told)


def _tile(x: int, y: int, width: int, height: int, status: str) -> str:
    dashes = ' stroke-dasharray="3 2"' if status == "dropped" else ""
    place = f'x="{x + 1}" y="{y + 1}" width="{width}" height="{height}" rx="3"'
    return f'<rect {place} fill="{_STATUS[status][0]}" stroke="{LIGHT.muted}" stroke-width=".6"{dashes}/>'


def _label(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: int, lines: Sequence[str]) -> str:
    style = f'font-family="system-ui, Liberation Sans, sans-serif" font-size="12.5" fill="{LIGHT.ink}"'
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" {style}>{"".join(lines)}</svg>'
