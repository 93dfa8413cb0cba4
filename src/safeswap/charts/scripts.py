"""The scripts of the interactive charts as modules, for pages that load them instead of holding them."""

from __future__ import annotations

from importlib.resources import files

VIEWS = {
    "map": ("figures.js", "plot.js", "panels.js", "start.js"),
    "confidentiality": ("confidentiality_figures.js", "confidentiality.js"),
}
"""The scripts of each chart, in their order."""


def chart_asset(name: str) -> str:
    """The text of one file of a chart."""
    return files("safeswap.charts").joinpath("assets", name).read_text("utf-8")


def chart_modules() -> dict[str, str]:
    """For each chart a module that exports ``start(root, payload)``, and its style.

    ``root`` is the chart's body (:func:`chart_body`); without a payload it is read from an element
    ``script[type="application/json"]`` beside it. Plotly is expected as a global name.

    >>> sorted(chart_modules())
    ['css/confidentiality.css', 'css/map.css', 'js/confidentiality-view.js', 'js/map-view.js']
    """
    modules = {
        f"js/{view}-view.js": "\n".join(chart_asset(name) for name in names) + "\nexport { start };\n"
        for view, names in VIEWS.items()
    }
    return {**modules, **{f"css/{view}.css": chart_asset(f"{view}.css") for view in VIEWS}}


def chart_body(view: str) -> str:
    """The elements of a chart, without data.

    >>> chart_body("map").startswith("<section class=\\"safeswap-map\\"")
    True
    """
    return chart_asset(f"{view}_body.html")
