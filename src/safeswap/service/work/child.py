"""The child process of a worker that runs one job in a sandbox, then exits.

It reads one line of JSON from stdin (settings, job, project) and writes lines of JSON to a pipe: progress, and finally
the outcome. Output of libraries is discarded: it might quote a record.

The sandbox limits memory, processor time and file size, and leaves no network and no life after the worker. The
operating system enforces it, so it holds for every library. The process sets the limits before it reads any untrusted
input, and cannot lift them again.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from safeswap.service.settings import Limits

if TYPE_CHECKING:
    from safeswap.errors import SafeswapError

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_FILTER = 2
_NICE = 15
# Per machine: the audit architecture, and the numbers of socket and io_uring_setup, which can create sockets too.
_MACHINES = {"x86_64": (0xC000003E, (41, 425)), "aarch64": (0xC00000B7, (198, 425))}
_NETWORK_EVENTS = ("socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, however that happens."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # No core dumps and no tracing: the memory holds records.
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:  # it ended before prctl
        os._exit(1)


def lower_priority() -> None:
    """Lower the scheduling priority, so that interactive requests do not wait for jobs."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(AttributeError, OSError):  # where supported: batch jobs do not preempt on wake-up
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def cut_network() -> frozenset[str]:
    """Cut this process off from all networks and sockets; return the mechanisms in effect.

    An own network namespace leaves nothing to connect to, not even loopback. A seccomp filter refuses to create sockets
    at all, including those to a local database. Where the system allows neither, an audit hook refuses sockets in the
    interpreter: that stops every Python library, though not native code exploited by a malicious file.
    """
    means = {"namespace": _enter_network_namespace(), "filter": _install_filter(), "hook": True}
    sys.addaudithook(_refuse_sockets)
    return frozenset(name for name, there in means.items() if there)


def _enter_network_namespace() -> bool:
    if sys.platform != "linux":
        return False
    libc = _libc()
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        # Without the mapping, files appear to be owned by nobody but are usable: some systems do not allow it.
        with suppress(OSError), open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(line)
    return True


def _install_filter() -> bool:
    """Install a seccomp filter that refuses socket system calls to this process and its children."""
    machine = _MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None:
        return False
    architecture, calls = machine
    program = _build_filter(architecture, calls)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = _libc()
    # An unprivileged process may install a filter only after giving up new privileges.
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(filters), 0, 0) == 0)


def _build_filter(architecture: int, calls: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Return the BPF program as (code, jump if true, jump if false, operand)."""
    load, is_equal, is_at_least, answer = 0x20, 0x15, 0x35, 0x06
    refused, killed, allowed = 0x00050000 | errno.EACCES, 0x80000000, 0x7FFF0000
    steps = [
        (load, 0, 0, 4),  # architecture of the call
        (is_equal, 1, 0, architecture),
        (answer, 0, 0, killed),
        (load, 0, 0, 0),  # number of the call
        (is_at_least, len(calls) + 1, 0, 0x40000000),  # x32 numbers: refused
    ]
    steps += [(is_equal, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    return [*steps, (answer, 0, 0, allowed), (answer, 0, 0, refused)]


def _refuse_sockets(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _NETWORK_EVENTS:
        raise PermissionError("a job has no network")


def set_limits(limits: Limits, which: str) -> None:
    """Limit memory, processor time and the size of any one file."""
    import resource

    parse = which == "parse"
    memory = limits.parse_memory_bytes if parse else limits.job_memory_bytes
    seconds = limits.parse_seconds if parse else limits.job_seconds
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        # The soft limit sends SIGXCPU, which tells the reason; the hard limit kills five seconds later.
        (resource.RLIMIT_CPU, seconds, seconds + 5),
        (resource.RLIMIT_FSIZE, limits.project_bytes, limits.project_bytes),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _lower_limit(resource, kind, soft, hard)


def _lower_limit(resource: Any, kind: int, soft: int, hard: int) -> None:
    """Lower a limit; a stricter one stays."""
    _, now_hard = resource.getrlimit(kind)
    if now_hard != resource.RLIM_INFINITY:
        soft, hard = min(soft, now_hard), min(hard, now_hard)
    resource.setrlimit(kind, (soft, hard))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Confine this process, import libraries, wait for the job and run it."""
    parent, pipe = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    lower_priority()
    network = cut_network()
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as answers:
        stop = _Stop()
        signal.signal(signal.SIGTERM, stop)
        _import_libraries()
        _send(answers, ready=True, network=sorted(network))
        if line := sys.stdin.readline():
            _run(json.loads(line), answers, stop)


class _Stop:
    """SIGTERM handler; the job is cancelled when it next reports progress."""

    asked = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def _import_libraries() -> None:
    """Import what nearly every job needs, before the job arrives."""
    import pyarrow.parquet

    from safeswap.workflow.without_pandas import hide_pandas

    hide_pandas()
    import_module("safeswap.methods")
    import_module("safeswap.service.routes.maskings")
    pyarrow.set_cpu_count(os.cpu_count() or 1)


def _run(order: dict[str, Any], answers: TextIO, stop: _Stop) -> None:
    from safeswap.errors import SafeswapError
    from safeswap.service.keeping.store import sync_folder
    from safeswap.service.settings import Settings
    from safeswap.service.work.jobs import Claim
    from safeswap.service.work.tasks import Cancelled, Context, find

    def report(fraction: float, message: str) -> None:
        if stop.asked:
            raise Cancelled
        _send(answers, progress=float(fraction), message=message)

    settings, job = Settings.model_validate(order["settings"]), Claim(**order["job"])
    context = Context(settings=settings, job=job, project=order["project"], report=report)
    try:
        task = find(job.kind, order["modules"])
        _use_scratch(context.scratch)
        set_limits(settings.limits, task.limits)
        result = task.run(context, dict(job.payload))
        if context.saved:
            sync_folder(context.result_folder)  # before the result is announced
        _send(answers, outcome=result, saved=context.saved)
    except Cancelled:
        _send(answers, cancelled=True)
    except SafeswapError as error:
        _send(answers, error=error.as_dict())
    except Exception as error:  # noqa: BLE001  (its message may quote a record: only its type is passed on)
        _send(answers, error=_wrap(error, job.kind).as_dict())


def _wrap(error: Exception, kind: str) -> SafeswapError:
    from safeswap.errors import InputError, InternalError, OutputError, locate

    if isinstance(error, MemoryError):
        return InputError(
            "the job needs more memory than it may use",
            code="too-much-memory",
            hint="use a smaller file or fewer attributes, or ask the administrator to raise the limit",
        )
    if isinstance(error, OSError) and error.errno in {errno.EFBIG, errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            "the job wrote more than it may write, or the disk is full",
            code="disk-full",
            hint="ask the administrator to free disk space",
        )
    return InternalError(
        "unexpected error in the job",
        code="job-broke",
        hint="please report it, with the kind of the job and the name of the error",
        kind=kind,
        exception=type(error).__name__,
        place=locate(error),
    )


def _use_scratch(folder: Path) -> None:
    """Make every library put temporary files into the job's own folder."""
    for name in ("TMPDIR", "TMP", "TEMP"):
        os.environ[name] = str(folder)
    tempfile.tempdir = None
    os.chdir(folder)
    os.umask(0o077)


def _send(answers: TextIO, **message: Any) -> None:
    from safeswap.service.work.process import as_json

    answers.write(as_json(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
