"""The scripts of the interactive charts: inlined in a page, or as modules for pages that load them.

Plotly is trimmed to what our charts use. The package brings four dozen trace types in one script, registers them in
its last statement, and a browser sets all of them up at every page load. We remove the types we do not use from that
statement, and then every part that nothing calls any more: two thirds of the script. Pages and notebook outputs shrink
to a third.

The parts are found by the form of the script. Removing a type from the list is safe in any version; that only unused
parts are cut was tested in a browser for the versions in ``TRIED``, and no other version is cut.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from safeswap.charts.theme import css_variables

KINDS = frozenset({"scatter", "scattergl", "heatmap"})
"""The trace types that our charts use."""

TRIED = frozenset({"3.7.0"})
"""Versions of plotly.js whose trimmed form passed the tests in a browser."""

# The script is a sequence of parts `var name=once((exports,module)=>{…});`, called as `name()`.
_PART = re.compile(r"(?<=[;}])var ([\w$]+)=([\w$]+)\((?:\([\w$,]*\)|[\w$]+)=>\{")
_CALLED = re.compile(r"[\w$]+(?=\(\))")
# The last part registers the trace types: core.register([bar(),box(),heatmap(),…]).
_REGISTERED = re.compile(r"(?<=\.register\(\[)(?:[\w$]+\(\),){9,}[\w$]+\(\)(?=\]\))")
_KIND = re.compile(r'moduleType:"\w+",name:"(\w+)"')


@cache
def plotly_script() -> str:
    """Return Plotly trimmed for our charts, in ASCII.

    >>> plotly_script().isascii()
    True
    """
    from plotly.offline import get_plotlyjs

    text = keep_kinds(get_plotlyjs(), KINDS)
    version = re.search(r"plotly\.js v([\d.]+)", text)
    return to_ascii(remove_unused(text) if version and version[1] in TRIED else text)


def keep_kinds(text: str, kinds: frozenset[str]) -> str:
    """Remove all named trace types except ``kinds``; return a script of another form unchanged.

    >>> part = 'var {0}=m((e,o)=>{{o.exports={{moduleType:"trace",name:"kind_{0}"}}}});'
    >>> bundle = ";" + "".join(part.format(name) for name in "abcdefghijk")
    >>> bundle += "var z=m((e,o)=>{core.register([a(),b(),c(),d(),e(),f(),g(),h(),i(),j(),k()])});"
    >>> print(keep_kinds(bundle, frozenset({"kind_b", "kind_f"})).rpartition("var ")[2])
    z=m((e,o)=>{core.register([b(),f()])});
    """
    lists, parts = list(_REGISTERED.finditer(text)), _parts(text)
    found = {call: _kind(parts, call.removesuffix("()")) for each in lists for call in each[0].split(",")}
    # The scatter is in Plotly's core and not in the list; the others must be.
    if len(lists) != 1 or not kinds - {"scatter"} <= set(found.values()):
        return text
    kept = [call for call, kind in found.items() if kind is None or kind in kinds]
    return text[: lists[0].start()] + ",".join(kept) + text[lists[0].end() :]


def _kind(parts: dict[str, str], name: str) -> str | None:
    """Return the trace type that a part sets up; if it does not say, that of the part it calls first."""
    for _ in range(3):
        part = parts.get(name, "")
        if kind := _KIND.search(part):
            return kind[1]
        if (called := _CALLED.search(part)) is None:
            return None
        name = called[0]
    return None


def remove_unused(text: str) -> str:
    """Remove the parts that the last part does not need, directly or indirectly.

    >>> remove_unused(";var a=m((e,o)=>{1});var b=m((e,o)=>{2});var c=m((e,o)=>{a()});return c()")
    ';var a=m((e,o)=>{1});var c=m((e,o)=>{a()});return c()'
    """
    parts = _parts(text)
    start = len(text) - sum(map(len, parts.values()))
    # A text that does not end like a part is followed by code outside any part.
    needed = {name for name, part in parts.items() if not part.endswith("});")}
    waiting = [text[:start], *(parts[name] for name in needed)]
    while waiting:
        called = parts.keys() & set(_CALLED.findall(waiting.pop()))
        waiting += [parts[name] for name in called - needed]
        needed |= called
    return text[:start] + "".join(part for name, part in parts.items() if name in needed)


def _parts(text: str) -> dict[str, str]:
    """Return the parts of the script by name, in order, each up to the next. Shared code precedes the first."""
    all_heads = list(_PART.finditer(text))
    heads = [head for head in all_heads if head[2] == all_heads[-1][2]]
    places = pairwise([*(head.start() for head in heads), len(text)])
    return {head[1]: text[start:end] for head, (start, end) in zip(heads, places, strict=True)}


def to_ascii(text: str) -> str:
    r"""Escape the few non-ASCII characters of the script, all in patterns and strings.

    A single one would make a browser store every character in two bytes, and read the script more slowly.

    >>> to_ascii("'µ𝄞'")
    "'\\u00b5\\ud834\\udd1e'"
    """
    return re.sub(r"[^\x00-\x7f]", lambda sign: _escape(sign[0]), text)


def _escape(sign: str) -> str:
    return "".join(f"\\u{unit}" for unit in sign.encode("utf-16-be").hex(" ", 2).split())


COMMON = ("numbers.js", "common.js")
VIEWS = {
    "map": (*COMMON, "figures.js", "plot.js", "panels.js", "start.js"),
    "confidentiality": (*COMMON, "confidentiality_figures.js", "confidentiality.js"),
}
"""The scripts of each chart, in order."""


@cache
def chart_asset(name: str) -> str:
    """Read one asset of a chart."""
    return files("safeswap.charts").joinpath("assets", name).read_text("utf-8")


def chart_fragment(view: str, payload: dict[str, Any]) -> str:
    """Return a chart with everything it needs, Plotly included, as part of a page that has the colours."""
    own = "\n".join(chart_asset(name) for name in VIEWS[view])
    return (
        f"<style>\n{chart_asset(f'{view}.css')}</style>\n<div>\n{chart_body(view)}"
        f'<script type="application/json">{as_json(payload)}</script>\n</div>\n'
        f'<script>{plotly_script()}</script>\n<script>\n(function () {{\n"use strict";\n{own}}})();\n</script>\n'
    )


def chart_page(fragment: str, *, title: str, lead: str, policy: str, for_release: bool) -> str:
    """Return a page with the colours around a fragment."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    rendered: str = environment.from_string(chart_asset("map_page.html")).render(
        title=title, lead=lead, policy=policy, for_release=for_release, colours=css_variables(), fragment=fragment
    )
    return rendered


def chart_modules() -> dict[str, str]:
    """Return a module that exports ``start(root, payload)`` and a style sheet per chart, and the number formats.

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
    """Return the elements of a chart, without data.

    >>> chart_body("map").startswith("<section class=\\"safeswap-map\\"")
    True
    """
    return chart_asset(f"{view}_body.html")


def as_json(values: Any) -> str:
    """Encode JSON that is safe inside a script element: no ``<``, ``>`` or ``&``, no JavaScript line separator.

    >>> print(as_json({"name": "</script><b>"}))
    {"name":"\\u003c/script\\u003e\\u003cb\\u003e"}
    """
    text = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
