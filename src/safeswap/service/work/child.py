"""The process that does one job: started by a worker, walled in, gone when the job is done.

It reads one line of JSON from its input (settings, job, project) and writes lines of JSON to a pipe of its own: how far
it is, and at last what came of it. What libraries print goes nowhere: it might quote a record.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from safeswap.service.work import confine

if TYPE_CHECKING:
    from safeswap.errors import SafeswapError


def main() -> None:
    """Wall this process in, load what jobs need, wait for the job, do it."""
    parent, pipe = int(sys.argv[1]), int(sys.argv[2])
    confine.die_with(parent)
    confine.step_back()
    network = confine.without_network()
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as answers:
        stop = _Stop()
        signal.signal(signal.SIGTERM, stop)
        _load()
        _tell(answers, ready=True, network=sorted(network))
        if line := sys.stdin.readline():
            _do(json.loads(line), answers, stop)


class _Stop:
    """Whether the worker has asked this process to stop; the job hears of it when it next tells how far it is."""

    asked = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def _load() -> None:
    """Import what nearly every job needs, so that it is there when the job comes."""
    import pyarrow.parquet

    import safeswap.methods
    import safeswap.service.tasks.context  # noqa: F401

    pyarrow.set_cpu_count(os.cpu_count() or 1)


def _do(asked: dict[str, Any], answers: TextIO, stop: _Stop) -> None:
    from safeswap.errors import SafeswapError
    from safeswap.service.keeping.erase import sync_folder
    from safeswap.service.settings import Settings
    from safeswap.service.tasks import find
    from safeswap.service.tasks.context import Cancelled, Context
    from safeswap.service.work.jobs import Claim

    def report(fraction: float, message: str) -> None:
        if stop.asked:
            raise Cancelled
        _tell(answers, progress=float(fraction), message=message)

    settings, job = Settings.model_validate(asked["settings"]), Claim(**asked["job"])
    context = Context(settings=settings, job=job, project=asked["project"], report=report)
    try:
        task = find(job.kind, asked["packages"])
        _use_scratch(context.scratch)
        confine.limited(settings.limits, task.limits)
        result = task.run(context, dict(job.payload))
        if context.saved:
            sync_folder(context.result_folder)  # before anybody is told of it
        _tell(answers, outcome=result, saved=context.saved)
    except Cancelled:
        _tell(answers, cancelled=True)
    except SafeswapError as error:
        _tell(answers, error=error.as_dict())
    except Exception as error:  # noqa: BLE001  (its words may quote a record: only what it is goes further)
        _tell(answers, error=_as_ours(error, job.kind).as_dict())


def _as_ours(error: Exception, kind: str) -> SafeswapError:
    from safeswap.errors import InputError, InternalError, OutputError

    if isinstance(error, MemoryError):
        return InputError(
            "the job needs more memory than it may take",
            code="too-much-memory",
            hint="use a smaller file or fewer attributes, or ask the administrator to raise the limit",
        )
    if isinstance(error, OSError) and error.errno in {errno.EFBIG, errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            "the job wrote more than it may write, or the disk is full",
            code="disk-full",
            hint="ask the administrator to make room",
        )
    return InternalError(
        "the job broke in a way that nobody foresaw",
        code="job-broke",
        hint="please report it, with the kind of the job and the name of the error",
        kind=kind,
        exception=type(error).__name__,
        place=_place(error),
    )


def _place(error: BaseException) -> str:
    """The module and line of ours in which it happened, which says nothing of the data."""
    place, trace = "", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("safeswap."):
            place = f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _use_scratch(folder: Path) -> None:
    """Let every library put its temporary files into the job's own folder."""
    for name in ("TMPDIR", "TMP", "TEMP"):
        os.environ[name] = str(folder)
    tempfile.tempdir = None
    os.chdir(folder)
    os.umask(0o077)


def _tell(answers: TextIO, **told: Any) -> None:
    from safeswap.service.work.process import as_json

    answers.write(as_json(told) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
