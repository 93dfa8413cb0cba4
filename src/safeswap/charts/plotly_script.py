"""Plotly as our pages have it: the installed package's own text, with the kinds of chart that we draw.

The package brings four dozen kinds in one script: maps of the world, volumes, calendars. They are made known in its
last statement, and each is set up when it is. A browser does that at every load of a page, for as long as the drawing
of our own chart takes; so those that we can tell are not ours are left out of that statement. Nothing else is touched,
and if a later Plotly ends in another way, it is taken as it is.
"""

from __future__ import annotations

import re
from functools import cache

KINDS = frozenset({"scatter", "scattergl", "heatmap"})
"""The kinds of trace that our charts draw."""

# core.register([bar(), box(), heatmap(), …]), where each name is a function that sets a kind up and returns it.
_MADE_KNOWN = re.compile(r"(?<=\.register\(\[)(?:[\w$]+\(\),){9,}[\w$]+\(\)(?=\]\))")
_KIND = re.compile(r'moduleType:"\w+",name:"(\w+)"')
_PASSED_ON = re.compile(r"\.exports=([\w$]+)\(\)$")


@cache
def plotly_script() -> str:
    """The text of Plotly, in ASCII.

    >>> plotly_script().isascii()
    True
    """
    from plotly.offline import get_plotlyjs

    return in_ascii(with_kinds(get_plotlyjs(), KINDS))


def with_kinds(text: str, kinds: frozenset[str]) -> str:
    """The script without the kinds of chart that are known by name and not wanted; as it is if it is unlike Plotly's.

    >>> bundle = 'var a=m((e,o)=>{o.exports={moduleType:"trace",name:"pie"}});var b=m((e,o)=>{o.exports={}});x'
    >>> kinds = ",".join(["a()"] * 10 + ["b()"])
    >>> with_kinds(f"{bundle}.register([{kinds}])", frozenset()).endswith("x.register([b()])")
    True
    """
    found = list(_MADE_KNOWN.finditer(text))
    if len(found) != 1:
        return text
    calls = found[0][0].split(",")
    kept = [call for call in calls if (kind := _kind(text, call.removesuffix("()"))) is None or kind in kinds]
    return text[: found[0].start()] + ",".join(kept) + text[found[0].end() :]


def _kind(text: str, module: str) -> str | None:
    """The kind that a function sets up, by itself or by the one that it passes on; None where that is not told."""
    body = _body(text, module)
    if (told := _KIND.search(body)) is None and (passed := _PASSED_ON.search(body)):
        told = _KIND.search(_body(text, passed[1]))
    return told[1] if told else None


def _body(text: str, module: str) -> str:
    """What a function of the bundle does, which is written ``var name=once((exports,module)=>{…});``."""
    start = text.find(f"var {module}=")
    return text[start : text.find("});var ", start)] if start >= 0 else ""


def in_ascii(text: str) -> str:
    r"""The script with its few signs beyond ASCII, all in patterns and strings, written as escapes.

    For one such sign a browser holds all five million characters in two bytes each, and reads them more slowly.

    >>> in_ascii("'µ𝄞'")
    "'\\u00b5\\ud834\\udd1e'"
    """
    return re.sub(r"[^\x00-\x7f]", lambda sign: _escaped(sign[0]), text)


def _escaped(sign: str) -> str:
    return "".join(f"\\u{unit}" for unit in sign.encode("utf-16-be").hex(" ", 2).split())
