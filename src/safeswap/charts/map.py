"""The risk-utility map as a self-contained page or as a picture: distortion across, risk up, a point per specification.

The page is a single file with Plotly inside. It works offline, follows the reader's light or dark setting, and makes no
request: its content policy forbids every one. Pictures are byte-identical on every run.

A heat map of the distortion of 2-way tables is a triangle of coloured numbers.
"""

from __future__ import annotations

import gzip
import html
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from safeswap.charts.points import (
    NOTEBOOK,
    PAGE,
    TABLE_MEASURES,
    Chosen,
    Points,
    StudyLike,
    map_payload,
    points_of,
    study_note,
)
from safeswap.charts.scripts import chart_asset, chart_fragment, chart_page
from safeswap.charts.theme import LIGHT, STYLE, png_of, shorten, svg_of
from safeswap.model.text import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 150
_NARROW, _WIDE, _LINE = 5.6, 8.2, 9.0  # widths of characters and height of a line of 8-point text, in points

Across = Literal["left", "center", "right"]
Along = Literal["bottom", "center", "top"]

Position = tuple[Across, Along]

# Below and left of the frontier there is nothing, so important labels go there; the others go the opposite way.
_BELOW: tuple[Position, ...] = (
    ("right", "top"),
    ("right", "center"),
    ("center", "top"),
    ("left", "top"),
    ("left", "bottom"),
    ("left", "center"),
    ("center", "bottom"),
    ("right", "bottom"),
)
_ABOVE: tuple[Position, ...] = (
    ("left", "bottom"),
    ("left", "center"),
    ("center", "bottom"),
    ("left", "top"),
    ("right", "bottom"),
    ("center", "top"),
    ("right", "center"),
    ("right", "top"),
)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A labelled point, with coordinates in 1/72 inch."""

    x: float
    y: float
    text: str
    important: bool = False
    ringed: bool = False


@dataclass(frozen=True, kw_only=True)
class Spot:
    """The position of a label: its alignment, and its offset from the mark."""

    across: Across
    along: Along
    offset: tuple[float, float]
    box: tuple[float, float, float, float]


def place_labels(marks: Sequence[Mark], *, within: tuple[float, float, float, float]) -> list[Spot | None]:
    """Return a spot for each mark in turn, None if no spot is free.

    A label stays inside and covers no other label. It covers no mark either, except that an important label may cover
    unimportant marks if there is no better spot.

    >>> here = [Mark(x=50, y=50, text="AB"), Mark(x=50, y=50, text="CD"), Mark(x=500, y=50, text="out")]
    >>> [spot and (spot.across, spot.along) for spot in place_labels(here, within=(0, 0, 100, 100))]
    [('left', 'bottom'), ('left', 'top'), None]
    """
    spots: list[Spot | None] = []
    for mark in marks:
        taken = [spot.box for spot in spots if spot is not None]
        spots.append(_free_spot(mark, marks, taken, within) if len(taken) < MOST_LABELS else None)
    return spots


def _free_spot(
    mark: Mark, marks: Sequence[Mark], taken: list[tuple[float, float, float, float]], within: tuple[float, ...]
) -> Spot | None:
    second = None
    for across, along in _BELOW if mark.important else _ABOVE:
        spot = _place_label(mark, across, along)
        left, low, right, high = spot.box
        if left < within[0] or low < within[1] or right > within[2] or high > within[3]:
            continue
        if any(a < right and left < c and b < high and low < d for a, b, c, d in taken):
            continue
        covered = [
            m
            for m in marks
            if (m.x, m.y) != (mark.x, mark.y) and left - 2 < m.x < right + 2 and low - 2 < m.y < high + 2
        ]
        if not covered:
            return spot
        if not any(m.important for m in covered):
            second = second or spot
    return second if mark.important else None


def _place_label(mark: Mark, across: Across, along: Along) -> Spot:
    gap = (9.0 if mark.ringed else 5.0 if mark.important else 3.5) * (0.8 if "center" not in (across, along) else 1.0)
    width = sum(_WIDE if sign in "MWmw…@%" else _NARROW for sign in mark.text) * (1.12 if mark.important else 1.0)
    dx = {"left": gap, "center": 0.0, "right": -gap}[across]
    dy = {"bottom": gap, "center": 0.0, "top": -gap}[along]
    left = mark.x + dx - {"left": 0.0, "center": width / 2, "right": width}[across]
    low = mark.y + dy - {"bottom": 0.0, "center": _LINE / 2, "top": _LINE}[along]
    return Spot(across=across, along=along, offset=(dx, dy), box=(left, low, left + width, low + _LINE))


ORIGINAL = "original"
"""The name of the untouched file on the map."""

MOST_DOTS = 20_000
CUT_ABOVE = 0.4  # an axis is cut if its lowest point is above this share of its highest; as in plot.js
_MARKERS = ("o", "^", "D", "p", "*", "h", "P", "X")


def map_figure(
    study: StudyLike | Points,
    *,
    choice: Chosen | None = None,
    risk: str | None = None,
    distortion: str | None = None,
    by_rate: bool = False,
    size: tuple[float, float] | None = None,
    halo: bool = True,
) -> Figure:
    """Draw the map as a matplotlib figure; with ``by_rate``, each rate has its own panel.

    ``halo`` sets labels off from the background; in SVG such labels are shapes, not text.

    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.studies.run import run_study
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex")), key=Key.insecure(seed=1))
    >>> [axes.get_xlabel() for axes in map_figure(study).axes]
    ['Distortion: Hellinger distance']
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Empty

    points = study if isinstance(study, Points) else points_of(study, risk=risk, distortion=distortion, choice=choice)
    rates: list[float | None] = [*points.distinct_rates()] if by_rate else [None]
    with rc_context(STYLE):
        figure = Empty(figsize=size or (8.0 if not by_rate else 5.2 * len(rates), 5.6), layout="constrained")
        panels = figure.subplots(1, max(1, len(rates)), squeeze=False)[0]
        for axes, rate in zip(panels, rates or [None], strict=True):
            _draw(axes, points, rate)
        figure.canvas.draw()  # fixes the layout, on which the placement of labels depends
        for axes, rate in zip(panels, rates or [None], strict=True):
            _label(axes, points, rate, halo=halo)
    return figure


