"""The job that imports a project from a safeswap or WebSwap archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import update

from safeswap import workflow
from safeswap.errors import InputError
from safeswap.model.schema import Schema
from safeswap.projects.webswap import read_project
from safeswap.service.keeping.tables import projects
from safeswap.service.tasks import ingest
from safeswap.service.tasks.archive import PROJECT, read_facts, unpack
from safeswap.service.tasks.context import DATA, SCHEMA, Context, Task
from safeswap.service.tasks.export import LOG

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import JobRow

_KINDS = ("masking", "study")
_MOST = 200
_LONGEST_LOG = 100_000


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Unpack the archive and read the data."""
    folder = context.scratch / "import"
    folder.mkdir(mode=0o700)
    context.progress(0.05, "unpacking")
    source = context.store.uploads(context.project_id) / Path(str(payload["upload"])).name
    unpack(source, folder, most_bytes=context.settings.limits.upload_bytes)
    context.progress(0.3, "reading the data")
    return _import_safeswap(context, folder) if (folder / PROJECT).is_file() else _import_webswap(context, folder)


def _import_safeswap(context: Context, folder: Path) -> dict[str, Any]:
    facts = read_facts(folder / PROJECT)
    if not (folder / DATA).is_file() or not (folder / SCHEMA).is_file():
        raise InputError("the archive holds no data", code="bad-archive", hint="export the project again")
    try:
        schema = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{SCHEMA} does not describe data", code="bad-archive") from None
    data = workflow.read(folder / DATA, schema=schema)
    recipe = workflow.as_recipe(list(facts.get("recipe") or ())).as_dicts()
    if recipe:
        workflow.recode(data, recipe, key=context.key())
    outcome = ingest.store_data(context, data, file_name=str(facts.get("file_name", "")))
    brought = {"specs": _specifications(facts), "recipe": recipe}
    context.save_result("specification", brought, {"from": "safeswap", "log": _read_log(folder / LOG)})
    return {**outcome, "recipe": {"steps": recipe}}


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
            "the archive is neither a project of ours nor one of WebSwap",
            code="bad-archive",
            hint=f"it has to hold {PROJECT}, or one file that ends in .specs with the files it names",
        )
    project = read_project(found[0])
    outcome = ingest.store_data(context, project.microdata(), file_name=project.data)
    brought = {"specs": [{"kind": "masking", "spec": {"spec": project.swap_spec().as_dict()}}]}
    log = folder / project.log  # a name without a folder: the project was read
    context.save_result("specification", brought, {"from": "webswap", "log": _read_log(log)})
    return outcome


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Attach the data and the imported recipe to the project."""
    result = ingest.finish(connection, job, outcome, store)
    if outcome.get("recipe"):
        connection.execute(update(projects).where(projects.c.id == job["project_id"]).values(recipe=outcome["recipe"]))
    return result


TASK = Task("import_project", run, finish=finish, failed=ingest.failed, clean=ingest.clean, limits="parse")
