"""Export and import of projects, as safeswap archives or WebSwap files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from pydantic import ConfigDict
from sqlalchemy import insert, select

from safeswap.service.http.paging import Page, Paged
from safeswap.service.http.problems import Conflict, NotFound
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import members, projects, results
from safeswap.service.people.callers import Caller
from safeswap.service.people.roles import ProjectAccess, allow, project, project_access
from safeswap.service.routes.data import FileName, abandon, write_upload
from safeswap.service.routes.logs import log_text
from safeswap.service.schemas.library import ResultAnswer
from safeswap.service.schemas.projects import Job, Wire, example
from safeswap.service.state import Service, service_of
from safeswap.service.tasks.export import FILE
from safeswap.service.work.jobs import recipe_of, submit
from safeswap.service.work.results import find_result, result_page

router = APIRouter(tags=["projects"])

ResultId = Annotated[str, Path(max_length=64)]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Exporter = Annotated[ProjectAccess, Depends(project("export"))]


class ExportRequest(Wire):
    """The format: a safeswap archive, or WebSwap's `.orig`, `.desc`, `.specs` and `.log`."""

    model_config = ConfigDict(json_schema_extra=example(form="safeswap"))

    form: Literal["safeswap", "webswap"] = "safeswap"


@router.post("/projects/{project_id}/exports", status_code=202)
def ask_for_export(request: Request, response: Response, access: Exporter, body: ExportRequest) -> Job:
    """Export a project to one archive with its confidential data, for internal use, without keys and audit records.

    For officers, and for analysts if the administrator allows it; never with a token. Exports are logged.
    """
    service = service_of(request)
    payload: dict[str, Any] = {"form": body.form, "log": log_text(service, access.id)}
    if body.form == "webswap":
        payload["spec"] = _find_newest_swap(service, access)
    else:
        payload["facts"] = {
            "name": access.row.name,
            "tolerance": access.row.tolerance,
            "file_name": access.row.file_name,
            "recipe": recipe_of(access),
            "results": _list_results(service, access),
        }
    job = submit(request, response, access, "export", payload)
    with service.database.write() as connection:
        auditlog.record(connection, access.user.name, "export.request", access.id, job.id, {"form": body.form})
    return job


@router.get("/projects/{project_id}/exports")
def list_exports(request: Request, access: Exporter, paging: Paged) -> Page[ResultAnswer]:
    """List the exports of a project, newest first."""
    return result_page(request, access, "export", paging)


@router.get("/projects/{project_id}/exports/{result_id}/file", response_class=FileResponse)
def get_export(request: Request, access: Exporter, result_id: ResultId) -> FileResponse:
    """Download an export. Downloads are logged."""
    row = find_result(request, access, result_id, "export")
    service = service_of(request)
    path = service.store.result(access.id, row.id) / FILE
    if not path.is_file():
        raise NotFound("there is no such archive")
    with service.database.write() as connection:
        auditlog.record(connection, actor=access.user.name, action="export.fetch", project_id=access.id, subject=row.id)
    return FileResponse(path, media_type="application/zip", filename="project.zip")


@router.get("/projects/{project_id}/specifications")
def list_specifications(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List what was imported with a project's archive: specifications for reuse, and the old log."""
    return result_page(request, access, "specification", paging)


@router.put(
    "/imports",
    status_code=202,
    openapi_extra={
        "x-streamed": True,
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}},
    },
)
async def import_project(
    request: Request, response: Response, caller: Annotated[Caller, Depends(allow("work"))], name: FileName
) -> Job:
    """Create a project from a safeswap archive, or from the zipped files of a WebSwap project."""
    service = service_of(request)
    access = await run_in_threadpool(_create_project, request, service, caller, name)
    stored = service.store.uploads(access.id) / new_id()
    try:
        await write_upload(request, service, access, stored)
    except BaseException:
        await run_in_threadpool(abandon, service, access, stored)
        raise
    payload = {"upload": stored.name, "name": name}
    return await run_in_threadpool(submit, request, response, access, "import_project", payload, data=False)


def _create_project(request: Request, service: Service, caller: Caller, name: str) -> ProjectAccess:
    at, project_id = now(), new_id()
    row = {"id": project_id, "name": name.removesuffix(".zip")[:200], "created_by": caller.id, "state": "reading"}
    with service.database.write() as connection:
        tolerance = service.settings.tolerance
        connection.execute(insert(projects).values(**row, tolerance=tolerance, created_at=at, used_at=at))
        connection.execute(insert(members).values(project_id=project_id, user_id=caller.id, added_at=at))
        auditlog.record(connection, actor=caller.name, action="project.import", project_id=project_id)
    return project_access(request, caller, project_id, "work")


def _find_newest_swap(service: Service, access: ProjectAccess) -> dict[str, Any]:
    newest = select(results.c.spec).where(results.c.project_id == access.id, results.c.kind == "masking")
    with service.database.read() as connection:
        for (asked,) in connection.execute(newest.order_by(results.c.created_at.desc())):
            spec: dict[str, Any] = asked["spec"]
            if spec.get("method") == "swap" and spec.get("rate"):
                return spec
    raise Conflict(
        "WebSwap's files hold a swap with its rate, and this project has none yet",
        code="no-swap",
        hint="mask by swap once, or export in our own form",
    )


def _list_results(service: Service, access: ProjectAccess) -> list[dict[str, Any]]:
    kept = select(results.c.kind, results.c.spec, results.c.summary).where(results.c.project_id == access.id)
    with service.database.read() as connection:
        rows = connection.execute(kept.where(results.c.kind != "export").order_by(results.c.created_at)).all()
    return [{"kind": row.kind, "spec": row.spec, "summary": row.summary} for row in rows]
