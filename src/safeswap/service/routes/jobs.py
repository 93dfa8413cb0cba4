"""Jobs and their results, and interactive queries: submit a job, list, poll and cancel jobs, find the results.

Every route that starts a job goes through :func:`submit`.

Interactive queries run in the server: a few at a time, and none that takes minutes. Their cost is estimated in advance,
from records × tables to count: a running thread cannot be stopped, so that a question cancelled by its caller keeps its
slot until it is answered; one cancelled before its turn is never computed. Waiting for a slot holds no thread, so other
requests are not delayed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from sqlalchemy import Column, Connection, Row, select, update

from safeswap.errors import SpecError
from safeswap.methods.recode.recipe import RecipeStep
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.model.combination import as_combinations
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, Problem, Unavailable, problem_of
from safeswap.service.http.wire import Page, Paged, Paging, Wire, check_cursor, example, write_cursor
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import jobs, projects, results, users
from safeswap.service.people.roles import Caller, ProjectAccess, Reader, allow, may, project_access
from safeswap.service.settings import Limits
from safeswap.service.state import service_of
from safeswap.service.work.jobs import JobRow
from safeswap.service.work.process import to_error

REPORT = "report.html"
LATEST = "latest"
STUDY = "study"
"""The folder of a study's files in its result."""
ABOVE_POLICY = "an attack is above the agency's policy; its figures are shown to those who may work on the file"
ATTACK_MEASURE = "best_attack"
NONE_YET: dict[int | str, dict[str, Any]] = {
    204: {"description": "`latest` was requested, but there is no result yet."}
}

JobId = Annotated[str, Path(max_length=64)]
ResultId = Annotated[str, Path(max_length=64)]
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class ResultReference(Wire):
    """Reference to the result of a job."""

    kind: str = Field(description="masking, assessment, study, confidentiality, …")
    id: str


class Job(Wire):
    """A long-running operation: its kind, progress and result."""

    model_config = example(
        id="6f1c2d9a",
        project="0b6b9f6c",
        kind="study",
        state="running",
        progress=0.42,
        message="4,200 of 10,000 candidates",
        attempts=1,
        cancel_requested=False,
        result=None,
        error=None,
        created_at="2026-01-01T09:00:00Z",
        started_at="2026-01-01T09:00:01Z",
        finished_at=None,
    )

    id: str
    project: str | None
    kind: str
    state: State
    progress: float = Field(ge=0, le=1)
    message: str
    attempts: int
    cancel_requested: bool
    result: ResultReference | None = None
    error: Problem | None = None
    created_at: datetime | None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ResultAnswer(Wire):
    """The result of a job: the request and the figures."""

    id: str
    kind: str
    job: str | None
    data_version: int
    spec: dict[str, Any]
    summary: dict[str, Any]
    created_by: str
    created_at: datetime | None


router = APIRouter(tags=["jobs"])


Record: TypeAlias = Callable[[Connection, str], None]
"""Writes what belongs to a new job, by its id, in the transaction that enqueues it."""


def submit(
    request: Request,
    response: Response,
    access: ProjectAccess,
    kind: str,
    payload: Mapping[str, Any],
    *,
    data: bool = True,
    record: Record | None = None,
) -> Job:
    """Enqueue a job of this project and respond 202 with its address. ``data``: the job needs the project's data.

    Job, audit log entry and the project's last use are written in one transaction. ``record`` writes the entry, and
    rows of its own, for a job that is not logged as ``job.<kind>`` alone.
    """
    if data:
        access.require_data()
        payload = {**payload, "data_version": access.row.data_version}
    service = access.service
    with service.database.write() as connection:
        _touch(connection, access.id)
        job_id = service.queue.enqueue(
            kind, payload, project_id=access.id, created_by=access.user.id, connection=connection
        )
        if record is None:
            access.record(connection, f"job.{kind}", job_id)
        else:
            record(connection, job_id)
    row = service.queue.get(job_id)
    assert row is not None  # noqa: S101  (it was written a line above)
    response.status_code = 202
    response.headers["Location"] = str(request.url_for("get_job", job_id=job_id).path)
    return job_of(row)


def _touch(connection: Connection, project_id: str) -> None:
    """Update a project's last use, from which retention counts. Refused if it was deleted meanwhile."""
    there = update(projects).where(projects.c.id == project_id, projects.c.state != "deleted")
    if connection.execute(there.values(used_at=now())).rowcount != 1:
        raise NotFound("there is no such project", hint="see GET /projects")


