"""The words of the Python interface, said as options of the command line."""

from __future__ import annotations

import re

_SAID_OTHERWISE = (
    (re.compile(r"""\b([a-z_]+)=(["'])(.+?)\2"""), lambda m: f"--{_dashed(m[1])} {_quoted(m[3])}"),
    (re.compile(r"\bLimits\((\w+)=…\)"), lambda m: f"--{_dashed(m[1])} N"),
    (re.compile(r"\(second_release\)"), lambda _: "with --second-release REASON"),
    (re.compile(r"\(unmasked\)"), lambda _: "with --unmasked"),
    (re.compile(r" or Key\.generate\(\)"), lambda _: ""),
    (re.compile(r"see the reference page of the method for its parameters"), lambda _: "see --help"),
)


def as_options(text: str) -> str:
    """A hint as somebody at the command line needs it.

    >>> as_options('lower the rate, or on_shortfall="take" to make as many as there are')
    'lower the rate, or --on-shortfall take to make as many as there are'
    >>> as_options("state the delimiter, for example delimiter=','")
    "state the delimiter, for example --delimiter ','"
    >>> as_options("allow more with Limits(max_columns=…)")
    'allow more with --max-columns N'
    """
    for pattern, replacement in _SAID_OTHERWISE:
        text = pattern.sub(replacement, text)
    return text


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w-]+", value) else f"'{value}'"


def _dashed(name: str) -> str:
    return name.replace("_", "-")
