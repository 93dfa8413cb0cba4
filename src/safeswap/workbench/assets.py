"""The files of the pages: style and scripts of our own, the charts' scripts, and Plotly from its package.

All lie below one address that holds a hash of their contents, so a browser keeps them for good and a new version has
another address. What is worth compressing is compressed once.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Thread
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from safeswap.charts.theme import DARK, LIGHT, css_declarations
from safeswap.service.problems import NotFound

router = APIRouter()

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PLOTLY = "js/plotly.js"
_WORTH_COMPRESSING = 1024
_IMPORT = re.compile(rb'^import [^"]*"\./([\w-]+\.js)";$', re.MULTILINE)


@dataclass(frozen=True)
class Asset:
    """One file as it is sent: as it is, and compressed."""

    plain: bytes
    packed: bytes | None
    media_type: str


@cache
def sources() -> dict[str, bytes]:
    """Every file but Plotly by its name below the address."""
    static = files("safeswap.workbench") / "static"
    found = {
        f"{folder.name}/{file.name}": file.read_bytes()
        for folder in static.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _TYPES
    }
    return {**found, "css/theme.css": _theme().encode(), **_charts()}


@cache
def build() -> str:
    """A name for the contents of all files together."""
    from plotly import __version__ as plotly_version

    digest = hashlib.sha256(plotly_version.encode())
    for name, content in sorted(sources().items()):
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


@cache
def modules_of(name: str) -> tuple[str, ...]:
    """A module and all that it needs, directly or not: a page names them, so that none waits for another to be read.

    >>> modules_of("js/bars.js")
    ('js/bars.js', 'js/dom.js')
    """
    found, waiting = set[str](), [name]
    while waiting:
        found.add(each := waiting.pop())
        needed = {f"js/{other.decode()}" for other in _IMPORT.findall(sources()[each])}
        waiting.extend(needed - found)
    return tuple(sorted(found))


@cache
def pack_ahead() -> Thread:
    """Compress the largest file before somebody asks for it, beside other work."""
    packing = Thread(target=asset, args=(_PLOTLY,), daemon=True)
    packing.start()
    return packing


@cache
def asset(name: str) -> Asset | None:
    """One file, or None where there is none of that name."""
    content = _plotly() if name == _PLOTLY else sources().get(name)
    if content is None:
        return None
    packed = gzip.compress(content, 9, mtime=0) if len(content) > _WORTH_COMPRESSING else None
    return Asset(plain=content, packed=packed, media_type=_TYPES[name.rpartition(".")[2]])


@router.get("/assets/{version}/{name:path}")
def get_asset(
    request: Request,
    version: Annotated[str, Path(max_length=32)],
    name: Annotated[str, Path(max_length=100)],
) -> Response:
    """One file. Of another version than the one in use there is none: the page that asked for it is an old one."""
    if name == _PLOTLY:
        pack_ahead().join()
    found = asset(name) if version == build() else None
    if found is None:
        raise NotFound("there is no such file", hint="load the page anew")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, media_type=found.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.plain, media_type=found.media_type, headers=headers)


def _theme() -> str:
    """The colours of the charts as variables: of the reader's system, unless she has chosen otherwise."""
    light, dark = css_declarations(LIGHT), css_declarations(DARK)
    return (
        f':root {{ color-scheme: light; {light} }}\n:root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ color-scheme: dark; {dark} }} }}\n'
    )


def _charts() -> dict[str, bytes]:
    """The scripts of the offline charts as modules: the same code draws a report and the workbench."""
    from safeswap.charts.scripts import chart_modules

    return {name: content.encode() for name, content in chart_modules().items()}


def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()
