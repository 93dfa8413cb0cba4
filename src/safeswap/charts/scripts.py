"""The scripts of the interactive charts: within a page that holds them, or as modules for pages that load them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from safeswap.charts.payload import as_json
from safeswap.charts.plotly_script import plotly_script
from safeswap.charts.theme import css_variables

COMMON = ("numbers.js", "common.js")
VIEWS = {
    "map": (*COMMON, "figures.js", "plot.js", "panels.js", "start.js"),
    "confidentiality": (*COMMON, "confidentiality_figures.js", "confidentiality.js"),
}
"""The scripts of each chart, in their order."""


@cache
def chart_asset(name: str) -> str:
    """The text of one file of a chart."""
    return files("safeswap.charts").joinpath("assets", name).read_text("utf-8")


def chart_fragment(view: str, payload: dict[str, Any]) -> str:
    """A chart and all it needs, Plotly too, as a part of a page that brings the colours."""
    own = "\n".join(chart_asset(name) for name in VIEWS[view])
    return (
        f"<style>\n{chart_asset(f'{view}.css')}</style>\n<div>\n{chart_body(view)}"
        f'<script type="application/json">{as_json(payload)}</script>\n</div>\n'
        f'<script>{plotly_script()}</script>\n<script>\n(function () {{\n"use strict";\n{own}}})();\n</script>\n'
    )


def chart_page(fragment: str, *, title: str, lead: str, policy: str, for_release: bool) -> str:
    """A whole page around a part, with the colours."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    rendered: str = environment.from_string(chart_asset("map_page.html")).render(
        title=title, lead=lead, policy=policy, for_release=for_release, colours=css_variables(), fragment=fragment
    )
    return rendered


def chart_modules() -> dict[str, str]:
    """For each chart a module that exports ``start(root, payload)``, and its style; and how the charts write numbers.

    ``root`` is the chart's body (:func:`chart_body`); without a payload it is read from an element
    ``script[type="application/json"]`` beside it. Plotly is expected as a global name.

    >>> sorted(chart_modules())
    ['css/confidentiality.css', 'css/map.css', 'js/confidentiality-view.js', 'js/map-view.js', 'js/numbers.js']
    """
    modules = {
        f"js/{view}-view.js": "\n".join(chart_asset(name) for name in names) + "\nexport { start };\n"
        for view, names in VIEWS.items()
    }
    modules["js/numbers.js"] = chart_asset("numbers.js") + "\nexport { counted, grouped };\n"
    return {**modules, **{f"css/{view}.css": chart_asset(f"{view}.css") for view in VIEWS}}


def chart_body(view: str) -> str:
    """The elements of a chart, without data.

    >>> chart_body("map").startswith("<section class=\\"safeswap-map\\"")
    True
    """
    return chart_asset(f"{view}_body.html")
