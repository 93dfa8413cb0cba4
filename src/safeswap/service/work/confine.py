"""Walls around the process that does a job: memory, processor time, file size, no network, no life after the worker.

The walls are the operating system's, so they hold whatever library reads the file. They are put up by the process
itself before it looks at anything foreign, and cannot be taken down again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import Any

from safeswap.service.settings import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_FILTER = 2
_NICE = 15
# By machine: the name of its architecture, and its numbers of socket and io_uring_setup, which can make sockets too.
_MACHINES = {"x86_64": (0xC000003E, (41, 425)), "aarch64": (0xC00000B7, (198, 425))}
_NETWORK_EVENTS = ("socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")


def die_with(parent: int) -> None:
    """See to it that this process is killed when its parent ends, however that ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # No memory of this process in a core file, nor for others who trace it: it holds records.
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we had said so
        os._exit(1)


def step_back() -> None:
    """Let everything else on the machine go first: people who browse are not to wait for a job."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(AttributeError, OSError):  # where there is such a thing: a job interrupts nobody when it wakes up
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def without_network() -> frozenset[str]:
    """Cut this process off from every network and every socket; by which means.

    In a network namespace of its own there is nothing to connect to, not even the machine itself. A filter in the
    kernel refuses to make sockets at all, also to a database on this machine. Where the system allows neither, sockets
    are refused inside the interpreter: that stops every Python library, though not native code that a forged file
    might have taken over.
    """
    means = {"namespace": _own_namespace(), "filter": _filtered(), "hook": True}
    sys.addaudithook(_refuse_sockets)
    return frozenset(name for name, there in means.items() if there)


def _own_namespace() -> bool:
    if sys.platform != "linux":
        return False
    libc = _libc()
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        # Without it files seem to belong to nobody, but can be used: some systems do not allow it.
        with suppress(OSError), open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(line)
    return True


def _filtered() -> bool:
    """Let the kernel refuse this process, and all that it starts, the system calls that make sockets (seccomp)."""
    machine = _MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None:
        return False
    architecture, calls = machine
    program = _program(architecture, calls)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = _libc()
    # A filter of one's own is allowed to whoever gives up ever getting more rights.
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(filters), 0, 0) == 0)


def _program(architecture: int, calls: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Steps for the kernel's little machine: (what to do, steps to leap if so, if not, operand)."""
    load, is_equal, is_at_least, answer = 0x20, 0x15, 0x35, 0x06
    refused, killed, allowed = 0x00050000 | errno.EACCES, 0x80000000, 0x7FFF0000
    steps = [
        (load, 0, 0, 4),  # of which architecture is the call?
        (is_equal, 1, 0, architecture),
        (answer, 0, 0, killed),
        (load, 0, 0, 0),  # which call is it?
        (is_at_least, len(calls) + 1, 0, 0x40000000),  # by numbers of another kind: refused
    ]
    steps += [(is_equal, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    return [*steps, (answer, 0, 0, allowed), (answer, 0, 0, refused)]


def _refuse_sockets(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _NETWORK_EVENTS:
        raise PermissionError("a job has no network")


def limited(limits: Limits, which: str) -> None:
    """Put limits on memory, processor time and the size of any one file."""
    import resource

    parse = which == "parse"
    memory = limits.parse_memory_bytes if parse else limits.job_memory_bytes
    seconds = limits.parse_seconds if parse else limits.job_seconds
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        # The first is a signal that says why; who ignores it is killed five seconds later.
        (resource.RLIMIT_CPU, seconds, seconds + 5),
        (resource.RLIMIT_FSIZE, limits.project_bytes, limits.project_bytes),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _lower(resource, kind, soft, hard)


def _lower(resource: Any, kind: int, soft: int, hard: int) -> None:
    """A limit that is stricter already stays."""
    _, now_hard = resource.getrlimit(kind)
    if now_hard != resource.RLIM_INFINITY:
        soft, hard = min(soft, now_hard), min(hard, now_hard)
    resource.setrlimit(kind, (soft, hard))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
