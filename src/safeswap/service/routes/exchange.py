"""Export and import of projects, as safeswap archives or WebSwap files."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from sqlalchemy import insert, select, update

from safeswap import workflow
from safeswap.errors import InputError
from safeswap.model.schema import Schema
from safeswap.projects.project import Project
from safeswap.projects.webswap import new_project, read_project
from safeswap.service.http.headers import children
from safeswap.service.http.problems import Conflict, NotFound
from safeswap.service.http.wire import Page, Paged, Wire, example
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import members, projects, results
from safeswap.service.people.roles import Caller, ProjectAccess, Reader, allow, project, project_access
from safeswap.service.routes.data import (
    UPLOAD,
    FileName,
    Origin,
    clean_upload,
    fail_ingest,
    finish_ingest,
    read_origin,
    receive_upload,
    store_data,
)
from safeswap.service.routes.jobs import Job, ResultAnswer, ResultId, find_result, result_page, submit
from safeswap.service.routes.logs import log_text
from safeswap.service.state import service_of
from safeswap.service.work.tasks import DATA, SCHEMA, Context, Task

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import JobRow

router = APIRouter(tags=["projects"])

Exporter = Annotated[ProjectAccess, Depends(project("export"))]

FORMAT = "safeswap-project-1"
PROJECT = "project.json"
MOST_FILES = 100
_DEEPEST = 50
FILE = "project.zip"
LOG = "session.log"
_KINDS = ("masking", "study")
_MOST = 200
_LONGEST_LOG = 100_000


class ExportRequest(Wire):
    """The format: a safeswap archive, or WebSwap's `.orig`, `.desc`, `.specs` and `.log`."""

    model_config = example(form="safeswap")

    form: Literal["safeswap", "webswap"] = "safeswap"


@router.post("/projects/{project_id}/exports", status_code=202)
def ask_for_export(request: Request, response: Response, access: Exporter, body: ExportRequest) -> Job:
    """Export a project to one archive with its confidential data, for internal use, without keys and audit records.

    For officers, and for analysts if the administrator allows it; never with a token. Exports are logged.
    """
    payload: dict[str, Any] = {"form": body.form, "log": log_text(access)}
    if body.form == "webswap":
        payload["spec"] = _find_newest_swap(access)
    else:
        payload["facts"] = {
            "name": access.row.name,
            "tolerance": access.row.tolerance,
            "file_name": access.row.file_name,
            "recipe": access.recipe,
            "settings": _settings_of(access.row.settings),
            "results": _list_results(access),
        }

    def record(connection: Connection, job_id: str) -> None:
        access.record(connection, "job.export", job_id)
        access.record(connection, "export.request", job_id, {"form": body.form})

    return submit(request, response, access, "export", payload, record=record)


@router.get("/projects/{project_id}/exports")
def list_exports(access: Exporter, paging: Paged) -> Page[ResultAnswer]:
    """List the exports of a project, newest first."""
    return result_page(access, "export", paging)


@router.get("/projects/{project_id}/exports/{result_id}/file", response_class=FileResponse)
def get_export(access: Exporter, result_id: ResultId) -> FileResponse:
    """Download an export. Downloads are logged."""
    row = find_result(access, result_id, "export")
    path = access.service.store.result(access.id, row.id) / FILE
    if not path.is_file():
        raise NotFound("there is no such archive")
    with access.service.database.write() as connection:
        access.record(connection, "export.fetch", subject=row.id)
    return FileResponse(path, media_type="application/zip", filename="project.zip")


