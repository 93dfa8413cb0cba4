"""The confidentiality plot of a masking: each record by perturbation and neighbours."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse

from safeswap.service.http.paging import Page, Paged
from safeswap.service.http.problems import NotFound, Unprocessable
from safeswap.service.people.roles import ProjectAccess, project
from safeswap.service.routes.maskings import serve_page
from safeswap.service.schemas.library import ConfidentialityRequest, ResultAnswer
from safeswap.service.schemas.projects import Job
from safeswap.service.state import service_of
from safeswap.service.tasks.library import PAGE, PAYLOAD
from safeswap.service.work.jobs import submit
from safeswap.service.work.results import (
    NONE_YET,
    find_masking,
    find_or_latest,
    find_result,
    payload_of,
    result_of,
    result_page,
)

router = APIRouter(tags=["confidentiality"])

ResultId = Annotated[str, Path(max_length=64)]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]

# Options allowed over HTTP; not those that name server files (archive, population).
OPTIONS = frozenset({"alpha", "scale", "distance", "policy", "weight", "sampling_fraction", "importance", "k"})


@router.post("/projects/{project_id}/confidentiality", status_code=202)
def ask_for_plot(request: Request, response: Response, access: Worker, body: ConfidentialityRequest) -> Job:
    """Link every record of a masking to the original as an intruder would, and plot the result."""
    unknown = sorted(set(body.options) - OPTIONS)
    if unknown:
        raise Unprocessable(
            "there is no such option", code="unknown-option", hint="options: " + ", ".join(sorted(OPTIONS))
        )
    row = find_masking(request, access, body.masking)
    payload = {
        "masking": row.id,
        "spec": row.spec["spec"],
        "recipe": row.spec.get("recipe"),
        "replicate": row.spec.get("replicate", 0),
        "keys": list(body.keys),
        "linkage": body.linkage,
        "options": body.options,
    }
    return submit(request, response, access, "confidentiality", payload)


@router.get("/projects/{project_id}/confidentiality")
def list_plots(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List the plots of a project, newest first."""
    return result_page(request, access, "confidentiality", paging)


@router.get("/projects/{project_id}/confidentiality/{result_id}")
def get_plot(request: Request, access: Reader, result_id: ResultId) -> ResultAnswer:
    """Get one plot: the request and its totals."""
    return result_of(find_result(request, access, result_id, "confidentiality"))


@router.get(
    "/projects/{project_id}/confidentiality/{result_id}/plot", response_model=dict[str, Any], responses=NONE_YET
)
def get_plot_payload(request: Request, access: Reader, result_id: ResultId) -> Response:
    """Get the plot's data for its script: points, or bins if there are many; `latest` is the newest."""
    row = find_or_latest(request, access, result_id, "confidentiality")
    if row is None:
        return Response(status_code=204)
    path = service_of(request).store.result(access.id, row.id) / PAYLOAD
    if not path.is_file():
        raise NotFound("there is no such plot")
    return payload_of(row, path.read_bytes(), "plot")


@router.get("/projects/{project_id}/confidentiality/{result_id}/plot.html", response_class=FileResponse)
def get_plot_page(request: Request, access: Reader, result_id: ResultId) -> FileResponse:
    """Get the plot as a standalone page."""
    row = find_result(request, access, result_id, "confidentiality")
    return serve_page(service_of(request).store.result(access.id, row.id) / PAGE)
