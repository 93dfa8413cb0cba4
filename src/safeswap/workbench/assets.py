"""Assets of the pages: our own styles and scripts, the charts' scripts, and Plotly from its package.

Their common address contains a hash of their contents, so browsers cache them forever and a new version has a new
address. A page has one style sheet and one script, bundled from their parts, and a chart has Plotly: requesting two
dozen small files takes a browser longer than reading them. Files worth compressing are compressed once.
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

# The modules of a page are bundled into one file. Each becomes a function that is called once and returns its exports,
# after the modules that it imports; the page's own module comes last.
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_EXPORTED = re.compile(r"^export \{ ([\w, ]+) \};$", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b", re.MULTILINE)


def bundle(name: str, modules: Mapping[str, str]) -> str:
    """Bundle a module with all that it imports, directly or not.

    >>> modules = {"page": 'import { one as first } from "./one.js";\\nshow(first);', "one": "export const one = 1;"}
    >>> print(bundle("page", modules))
    const $one = (() => {
    const one = 1;
    return { one };
    })();
    const { one: first } = $one;
    show(first);
    """
    *needed, last = _sort_imports(name, modules, ())
    plain = {each: _strip_module(each, modules[each]) for each in (*needed, last)}
    _check_exports(plain, modules)
    parts = []
    for each in needed:
        body, given = plain[each]
        parts.append(f"const {_variable(each)} = (() => {{\n{body}\nreturn {{ {', '.join(given)} }};\n}})();")
    return "\n".join([*parts, plain[last][0]])


def _sort_imports(name: str, modules: Mapping[str, str], above: tuple[str, ...]) -> list[str]:
    if name in above:
        raise ValueError(f"circular import: {', '.join((*above, name))}")
    found: list[str] = []
    for _, needed in _IMPORT.findall(modules[name]):
        found += [each for each in _sort_imports(needed, modules, (*above, name)) if each not in found]
    return [*found, name]


def _strip_module(name: str, text: str) -> tuple[str, list[str]]:
    """Return a module without import and export statements, and the names that it exports."""
    given = _EXPORT.findall(text) + [each for names in _EXPORTED.findall(text) for each in names.split(", ")]
    text = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = {_variable(found[2])};", text)
    text = _EXPORTED.sub("", _EXPORT.sub("", text))
    if _OTHER.search(text):
        raise ValueError(f"{name}.js imports or exports in a way that cannot be bundled")
    return text, given


def _check_exports(plain: Mapping[str, tuple[str, list[str]]], modules: Mapping[str, str]) -> None:
    """Check that every imported name is exported; otherwise it would be undefined in the browser."""
    for each in plain:
        for names, source in _IMPORT.findall(modules[each]):
            if lacking := {name.split(" as ")[0] for name in names.split(", ")} - set(plain[source][1]):
                raise ValueError(f"{each}.js imports {', '.join(sorted(lacking))}, which {source}.js does not export")


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
    """One file as it is sent, plain and compressed."""

    plain: bytes
    compressed: dict[str, bytes]
    media_type: str


@cache
def assets() -> dict[str, bytes]:
    """Return every file except Plotly, by its path.

    >>> {"js/map.js", "css/map.css", "css/workbench.css", "css/mark.svg"} <= set(assets())
    True
    """
    own, charts = _read_static(), chart_modules()
    modules = {name[3:-3]: text for name, text in {**own, **charts}.items() if name.startswith("js/")}
    style = _theme_css() + own["css/workbench.css"]
    found = {
        "css/mark.svg": own["css/mark.svg"],
        "css/workbench.css": style,
        **{name: style + text for name, text in charts.items() if name.startswith("css/")},
        **{f"js/{name}.js": bundle(name, modules) for name in modules},
    }
    return {name: text.encode() for name, text in found.items()}


@cache
def build() -> str:
    """Return a hash of the contents of all files."""
    from plotly import __version__ as plotly_version

    from safeswap import __version__

    # Plotly's script follows from its version and ours; making it would delay a page.
    digest = hashlib.sha256(f"{plotly_version} {__version__} {sorted(KINDS)} {sorted(TRIED)}".encode())
    for name, content in sorted(assets().items()):
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


@cache
def compress_ahead() -> Thread:
    """Compress the largest file in the background, before it is requested."""
    thread = Thread(target=asset, args=(_PLOTLY,), daemon=True)
    thread.start()
    return thread


@cache
def asset(name: str) -> Asset | None:
    """Return one file, or None if there is none of that name."""
    content = plotly_script().encode() if name == _PLOTLY else assets().get(name)
    if content is None:
        return None
    compressed = _compress(content) if len(content) > _WORTH_COMPRESSING else {}
    return Asset(plain=content, compressed=compressed, media_type=_TYPES[name.rpartition(".")[2]])


def _compress(content: bytes) -> dict[str, bytes]:
    """Compress by each encoding, the better first: Zstandard takes a browser half the time, at every load."""
    zstd = pa.Codec("zstd", compression_level=9).compress(content, asbytes=True)
    return {"zstd": zstd, "gzip": gzip.compress(content, 9, mtime=0)}


@router.get("/assets/{version}/{name:path}")
def get_asset(
    request: Request,
    version: Annotated[str, Path(max_length=32)],
    name: Annotated[str, Path(max_length=100)],
) -> Response:
    """Return one file of the current version; an outdated page gets an error."""
    if name == _PLOTLY:
        compress_ahead().join()
    found = asset(name) if version == build() else None
    if found is None:
        raise NotFound("there is no such file", hint="reload the page")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    accepted = request.headers.get("accept-encoding", "")
    for encoding, content in found.compressed.items():
        if encoding in accepted:
            return Response(content, media_type=found.media_type, headers={**headers, "Content-Encoding": encoding})
    return Response(found.plain, media_type=found.media_type, headers=headers)


def _read_static() -> dict[str, str]:
    """Read our own files, by folder and name."""
    static = files("safeswap.workbench") / "static"
    return {
        f"{folder.name}/{file.name}": file.read_text("utf-8")
        for folder in static.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _TYPES
    }


def _theme_css() -> str:
    """Return the chart colours as CSS variables; they follow the system's theme unless the user chose one."""
    light, dark = css_declarations(LIGHT), css_declarations(DARK)
    return (
        f':root {{ color-scheme: light; {light} }}\n:root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ color-scheme: dark; {dark} }} }}\n'
    )
