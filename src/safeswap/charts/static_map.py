"""The map as a picture for a paper: SVG or PNG, the same bytes every time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.charts.labels import Mark, placed
from safeswap.charts.paper import STYLE, png_of, svg_of
from safeswap.charts.points import Points, points_of
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.theme import LIGHT, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DOTS = 20_000
_MARKERS = ("o", "^", "D", "p", "*", "h", "P", "X")


def map_figure(
    study: StudyLike | Points,
    *,
    choice: ChoiceLike | None = None,
    risk: str | None = None,
    distortion: str | None = None,
    by_rate: bool = False,
    size: tuple[float, float] | None = None,
    halo: bool = True,
) -> Figure:
    """The map as a figure of matplotlib, to be altered and saved at will; ``by_rate`` gives each rate a panel.

    ``halo`` sets labels off from what is behind them; in SVG such labels are shapes and no text.

    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.search.run import run_study
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
        figure.canvas.draw()  # settles the layout, from which the labels are placed
        for axes, rate in zip(panels, rates or [None], strict=True):
            _label(axes, points, rate, halo=halo)
    return figure


def map_svg(study: StudyLike | Points, *, text_as_paths: bool = True, **options: Any) -> str:
    """The map as SVG. Text as paths looks the same everywhere; text as text can be searched. See :func:`map_figure`."""
    return svg_of(map_figure(study, halo=text_as_paths, **options), text_as_paths=text_as_paths)


def map_png(study: StudyLike | Points, *, dpi: int = 200, **options: Any) -> bytes:
    """The map as PNG. See :func:`map_figure` for the options."""
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
    _draw_points(axes, points, np.setdiff1d(rows, best), colours)
    axes.scatter(
        points.distortion[best],
        points.risk[best],
        c=colours[best].tolist(),
        s=46,
        marker="s",
        edgecolors=LIGHT.ink,
        linewidths=1.1,
        zorder=5,
    )
    if points.chosen is not None and points.chosen in rows:
        where = points.distortion[points.chosen], points.risk[points.chosen]
        axes.scatter(*where, s=230, marker="o", facecolors="none", edgecolors=LIGHT.gain, linewidths=2.2, zorder=6)
    _furnish(axes, points, rate)


def _draw_points(axes: Axes, points: Points, rows: Any, colours: Any) -> None:
    kinds = list(dict.fromkeys(points.constraints))
    for i, kind in enumerate(kinds):
        own = [row for row in rows if points.constraints[row] == kind]
        axes.scatter(
            points.distortion[own],
            points.risk[own],
            c=colours[own].tolist(),
            s=24,
            marker=_MARKERS[i % len(_MARKERS)],
            linewidths=0,
            alpha=0.9,
            zorder=4,
        )


def _furnish(axes: Axes, points: Points, rate: float | None) -> None:
    from matplotlib.lines import Line2D

    axes.set_xlabel(f"Distortion: {points.distortion_title}")
    axes.set_ylabel(f"Risk: {points.risk_title}")
    axes.grid(visible=True, color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(0.06)
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
            _key(_MARKERS[i % 8], LIGHT.muted, shortened(kind or "no constraint", 40)) for i, kind in enumerate(kinds)
        ]
    keys.append(Line2D([], [], color=LIGHT.ink, linewidth=2, marker="s", markerfacecolor="white", label="frontier"))
    if points.chosen is not None:
        keys.append(_key("o", "none", "chosen", edge=LIGHT.gain))
    # Above the axes, where no point can be.
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


def _key(marker: str, colour: str, label: str, *, edge: str = "none") -> Any:
    from matplotlib.lines import Line2D

    size = 11 if edge != "none" else 6
    return Line2D(
        [], [], linestyle="none", marker=marker, markerfacecolor=colour, markeredgecolor=edge, markeredgewidth=2,
        markersize=size, label=label,
    )  # fmt: skip


def _colours(points: Points) -> Any:
    """A colour per point, by its rate."""
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
    scale = 72 / axes.figure.get_dpi()
    where = axes.transData.transform(np.column_stack([points.distortion, points.risk])) * scale
    frame = axes.get_window_extent()
    within = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    marks = [
        Mark(
            x=where[i, 0],
            y=where[i, 1],
            text=shortened(points.labels[i], 16),
            important=i in best,
            ringed=i == points.chosen,
        )
        for i in order
    ]
    effects = [withStroke(linewidth=2.0, foreground="white")] if halo else []
    for i, spot in zip(order, placed(marks, within=within), strict=True):
        if spot is not None:
            axes.annotate(
                marks[order.index(i)].text,
                (points.distortion[i], points.risk[i]),
                xytext=spot.offset,
                textcoords="offset points",
                ha=spot.across,
                va=spot.along,
                fontsize=8,
                fontweight="bold" if i in best else "normal",
                color=LIGHT.ink if i in best else LIGHT.muted,
                zorder=7,
                path_effects=effects,
            )
