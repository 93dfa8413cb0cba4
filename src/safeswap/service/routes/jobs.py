"""Jobs: list, poll and cancel."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from safeswap.service.http.paging import Page, Paged, check_cursor, write_cursor
from safeswap.service.http.problems import NotFound
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.tables import jobs
from safeswap.service.people.callers import Caller
from safeswap.service.people.roles import ProjectAccess, allow, project, project_access
from safeswap.service.schemas.projects import Job, State, job_of
from safeswap.service.state import service_of
from safeswap.service.work.jobs import JobRow

router = APIRouter(tags=["jobs"])


@router.get("/projects/{project_id}/jobs")
def list_jobs(
    request: Request,
    access: Annotated[ProjectAccess, Depends(project("read"))],
    paging: Paged,
    state: Annotated[list[State] | None, Query(description="Only jobs in one of these states.")] = None,
    kind: Annotated[str | None, Query(max_length=40)] = None,
) -> Page[Job]:
    """List the jobs of a project, newest first."""
    before = check_cursor(paging, (jobs.c.created_at, jobs.c.id)) if paging.after is not None else None
    rows = service_of(request).queue.list(
        project_id=access.id, states=state, kind=kind, limit=paging.limit + 1, before=before
    )
    kept = rows[: paging.limit]
    more = len(rows) > paging.limit
    return Page[Job](
        items=[job_of(row) for row in kept],
        next=write_cursor([kept[-1]["created_at"], kept[-1]["id"]]) if more else None,
    )


@router.get("/jobs/{job_id}")
def get_job(
    request: Request,
    caller: Annotated[Caller, Depends(allow("read"))],
    job_id: Annotated[str, Path(max_length=64)],
) -> Job:
    """Get the progress and result of a job."""
    return job_of(_find_job(request, caller, job_id, "read"))


@router.delete("/jobs/{job_id}")
def cancel_job(
    request: Request,
    caller: Annotated[Caller, Depends(allow("work"))],
    job_id: Annotated[str, Path(max_length=64)],
) -> Job:
    """Cancel a job: at once if queued, at its next step if running. An ended job stays as it is."""
    row = _find_job(request, caller, job_id, "work")
    service = service_of(request)
    if service.queue.cancel(job_id):
        with service.database.write() as connection:
            auditlog.record(
                connection, actor=caller.name, action="job.cancel", project_id=row["project_id"], subject=job_id
            )
    return job_of(_find_job(request, caller, job_id, "work"))


def _find_job(request: Request, caller: Caller, job_id: str, permission: Literal["read", "work"]) -> JobRow:
    row = service_of(request).queue.get(job_id)
    if row is None or row["project_id"] is None:
        raise NotFound("there is no such job", hint="see GET /projects/{project_id}/jobs")
    try:
        project_access(request, caller, row["project_id"], permission)
    except NotFound:
        raise NotFound("there is no such job", hint="see GET /projects/{project_id}/jobs") from None
    return row