@router.get("/projects/{project_id}/jobs")
def list_jobs(
    access: Reader,
    paging: Paged,
    state: Annotated[list[State] | None, Query(description="Only jobs in one of these states.")] = None,
    kind: Annotated[str | None, Query(max_length=40)] = None,
) -> Page[Job]:
    """List the jobs of a project, newest first."""
    before = check_cursor(paging, (jobs.c.created_at, jobs.c.id)) if paging.after is not None else None
    rows = access.service.queue.list(
        project_id=access.id, states=state, kind=kind, limit=paging.limit + 1, before=before
    )
    kept = rows[: paging.limit]
    more = len(rows) > paging.limit
    return Page[Job](
        items=[job_of(row, may_work=access.may_work) for row in kept],
        next=write_cursor([kept[-1]["created_at"], kept[-1]["id"]]) if more else None,
    )


@router.get("/jobs/{job_id}")
def get_job(request: Request, caller: Annotated[Caller, Depends(allow("read"))], job_id: JobId) -> Job:
    """Get the progress and result of a job."""
    row = _find_job(request, caller, job_id, "read")
    return job_of(row, may_work=may(caller, "work", service_of(request).settings))


@router.delete("/jobs/{job_id}")
def cancel_job(request: Request, caller: Annotated[Caller, Depends(allow("work"))], job_id: JobId) -> Job:
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


def job_of(row: JobRow, *, may_work: bool = True) -> Job:
    """Convert a row of the job table to its API model; figures of attacks are for those who may work on the file."""
    made = row["result"] or {}
    result = ResultReference(kind=made["kind"], id=made["id"]) if "id" in made else None
    error = problem_of(to_error(row["error"])) if row["error"] else None
    if error is not None and error.code == "attack-above-policy" and not may_work:
        error = error.model_copy(update={"detail": ABOVE_POLICY, "hint": "", "fields": {}})
    return Job.of(row, project=row["project_id"], result=result, error=error)


# Full summaries hold the tables behind the figures: reading fifty of them would dominate a request.
_LIST_COLUMNS = [column for column in results.c if column.name != "summary"]


def result_page(access: ProjectAccess, kind: str, paging: Paging) -> Page[ResultAnswer]:
    """Return a page of results of one kind, newest first."""
    statement = _statement(access, *_LIST_COLUMNS).where(results.c.kind == kind)
    order = (results.c.created_at, results.c.id)
    return paging.page(
        statement, order=order, make=lambda row: _answer(row, row.brief if _may_see(access, row.spec) else {})
    )


def offer_results(router: APIRouter, path: str, kind: str, one: str, *, access_type: Any = Reader) -> None:
    """Add the two routes that every kind of result has: the list, and one of them, which ``one`` describes.

    ``access_type`` states who may see them: all who may read, or fewer.
    """
    place, noun = f"/projects/{{project_id}}/{path}", path.replace("-", "_")

    def list_results(access: ProjectAccess, paging: Paged) -> Page[ResultAnswer]:
        """List those of a project, newest first."""
        return result_page(access, kind, paging)

    def get_result(access: ProjectAccess, result_id: ResultId) -> ResultAnswer:
        row = find_result(access, result_id, kind)
        return _answer(row, row.summary)

    for made in (list_results, get_result):
        made.__annotations__["access"] = access_type
    router.get(place, name=f"list_{noun}")(list_results)
    router.get(f"{place}/{{result_id}}", name=f"get_{noun}", description=one)(get_result)


def find_result(access: ProjectAccess, result_id: str, *kinds: str, figures: bool = True) -> Row[Any]:
    """Return one result of this project, of one of these kinds; ``figures`` says that its scores are shown."""
    statement = _statement(access).where(results.c.id == result_id)
    with access.service.database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None or (kinds and row.kind not in kinds):
        raise NotFound(f"there is no such {kinds[0] if kinds else 'result'}", hint="see the list of this project's")
    if figures:
        _refuse_attack_figures(access, row)
    return row


def _may_see(access: ProjectAccess, spec: Mapping[str, Any]) -> bool:
    """Return whether a result may be shown: attack figures are for those who may work on the file."""
    return access.may_work or ATTACK_MEASURE not in json.dumps(spec)


def _refuse_attack_figures(access: ProjectAccess, row: Row[Any]) -> None:
    if not _may_see(access, row.spec):
        raise Forbidden("figures of attacks are for who may work on the file", code="role", role=access.user.role)


def find_or_latest(access: ProjectAccess, result_id: str, kind: str) -> Row[Any] | None:
    """Return one result of this kind; ``latest`` is the newest, None if there is none.

    A client that shows the newest need not fetch the list first.
    """
    if result_id != LATEST:
        return find_result(access, result_id, kind)
    newest = _statement(access).where(results.c.kind == kind).order_by(results.c.created_at.desc(), results.c.id.desc())
    with access.service.database.read() as connection:
        row = connection.execute(newest.limit(1)).one_or_none()
    if row is not None:
        _refuse_attack_figures(access, row)
    return row


