"""The job that makes a project of an archive: one of our own, or the files of a WebSwap project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import update

from safeswap import workflow
from safeswap.errors import InputError
from safeswap.io.webswap import read_project
from safeswap.model.schema import Schema
from safeswap.service.tables import projects
from safeswap.service.tasks import ingest
from safeswap.service.tasks.archive import PROJECT, read_facts, unpack
from safeswap.service.tasks.context import DATA, SCHEMA, Context, Task

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.service.jobs import JobRow
    from safeswap.service.store import Store


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Unpack, read the data, and tell what the project is to become."""
    folder = context.scratch / "import"
    folder.mkdir(mode=0o700)
    context.progress(0.05, "unpacking")
    source = context.store.uploads(context.project_id) / Path(str(payload["upload"])).name
    unpack(source, folder, most_bytes=context.settings.limits.upload_bytes)
    context.progress(0.3, "reading the data")
    return _ours(context, folder) if (folder / PROJECT).is_file() else _webswap(context, folder)


def _ours(context: Context, folder: Path) -> dict[str, Any]:
    facts = read_facts(folder / PROJECT)
    if not (folder / DATA).is_file() or not (folder / SCHEMA).is_file():
        raise InputError("the archive holds no data", code="bad-archive", hint="export the project anew")
    try:
        schema = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{SCHEMA} does not describe data", code="bad-archive") from None
    data = workflow.read(folder / DATA, schema=schema)
    recipe = workflow.as_recipe(list(facts.get("recipe") or ())).as_dicts()
    if recipe:
        workflow.recode(data, recipe, key=context.key())
    told = ingest.keep(context, data, file_name=str(facts.get("file_name", "")))
    return {**told, "recipe": {"steps": recipe, "undone": 0}}


def _webswap(context: Context, folder: Path) -> dict[str, Any]:
    found = sorted(folder.glob("*.specs"))
    if len(found) != 1:
        raise InputError(
            "the archive is neither a project of ours nor one of WebSwap",
            code="bad-archive",
            hint=f"it has to hold {PROJECT}, or one file that ends in .specs with the files it names",
        )
    project = read_project(found[0])
    told = ingest.keep(context, project.microdata(), file_name=project.data)
    context.save_result("specification", {"spec": project.swap_spec().as_dict()}, {"from": "webswap"})
    return told


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Give the project its data, and the recipe it came with."""
    told = ingest.finish(connection, job, outcome, store)
    if outcome.get("recipe"):
        connection.execute(update(projects).where(projects.c.id == job["project_id"]).values(recipe=outcome["recipe"]))
    return told


TASK = Task("import_project", run, finish=finish, failed=ingest.failed, clean=ingest.clean, limits="parse")
