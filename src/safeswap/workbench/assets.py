"""The files of the pages: style and scripts of our own, the charts' scripts, and Plotly from its package.

All lie below one address that holds a hash of their contents, so a browser keeps them for good and a new version has
another address. A page has one style and one script, into which their parts are joined, and a chart has Plotly: to ask
for two dozen small files takes a browser longer than to read them. What is worth compressing is compressed once.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Thread
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Path, Request, Response

from safeswap.charts.scripts import KINDS, TRIED, chart_modules, plotly_script
from safeswap.charts.theme import DARK, LIGHT, css_declarations
from safeswap.service.http.problems import NotFound

# The modules of a page as one file: a browser asks for it once, and not once for each module.
#
# Each module stays what it is, a file with a scope of its own that says what it needs and what it gives. Joined, it
# is a function that is called once and returns what it gives, after those that it needs; the page's own module comes
# last.

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_EXPORTED = re.compile(r"^export \{ ([\w, ]+) \};$", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b", re.MULTILINE)


def joined(name: str, modules: Mapping[str, str]) -> str:
    """The module of this name after all that it needs, directly or not.

    >>> modules = {"page": 'import { one as first } from "./one.js";\\nshow(first);', "one": "export const one = 1;"}
    >>> print(joined("page", modules))
    const $one = (() => {
    const one = 1;
    return { one };
    })();
    const { one: first } = $one;
    show(first);
    """
    *needed, last = _in_order(name, modules, ())
    plain = {each: _plain(each, modules[each]) for each in (*needed, last)}
    _check_given(plain, modules)
    parts = []
    for each in needed:
        body, given = plain[each]
        parts.append(f"const {_variable(each)} = (() => {{\n{body}\nreturn {{ {', '.join(given)} }};\n}})();")
    return "\n".join([*parts, plain[last][0]])


def _in_order(name: str, modules: Mapping[str, str], above: tuple[str, ...]) -> list[str]:
    if name in above:
        raise ValueError(f"modules need each other: {', '.join((*above, name))}")
    found: list[str] = []
    for _, needed in _IMPORT.findall(modules[name]):
        found += [each for each in _in_order(needed, modules, (*above, name)) if each not in found]
    return [*found, name]


def _plain(name: str, text: str) -> tuple[str, list[str]]:
    """A module without its imports and exports, and the names that it gives."""
    given = _EXPORT.findall(text) + [each for names in _EXPORTED.findall(text) for each in names.split(", ")]
    text = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = {_variable(found[2])};", text)
    text = _EXPORTED.sub("", _EXPORT.sub("", text))
    if _OTHER.search(text):
        raise ValueError(f"{name}.js imports or exports in a way that cannot be joined")
    return text, given


def _check_given(plain: Mapping[str, tuple[str, list[str]]], modules: Mapping[str, str]) -> None:
    """Else a name that a module does not give, or not in a way that is seen here, would be undefined in the browser."""
    for each in plain:
        for names, source in _IMPORT.findall(modules[each]):
            if lacking := {name.split(" as ")[0] for name in names.split(", ")} - set(plain[source][1]):
                raise ValueError(f"{each}.js needs {', '.join(sorted(lacking))}, which {source}.js does not give")


def _variable(name: str) -> str:
    return "$" + name.replace("-", "_")


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
