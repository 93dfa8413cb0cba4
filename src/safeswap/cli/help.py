"""The help of every command. It is also kept in ``help.json``, so that showing it loads no option and no specification.

``python -m safeswap.cli.help`` writes that file from the commands; a test fails if it does not say what they say.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypedDict

STORED = Path(__file__).with_name("help.json")

_WIDEST = 100
_WIDEST_NAME = 28
_BOLD, _PLAIN = "\033[1m", "\033[0m"


class Help(TypedDict):
    """The help of one command; each section has a title and rows of option and meaning."""

    usage: str
    text: str
    sections: list[list[Any]]
    epilog: str


def show_stored(arguments: Sequence[str]) -> bool:
    """Print the stored help of a command, given its words and ``--help``; return False if there is none."""
    path = list(arguments[:-1])
    found = read_stored().get(" ".join(path))
    if found is None or (path == ["mask"] and _has_plug_ins()):  # plug-ins are methods too
        return False
    width = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.write(render(found, width, is_terminal=sys.stdout.isatty()))
    return True


def read_stored() -> dict[str, Help]:
    """Return the stored help by command, as words after ``safeswap``."""
    try:
        stored: dict[str, Help] = json.loads(STORED.read_bytes())
    except OSError:
        return {}
    return stored


def render(found: Help, width: int, *, is_terminal: bool = False) -> str:
    """Lay out the help in lines.

    >>> rows = [["--rate R", "share of the records"]]
    >>> print(
    ...     render({"usage": "swap FILE", "text": "Swap.", "sections": [["Options", rows]], "epilog": ""}, 80), end=""
    ... )
    Usage: swap FILE
    <BLANKLINE>
    Swap.
    <BLANKLINE>
    Options
      --rate R  share of the records
    """
    width = max(40, min(width, _WIDEST))
    lines = [textwrap.fill(f"Usage: {found['usage']}", width, subsequent_indent=" " * 7)]
    lines += [_fill(part, width) for part in found["text"].split("\n\n") if part]
    for title, rows in found["sections"]:
        heading = f"{_BOLD}{title}{_PLAIN}" if is_terminal else title
        lines.append("\n".join([heading, *_lay_out(rows, width)]))
    lines += [_fill(found["epilog"], width)] if found["epilog"] else []
    return "\n\n".join(lines) + "\n"


def _fill(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_long_words=False)


def _lay_out(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the rows as two columns; a long name gets its own line."""
    column = 4 + max([len(name) for name, _ in rows if len(name) <= _WIDEST_NAME], default=_WIDEST_NAME)
    for name, meaning in rows:
        texts = textwrap.wrap(meaning, width - column, break_on_hyphens=False) or [""]
        if len(name) + 4 > column:
            yield f"  {name}"
        else:
            texts[0] = f"  {name:<{column - 4}}  {texts[0]}".rstrip()
            yield texts.pop(0)
        yield from (" " * column + text for text in texts)


class PlainHelp:
    """A command or group whose help is laid out here, as the stored one is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        formatter.write(render(describe(self, ctx), shutil.get_terminal_size((80, 24)).columns))


def describe(command: Any, ctx: Any) -> Help:
    """Return the help of a command as data."""
    sections: dict[str, list[list[str]]] = {"Arguments": [], "Options": []}
    for each in command.get_params(ctx):
        if (record := each.get_help_record(ctx)) is not None:
            default = "Arguments" if each.param_type_name == "argument" else "Options"
            sections.setdefault(getattr(each, "rich_help_panel", None) or default, []).append(list(record))
    if hasattr(command, "list_commands"):
        found = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        sections["Commands"] = [[name, (each.help or "").partition("\n")[0]] for name, each in found.items()]
    return {
        "usage": " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]),
        "text": cleandoc(command.help or ""),
        "sections": [[title, rows] for title, rows in sections.items() if rows],
        "epilog": command.epilog or "",
    }


def collect() -> dict[str, Help]:
    """Return the help of all commands, from the commands themselves."""
    from typer.main import get_command

    from safeswap.cli.app import app

    root = get_command(app)
    return dict(_walk(root, root.make_context("safeswap", [], resilient_parsing=True)))


def _walk(command: Any, ctx: Any) -> Iterator[tuple[str, Help]]:
    yield ctx.command_path.partition(" ")[2], describe(command, ctx)
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        found = command.get_command(ctx, name)
        found = found.load() if hasattr(found, "load") else found
        yield from _walk(found, found.make_context(name, [], parent=ctx, resilient_parsing=True))


def _has_plug_ins() -> bool:
    from safeswap.registry import has_plug_ins

    return has_plug_ins()


if __name__ == "__main__":
    STORED.write_text(json.dumps(collect(), indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
