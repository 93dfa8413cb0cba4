"""The job that reads an uploaded file: parse it within limits, store it in the canonical form, describe it."""

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
from safeswap.model.text import several
from safeswap.service.keeping.database import now
from safeswap.service.keeping.erase import erase, sync_folder
from safeswap.service.keeping.store import attempt_name, open_in
from safeswap.service.keeping.tables import projects
from safeswap.service.tasks.context import DATA, SCHEMA, Context, Task
from safeswap.service.work.rare import Noise, perturb_cells, with_rare_levels

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.model.microdata import Microdata
    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim, JobRow

OPTIONS = ("identifier", "kinds", "missing", "delimiter", "encoding", "quote", "schema")
_AWKWARD = re.compile(r"[^\w.\- ()+,=@~]")


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Read the file (``upload``, ``path`` or ``from_version``), store the data, describe them."""
    context.progress(0.05, "reading the file")
    data = _read_data(context, payload)
    return store_data(context, data, file_name=str(payload.get("name", "")))


def store_data(context: Context, data: Microdata, *, file_name: str) -> dict[str, Any]:
    """Store data in the canonical form, and return what the project needs to know about them."""
    context.progress(0.6, "keeping the data")
    folder = context.store.data(context.project_id, 0) / attempt_name(context.job.id, context.job.fence)
    erase(folder)
    folder.mkdir(mode=0o700)
    workflow.write(data, folder / DATA)
    (folder / SCHEMA).write_text(data.schema.model_dump_json(exclude_defaults=True), encoding="utf-8")
    sync_folder(folder)
    context.progress(0.8, "describing the data")
    tolerance = int(context.project["tolerance"])
    description = workflow.describe(data, tolerance=tolerance).as_dict()
    cells = perturb_cells(description["cells"], Noise(key=context.key(), tolerance=tolerance))
    return {
        "part": folder.name,
        "file_name": safe_name(file_name),
        "records": len(data),
        "description": {**description, "cells": cells},
    }


def safe_name(name: str) -> str:
    """Return the last part of a file name, without special characters.

    >>> safe_name("../../etc/<b>survey 2024.csv"), safe_name("C:\\\\data\\\\a.dta"), safe_name("..")
    ('_b_survey 2024.csv', 'a.dta', 'data')
    """
    last = re.split(r"[/\\\\]", name)[-1]
    return _AWKWARD.sub("_", last).lstrip(". ")[-120:] or "data"


def _read_data(context: Context, payload: Mapping[str, Any]) -> Microdata:
    if "from_version" in payload:
        plain = context.data(int(payload["from_version"]))
        changed = Schema.model_validate(payload["schema"])
        return workflow.read(plain.table, schema=with_rare_levels(changed, plain, int(context.project["tolerance"])))
    # Read under its original name, so that errors mention that name.
    link = context.scratch / safe_name(str(payload.get("name") or "data"))
    link.symlink_to(_find_source(context, payload))
    stated = {name: value for name, value in dict(payload.get("reading") or {}).items() if name in OPTIONS}
    if isinstance(stated.get("schema"), Mapping):
        stated["schema"] = Schema.model_validate(stated["schema"])
    return workflow.read(link, **stated)


def _find_source(context: Context, payload: Mapping[str, Any]) -> Path:
    if "upload" in payload:
        source = context.store.upload(context.project_id, str(payload["upload"]))
    else:
        source = _open_from_folder(Path(str(payload["path"])), context.settings.folders)
    if not source.is_file():
        raise InputError("the file to be read is not there any more", code="missing-file", hint="send it again")
    size, limit = source.stat().st_size, context.settings.limits.upload_bytes
    if size > limit:
        raise InputError(
            f"the file has {several(size, 'byte')}; at most {limit:,} are allowed",
            code="too-large",
            hint="ask the administrator to raise the limit",
            found=size,
            limit=limit,
        )
    return source


def _open_from_folder(path: Path, folders: tuple[Path, ...]) -> Path:
    """Open a file from a server folder and return the path of its descriptor, immune to later renames."""
    descriptor = open_in(path, folders)
    if descriptor is None:
        raise InputError(
            "files may not be taken from there",
            code="folder-not-allowed",
            hint="put the file into a folder that the administrator has named",
        )
    opened = Path(f"/proc/self/fd/{descriptor}")
    if opened.exists():
        return opened  # stays open for the life of this process, which runs only this job
    os.close(descriptor)
    return path


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Move the data to their final version, and update the project."""
    mine = projects.c.id == job["project_id"]
    there = select(projects.c.data_version).where(mine, projects.c.state != "deleted")
    version = connection.scalar(there.with_for_update())
    if version is None:
        raise InternalError("the project is not there any more", code="no-project")
    number = version + 1
    target = store.data(job["project_id"], number)
    erase(target)  # left by an attempt that was killed just before its commit
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
    """Reset the project's state: ready if it had data, else broken, or empty if reading was cancelled."""
    before = "broken" if error else "empty"
    for state, has_data in (("ready", projects.c.data_version > 0), (before, projects.c.data_version == 0)):
        reading = (projects.c.id == job["project_id"], projects.c.state == "reading", has_data)
        connection.execute(update(projects).where(*reading).values(state=state, version=projects.c.version + 1))


def clean(job: Claim, store: Store) -> None:
    """Erase the upload: its data are stored, or it could not be read."""
    if job.project_id is not None and "upload" in job.payload:
        erase(store.upload(job.project_id, str(job.payload["upload"])))


TASK = Task("ingest", run, finish=finish, failed=failed, clean=clean, limits="parse")
