"""The data of a project: uploaded as a stream or taken from a server folder, then read and described by a job."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, Field
from sqlalchemy import select, update

from safeswap import datasets, workflow
from safeswap.errors import InputError, InternalError, OutputError
from safeswap.model.schema import Attribute, Schema, household_attributes
from safeswap.model.text import plural
from safeswap.on_disk.masking import digest_of_both
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, TooLarge, Unprocessable
from safeswap.service.http.wire import AttributeName, Wire, example, plain_text, require_match, set_etag
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.ledger import read_names, write_names
from safeswap.service.keeping.store import attempt_name, erase, find_in, open_in, sync_folder
from safeswap.service.keeping.tables import projects
from safeswap.service.people.roles import ProjectAccess, Reader, Worker
from safeswap.service.routes.jobs import Job, submit
from safeswap.service.work.rare import Noise, perturb_cells, restore_rare_levels
from safeswap.service.work.tasks import DATA, SCHEMA, Context, Task, read_schema
from safeswap.workflow.households import merge_households

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.model.microdata import Microdata
    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim, JobRow

router = APIRouter(tags=["data"])

UPLOAD = {
    "x-streamed": True,
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}},
}
"""Marks a route that streams the body of a request to a file."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CHECK_EVERY = 64 * 2**20  # bytes between checks of the free space
_CHUNK = 2**20
TWO_NAMES = " + "
"""What joins the names of a household file and a person file."""
READING = frozenset({"identifier", "kinds", "missing", "delimiter", "encoding", "quote", "decimal"})
_AWKWARD = re.compile(r"[^\w.\- ()+,=@~]| \+ ")
LAYOUT = ("delimiter", "encoding", "quote", "decimal")
_ORIGIN = "origin.json"

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
Kind = Literal["nominal", "ordinal", "numeric", "identifier", "weight", "household", "geography", "date"]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The files that the data were read from: what was stated about their layout, and the columns of households.

    ``household_columns`` are those of the file of households, None if there was none.
    """

    layout: Mapping[str, str] = field(default_factory=dict)
    household_columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, stated: Mapping[str, Any], columns: Sequence[str] | None = None) -> Origin:
        """Return the origin of data that were read with these options."""
        layout = {name: str(stated[name]) for name in LAYOUT if stated.get(name) is not None}
        return cls(layout=layout, household_columns=None if columns is None else tuple(columns))


class FolderRequest(Wire):
    """A file in a server folder that the administrator allows."""

    model_config = example(path="surveys/2026.csv", reading={"identifier": "id"})

    path: str = Field(min_length=1, max_length=4000, description="Path below one of the allowed folders.")
    households: str | None = Field(
        default=None, min_length=1, max_length=4000, description="Its file of households, if the file has persons."
    )
    on: str | None = Field(default=None, max_length=200, description="Number of the household, a column of both files.")
    reading: dict[str, Any] = Field(default_factory=dict, description="identifier, kinds, missing, delimiter, …")


class SampleRequest(Wire):
    """One of the shipped data sets, to try things out: fictitious or public persons."""

    model_config = example(sample="household_survey")

    sample: Literal["household_survey", "cps8d"]


_LEVELS = (
    "Levels in order, for an ordinal attribute. Rare levels, which are not shown, may be omitted: each stays after its "
    "old predecessor, or comes last."
)


class AttributeChange(Wire):
    """Changes to an attribute."""

    name: AttributeName
    kind: Kind | None = None
    household: bool | None = Field(default=None, description="Whether all members of a household have the same value.")
    label: str | None = Field(default=None, max_length=1000)
    levels: tuple[str, ...] | None = Field(default=None, description=_LEVELS)
    labels: dict[str, str] | None = Field(default=None, description="Label of each level.")
    design: Literal["", "stratum", "psu", "replicate"] | None = Field(
        default=None, description="Part in the design of the sample: stratum, primary sampling unit, replicate weight."
    )


class DescriptionChange(Wire):
    """Changes to the description; attributes not named stay as they are."""

    model_config = example(attributes=[{"name": "age", "kind": "ordinal"}])

    attributes: tuple[AttributeChange, ...] = Field(min_length=1, max_length=10_000)


class DescriptionAnswer(Wire):
    """Description of the data: attributes, levels, small cells, warnings. No records, and no rare levels."""

    name: str
    records: int
    tolerance: int
    attributes: tuple[dict[str, Any], ...]
    cells: dict[str, Any]
    warnings: tuple[str, ...]


def household_file(
    household_name: Annotated[
        str | None,
        Query(min_length=1, max_length=255, pattern=r"^[^/\\\x00]+$", description="Name of the household file."),
        AfterValidator(lambda text: text if text is None else plain_text(text)),
    ] = None,
    household_bytes: Annotated[
        int | None, Query(ge=1, description="Size of the household file, with which the body then begins.")
    ] = None,
    on: Annotated[str | None, Query(max_length=200, description="Household number, a column of both files.")] = None,
) -> dict[str, Any]:
    """Return what a job needs to know of a household file that is uploaded before the person file."""
    if (household_name is None) != (household_bytes is None) or (household_name is None and on is not None):
        raise Unprocessable(
            "household_name and household_bytes belong together, and on belongs to them",
            code="bad-request",
            hint="state the name and the size of the household file, or neither",
        )
    if household_name is None:
        return {}
    return {"households": {"name": household_name, "bytes": household_bytes, "on": on}}


def stated_reading(
    identifier: Annotated[str | None, Query(max_length=200, description="Attribute that identifies records.")] = None,
    delimiter: Annotated[str | None, Query(max_length=1)] = None,
    encoding: Annotated[str | None, Query(max_length=40)] = None,
    decimal: Annotated[str | None, Query(max_length=1, description="Decimal mark, if it is a comma.")] = None,
) -> dict[str, str]:
    """Return what is stated about how an uploaded file is read."""
    stated = {"identifier": identifier, "delimiter": delimiter, "encoding": encoding, "decimal": decimal}
    return {option: value for option, value in stated.items() if value is not None}


@router.put("/projects/{project_id}/data", status_code=202, openapi_extra=UPLOAD)
async def send_data(
    *,
    request: Request,
    response: Response,
    access: Worker,
    name: FileName,
    households: Annotated[dict[str, Any], Depends(household_file)],
    reading: Annotated[dict[str, str], Depends(stated_reading)],
) -> Job:
    """Upload a file. It is streamed to disk; a worker with limits on memory and time reads it.

    A file of households and a file of persons are uploaded in one body, households first: they are joined to one person
    file, in which what the household file has is marked as the household's.
    """
    await run_in_threadpool(_begin_reading, access)
    upload = await receive_upload(request, access)
    payload = {"upload": upload, "name": name, "reading": reading, **households}
    return await run_in_threadpool(submit, request, response, access, "ingest", payload, data=False)


@router.post("/projects/{project_id}/data-from-folder", status_code=202)
def take_data(request: Request, response: Response, access: Worker, body: FolderRequest) -> Job:
    """Read a file from a server folder that the administrator allows."""
    folders = access.service.settings.folders
    path = _find_allowed(Path(body.path), folders)
    payload = {"path": str(path), "name": path.name, "reading": _check_options(body.reading)}
    if body.households is not None:
        homes = _find_allowed(Path(body.households), folders)
        payload["households"] = {"path": str(homes), "name": homes.name, "on": body.on}
    elif body.on is not None:
        raise Unprocessable("on belongs to households", code="bad-request", hint="name the file of households too")
    _begin_reading(access)
    return submit(request, response, access, "ingest", payload, data=False)


@router.post("/projects/{project_id}/data-from-sample", status_code=202)
def take_sample(request: Request, response: Response, access: Worker, body: SampleRequest) -> Job:
    """Take a shipped data set, with its description."""
    _begin_reading(access)
    payload = {"sample": body.sample, "name": f"{body.sample} (sample)"}
    return submit(request, response, access, "ingest", payload, data=False)


@router.get("/projects/{project_id}/description")
def get_description(response: Response, access: Reader) -> DescriptionAnswer:
    """Get the description of the data: no records, and no rare levels."""
    access.require_data()
    set_etag(response, access.row.version)
    return DescriptionAnswer.model_validate(access.row.description)


@router.patch("/projects/{project_id}/description", status_code=202)
def change_description(request: Request, response: Response, access: Worker, body: DescriptionChange) -> Job:
    """Change kinds, labels or the order of levels; a worker describes the data again."""
    access.require_data()
    require_match(request, access.row.version)
    schema = read_schema(access.service.store, access.id, access.row.data_version)
    changed = change_schema(schema, body.attributes)
    columns = read_origin(access.service.store, access.id, access.row.data_version).household_columns or ()
    _require_shared(columns, body.attributes)
    _begin_reading(access)
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


def _require_shared(columns: Sequence[str], changes: tuple[AttributeChange, ...]) -> None:
    """Refuse to say that members of a household differ in a column of the file of households."""
    for change in changes:
        if change.household is False and change.name in columns:
            raise Unprocessable(
                f"{change.name!r} is a column of the file of households: all members have the same value",
                code="household-column",
                hint="upload the files again, with this column in that of the persons",
                attribute=change.name,
            )


def _change_attribute(attribute: Attribute, stated: dict[str, Any]) -> Attribute:
    # Rare levels are not shown: labelling the others must not remove their labels.
    labels = {level: label for level, label in {**attribute.labels, **stated.get("labels", {})}.items() if label}
    return Attribute.model_validate({**attribute.model_dump(), "inferred": False, **stated, "labels": labels})


def _begin_reading(access: ProjectAccess) -> None:
    """Mark the project as reading; refuse a second file at the same time."""
    with access.service.database.write() as connection:
        change = update(projects).where(
            projects.c.id == access.id, projects.c.version == access.row.version, projects.c.state != "reading"
        )
        if connection.execute(change.values(state="reading", version=access.row.version + 1)).rowcount != 1:
            raise Conflict("a file of this project is being read", code="busy", hint="wait for its job, or cancel it")


def _discard_upload(access: ProjectAccess, stored: Path) -> None:
    """Erase an incomplete upload and reset the project's state."""
    erase(stored)
    state = "ready" if access.row.data_version else "empty"
    with access.service.database.write() as connection:
        connection.execute(
            update(projects).where(projects.c.id == access.id, projects.c.state == "reading").values(state=state)
        )


