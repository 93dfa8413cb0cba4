"""The session log of a project: what was done when and by whom, to be read, added to and saved."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from pydantic import ConfigDict, Field
from sqlalchemy import Row, select

from safeswap.service import auditlog
from safeswap.service.paging import Page, Paged, page_of
from safeswap.service.roles import ProjectAccess, project
from safeswap.service.schemas.common import Wire, example, moment
from safeswap.service.state import Service, service_of
from safeswap.service.tables import audit_log

router = APIRouter(tags=["session log"])

NOTE = "note"


class LogEntry(Wire):
    """One line of the log."""

    number: int
    at: datetime | None
    actor: str
    action: str
    subject: str
    note: str = ""


class Note(Wire):
    """A line that a person adds."""

    model_config = ConfigDict(json_schema_extra=example(text="Rates above 5 % distort tenure too much."))

    text: str = Field(min_length=1, max_length=2000, description="No values of records: the log is kept.")


@router.get("/projects/{project_id}/log")
def read_log(
    request: Request, access: Annotated[ProjectAccess, Depends(project("read"))], paging: Paged
) -> Page[LogEntry]:
    """What was done with a project, newest first."""
    statement = select(audit_log).where(audit_log.c.project_id == access.id)
    with service_of(request).database.read() as connection:
        return page_of(connection, statement, order=(audit_log.c.number,), paging=paging, make=_entry)


@router.get("/projects/{project_id}/log.txt", response_class=PlainTextResponse)
def save_log(request: Request, access: Annotated[ProjectAccess, Depends(project("read"))]) -> PlainTextResponse:
    """The whole log as text, oldest first, to be saved."""
    text = log_text(service_of(request), access.id)
    return PlainTextResponse(text, headers={"Content-Disposition": 'attachment; filename="session.log"'})


@router.post("/projects/{project_id}/log", status_code=201)
def add_note(request: Request, access: Annotated[ProjectAccess, Depends(project("work"))], body: Note) -> LogEntry:
    """Add a line to the log. It cannot be changed or removed."""
    with service_of(request).database.write() as connection:
        number = auditlog.record(
            connection, actor=access.user.name, action=NOTE, project_id=access.id, detail={"text": body.text}
        )
        return _entry(connection.execute(select(audit_log).where(audit_log.c.number == number)).one())


def log_text(service: Service, project_id: str) -> str:
    """The whole log of a project, a line for each entry."""
    statement = select(audit_log).where(audit_log.c.project_id == project_id).order_by(audit_log.c.number)
    with service.database.read() as connection:
        return "".join(_line(_entry(row)) for row in connection.execute(statement))


def _entry(row: Row[Any]) -> LogEntry:
    note = json.loads(row.detail).get("text", "") if row.action == NOTE else ""
    return LogEntry(
        number=row.number, at=moment(row.at), actor=row.actor, action=row.action, subject=row.subject, note=note
    )


def _line(entry: LogEntry) -> str:
    at = "" if entry.at is None else entry.at.isoformat(timespec="seconds")
    # A note is a text of its own: one line of the log stays one line.
    told = " ".join((entry.note or entry.subject).split())
    return f"{at}  {entry.actor}  {entry.action}  {told}\n"
