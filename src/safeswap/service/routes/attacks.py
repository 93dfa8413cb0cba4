"""Attack a masking as an intruder would, with a control file if the project has one.

Success figures may tell the rate, so all of this is for those who may work on the file.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field
from sqlalchemy import Row, select

from safeswap import workflow
from safeswap.attacks.run import ReleasePolicy, check_names
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.service.http.problems import NotFound
from safeswap.service.http.wire import Identifier, Wire, example
from safeswap.service.keeping import ledger
from safeswap.service.keeping.store import erase
from safeswap.service.keeping.tables import results, users
from safeswap.service.people.roles import ProjectAccess, Worker, WorkReader
from safeswap.service.routes.data import (
    UPLOAD,
    FileName,
    clean_upload,
    find_source,
    link_of,
    receive_upload,
    safe_name,
    stated_reading,
)
from safeswap.service.routes.jobs import Job, offer_results, submit
from safeswap.service.routes.maskings import AS_SCENARIO, find_masking, masking_request
from safeswap.service.routes.settings import policy_in_force, scenario_of
from safeswap.service.work.tasks import DATA, Context, Task, masked_data, request_of
from safeswap.workflow.releasing import attack, check_control, read_control

router = APIRouter(tags=["attacks"])

CONTROL = "control"
"""The kind of job that reads a control file, and of its result."""


class AttackRequest(Wire):
    """Attack a masking."""

    model_config = example(masking="6f1c2d9a", attacks=["linkage"], full=False)

    masking: Identifier
    scenario: Scenario | None = AS_SCENARIO
    attacks: tuple[str, ...] = Field(default=(), max_length=50, description="Attacks to try; all if empty.")
    full: bool = Field(default=True, description="All attacks, or only the quick ones of every release.")
    rules: tuple[dict[str, Any], ...] = Field(
        default=(), max_length=200, description="Impossible combinations: levels, or bounds, by attribute."
    )
    tables: tuple[tuple[str, ...], ...] = Field(
        default=(), max_length=200, description="Tables published with their margins, each a list of attributes."
    )
    control: bool = Field(default=True, description="Use the project's control file, if it has one.")
    earlier: bool = Field(default=True, description="Compare with earlier releases of this project.")


class ControlAnswer(Wire):
    """The control file: records that were held out before masking."""

    model_config = example(
        id="6f1c2d9a", name="held-out.csv", records=500, created_by="ana", created_at="2026-01-01T09:00:00Z"
    )

    id: str
    name: str
    records: int
    created_by: str
    created_at: datetime | None


@router.put("/projects/{project_id}/control-file", status_code=202, openapi_extra=UPLOAD)
async def put_control(
    request: Request,
    response: Response,
    access: Worker,
    name: FileName,
    reading: Annotated[dict[str, str], Depends(stated_reading)],
) -> Job:
    """Upload records that were held out before masking, with the columns of the data. A job reads and checks them.

    They hold for the present version of the data, and replace an earlier control file.
    """
    access.require_data()
    upload = await receive_upload(request, access, discard=lambda _, stored: erase(stored))
    payload = {"upload": upload, "name": name, "reading": reading}
    return await run_in_threadpool(submit, request, response, access, CONTROL, payload)


@router.get("/projects/{project_id}/control-file")
def get_control(access: WorkReader) -> ControlAnswer:
    """Get the size and origin of the control file for the present data."""
    row = find_control(access)
    if row is None:
        raise NotFound("the project has no control file for its present data", hint="PUT it, held out before masking")
    return ControlAnswer.of(row, name=row.spec["name"], records=row.summary["records"], created_by=row.creator)


def find_control(access: ProjectAccess) -> Row[Any] | None:
    """Return the latest control file that was read for the present version of the data."""
    found = (
        select(results, users.c.name.label("creator"))
        .join(users, users.c.id == results.c.created_by)
        .where(results.c.project_id == access.id, results.c.kind == CONTROL)
        .where(results.c.data_version == access.row.data_version)
        .order_by(results.c.created_at.desc(), results.c.id.desc())
    )
    with access.service.database.read() as connection:
        return connection.execute(found.limit(1)).one_or_none()


def control_request(access: ProjectAccess) -> dict[str, Any]:
    """Return the part of a job's payload that names the control file; empty if there is none."""
    row = find_control(access)
    return {} if row is None else {"control": row.id}


@router.post("/projects/{project_id}/attacks", status_code=202)
def ask_for_attacks(request: Request, response: Response, access: Worker, body: AttackRequest) -> Job:
    """Attack a masking as an intruder would, and count what succeeds beyond a baseline."""
    check_names(body.attacks)
    row, scenario = find_masking(access, body.masking), body.scenario or scenario_of(access)
    payload = {
        "masking": row.id,
        **masking_request(row),
        "attacks": list(body.attacks),
        "full": body.full,
        "rules": list(body.rules),
        "tables": [list(names) for names in body.tables],
        "tolerance": access.row.tolerance,
        "policy": policy_in_force(access.service.database).model_dump(mode="json"),
        **(control_request(access) if body.control else {}),
        **({} if scenario is None else {"scenario": scenario.as_dict()}),
    }
    if body.earlier:
        with access.service.database.read() as connection:
            payload["comparable"] = ledger.find_comparable(connection, access.id)
    return submit(request, response, access, "attack", payload)


offer_results(router, "attacks", "attack", "Get the outcomes of attacks on a masking.", access_type=WorkReader)


def run_control(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Read the control file as the data are described, check that none of it is masked, and store it."""
    from safeswap.files.write import write_microdata

    context.progress(0.05, "reading the control file")
    data = context.data()
    link = link_of(context, payload)
    link.symlink_to(find_source(context, payload))
    held = read_control(link, data, **dict(payload.get("reading") or {}))
    context.progress(0.6, "comparing it with the data")
    check_control(held, data)
    write_microdata(held, context.result_folder / DATA)
    return context.save_result(CONTROL, {"name": safe_name(str(payload["name"]))}, {"records": len(held)})


def load_control(context: Context, payload: dict[str, Any]) -> Microdata | None:
    """Return the control file that a job names, recoded by the recipe as the data are."""
    if "control" not in payload:
        return None
    stored: Path = context.store.result(context.project_id, payload["control"]) / DATA
    held = read_control(stored, context.data())
    recipe = payload.get("recipe")
    return workflow.recode(held, recipe, key=context.key()) if recipe else held


def run_attack(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again, attack, and save the outcomes."""
    from safeswap.service.routes.releases.task import load_earlier

    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.4, "attacking")
    control, earlier = load_control(context, payload), load_earlier(context, payload, masked)
    found = attack(
        masked,
        scenario=payload.get("scenario"),
        attacks=payload["attacks"] or None,
        full=payload["full"],
        control=control,
        rules=payload["rules"],
        tables=payload["tables"],
        tolerance=payload["tolerance"],
        earlier=earlier,
    )
    best = found.best
    summary = {
        "records": len(masked.data),
        "best": None if best is None else best.attack,
        "control": None if control is None else len(control),
        "earlier": len(earlier),
        **found.as_dict(),
        "attacks": [each.as_dict() for each in ReleasePolicy(**payload["policy"]).judge(found)],
    }
    asked = request_of(payload, "masking", "attacks", "full", "rules", "tables", "control", "scenario", "policy")
    return context.save_result("attack", asked, summary)


TASKS = (
    Task("attack", run_attack, prepare=ledger.export_entries),
    Task(CONTROL, run_control, clean=clean_upload, limits="parse"),
)
