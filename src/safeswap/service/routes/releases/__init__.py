"""Releases: requested by one person, approved by another, then downloaded."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import ConfigDict, Field
from sqlalchemy import Connection, Row, insert, select

from safeswap.service.http.archive import stream_zip
from safeswap.service.http.etags import set_etag
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.paging import Page, Paged, page_of
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.http.wire import Identifier, Wire, example, to_datetime
from safeswap.service.keeping import auditlog, ledger, tables
from safeswap.service.keeping.database import new_id, now
from safeswap.service.people.roles import Officer, ProjectAccess, Reader, Role, Worker
from safeswap.service.routes.jobs import submit
from safeswap.service.routes.maskings import find_masking, masking_request
from safeswap.service.routes.releases import four_eyes
from safeswap.service.state import Service, service_of

router = APIRouter(prefix="/projects/{project_id}/releases", tags=["releases"])

ReleaseId = Annotated[str, Path(max_length=64)]
Document = Literal["report.html", "manifest.json", "dictionary.json", "dictionary.csv"]
State = Literal["preparing", "requested", "approved", "rejected", "failed"]

_TYPES = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class ReleaseTerms(Wire):
    """Format and content of a release."""

    data_format: Literal["csv", "parquet", "dta", "sav"] = "csv"
    identifiers: Literal["new", "none"] = Field(default="new", description="New record numbers, or none.")
    drop: tuple[str, ...] = Field(default=(), max_length=1000, description="Columns to leave out.")
    title: str = Field(default="", max_length=200)
    date: str = Field(default="", max_length=40)
    publish_rate: bool = Field(default=False, description="Publish the share of records that were masked.")
    unmasked: bool = Field(default=False, description="Release values although nothing was masked.")


class ReleaseRequest(Wire):
    """Request the release of a masking."""

    model_config = ConfigDict(json_schema_extra=example(masking="5f0c1b", terms={"title": "Survey 2026"}))

    masking: Identifier
    terms: ReleaseTerms = ReleaseTerms()


class Approval(Wire):
    """Approval of exactly this bundle."""

    model_config = ConfigDict(json_schema_extra=example(manifest_hash=_HASH))

    manifest_hash: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the reviewed manifest.")
    override_reason: str = Field(
        default="",
        max_length=2000,
        description="Reason to release these records although they have been released before.",
    )


class Rejection(Wire):
    """Rejection of a release."""

    model_config = ConfigDict(json_schema_extra=example(reason="The occupation codes are too detailed."))

    reason: str = Field(min_length=1, max_length=2000)


class DifferencingAnswer(Wire):
    """An earlier release with the same records or identifiers, and what a comparison would reveal."""

    release_id: str = Field(description="The earlier release.")
    alarm: bool = Field(description="True if it shares enough records that a reason is needed.")
    sentence: str
    differ: int | None = Field(default=None, description="Number of records that differ, if it can be counted.")


class Check(Wire):
    """A guarantee verified on the result."""

    sentence: str
    ok: bool


class BundleFile(Wire):
    """A file of the bundle."""

    name: str
    size: int
    sha256: str


class ReleaseAnswer(Wire):
    """A release: its contents, verified guarantees, requester and decision."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="77aa",
            project_id="5f0c",
            masking="5f0c1b",
            job_id="11aa",
            state="requested",
            terms={"title": "Survey 2026"},
            manifest_hash=_HASH,
            records=48842,
            files=[],
            checks=[{"sentence": "Every margin of Race is kept.", "ok": True}],
            remarks=[],
            ledger="The ledger shows no sign that these records have been released before.",
            needs_reason=False,
            differencing=[],
            requested_by="ada",
            requested_at="2026-01-01T09:00:00Z",
            decided_by="",
            decided_at=None,
            reason="",
            may_approve=True,
            may_download=False,
        )
    )

    id: str
    project_id: str
    masking: str
    job_id: str | None
    state: State
    terms: dict[str, Any]
    manifest_hash: str = Field(description="Hash to state in an approval; empty until the bundle is prepared.")
    records: int
    files: list[BundleFile]
    checks: list[Check]
    remarks: list[str]
    ledger: str = Field(description="Whether the records were released before, as far as the caller may know.")
    needs_reason: bool = Field(description="True if an approval needs override_reason; officers only.")
    differencing: list[DifferencingAnswer] = Field(
        description="Earlier releases, for an officer who is a member of their projects."
    )
    requested_by: str
    requested_at: datetime | None
    decided_by: str
    decided_at: datetime | None
    reason: str = Field(description="Reason of a rejection or failure; for officers, also of a repeated release.")
    may_approve: bool = Field(description="True if the caller may approve it now.")
    may_download: bool = Field(description="True if the caller may download it now.")