@router.get("/projects/{project_id}/specifications")
def list_specifications(access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """List what was imported with a project's archive: specifications for reuse, and the old log."""
    return result_page(access, "specification", paging)


@router.put("/imports", status_code=202, openapi_extra=UPLOAD)
async def import_project(
    request: Request, response: Response, caller: Annotated[Caller, Depends(allow("work"))], name: FileName
) -> Job:
    """Create a project from a safeswap archive, or from the zipped files of a WebSwap project."""
    access = await run_in_threadpool(_create_project, request, caller, name)
    payload = {"upload": await receive_upload(request, access), "name": name}
    return await run_in_threadpool(submit, request, response, access, "import_project", payload, data=False)


def _create_project(request: Request, caller: Caller, name: str) -> ProjectAccess:
    at, project_id, service = now(), new_id(), service_of(request)
    row = {"id": project_id, "name": name.removesuffix(".zip")[:200], "created_by": caller.id, "state": "reading"}
    with service.database.write() as connection:
        tolerance = service.settings.tolerance
        connection.execute(insert(projects).values(**row, tolerance=tolerance, created_at=at, used_at=at))
        connection.execute(insert(members).values(project_id=project_id, user_id=caller.id, added_at=at))
        auditlog.record(connection, actor=caller.name, action="project.import", project_id=project_id)
    return project_access(request, caller, project_id, "work")


def _find_newest_swap(access: ProjectAccess) -> dict[str, Any]:
    newest = select(results.c.spec).where(results.c.project_id == access.id, results.c.kind == "masking")
    with access.service.database.read() as connection:
        for (asked,) in connection.execute(newest.order_by(results.c.created_at.desc())):
            spec: dict[str, Any] = asked["spec"]
            if spec.get("method") == "swap" and spec.get("rate"):
                return spec
    raise Conflict(
        "WebSwap files describe a swap with its rate, and this project has none yet",
        code="no-swap",
        hint="mask with a swap once, or export in safeswap's own format",
    )


def _list_results(access: ProjectAccess) -> list[dict[str, Any]]:
    kept = select(results.c.kind, results.c.spec, results.c.summary).where(results.c.project_id == access.id)
    with access.service.database.read() as connection:
        rows = connection.execute(kept.where(results.c.kind != "export").order_by(results.c.created_at)).all()
    return [{"kind": row.kind, "spec": row.spec, "summary": row.summary} for row in rows]


def run_export(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Export data, description, recipe, specifications, figures and log, but no keys and audit records."""
    folder = context.scratch / "export"
    folder.mkdir(mode=0o700)
    context.progress(0.1, "gathering the files")
    (_write_webswap if payload["form"] == "webswap" else _write_safeswap)(context, payload, folder)
    context.progress(0.5, "packing")
    pack(folder, context.result_folder / FILE)
    size = (context.result_folder / FILE).stat().st_size
    summary = {"form": payload["form"], "bytes": size, "files": len(list(folder.iterdir()))}
    return context.save_result("export", {"form": payload["form"]}, summary)


def _write_safeswap(context: Context, payload: dict[str, Any], folder: Any) -> None:
    source = context.store.data(context.project_id, context.project["data_version"])
    for name in (DATA, SCHEMA):
        shutil.copyfile(source / name, folder / name)
    origin = read_origin(context.store, context.project_id, context.project["data_version"])
    facts = {"format": FORMAT, **payload["facts"], **asdict(origin)}
    (folder / PROJECT).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    (folder / LOG).write_text(payload["log"], encoding="utf-8")


def _write_webswap(context: Context, payload: dict[str, Any], folder: Any) -> None:
    spec = payload["spec"]
    new_project(
        context.data(),
        folder,
        name="project",
        rate=spec["rate"],
        swap=spec["swap"],
        fixed=spec.get("fixed", ()),
        differ=spec.get("differ", ()),
    )
    (folder / "project.log").write_text(payload["log"], encoding="utf-8")


def run_import(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Unpack the archive and read the data."""
    folder = context.scratch / "import"
    folder.mkdir(mode=0o700)
    context.progress(0.05, "unpacking")
    source = context.store.uploads(context.project_id) / Path(str(payload["upload"])).name
    unpack(source, folder, most_bytes=context.settings.limits.upload_bytes)
    context.progress(0.3, "reading the data")
    return _import_safeswap(context, folder) if (folder / PROJECT).is_file() else _import_webswap(context, folder)


def _import_safeswap(context: Context, folder: Path) -> dict[str, Any]:
    from safeswap.workflow.session import as_recipe

    facts = read_facts(folder / PROJECT)
    if not (folder / DATA).is_file() or not (folder / SCHEMA).is_file():
        raise InputError("the archive holds no data", code="bad-archive", hint="export the project again")
    try:
        schema = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{SCHEMA} does not describe data", code="bad-archive") from None
    data = workflow.read(folder / DATA, schema=schema)
    recipe = as_recipe(list(facts.get("recipe") or ())).as_dicts()
    if recipe:
        workflow.recode(data, recipe, key=context.key())
    stated = facts.get("household_columns")
    columns = [name for name in data.attributes if name in stated] if isinstance(stated, list) else None
    layout = facts.get("layout")
    origin = Origin.of(layout if isinstance(layout, dict) else {}, columns)
    outcome = store_data(context, data, file_name=str(facts.get("file_name", "")), origin=origin)
    settings = _settings_of(facts.get("settings"))
    brought = {"specs": _specifications(facts), "recipe": recipe}
    context.save_result("specification", brought, {"from": "safeswap", "log": _read_log(folder / LOG)})
    return {**outcome, "recipe": {"steps": recipe}, "settings": settings}


def _settings_of(kept: Any) -> dict[str, Any] | None:
    """Return the settings of a project for an archive, or from one: checked, without the history of changes."""
    if not isinstance(kept, dict) or not isinstance(kept.get("content"), dict):
        return None
    return {"content": Project.of(kept["content"]).content(), "scenario": str(kept.get("scenario", ""))}


def _specifications(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the imported specifications; figures are recomputed here, with a new key."""
    kept = facts.get("results")
    listed = [each for each in kept if isinstance(each, dict)] if isinstance(kept, list) else []
    asked = [{"kind": each.get("kind"), "spec": each.get("spec")} for each in listed]
    return [each for each in asked if each["kind"] in _KINDS and isinstance(each["spec"], dict)][:_MOST]


def _read_log(path: Path) -> str:
    """Read the imported session log as text; it does not become part of this service's own log."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_LOG)


def _import_webswap(context: Context, folder: Path) -> dict[str, Any]:
    found = sorted(folder.glob("*.specs"))
    if len(found) != 1:
        raise InputError(
            "the archive is neither a safeswap project nor a WebSwap project",
            code="bad-archive",
            hint=f"it has to hold {PROJECT}, or one file that ends in .specs with the files it names",
        )
    project = read_project(found[0])
    outcome = store_data(context, project.microdata(), file_name=project.data)
    brought = {"specs": [{"kind": "masking", "spec": {"spec": project.swap_spec().as_dict()}}]}
    log = folder / project.log  # a name without a folder: the project was read
    context.save_result("specification", brought, {"from": "webswap", "log": _read_log(log)})
    return outcome


def finish_import(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Attach the data, the imported recipe and the settings to the project."""
    result = finish_ingest(connection, job, outcome, store)
    brought = {name: outcome[name] for name in ("recipe", "settings") if outcome.get(name)}
    if brought:
        connection.execute(update(projects).where(projects.c.id == job["project_id"]).values(**brought))
    return result


def pack(folder: Path, archive: Path) -> None:
    """Pack all files of a flat folder into one archive."""
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED, compresslevel=4) as packed:
        for file in sorted(folder.iterdir()):
            packed.write(file, file.name)


def unpack(archive: Path, folder: Path, *, most_bytes: int) -> None:
    """Unpack an archive into a folder; refuse too many, too large or misplaced files."""
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            _check(entries, most_bytes)
            left = most_bytes
            for entry in entries:
                left -= _copy(packed, entry, folder / Path(entry.filename).name, left)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise InputError(
            "the archive cannot be read",
            code="bad-archive",
            hint="export the project again, or pack its files into a zip archive",
            reason=type(error).__name__,
        ) from None


def _check(entries: list[zipfile.ZipInfo], most_bytes: int) -> None:
    names = [Path(entry.filename).name for entry in entries]
    if len(entries) > MOST_FILES:
        raise InputError(f"the archive holds more than {MOST_FILES} files", code="bad-archive")
    if sum(entry.file_size for entry in entries) > most_bytes:
        raise InputError(f"the files of the archive have more than {most_bytes:,} bytes", code="too-large")
    if len(set(names)) != len(names) or any(name in {"", ".", ".."} for name in names):
        raise InputError("two files of the archive have the same name", code="bad-archive")


def _copy(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Copy an entry and count the actual bytes, since an archive may lie about sizes."""
    written = 0
    with packed.open(entry) as source, target.open("xb") as file:
        while chunk := source.read(2**20):
            written += len(chunk)
            if written > left:
                raise InputError("the files of the archive are larger than it says", code="too-large")
            file.write(chunk)
    return written


def read_facts(path: Path) -> dict[str, Any]:
    """Read the project's metadata from an archive."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or _is_deep(facts):
        raise InputError(f"{PROJECT} is not a project file", code="bad-archive", hint="export the project again")
    return facts


def _is_deep(value: Any) -> bool:
    """Return True if values are nested deeper than any we write, which could exhaust the stack later."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [each for one in level for each in children(one)]
        if not level:
            return False
    return True


TASKS = (
    Task("export", run_export),
    Task("import_project", run_import, finish=finish_import, failed=fail_ingest, clean=clean_upload, limits="parse"),
)
