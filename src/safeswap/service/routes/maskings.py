"""Plan, mask and assess, by any registered method."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse

from safeswap import registry, workflow
from safeswap.model.microdata import Microdata
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.paging import Page, Paged
from safeswap.service.http.problems import Conflict, NotFound
from safeswap.service.people.roles import ProjectAccess, project
from safeswap.service.schemas.library import (
    AssessmentRequest,
    MaskingRequest,
    PlanAnswer,
    PlanRequest,
    ResultAnswer,
)
from safeswap.service.schemas.projects import Job
from safeswap.service.schemas.studies import BeforeAfterAnswer
from safeswap.service.state import service_of
from safeswap.service.tasks.library import REPORT
from safeswap.service.work.jobs import recipe_of, require_data, submit
from safeswap.service.work.questions import QuestionSlot, refuse_large, refuse_long, work_of
from safeswap.service.work.rare import before_after
from safeswap.service.work.results import find_masking, find_result, result_of, result_page

router = APIRouter(tags=["masking"])

ResultId = Annotated[str, Path(max_length=64)]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
TableAttributes = Annotated[list[str], Query(min_length=1, max_length=3, description="One to three attributes.")]

MOST_RECORDS_AT_ONCE = 2_000_000  # larger files take too long for an interactive table
MOST_SECONDS_AT_ONCE = 60.0
_REPORT = "see the report"


def data_of(request: Request, access: ProjectAccess) -> Microdata:
    """Return the project's data after its recipe, for an interactive query."""
    require_data(access)
    return data_as(request, access, version=access.row.data_version, recipe=recipe_of(access))


def data_as(request: Request, access: ProjectAccess, *, version: int, recipe: list[dict[str, Any]] | None) -> Microdata:
    """Return a version of the project's data after a recipe, e.g. that of an earlier result."""
    service = service_of(request)
    refuse_large(service.settings.limits, access)
    refuse_long(service.settings.limits, records=access.row.records, tables=work_of(recipe or ()))
    return service.data_cache.get(
        service.store, project_id=access.id, version=version, recipe=recipe, key=service.vault.project_key(access.id)
    )


@router.post("/projects/{project_id}/plan")
def plan(request: Request, access: Reader, body: PlanRequest, _: QuestionSlot) -> PlanAnswer:
    """Plan a specification: what it would do and whether it is feasible, from counts alone. Nothing is changed."""
    found = workflow.plan(data_of(request, access), body.spec)
    return PlanAnswer(method=found.method, **found.as_dict())


@router.post("/projects/{project_id}/maskings", status_code=202)
def ask_for_masking(request: Request, response: Response, access: Worker, body: MaskingRequest) -> Job:
    """Mask the data by any method and measure the result; figures are stored, never masked records."""
    payload = check_request(body.spec, body.measures)
    payload |= {"replicate": body.replicate, "recipe": recipe_of(access) if body.use_recipe else None}
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "mask", payload)


@router.get("/projects/{project_id}/maskings")
def list_maskings(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List the maskings of a project, newest first."""
    return result_page(request, access, "masking", paging)


@router.get("/projects/{project_id}/maskings/{result_id}")
def get_masking(request: Request, access: Reader, result_id: ResultId) -> ResultAnswer:
    """Get one masking: the request, its plan, and its scores with the tables behind them."""
    return result_of(find_result(request, access, result_id, "masking"))


@router.get("/projects/{project_id}/maskings/{result_id}/report.html", response_class=FileResponse)
def get_masking_report(request: Request, access: Reader, result_id: ResultId) -> FileResponse:
    """Get the internal report of a masking."""
    row = find_result(request, access, result_id, "masking")
    return serve_page(service_of(request).store.result(access.id, row.id) / REPORT)


@router.get("/projects/{project_id}/maskings/{result_id}/table")
def get_masking_table(
    request: Request, access: Reader, result_id: ResultId, attributes: TableAttributes, _: QuestionSlot
) -> BeforeAfterAnswer:
    """Get a table of the original and the masked data, side by side; counts below the tolerance are not shown."""
    row = find_result(request, access, result_id, "masking")
    _refuse_slow(request, row)
    return table_of(
        request, access, row, row.spec["spec"], replicate=row.spec.get("replicate", 0), attributes=attributes
    )


def _refuse_slow(request: Request, row: Any) -> None:
    """Refuse to repeat a masking whose job took long."""
    job = service_of(request).queue.get(row.job_id)
    took = (job["finished_at"] or 0.0) - (job["started_at"] or 0.0) if job is not None else 0.0
    if took > MOST_SECONDS_AT_ONCE:
        raise Conflict("this masking takes too long to be repeated while you wait", code="too-long", hint=_REPORT)


def table_of(
    request: Request, access: ProjectAccess, row: Any, spec: Any, *, replicate: int, attributes: list[str]
) -> BeforeAfterAnswer:
    """Return a before-and-after table; masks again, since masked records are not stored."""
    data = data_as(request, access, version=row.data_version, recipe=row.spec.get("recipe"))
    if len(data) > MOST_RECORDS_AT_ONCE:
        raise Conflict("the file is too large to be masked while you wait", code="too-large", hint=_REPORT)
    key = service_of(request).vault.project_key(access.id)
    masked = workflow.mask(data, spec, key=key, replicate=replicate)
    return before_after(masked, tuple(attributes), tolerance=access.row.tolerance, key=key)


@router.post("/projects/{project_id}/assessments", status_code=202)
def ask_for_assessment(request: Request, response: Response, access: Worker, body: AssessmentRequest) -> Job:
    """Assess a masking by other measures or on other attributes."""
    row = find_masking(request, access, body.masking)
    payload = check_request(row.spec["spec"], body.measures)
    payload |= {"masking": row.id, "replicate": row.spec.get("replicate", 0), "recipe": row.spec.get("recipe")}
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "assess", payload)


@router.get("/projects/{project_id}/assessments")
def list_assessments(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List the assessments of a project, newest first."""
    return result_page(request, access, "assessment", paging)


@router.get("/projects/{project_id}/assessments/{result_id}")
def get_assessment(request: Request, access: Reader, result_id: ResultId) -> ResultAnswer:
    """Get one assessment."""
    return result_of(find_result(request, access, result_id, "assessment"))


def check_request(spec: dict[str, Any], measures: tuple[str, ...] | None) -> dict[str, Any]:
    """Validate specification and measures before a job is submitted."""
    made = registry.make_spec(spec)
    named = None if measures is None else [registry.measure(text).text for text in measures]
    return {"spec": made.as_dict(), "measures": named}


def serve_page(path: Any) -> FileResponse:
    """Return a page written by a job, under its own strict policy."""
    if not path.is_file():
        raise NotFound("there is no such page")
    headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers)