def _require_kept(access: ProjectAccess) -> None:
    """Refuse the file of a project that was deleted meanwhile, and erase the folder that was made for it again."""
    with access.service.database.read() as connection:
        state = connection.scalar(select(projects.c.state).where(projects.c.id == access.id))
    if state == "deleted":
        access.service.store.delete(access.id)
        raise NotFound("there is no such project", hint="see GET /projects")


async def receive_upload(
    request: Request, access: ProjectAccess, discard: Callable[[ProjectAccess, Path], object] = _discard_upload
) -> str:
    """Stream the body of a request to a file, up to the maximum size, and return the name of the upload.

    Nothing is kept of a file whose project is deleted meanwhile.
    """
    stored = access.service.store.uploads(access.id) / new_id()
    try:
        await _write_upload(request, access, stored)
        await run_in_threadpool(_require_kept, access)
    except BaseException as error:
        await run_in_threadpool(discard, access, stored)
        if isinstance(error, FileNotFoundError):  # the folder went with its project
            await run_in_threadpool(_require_kept, access)
        if not isinstance(error, OSError) or error.errno not in _FULL:
            raise
        raise OutputError(
            "the disk of the service is full", code="disk-full", hint="ask the administrator to free disk space"
        ) from None
    return stored.name


async def _write_upload(request: Request, access: ProjectAccess, stored: Path) -> None:
    announced = int(request.headers.get("content-length", "0") or 0)
    most, written, checked = access.service.settings.limits.upload_bytes, 0, 0
    if announced > most:
        raise TooLarge(f"a file may have {most:,} bytes here", most=most)
    await run_in_threadpool(access.service.store.check_room, access.id, announced)
    descriptor = os.open(stored, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        async for chunk in request.stream():
            written += len(chunk)
            if written > most:
                raise TooLarge(f"a file may have {most:,} bytes here", most=most)
            if written > checked + _CHECK_EVERY:  # the size may not have been announced
                await run_in_threadpool(access.service.store.check_room, access.id, 0)
                checked = written
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    if written == 0:
        raise Unprocessable("the file is empty", code="empty-file", hint="send a file with a header and records")


def _find_allowed(path: Path, folders: tuple[Path, ...]) -> Path:
    real = find_in(path, folders)
    # The same response for missing and forbidden files, so that the server's disk cannot be probed.
    if real is None:
        raise NotFound("there is no such file in an allowed folder", hint="ask the administrator which folders are")
    if not os.access(real, os.R_OK):
        raise Forbidden("the service may not read this file", hint="ask the administrator")
    return real


def _check_options(stated: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(stated) - READING):
        hint = "options: " + ", ".join(sorted(READING))
        raise Unprocessable(f"{len(unknown)} unknown options for reading", code="unknown-option", hint=hint)
    return stated


def run_ingest(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Read the file (``upload``, ``path``, ``sample`` or ``from_version``), store the data, describe them."""
    context.progress(0.05, "reading the file")
    data, origin = _read_data(context, payload)
    file_name = safe_name(str(payload.get("name", "")))
    if homes := payload.get("households"):
        file_name = TWO_NAMES.join([safe_name(homes["name"]), file_name])
    if "from_version" in payload:
        version = int(payload["from_version"])
        origin = read_origin(context.store, context.project_id, version)
        known = read_names(context.store.data(context.project_id, version))
        return store_data(context, data, file_name=file_name, names=known, origin=origin)
    digest = "" if "sample" in payload else digest_of_both(link_of(context, payload), household_link(context, payload))
    return store_data(context, data, file_name=file_name, digest=digest, origin=origin)


def read_origin(store: Store, project_id: str, version: int) -> Origin:
    """Return the origin of the data; an empty one if there are none, or it is not known."""
    path = store.data(project_id, version) / _ORIGIN
    if not version or not path.is_file():
        return Origin()
    known = json.loads(path.read_bytes())
    return Origin.of(known["layout"], known["household_columns"])


def store_data(
    context: Context,
    data: Microdata,
    *,
    file_name: str,
    digest: str = "",
    names: Sequence[str] = (),
    origin: Origin | None = None,
) -> dict[str, Any]:
    """Store data in the canonical form, and return what the project needs to know about them.

    They are named for the register of maskings, also by the ``digest`` of the file; ``names`` are known already.
    """
    from safeswap.files.write import write_microdata
    from safeswap.releases.register import enter_table, find_past, list_names

    context.progress(0.6, "keeping the data")
    folder = context.store.data(context.project_id, 0) / attempt_name(context.job.id, context.job.fence)
    erase(folder)
    folder.mkdir(mode=0o700)
    write_microdata(data, folder / DATA)
    (folder / SCHEMA).write_text(data.schema.model_dump_json(exclude_defaults=True), encoding="utf-8")
    (folder / _ORIGIN).write_text(json.dumps(asdict(origin or Origin())), encoding="utf-8")
    write_names(folder, list_names(data, context.register, digest=digest), carried=names)
    # What was done on the command line is entered here too, for the jobs that look it up.
    known = find_past(data, context.agency_register, digest=digest)
    enter_table(replace(data, past=known), context.register)
    sync_folder(folder)
    context.progress(0.8, "describing the data")
    tolerance = int(context.project["tolerance"])
    description = workflow.describe(data, tolerance=tolerance)
    cells = perturb_cells(description.cells, Noise(key=context.key(), tolerance=tolerance))
    return {
        "part": folder.name,
        "file_name": TWO_NAMES.join(map(safe_name, file_name.split(TWO_NAMES, 1))),
        "records": len(data),
        "description": {**description.as_dict(), "cells": cells},
    }


def name_files(file_name: str, schema: Schema | None) -> tuple[str, str | None]:
    """Return the name of the data file, and of the file of households if the data were joined from two files.

    >>> name_files("survey.csv", None)
    ('survey.csv', None)
    """
    homes, _, people = file_name.partition(TWO_NAMES)
    joined = bool(people) and schema is not None and bool(household_attributes(schema))
    return (people, homes) if joined else (file_name, None)


def safe_name(name: str) -> str:
    """Return the last part of a file name, without special characters.

    >>> safe_name("../../etc/<b>survey 2024.csv"), safe_name("C:\\\\data\\\\a.dta"), safe_name("..")
    ('_b_survey 2024.csv', 'a.dta', 'data')
    """
    last = re.split(r"[/\\\\]", name)[-1]
    return _AWKWARD.sub("_", last).lstrip(". ")[-120:] or "data"


def _read_data(context: Context, payload: Mapping[str, Any]) -> tuple[Microdata, Origin]:
    """Return the data, and how they were read."""
    if "from_version" in payload:
        plain = context.data(int(payload["from_version"]))
        changed = Schema.model_validate(payload["schema"])
        schema = restore_rare_levels(changed, plain, int(context.project["tolerance"]))
        return workflow.read(plain.table, schema=schema), Origin()
    if "sample" in payload:
        # One of the names that a request may state.
        return cast("Microdata", getattr(datasets, payload["sample"])()), Origin()
    link, homes = link_of(context, payload), payload.get("households")
    given = dict(payload.get("reading") or {})
    stated = {name: given[name] for name in READING | {"schema"} if name in given}
    if isinstance(stated.get("schema"), Mapping):
        stated["schema"] = Schema.model_validate(stated["schema"])
    if homes is None:
        link.symlink_to(find_source(context, payload))
        return workflow.read(link, **stated), Origin.of(stated)
    first = household_link(context, payload)
    assert first is not None  # noqa: S101  (there is a household file)
    first.parent.mkdir(mode=0o700)
    if "path" in homes:
        link.symlink_to(find_source(context, payload))
        first.symlink_to(find_source(context, homes))
    else:
        _divide_upload(find_source(context, payload), int(homes["bytes"]), first, link)
    households = workflow.read(first, **dict[str, Any](Origin.of(stated).layout))
    merged = merge_households(households, workflow.read(link, **stated), on=homes.get("on"))
    return merged, Origin.of(stated, households.attributes)


def _divide_upload(source: Path, size: int, first: Path, second: Path) -> None:
    """Write the first bytes of an upload to one file, and the others to a second one."""
    if size >= source.stat().st_size:
        raise InputError(
            "the upload ends with the household file: there is no person file",
            code="empty-file",
            hint="send the household file and then the person file in one body, and state the size of the first",
        )
    with source.open("rb") as whole:
        for path, end in ((first, size), (second, source.stat().st_size)):
            with path.open("xb") as part:
                while chunk := whole.read(min(end - whole.tell(), _CHUNK)):
                    part.write(chunk)


def link_of(context: Context, payload: Mapping[str, Any]) -> Path:
    """Return the path under which the file is read: its original name, so that errors mention that."""
    return context.scratch / safe_name(str(payload.get("name") or "data"))


def household_link(context: Context, payload: Mapping[str, Any]) -> Path | None:
    """Return the path under which the household file is read; None if there is none."""
    homes = payload.get("households")
    return None if homes is None else context.scratch / "households" / safe_name(str(homes["name"]))


def find_source(context: Context, payload: Mapping[str, Any]) -> Path:
    """Return the file that a job is to read; refuse one that has gone, or is too large."""
    if "upload" in payload:
        source = context.store.upload(context.project_id, str(payload["upload"]))
    else:
        source = _open_from_folder(Path(str(payload["path"])), context.settings.folders)
    if not source.is_file():
        raise InputError("the file to be read no longer exists", code="missing-file", hint="send it again")
    size, limit = source.stat().st_size, context.settings.limits.upload_bytes
    if size > limit:
        raise InputError(
            f"the file has {plural(size, 'byte')}; at most {limit:,} are allowed",
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
            "files must not be read from there",
            code="folder-not-allowed",
            hint="put the file into a folder that the administrator has named",
        )
    opened = Path(f"/proc/self/fd/{descriptor}")
    if opened.exists():
        return opened  # stays open for the life of this process, which runs only this job
    os.close(descriptor)
    return path


def finish_ingest(connection: Connection, job: JobRow, outcome: dict[str, Any], store: Store) -> dict[str, Any]:
    """Move the data to their final version, and update the project."""
    mine = projects.c.id == job["project_id"]
    there = select(projects.c.data_version).where(mine, projects.c.state != "deleted")
    version = connection.scalar(there.with_for_update())
    if version is None:
        raise InternalError("the project no longer exists", code="no-project")
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


def fail_ingest(connection: Connection, job: JobRow, error: dict[str, Any], store: Store) -> None:
    """Reset the project's state: ready if it had data, else broken, or empty if reading was cancelled."""
    before = "broken" if error else "empty"
    for state, has_data in (("ready", projects.c.data_version > 0), (before, projects.c.data_version == 0)):
        reading = (projects.c.id == job["project_id"], projects.c.state == "reading", has_data)
        connection.execute(update(projects).where(*reading).values(state=state, version=projects.c.version + 1))


def clean_upload(job: Claim, store: Store) -> None:
    """Erase the upload: its data are stored, or it could not be read."""
    if job.project_id is not None and "upload" in job.payload:
        erase(store.upload(job.project_id, str(job.payload["upload"])))


TASKS = (Task("ingest", run_ingest, finish=finish_ingest, failed=fail_ingest, clean=clean_upload, limits="parse"),)