def payload_of(row: Row[Any], content: bytes, name: str) -> Response:
    """Return a stored chart payload, with its permanent address in ``Content-Location``."""
    headers = {"Content-Location": f"../{row.id}/{name}"}
    return Response(content, media_type="application/json", headers=headers)


def _answer(row: Row[Any], summary: dict[str, Any]) -> ResultAnswer:
    return ResultAnswer.of(row, job=row.job_id, summary=summary, created_by=row.creator)


def _statement(access: ProjectAccess, *columns: Column[Any]) -> Any:
    return (
        select(*(columns or (results,)), users.c.name.label("creator"))
        .join(users, users.c.id == results.c.created_by)
        .where(results.c.project_id == access.id)
    )


def serve_page(access: ProjectAccess, result_id: str, kind: str, name: str) -> FileResponse:
    """Return a page of a result, under its own strict policy."""
    row = find_result(access, result_id, kind)
    path = access.service.store.result(access.id, row.id) / name
    if not path.is_file():
        raise NotFound("there is no such page")
    headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers)


_BYTES_PER_VALUE = 8  # a four-byte code, and about the same again for work space


async def _hold_slot(request: Request) -> AsyncIterator[None]:
    # The permission dependency comes first and has identified the caller.
    async with service_of(request).question_slots.hold(request.scope.get("user_id", "")):
        if await request.is_disconnected():
            raise Unavailable("the question was cancelled", code="cancelled")  # no one is left to read it
        yield


QuestionSlot = Annotated[None, Depends(_hold_slot)]
"""Dependency of routes that compute while the caller waits; comes after the permission."""


def tables_of(combinations: Any) -> int:
    """Return the number of tables to count for a list of combinations.

    >>> tables_of({"keys": ["Age", "Sex", "Town"], "up_to": 2})
    6
    """
    return len(as_combinations(combinations).stated())


def refuse_long(limits: Limits, *, records: int, tables: float, hint: str = "") -> None:
    """Refuse a query that would have to count too many tables × records.

    >>> refuse_long(Limits(question_work=1000), records=100, tables=20)
    Traceback (most recent call last):
    safeswap.errors.SpecError: 20 tables of 100 records are too many to count while you wait
    """
    if records * tables <= limits.question_work:
        return
    raise SpecError(
        f"{tables:,.0f} tables of {records:,} records are too many to count while you wait",
        code="too-long",
        hint="; ".join(filter(None, ("name fewer keys, or combinations of fewer of them", hint))),
        tables=int(tables),
        records=records,
        most=limits.question_work,
    )


def estimate_work(steps: Iterable[Mapping[str, Any]]) -> float:
    """Return the cost of a recipe in tables to count; a recode reads one column.

    >>> estimate_work([{"step": "drop", "attributes": ["Name"]}])
    1.0
    """
    from safeswap.workflow.session import as_recipe

    return float(sum(_work_of_step(step) for step in as_recipe(list(steps)).steps))


def _work_of_step(step: RecipeStep) -> int:
    if isinstance(step, SuppressSpec):
        return 10 * tables_of(step)
    return 50 if isinstance(step, MaskSpec) else 1


def can_answer(limits: Limits, access: ProjectAccess, recipe: Iterable[Mapping[str, Any]] | None) -> bool:
    """Return True if the server can load a project's data and apply a recipe while the caller waits."""
    return _fits_cache(limits, access) and access.row.records * estimate_work(recipe or ()) <= limits.question_work


def _fits_cache(limits: Limits, access: ProjectAccess) -> bool:
    columns = len((access.row.description or {}).get("attributes", ()))
    return bool(access.row.records * columns * _BYTES_PER_VALUE <= limits.cached_bytes)


def refuse_large(limits: Limits, access: ProjectAccess) -> None:
    """Refuse data that do not fit in the server's cache; jobs can handle them."""
    if not _fits_cache(limits, access):
        raise Conflict(
            "the file is too large to be examined while you wait",
            code="too-large",
            hint="ask for a job; the administrator can raise cached_bytes",
            records=access.row.records,
        )


def load_data(access: ProjectAccess) -> Microdata:
    """Return the project's data after its recipe, for an interactive query."""
    access.require_data()
    return load_data_version(access, version=access.row.data_version, recipe=access.recipe)


def load_data_version(access: ProjectAccess, *, version: int, recipe: list[dict[str, Any]] | None) -> Microdata:
    """Return a version of the project's data after a recipe, e.g. that of an earlier result."""
    service = access.service
    refuse_large(service.settings.limits, access)
    refuse_long(service.settings.limits, records=access.row.records, tables=estimate_work(recipe or ()))
    return service.data_cache.get(
        service.store, project_id=access.id, version=version, recipe=recipe, key=service.vault.project_key(access.id)
    )
