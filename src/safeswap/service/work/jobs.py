"""A durable job queue in the database, with leases and fencing tokens.

A worker claims a job for the length of a lease and renews the lease by heartbeats. When the lease expires, the job goes
to another worker. Each claim increments the job's fence, and updates are accepted only from the worker and fence of the
last claim, so that a worker presumed dead cannot interfere. Claims are made one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    case,
    false,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    text,
    update,
)

from safeswap.errors import InternalError, SafeswapError
from safeswap.service.keeping.database import Database, new_id, now
from safeswap.service.keeping.tables import jobs
from safeswap.service.settings import Settings

JobRow: TypeAlias = RowMapping
"""A row of the job table, by column name."""

Also: TypeAlias = "Callable[[Connection], Mapping[str, Any] | None]"
"""Runs in the same transaction; its return value, if any, becomes the job's result."""

OnEnd: TypeAlias = Callable[[Connection, JobRow], None]
"""Called, in the same transaction, when a job has finally failed or was cancelled."""

_LOCK = 0x5AFEC1A1  # PostgreSQL advisory lock of claims
_PAUSE = 2.0  # seconds before a retry, times the attempts so far
_LONGEST_MESSAGE = 300


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to run a job until the lease expires."""

    id: str
    kind: str
    project_id: str | None
    payload: Mapping[str, Any]
    fence: int
    attempts: int
    worker: str


class Queue:
    """The jobs of one service.

    >>> from safeswap.service.keeping.database import open_database
    >>> from safeswap.service.keeping.migrate import upgrade
    >>> database = open_database("sqlite://")
    >>> _ = upgrade(database)
    >>> queue = Queue(database, Settings(store="/srv/s", master_key_file="/etc/k"))
    >>> job = queue.enqueue("study", {}, project_id=None, created_by=None)
    >>> claim = queue.claim("worker 1")
    >>> claim.id == job, queue.claim("worker 2") is None
    (True, True)
    >>> queue.succeed(claim, {"kind": "study", "id": "1"}), queue.get(job)["state"]
    (True, 'succeeded')
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        clock: Callable[[], float] = now,
        on_end: OnEnd | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._lease = settings.lease_seconds
        self._most_running = settings.running_jobs_each
        self._clock = clock
        self._on_end = on_end or self._run_failed_hook

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        project_id: str | None,
        created_by: str | None,
        priority: int = 0,
        delay: float = 0.0,
        connection: Connection | None = None,
    ) -> str:
        """Add a job to the queue and return its id; in the caller's transaction if ``connection`` is given."""
        at = self._clock()
        row = {
            "id": new_id(),
            "kind": kind,
            "payload": dict(payload),
            "project_id": project_id,
            "created_by": created_by,
            "state": "queued",
            "priority": priority,
            "created_at": at,
            "available_at": at + delay,
        }
        if connection is not None:
            connection.execute(insert(jobs).values(row))
        else:
            with self._database.write() as own:
                own.execute(insert(jobs).values(row))
        return str(row["id"])

    def claim(self, worker: str, kinds: Collection[str] | None = None) -> Claim | None:
        """Claim the next queued job, if any: two workers never get the same one.

        Scheduling is fair per person: first the person with the fewest running jobs, then the one who has waited
        longest since their last job started. No one has more running than ``running_jobs`` allows.
        """
        at = self._clock()
        waiting = select(jobs.c.id).where(jobs.c.state == "queued", jobs.c.available_at <= at)
        if kinds is not None:
            waiting = waiting.where(jobs.c.kind.in_(list(kinds)))
        people = _people_waiting()
        waiting = waiting.join(people, jobs.c.created_by.is_not_distinct_from(people.c.person))
        waiting = waiting.where(or_(people.c.person.is_(None), people.c.running < self._most_running))
        order = (jobs.c.priority.desc(), people.c.running, people.c.last, jobs.c.available_at, jobs.c.id)
        # PostgreSQL skips rows locked by a cancellation; SQLite already holds its only lock.
        first = waiting.order_by(*order).limit(1).with_for_update(of=jobs, skip_locked=True)
        statement = (
            update(jobs)
            .where(jobs.c.id == first.scalar_subquery(), jobs.c.state == "queued")
            .values(
                state="running",
                worker=worker,
                lease_until=at + self._lease,
                fence=jobs.c.fence + 1,
                attempts=jobs.c.attempts + 1,
                started_at=at,
                progress=0.0,
                message="",
            )
            .returning(jobs)
        )
        with self._database.write() as connection:
            if self._database.dialect == "postgresql":
                # Claims at the same time would not see each other's job in the number of running ones.
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            row = connection.execute(statement).mappings().one_or_none()
        return None if row is None else _claim(row)

    def heartbeat(self, claim: Claim, progress: float | None = None, message: str | None = None) -> bool:
        """Renew the lease and report progress; False: the job is lost or cancelled, stop."""
        values: dict[str, Any] = {"lease_until": self._clock() + self._lease}
        if progress is not None:
            values["progress"] = min(1.0, max(0.0, progress))
        if message is not None:
            values["message"] = message[:_LONGEST_MESSAGE]
        with self._database.write() as connection:
            return connection.execute(update(jobs).where(_is_held(claim), _is_wanted()).values(values)).rowcount == 1

    def succeed(self, claim: Claim, result: Mapping[str, Any] | None, also: Also | None = None) -> bool:
        """Mark a job as succeeded, together with ``also``; False if it is no longer this worker's, or was cancelled.

        Idempotent: a worker that got no response may retry.
        """
        end = {"state": "succeeded", "progress": 1.0, "finished_at": self._clock(), "lease_until": null()}
        end["result"] = null() if result is None else dict(result)
        with self._database.write() as connection:
            done = connection.execute(update(jobs).where(_is_held(claim), _is_wanted()).values(end))
            if done.rowcount == 1:
                kept = None if also is None else also(connection)
                if kept is not None:
                    connection.execute(update(jobs).where(_is_claimed(claim)).values(result=dict(kept)))
                return True
            again = select(jobs.c.id).where(_is_claimed(claim), jobs.c.state == "succeeded")
            return connection.execute(again).one_or_none() is not None

    def fail(self, claim: Claim, error: SafeswapError, *, retry: bool = False) -> bool:
        """Mark a job as failed; with ``retry`` it is queued again if it has attempts left.

        A job that was cancelled meanwhile ends as cancelled.
        """
        end = _end_values(error, self._clock(), again=_has_attempts() if retry else false())
        with self._database.write() as connection:
            return bool(self._stop(connection, _is_held(claim), end))

    def requeue(self, claim: Claim) -> bool:
        """Return a job to the queue because its worker has to stop; the attempt does not count."""
        again = {"state": "queued", "attempts": jobs.c.attempts - 1, "lease_until": null(), "progress": 0.0}
        with self._database.write() as connection:
            return connection.execute(update(jobs).where(_is_held(claim), _is_wanted()).values(again)).rowcount == 1

    def cancel(self, job_id: str) -> bool:
        """Cancel a job: at once if queued, at the next heartbeat if running. False if it has ended."""
        this, end = jobs.c.id == job_id, {"state": "cancelled", "finished_at": self._clock(), "cancel_requested": True}
        with self._database.write() as connection:
            if self._stop(connection, and_(this, jobs.c.state == "queued"), end):
                return True
            running = update(jobs).where(this, jobs.c.state == "running").values(cancel_requested=True)
            return connection.execute(running).rowcount == 1

    def expire(self) -> int:
        """Requeue or fail the jobs whose lease has expired; return how many."""
        lost = InternalError(
            "the worker that ran this job stopped, and so did those that retried it",
            code="worker-lost",
            hint="the job may need more memory than there is; ask the administrator",
        )
        at = self._clock()
        late = and_(jobs.c.state == "running", jobs.c.lease_until < at)
        with self._database.write() as connection:
            return len(self._stop(connection, late, _end_values(lost, at, again=_has_attempts())))

    def _stop(self, connection: Connection, which: ColumnElement[bool], end: Mapping[str, Any]) -> list[JobRow]:
        rows = connection.execute(update(jobs).where(which).values(end).returning(jobs)).mappings().all()
        for row in rows:
            if row["state"] != "queued":
                self._on_end(connection, row)
        return [*rows]

    def _run_failed_hook(self, connection: Connection, job: JobRow) -> None:
        from safeswap.service.work.tasks import run_failed

        run_failed(connection, job, self._settings)

    def get(self, job_id: str) -> JobRow | None:
        """Return one job, or None."""
        with self._database.read() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == job_id)).mappings().one_or_none()

    def list(
        self,
        *,
        project_id: str | None = None,
        states: Collection[str] | None = None,
        kind: str | None = None,
        limit: int = 50,
        before: tuple[float, str] | None = None,
    ) -> list[JobRow]:
        """Return jobs, newest first; ``before`` is the time and id of the last one seen."""
        wanted = {jobs.c.project_id: project_id, jobs.c.kind: kind}
        query = select(jobs).where(*(column == value for column, value in wanted.items() if value is not None))
        if states:
            query = query.where(jobs.c.state.in_(states))
        if before is not None:
            at, last = before
            query = query.where(or_(jobs.c.created_at < at, and_(jobs.c.created_at == at, jobs.c.id < last)))
        with self._database.read() as connection:
            found = connection.execute(query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit))
            return [*found.mappings()]

    def counts(self) -> dict[tuple[str, str], int]:
        """Count the jobs by kind and state."""
        query = select(jobs.c.kind, jobs.c.state, func.count()).group_by(jobs.c.kind, jobs.c.state)
        with self._database.read() as connection:
            return {(kind, state): number for kind, state, number in connection.execute(query)}