@router.post("", status_code=202)
def request_release(request: Request, response: Response, access: Worker, body: ReleaseRequest) -> ReleaseAnswer:
    """Request the release of a masking. A job prepares and checks the bundle, which then awaits approval."""
    service, masking, release_id = service_of(request), find_masking(request, access, body.masking), new_id()
    terms = body.terms.model_dump(mode="json")
    with service.database.read() as connection:
        comparable = ledger.find_comparable(connection, access.id)
    payload = {
        "release_id": release_id,
        **masking_request(masking),
        "tolerance": access.row.tolerance,
        "terms": terms,
        "comparable": comparable,
    }

    def record(connection: Connection, job_id: str) -> None:
        row = {"id": release_id, "project_id": access.id, "masking_id": masking.id, "job_id": job_id, "terms": terms}
        row |= {"state": "preparing", "requested_by": access.user.id, "requested_at": now()}
        connection.execute(insert(tables.releases).values(**row))
        detail = {"masking": masking.id, **four_eyes.log_consent(terms)}
        auditlog.record(connection, access.user.name, "release.request", access.id, release_id, detail)

    submit(request, response, access, "release", payload, record=record)
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
        row = four_eyes.find(connection, access, release_id)
    set_etag(response, f"{row.version}-{access.user.id}")
    return _answer(service_of(request), access, release_id)


@router.get("/{release_id}/documents/{name}", response_class=FileResponse)
def get_document(request: Request, access: Reader, release_id: ReleaseId, name: Document) -> FileResponse:
    """Get a document of the bundle (report, dictionary or manifest), to review before deciding."""
    service = service_of(request)
    with service.database.read() as connection:
        row = four_eyes.find(connection, access, release_id)
    path = four_eyes.bundle_folder(service, row) / name
    if not path.is_file():
        raise NotFound("there is no such document")
    kind = _TYPES[name.rpartition(".")[2]]
    return FileResponse(path, media_type=kind, headers={"Content-Security-Policy": REPORT_POLICY})


@router.post("/{release_id}/approval")
def approve_release(request: Request, access: Officer, release_id: ReleaseId, body: Approval) -> ReleaseAnswer:
    """Approve exactly this bundle. The requester cannot approve it."""
    service = service_of(request)
    four_eyes.approve(
        service, access, release_id, manifest_hash=body.manifest_hash, override_reason=body.override_reason
    )
    return _answer(service, access, release_id)


@router.post("/{release_id}/rejection")
def reject_release(request: Request, access: Officer, release_id: ReleaseId, body: Rejection) -> ReleaseAnswer:
    """Reject a release."""
    service = service_of(request)
    four_eyes.reject(service, access, release_id, reason=body.reason)
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
        row = four_eyes.find(connection, access, release_id)
    if row.state != "approved":
        raise Conflict("the release has not been approved", code="not-approved", state=row.state)
    if not four_eyes.may_download(access.user, row):
        raise Forbidden("the bundle is for who asked for it and for officers", code="role")
    folder = four_eyes.bundle_folder(service, row)
    sums = four_eyes.check_bundle(folder, row.manifest_hash)
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
        needs_reason=decides and bool(ledger.list_alarms(row)),
        differencing=[_differencing_answer(each) for each in ledger.visible_findings(access.user, mine, row)],
        requested_by=row.asked_by,
        requested_at=to_datetime(row.requested_at),
        decided_by=row.decided_by_name or "",
        decided_at=to_datetime(row.decided_at),
        # The reason of an approval would reveal that there was an alarm.
        reason=row.reason if decides or row.state != "approved" else "",
        may_approve=four_eyes.may_approve(service, access.user, row),
        may_download=four_eyes.may_download(access.user, row),
    )


def _differencing_answer(each: dict[str, Any]) -> DifferencingAnswer:
    return DifferencingAnswer(
        release_id=each["release_id"], alarm=each["alarm"], sentence=each["sentence"], differ=each["differ"]
    )
