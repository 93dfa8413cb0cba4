"""Safe tables without small cells, and checks of tables to be published."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field

from safeswap import workflow
from safeswap.model.microdata import Microdata
from safeswap.model.text import plural
from safeswap.service.http.problems import Unprocessable
from safeswap.service.http.wire import Wire, example
from safeswap.service.people.roles import Officer, ProjectAccess, Reader, Worker
from safeswap.service.routes.jobs import (
    REPORT,
    Job,
    QuestionSlot,
    ResultId,
    can_answer,
    load_data,
    offer_results,
    refuse_long,
    serve_page,
    submit,
)
from safeswap.service.work.rare import Noise, perturb_check, rare_texts
from safeswap.service.work.tasks import Context, Task, prepared_data

router = APIRouter(tags=["tables"])

MOST_CELLS_AT_ONCE = 200_000
MOST_CELLS = 5_000


class TablesRequest(Wire):
    """Tables to make safe or to check."""

    model_config = example(tables=[["Race", "Edu"], ["Race", "Sex"]], tolerance=3)

    tables: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=100)
    tolerance: int | None = Field(
        default=None, ge=2, le=1_000_000, description="Default and minimum: the project's tolerance."
    )
    keep: tuple[tuple[str, ...], ...] | None = Field(default=None, description="Margins that stay exact.")
    objective: str = Field(default="total", pattern="^(total|largest)$")
    soft: bool = False
    time_limit: float = Field(default=30.0, gt=0, le=3600)


class CheckAnswer(Wire):
    """Small cells of tables, and how many can be derived from the published figures."""

    sentence: str
    is_safe: bool
    tolerance: int
    small: int
    derived: int
    way: str
    is_exact: bool
    tables: tuple[dict[str, Any], ...]


@router.post("/projects/{project_id}/table-checks")
def check_tables(access: Reader, body: TablesRequest, _: QuestionSlot) -> CheckAnswer:
    """Count the cells below the tolerance, and how many can be derived from the published figures: noisy totals."""
    data = load_data(access)
    refuse_long(access.service.settings.limits, records=len(data), tables=len(body.tables))
    _refuse_large(data, body)
    found = workflow.check_tables(data, [list(names) for names in body.tables], _check_tolerance(access, body))
    noise = Noise(key=access.key, tolerance=max(2, int(access.row.tolerance)))
    return CheckAnswer(**perturb_check(found, noise))


@router.post("/projects/{project_id}/safe-tables", status_code=202)
def ask_for_safe_tables(
    request: Request, response: Response, access: Worker, body: TablesRequest, _: QuestionSlot
) -> Job:
    """Find the nearest tables in which every cell is 0 or large enough and the kept margins are exact."""
    access.require_data()
    if can_answer(access.service.settings.limits, access, access.recipe):
        data = load_data(access)
        for name in {name for names in (*body.tables, *(body.keep or ())) for name in names}:
            data.schema[name]  # refuse unknown attributes before submitting a job
    payload = {**body.model_dump(mode="json"), "tolerance": _check_tolerance(access, body), "recipe": access.recipe}
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
            f"the tables have {plural(cells, 'cell')}, at most {MOST_CELLS_AT_ONCE:,} are checked while you wait",
            code="too-large",
            hint="check fewer tables, or tables of fewer attributes, at once",
            cells=cells,
            most=MOST_CELLS_AT_ONCE,
        )


offer_results(router, "safe-tables", "safe_tables", "Get one set of safe tables, with their cells.")


@router.get("/projects/{project_id}/safe-tables/{result_id}/report.html", response_class=FileResponse)
def get_safe_tables_report(access: Officer, result_id: ResultId) -> FileResponse:
    """Get the internal report with the tables before and after, including small counts, for officers."""
    return serve_page(access, result_id, "safe_tables", REPORT)


def run_safe_tables(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Find the nearest safe tables, write the internal report, and store the cells that may be shown."""
    from safeswap.reports.safe import write_safe_report

    context.progress(0.05, "counting the tables")
    data = prepared_data(context, payload)
    asked = payload["tables"]
    context.progress(0.2, "searching for the nearest safe tables")
    found = workflow.safe_table(
        data,
        payload["tolerance"],
        attributes=asked if len(asked) > 1 else asked[0],
        keep=payload.get("keep"),
        objective=payload["objective"],
        soft=payload["soft"],
        time_limit=payload["time_limit"],
    )
    context.progress(0.9, "writing the report")
    write_safe_report(found, context.result_folder / REPORT)
    names = {name for names in asked for name in names}
    hidden = {name: rare_texts(data, name, int(context.project["tolerance"])) for name in names}
    summary = {**found.as_dict(), "sentence": found.sentence, "cells": [_cells(each, hidden) for each in found.tables]}
    named = ("tables", "tolerance", "keep", "objective", "soft", "time_limit", "recipe")
    spec = {name: payload[name] for name in named if payload.get(name) is not None}
    return context.save_result("safe_tables", spec, summary)


def _cells(changed: Any, hidden: Mapping[str, frozenset[str]]) -> list[dict[str, Any]]:
    """Return the publishable cells of a safe table. The original counts and rare levels are only in the report."""
    names = changed.before.names
    rows = [
        row
        for row in changed.long().to_pylist()
        if not any(str(row[name]) in hidden.get(name, frozenset()) for name in names)
    ][:MOST_CELLS]
    return [
        {
            "levels": [str(row[name]) for name in names],
            "after": row["after"],
            "changed": row["before"] != row["after"],
        }
        for row in rows
    ]


TASKS = (Task("safe_tables", run_safe_tables),)
