"""Figures of matplotlib as files for a paper: the same bytes every time, on every machine."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {
    "svg.hashsalt": "safeswap",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same shapes on every machine
    "text.usetex": False,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def svg_of(figure: Figure, *, text_as_paths: bool = True) -> str:
    """SVG without a date. Text as paths looks the same everywhere; text as text can be searched and copied."""
    from matplotlib import rc_context

    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({**STYLE, "svg.fonttype": "path" if text_as_paths else "none"}):
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


def png_of(figure: Figure, *, dpi: int = 200) -> bytes:
    """PNG without a word about what made it."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()
