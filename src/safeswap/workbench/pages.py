"""The pages: shells that scripts fill with the answers of the API. None of them contains data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Cookie, Depends, Path, Response

from safeswap.service.people.roles import allow
from safeswap.service.routes.jobs import LATEST
from safeswap.workbench.assets import assets, build, compress_ahead

router = APIRouter(dependencies=[Depends(allow("public"))])

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Plotly adds style attributes and sheets as it draws; scripts still come from files only.
CHART_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
# Above about 1,000 points the map is drawn with WebGL, whose library compiles functions from its own text.
MAP_POLICY = CHART_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")

STEPS = (
    ("data", "Data", "Contents of the file"),
    ("risk", "Risk", "Combinations that could identify a person"),
    ("method", "Pipeline", "The steps of the masking: recode, blank, swap"),
    ("map", "Map", "Risk and utility of many candidates"),
    ("records", "Records", "Confidentiality of each record"),
    ("release", "Release", "Review and approval for publication"),
)
"""The screens in order: name in the address, title and purpose."""

ROOMS = (
    ("households", "Households", "Who lives together, and swapping whole households"),
    ("indicators", "Indicators", "What users compute, before and after"),
    ("attacks", "Attacks", "What an intruder would try"),
    ("tables", "Tables", "Check tables for publication, and make them safe"),
)
"""Screens beside the steps."""

CHARTS = {"map": "map", "records": "confidentiality"}
"""The chart of each screen that has one."""

PAYLOADS = {"map": "/studies/{}/map", "records": "/confidentiality/{}/plot"}
"""Paths of the chart data, below the address of the project."""

LISTS = {
    "map": ("/studies?limit=200", "/settings"),
    "records": ("/confidentiality?limit=200", "/maskings?limit=200", "/settings"),
}
"""Paths of the lists that a screen with a chart requests as well."""

HELP = {
    "tour": "A tour in ten minutes",
    "projects": "The start page",
    **{name: title for name, title, _ in STEPS},
    "result": "Result",
    **{name: title for name, title, _ in ROOMS},
    "log": "Session log",
}
"""The pages of help: one for each screen, and a tour."""

Identifier = Annotated[str, Path(max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]
# The chosen colour theme, if any: a cookie, so that it is known before anything is drawn.
Theme = Annotated[str, Cookie(alias="safeswap-theme")]


@router.get("/")
def projects_page(theme: Theme = "") -> Response:
    """Return the list of projects."""
    return _page("projects", "Projects", theme=theme)


@router.get("/log-in")
def log_in_page(theme: Theme = "") -> Response:
    """Return the page for logging in, by password or through the agency."""
    return _page("log-in", "Log in", theme=theme)


@router.get("/open")
def open_page(theme: Theme = "") -> Response:
    """Return the page that redeems the token of a single-user service and opens the project."""
    return _page("open", "Opening", theme=theme)


@router.get("/help/{topic}")
def help_page(topic: Annotated[str, Path(pattern=f"^({'|'.join(HELP)})$")], theme: Theme = "") -> Response:
    """Return the help on one screen."""
    return _page("help", f"Help: {HELP[topic]}", theme=theme, topic=topic)


@router.get("/projects/{project_id}/log")
def log_page(project_id: Identifier, theme: Theme = "") -> Response:
    """Return the session log."""
    return _page("log", "Session log", project_id, theme=theme)


@router.get("/projects/{project_id}/results/{result_id}")
def result_page(project_id: Identifier, result_id: Identifier, theme: Theme = "") -> Response:
    """Return the result of one masking."""
    return _page("result", "Result", project_id, result_id, theme=theme)


@router.get("/projects/{project_id}/{screen}")
def step_page(
    project_id: Identifier,
    screen: Annotated[str, Path(pattern=f"^({'|'.join(name for name, _, _ in (*STEPS, *ROOMS))})$")],
    *,
    study: str = "",
    plot: str = "",
    masking: str = "",
    theme: Theme = "",
) -> Response:
    """Return one of the six steps or of the other rooms; charts show the latest study or plot unless one is named."""
    title = next(title for name, title, _ in (*STEPS, *ROOMS) if name == screen)
    stated = study if screen == "map" else plot
    # Only the list of plots tells which plot belongs to a masking.
    return _page(screen, title, project_id, shown=stated or ("" if masking else LATEST), theme=theme)


def _page(
    screen: str,
    title: str,
    project_id: str = "",
    result_id: str = "",
    *,
    shown: str = "",
    theme: str = "",
    topic: str = "",
) -> Response:
    compress_ahead()
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
            preloads=_preloads(screen, project_id, shown),
            project_id=project_id,
            result_id=result_id,
            steps=STEPS if project_id else (),
            rooms=ROOMS,
            chart=chart,
            chart_body=_chart_body(chart),
            help=topic or (screen if screen in HELP else "tour"),
            topics=HELP,
            help_text=_help_text(topic) if topic else "",
        )
    )
    policy = MAP_POLICY if screen == "map" else CHART_POLICY if chart else POLICY
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def _preloads(screen: str, project_id: str, shown: str) -> tuple[str, ...]:
    """Return the API addresses that the browser fetches while it still parses the page.

    >>> _preloads("map", "p1", "latest")[1:3]
    ('/api/v1/projects/p1', '/api/v1/projects/p1/studies/latest/map')
    """
    if screen not in LISTS:
        return ()
    chart = (PAYLOADS[screen].format(quote(shown, safe="")),) if shown else ()
    return ("/api/v1/session", *(f"/api/v1/projects/{project_id}{path}" for path in ("", *chart, *LISTS[screen])))


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("safeswap.workbench", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def _mark() -> Any:
    from markupsafe import Markup

    return Markup(assets()["css/mark.svg"].decode())  # noqa: S704  (our own file)


@cache
def _help_text(topic: str) -> Any:
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    text = (files("safeswap.workbench") / "help" / f"{topic}.md").read_text(encoding="utf-8")
    return Markup(MarkdownIt("commonmark").enable("table").render(text))  # noqa: S704  (our own file)


@cache
def _chart_body(chart: str | None) -> Any:
    from markupsafe import Markup

    from safeswap.charts.scripts import chart_body

    return Markup(chart_body(chart)) if chart else ""  # noqa: S704  (our own file, without data)
