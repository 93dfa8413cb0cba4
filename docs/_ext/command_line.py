"""The command-line reference, generated from the program itself; no terminal is needed.

::

    ```{command-line}    every command with its arguments and options, under a heading of its own

What a command's help shows in boxes becomes tables. Options shared by commands are listed once, at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

EXTRA = "Options"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An option or argument, as a row of a table."""

    panel: str
    name: str
    default: str
    meaning: str


def shared_panels() -> tuple[str, ...]:
    """Return the titles of the panels that most commands share."""
    from safeswap.cli.options import MESSAGES, READING

    return READING, MESSAGES


def parameters(command: Any) -> list[Parameter]:
    """List arguments first, then options, as in the help, without ``--help``."""
    listed = [each for each in command.params if not each.hidden and each.name != "help"]
    return [_to_row(each) for each in sorted(listed, key=lambda each: each.param_type_name)]


def _to_row(parameter: Any) -> Parameter:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.metavar] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    value = "" if is_argument or parameter.is_flag else " " + (parameter.metavar or _placeholder(parameter))
    quiet = parameter.required or parameter.default in (None, True, False) or callable(parameter.default)
    meaning = re.sub(r" \(default: (.*)\)$", "", parameter.help or "")
    stated = re.search(r" \(default: (.*)\)$", parameter.help or "")
    return Parameter(
        panel="Arguments" if is_argument else parameter.rich_help_panel or EXTRA,
        name=", ".join(f"`{name}{value}`" for name in names),
        default=f"`{stated[1]}`" if stated else "" if quiet else f"`{parameter.default}`",
        meaning=meaning + (" (required)" if parameter.required and not is_argument else ""),
    )


def _placeholder(option: Any) -> str:
    """Return the placeholder of an option's value: its choices, or its type."""
    annotation = option.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return "|".join(str(choice) for choice in get_args(annotation))
    return {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH"}.get(getattr(annotation, "__name__", ""), "VALUE")


def table(rows: Sequence[Parameter]) -> str:
    """Format a Markdown table, with a column of defaults only if there are any."""
    wide = any(row.default for row in rows)
    heading = ["", "default", "meaning"] if wide else ["", "meaning"]
    text = [f"| {' | '.join(heading)} |", "|" + " --- |" * len(heading)]
    for row in rows:
        cells = [row.name, *([row.default] if wide else []), row.meaning]
        text.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(text)


def tables(rows: Iterable[Parameter]) -> Iterator[str]:
    """Yield a table per panel, in order of occurrence; rows without a panel come last."""
    panels: dict[str, list[Parameter]] = {}
    for row in rows:
        panels.setdefault(row.panel, []).append(row)
    for panel in sorted(panels, key=lambda panel: panel == EXTRA):
        yield f"**{panel}**\n\n{table(panels[panel])}"


def sub_commands(command: Any) -> dict[str, Any]:
    """Return the subcommands of a command by name."""
    words = command.list_commands(None) if hasattr(command, "list_commands") else ()
    return {word: command.get_command(None, word) for word in words}


def section(name: str, command: Any, *, depth: int, listed: Iterable[Parameter] = ()) -> Iterator[str]:
    """Yield heading, help and tables of a command, without rows already listed, then those of its subcommands."""
    under = sub_commands(command)
    everywhere = [row for row in parameters(next(iter(under.values()))) if _is_in_all(row, under)] if under else []
    yield f"{'#' * depth} {name}"
    yield re.sub(r"\s*\n\s*\n\s*", "\n\n", (command.help or "").strip())
    yield from tables(row for row in parameters(command) if row.panel not in shared_panels() and row not in listed)
    common = [row for row in everywhere if row.panel not in shared_panels()]
    if common:
        yield f"Options of all `{name}` commands:"
        yield from tables(common)
    for word, child in under.items():
        yield from section(f"{name} {word}", child, depth=depth + 1, listed=common)


def _is_in_all(row: Parameter, commands: dict[str, Any]) -> bool:
    return all(row in parameters(each) for each in commands.values())


class CommandLine(SphinxDirective):
    """All commands of the program."""

    def run(self) -> list[nodes.Node]:
        """Return the parsed sections."""
        from safeswap.cli.app import COMMANDS, LazyCommand

        commands = {name: LazyCommand(name).load() for name in COMMANDS}
        parts = [part for name in commands for part in section(f"safeswap {name}", commands[name], depth=2)]
        rows = (row for command in commands.values() for row in parameters(command))
        shared = {row.name: row for row in rows if row.panel in shared_panels()}
        parts += ["## Shared options", *tables(shared.values())]
        return list(self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
