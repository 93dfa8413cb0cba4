"""The program ``safeswap``: its commands, and what becomes of an error.

A command's module is imported when the command is called, so that ``--help`` answers at once whatever the commands
need.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from safeswap.cli.console import Console, visible
from safeswap.errors import EngineError, InternalError, OutputError, SafeswapError

INTERRUPTED = 130

COMMANDS = {
    "describe": "Show the attributes of a file, their levels and its small cells; no record.",
    "keygen": "Make a secret key from which all randomness comes.",
    "risk": "Show how easily the records of a file can be singled out by their keys.",
    "risky": "List the combinations of keys that too few records share.",
    "advice": "Rank single recodes by the unsafe combinations they remove for the information they cost.",
    "recode": "Make values coarser by a recipe, and show after each step what is still unsafe.",
    "swap": "Exchange values between random pairs of records.",
    "mask": "Mask a file by any method.",
    "safe": "Publish tables in which every cell is 0 or large enough.",
    "assess": "Measure the risk and the distortion of a masked file.",
    "confidentiality": "Show which records of a masked file are unsafe.",
    "study": "Try many candidate releases, show their frontier and choose one.",
    "release": "Verify a masked file and write the bundle that may leave the building.",
    "verify": "Check a bundle from outside.",
    "undo": "Restore the original from a masked file and its audit record.",
    "workbench": "Open a file in the browser, on this machine, for yourself.",
    "serve": "Run the service: projects, jobs and the workbench for a team.",
    "admin": "Set up and look after a service.",
    "datasets": "The data sets that come with safeswap.",
    "demo": "From a survey file to a release, on data that come with safeswap.",
}
"""Every command, in the order of work, with the line that says what it does."""


class UsageError(SafeswapError):
    """The call itself is wrong: an unknown option, a missing argument."""

    exit_code = 2
    http_status = 400


class Interrupted(SafeswapError):  # noqa: N818  (the name says what happened)
    """Somebody pressed Ctrl-C."""

    exit_code = INTERRUPTED


class LazyCommand(TyperCommand):
    """A command known by name and help line; the rest is imported when it is called."""

    def load(self) -> Any:
        """The command itself, from the module of its name."""
        found = getattr(import_module(f"safeswap.cli.{self.name}"), str(self.name))
        if isinstance(found, typer.Typer):
            return get_command(found)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
        app.command(name=self.name, context_settings=HELP)(found)
        return get_command(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Hand over to the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


HELP = {"help_option_names": ["-h", "--help"]}


class Program(TyperGroup):
    """The group of all commands; turns whatever goes wrong into one message and an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, line in COMMANDS.items():
            self.add_command(LazyCommand(name, help=line))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command and leave with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            # What is asked for in the usual way (--help, --version) ends with an exit code; a command returns nothing.
            code = super().main(arguments, *rest, **extra) or 0
            sys.stdout.flush()
            if code == INTERRUPTED:
                raise Interrupted("interrupted; nothing was left half-written", code="interrupted")
        except BrokenPipeError:
            code = _reader_gone()
        except Exception as error:  # noqa: BLE001  (the last resort: nobody is to be shown a traceback with data in it)
            code = _failed(error, arguments)
        sys.exit(code)


app = typer.Typer(
    name="safeswap",
    cls=Program,
    help="Publish microdata without giving anyone away.",
    context_settings=HELP,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from safeswap import __version__

        typer.echo(f"safeswap {__version__}")
        raise typer.Exit


@app.callback(epilog="Exit codes and the way from a file to a release: see the documentation.")
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None: ...


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    >>> run(["--version"])  # doctest: +ELLIPSIS
    safeswap ...
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a file name may hold bytes that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app(list(arguments), prog_name="safeswap")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    return 0


def broken(error: Exception) -> InternalError:
    """An exception that nobody foresaw, told by its kind and place: its own words might quote a record.

    >>> try:
    ...     int("a secret")
    ... except ValueError as error:
    ...     "secret" in str(broken(error).as_dict())
    False
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "safeswap" in Path(frame.filename).parts] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "an unknown place"
    return InternalError(
        f"safeswap broke down ({type(error).__name__} at {place}); this is a bug",
        code="bug",
        hint="please report it; run again with --debug for the places to report, which hold no data",
        exception=type(error).__name__,
        place=place,
    )


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong; the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":  # called without any argument: typer's way to show the help
        typer.echo(error.ctx.get_help(), err=True)  # type: ignore[attr-defined]
        return UsageError.exit_code
    told = _in_our_words(error)
    Console(json="--json" in arguments).fail(told)
    if "--debug" in arguments:
        _show_places(error)
    return told.exit_code


def _in_our_words(error: Exception) -> SafeswapError:
    if isinstance(error, SafeswapError):
        return error
    if isinstance(error, typer.TyperException):
        return _misuse(error)
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EFBIG,
        getattr(errno, "EDQUOT", errno.ENOSPC),
    ):
        return _disk_full()
    return _out_of_memory() if isinstance(error, MemoryError) else broken(error)


def _misuse(error: typer.TyperException) -> UsageError:
    """A wrong call: typer's own words, in our form."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "safeswap"
    return UsageError(error.format_message(), code="usage", hint=f"see {path} --help")


def _out_of_memory() -> EngineError:
    return EngineError(
        "there is not enough memory for this file",
        code="out-of-memory",
        hint="run on a larger machine, or leave out columns that are not needed",
    )


def _disk_full() -> OutputError:
    # Results say this themselves; what is left are caches and temporary files.
    return OutputError("there is no room on the disk", code="disk-full", hint="make room and run again")


def _reader_gone() -> int:
    """Whoever read our output has stopped (``safeswap … | head``): no reason to complain."""
    import os

    # The interpreter flushes stdout once more on its way out; it may do so into nothing.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _show_places(error: BaseException | None) -> None:
    """Where an exception arose, without its words and without any value."""
    while error is not None:
        typer.echo(visible(f"{type(error).__name__}, arisen at:"), err=True)
        for frame in traceback.extract_tb(error.__traceback__):
            typer.echo(f"  {frame.filename}:{frame.lineno} in {frame.name}", err=True)
        error = error.__cause__ or error.__context__
