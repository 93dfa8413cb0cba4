"""The pages: shells in which scripts show what the interface answers. None of them holds data."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Cookie, Depends, Path, Response

from safeswap.service.people.roles import allow
from safeswap.service.work.results import LATEST
from safeswap.workbench.assets import build, pack_ahead, served

router = APIRouter(dependencies=[Depends(allow("public"))])

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Plotly writes style attributes and sheets as it draws; scripts come from files here as everywhere.
CHART_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
# Above about 1,000 points the map is drawn by WebGL, whose library makes functions from text of its own.
MAP_POLICY = CHART_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")

STEPS = (
    ("data", "Data", "What is in the file"),
    ("risk", "Risk", "Which combinations give somebody away"),
    ("method", "Method", "How it is to be masked"),
    ("map", "Map", "Risk against utility of many candidates"),
    ("records", "Records", "Where each record stands"),
    ("release", "Release", "What leaves, and who agrees"),
)
"""The screens in their order: name in the address, title, and what it is for."""

CHARTS = {"map": "map", "records": "confidentiality"}
"""Screens with a chart, and the chart."""

SHOWN = {"map": "/studies/{}/map", "records": "/confidentiality/{}/plot"}
"""What a chart shows, below the address of the project."""

FIRST = {"map": ("/studies?limit=200",), "records": ("/confidentiality?limit=200", "/maskings?limit=200")}
"""What the script of a screen with a chart asks for besides that."""

Identifier = Annotated[str, Path(max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]
# Which colours the reader has chosen, if she has: known before anything is drawn, and no secret.
Theme = Annotated[str, Cookie(alias="safeswap-theme")]


@router.get("/")
def projects_page(theme: Theme = "") -> Response:
    """The list of projects."""
    return _page("projects", "Projects", theme=theme)


@router.get("/log-in")
def log_in_page(theme: Theme = "") -> Response:
    """Name and password, or the agency's own log-in."""
    return _page("log-in", "Log in", theme=theme)


@router.get("/open")
def open_page(theme: Theme = "") -> Response:
    """Takes the token of a service for one person from the address, and opens her project."""
    return _page("open", "Opening", theme=theme)


@router.get("/projects/{project_id}/log")
def log_page(project_id: Identifier, theme: Theme = "") -> Response:
    """The session log."""
    return _page("log", "Session log", project_id, theme=theme)


@router.get("/projects/{project_id}/results/{result_id}")
def result_page(project_id: Identifier, result_id: Identifier, theme: Theme = "") -> Response:
    """What one masking did."""
    return _page("result", "Result", project_id, result_id, theme=theme)


@router.get("/projects/{project_id}/{screen}")
def step_page(
    project_id: Identifier,
    screen: Annotated[str, Path(pattern="^(data|risk|method|map|records|release|tables)$")],
    *,
    study: str = "",
    plot: str = "",
    masking: str = "",
    theme: Theme = "",
) -> Response:
    """One of the six steps, or the tables beside them; with a chart of the newest study or plot, or of a stated one."""
    title = next((title for name, title, _ in STEPS if name == screen), "Tables")
    stated = study if screen == "map" else plot
    # Which plot is a masking's, only the list of plots tells.
    return _page(screen, title, project_id, shown=stated or ("" if masking else LATEST), theme=theme)


def _page(
    screen: str, title: str, project_id: str = "", result_id: str = "", *, shown: str = "", theme: str = ""
) -> Response:
    pack_ahead()
    chart = CHARTS.get(screen)
    text = (
        _templates()
        .get_template(f"{screen}.html")
        .render(
            screen=screen,
            title=title,
            build=build(),
            mark=_mark(),
            theme=theme if theme in {"light", "dark"} else "",
            asked=_asked(screen, project_id, shown),
            project_id=project_id,
            result_id=result_id,
            steps=STEPS if project_id else (),
            chart=chart,
            chart_body=_chart_body(chart),
        )
    )
    policy = MAP_POLICY if screen == "map" else CHART_POLICY if chart else POLICY
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def _asked(screen: str, project_id: str, shown: str) -> tuple[str, ...]:
    """Addresses of the interface that the browser asks while it still reads the page; the answers wait.

    >>> _asked("map", "p1", "latest")[1:3]
    ('/api/v1/projects/p1', '/api/v1/projects/p1/studies/latest/map')
    """
    if screen not in FIRST:
        return ()
    chart = (SHOWN[screen].format(quote(shown, safe="")),) if shown else ()
    return ("/api/v1/session", *(f"/api/v1/projects/{project_id}{path}" for path in ("", *chart, *FIRST[screen])))


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("safeswap.workbench", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def _mark() -> Any:
    from markupsafe import Markup

    return Markup(served()["css/mark.svg"].decode())  # noqa: S704  (a file of ours)


@cache
def _chart_body(chart: str | None) -> Any:
    from markupsafe import Markup

    from safeswap.charts.scripts import chart_body

    return Markup(chart_body(chart)) if chart else ""  # noqa: S704  (a file of ours, without data)
