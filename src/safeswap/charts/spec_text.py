"""A specification as text that is ready to run: Python, command line, TOML."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

_PREFIXES = {"targeting": "target"}
"""Nested parameters that have another name on the command line."""


def python_text(spec: Any, *, replicate: int | None = None) -> str:
    """Return Python code that masks ``data`` with ``key``.

    >>> from safeswap.model.spec import SwapSpec
    >>> print(python_text(SwapSpec(swap=["Race"], rate=0.05), replicate=3))
    import safeswap as ss
    <BLANKLINE>
    spec = ss.SwapSpec(swap=['Race'], rate=0.05)
    masked = ss.mask(data, spec, key=key, replicate=3)
    """
    values = spec.as_dict()
    if values["method"] == "swap" and not any(isinstance(value, Mapping) for value in values.values()):
        arguments = ", ".join(f"{name}={value!r}" for name, value in values.items() if name != "method")
        made = f"ss.SwapSpec({arguments})"
    else:
        made = repr(values)
    draw = "" if replicate is None else f", replicate={replicate}"
    return f"import safeswap as ss\n\nspec = {made}\nmasked = ss.mask(data, spec, key=key{draw})"


def command_text(spec: Any, *, replicate: int | None = None) -> str:
    """Return a command for a POSIX shell, with placeholders for file names.

    >>> from safeswap.model.spec import SwapSpec
    >>> print(command_text(SwapSpec(swap=["Race", "Age, grouped"], rate=0.05)))
    safeswap mask swap data.csv --swap Race --swap '"Age, grouped"' --rate 0.05 \\
      --key secret.key --output masked.parquet --audit audit/
    """
    values = spec.as_dict()
    parameters = {name: _flatten(spec, name, value) for name, value in values.items() if name != "method"}
    options = " ".join(_options(parameters))
    draw = "" if replicate is None else f" --replicate {replicate}"
    files = f"--key secret.key{draw} --output masked.parquet --audit audit/"
    return f"safeswap mask {shlex.quote(values['method'])} data.csv {options} \\\n  {files}"


def toml_text(spec: Any) -> str:
    """Return the specification as TOML, which ``registry.make_spec`` accepts once parsed.

    >>> from safeswap.model.spec import SwapSpec
    >>> print(toml_text(SwapSpec(swap=["Race"], rate=0.05)))
    method = "swap"
    swap = ["Race"]
    rate = 0.05
    """
    import tomli_w

    values = spec.as_dict()
    plain = [f"{name} = {_toml_value(value)}" for name, value in values.items() if not isinstance(value, Mapping)]
    nested = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    return "\n".join([*plain, *([""] if nested else []), tomli_w.dumps(nested)]).strip()


def _toml_value(value: Any) -> str:
    """Format a value on one line, lists and nested tables included."""
    import tomli_w

    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        keys = [tomli_w.dumps({name: 0}).partition(" = ")[0] for name in value]
        return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in zip(keys, value.values(), strict=True)) + "}"
    return tomli_w.dumps({"x": value}).partition(" = ")[2].strip()


def _flatten(spec: Any, name: str, value: Any) -> Any:
    """Format numbers by attribute as ``name=number``, groups as names with commas, a tolerance after a colon."""
    if isinstance(value, Mapping) and isinstance(getattr(spec, name, None), Mapping):
        return [f"{key}={figure}" for key, figure in value.items()]
    if isinstance(value, list) and value and all(isinstance(item, list | Mapping) for item in value):
        return [_Group(_group(item)) for item in value]
    return value


class _Group(str):
    """Names that are already separated."""

    __slots__ = ()


def _group(item: Any) -> str:
    if isinstance(item, Mapping) and "keys" not in item:
        return json.dumps(item, ensure_ascii=False)
    names, tolerance = (item["keys"], item.get("tolerance")) if isinstance(item, Mapping) else (item, None)
    behind = "" if tolerance is None else f":{tolerance:g}"
    return ",".join(_as_field(name, quoted=":" in name or "{" in name) for name in names) + behind


def _options(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if name == "scenario":  # on the command line a file; the keys that it stated are options here
            continue
        if isinstance(value, Mapping):
            yield from _options(value, _PREFIXES.get(name, name) + "-")
            continue
        option = "--" + prefix + name.replace("_", "-")
        if isinstance(value, bool):
            yield option if value else option.replace("--", "--no-", 1)
        elif isinstance(value, list):
            yield from (f"{option} {shlex.quote(_as_argument(item))}" for item in value)
        else:
            yield f"{option} {shlex.quote(str(value))}"


def _as_argument(item: Any) -> str:
    return str(item) if isinstance(item, _Group) else _as_field(str(item))


def _as_field(name: str, *, quoted: bool = False) -> str:
    """Quote a name that contains a comma, which would split it."""
    out = io.StringIO()
    csv.writer(out, lineterminator="", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerow([name])
    return out.getvalue()
