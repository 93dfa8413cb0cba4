"""The worker's side of a job process: start it, send the job, read its messages, stop it."""

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

_CRASHED = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_PIECE = 1 << 16
_LONGEST = 1 << 28  # bytes of one message


def to_plain(value: Any) -> Any:
    """Convert to JSON values: arrays to lists, paths to file names, non-finite numbers to None.

    >>> import numpy as np
    >>> to_plain({"file": Path("/srv/store/a.csv"), "shares": np.array([0.5, np.nan]), 3: {1}})
    {'file': 'a.csv', 'shares': [0.5, None], '3': [1]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(each) for each in value]
    if isinstance(value, Path):
        return value.name
    for convert in ("tolist", "isoformat"):
        if hasattr(value, convert):
            return to_plain(getattr(value, convert)())
    raise TypeError(f"{type(value).__name__} is not plain")


def as_json(value: Any) -> str:
    """Serialise to one line of strict JSON."""
    return json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def public_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error as shown to users: server paths become file names.

    >>> public_error({"error": "InputError", "code": "x", "message": "", "hint": "", "fields": {"file": "/srv/a.csv"}})
    {'error': 'InputError', 'code': 'x', 'message': '', 'hint': '', 'fields': {'file': 'a.csv'}}
    """
    fields = {
        name: Path(str(each)).name if name == "file" else to_plain(each)
        for name, each in error.get("fields", {}).items()
    }
    return {**{name: str(error.get(name, "")) for name in ("error", "code", "message", "hint")}, "fields": fields}


class JobProcess:
    """A child process that waits for a job, confined before it gets one."""

    def __init__(self) -> None:
        ours, theirs = os.pipe()
        try:
            # Output is discarded: a warning of a library may quote the file.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "safeswap.service.work.child", str(os.getpid()), str(theirs)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
                start_new_session=True,  # an interrupt at the terminal goes to the worker only
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
        """The process id."""
        return self._process.pid

    def send_job(self, order: Mapping[str, Any]) -> None:
        """Send the job. If the process has died, reading its messages will show it."""
        with suppress(BrokenPipeError):
            stdin = self._process.stdin
            assert stdin is not None  # noqa: S101  (opened with PIPE)
            stdin.write(as_json(order).encode() + b"\n")
            stdin.close()

    def read_messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield the messages received so far, after waiting for at most ``seconds``."""
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
        """True if the process will send no more messages."""
        return not self._open

    def stop(self) -> None:
        """Terminate the process, then kill it."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE if self._open else 0.1)
        self.kill()

    def kill(self) -> int:
        """Kill the process and return its exit code."""
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

    def wait(self) -> int:
        """Wait for the process to exit after its last message, and return its exit code."""
        deadline = time.monotonic() + _GRACE
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.kill()


def _environment() -> dict[str, str]:
    """Return the worker's environment without access to the database."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SAFESWAP_", "PG"))}
    # Each malloc arena reserves address space that counts against the memory limit, eight per processor by default.
    return {"MALLOC_ARENA_MAX": "4", **known}


def to_error(reported: Mapping[str, Any]) -> SafeswapError:
    """Convert an error reported by a process to a safeswap error.

    >>> reported = {"error": "InputError", "code": "bad-line", "message": "line 3", "hint": "", "fields": {"line": 3}}
    >>> type(to_error(reported)).__name__, to_error(reported).fields["line"]
    ('InputError', 3)
    """
    clean = public_error(reported)
    kinds = {kind.__name__: kind for kind in ERROR_CLASSES}
    fields = {name: value for name, value in clean["fields"].items() if name not in {"message", "code", "hint", "self"}}
    return kinds.get(clean["error"], InternalError)(clean["message"], code=clean["code"], hint=clean["hint"], **fields)


def explain_exit(code: int) -> tuple[SafeswapError, bool]:
    """Return why a process ended without a result, from its exit code, and whether a retry may help.

    >>> explain_exit(-signal.SIGXCPU)[0].code, explain_exit(-signal.SIGKILL)[1]
    ('too-much-time', True)
    """
    number = -code if code < 0 else 0
    if number == signal.SIGXCPU:
        slow = InputError(
            "the job took more processor time than it may use",
            code="too-much-time",
            hint="request less at once, or ask the administrator to raise the limit",
        )
        return slow, False
    if number in _CRASHED:
        crash = EngineError(
            "the process that did the job crashed, most likely for lack of memory",
            code="job-crashed",
            hint="use a smaller file or fewer attributes, or ask the administrator to raise the limit",
            signal=signal.Signals(number).name,
        )
        return crash, False
    lost = InternalError("the process that ran the job was stopped from outside", code="job-killed", hint="try again")
    return lost, True
