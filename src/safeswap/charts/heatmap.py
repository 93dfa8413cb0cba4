"""Heat maps of the distortion of 2-way tables: a triangle of coloured numbers."""

from __future__ import annotations

import html
from collections.abc import Sequence

from safeswap.charts.points import TABLE_MEASURES, StudyLike
from safeswap.charts.theme import LIGHT, shorten

Pairs = Sequence[tuple[str, str]]


def heatmap_html(pairs: Pairs, values: Sequence[float], *, caption: str = "") -> str:
    """Return an HTML table with coloured cells, without scripts; all names are escaped.

    >>> heatmap_html([("Sex", "Race")], [0.0123]).count("<td")
    2
    >>> "<script>" in heatmap_html([("<script>", "Race")], [0.0])
    False
    """
    names, at = _triangle(pairs, values)
    largest = max((abs(value) for value in values if value == value), default=0.0)  # noqa: PLR0124
    head = "".join(f'<th scope="col">{_escape(name)}</th>' for name in names[:-1])
    rows = "".join(
        f'<tr><th scope="row">{_escape(b)}</th>' + "".join(_cell(at.get((a, b)), largest) for a in names[:i]) + "</tr>"
        for i, b in enumerate(names)
        if i
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f'<table class="heat">{title}<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>'


def candidate_tables(study: StudyLike, candidate: int) -> dict[str, list[float]]:
    """Return the distortion of every 2-way table of one candidate by measure; empty lists if none were kept."""
    if study.two_way is None:
        return {name: [] for name in TABLE_MEASURES}
    return dict(zip(TABLE_MEASURES, study.two_way[candidate].T.astype(float).tolist(), strict=True))


def _triangle(pairs: Pairs, values: Sequence[float]) -> tuple[list[str], dict[tuple[str, str], float]]:
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    return names, {(a, b): float(value) for (a, b), value in zip(pairs, values, strict=False)}


def _cell(value: float | None, largest: float) -> str:
    if value is None or value != value:  # noqa: PLR0124
        return "<td></td>"
    share = abs(value) / largest if largest else 0.0
    colour = LIGHT.gain if value < 0 else LIGHT.loss
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    style = f"background:rgba({red},{green},{blue},{0.12 + 0.88 * share:.3f})" if share else "opacity:.55"
    return f'<td style="{style}{";color:#fff" if share > 0.5 else ""}">{short_number(value)}</td>'


def short_number(value: float) -> str:
    """Format with four decimals and no leading zero; a small non-zero number does not look like zero.

    >>> short_number(0.0123), short_number(-0.0123), short_number(0.0), short_number(1e-06)
    ('.0123', '−.0123', '0', '0+')
    """
    if value == 0:
        return "0"
    if abs(value) < 5e-5:
        return "−0+" if value < 0 else "0+"
    return f"{value:.4f}".replace("-", "−").replace("0.", ".", 1)


def _escape(name: str) -> str:
    return f"<bdi>{html.escape(shorten(name, 40))}</bdi>"
