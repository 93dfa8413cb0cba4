"""The data of a project: uploaded as a stream or taken from a server folder, then read and described by a worker."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator
from sqlalchemy import update

from safeswap.errors import OutputError
from safeswap.model.schema import Attribute, Schema
from safeswap.service.http.etags import require_match, set_etag
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, TooLarge, Unprocessable
from safeswap.service.keeping.database import new_id
from safeswap.service.keeping.erase import erase
from safeswap.service.keeping.store import find_in
from safeswap.service.keeping.tables import projects
from safeswap.service.people.roles import ProjectAccess, project
from safeswap.service.schemas.projects import (
    AttributeChange,
    DescriptionAnswer,
    DescriptionChange,
    FolderRequest,
    Job,
    plain_text,
)
from safeswap.service.state import Service, service_of
from safeswap.service.work.jobs import require_data, submit

router = APIRouter(tags=["data"])

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CHECK_EVERY = 64 * 2**20  # bytes between checks of the free space

Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
FileName = Annotated[
    str,
    Query(
        min_length=1,
        max_length=255,
        pattern=r"^[^/\\\x00]+$",
        description="File name; its extension determines the format.",
    ),
    AfterValidator(plain_text),
]


@router.put(
    "/projects/{project_id}/data",
    status_code=202,
    openapi_extra={
        "x-streamed": True,
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}},
    },
)
async def send_data(
    *,
    request: Request,
    response: Response,
    access: Worker,
    name: FileName,
    identifier: Annotated[str | None, Query(max_length=200, description="Attribute that identifies records.")] = None,
    delimiter: Annotated[str | None, Query(max_length=1)] = None,
    encoding: Annotated[str | None, Query(max_length=40)] = None,
) -> Job:
    """Upload a file. It is streamed to disk; a worker with limits on memory and time reads it."""
    service = service_of(request)
    await run_in_threadpool(_begin_reading, service, access)
    stored = service.store.uploads(access.id) / new_id()
    try:
        await write_upload(request, service, access, stored)
    except BaseException:
        await run_in_threadpool(abandon, service, access, stored)
        raise
    stated = {"identifier": identifier, "delimiter": delimiter, "encoding": encoding}
    reading = {option: value for option, value in stated.items() if value is not None}
    payload = {"upload": stored.name, "name": name, "reading": reading}
    return await run_in_threadpool(submit, request, response, access, "ingest", payload, data=False)


@router.post("/projects/{project_id}/data-from-folder", status_code=202)
def take_data(request: Request, response: Response, access: Worker, body: FolderRequest) -> Job:
    """Read a file from a server folder that the administrator allows."""
    service = service_of(request)
    path = _find_allowed(Path(body.path), service.settings.folders)
    _begin_reading(service, access)
    payload = {"path": str(path), "name": path.name, "reading": _check_options(body.reading)}
    return submit(request, response, access, "ingest", payload, data=False)


@router.get("/projects/{project_id}/description")
def get_description(request: Request, response: Response, access: Reader) -> DescriptionAnswer:
    """Get the description of the data: no records, and no rare levels."""
    require_data(access)
    set_etag(response, access.row.version)
    return DescriptionAnswer.model_validate(access.row.description)


@router.patch("/projects/{project_id}/description", status_code=202)
def change_description(request: Request, response: Response, access: Worker, body: DescriptionChange) -> Job:
    """Change kinds, labels or the order of levels; a worker describes the data again."""
    from safeswap.service.tasks.context import read_schema

    require_data(access)
    require_match(request, access.row.version)
    service = service_of(request)
    schema = read_schema(service.store, access.id, access.row.data_version)
    changed = change_schema(schema, body.attributes)
    _begin_reading(service, access)
    payload = {"from_version": access.row.data_version, "schema": changed.model_dump(mode="json")}
    return submit(request, response, access, "ingest", payload, data=False)


def change_schema(schema: Schema, changes: tuple[AttributeChange, ...]) -> Schema:
    """Return the schema with some attributes changed; they are no longer marked as inferred.

    >>> from safeswap.model.schema import Attribute
    >>> schema = Schema(attributes=(Attribute(name="Age", inferred=True),))
    >>> change_schema(schema, (AttributeChange(name="Age", kind="ordinal"),))["Age"].kind.value
    'ordinal'
    """
    stated = {change.name: change.model_dump(exclude_none=True) for change in changes}
    unknown = [name for name in stated if name not in schema]
    if unknown:
        raise Unprocessable("there is no such attribute", code="unknown-attribute", attribute=unknown[0])
    attributes = tuple(
        _change_attribute(attribute, stated[attribute.name]) if attribute.name in stated else attribute
        for attribute in schema.attributes
    )
    return Schema.model_validate({**schema.model_dump(), "attributes": [a.model_dump() for a in attributes]})


def _change_attribute(attribute: Attribute, stated: dict[str, Any]) -> Attribute:
    # Rare levels are not shown: labelling the others must not remove their labels.
    labels = {level: label for level, label in {**attribute.labels, **stated.get("labels", {})}.items() if label}
    return Attribute.model_validate({**attribute.model_dump(), "inferred": False, **stated, "labels": labels})


def _begin_reading(service: Service, access: ProjectAccess) -> None:
    """Mark the project as reading; refuse a second file at the same time."""
    with service.database.write() as connection:
        change = update(projects).where(
            projects.c.id == access.id, projects.c.version == access.row.version, projects.c.state != "reading"
        )
        if connection.execute(change.values(state="reading", version=access.row.version + 1)).rowcount != 1:
            raise Conflict("a file of this project is being read", code="busy", hint="wait for its job, or cancel it")


def abandon(service: Service, access: ProjectAccess, stored: Path) -> None:
    """Erase an incomplete upload and reset the project's state."""
    erase(stored)
    state = "ready" if access.row.data_version else "empty"
    with service.database.write() as connection:
        connection.execute(
            update(projects).where(projects.c.id == access.id, projects.c.state == "reading").values(state=state)
        )


