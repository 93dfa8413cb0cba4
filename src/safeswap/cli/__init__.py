"""The command line: one file per command, each a thin layer over the verbs of :mod:`safeswap.workflow`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

# So long after a signal a second one is not let into the tidying up that the first one started.
TIDYING_SECONDS = 2.0

_SOON = 0.01

_last_signal = -TIDYING_SECONDS


class Terminated(BaseException):
    """The system asked the program to end; what was begun is tidied up on the way out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code. The script ``safeswap`` starts here."""
    # Set before the first import that takes time: a signal then ends the program as tidily as one that comes later.
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a job in the background: left as it is
            signal.signal(number, _on_signal)
    sys.unraisablehook = _on_dropped
    try:
        from safeswap.cli.app import run

        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = 130
    except Terminated:
        code = 143
    sys.exit(code)


def _on_signal(number: int, _: FrameType | None) -> None:
    global _last_signal  # noqa: PLW0603  (a signal handler has no other place to remember)
    now = time.monotonic()
    if now - _last_signal < TIDYING_SECONDS:
        return
    _last_signal = now
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _on_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops an exception in a finaliser or a callback. If it was that of a signal, the signal comes again."""
    global _last_signal  # noqa: PLW0603
    if not isinstance(dropped.exc_value, KeyboardInterrupt | Terminated) or not hasattr(signal, "setitimer"):
        sys.__unraisablehook__(dropped)
        return
    number = signal.SIGINT if isinstance(dropped.exc_value, KeyboardInterrupt) else signal.SIGTERM
    _last_signal = -TIDYING_SECONDS
    # Not at once, which would be within the same callback.
    signal.signal(signal.SIGALRM, lambda *_: _on_signal(number, None))
    signal.setitimer(signal.ITIMER_REAL, _SOON)
