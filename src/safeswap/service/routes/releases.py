"""Releases: requested by one person, approved by another, then downloaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from sqlalchemy import Row, select

from safeswap.service.http.archive import stream_zip
from safeswap.service.http.etags import set_etag
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.paging import Page, Paged, page_of
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.keeping import auditlog, ledger, tables
from safeswap.service.people.roles import ProjectAccess, Role, project
from safeswap.service.schemas.projects import moment
from safeswap.service.schemas.studies import (
    Approval,
    BundleFile,
    Check,
    DifferencingAnswer,
    Rejection,
    ReleaseAnswer,
    ReleaseRequest,
)
from safeswap.service.state import Service, service_of
from safeswap.service.work import releases

router = APIRouter(prefix="/projects/{project_id}/releases", tags=["releases"])

Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
Officer = Annotated[ProjectAccess, Depends(project("decide"))]
ReleaseId = Annotated[str, Path(max_length=64)]
Document = Literal["report.html", "manifest.json", "dictionary.json", "dictionary.csv"]

_TYPES = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


@router.post("", status_code=202)
def request_release(request: Request, response: Response, access: Worker, body: ReleaseRequest) -> ReleaseAnswer:
    """Request the release of a masking. A job prepares and checks the bundle, which then awaits approval."""
    service = service_of(request)
    with service.database.read() as connection:
        masking = releases.masking_of(connection, access, body.masking)
    release_id = releases.request(service, access, masking=masking, terms=body.terms.model_dump(mode="json"))
    response.headers["Location"] = f"{request.url.path}/{release_id}"
    return _answer(service, access, release_id)


@router.get("")
def list_releases(request: Request, access: Reader, paging: Paged) -> Page[ReleaseAnswer]:
    """List the releases of a project, newest first."""
    service = service_of(request)
    statement = _select_releases().where(tables.releases.c.project_id == access.id)
    with service.database.read() as connection:
        mine = ledger.memberships(connection, access.user.id)
        return page_of(
            connection,
            statement,
            order=(tables.releases.c.requested_at, tables.releases.c.id),
            paging=paging,
            make=lambda row: _release_answer(service, access, row, mine),
        )


@router.get("/{release_id}")
def get_release(request: Request, response: Response, access: Reader, release_id: ReleaseId) -> ReleaseAnswer:
    """Get one release: its contents, verified properties, and overlap with earlier releases."""
    with service_of(request).database.read() as connection:
        row = releases.find(connection, access, release_id)
    set_etag(response, f"{row.version}-{access.user.id}")
    return _answer(service_of(request), access, release_id)


@router.get("/{release_id}/documents/{name}", response_class=FileResponse)
def get_document(request: Request, access: Reader, release_id: ReleaseId, name: Document) -> FileResponse:
    """Get a document of the bundle (report, dictionary or manifest), to review before deciding."""
    service = service_of(request)
    with service.database.read() as connection:
        row = releases.find(connection, access, release_id)
    path = releases.bundle_folder(service, row) / name
    if not path.is_file():
        raise NotFound("there is no such document")
    kind = _TYPES[name.rpartition(".")[2]]
    return FileResponse(path, media_type=kind, headers={"Content-Security-Policy": REPORT_POLICY})


@router.post("/{release_id}/approval")
def approve_release(request: Request, access: Officer, release_id: ReleaseId, body: Approval) -> ReleaseAnswer:
    """Approve exactly this bundle. The requester cannot approve it."""
    service = service_of(request)
    releases.approve(
        service, access, release_id, manifest_hash=body.manifest_hash, override_reason=body.override_reason
    )
    return _answer(service, access, release_id)


@router.post("/{release_id}/rejection")
def reject_release(request: Request, access: Officer, release_id: ReleaseId, body: Rejection) -> ReleaseAnswer:
    """Reject a release."""
    service = service_of(request)
    releases.reject(service, access, release_id, reason=body.reason)
    return _answer(service, access, release_id)


@router.get(
    "/{release_id}/bundle.zip",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {}}, "description": "The bundle"}},
)
def download_bundle(request: Request, access: Reader, release_id: ReleaseId) -> StreamingResponse:
    """Download the approved bundle, for the requester and for officers."""
    service = service_of(request)
    with service.database.read() as connection:
        row = releases.find(connection, access, release_id)
    if row.state != "approved":
        raise Conflict("the release has not been approved", code="not-approved", state=row.state)
    if not releases.may_download(access.user, row):
        raise Forbidden("the bundle is for who asked for it and for officers", code="role")
    folder = releases.bundle_folder(service, row)
    sums = releases.check_bundle(folder, row.manifest_hash)
    with service.database.write() as connection:
        auditlog.record(connection, access.user.name, "release.download", access.id, release_id)
    name = f"release-{row.manifest_hash[:16]}"
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(stream_zip(folder, sums, root=name), media_type="application/zip", headers=headers)


def _select_releases() -> Any:
    asked, decided = tables.users.alias("asked"), tables.users.alias("decided")
    return (
        select(tables.releases, asked.c.name.label("asked_by"), decided.c.name.label("decided_by_name"))
        .join(asked, asked.c.id == tables.releases.c.requested_by)
        .outerjoin(decided, decided.c.id == tables.releases.c.decided_by)
    )


def _answer(service: Service, access: ProjectAccess, release_id: str) -> ReleaseAnswer:
    with service.database.read() as connection:
        row = connection.execute(_select_releases().where(tables.releases.c.id == release_id)).one()
        mine = ledger.memberships(connection, access.user.id)
    return _release_answer(service, access, row, mine)


def _release_answer(service: Service, access: ProjectAccess, row: Row[Any], mine: frozenset[str]) -> ReleaseAnswer:
    checks, decides = row.checks or {}, access.user.role == Role.OFFICER
    return ReleaseAnswer(
        id=row.id,
        project_id=row.project_id,
        masking=row.masking_id,
        job_id=row.job_id,
        state=row.state,
        terms=row.terms,
        manifest_hash=row.manifest_hash,
        records=checks.get("records", 0),
        files=[BundleFile(**each) for each in checks.get("files", ())],
        checks=[Check(**each) for each in checks.get("verified", ())],
        remarks=checks.get("remarks", []),
        ledger=ledger.sentence(access.user, mine, row),
        needs_reason=decides and bool(ledger.alarms(row)),
        differencing=[_differencing_answer(each) for each in ledger.visible_findings(access.user, mine, row)],
        requested_by=row.asked_by,
        requested_at=moment(row.requested_at),
        decided_by=row.decided_by_name or "",
        decided_at=moment(row.decided_at),
        # The reason of an approval would reveal that there was an alarm.
        reason=row.reason if decides or row.state != "approved" else "",
        may_approve=releases.may_approve(service, access.user, row),
        may_download=releases.may_download(access.user, row),
    )


def _differencing_answer(each: dict[str, Any]) -> DifferencingAnswer:
    return DifferencingAnswer(
        release_id=each["release_id"], alarm=each["alarm"], sentence=each["sentence"], differ=each["differ"]
    )
