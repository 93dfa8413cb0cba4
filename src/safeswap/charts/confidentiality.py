"""The confidentiality plot as a self-contained page, a picture, or a table of records.

The internal page is interactive: the policy can be dragged, and a click on a record names its neighbours. The public
page runs no script, shows bins instead of records, and names no record.

The picture has neighbours across and perturbation up, with the unsafe zone shaded. As in Seri: squares for records
whose nearest neighbour is the true one, crosses for those that have it in their neighbourhood, a filled square for the
largest unit, two policy lines. The public picture leaves out bins of few records.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from safeswap.arrays.types import Floats, Rows
from safeswap.charts import theme
from safeswap.charts.map import POLICY
from safeswap.charts.scripts import chart_fragment, chart_page
from safeswap.charts.theme import LIGHT, STYLE, png_of, svg_of
from safeswap.errors import OutputError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.measures.plot.values import ConfidentialityPlot, Policy
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 5_000
"""The largest number of records drawn one by one; more are counted in bins."""

MOST_SINGLED_OUT = 2_000
MOST_COUNTED = 60_000
MOST_NEIGHBOURS = 25
MOST_DISTANCES = 50_000_000
MOST_BINS = 96


def across_title(plot: ConfidentialityPlot) -> str:
    """Return the title of the horizontal axis."""
    if plot.kind != "categorical":
        return "Number of neighbours"
    words = {"population": "in the population", "weights": "estimated by weights", "estimate": "estimated"}
    return "Frequency of the keys " + words.get(str(plot.settings.get("frequency")), "in the original file")


def up_title(plot: ConfidentialityPlot) -> str:
    """Return the title of the vertical axis."""
    if plot.kind == "categorical":
        return "Information loss (share of keys changed)"
    relative = plot.settings.get("distance", "relative") == "relative"
    unit = "relative to the original" if relative else "in standard deviations"
    scale = {"log": ", log scale", "asinh": ", asinh scale"}.get(str(plot.settings.get("scale")), "")
    return f"Perturbation ({unit}{scale})"


def default_second(policy: Policy) -> Policy:
    """Return the weaker policy that is drawn too: the same ends, bent towards the origin."""
    return Policy(r=policy.r, k=policy.k, curvature=min(8.0, policy.curvature + 1.0))


def plot_payload(plot: ConfidentialityPlot, *, second: Policy | None, title: str) -> dict[str, Any]:
    """Return the content of the interactive page as JSON values: a few thousand points, or counts by bins.

    Internal: it has identifiers and neighbours, though no values of keys.
    """
    rows = np.flatnonzero(plot.placed & np.isfinite(plot.perturbation))
    many = len(rows) > MOST_POINTS
    shown = _select_points(plot, rows) if many else rows
    limits = _limits(plot, rows)
    return {
        "title": theme.shorten(title, 200),
        "kind": plot.kind,
        "across": across_title(plot),
        "up": up_title(plot),
        "records": len(plot),
        "placed": int(np.count_nonzero(plot.placed)),
        "beyond": int(np.count_nonzero(np.isinf(plot.perturbation))),
        "policy": plot.policy.as_dict(),
        "second": None if second is None else second.as_dict(),
        "limits": limits,
        "points": _points(plot, shown),
        "bins": {"near": _bins(plot, rows, limits["near"]), "all": _bins(plot, rows, limits["all"])} if many else None,
        "counted": _sample_to_count(plot, rows, limits["near"]),
        "totals": _totals(plot),
        "densities": _densities(plot),
        "ranks": None if plot.rank_links is None else plot.rank_links.to_pydict(),
        "notes": list(plot.notes),
        "themes": {"light": asdict(theme.LIGHT), "dark": asdict(theme.DARK)},
    }


def view_limits(plot: ConfidentialityPlot) -> dict[str, list[float]]:
    """Return the ranges of the whole plot and of the part near the policy, each as (across, up)."""
    return _limits(plot, np.flatnonzero(plot.placed & np.isfinite(plot.perturbation)))


def _limits(plot: ConfidentialityPlot, rows: Rows) -> dict[str, list[float]]:
    k, r = plot.policy.k, plot.policy.r
    most = float(plot.across[rows].max(initial=0.0)), float(plot.perturbation[rows].max(initial=0.0))
    whole = [max(most[0], 1.2 * k) * 1.03, max(most[1], 1.2 * r if r is not None else 0.1) * 1.05]
    near = [4.0 * k, min(whole[1], 4.0 * r) if r is not None else whole[1]]
    return {"all": whole, "near": [min(near[0], whole[0]), near[1]]}


def _select_points(plot: ConfidentialityPlot, rows: Rows) -> Rows:
    """Select the records that get a point when there are many: the largest, links and unsafe ones, up to a limit."""
    flags = plot.links[rows].astype(np.int8) * 2 + plot.unsafe[rows]
    flags[rows == plot.largest] = 4
    order = np.lexsort((plot.perturbation[rows], -flags))
    chosen = rows[order[: min(MOST_SINGLED_OUT, int(np.count_nonzero(flags)))]]
    return np.sort(chosen)


def _points(plot: ConfidentialityPlot, rows: Rows) -> dict[str, Any]:
    marks = np.where(plot.links[rows], 2, np.where(plot.within[rows], 1, 0))
    both = plot.links[rows] & plot.within[rows]
    return {
        "x": _round(plot.across[rows]),
        "y": _round(plot.perturbation[rows]),
        "mark": np.where(both, 3, marks).tolist(),
        "largest": int(np.searchsorted(rows, plot.largest)) if plot.largest in rows else -1,
        "label": [theme.shorten(str(plot.labels[int(row)].as_py()), 60) for row in rows],
        "neighbours": _neighbours(plot, rows),
    }


def _neighbours(plot: ConfidentialityPlot, rows: Rows) -> list[list[Any]] | None:
    """Return the names of each point's nearest neighbours, the true one marked."""
    if plot.points is None:
        return None
    room = MOST_DISTANCES // max(1, len(plot.points.archive))
    found: list[list[Any]] = []
    for row in rows[:room]:
        names = plot.neighbours(int(row), most=MOST_NEIGHBOURS)["record"].to_pylist()
        own = str(plot.labels[int(row)].as_py())
        found.append([theme.shorten(str(name), 60) + ("" if str(name) != own else " ✓") for name in names])
    return found


