"""The files of the pages: style and scripts of our own, the charts' scripts, and Plotly from its package.

All lie below one address that holds a hash of their contents, so a browser keeps them for good and a new version has
another address. A page has one style and one script, into which their parts are joined, and a chart has Plotly: to ask
for two dozen small files takes a browser longer than to read them. What is worth compressing is compressed once.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Thread
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Path, Request, Response

from safeswap.charts.plotly_script import KINDS, TRIED, plotly_script
from safeswap.charts.scripts import chart_modules
from safeswap.charts.theme import DARK, LIGHT, css_declarations
from safeswap.service.problems import NotFound
from safeswap.workbench.joining import joined

router = APIRouter()

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PLOTLY = "js/plotly.js"
_WORTH_COMPRESSING = 1024


@dataclass(frozen=True)
class Asset:
    """One file as it is sent: as it is, and compressed."""

    plain: bytes
    packed: dict[str, bytes]
    media_type: str


@cache
def served() -> dict[str, bytes]:
    """Every file but Plotly by its name below the address.

    >>> {"js/map.js", "css/map.css", "css/workbench.css", "css/mark.svg"} <= set(served())
    True
    """
    own, charts = _own(), chart_modules()
    modules = {name[3:-3]: text for name, text in {**own, **charts}.items() if name.startswith("js/")}
    style = _theme() + own["css/workbench.css"]
    found = {
        "css/mark.svg": own["css/mark.svg"],
        "css/workbench.css": style,
        **{name: style + text for name, text in charts.items() if name.startswith("css/")},
        **{f"js/{name}.js": joined(name, modules) for name in modules},
    }
    return {name: text.encode() for name, text in found.items()}


@cache
def build() -> str:
    """A name for the contents of all files together."""
    from plotly import __version__ as plotly_version

    from safeswap import __version__

    # What is sent of Plotly follows from its version and ours; to make it takes longer than a page should.
    digest = hashlib.sha256(f"{plotly_version} {__version__} {sorted(KINDS)} {sorted(TRIED)}".encode())
    for name, content in sorted(served().items()):
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


@cache
def pack_ahead() -> Thread:
    """Compress the largest file before somebody asks for it, beside other work."""
    packing = Thread(target=asset, args=(_PLOTLY,), daemon=True)
    packing.start()
    return packing


@cache
def asset(name: str) -> Asset | None:
    """One file, or None where there is none of that name."""
    content = plotly_script().encode() if name == _PLOTLY else served().get(name)
    if content is None:
        return None
    packed = _packed(content) if len(content) > _WORTH_COMPRESSING else {}
    return Asset(plain=content, packed=packed, media_type=_TYPES[name.rpartition(".")[2]])


def _packed(content: bytes) -> dict[str, bytes]:
    """By the name of the encoding, the better one first: Zstandard takes a browser half the time, at every load."""
    zstd = pa.Codec("zstd", compression_level=9).compress(content, asbytes=True)
    return {"zstd": zstd, "gzip": gzip.compress(content, 9, mtime=0)}


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
    understood = request.headers.get("accept-encoding", "")
    for encoding, content in found.packed.items():
        if encoding in understood:
            return Response(content, media_type=found.media_type, headers={**headers, "Content-Encoding": encoding})
    return Response(found.plain, media_type=found.media_type, headers=headers)


def _own() -> dict[str, str]:
    """Our files as they are written, by folder and name."""
    static = files("safeswap.workbench") / "static"
    return {
        f"{folder.name}/{file.name}": file.read_text("utf-8")
        for folder in static.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _TYPES
    }


def _theme() -> str:
    """The colours of the charts as variables: of the reader's system, unless she has chosen otherwise."""
    light, dark = css_declarations(LIGHT), css_declarations(DARK)
    return (
        f':root {{ color-scheme: light; {light} }}\n:root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ color-scheme: dark; {dark} }} }}\n'
    )
