"""The program ``safeswap``: its commands and its error handling.

A command's module is imported when the command is called, so that ``--help`` is fast whatever the commands import.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from safeswap.cli.console import Console, escape
from safeswap.cli.help import PlainHelp
from safeswap.errors import EngineError, InternalError, OutputError, SafeswapError, locate

INTERRUPTED = 130

COMMANDS = {
    "describe": "Show the attributes of a file, their levels and its small cells, but no records.",
    "merge-households": "Join a file of households and a file of persons into one person file.",
    "split-households": "Divide a person file into a file of households and a file of persons.",
    "init": "Write a project file for a data file, with every guess marked.",
    "keygen": "Generate a secret key, the source of all randomness.",
    "suggest-keys": "Rank the attributes of a file by how identifying they are.",
    "risk": "Measure how easily records can be singled out by their keys.",
    "risky": "List the combinations of keys that too few records share.",
    "advice": "Rank single recodes by the unsafe combinations they remove for the information they cost.",
    "recode": "Coarsen values by a recipe, and show what is still unsafe after each step.",
    "swap": "Exchange values between random pairs of records.",
    "mask": "Mask a file by any method.",
    "mask-below": "Blank or swap as little as needed to bring every record below a risk threshold.",
    "safe": "Publish tables in which every cell is 0 or large enough.",
    "assess": "Measure the risk and distortion of a masked file.",
    "attack": "Attack a masked file or a bundle as an intruder would.",
    "confidentiality": "Show which records of a masked file are unsafe.",
    "study": "Try many candidate releases, show their frontier and choose one.",
    "run": 'Run a project file up to "ready for release".',
    "status": "Show which parts of a project are up to date.",
    "report": "Write the reports on a masking, one for each kind of reader.",
    "step": "List, add, move, edit and remove the steps of a project file.",
    "release": "Verify a masked file and write the bundle for publication.",
    "verify": "Check a published bundle.",
    "undo": "Restore the original from a masked file and its audit record.",
    "workbench": "Open the workbench in a browser on this machine, for one person.",
    "serve": "Run the service for a team: projects, jobs and the workbench.",
    "admin": "Set up and maintain a service.",
    "datasets": "List and write the data sets included with safeswap.",
    "demo": "Walk through the whole path, from survey file to release, on included data.",
}
"""Every command with its help line, in the order of work."""

_SHARED = {
    "assess": ("attack", "confidentiality"),
    "data": ("datasets", "demo", "describe", "keygen", "merge_households", "split_households"),
    "mask": ("mask_below", "swap"),
    "project": ("init", "run", "status", "step"),
    "recode": ("advice",),
    "release": ("report", "undo", "verify"),
    "risk": ("risky", "suggest_keys"),
    "service": ("admin", "serve", "workbench"),
}
_HOME = {function: module for module, functions in _SHARED.items() for function in functions}


class UsageError(SafeswapError):
    """The call is wrong: an unknown option, a missing argument."""

    exit_code = 2
    http_status = 400


class Interrupted(SafeswapError):  # noqa: N818  (the name says what happened)
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED


class Command(PlainHelp, TyperCommand):
    """A command with the layout of help that all commands share."""


class Group(PlainHelp, TyperGroup):
    """A group of commands with the same layout."""


def find_command(name: str) -> Any:
    """Import a command from the module of the same name, or from the one that it shares."""
    function = name.replace("-", "_")
    return getattr(import_module(f"safeswap.cli.{_HOME.get(function, function)}"), function)


class LazyCommand(TyperCommand):
    """A command known by name and help line; its module is imported when it is called."""

    def load(self) -> Any:
        """Import the command."""
        found = find_command(str(self.name))
        if isinstance(found, typer.Typer):
            for each in found.registered_commands:
                each.cls = Command
            return get_command(found)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name=self.name, cls=Command, context_settings=HELP)(found)
        return get_command(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Delegate to the loaded command."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


HELP = {"help_option_names": ["-h", "--help"]}


class Program(Group):
    """The group of all commands; turns every error into one message and an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, line in COMMANDS.items():
            self.add_command(LazyCommand(name, help=line))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command and exit with its code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            # --help and --version return an exit code; a command returns None.
            code = super().main(arguments, *rest, **extra) or 0
            sys.stdout.flush()
            if code == INTERRUPTED:
                raise Interrupted("interrupted; no partial output was left behind", code="interrupted")
        except BrokenPipeError:
            code = _end_quietly()
        except Exception as error:  # noqa: BLE001  (last resort: a traceback may contain data)
            code = _report(error, arguments)
        sys.exit(code)


app = typer.Typer(
    name="safeswap",
    cls=Program,
    help="Statistical disclosure control for microdata: publish data without revealing anyone.",
    context_settings=HELP,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from safeswap import __version__

        typer.echo(f"safeswap {__version__}")
        raise typer.Exit


@app.callback(epilog="See the documentation for a tutorial from file to release, and for exit codes.")
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    >>> run(["--version"])  # doctest: +ELLIPSIS
    safeswap ...
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a file name may contain bytes that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app(list(arguments), prog_name="safeswap")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def as_internal_error(error: Exception) -> InternalError:
    """Describe an unexpected exception by type and place only: its message might quote a record.

    >>> try:
    ...     int("a secret")
    ... except ValueError as error:
    ...     "secret" in str(as_internal_error(error).as_dict())
    False
    """
    place = locate(error) or "an unknown place"
    return InternalError(
        f"unexpected error ({type(error).__name__} at {place}); this is a bug in safeswap",
        code="bug",
        hint="please report it; run again with --debug for a trace to report, which contains no data",
        exception=type(error).__name__,
        place=place,
    )


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Print what went wrong and return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":  # no argument at all: typer's way to show the help
        typer.echo(error.ctx.get_help(), err=True)  # type: ignore[attr-defined]
        return UsageError.exit_code
    known = _convert(error)
    Console(json="--json" in arguments).fail(known)
    if "--debug" in arguments:
        _print_trace(error)
    return known.exit_code


def _convert(error: Exception) -> SafeswapError:
    """Convert any exception to an error of our own tree."""
    if isinstance(error, SafeswapError):
        return error
    if isinstance(error, typer.TyperException):
        return _usage_error(error)
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EFBIG,
        getattr(errno, "EDQUOT", errno.ENOSPC),
    ):
        return _disk_full()
    return _out_of_memory() if isinstance(error, MemoryError) else as_internal_error(error)


def _usage_error(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "safeswap"
    return UsageError(error.format_message(), code="usage", hint=f"see {path} --help")


def _out_of_memory() -> EngineError:
    return EngineError(
        "not enough memory for this file",
        code="out-of-memory",
        hint="run on a larger machine, or drop columns that are not needed",
    )


def _disk_full() -> OutputError:
    # Writers of results report this themselves; this is for caches and temporary files.
    return OutputError("the disk is full", code="disk-full", hint="free some space and run again")


def _end_quietly() -> int:
    """Return the exit code after the reader of our output has stopped (``safeswap … | head``), without a message."""
    import os

    # The interpreter flushes stdout again on exit; send that to the null device.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _print_trace(error: BaseException | None) -> None:
    """Print where an exception was raised, without its message and without any value."""
    while error is not None:
        typer.echo(escape(f"{type(error).__name__}, raised at:"), err=True)
        for frame in traceback.extract_tb(error.__traceback__):
            typer.echo(f"  {frame.filename}:{frame.lineno} in {frame.name}", err=True)
        error = error.__cause__ or error.__context__