def map_svg(study: StudyLike | Points, *, text_as_paths: bool = True, **options: Any) -> str:
    """Draw the map as SVG. Paths look the same everywhere; text can be searched. See :func:`map_figure`."""
    return svg_of(map_figure(study, halo=text_as_paths, **options), text_as_paths=text_as_paths)


def map_png(study: StudyLike | Points, *, dpi: int = 200, **options: Any) -> bytes:
    """Draw the map as PNG. See :func:`map_figure` for the options."""
    return png_of(map_figure(study, **options), dpi=dpi)


def _rows(points: Points, rate: float | None) -> Any:
    if rate is None or points.rates is None:
        return np.arange(len(points))
    return np.flatnonzero(np.isclose(points.rates, rate))


def _draw(axes: Axes, points: Points, rate: float | None) -> None:
    rows = _rows(points, rate)
    colours = _colours(points)
    if points.cloud is not None:
        dots = np.flatnonzero(np.isin(points.cloud.point, rows))[:: max(1, len(points.cloud.point) // MOST_DOTS)]
        axes.scatter(
            points.cloud.distortion[dots],
            points.cloud.risk[dots],
            c=colours[points.cloud.point[dots]].tolist(),
            s=5,
            alpha=min(0.35, 12 / len(dots) ** 0.5) if len(dots) else 1.0,
            linewidths=0,
            zorder=1,
            rasterized=len(dots) > 2_000,
        )
    for each in points.distinct_rates() if rate is None else [rate]:
        own = points.frontier(each)
        if len(own):
            axes.plot(points.distortion[own], points.risk[own], color=colours[own[0]], linewidth=1.0, zorder=2)
    best = points.frontier(rate)
    axes.plot(points.distortion[best], points.risk[best], color=LIGHT.ink, linewidth=2.0, zorder=3)
    _draw_points(axes, points, np.setdiff1d(rows, best), colours, {"s": 24, "linewidths": 0, "alpha": 0.9, "zorder": 4})
    _draw_points(axes, points, best, colours, {"s": 52, "edgecolors": LIGHT.ink, "linewidths": 1.1, "zorder": 5})
    if points.original is not None:
        risk, distortion = points.original
        axes.scatter(distortion, risk, s=110, marker="+", c=LIGHT.ink, linewidths=1.8, zorder=5)
    if points.chosen is not None and points.chosen in rows:
        where = points.distortion[points.chosen], points.risk[points.chosen]
        axes.scatter(*where, s=230, marker="o", facecolors="none", edgecolors=LIGHT.gain, linewidths=2.2, zorder=6)
    _decorate(axes, points, rate)


def _draw_points(axes: Axes, points: Points, rows: Any, colours: Any, style: dict[str, Any]) -> None:
    kinds = list(dict.fromkeys(points.constraints))
    for i, kind in enumerate(kinds):
        own = [row for row in rows if points.constraints[row] == kind]
        axes.scatter(
            points.distortion[own],
            points.risk[own],
            c=colours[own].tolist(),
            marker=_MARKERS[i % len(_MARKERS)],
            **style,
        )


def _decorate(axes: Axes, points: Points, rate: float | None) -> None:
    from matplotlib.lines import Line2D

    axes.set_xlabel(f"Distortion: {points.distortion_title}")
    axes.set_ylabel(f"Risk: {points.risk_title}")
    axes.grid(visible=True, color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(0.06)
    _set_ranges(axes, points)
    if not len(points):
        axes.text(0.5, 0.5, "No candidate could be made", ha="center", color=LIGHT.muted, transform=axes.transAxes)
        return
    if rate is not None:
        axes.set_title(f"rate {rate:g}", fontsize=11)
        return
    rates = points.distinct_rates()
    keys = [_key("o", colour, f"rate {r:g}") for r, colour in zip(rates, LIGHT.rate_colours(len(rates)), strict=True)]
    kinds = list(dict.fromkeys(points.constraints))
    if len(kinds) > 1:
        keys += [
            _key(_MARKERS[i % 8], LIGHT.muted, shorten(kind or "no constraint", 40)) for i, kind in enumerate(kinds)
        ]
    keys.append(Line2D([], [], color=LIGHT.ink, linewidth=2, marker="o", markerfacecolor="white", label="frontier"))
    if points.chosen is not None:
        keys.append(_key("o", "none", "chosen", edge=LIGHT.gain))
    if points.original is not None:
        keys.append(_key("+", "none", ORIGINAL, edge=LIGHT.ink))
    # Above the axes, clear of all points.
    axes.legend(
        handles=keys,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=6,
        frameon=False,
        fontsize=9,
        handletextpad=0.3,
        columnspacing=1.4,
    )


def _set_ranges(axes: Axes, points: Points) -> None:
    """Start both axes at 0, or show a break where the points lie too far above it to be distinguished."""
    found: dict[str, list[float]] = {"x": points.distortion.tolist(), "y": points.risk.tolist()}
    if points.cloud is not None:
        found = {"x": found["x"] + points.cloud.distortion.tolist(), "y": found["y"] + points.cloud.risk.tolist()}
    if points.original is not None:
        found = {"x": [*found["x"], points.original[1]], "y": [*found["y"], points.original[0]]}
    for name, set_low in (("x", axes.set_xlim), ("y", axes.set_ylim)):
        if not found[name]:
            continue
        low, high = min(found[name]), max(found[name])
        if low > CUT_ABOVE * high:
            _draw_break(axes, name)
        elif low >= 0:
            set_low(-0.03 * (high or 1))


def _draw_break(axes: Axes, axis: str) -> None:
    """Draw two strokes across an axis that does not start at 0."""
    for place in (0.022, 0.036):
        ends = ([-0.01, 0.01], [place - 0.006, place + 0.006])
        across, up = ends if axis == "y" else ends[::-1]
        axes.plot(across, up, color=LIGHT.ink, linewidth=1.4, transform=axes.transAxes, clip_on=False, gid="axis-break")


def _key(marker: str, colour: str, label: str, *, edge: str = "none") -> Any:
    from matplotlib.lines import Line2D

    size = 11 if edge != "none" else 6
    return Line2D(
        [], [], linestyle="none", marker=marker, markerfacecolor=colour, markeredgecolor=edge, markeredgewidth=2,
        markersize=size, label=label,
    )  # fmt: skip


def _colours(points: Points) -> Any:
    """Return a colour per point, by its rate."""
    rates = points.distinct_rates()
    if points.rates is None:
        return np.full(len(points), LIGHT.accent, dtype=object)
    colours = np.full(len(points), LIGHT.other, dtype=object)
    for rate, colour in zip(rates, LIGHT.rate_colours(len(rates)), strict=True):
        colours[np.isclose(points.rates, rate)] = colour
    return colours


def _label(axes: Axes, points: Points, rate: float | None, *, halo: bool) -> None:
    from matplotlib.patheffects import withStroke

    rows = _rows(points, rate)
    best = [int(i) for i in points.frontier(rate)]
    chosen = [points.chosen] if points.chosen is not None and points.chosen in rows else []
    order = list(dict.fromkeys([*chosen, *best, *(int(i) for i in rows)]))
    texts = [shorten(points.labels[i], 16) for i in order]
    places = np.column_stack([points.distortion[order], points.risk[order]]).tolist()
    if points.original is not None:  # its name has its place before all others
        texts.insert(0, ORIGINAL)
        places.insert(0, list(points.original[::-1]))
        order.insert(0, -1)
    scale = 72 / axes.figure.get_dpi()
    where = axes.transData.transform(np.array(places).reshape(-1, 2)) * scale
    frame = axes.get_window_extent()
    within = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    important = {*best, -1}
    marks = [
        Mark(x=x, y=y, text=text, important=i in important, ringed=i == points.chosen)
        for i, text, (x, y) in zip(order, texts, where.tolist(), strict=True)
    ]
    effects = [withStroke(linewidth=2.0, foreground="white")] if halo else []
    for i, mark, place, spot in zip(order, marks, places, place_labels(marks, within=within), strict=True):
        if spot is not None:
            axes.annotate(
                mark.text,
                place,
                xytext=spot.offset,
                textcoords="offset points",
                ha=spot.across,
                va=spot.along,
                fontsize=8,
                fontstyle="italic" if i < 0 else "normal",
                fontweight="bold" if i in best else "normal",
                color=LIGHT.ink if i in important else LIGHT.muted,
                zorder=7,
                path_effects=effects,
            )


__all__ = ["POLICY", "map_figure", "map_fragment", "map_html", "map_png", "map_svg"]

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)
"""The content policy of a page with a map. Plotly compiles WebGL code at run time, hence ``unsafe-eval``."""


def map_html(
    study: StudyLike,
    *,
    choice: Chosen | None = None,
    risk: str | None = None,
    distortion: str | None = None,
    title: str = "",
    standalone: bool = True,
) -> str:
    """Return the interactive map as a page, or with ``standalone=False`` as an element for a notebook.

    ``risk`` and ``distortion`` are the initial axes; others can be chosen in the page. ``choice`` is ringed and shown
    in detail.

    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.studies.run import run_study
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex")), key=Key.insecure(seed=1))
    >>> map_html(study).startswith("<!DOCTYPE html>")
    True
    """
    room = PAGE if standalone else NOTEBOOK
    payload = map_payload(study, choice=choice, risk=risk, distortion=distortion, title=title, room=room)
    page = chart_page(
        chart_fragment("map", payload),
        title=payload["title"],
        lead=study_sentence(study),
        policy=POLICY,
        for_release=study.facts["for_release"],
    )
    return page if standalone else _notebook_element(page, study_sentence(study))


def map_fragment(
    study: StudyLike,
    *,
    choice: Chosen | None = None,
    risk: str | None = None,
    distortion: str | None = None,
) -> str:
    """Return the map as part of a page that has the colours of :func:`safeswap.charts.theme.css_variables`."""
    return chart_fragment("map", map_payload(study, choice=choice, risk=risk, distortion=distortion))


def study_sentence(study: StudyLike) -> str:
    """Summarise what was tried in one sentence."""
    import pyarrow.compute as pc

    rejected = pc.sum(pc.not_equal(study.table.column("reason"), "")).as_py() or 0
    draws = f", {study.spec.replicates:,} draws of each" if study.spec.replicates > 1 else ""
    some = f"; {rejected:,} could not be made" if rejected else ""
    told = study_note(study)
    return (
        f"{plural(len(study.specs), 'specification')}{draws}: {plural(study.table.num_rows, 'candidate')} on "
        f"{plural(study.facts['records'], 'record')}{some}.{told and ' ' + told}"
    )


def _notebook_element(page: str, sentence: str) -> str:
    """Return a frame that unpacks the page inside itself.

    A frame, because notebooks run no script inserted as text and share one style among all outputs; compressed,
    because a notebook server drops messages of more than about 3 MB.
    """
    packed = b64encode(gzip.compress(page.encode(), mtime=0)).decode()
    loader = chart_asset("notebook_frame.html").replace("{{ packed }}", packed)
    return (
        f"<p>{html.escape(sentence)}</p>"
        f'<iframe title="Risk-utility map" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:56rem;border:0" srcdoc="{html.escape(loader)}"></iframe>'
    )


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
