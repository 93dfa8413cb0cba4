"""Deletion of projects: on request, or after too long without use.

The row of a deleted project stays, emptied, so that its id in the audit log remains meaningful, and so do its entries
in the ledger. Everything else is deleted: the rows first, in one transaction, then the files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, null, select, update

from safeswap.service.http import logs
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, now
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import jobs, members, projects, releases, results
from safeswap.service.settings import Settings

_DAY = 24 * 3600.0
_ACTOR = "retention"


def delete_project(
    database: Database, store: Store, project_id: str, also: Callable[[Connection], object] | None = None
) -> bool:
    """Delete a project and erase its files; False if there was none. ``also`` runs in the same transaction.

    A running job of the project loses its row: its worker stops it at the next heartbeat.
    """
    with database.write() as connection:
        if not _empty_row(connection, projects.c.id == project_id):
            return False
        ended = connection.scalars(select(jobs.c.id).where(jobs.c.project_id == project_id)).all()
        for table in (releases, results, jobs, members):
            connection.execute(delete(table).where(table.c.project_id == project_id))
        if also is not None:
            also(connection)
    for job in ended:
        store.clear(job)
    count = store.delete(project_id)
    logs.event("project-deleted", project_id=project_id, count=count)
    return True


def sweep(database: Database, store: Store, settings: Settings, *, at: float | None = None) -> list[str]:
    """Delete projects that have been idle for the retention period; return their ids.

    A project with a queued or running job is in use.
    """
    if settings.retention_days == 0:
        return []
    moment = now() if at is None else at
    with database.read() as connection:
        idle = connection.scalars(select(projects.c.id).where(*_idle_conditions(moment, settings.retention_days))).all()
    return [each for each in idle if delete_project(database, store, each, also=_log_expiry(each, settings))]


def _empty_row(connection: Connection, which: ColumnElement[bool]) -> bool:
    nothing: dict[str, Any] = {"name": "", "file_name": "", "records": 0}
    nothing |= {"description": null(), "recipe": null(), "state": "deleted", "version": projects.c.version + 1}
    return (
        connection.execute(update(projects).where(which, projects.c.state != "deleted").values(nothing)).rowcount == 1
    )


def _idle_conditions(moment: float, days: int) -> tuple[ColumnElement[bool], ...]:
    busy = exists().where(jobs.c.project_id == projects.c.id, jobs.c.state.in_(["queued", "running"]))
    return projects.c.state != "deleted", projects.c.used_at < moment - days * _DAY, ~busy


def _log_expiry(project_id: str, settings: Settings) -> Callable[[Connection], object]:
    detail = {"days": settings.retention_days}
    return lambda connection: auditlog.record(connection, _ACTOR, "project.expire", project_id, detail=detail)