def _bins(plot: ConfidentialityPlot, rows: Rows, limits: list[float]) -> dict[str, Any]:
    """Count records by bins within the limits, without empty bins."""
    x, y = plot.across[rows], plot.perturbation[rows]
    steps, first = bin_steps(plot, limits)
    inside = (x < limits[0]) & (y < limits[1])
    i, j = ((x[inside] - first) / steps[0]).astype(np.int64), (y[inside] / steps[1]).astype(np.int64)
    width = int((limits[0] - first) / steps[0]) + 1
    places, counts = np.unique(j * width + i, return_counts=True)
    return {
        "step": [float(step) for step in steps],
        "first": first,
        "i": (places % width).tolist(),
        "j": (places // width).tolist(),
        "count": counts.tolist(),
    }


def bin_steps(plot: ConfidentialityPlot, limits: list[float]) -> tuple[tuple[float, float], float]:
    """Return the width and height of a bin, and where the first one begins across.

    Numbers of neighbours are whole: each bin covers equally many of them, and a single one is centred.
    """
    bins = min(MOST_BINS, max(8, int(len(plot) ** 0.5)))  # with few records, fine bins would show single records
    across, up = limits[0] / bins, limits[1] / (0.75 * bins)
    if (plot.across[plot.placed] % 1 == 0).all():
        return (max(1.0, float(np.ceil(across))), up), -0.5
    return (across, up), 0.0


def _sample_to_count(plot: ConfidentialityPlot, rows: Rows, limits: list[float]) -> dict[str, Any]:
    """Return the records from which the page counts unsafe ones while the policy is dragged within its limits."""
    inside = rows[(plot.across[rows] < limits[0]) & (plot.perturbation[rows] < limits[1])]
    each = max(1.0, len(inside) / MOST_COUNTED)
    if each > 1.0:
        inside = inside[np.floor(np.arange(MOST_COUNTED) * each).astype(np.int64)]
    return {
        "x": _round(plot.across[inside]),
        "y": _round(plot.perturbation[inside], 12),
        "each": each,
        "exact": each == 1.0,
    }


def _totals(plot: ConfidentialityPlot) -> list[list[str]]:
    totals = plot.as_dict()
    words = {
        "delta": "δ, the distance within which records are neighbours",
        "match_weight": "match weight from which records are neighbours",
        "standard_error": "its standard error",
        "correct_links": "records whose nearest neighbour is the true one",
        "shared_links": "… which it shares with others equally near",
        "links_within_neighbourhoods": "records with the true one in their neighbourhood",
        "empty_neighbourhoods": "records without a neighbour",
        "rank_links": f"of the largest {plural(totals.get('rank_units', 0), 'unit')} found by rank",
    }
    return [
        [word, theme.number_text(totals[name]) if isinstance(totals[name], float) else f"{totals[name]:,}"]
        for name, word in words.items()
        if totals.get(name) is not None
    ]


def _densities(plot: ConfidentialityPlot) -> dict[str, Any] | None:
    table = plot.densities
    if table is None:
        return None
    middle = (table["from"].to_numpy()[:-1] + table["to"].to_numpy(zero_copy_only=False)[:-1].astype(np.float64)) / 2
    return {
        "z": _round(middle),
        "m": _round(table["m"].to_numpy()[:-1]),
        "u": _round(table["u"].to_numpy()[:-1]),
        "delta": plot.threshold,
    }


def _round(values: Floats, digits: int = 7) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


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
    """Draw the plot as a matplotlib figure.

    ``view`` shows everything or the part near the policy, by default that part if there are many records. ``second``
    is the other policy line, by default the same ends bent towards the origin.

    >>> import pyarrow as pa
    >>> from safeswap.measures.plot.plots import make_plot
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
        _decorate(axes, plot, shown, version=version)
    return figure


def plot_svg(plot: ConfidentialityPlot, *, text_as_paths: bool = True, **options: Any) -> str:
    """Draw the plot as SVG. See :func:`plot_figure` for the options."""
    return svg_of(plot_figure(plot, **options), text_as_paths=text_as_paths)


def plot_png(plot: ConfidentialityPlot, *, dpi: int = 200, **options: Any) -> bytes:
    """Draw the plot as PNG. See :func:`plot_figure` for the options."""
    return png_of(plot_figure(plot, **options), dpi=dpi)


def _draw_points(axes: Axes, plot: ConfidentialityPlot) -> None:
    """Draw one dot for the records at each place; its area shows how many there are."""
    plain = ~(plot.links | plot.within)
    places, counts = np.unique(np.c_[plot.across, plot.perturbation][plain], axis=0, return_counts=True)
    largest = counts.max(initial=1)
    sizes = np.maximum(16.0, 500.0 * counts / largest) if largest > 1 else 16.0
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=LIGHT.muted, linewidths=0, alpha=0.7, zorder=3)


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


def _decorate(axes: Axes, plot: ConfidentialityPlot, shown: list[float], *, version: Version) -> None:
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
        Patch(color=LIGHT.gain, alpha=0.15, label=f"unsafe: {plural(unsafe, 'record')} ({plot.unsafe_share:.1%})")
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


__all__ = ["SCRIPTLESS", "plot_figure", "plot_html", "plot_png", "plot_svg"]

SCRIPTLESS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"


def plot_html(
    plot: ConfidentialityPlot, *, version: Version = "internal", second: Policy | None = None, title: str = ""
) -> str:
    """Return the plot as an HTML page. See :func:`plot_figure` for the second policy.

    >>> import pyarrow as pa
    >>> from safeswap.measures.plot.plots import make_plot
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), Schema(attributes=(Attribute(name="Sex"),)))
    >>> page = plot_html(make_plot(data, data, ["Sex"]), version="public")
    >>> page.startswith("<!DOCTYPE html>"), "<script" in page
    (True, False)
    """
    other = second or (default_second(plot.policy) if plot.policy.r is not None else None)
    heading = title or f"Confidentiality plot: {list_names(plot.keys)}"
    if version == "public":
        part, lead, policy = _public_part(plot, second), public_sentence(plot), SCRIPTLESS
    else:
        part = chart_fragment("confidentiality", plot_payload(plot, second=other, title=heading))
        lead, policy = plot.sentence, POLICY
    return chart_page(part, title=heading, lead=lead, policy=policy, for_release=True)


def public_sentence(plot: ConfidentialityPlot) -> str:
    """Return what may be published: shares of all records, and the policy."""
    links = (
        "" if plot.kind == "categorical" else f" Linkage to the nearest finds {plot.correct_link_share:.1%} of them."
    )
    records = plural(len(plot), "record is", "records are")
    return f"{plot.unsafe_share:.1%} of {records} unsafe.{links} {plot.policy.sentence}"


def _public_part(plot: ConfidentialityPlot, second: Policy | None) -> str:
    from base64 import b64encode

    picture = b64encode(plot_svg(plot, version="public", second=second).encode()).decode()
    text = f"Confidentiality plot in bins; bins of fewer than {SMALLEST_PUBLIC_BIN} records are not shown."
    return (
        f'<p><img alt="{text}" style="max-width:100%;background:#fff" src="data:image/svg+xml;base64,{picture}"></p>\n'
    )


PICTURES = (".html", ".svg", ".png")
RECORDS = (".csv", ".parquet")


def write_plot(
    plot: ConfidentialityPlot,
    path: str | os.PathLike[str],
    *,
    version: Version = "internal",
    second: Policy | None = None,
    title: str = "",
    force: bool = False,
) -> None:
    """Write the plot in the format of the file's suffix: html, svg or png; csv or parquet for a row per record.

    Files that name records are readable by their owner only, and have no public version.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from safeswap.measures.plot.plots import make_plot
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), Schema(attributes=(Attribute(name="Sex"),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_plot(make_plot(data, data, ["Sex"]), Path(folder) / "plot.svg", version="public")
    ...     (Path(folder) / "plot.svg").read_text().startswith("<?xml")
    True
    """
    suffix = Path(path).suffix.lower()
    if suffix in RECORDS:
        _write_records(plot, path, version=version, force=force)
        return
    if suffix not in PICTURES:
        raise OutputError(
            "the file's suffix is not that of a plot format",
            code="unknown-format",
            hint="use one of " + ", ".join((*PICTURES, *RECORDS)),
            file=os.fspath(path),
        )
    content = _picture(plot, suffix, version=version, second=second, title=title)
    with atomic_write(path, force=force, mode=PRIVATE_FILE if version == "internal" else 0o644) as part:
        part.write_bytes(content)


def _picture(plot: ConfidentialityPlot, suffix: str, *, version: Version, second: Policy | None, title: str) -> bytes:

    if suffix == ".html":
        return plot_html(plot, version=version, second=second, title=title).encode()
    if suffix == ".svg":
        return plot_svg(plot, version=version, second=second).encode()
    return plot_png(plot, version=version, second=second)


def _write_records(plot: ConfidentialityPlot, path: str | os.PathLike[str], *, version: Version, force: bool) -> None:
    from safeswap.files.write import write_csv, write_parquet

    if version == "public":
        raise SpecError(
            "figures of individual records must not be published",
            code="not-public",
            hint='write them with version="internal", or write a picture',
        )
    writer = write_csv if Path(path).suffix.lower() == ".csv" else write_parquet
    writer(plot.table(), path, force=force, mode=PRIVATE_FILE)
