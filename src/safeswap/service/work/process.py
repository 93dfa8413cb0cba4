"""A worker's hold on the process that does a job: start it, hand it the job, listen, stop it."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safeswap.errors import ERROR_CLASSES, EngineError, InputError, InternalError, SafeswapError

# What goes from one process to another, or into a column of JSON: plain values, whatever they were computed as.


def plain(value: Any) -> Any:
    """Plain values: arrays as lists, paths as the name of the file only, what is not finite as None.

    >>> import numpy as np
    >>> plain({"file": Path("/srv/store/a.csv"), "shares": np.array([0.5, np.nan]), 3: {1}})
    {'file': 'a.csv', 'shares': [0.5, None], '3': [1]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, Path):
        return value.name
    for convert in ("tolist", "isoformat"):
        if hasattr(value, convert):
            return plain(getattr(value, convert)())
    raise TypeError(f"{type(value).__name__} is not plain")


def as_json(value: Any) -> str:
    """One line of JSON that every reader of JSON takes."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def public_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error as it may be shown to whoever asked for the job: paths of the server become names of files.

    >>> public_error({"error": "InputError", "code": "x", "message": "", "hint": "", "fields": {"file": "/srv/a.csv"}})
    {'error': 'InputError', 'code': 'x', 'message': '', 'hint': '', 'fields': {'file': 'a.csv'}}
    """
    fields = {name: _name(each) if name == "file" else plain(each) for name, each in error.get("fields", {}).items()}
    return {**{name: str(error.get(name, "")) for name in ("error", "code", "message", "hint")}, "fields": fields}


def _name(path: Any) -> str:
    return Path(str(path)).name


_CRASHED = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_GRACE = 5.0  # seconds between asking a process to stop and stopping it
_PIECE = 1 << 16
_LONGEST = 1 << 28  # bytes of one answer


class JobProcess:
    """A process that waits for a job, walled in before it has one."""

    def __init__(self) -> None:
        ours, theirs = os.pipe()
        try:
            # What it prints is thrown away: a library that complains may quote the file that it complains of.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "safeswap.service.work.child", str(os.getpid()), str(theirs)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
                start_new_session=True,  # an interrupt at the terminal is for the worker to pass on
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._answers = ours
        self._unread = b""
        self._open = True

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def begin(self, order: Mapping[str, Any]) -> None:
        """Hand over the job. A process that has died meanwhile says so when it is listened to."""
        with suppress(BrokenPipeError):
            stdin = self._process.stdin
            assert stdin is not None  # noqa: S101  (it was asked for)
            stdin.write(as_json(order).encode() + b"\n")
            stdin.close()

    def answers(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the process has said by now, after waiting for at most ``seconds``."""
        ready, _, _ = select.select([self._answers], [], [], seconds) if self._open else ((), (), ())
        if ready:
            piece = os.read(self._answers, _PIECE)
            self._open = bool(piece)
            self._unread += piece
            if len(self._unread) > _LONGEST:
                raise ValueError("a line without an end")
        *lines, self._unread = self._unread.split(b"\n")
        yield from (json.loads(line) for line in lines)

    @property
    def is_over(self) -> bool:
        """Whether the process will say nothing more."""
        return not self._open

    def stop(self) -> None:
        """Ask the process to stop, then make it."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE if self._open else 0.1)
        self.kill()

    def kill(self) -> int:
        """Make sure that the process is gone; how it ended."""
        with suppress(ProcessLookupError):
            self._process.kill()
        code = self._process.wait()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers, self._open = -1, False
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        return code

    def ended(self) -> int:
        """How the process ended, once it has said its last word."""
        deadline = time.monotonic() + _GRACE
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.kill()


def _environment() -> dict[str, str]:
    """What the process may know of the worker's environment: not how to reach the database."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SAFESWAP_", "PG"))}
    # Each arena of the allocator reserves room that counts against the limit on memory, eight of them per processor.
    return {"MALLOC_ARENA_MAX": "4", **known}


def error_of(told: Mapping[str, Any]) -> SafeswapError:
    """The error that a process told of, as one of ours.

    >>> told = {"error": "InputError", "code": "bad-line", "message": "line 3", "hint": "", "fields": {"line": 3}}
    >>> type(error_of(told)).__name__, error_of(told).fields["line"]
    ('InputError', 3)
    """
    clean = public_error(told)
    kinds = {kind.__name__: kind for kind in ERROR_CLASSES}
    fields = {name: value for name, value in clean["fields"].items() if name not in {"message", "code", "hint", "self"}}
    return kinds.get(clean["error"], InternalError)(clean["message"], code=clean["code"], hint=clean["hint"], **fields)


def reason_of(code: int) -> tuple[SafeswapError, bool]:
    """Why a process ended without a word, from how it ended; and whether trying again may help.

    >>> reason_of(-signal.SIGXCPU)[0].code, reason_of(-signal.SIGKILL)[1]
    ('too-much-time', True)
    """
    number = -code if code < 0 else 0
    if number == signal.SIGXCPU:
        slow = InputError(
            "the job took more processor time than it may take",
            code="too-much-time",
            hint="ask for less at once, or ask the administrator to raise the limit",
        )
        return slow, False
    if number in _CRASHED:
        crash = EngineError(
            "the process that did the job crashed, most likely for want of memory",
            code="job-crashed",
            hint="use a smaller file or fewer attributes, or ask the administrator to raise the limit",
            signal=signal.Signals(number).name,
        )
        return crash, False
    lost = InternalError("the process that did the job was stopped from outside", code="job-killed", hint="try again")
    return lost, True
