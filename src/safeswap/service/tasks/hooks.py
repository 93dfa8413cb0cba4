"""Database hooks of tasks, run by the worker before a job starts and in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from safeswap.errors import InternalError
from safeswap.service.keeping.database import now
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import jobs, results
from safeswap.service.tasks import PACKAGES, find, kinds

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.service.settings import Settings
    from safeswap.service.work.jobs import Claim, JobRow


def run_prepare(connection: Connection, claim: Claim, settings: Settings, packages: Sequence[str] = PACKAGES) -> None:
    """Run the task's ``prepare`` hook, which exports what the job needs from the database."""
    hook = find(claim.kind, packages).prepare
    if hook is not None:
        hook(connection, claim, Store(settings))


def run_failed(connection: Connection, job: JobRow, settings: Settings, packages: Sequence[str] = PACKAGES) -> None:
    """Run the task's ``failed`` hook after a job has finally failed or was cancelled."""
    if job["kind"] not in kinds(packages):
        return
    hook = find(job["kind"], packages).failed
    if hook is not None:
        hook(connection, job, dict(job["error"] or {}), Store(settings))


def run_finish(
    connection: Connection,
    claim: Claim,
    outcome: dict[str, Any],
    saved: Sequence[Mapping[str, Any]],
    *,
    settings: Settings,
    packages: Sequence[str] = PACKAGES,
) -> dict[str, Any] | None:
    """Insert the job's result, run the task's ``finish`` hook, and return the job's result reference."""
    job = connection.execute(select(jobs).where(jobs.c.id == claim.id)).mappings().one()
    for result in saved:
        _save(connection, job, result)
    hook = find(claim.kind, packages).finish
    return None if hook is None else hook(connection, job, outcome, Store(settings))


def _save(connection: Connection, job: JobRow, result: Mapping[str, Any]) -> None:
    if job["project_id"] is None or job["created_by"] is None:
        raise InternalError("a result belongs to a project and to a person", code="no-project", kind=job["kind"])
    row = {
        **result,
        "project_id": job["project_id"],
        "job_id": job["id"],
        "created_by": job["created_by"],
        "created_at": now(),
    }
    connection.execute(insert(results).values(row))
