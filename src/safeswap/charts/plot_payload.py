"""What the interactive confidentiality plot knows: a few thousand points, or counts by bins where records are many.

Identifiers and neighbours are in it, so it stays inside. Values of keys are not.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from safeswap.charts import theme
from safeswap.kernels.types import Floats, Rows
from safeswap.model.confidentiality import ConfidentialityPlot
from safeswap.model.policy import Policy

MOST_POINTS = 5_000
"""Up to so many records are drawn one by one; above, they are counted in bins."""

MOST_SINGLED_OUT = 2_000
MOST_COUNTED = 60_000
MOST_NEIGHBOURS = 25
MOST_DISTANCES = 50_000_000
MOST_BINS = 96


def across_title(plot: ConfidentialityPlot) -> str:
    """What stands across."""
    if plot.kind != "categorical":
        return "Number of neighbours"
    words = {"population": "in the population", "weights": "estimated by weights", "estimate": "estimated"}
    return "Frequency of the keys " + words.get(str(plot.settings.get("frequency")), "in the original file")


def up_title(plot: ConfidentialityPlot) -> str:
    """What stands up."""
    if plot.kind == "categorical":
        return "Information loss (share of keys changed)"
    relative = plot.settings.get("distance", "relative") == "relative"
    unit = "relative to the original" if relative else "in standard deviations"
    scale = {"log": ", log scale", "asinh": ", asinh scale"}.get(str(plot.settings.get("scale")), "")
    return f"Perturbation ({unit}{scale})"


def default_second(policy: Policy) -> Policy:
    """The weaker of the two policies that are drawn: the same ends, bent towards the origin."""
    return Policy(r=policy.r, k=policy.k, curvature=min(8.0, policy.curvature + 1.0))


def plot_payload(plot: ConfidentialityPlot, *, second: Policy | None, title: str) -> dict[str, Any]:
    """Everything that the page shows, as values that JSON can hold."""
    rows = np.flatnonzero(plot.placed & np.isfinite(plot.perturbation))
    many = len(rows) > MOST_POINTS
    shown = _singled_out(plot, rows) if many else rows
    limits = _limits(plot, rows)
    return {
        "title": theme.shortened(title, 200),
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
        "counted": _counted(plot, rows, limits["near"]),
        "totals": _totals(plot),
        "densities": _densities(plot),
        "ranks": None if plot.rank_links is None else plot.rank_links.to_pydict(),
        "notes": list(plot.notes),
        "themes": {"light": asdict(theme.LIGHT), "dark": asdict(theme.DARK)},
    }


def view_limits(plot: ConfidentialityPlot) -> dict[str, list[float]]:
    """The ranges of the whole plot and of its part near the policy, each as (across, up)."""
    return _limits(plot, np.flatnonzero(plot.placed & np.isfinite(plot.perturbation)))


def _limits(plot: ConfidentialityPlot, rows: Rows) -> dict[str, list[float]]:
    k, r = plot.policy.k, plot.policy.r
    most = float(plot.across[rows].max(initial=0.0)), float(plot.perturbation[rows].max(initial=0.0))
    whole = [max(most[0], 1.2 * k) * 1.03, max(most[1], 1.2 * r if r is not None else 0.1) * 1.05]
    near = [4.0 * k, min(whole[1], 4.0 * r) if r is not None else whole[1]]
    return {"all": whole, "near": [min(near[0], whole[0]), near[1]]}


def _singled_out(plot: ConfidentialityPlot, rows: Rows) -> Rows:
    """Of many records those worth a point of their own: the largest, links, and the unsafe ones, as room allows."""
    flags = plot.links[rows].astype(np.int8) * 2 + plot.unsafe[rows]
    flags[rows == plot.largest] = 4
    order = np.lexsort((plot.perturbation[rows], -flags))
    chosen = rows[order[: min(MOST_SINGLED_OUT, int(np.count_nonzero(flags)))]]
    return np.sort(chosen)


def _points(plot: ConfidentialityPlot, rows: Rows) -> dict[str, Any]:
    marks = np.where(plot.links[rows], 2, np.where(plot.within[rows], 1, 0))
    both = plot.links[rows] & plot.within[rows]
    return {
        "x": _rounded(plot.across[rows]),
        "y": _rounded(plot.perturbation[rows]),
        "mark": np.where(both, 3, marks).tolist(),
        "largest": int(np.searchsorted(rows, plot.largest)) if plot.largest in rows else -1,
        "label": [theme.shortened(str(plot.labels[int(row)].as_py()), 60) for row in rows],
        "neighbours": _neighbours(plot, rows),
    }


def _neighbours(plot: ConfidentialityPlot, rows: Rows) -> list[list[Any]] | None:
    """Per point the nearest of its neighbours by name, and which of them is the true one."""
    if plot.points is None:
        return None
    room = MOST_DISTANCES // max(1, len(plot.points.archive))
    found: list[list[Any]] = []
    for row in rows[:room]:
        names = plot.neighbours(int(row), most=MOST_NEIGHBOURS)["record"].to_pylist()
        own = str(plot.labels[int(row)].as_py())
        found.append([theme.shortened(str(name), 60) + ("" if str(name) != own else " ✓") for name in names])
    return found


def _bins(plot: ConfidentialityPlot, rows: Rows, limits: list[float]) -> dict[str, Any]:
    """Counts by bins within the limits, only those that are not empty."""
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
    """The width and height of a bin, and where the first one begins across.

    Numbers of neighbours are whole: a bin takes in as many of them as any other, and a single one is its middle.
    """
    bins = min(MOST_BINS, max(8, int(len(plot) ** 0.5)))  # few records in fine bins would be single records
    across, up = limits[0] / bins, limits[1] / (0.75 * bins)
    if (plot.across[plot.placed] % 1 == 0).all():
        return (max(1.0, float(np.ceil(across))), up), -0.5
    return (across, up), 0.0


def _counted(plot: ConfidentialityPlot, rows: Rows, limits: list[float]) -> dict[str, Any]:
    """What the number of unsafe records is counted from while the policy is dragged, within the limits of dragging."""
    inside = rows[(plot.across[rows] < limits[0]) & (plot.perturbation[rows] < limits[1])]
    each = max(1.0, len(inside) / MOST_COUNTED)
    if each > 1.0:
        inside = inside[np.floor(np.arange(MOST_COUNTED) * each).astype(np.int64)]
    return {
        "x": _rounded(plot.across[inside]),
        "y": _rounded(plot.perturbation[inside], 12),
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
        "rank_links": f"of the {totals.get('rank_units', 0)} largest units found by rank",
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
        "z": _rounded(middle),
        "m": _rounded(table["m"].to_numpy()[:-1]),
        "u": _rounded(table["u"].to_numpy()[:-1]),
        "delta": plot.threshold,
    }


def _rounded(values: Floats, digits: int = 7) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
