"""A worker: claims jobs from the queue and runs each in a child process that may crash without harm.

Run one with ``python -m safeswap.service.work.worker settings.toml``. Any number may run, on any machine with access to
the database and the store; the clocks of these machines should agree to within a few seconds.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import InterfaceError, OperationalError

from safeswap.errors import InternalError, SafeswapError
from safeswap.service.http import logs
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.migrate import check
from safeswap.service.keeping.store import Store, delete_idle_projects, erase, result_id
from safeswap.service.keeping.tables import projects
from safeswap.service.keeping.vault import open_vault
from safeswap.service.settings import Settings, read_settings
from safeswap.service.work.jobs import Claim, Queue
from safeswap.service.work.process import JobProcess, explain_exit, to_error
from safeswap.service.work.tasks import MODULES, find, run_failed, run_finish, run_prepare

_POLL = 0.25  # seconds between polls of a running job
_REPORT = 1.0  # seconds between progress reports
_IDLE = 0.5  # seconds between polls of an empty queue
_HOUR = 3600.0
_UNREACHABLE = (OperationalError, InterfaceError)  # the database may come back
T = TypeVar("T")


class Worker:
    """One worker. ``run`` continues until stopped, ``run_until_idle`` until the queue is empty."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database | None = None,
        name: str | None = None,
        modules: Mapping[str, str] = MODULES,
        parent: int | None = None,
    ) -> None:
        self.name = name or f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._settings = settings
        self._store = Store(settings)
        self._database = database or open_database(
            settings.database, log_key=auditlog.derive_key(open_vault(settings).master_key.secret)
        )
        self._modules = dict(modules)
        self._queue = Queue(self._database, settings, on_end=self._run_failed_hook)
        self._spare: JobProcess | None = None
        self._parent = parent  # the server process that this worker ends with
        self._stopped_by_signal = False
        self._looked = self._swept = -math.inf  # times of the last housekeeping

    def run(self) -> None:
        """Run jobs until :meth:`stop` is called, also by a signal."""
        self._retry(lambda: check(self._database))
        logs.event("worker-start", worker=self.name)
        try:
            while not self._stopping:
                self._do_housekeeping()
                self._spare = self._spare or JobProcess()
                if not self._step():
                    time.sleep(_IDLE)
        finally:
            if self._spare is not None:
                self._spare.kill()
            logs.event("worker-stop", worker=self.name)

    def _do_housekeeping(self) -> None:
        """Expire leases, and once an hour delete idle projects and leftover files."""
        at = time.monotonic()
        if at - self._looked > self._settings.lease_seconds / 2:
            self._retry(self._queue.expire)
            self._looked = at
        if at - self._swept > _HOUR:
            self._retry(lambda: delete_idle_projects(self._database, self._store, self._settings))
            self._retry(lambda: self._store.sweep(self._database))
            self._swept = at

    def run_until_idle(self) -> int:
        """Run the queued jobs and return how many were started."""
        started = 0
        while not self._stopping and self._step():
            started += 1
        return started

    def stop(self, *_signal: int | FrameType | None) -> None:
        """Requeue the current job and claim no other."""
        self._stopped_by_signal = True

    @property
    def _stopping(self) -> bool:
        return self._stopped_by_signal or (self._parent is not None and os.getppid() != self._parent)

    def _step(self) -> bool:
        claim = self._retry(lambda: self._queue.claim(self.name, tuple(self._modules)))
        if claim is None:
            return False
        started = time.monotonic()
        logs.event("job-start", **_log_fields(claim))
        state = self._run_job(claim)
        logs.event("job-end", **_log_fields(claim), state=state, ms=1000 * (time.monotonic() - started))
        return True

    def _run_job(self, claim: Claim) -> str:
        process, self._spare = self._spare or JobProcess(), None
        try:
            process.send_job(self._build_order(claim))
            last = self._watch(claim, process)
            if last is None:
                return self._stop_job(claim, process)
            return self._conclude(claim, process, last)
        except SafeswapError as error:  # the job could not be prepared
            return self._fail(claim, error, retry=False)
        except (ValueError, KeyError, TypeError):  # not our protocol: the process may be compromised
            garbled = InternalError("the process that ran the job sent an invalid message", code="job-garbled")
            return self._fail(claim, garbled, retry=False)
        finally:
            process.kill()
            self._store.clear(claim.id, claim.fence)

    def _build_order(self, claim: Claim) -> dict[str, Any]:
        def load_project() -> dict[str, Any]:
            with self._database.read() as connection:
                run_prepare(connection, claim, self._settings, self._modules)
                row = connection.execute(select(projects).where(projects.c.id == claim.project_id)).mappings().first()
                return dict(row) if row is not None else {}

        settings = self._settings.model_copy(update={"database_url": ""})  # it may hold a password
        return {
            "settings": settings.model_dump(mode="json"),
            "job": dict(vars(claim)),
            "project": self._retry(load_project),
            "modules": self._modules,
        }

    def _watch(self, claim: Claim, process: JobProcess) -> dict[str, Any] | None:
        """Read messages until the process ends; return the last one, empty if it died. None: the job must stop."""
        beaten = heard = time.monotonic()
        progress: tuple[float | None, str | None] = (None, None)
        last: dict[str, Any] = {}
        while not process.is_over:
            for answer in process.read_messages(_POLL):
                if "progress" in answer:
                    progress = (answer["progress"], answer["message"])
                elif "ready" not in answer:
                    last = answer
            if self._stopping:
                return None
            at = time.monotonic()
            if at - beaten > self._settings.lease_seconds / 4 or (progress[0] is not None and at - beaten > _REPORT):
                try:
                    if not self._queue.heartbeat(claim, *progress):
                        return None
                    heard = at
                except _UNREACHABLE:
                    if at - heard > self._settings.lease_seconds:  # another worker may have the job by now
                        return None
                beaten, progress = at, (None, None)
        return last

    def _conclude(self, claim: Claim, process: JobProcess, last: dict[str, Any]) -> str:
        code = process.wait()
        if "outcome" in last:
            return self._succeed(claim, last["outcome"], last["saved"])
        if "error" in last:
            return self._fail(claim, to_error(last["error"]), retry=False)
        if "cancelled" in last:
            return self._stop_job(claim, process)
        error, retry = explain_exit(code)
        return self._fail(claim, error, retry=retry)

    def _succeed(self, claim: Claim, outcome: dict[str, Any], saved: list[dict[str, Any]]) -> str:
        def also(connection: Any) -> dict[str, Any] | None:
            return run_finish(connection, claim, outcome, saved, settings=self._settings, modules=self._modules)

        try:
            if self._retry(lambda: self._queue.succeed(claim, outcome, also)):
                self._clean(claim)
                return "succeeded"
        except _UNREACHABLE:
            raise
        except SafeswapError as error:
            return self._fail(claim, error, retry=False)
        except Exception as error:  # noqa: BLE001  (the worker must continue; the message is not repeated)
            broke = InternalError(
                "the result could not be recorded", code="finish-broke", kind=claim.kind, exception=type(error).__name__
            )
            return self._fail(claim, broke, retry=False)
        return self._fail(claim, InternalError("the job was given to another", code="worker-lost"), retry=True)

    def _fail(self, claim: Claim, error: SafeswapError, *, retry: bool) -> str:
        heard = self._retry(lambda: self._queue.fail(claim, error, retry=retry))
        row = self._retry(lambda: self._queue.get(claim.id))
        if claim.project_id is not None and self._store.exists(claim.project_id):
            erase(self._store.result(claim.project_id, result_id(claim.id, claim.fence)))
        state = "lost" if row is None or not heard else str(row["state"])
        if state in {"failed", "cancelled"}:
            logs.event("job-error", **_log_fields(claim), code=error.code)
            self._clean(claim)
        return state

    def _stop_job(self, claim: Claim, process: JobProcess) -> str:
        process.stop()
        if self._stopping and self._retry(lambda: self._queue.requeue(claim)):
            return "queued"
        return self._fail(claim, InternalError("the job was stopped", code="job-stopped"), retry=True)

    def _clean(self, claim: Claim) -> None:
        clean = find(claim.kind, self._modules).clean
        try:
            self._store.clear(claim.id)
            if clean is not None:
                clean(claim, self._store)
        except (SafeswapError, OSError) as error:  # the next sweep retries
            logs.event("clean-failed", **_log_fields(claim), exception=type(error).__name__)

    def _run_failed_hook(self, connection: Any, job: Any) -> None:
        run_failed(connection, job, self._settings, self._modules)

    def _retry(self, call: Callable[[], T]) -> T:
        """Retry a database call while the database is unreachable; the fence makes repeats harmless."""
        pause = 0.05
        while True:
            try:
                return call()
            except _UNREACHABLE:
                if self._stopping:
                    raise
                logs.event("database-away", worker=self.name)
                time.sleep(pause)
                pause = min(2 * pause, 5.0)


def _log_fields(claim: Claim) -> dict[str, Any]:
    fields = {"job_id": claim.id, "kind": claim.kind, "attempts": claim.attempts, "worker": claim.worker}
    return fields if claim.project_id is None else {**fields, "project_id": claim.project_id}


def main(settings: Settings) -> None:
    """Run a worker in this process until a signal."""
    logs.configure(settings)
    parent = os.environ.get("SAFESWAP_WORKER_OF", "")
    worker = Worker(settings, parent=int(parent) if parent.isdigit() else None)
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    worker.run()


if __name__ == "__main__":
    main(read_settings(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
