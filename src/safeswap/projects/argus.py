"""Read ARGUS recode files, code lists and hierarchies, and hierarchies as tables of levels.

::

    .grc    1: -20          codes up to 20 become 1
            2: 21-30, 35    codes from 21 to 30, and 35, become 2
            3: 36-          codes from 36 on become 3
            <MISSING> 8 9   the new codes for "no answer", in the order of the old ones
            <CODELIST> a.cdl
    .cdl    1, up to 20     a code and what it means, a line each
    .hrc    South           a tree: codes below a code are indented, by @ or by blanks
            @Delft

Errors name the line.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.files.formats import existing_file, unreadable_error
from safeswap.methods.recode.hierarchy import Hierarchy
from safeswap.methods.recode.steps import GlobalRecode, Otherwise, Span
from safeswap.model.checked import check_types

_LARGEST = 2**24
_KEYWORD = re.compile(r"<\s*(\w+)\s*>(.*)")
_PARTS = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,])+""")
_WORDS = re.compile(r""""[^"]*"|'[^']*'|-|[^-"']+""")


@check_types
def read_grc(path: str | os.PathLike[str], attribute: str, *, otherwise: Otherwise = "keep") -> GlobalRecode:
    """Read an ARGUS recode file as a step on an attribute.

    As in ARGUS, codes that the file does not name stay (``otherwise="keep"``), numbers are compared as numbers and
    other codes as right-aligned text. A code list in the same folder gives the new codes their labels.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "age.grc"
    ...     _ = path.write_text("1: -20\\n2: 21-30, 35\\n3: 36-\\n<MISSING> 8 9\\n")
    ...     step = read_grc(path, "Age")
    >>> len(step.spans), step.spans[0].high, step.missing
    (4, '20', ('8', '9'))
    """
    file = existing_file(path)
    spans: list[Span] = []
    missing: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    for number, line in _lines(file):
        if keyword := _KEYWORD.fullmatch(line):
            name, rest = keyword[1].upper(), keyword[2].strip()
            if name == "MISSING":
                missing = tuple(_unquote(word) for word in re.split(r"[,\s]+", rest) if word)
            elif name == "CODELIST":
                labels = _read_labels(file, _unquote(rest))
            else:
                raise _bad_file(file, "there is no such keyword in a recode file", number)
            continue
        spans += _parse_spans(file, line, number, spans)
    if not spans:
        raise _bad_file(file, "the file recodes nothing")
    return GlobalRecode(
        attribute=attribute,
        spans=tuple(spans),
        missing=missing,
        labels={code: word for code, word in labels.items() if code in {span.to for span in spans}},
        otherwise=otherwise,
    )


def read_codelist(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read an ARGUS code list: codes with their meanings.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sex.cdl"
    ...     _ = path.write_text("1, male\\n2, female\\n")
    ...     read_codelist(path)
    {'1': 'male', '2': 'female'}
    """
    file = existing_file(path)
    found: dict[str, str] = {}
    for number, line in _lines(file):
        code, comma, meaning = line.partition(",")
        code = _unquote(code.strip())
        if not comma or not code:
            raise _bad_file(file, f"line {number} is not a code, a comma and its meaning", number)
        if code in found:
            raise _bad_file(file, f"line {number} lists a code for the second time", number)
        found[code] = _unquote(meaning.strip())
    return found


@check_types
def read_hierarchy(path: str | os.PathLike[str]) -> Hierarchy:
    """Read a tree of codes: indented (``.hrc`` and others), or a ``.csv`` with a line per finest code and its parents.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "region.hrc"
    ...     _ = path.write_text("South\\n@Delft\\n@Leiden\\nNorth\\n@Haarlem\\n")
    ...     read_hierarchy(path).at("Leiden", level=1)
    'South'
    """
    file = existing_file(path)
    try:
        if file.suffix.lower() in (".csv", ".tsv"):
            separator = "\t" if file.suffix.lower() == ".tsv" else ","
            text = [line for _, line in _lines(file, strip=False)]
            return Hierarchy.from_rows(tuple(row) for row in csv.reader(text, delimiter=separator))
        return Hierarchy.from_parents(_parse_indented(file))
    except SpecError as error:
        message = f"{file.name!r}: {error.message}"
        raise InputError(message, code=error.code, hint=error.hint, **{**error.fields, "file": str(file)}) from None


def _parse_indented(file: Path) -> dict[str, str]:
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for number, line in _lines(file, strip=False):
        code = line.lstrip("@ \t").strip()
        depth = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip("@ "))
        while above and above[-1][0] >= depth:
            above.pop()
        if depth and not above:
            raise _bad_file(file, f"line {number} is indented below nothing", number)
        if above and parents.setdefault(code, above[-1][1]) != above[-1][1]:
            raise _bad_file(file, f"line {number} puts a code below a second one", number)
        above.append((depth, code))
    return parents


def _parse_spans(file: Path, line: str, number: int, known: list[Span]) -> Iterator[Span]:
    to, colon, rest = line.partition(":")
    if not colon or not to.strip() or not rest.strip():
        raise _bad_file(file, f"line {number} is not a new code, a colon and the codes that become it", number)
    found = list(known)
    for part in _PARTS.findall(rest):
        span = _parse_span(file, _unquote(to.strip()), part, number)
        if any(span.meets(other) for other in found):
            raise _bad_file(file, f"line {number} recodes a code that is recoded already", number)
        found.append(span)
        yield span


def _parse_span(file: Path, to: str, text: str, number: int) -> Span:
    words = [word.strip() for word in _WORDS.findall(text) if word.strip()]
    ends = [None if word == "-" else _unquote(word) for word in words]
    low: str | None
    high: str | None
    match ends:
        case [str(code)]:
            low, high = code, code
        case [None, str(high)]:
            low = None
        case [str(low), None]:
            high = None
        case [str(low), None, str(high)]:
            pass
        case _:
            raise _bad_file(file, f"line {number} is not a list of codes and of spans such as 1-3, -3 and 3-", number)
    try:
        return Span(to=to, low=low, high=high)
    except ValueError:
        raise _bad_file(file, f"line {number} has a span that ends before it begins", number) from None


def _read_labels(file: Path, name: str) -> dict[str, str]:
    """Read the code list that a recode file names, if it is in the same folder; labels are optional."""
    path = file.parent / Path(name.replace("\\", "/")).name
    return read_codelist(path) if path.is_file() else {}


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _lines(file: Path, *, strip: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers."""
    try:
        if file.stat().st_size > _LARGEST:
            raise _bad_file(file, "the file is too large for a list of codes")
        content = file.read_bytes()
    except OSError as error:
        raise unreadable_error(file, error) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")  # the encoding of old ARGUS files
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.strip() if strip else line.rstrip()


def _bad_file(file: Path, what: str, line: int | None = None) -> InputError:
    fields: dict[str, Any] = {} if line is None else {"line": line}
    place = "" if line is None or f"line {line}" in what else f", line {line}"
    hint = "a recode file has lines such as 1: 1-3, 7 and <MISSING> 9; a code list 1, meaning; a tree @code"
    return InputError(f"{file.name!r}{place}: {what}", code="bad-argus-file", hint=hint, file=str(file), **fields)
