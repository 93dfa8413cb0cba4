"""Asking for a job: one transaction that writes the job, the audit log and the session log's line."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from sqlalchemy import Connection, update

from safeswap.service import auditlog
from safeswap.service.database import now
from safeswap.service.problems import Conflict, NotFound
from safeswap.service.roles import ProjectAccess
from safeswap.service.schemas.jobs import Job, job_of
from safeswap.service.state import service_of
from safeswap.service.tables import projects


def ask(
    request: Request,
    response: Response,
    access: ProjectAccess,
    kind: str,
    payload: dict[str, Any],
    *,
    data: bool = True,
) -> Job:
    """Enqueue a job of this project and answer 202 with its address. ``data``: the job needs the project's data."""
    if data:
        require_data(access)
        payload = {**payload, "data_version": access.row.data_version}
    service = service_of(request)
    with service.database.write() as connection:
        job_id = service.queue.enqueue(
            kind, payload, project_id=access.id, created_by=access.user.id, connection=connection
        )
        auditlog.record(connection, actor=access.user.name, action=f"job.{kind}", project_id=access.id, subject=job_id)
        touch(connection, access.id)
    row = service.queue.get(job_id)
    assert row is not None  # noqa: S101  (it was written a line above)
    response.status_code = 202
    response.headers["Location"] = str(request.url_for("get_job", job_id=job_id).path)
    return job_of(row)


def touch(connection: Connection, project_id: str) -> None:
    """Note that a project is in use: retention counts from here. Refused if it was deleted while somebody asked."""
    there = update(projects).where(projects.c.id == project_id, projects.c.state != "deleted")
    if connection.execute(there.values(used_at=now())).rowcount != 1:
        raise NotFound("there is no such project", hint="see GET /projects")


def require_data(access: ProjectAccess) -> None:
    """Refuse what needs data while the project has none."""
    if access.row.data_version == 0:
        raise Conflict(
            "the project has no data yet" if access.row.state != "reading" else "the data are still being read",
            code="no-data",
            hint="PUT /projects/{project_id}/data, and wait for its job",
        )


def recipe_of(access: ProjectAccess) -> list[dict[str, Any]] | None:
    """The steps of the project's recipe that are in force, as they are kept with every job."""
    recipe = access.row.recipe or {}
    steps: list[dict[str, Any]] = list(recipe.get("steps", []))
    return steps[: len(steps) - int(recipe.get("undone", 0))] or None
