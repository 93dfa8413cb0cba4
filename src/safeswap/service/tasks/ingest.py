"""The job that reads a file somebody sent: parsed inside the limits, kept in one form, described without a record."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

from safeswap import workflow
from safeswap.errors import InputError, InternalError
from safeswap.model.schema import Schema
from safeswap.service.keeping.database import now
from safeswap.service.keeping.erase import erase, sync_folder
from safeswap.service.keeping.store import attempt_name, opened_in
from safeswap.service.keeping.tables import projects
from safeswap.service.tasks.context import DATA, SCHEMA, Context, Task
from safeswap.service.work.rare import with_rare_levels

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.model.microdata import Microdata
    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim, JobRow

OPTIONS = ("identifier", "kinds", "missing", "delimiter", "encoding", "quote", "schema")
_AWKWARD = re.compile(r"[^\w.\- ()+,=@~]")


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Read the file (``upload``, ``path`` or ``from_version``), keep the data, describe them."""
    context.progress(0.05, "reading the file")
    data = _data(context, payload)
    return keep(context, data, file_name=str(payload.get("name", "")))


def keep(context: Context, data: Microdata, *, file_name: str) -> dict[str, Any]:
    """Keep data in the one form in which the service has them, and tell what the project is to know of them."""
    context.progress(0.6, "keeping the data")
    folder = context.store.data(context.project_id, 0) / attempt_name(context.job.id, context.job.fence)
    erase(folder)
    folder.mkdir(mode=0o700)
    workflow.write(data, folder / DATA)
    (folder / SCHEMA).write_text(data.schema.model_dump_json(exclude_defaults=True), encoding="utf-8")
    sync_folder(folder)
    context.progress(0.8, "describing the data")
    return {
        "part": folder.name,
        "file_name": safe_name(file_name),
        "records": len(data),
        "description": workflow.describe(data, tolerance=int(context.project["tolerance"])).as_dict(),
    }


def safe_name(name: str) -> str:
    """The last part of a file's name as its owner calls it, without anything that means something elsewhere.

    >>> safe_name("../../etc/<b>survey 2024.csv"), safe_name("C:\\\\data\\\\a.dta"), safe_name("..")
    ('_b_survey 2024.csv', 'a.dta', 'data')
    """
    last = re.split(r"[/\\\\]", name)[-1]
    return _AWKWARD.sub("_", last).lstrip(". ")[-120:] or "data"


def _data(context: Context, payload: Mapping[str, Any]) -> Microdata:
    if "from_version" in payload:
        plain = context.data(int(payload["from_version"]))
        changed = Schema.model_validate(payload["schema"])
        return workflow.read(plain.table, schema=with_rare_levels(changed, plain, int(context.project["tolerance"])))
    # Read under the name by which its owner knows it, so that an error speaks of that name.
    link = context.scratch / safe_name(str(payload.get("name") or "data"))
    link.symlink_to(_source(context, payload))
    stated = {name: value for name, value in dict(payload.get("reading") or {}).items() if name in OPTIONS}
    if isinstance(stated.get("schema"), Mapping):
        stated["schema"] = Schema.model_validate(stated["schema"])
    return workflow.read(link, **stated)


def _source(context: Context, payload: Mapping[str, Any]) -> Path:
    if "upload" in payload:
        source = context.store.upload(context.project_id, str(payload["upload"]))
    else:
        source = _taken(Path(str(payload["path"])), context.settings.folders)
    if not source.is_file():
        raise InputError("the file to be read is not there any more", code="missing-file", hint="send it again")
    size, limit = source.stat().st_size, context.settings.limits.upload_bytes
    if size > limit:
        raise InputError(
            f"the file has {size:,} bytes; at most {limit:,} are allowed",
            code="too-large",
            hint="ask the administrator to raise the limit",
            found=size,
            limit=limit,
        )
    return source


def _taken(path: Path, folders: tuple[Path, ...]) -> Path:
    """A file from a folder on the server, as this process holds it open: whatever its name leads to by then."""
    descriptor = opened_in(path, folders)
    if descriptor is None:
        raise InputError(
            "files may not be taken from there",
            code="folder-not-allowed",
            hint="put the file into a folder that the administrator has named",
        )
    held = Path(f"/proc/self/fd/{descriptor}")
    if held.exists():
        return held  # stays open as long as this process is there: it does this one job
    os.close(descriptor)
    return path


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Give the data their number, and the project what was found in them."""
    mine = projects.c.id == job["project_id"]
    there = select(projects.c.data_version).where(mine, projects.c.state != "deleted")
    version = connection.scalar(there.with_for_update())
    if version is None:
        raise InternalError("the project is not there any more", code="no-project")
    number = version + 1
    target = store.data(job["project_id"], number)
    erase(target)  # of an attempt that came this far and was killed before it could be known
    (store.data(job["project_id"], 0) / outcome["part"]).rename(target)
    found = {name: outcome[name] for name in ("records", "description")}
    if outcome["file_name"] and "from_version" not in job["payload"]:
        found["file_name"] = outcome["file_name"]
    connection.execute(
        update(projects)
        .where(mine)
        .values(**found, state="ready", data_version=number, used_at=now(), version=projects.c.version + 1)
    )
    return {"kind": "data", "id": str(number)}


def failed(connection: Connection, job: JobRow, error: dict[str, Any], store: Store) -> None:
    """A project that had data keeps them; one without is broken, or empty again if reading was cancelled."""
    before = "broken" if error else "empty"
    for state, has_data in (("ready", projects.c.data_version > 0), (before, projects.c.data_version == 0)):
        reading = (projects.c.id == job["project_id"], projects.c.state == "reading", has_data)
        connection.execute(update(projects).where(*reading).values(state=state, version=projects.c.version + 1))


def clean(job: Claim, store: Store) -> None:
    """Erase the file as it came: its data are kept, or it could not be read."""
    if job.project_id is not None and "upload" in job.payload:
        erase(store.upload(job.project_id, str(job.payload["upload"])))


TASK = Task("ingest", run, finish=finish, failed=failed, clean=clean, limits="parse")
