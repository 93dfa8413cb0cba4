"""The child process of a worker that runs one job in a sandbox, then exits.

It reads one line of JSON from stdin (settings, job, project) and writes lines of JSON to a pipe: progress, and finally
the outcome. Output of libraries is discarded: it might quote a record.
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
    """Confine this process, import libraries, wait for the job and run it."""
    parent, pipe = int(sys.argv[1]), int(sys.argv[2])
    confine.die_with_parent(parent)
    confine.lower_priority()
    network = confine.cut_network()
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

    import safeswap.methods
    import safeswap.service.routes.maskings  # noqa: F401

    pyarrow.set_cpu_count(os.cpu_count() or 1)


def _run(order: dict[str, Any], answers: TextIO, stop: _Stop) -> None:
    from safeswap.errors import SafeswapError
    from safeswap.service.keeping.erase import sync_folder
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
        confine.set_limits(settings.limits, task.limits)
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
        "unexpected error in the job",
        code="job-broke",
        hint="please report it, with the kind of the job and the name of the error",
        kind=kind,
        exception=type(error).__name__,
        place=_locate(error),
    )


def _locate(error: BaseException) -> str:
    """Return the innermost safeswap module and line of an error, which reveal nothing about the data."""
    place, trace = "", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("safeswap."):
            place = f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


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
