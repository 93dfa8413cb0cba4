"""The lines of WebSwap project files: settings, quoted names, comments."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safeswap.errors import InputError
from safeswap.io.sources import existing_file, unreadable

FILES = ("data", "description", "specification", "log", "output")
_SETTING = re.compile(r"([a-z][a-z-]*)\s*=\s*(\S.*)", re.ASCII)
_NAMED = re.compile(r"([A-Za-z]+)\s+(\".*\")", re.ASCII | re.DOTALL)
_LARGEST = 64 * 2**20

DESCRIPTION_HEADER = """\
# WebSwap description, layout 1: one line per attribute in column order, its kind and its name.
# Kinds: nominal, ordinal, numeric, identifier, weight, household, geography. Names are quoted as in JSON.
"""

SPECIFICATION_HEADER = """\
# WebSwap specification, layout 1. Names are quoted as in JSON; the files lie next to this one.
# swap-rate is the share of RECORDS that take part in a swap: 2k/N for k pairs among N records.
# (Gomatam, Karr and Sanil 2003 write half of it, k/N: their 0.01 is 0.02 here.)
"""

ROLES_HEADER = "\n# The role of each attribute: S swap, F fixed (equal in a pair), D differ, O other.\n"

LOG_HEADER = "# WebSwap log, layout 1: totals of what was done; it names no record.\n"


def quoted(name: str) -> str:
    """A name as it stands in a project file.

    >>> print(quoted('say "x"\\n'))
    "say \\"x\\"\\n"
    """
    return json.dumps(name, ensure_ascii=False)


def settings_text(settings: Mapping[str, Any]) -> str:
    """One line per setting.

    >>> print(settings_text({"records": 3, "data": "a.orig"}), end="")
    records = 3
    data = "a.orig"
    """
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items())


def named_text(pairs: Iterable[tuple[str, str]]) -> str:
    """One line per attribute: a word, and its name in quotes."""
    return "".join(f"{word} {quoted(name)}\n" for word, name in pairs)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    file = existing_file(path)
    try:
        if file.stat().st_size > _LARGEST:
            raise bad_line(file, 1, "the file is too large for a project file")
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = 1 + error.object[: error.start].count(b"\n")
        raise bad_line(file, position, "the file is not UTF-8 text") from None
    except OSError as error:
        raise unreadable(file, error) from None
    # At line feeds only: other characters that count as line ends somewhere may stand in a name.
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip(" \t\r")
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def parsed(path: Path) -> tuple[dict[str, tuple[int, Any]], list[tuple[int, str, str]]]:
    """Settings with their lines, and named lines (number, word, name)."""
    settings: dict[str, tuple[int, Any]] = {}
    named: list[tuple[int, str, str]] = []
    for number, line in numbered_lines(path):
        if match := _SETTING.fullmatch(line):
            if match[1] in settings:
                raise bad_line(path, number, f"{match[1]!r} is set twice")
            settings[match[1]] = (number, _value(path, number, match[2]))
        elif match := _NAMED.fullmatch(line):
            name = _value(path, number, match[2])
            if not name:
                raise bad_line(path, number, "the name is empty")
            named.append((number, match[1], name))
        else:
            raise bad_line(path, number, "the line is neither a setting, nor an attribute, nor a comment")
    return settings, named


def _value(path: Path, number: int, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise bad_line(path, number, "the value is not written as in JSON") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_line(path, number, "the value is not a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise bad_line(path, number, "the text holds half of a character") from None
    return value


def bad_line(path: Path, line: int, what: str) -> InputError:
    """An error in a project file."""
    return InputError(
        f"line {line} of {path.name!r}: {what}",
        code="bad-project-file",
        hint="the layouts are described in the documentation of safeswap.io.webswap",
        file=str(path),
        line=line,
    )
