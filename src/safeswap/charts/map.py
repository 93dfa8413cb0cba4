"""The risk-utility map as a page that needs nothing else: distortion across, risk up, one point per specification.

The page is a single file with Plotly inside. It opens from a disk without a network, follows the light or dark setting
of the reader's system, and sends nothing anywhere: its content policy forbids every request.
"""

from __future__ import annotations

import gzip
import html
from base64 import b64encode

from safeswap.charts.payload import NOTEBOOK, PAGE, map_payload
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.scripts import chart_asset, chart_fragment, chart_page
from safeswap.charts.static_map import map_figure, map_png, map_svg

__all__ = ["POLICY", "map_figure", "map_fragment", "map_html", "map_png", "map_svg"]

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)
"""What a page with a map may do. Plotly compiles its WebGL drawing when it runs, hence the allowance for that."""


def map_html(
    study: StudyLike,
    *,
    choice: ChoiceLike | None = None,
    risk: str | None = None,
    distortion: str | None = None,
    title: str = "",
    standalone: bool = True,
) -> str:
    """The interactive map: a whole page, or with ``standalone=False`` an element for the output of a notebook.

    ``risk`` and ``distortion`` are the axes that it opens with; the others can be picked in the page. ``choice`` is
    ringed and shown in detail.

    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.search.run import run_study
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
    choice: ChoiceLike | None = None,
    risk: str | None = None,
    distortion: str | None = None,
) -> str:
    """The map as a part of another page, which brings the colours of :func:`safeswap.charts.theme.css_variables`."""
    return chart_fragment("map", map_payload(study, choice=choice, risk=risk, distortion=distortion))


def study_sentence(study: StudyLike) -> str:
    """What was tried, in one sentence."""
    import pyarrow.compute as pc

    rejected = pc.sum(pc.not_equal(study.table.column("reason"), "")).as_py() or 0
    draws = f", {study.spec.replicates:,} draws of each" if study.spec.replicates > 1 else ""
    some = f"; {rejected:,} could not be made" if rejected else ""
    return (
        f"{len(study.specs):,} specifications{draws}: {study.table.num_rows:,} candidates on "
        f"{study.facts['records']:,} records{some}."
    )


def _notebook_element(page: str, sentence: str) -> str:
    """A frame that unpacks the page in itself.

    A frame, since notebooks run no script that is inserted as text and share one style among all outputs; packed,
    since a notebook server drops a message of more than about 3 MB.
    """
    packed = b64encode(gzip.compress(page.encode(), mtime=0)).decode()
    loader = chart_asset("notebook_frame.html").replace("{{ packed }}", packed)
    return (
        f"<p>{html.escape(sentence)}</p>"
        f'<iframe title="Risk-utility map" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:56rem;border:0" srcdoc="{html.escape(loader)}"></iframe>'
    )
