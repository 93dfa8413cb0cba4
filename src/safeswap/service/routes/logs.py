"""Logs and health: the session log of a project, the audit log with its verification; liveness, readiness, metrics."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field
from sqlalchemy import Row, func, select

from safeswap.service.http.logs import METRICS
from safeswap.service.http.problems import NotFound
from safeswap.service.http.wire import Page, Paged, Wire, example
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.auditlog import Anchor
from safeswap.service.keeping.tables import audit_log, releases
from safeswap.service.people.roles import Admin, Everyone, Officer, ProjectAccess, Reader, Worker
from safeswap.service.state import Service, service_of

health_router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The service responds."""

    status: Literal["ok"] = "ok"


@health_router.get("/health/live")
def live(_: Everyone) -> Health:
    """Check that the process responds."""
    return Health()


@health_router.get("/health/ready")
def ready(_: Everyone, request: Request) -> Health:
    """Check that the database is reachable and has the schema of this version."""
    from safeswap.service.keeping.migrate import check

    check(service_of(request).database)
    return Health()


@health_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: Everyone, request: Request) -> Response:
    """Get metrics in the Prometheus text format, if the administrator allows it."""
    if not service_of(request).settings.shows_metrics:
        raise NotFound("there is nothing here")
    _update_gauges(service_of(request))
    return Response(METRICS.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _update_gauges(service: Service) -> None:
    """Update the gauges that are not counted as events happen."""
    by_state = select(releases.c.state, func.count()).group_by(releases.c.state)
    with service.database.read() as connection:
        found: dict[tuple[str, ...], float] = {(row[0],): float(row[1]) for row in connection.execute(by_state)}
    METRICS.set_all("safeswap_releases", found)
    METRICS.set_all("safeswap_jobs", {key: float(count) for key, count in service.queue.counts().items()})
    METRICS.set("safeswap_cached_bytes", service.data_cache.used)
    METRICS.set("safeswap_free_bytes", shutil.disk_usage(service.store.root).free)


session_log_router = APIRouter(tags=["session log"])
router = APIRouter(tags=["audit log"])

NOTE = "note"


class LogEntry(Wire):
    """An entry of the session log."""

    number: int
    at: datetime | None
    actor: str
    action: str
    subject: str
    note: str = ""


class Note(Wire):
    """A note added by a user."""

    model_config = example(text="Rates above 5 % distort tenure too much.")

    text: str = Field(
        min_length=1, max_length=2000, description="Must not contain values of records: the log is permanent."
    )


class EntryAnswer(Wire):
    """An entry of the audit log."""

    model_config = example(
        number=7,
        at="2026-01-01T09:00:00Z",
        actor="ada",
        action="release.request",
        project_id="5f0c",
        subject="77aa",
        detail={"masking": "5f0c1b"},
        previous="0" * 64,
        hash="1" * 64,
    )

    number: int
    at: datetime | None
    actor: str
    action: str
    project_id: str
    subject: str
    detail: dict[str, Any]
    previous: str
    hash: str


class VerdictAnswer(Wire):
    """Result of verifying the audit log, and its end, to be kept elsewhere as an anchor."""

    model_config = example(entries=7, ok=True, number=7, hash="1" * 64, first_broken=None, problem="")

    entries: int
    ok: bool
    number: int = Field(description="Number of the last intact entry.")
    hash: str
    first_broken: int | None = None
    problem: str = ""


@session_log_router.get("/projects/{project_id}/log")
def read_log(access: Reader, paging: Paged) -> Page[LogEntry]:
    """List the session log of a project, newest first."""
    statement = select(audit_log).where(audit_log.c.project_id == access.id)
    return paging.page(statement, order=(audit_log.c.number,), make=_entry)


@session_log_router.get("/projects/{project_id}/log.txt", response_class=PlainTextResponse)
def save_log(access: Reader) -> PlainTextResponse:
    """Download the whole session log as text, oldest first."""
    text = log_text(access)
    return PlainTextResponse(text, headers={"Content-Disposition": 'attachment; filename="session.log"'})


@session_log_router.post("/projects/{project_id}/log", status_code=201)
def add_note(access: Worker, body: Note) -> LogEntry:
    """Add a note to the session log. It cannot be changed or removed."""
    with access.service.database.write() as connection:
        number = access.record(connection, NOTE, detail={"text": body.text})
        return _entry(connection.execute(select(audit_log).where(audit_log.c.number == number)).one())


def log_text(access: ProjectAccess) -> str:
    """Return the session log of a project, one line per entry."""
    statement = select(audit_log).where(audit_log.c.project_id == access.id).order_by(audit_log.c.number)
    with access.service.database.read() as connection:
        return "".join(_format_line(_entry(row)) for row in connection.execute(statement))


def _entry(row: Row[Any]) -> LogEntry:
    note = json.loads(row.detail).get("text", "") if row.action == NOTE else ""
    return LogEntry.of(row, note=note)


def _format_line(entry: LogEntry) -> str:
    at = "" if entry.at is None else entry.at.isoformat(timespec="seconds")
    # A note may have line breaks: keep one line per entry.
    text = " ".join((entry.note or entry.subject).split())
    return f"{at}  {entry.actor}  {entry.action}  {text}\n"


@router.get("/audit-log")
def list_entries(_: Admin, paging: Paged) -> Page[EntryAnswer]:
    """List the audit log, newest first, without the text of users' notes about their data."""
    make = partial(_entry_answer, notes=False)
    return paging.page(select(audit_log), order=(audit_log.c.number,), make=make)


@router.get("/audit-log/verification")
def verify_log(
    request: Request,
    _: Admin,
    number: Annotated[int, Query(ge=0, le=2**31 - 1, description="Entry number of an anchor kept elsewhere.")] = 0,
    anchor_hash: Annotated[str, Query(alias="hash", pattern="^([0-9a-f]{64})?$")] = "",
) -> VerdictAnswer:
    """Verify the audit log, and that it reaches an anchor kept elsewhere."""
    service = service_of(request)
    anchors = auditlog.read_anchors(service.store.root / auditlog.ANCHORS)
    if number and anchor_hash:
        anchors.append(Anchor(number=number, hash=anchor_hash))
    found = auditlog.check(service.database, anchors=anchors)
    shown = {name: getattr(found, name) for name in ("entries", "ok", "first_broken", "problem")}
    return VerdictAnswer(**shown, number=found.end.number, hash=found.end.hash)


@router.get("/projects/{project_id}/audit-log")
def list_project_entries(access: Officer, paging: Paged) -> Page[EntryAnswer]:
    """List the audit log of a project, newest first."""
    statement = select(audit_log).where(audit_log.c.project_id == access.id)
    return paging.page(statement, order=(audit_log.c.number,), make=_entry_answer)


def _entry_answer(row: Row[Any], *, notes: bool = True) -> EntryAnswer:
    return EntryAnswer.of(row, detail=json.loads(row.detail) if notes or row.action != NOTE else {})
