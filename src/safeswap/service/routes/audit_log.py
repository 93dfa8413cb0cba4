"""The audit log: read, and compared with its own hashes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row, select

from safeswap.service import auditlog, log_check
from safeswap.service.auditlog import Anchor
from safeswap.service.callers import Caller
from safeswap.service.paging import Page, Paged, page_of
from safeswap.service.roles import ProjectAccess, allow, project
from safeswap.service.routes.session_log import NOTE
from safeswap.service.schemas.common import moment
from safeswap.service.schemas.people import EntryAnswer, VerdictAnswer
from safeswap.service.state import service_of
from safeswap.service.tables import audit_log

router = APIRouter(tags=["audit log"])

Admin = Annotated[Caller, Depends(allow("administer"))]
Officer = Annotated[ProjectAccess, Depends(project("decide"))]


@router.get("/audit-log")
def list_entries(request: Request, _: Admin, paging: Paged) -> Page[EntryAnswer]:
    """Everything that was done, newest first. What people noted about their data is left out: it is theirs."""
    with service_of(request).database.read() as connection:
        return page_of(connection, select(audit_log), order=(audit_log.c.number,), paging=paging, make=_without_notes)


@router.get("/audit-log/verification")
def verify_log(
    request: Request,
    _: Admin,
    number: Annotated[int, Query(ge=0, le=2**31 - 1, description="Of an anchor that was kept elsewhere.")] = 0,
    anchor_hash: Annotated[str, Query(alias="hash", pattern="^([0-9a-f]{64})?$")] = "",
) -> VerdictAnswer:
    """Whether the log is what was written, and reaches as far as an anchor that was kept elsewhere says."""
    service = service_of(request)
    anchors = auditlog.kept_anchors(service.store.root / auditlog.ANCHORS)
    if number and anchor_hash:
        anchors.append(Anchor(number=number, hash=anchor_hash))
    found = log_check.check(service.database, anchors=anchors)
    return VerdictAnswer(
        entries=found.entries,
        ok=found.ok,
        number=found.end.number,
        hash=found.end.hash,
        first_broken=found.first_broken,
        problem=found.problem,
    )


@router.get("/projects/{project_id}/audit-log")
def list_project_entries(request: Request, access: Officer, paging: Paged) -> Page[EntryAnswer]:
    """What was done in a project, newest first."""
    statement = select(audit_log).where(audit_log.c.project_id == access.id)
    with service_of(request).database.read() as connection:
        return page_of(connection, statement, order=(audit_log.c.number,), paging=paging, make=_shown)


def _without_notes(row: Row[Any]) -> EntryAnswer:
    entry = _shown(row)
    return entry.model_copy(update={"detail": {}}) if entry.action == NOTE else entry


def _shown(row: Row[Any]) -> EntryAnswer:
    return EntryAnswer(
        number=row.number,
        at=moment(row.at),
        actor=row.actor,
        action=row.action,
        project_id=row.project_id,
        subject=row.subject,
        detail=json.loads(row.detail),
        previous=row.previous,
        hash=row.hash,
    )
