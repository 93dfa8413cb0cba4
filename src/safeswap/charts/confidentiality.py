"""The confidentiality plot as a page that needs nothing else.

The internal page is interactive: the policy can be dragged, and a click on a record names its neighbours. The public
page runs no script, shows bins instead of records, and names nobody.
"""

from __future__ import annotations

from safeswap.charts.map import POLICY
from safeswap.charts.plot_payload import default_second, plot_payload
from safeswap.charts.scripts import chart_fragment, chart_page
from safeswap.charts.static_confidentiality import SMALLEST_PUBLIC_BIN, Version, plot_figure, plot_png, plot_svg
from safeswap.model.confidentiality import ConfidentialityPlot
from safeswap.model.policy import Policy

__all__ = ["SCRIPTLESS", "plot_figure", "plot_html", "plot_png", "plot_svg"]

SCRIPTLESS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"


def plot_html(
    plot: ConfidentialityPlot, *, version: Version = "internal", second: Policy | None = None, title: str = ""
) -> str:
    """The plot as a whole page. See :func:`plot_figure` for the second policy.

    >>> import pyarrow as pa
    >>> from safeswap.measures.plots import make_plot
    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), Schema(attributes=(Attribute(name="Sex"),)))
    >>> page = plot_html(make_plot(data, data, ["Sex"]), version="public")
    >>> page.startswith("<!DOCTYPE html>"), "<script" in page
    (True, False)
    """
    other = second or (default_second(plot.policy) if plot.policy.r is not None else None)
    heading = title or "Confidentiality plot: " + ", ".join(plot.keys)
    if version == "public":
        part, lead, policy = _public_part(plot, second), public_sentence(plot), SCRIPTLESS
    else:
        part = chart_fragment("confidentiality", plot_payload(plot, second=other, title=heading))
        lead, policy = plot.sentence, POLICY
    return chart_page(part, title=heading, lead=lead, policy=policy, for_release=True)


def public_sentence(plot: ConfidentialityPlot) -> str:
    """What may be told: shares of all records, and the policy."""
    links = (
        "" if plot.kind == "categorical" else f" Linkage to the nearest finds {plot.correct_link_share:.1%} of them."
    )
    return f"{plot.unsafe_share:.1%} of {len(plot):,} records are unsafe.{links} {plot.policy.sentence}"


def _public_part(plot: ConfidentialityPlot, second: Policy | None) -> str:
    from base64 import b64encode

    picture = b64encode(plot_svg(plot, version="public", second=second).encode()).decode()
    told = f"Confidentiality plot in bins; bins of fewer than {SMALLEST_PUBLIC_BIN} records are not shown."
    return (
        f'<p><img alt="{told}" style="max-width:100%;background:#fff" src="data:image/svg+xml;base64,{picture}"></p>\n'
    )
