"""Safe tables without small cells, and checks of tables to be published."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse

from safeswap import workflow
from safeswap.model.microdata import Microdata
from safeswap.model.text import several
from safeswap.service.http.paging import Page, Paged
from safeswap.service.http.problems import Unprocessable
from safeswap.service.people.roles import ProjectAccess, project
from safeswap.service.routes.maskings import data_of, serve_page
from safeswap.service.schemas.library import CheckAnswer, ResultAnswer, TablesRequest
from safeswap.service.schemas.projects import Job
from safeswap.service.state import service_of
from safeswap.service.tasks.library import REPORT
from safeswap.service.work.jobs import recipe_of, require_data, submit
from safeswap.service.work.questions import QuestionSlot, can_answer, refuse_long
from safeswap.service.work.rare import Noise, perturb_check
from safeswap.service.work.results import find_result, result_of, result_page

router = APIRouter(tags=["tables"])

ResultId = Annotated[str, Path(max_length=64)]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
Officer = Annotated[ProjectAccess, Depends(project("decide"))]

MOST_CELLS_AT_ONCE = 200_000


@router.post("/projects/{project_id}/table-checks")
def check_tables(request: Request, access: Reader, body: TablesRequest, _: QuestionSlot) -> CheckAnswer:
    """Count the cells below the tolerance, and how many can be derived from the published figures: noisy totals."""
    data = data_of(request, access)
    refuse_long(service_of(request).settings.limits, records=len(data), tables=len(body.tables))
    _refuse_large(data, body)
    found = workflow.check_tables(data, [list(names) for names in body.tables], _check_tolerance(access, body))
    noise = Noise(key=service_of(request).vault.project_key(access.id), tolerance=max(2, int(access.row.tolerance)))
    return CheckAnswer(**perturb_check(found, noise))


@router.post("/projects/{project_id}/safe-tables", status_code=202)
def ask_for_safe_tables(
    request: Request, response: Response, access: Worker, body: TablesRequest, _: QuestionSlot
) -> Job:
    """Find the nearest tables in which every cell is 0 or large enough and the kept margins are exact."""
    require_data(access)
    if can_answer(service_of(request).settings.limits, access, recipe_of(access)):
        data = data_of(request, access)
        for name in {name for names in (*body.tables, *(body.keep or ())) for name in names}:
            data.schema[name]  # refuse unknown attributes before submitting a job
    payload = {**body.model_dump(mode="json"), "tolerance": _check_tolerance(access, body), "recipe": recipe_of(access)}
    return submit(request, response, access, "safe_tables", payload)


def _check_tolerance(access: ProjectAccess, body: TablesRequest) -> int:
    """Return the tolerance, at least the project's: the numbers of cells below 2, 3, … would reveal their counts."""
    floor = max(2, int(access.row.tolerance))
    if body.tolerance is not None and body.tolerance < floor:
        raise Unprocessable(
            f"the tolerance of this project is {floor}",
            code="tolerance-floor",
            hint=f"state {floor} or more",
            floor=floor,
        )
    return body.tolerance or floor


def _refuse_large(data: Microdata, body: TablesRequest) -> None:
    """Refuse too many cells: time and memory of a check grow with them, empty ones included."""
    cells = sum(math.prod(data.coded(name).cardinality for name in names) for names in body.tables)
    if cells > MOST_CELLS_AT_ONCE:
        raise Unprocessable(
            f"the tables have {several(cells, 'cell')}, at most {MOST_CELLS_AT_ONCE:,} are checked while you wait",
            code="too-large",
            hint="check fewer tables, or tables of fewer attributes, at once",
            cells=cells,
            most=MOST_CELLS_AT_ONCE,
        )


@router.get("/projects/{project_id}/safe-tables")
def list_safe_tables(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List the sets of safe tables, newest first."""
    return result_page(request, access, "safe_tables", paging)


@router.get("/projects/{project_id}/safe-tables/{result_id}")
def get_safe_tables(request: Request, access: Reader, result_id: ResultId) -> ResultAnswer:
    """Get one set of safe tables, with their cells."""
    return result_of(find_result(request, access, result_id, "safe_tables"))


@router.get("/projects/{project_id}/safe-tables/{result_id}/report.html", response_class=FileResponse)
def get_safe_tables_report(request: Request, access: Officer, result_id: ResultId) -> FileResponse:
    """Get the internal report with the tables before and after, including small counts, for officers."""
    row = find_result(request, access, result_id, "safe_tables")
    return serve_page(service_of(request).store.result(access.id, row.id) / REPORT)
