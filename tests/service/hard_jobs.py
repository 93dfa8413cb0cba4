"""Jobs that behave badly, each in its own way; found by workers that are told to look here."""

from __future__ import annotations

import os
import resource
import signal
import socket
import tempfile
import time
from pathlib import Path

from safeswap.service.work.tasks import Context, Task

CANARY = "Miller 1954-03-02"


def look_around(context: Context, payload: dict) -> dict:
    """Tell what the process can see of the world."""
    try:
        with socket.create_connection(("127.0.0.1", payload["port"]), timeout=2):
            reached = True
    except OSError as error:
        reached = type(error).__name__
    return {
        "network": reached,
        "temporary": tempfile.gettempdir(),
        "here": str(Path.cwd()),
        "interfaces": [line.split(":")[0].strip() for line in Path("/proc/self/net/dev").open() if ":" in line],
        "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
        "secrets": [name for name in os.environ if name.startswith(("SAFESWAP_", "PG"))],
        "database": context.settings.database_url,
        "project": context.project["name"],
    }


def die_at_first(context: Context, payload: dict) -> dict:
    """Write half a result and be killed, as often as the payload says; then do it properly."""
    (context.checkpoint / str(context.job.attempts)).touch()
    (context.result_folder / "half").write_text(CANARY)
    (context.scratch / "half").write_text(CANARY)
    if context.job.attempts <= payload["deaths"]:
        os.kill(os.getpid(), signal.SIGKILL)
    tries = sorted(path.name for path in context.checkpoint.iterdir())
    return context.save_result("study", {}, {"tries": tries})


def wait(context: Context, payload: dict) -> dict:
    """Say who one is, and go on until somebody asks for an end, or the payload's attempts are over."""
    (context.checkpoint / "pid").write_text(str(os.getpid()))
    while context.job.attempts <= payload.get("attempts", 99):
        context.progress(0.5, "waiting")
        time.sleep(0.05)
    return {}


def take_memory(context: Context, payload: dict) -> dict:
    return {"taken": len(bytearray(payload["bytes"]))}


def take_time(context: Context, payload: dict) -> dict:
    while True:
        pass


def take_disk(context: Context, payload: dict) -> dict:
    (context.scratch / "large").write_bytes(bytes(payload["bytes"]))
    return {}


def stumble(context: Context, payload: dict) -> dict:
    print(CANARY)
    raise ValueError(CANARY)


def crash(context: Context, payload: dict) -> dict:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def _cannot(connection, job, outcome, store):
    raise ValueError(CANARY)


def _nothing(context: Context, payload: dict) -> dict:
    return {}


TASKS = (
    Task("look_around", look_around),
    Task("die_at_first", die_at_first),
    Task("wait", wait),
    Task("take_memory", take_memory, limits="parse"),
    Task("take_time", take_time, limits="parse"),
    Task("take_disk", take_disk),
    Task("stumble", stumble),
    Task("crash", crash),
    Task("unrecordable", _nothing, finish=_cannot),
)
MODULES = {task.name: __name__ for task in TASKS}
