"""The command line: a module per group of commands, each a thin layer over :mod:`safeswap.workflow`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from types import FrameType

# A second signal within this time is ignored, so that it cannot interrupt the clean-up that the first one started.
CLEANUP_SECONDS = 2.0

_REDELIVERY_SECONDS = 0.01

_last_signal = -CLEANUP_SECONDS

_OBJECTS_PER_COLLECTION = 50_000  # new ones; modules make many that stay, which Python would search again and again


class Terminated(BaseException):
    """The system asked the program to terminate; unfinished work is cleaned up on the way out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code. Entry point of the script ``safeswap``."""
    # Installed before the first slow import, so that an early signal ends the program as cleanly as a later one.
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup or in the background: keep that
            signal.signal(number, _on_signal)
    sys.unraisablehook = _on_unraisable
    # The threads of NumPy's and SciPy's linear algebra would wait for work without sleeping, at every start.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])
    atexit.unregister(_skip_collection)
    atexit.register(_skip_collection)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = 0 if show_help(words) else _run(words)
    except KeyboardInterrupt:
        code = 130
    except Terminated:
        code = 143
    sys.exit(code)


def _skip_collection() -> None:
    """Let the process end without a search for garbage among all that the modules made.

    DuckDB's module lists what of it was not collected on the standard error, as if it were a fault.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def show_help(words: Sequence[str]) -> bool:
    """Show the help of a command if the words ask for that and nothing else; return whether they do."""
    if not words or words[-1] not in ("-h", "--help"):
        return False
    from safeswap.cli.help import show_stored

    try:
        return show_stored(words)
    except (BrokenPipeError, UnicodeEncodeError):
        return False  # the whole program knows what to do


def _run(words: Sequence[str]) -> int:
    from safeswap.cli.app import run
    from safeswap.workflow.without_pandas import hide_pandas

    hide_pandas()
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    return run(words)


def _on_signal(number: int, _: FrameType | None) -> None:
    global _last_signal  # noqa: PLW0603  (a signal handler has no other place for its state)
    now = time.monotonic()
    if now - _last_signal < CLEANUP_SECONDS:
        return
    _last_signal = now
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _on_unraisable(dropped: sys.UnraisableHookArgs) -> None:
    """Deliver a signal again if Python dropped its exception in a finaliser or a callback."""
    global _last_signal  # noqa: PLW0603
    if not isinstance(dropped.exc_value, KeyboardInterrupt | Terminated) or not hasattr(signal, "setitimer"):
        sys.__unraisablehook__(dropped)
        return
    number = signal.SIGINT if isinstance(dropped.exc_value, KeyboardInterrupt) else signal.SIGTERM
    _last_signal = -CLEANUP_SECONDS
    # Delayed, or it would be raised in the same callback.
    signal.signal(signal.SIGALRM, lambda *_: _on_signal(number, None))
    signal.setitimer(signal.ITIMER_REAL, _REDELIVERY_SECONDS)
