"""The confidentiality plot as a picture: neighbours across, perturbation up, the unsafe zone shaded.

As in Seri: squares for records whose nearest neighbour is the true one, crosses for those that have it in their
neighbourhood, a filled square for the largest unit, two policy lines. The public picture has bins instead of records
and leaves out bins of few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from safeswap.charts.paper import STYLE, png_of, svg_of
from safeswap.charts.plot_payload import MOST_POINTS, across_title, bin_steps, default_second, up_title, view_limits
from safeswap.charts.theme import LIGHT
from safeswap.model.confidentiality import ConfidentialityPlot
from safeswap.model.policy import Policy
from safeswap.model.several import several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Version = Literal["internal", "public"]
View = Literal["auto", "all", "near"]

SMALLEST_PUBLIC_BIN = 3
_MOST_MARKS = 4_000


def plot_figure(
    plot: ConfidentialityPlot,
    *,
    version: Version = "internal",
    view: View = "auto",
    second: Policy | None = None,
    size: tuple[float, float] = (8.0, 5.6),
) -> Figure:
    """The plot as a figure of matplotlib, to be altered and saved at will.

    ``view`` shows everything or the part near the policy, by default that part where records are many. ``second`` is
    the other policy line; if not stated, the same ends bent towards the origin.

    >>> import pyarrow as pa
    >>> from safeswap.measures.plots import make_plot
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), Schema(attributes=(Attribute(name="Sex"),)))
    >>> plot_figure(make_plot(data, data, ["Sex"])).axes[0].get_xlabel()
    'Frequency of the keys in the original file'
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Empty

    other = second or default_second(plot.policy)
    limits = view_limits(plot)
    near = view == "near" or (view == "auto" and len(plot) > MOST_POINTS)
    shown = limits["near" if near else "all"]
    with rc_context(STYLE):
        figure = Empty(figsize=size, layout="constrained")
        axes = figure.subplots()
        if version == "public" or len(plot) > MOST_POINTS:
            fewest = SMALLEST_PUBLIC_BIN if version == "public" else 1
            _draw_bins(figure, axes, plot, shown, fewest=fewest)
        else:
            _draw_points(axes, plot)
        if version == "internal":
            _draw_marks(axes, plot)
        _draw_policy(axes, plot.policy, other)
        _furnish(axes, plot, shown, version=version)
    return figure


def plot_svg(plot: ConfidentialityPlot, *, text_as_paths: bool = True, **options: Any) -> str:
    """The plot as SVG. See :func:`plot_figure` for the options."""
    return svg_of(plot_figure(plot, **options), text_as_paths=text_as_paths)


def plot_png(plot: ConfidentialityPlot, *, dpi: int = 200, **options: Any) -> bytes:
    """The plot as PNG. See :func:`plot_figure` for the options."""
    return png_of(plot_figure(plot, **options), dpi=dpi)


def _draw_points(axes: Axes, plot: ConfidentialityPlot) -> None:
    plain = ~(plot.links | plot.within)
    axes.scatter(plot.across[plain], plot.perturbation[plain], s=16, c=LIGHT.muted, linewidths=0, alpha=0.7, zorder=3)


def _draw_bins(figure: Figure, axes: Axes, plot: ConfidentialityPlot, shown: list[float], *, fewest: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    step, first = bin_steps(plot, shown)
    starts = (first, 0.0)
    edges = [
        start + np.arange(int(np.ceil((shown[j] - start) / step[j])) + 1) * step[j] for j, start in enumerate(starts)
    ]
    counts, _, _ = np.histogram2d(plot.across, plot.perturbation, bins=edges)
    counts[counts < fewest] = np.nan
    if np.isnan(counts).all():
        return
    colours = LinearSegmentedColormap.from_list("records", ["#d3e3ee", LIGHT.accent, LIGHT.ink])
    norm = LogNorm(vmin=max(1, fewest), vmax=max(10.0, float(np.nanmax(counts))))
    mesh = axes.pcolormesh(*edges, counts.T, cmap=colours, norm=norm, zorder=2, rasterized=True)
    bar = figure.colorbar(mesh, ax=axes, label="records per bin", pad=0.01)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    bar.ax.yaxis.set_minor_formatter(lambda *_: "")


def _draw_marks(axes: Axes, plot: ConfidentialityPlot) -> None:
    crosses, squares = (np.flatnonzero(flags)[:_MOST_MARKS] for flags in (plot.within, plot.links))
    if len(plot) > MOST_POINTS:
        crosses = crosses[:0]
    axes.scatter(
        plot.across[crosses], plot.perturbation[crosses], s=26, marker="x", c=LIGHT.accent, linewidths=1.2, zorder=4
    )
    axes.scatter(
        plot.across[squares],
        plot.perturbation[squares],
        s=46,
        marker="s",
        facecolors="none",
        edgecolors=LIGHT.gain,
        linewidths=1.5,
        zorder=5,
    )
    if plot.largest >= 0:
        where = plot.across[plot.largest], plot.perturbation[plot.largest]
        axes.scatter(*where, s=60, marker="s", c=LIGHT.ink, zorder=6)


def _draw_policy(axes: Axes, policy: Policy, other: Policy) -> None:
    if policy.r is None:
        axes.axvline(policy.k, color=LIGHT.gain, linewidth=1.8, zorder=7)
        axes.axvspan(0, policy.k, color=LIGHT.gain, alpha=0.10, linewidth=0, zorder=1)
        return
    x = np.linspace(0, policy.k, 200)
    axes.fill_between(x, policy.line(x), color=LIGHT.gain, alpha=0.12, linewidth=0, zorder=1)
    axes.plot(x, policy.line(x), color=LIGHT.gain, linewidth=1.8, zorder=7)
    x = np.linspace(0, other.k, 200)
    axes.plot(x, other.line(x), color=LIGHT.gain, linewidth=1.2, linestyle="--", zorder=7)


def _furnish(axes: Axes, plot: ConfidentialityPlot, shown: list[float], *, version: Version) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.02 * shown[0], shown[0])
    axes.set_ylim(-0.02 * shown[1], shown[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=shown[0] > 10))
    axes.set_xlabel(across_title(plot))
    axes.set_ylabel(up_title(plot))
    axes.grid(visible=True, color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    unsafe = int(np.count_nonzero(plot.unsafe))
    keys: list[Any] = [
        Patch(color=LIGHT.gain, alpha=0.15, label=f"unsafe: {several(unsafe, 'record')} ({plot.unsafe_share:.1%})")
    ]
    if version == "internal" and plot.kind != "categorical":
        none: Any = {"linestyle": "none"}
        keys += [
            Line2D([], [], marker="s", color=LIGHT.gain, fillstyle="none", label="nearest is the true one", **none),
        ]
        if len(plot) <= MOST_POINTS:
            crosses = Line2D([], [], marker="x", color=LIGHT.accent, label="true one in the neighbourhood", **none)
            keys.append(crosses)
        if plot.largest >= 0:
            keys.append(Line2D([], [], marker="s", color=LIGHT.ink, label="largest unit", **none))
    if version == "public":
        keys.append(Line2D([], [], linestyle="none", label=f"bins of fewer than {SMALLEST_PUBLIC_BIN} are not shown"))
    axes.legend(handles=keys, loc="upper right", fontsize=8.5, frameon=True, framealpha=0.9, edgecolor=LIGHT.line)
