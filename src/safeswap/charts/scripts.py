"""The scripts of the interactive charts: within a page that holds them, or as modules for pages that load them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from safeswap.charts.payload import as_json
from safeswap.charts.theme import css_variables

# Plotly as our pages have it: the installed package's own text, as far as our charts need it.
#
# The package brings four dozen kinds of chart in one script: maps of the world, volumes, calendars. They are made
# known in its last statement, each is set up when it is, and a browser does that at every load of a page. So those
# that are not ours are left out of that statement, and then whatever nothing calls any more: two thirds of the
# script. A page on a disk is a third as large for it, and so is the output of a notebook.
#
# What is left out is found by the form that the script has. To leave a kind out of the list is safe in any version;
# that nothing but unused parts is cut was tried in a browser for the versions named here, and no other is cut.

KINDS = frozenset({"scatter", "scattergl", "heatmap"})
"""The kinds of trace that our charts draw."""

TRIED = frozenset({"3.7.0"})
"""Versions of plotly.js whose cut form has passed the tests in a browser."""

# Parts follow each other as `var name=once((exports,module)=>{…});` and are called as `name()` where they are needed.
_PART = re.compile(r"(?<=[;}])var ([\w$]+)=([\w$]+)\((?:\([\w$,]*\)|[\w$]+)=>\{")
_CALLED = re.compile(r"[\w$]+(?=\(\))")
# The last part has the kinds made known: core.register([bar(),box(),heatmap(),…]).
_MADE_KNOWN = re.compile(r"(?<=\.register\(\[)(?:[\w$]+\(\),){9,}[\w$]+\(\)(?=\]\))")
_KIND = re.compile(r'moduleType:"\w+",name:"(\w+)"')


@cache
def plotly_script() -> str:
    """The text of Plotly for our charts, in ASCII.

    >>> plotly_script().isascii()
    True
    """
    from plotly.offline import get_plotlyjs

    text = with_kinds(get_plotlyjs(), KINDS)
    version = re.search(r"plotly\.js v([\d.]+)", text)
    return in_ascii(without_unused(text) if version and version[1] in TRIED else text)


def with_kinds(text: str, kinds: frozenset[str]) -> str:
    """The script without the kinds of chart that are known by name and not wanted; as it is if it is unlike Plotly's.

    >>> part = 'var {0}=m((e,o)=>{{o.exports={{moduleType:"trace",name:"kind_{0}"}}}});'
    >>> bundle = ";" + "".join(part.format(name) for name in "abcdefghijk")
    >>> bundle += "var z=m((e,o)=>{core.register([a(),b(),c(),d(),e(),f(),g(),h(),i(),j(),k()])});"
    >>> print(with_kinds(bundle, frozenset({"kind_b", "kind_f"})).rpartition("var ")[2])
    z=m((e,o)=>{core.register([b(),f()])});
    """
    lists, parts = list(_MADE_KNOWN.finditer(text)), _parts(text)
    told = {call: _kind(parts, call.removesuffix("()")) for found in lists for call in found[0].split(",")}
    # One kind, the scatter, is in Plotly's core and not in the list; the others have to be.
    if len(lists) != 1 or not kinds - {"scatter"} <= set(told.values()):
        return text
    kept = [call for call, kind in told.items() if kind is None or kind in kinds]
    return text[: lists[0].start()] + ",".join(kept) + text[lists[0].end() :]


def _kind(parts: dict[str, str], name: str) -> str | None:
    """The kind that a part sets up; if it does not tell, that of the part which it calls first and passes on."""
    for _ in range(3):
        part = parts.get(name, "")
        if told := _KIND.search(part):
            return told[1]
        if (called := _CALLED.search(part)) is None:
            return None
        name = called[0]
    return None


def without_unused(text: str) -> str:
    """The script without the parts that are called by none of those that its last part needs.

    >>> without_unused(";var a=m((e,o)=>{1});var b=m((e,o)=>{2});var c=m((e,o)=>{a()});return c()")
    ';var a=m((e,o)=>{1});var c=m((e,o)=>{a()});return c()'
    """
    parts = _parts(text)
    start = len(text) - sum(map(len, parts.values()))
    # What does not end as a part does has something behind it that belongs to nobody.
    needed = {name for name, part in parts.items() if not part.endswith("});")}
    waiting = [text[:start], *(parts[name] for name in needed)]
    while waiting:
        called = parts.keys() & set(_CALLED.findall(waiting.pop()))
        waiting += [parts[name] for name in called - needed]
        needed |= called
    return text[:start] + "".join(part for name, part in parts.items() if name in needed)


def _parts(text: str) -> dict[str, str]:
    """The parts of the script by name, in their order, each up to the next; before the first is what all use."""
    all_heads = list(_PART.finditer(text))
    heads = [head for head in all_heads if head[2] == all_heads[-1][2]]
    places = pairwise([*(head.start() for head in heads), len(text)])
    return {head[1]: text[start:end] for head, (start, end) in zip(heads, places, strict=True)}


def in_ascii(text: str) -> str:
    r"""The script with its few signs beyond ASCII, all in patterns and strings, written as escapes.

    For one such sign a browser holds all characters in two bytes each, and reads them more slowly.

    >>> in_ascii("'µ𝄞'")
    "'\\u00b5\\ud834\\udd1e'"
    """
    return re.sub(r"[^\x00-\x7f]", lambda sign: _escaped(sign[0]), text)


def _escaped(sign: str) -> str:
    return "".join(f"\\u{unit}" for unit in sign.encode("utf-16-be").hex(" ", 2).split())


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
