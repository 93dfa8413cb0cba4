"""Walls around the process that does a job: memory, processor time, file size, no network, no life after the worker.

The walls are the operating system's, so they hold whatever library reads the file. They are put up by the process
itself before it looks at anything foreign, and cannot be taken down again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from safeswap.service.settings import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NETWORK_EVENTS = ("socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo")


def die_with(parent: int) -> None:
    """See to it that this process is killed when its parent ends, however that ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # No memory of this process in a core file, nor for others who trace it: it holds records.
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we had said so
        os._exit(1)


def without_network() -> str:
    """Cut this process off from every network; by which means: "namespace", "user namespace" or "hook".

    In a network namespace of its own there is nothing to connect to, not even the machine itself. Where the system does
    not allow one, sockets are refused inside the interpreter: that stops every Python library, though not native code
    that a forged file might have taken over.
    """
    how = _own_namespace()
    sys.addaudithook(_refuse_sockets)
    return how or "hook"


def _own_namespace() -> str:
    if sys.platform != "linux":
        return ""
    libc = _libc()
    if libc.unshare(_CLONE_NEWNET) == 0:
        return "namespace"
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return ""
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123  (the kernel wants one write)
            file.write(line)
    return "user namespace"


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
