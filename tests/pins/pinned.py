"""Collect what must not change by accident: results per method and key, names, options, error codes, the contract.

``python -m tests.pins.pinned`` writes the files beside this one again, after a change that was meant.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.conformance.strategies import CASES
from tests.engines.specs import EDITS, SCHEMA, SPECS, census

import safeswap as ss
from safeswap import registry, workflow
from safeswap.cli.app import COMMANDS, LazyCommand
from safeswap.model.microdata import Microdata
from safeswap.moved import VERBS
from safeswap.service.app import create_app
from safeswap.service.settings import Settings

HERE = Path(__file__).parent
SOURCE = Path(ss.__file__).parent
KEYS = {"first": ss.Key(bytes(range(32))), "second": ss.Key(bytes(range(32, 64)))}


def hash_table(table: pa.Table) -> str:
    """Hash values, names and order of a table, whatever its chunks and dictionaries."""
    digest = hashlib.sha256()
    for name in table.column_names:
        column = table.column(name)
        digest.update(json.dumps([name, column.to_pylist()], default=str, ensure_ascii=True).encode())
    return digest.hexdigest()[:16]


def collect_results() -> dict[str, str]:
    """Hash the result of every method and of every specification of the engines' tests, under two keys."""
    found = {}
    for name in registry.method_names():
        data, spec = CASES[name].example()
        for label, key in KEYS.items():
            found[f"{name}, {label} key"] = hash_table(ss.mask(data, spec, key=key).data.table)
    data = Microdata(census(), SCHEMA)
    for method, specs in (("swap", SPECS), ("edit_1990", EDITS)):
        for title, values in specs.items():
            masked = ss.mask(data, {"method": method, **values}, key=KEYS["first"])
            found[f"census: {title}"] = hash_table(masked.data.table)
    return found


def collect_interface() -> dict[str, Any]:
    """Collect names, error codes, options of the command line, and the contract's paths and fields."""
    return {
        "names": list(ss.__all__),
        "verbs": sorted({*workflow.__all__, *VERBS}),  # old names work until they are removed
        "methods": list(registry.method_names()),
        "measures": list(registry.measure_names()),
        "error codes": sorted(_error_codes()),
        "options": _options(),
        "contract": _contract(),
    }


def _error_codes() -> set[str]:
    calls = (
        node
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant)
    )
    return {call.value.value for call in calls if isinstance(call.value.value, str)}


def _options() -> dict[str, list[str]]:
    found = {}
    for name in COMMANDS:
        for path, command in _with_subcommands(name, LazyCommand(name).load()):
            found[path] = sorted(option for parameter in command.params for option in parameter.opts)
    return found


def _with_subcommands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _with_subcommands(f"{path} {name}", command.get_command(None, name))


def _contract() -> dict[str, list[str]]:
    app = create_app(Settings(store=Path("/nowhere/store"), master_key_file=Path("/nowhere/key")))
    document = app.openapi()
    paths = {f"{path}": sorted(operations) for path, operations in document["paths"].items()}
    fields = {f"#{name}": sorted(s.get("properties", {})) for name, s in document["components"]["schemas"].items()}
    return dict(sorted({**paths, **fields}.items()))


def write() -> None:
    """Write both files."""
    for name, values in (("results", collect_results()), ("interface", collect_interface())):
        text = json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
