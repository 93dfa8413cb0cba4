"""A worker: takes one job after another and sees it through, in a process that can be lost without harm.

``python -m safeswap.service.work.worker settings.toml`` runs one. Any number may run, on any machine that reaches the
database and the store; the clocks of these machines should agree to within a few seconds.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import InterfaceError, OperationalError

from safeswap.errors import InternalError, SafeswapError
from safeswap.service.http import logs
from safeswap.service.keeping import auditlog, retention
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.erase import erase
from safeswap.service.keeping.migrate import check
from safeswap.service.keeping.store import Store, result_id
from safeswap.service.keeping.tables import projects
from safeswap.service.keeping.vault import open_vault
from safeswap.service.settings import Settings, read_settings
from safeswap.service.tasks import PACKAGES, find, hooks, kinds
from safeswap.service.work.jobs import Claim, Queue
from safeswap.service.work.process import JobProcess, error_of, reason_of

_LOOK = 0.25  # seconds between two looks at a running job
_SHOW = 1.0  # seconds between two words about its progress
_REST = 0.5  # seconds between two looks at an empty queue
_HOUR = 3600.0
_AWAY = (OperationalError, InterfaceError)  # the database does not answer: it may come back
T = TypeVar("T")


class Worker:
    """One worker. ``run`` goes on until it is told to stop; ``run_until_idle`` until nothing waits."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database | None = None,
        name: str | None = None,
        packages: Sequence[str] = PACKAGES,
        parent: int | None = None,
    ) -> None:
        self.name = name or f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._settings = settings
        self._store = Store(settings)
        self._database = database or open_database(settings.database, log_key=_log_key(settings))
        self._packages = tuple(packages)
        self._queue = Queue(self._database, settings, ended=self._task_failed)
        self._spare: JobProcess | None = None
        self._parent = parent  # the server whose end is this worker's end
        self._stopped_by_signal = False
        self._looked = self._swept = -math.inf  # when house was last kept

    def run(self) -> None:
        """Do jobs until :meth:`stop` is called, or a signal does."""
        self._patiently(lambda: check(self._database))
        logs.event("worker-start", worker=self.name)
        try:
            while not self._stopping:
                self._keep_house()
                self._spare = self._spare or JobProcess()
                if not self._step():
                    time.sleep(_REST)
        finally:
            if self._spare is not None:
                self._spare.kill()
            logs.event("worker-stop", worker=self.name)

    def _keep_house(self) -> None:
        """Take jobs from workers that fell silent; now and then, clear away what has had its day."""
        at = time.monotonic()
        if at - self._looked > self._settings.lease_seconds / 2:
            self._patiently(self._queue.expire)
            self._looked = at
        if at - self._swept > _HOUR:
            self._patiently(lambda: retention.sweep(self._database, self._store, self._settings))
            self._patiently(lambda: self._store.sweep(self._database))
            self._swept = at

    def run_until_idle(self) -> int:
        """Do what waits, then come back; how many jobs were begun."""
        begun = 0
        while not self._stopping and self._step():
            begun += 1
        return begun

    def stop(self, *_signal: int | FrameType | None) -> None:
        """Give back the job in hand, and take no other."""
        self._stopped_by_signal = True

    @property
    def _stopping(self) -> bool:
        return self._stopped_by_signal or (self._parent is not None and os.getppid() != self._parent)

    def _step(self) -> bool:
        claim = self._patiently(lambda: self._queue.claim(self.name, kinds(self._packages)))
        if claim is None:
            return False
        started = time.monotonic()
        logs.event("job-start", **_told(claim))
        state = self._do(claim)
        logs.event("job-end", **_told(claim), state=state, ms=1000 * (time.monotonic() - started))
        return True

    def _do(self, claim: Claim) -> str:
        process, self._spare = self._spare or JobProcess(), None
        try:
            process.begin(self._order(claim))
            last = self._watch(claim, process)
            if last is None:
                return self._stopped(claim, process)
            return self._concluded(claim, process, last)
        except SafeswapError as error:  # what the job needs could not be laid out
            return self._failed(claim, error, retry=False)
        except (ValueError, KeyError, TypeError):  # not what a process of ours says: whatever it read has taken it over
            garbled = InternalError("the process that did the job said what makes no sense", code="job-garbled")
            return self._failed(claim, garbled, retry=False)
        finally:
            process.kill()
            self._store.clear(claim.id, claim.fence)

    def _order(self, claim: Claim) -> dict[str, Any]:
        def project() -> dict[str, Any]:
            with self._database.read() as connection:
                hooks.prepare(connection, claim, self._settings, self._packages)
                row = connection.execute(select(projects).where(projects.c.id == claim.project_id)).mappings().first()
                return dict(row) if row is not None else {}

        settings = self._settings.model_copy(update={"database_url": ""})  # it may hold a password
        return {
            "settings": settings.model_dump(mode="json"),
            "job": dict(vars(claim)),
            "project": self._patiently(project),
            "packages": self._packages,
        }

    def _watch(self, claim: Claim, process: JobProcess) -> dict[str, Any] | None:
        """Listen until the process has said its last word, empty if it died; None: it is to stop."""
        beaten = heard = time.monotonic()
        progress: tuple[float | None, str | None] = (None, None)
        last: dict[str, Any] = {}
        while not process.is_over:
            for answer in process.answers(_LOOK):
                if "progress" in answer:
                    progress = (answer["progress"], answer["message"])
                elif "ready" not in answer:
                    last = answer
            if self._stopping:
                return None
            at = time.monotonic()
            if at - beaten > self._settings.lease_seconds / 4 or (progress[0] is not None and at - beaten > _SHOW):
                try:
                    if not self._queue.heartbeat(claim, *progress):
                        return None
                    heard = at
                except _AWAY:
                    if at - heard > self._settings.lease_seconds:  # somebody else may have the job by now
                        return None
                beaten, progress = at, (None, None)
        return last

    def _concluded(self, claim: Claim, process: JobProcess, last: dict[str, Any]) -> str:
        code = process.ended()
        if "outcome" in last:
            return self._succeeded(claim, last["outcome"], last["saved"])
        if "error" in last:
            return self._failed(claim, error_of(last["error"]), retry=False)
        if "cancelled" in last:
            return self._stopped(claim, process)
        error, retry = reason_of(code)
        return self._failed(claim, error, retry=retry)

    def _succeeded(self, claim: Claim, outcome: dict[str, Any], saved: list[dict[str, Any]]) -> str:
        def also(connection: Any) -> dict[str, Any] | None:
            return hooks.finished(connection, claim, outcome, saved, settings=self._settings, packages=self._packages)

        try:
            if self._patiently(lambda: self._queue.succeed(claim, outcome, also)):
                self._cleaned(claim)
                return "succeeded"
        except _AWAY:
            raise
        except SafeswapError as error:
            return self._failed(claim, error, retry=False)
        except Exception as error:  # noqa: BLE001  (whatever broke, the worker goes on; its words are not repeated)
            broke = InternalError(
                "the result could not be recorded", code="finish-broke", kind=claim.kind, exception=type(error).__name__
            )
            return self._failed(claim, broke, retry=False)
        return self._failed(claim, InternalError("the job was given to another", code="worker-lost"), retry=True)

    def _failed(self, claim: Claim, error: SafeswapError, *, retry: bool) -> str:
        heard = self._patiently(lambda: self._queue.fail(claim, error, retry=retry))
        row = self._patiently(lambda: self._queue.get(claim.id))
        if claim.project_id is not None and self._store.exists(claim.project_id):
            erase(self._store.result(claim.project_id, result_id(claim.id, claim.fence)))
        state = "lost" if row is None or not heard else str(row["state"])
        if state in {"failed", "cancelled"}:
            logs.event("job-error", **_told(claim), code=error.code)
            self._cleaned(claim)
        return state

    def _stopped(self, claim: Claim, process: JobProcess) -> str:
        process.stop()
        if self._stopping and self._patiently(lambda: self._queue.give_back(claim)):
            return "queued"
        return self._failed(claim, InternalError("the job was stopped", code="job-stopped"), retry=True)

    def _cleaned(self, claim: Claim) -> None:
        clean = find(claim.kind, self._packages).clean
        try:
            self._store.clear(claim.id)
            if clean is not None:
                clean(claim, self._store)
        except (SafeswapError, OSError) as error:  # the next sweep tries again
            logs.event("clean-failed", **_told(claim), exception=type(error).__name__)

    def _task_failed(self, connection: Any, job: Any) -> None:
        hooks.failed(connection, job, self._settings, self._packages)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask the database again while it does not answer; what is asked twice is heard once, by its fence."""
        pause = 0.05
        while True:
            try:
                return ask()
            except _AWAY:
                if self._stopping:
                    raise
                logs.event("database-away", worker=self.name)
                time.sleep(pause)
                pause = min(2 * pause, 5.0)


def _log_key(settings: Settings) -> bytes:
    return auditlog.key_from(open_vault(settings).master_key.secret)


def _told(claim: Claim) -> dict[str, Any]:
    told = {"job_id": claim.id, "kind": claim.kind, "attempts": claim.attempts, "worker": claim.worker}
    return told if claim.project_id is None else {**told, "project_id": claim.project_id}


def main(settings: Settings) -> None:
    """Run a worker in this process until a signal ends it."""
    logs.configure(settings)
    parent = os.environ.get("SAFESWAP_WORKER_OF", "")
    worker = Worker(settings, parent=int(parent) if parent.isdigit() else None)
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    worker.run()


if __name__ == "__main__":
    main(read_settings(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
