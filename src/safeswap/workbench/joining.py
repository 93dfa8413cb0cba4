"""The modules of a page as one file: a browser asks for it once, and not once for each module.

Each module stays what it is, a file with a scope of its own that says what it needs and what it gives. Joined, it is a
function that is called once and returns what it gives, after those that it needs; the page's own module comes last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