async def write_upload(request: Request, service: Service, access: ProjectAccess, stored: Path) -> None:
    """Stream the body of a request to a file, up to the maximum size."""
    try:
        await _write_upload(request, service, access, stored)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OutputError(
            "the disk of the service is full", code="disk-full", hint="ask the administrator to make room"
        ) from None


async def _write_upload(request: Request, service: Service, access: ProjectAccess, stored: Path) -> None:
    announced = int(request.headers.get("content-length", "0") or 0)
    most, written, checked = service.settings.limits.upload_bytes, 0, 0
    if announced > most:
        raise TooLarge(f"a file may have {most:,} bytes here", most=most)
    await run_in_threadpool(service.store.check_room, access.id, announced)
    descriptor = os.open(stored, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        async for chunk in request.stream():
            written += len(chunk)
            if written > most:
                raise TooLarge(f"a file may have {most:,} bytes here", most=most)
            if written > checked + _CHECK_EVERY:  # the size may not have been announced
                await run_in_threadpool(service.store.check_room, access.id, 0)
                checked = written
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    if written == 0:
        raise Unprocessable("the file is empty", code="empty-file", hint="send the file as the body of the request")


def _find_allowed(path: Path, folders: tuple[Path, ...]) -> Path:
    real = find_in(path, folders)
    # The same response for missing and forbidden files, so that the server's disk cannot be probed.
    if real is None:
        raise NotFound("there is no such file in an allowed folder", hint="ask the administrator which folders are")
    if not os.access(real, os.R_OK):
        raise Forbidden("the service may not read this file", hint="ask the administrator")
    return real


_READING = frozenset({"identifier", "kinds", "missing", "delimiter", "encoding", "quote", "sheet"})


def _check_options(stated: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(stated) - _READING):
        hint = "options: " + ", ".join(sorted(_READING))
        raise Unprocessable(f"{len(unknown)} unknown options for reading", code="unknown-option", hint=hint)
    return stated