def _people_waiting() -> CTE:
    """Select the people with queued jobs, their number of running jobs, and the start of their last one.

    Materialized: left to itself, PostgreSQL counts a person's jobs again for each job that waits (0.2 s at 600 jobs).
    """
    waiting = select(jobs.c.created_by.label("person")).where(jobs.c.state == "queued").distinct().subquery()
    own = jobs.alias()
    mine = own.c.created_by.is_not_distinct_from(waiting.c.person)
    running = select(func.count()).where(mine, own.c.state == "running").scalar_subquery()
    last = select(func.max(own.c.started_at)).where(mine).scalar_subquery()
    people = select(waiting.c.person, running.label("running"), func.coalesce(last, 0.0).label("last"))
    return people.cte("people").prefix_with("MATERIALIZED")


def _claim(row: RowMapping) -> Claim:
    names = ("id", "kind", "project_id", "payload", "fence", "attempts", "worker")
    return Claim(**{name: row[name] for name in names})


def _is_claimed(claim: Claim) -> ColumnElement[bool]:
    return and_(jobs.c.id == claim.id, jobs.c.fence == claim.fence, jobs.c.worker == claim.worker)


def _is_held(claim: Claim) -> ColumnElement[bool]:
    return and_(_is_claimed(claim), jobs.c.state == "running")


def _is_wanted() -> ColumnElement[bool]:
    return jobs.c.cancel_requested.is_(False)


def _has_attempts() -> ColumnElement[bool]:
    return jobs.c.attempts < jobs.c.most_attempts


def _end_values(error: SafeswapError, at: float, *, again: ColumnElement[bool]) -> dict[str, Any]:
    """Return the new values of a stopped job: cancelled if that was requested, else queued again or failed."""
    cancelled = jobs.c.cancel_requested.is_(True)
    retried = and_(again, ~cancelled)
    return {
        "state": case((cancelled, "cancelled"), (retried, "queued"), else_="failed"),
        "error": case((or_(cancelled, retried), null()), else_=literal(error.as_dict(), jobs.c.error.type)),
        "finished_at": case((retried, null()), else_=at),
        "available_at": at + _PAUSE * jobs.c.attempts,
        "lease_until": null(),
    }
