"""Releases: requested by one person, approved by another, then downloaded."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import Field
from sqlalchemy import Connection, Row, insert, select

from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.http.wire import Identifier, Page, Paged, Wire, example, set_etag
from safeswap.service.keeping import ledger, tables
from safeswap.service.keeping.database import new_id, now
from safeswap.service.people.roles import Officer, ProjectAccess, Reader, Role, Worker
from safeswap.service.routes.attacks import control_request
from safeswap.service.routes.jobs import submit
from safeswap.service.routes.maskings import find_masking, masking_request
from safeswap.service.routes.releases import four_eyes
from safeswap.service.routes.settings import policy_in_force, project_of, scenario_of

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
    two_files: bool = Field(default=False, description="A file of households and a file of persons.")
    title: str = Field(default="", max_length=200)
    date: str = Field(default="", max_length=40)
    publish_rate: bool = Field(default=False, description="Publish the share of records that were masked.")
    publish_errors: str = Field(
        default="",
        max_length=200_000,
        pattern=r"^($|indicators:)",
        description="Publish by how much masking enlarges the standard errors of these key indicators: indicators:{…}.",
    )
    unmasked: bool = Field(default=False, description="Release values although nothing was masked.")
    attack: Literal["quick", "full"] = Field(default="quick", description="Attacks to try: the quick ones, or all.")
    override: str = Field(
        default="",
        max_length=2000,
        description="Reason to release above the policy on attacks; the approving officer states one too, unless the "
        "requester is an officer.",
    )


class ReleaseRequest(Wire):
    """Request the release of a masking."""

    model_config = example(masking="5f0c1b", terms={"title": "Survey 2026"})

    masking: Identifier
    terms: ReleaseTerms = ReleaseTerms()


class Approval(Wire):
    """Approval of exactly this bundle."""

    model_config = example(manifest_hash=_HASH)

    manifest_hash: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the reviewed manifest.")
    override_reason: str = Field(
        default="",
        max_length=2000,
        description="Reason to release these records although they have been released before.",
    )
    attack_override: str = Field(
        default="", max_length=2000, description="Reason to release although an attack exceeds the agency's policy."
    )


class Rejection(Wire):
    """Rejection of a release."""

    model_config = example(reason="The occupation codes are too detailed.")

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

    model_config = example(
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
        attacks=[],
        ledger="The ledger shows no sign that these records have been released before.",
        needs_reason=False,
        differencing=[],
        requested_by="ada",
        requested_at="2026-01-01T09:00:00Z",
        decided_by="",
        decided_at=None,
        reason="",
        is_stale=False,
        may_approve=True,
        may_reject=True,
        may_download=False,
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
    attacks: list[dict[str, Any]] = Field(
        default_factory=list, description="Attacks tried on the release: success, baseline, advantage, and the limit."
    )
    ledger: str = Field(description="Whether the records were released before, as far as the caller may know.")
    policy: str = Field(default="", description="Name of the policy that the attacks were judged by.")
    needs_attack_override: bool = Field(
        default=False, description="True if an approval needs attack_override: an attack exceeds the policy."
    )
    attack_override: str = Field(
        default="", description="The officer's reason to release above the policy; for those who may work on the file."
    )
    needs_reason: bool = Field(description="True if an approval needs override_reason; officers only.")
    differencing: list[DifferencingAnswer] = Field(
        description="Earlier releases, for an officer who is a member of their projects."
    )
    requested_by: str
    requested_at: datetime | None
    decided_by: str
    decided_at: datetime | None
    reason: str = Field(description="Reason of a rejection or failure; for officers, also of a repeated release.")
    is_stale: bool = Field(
        default=False, description="True if it waits for a decision although the data have changed since."
    )
    may_approve: bool = Field(description="True if the caller may approve it now.")
    may_reject: bool = Field(default=False, description="True if the caller is to decide on it, if only to reject it.")
    may_download: bool = Field(description="True if the caller may download it now.")


@router.post("", status_code=202)
def request_release(request: Request, response: Response, access: Worker, body: ReleaseRequest) -> ReleaseAnswer:
    """Request the release of a masking. A job prepares and checks the bundle, which then awaits approval."""
    masking, release_id, scenario = find_masking(access, body.masking), new_id(), scenario_of(access)
    terms = body.terms.model_dump(mode="json")
    with access.service.database.read() as connection:
        comparable = ledger.find_comparable(connection, access.id)
    payload = {
        "release_id": release_id,
        **masking_request(masking),
        "tolerance": access.row.tolerance,
        "terms": terms,
        "comparable": comparable,
        "asked_by_officer": access.user.role == Role.OFFICER,
        "policy": policy_in_force(access.service.database).model_dump(mode="json"),
        **control_request(access),
        "required": _required_of(access),
        **({} if scenario is None else {"scenario": scenario.as_dict()}),
    }

    def record(connection: Connection, job_id: str) -> None:
        row = {"id": release_id, "project_id": access.id, "masking_id": masking.id, "job_id": job_id, "terms": terms}
        row |= {"state": "preparing", "requested_by": access.user.id, "requested_at": now()}
        connection.execute(insert(tables.releases).values(**row))
        detail = {"masking": masking.id, **four_eyes.log_consent(terms)}
        access.record(connection, "release.request", release_id, detail)

    submit(request, response, access, "release", payload, record=record)
    response.headers["Location"] = f"{request.url.path}/{release_id}"
    return _answer(access, release_id)


def _required_of(access: ProjectAccess) -> dict[str, Any]:
    """Return what the project requires of a release, with its scenarios; nothing if it requires nothing."""
    content = project_of(access).content()
    rules = content["release"].get("require")
    return {"scenario": content["scenario"], "release": {"require": rules}} if rules else {}


@router.get("")
def list_releases(
    access: Reader,
    paging: Paged,
    state: Annotated[list[State] | None, Query(description="Only releases in one of these states.")] = None,
) -> Page[ReleaseAnswer]:
    """List the releases of a project, newest first."""
    statement = _select_releases().where(tables.releases.c.project_id == access.id)
    if state is not None:
        statement = statement.where(tables.releases.c.state.in_(state))
    with access.service.database.read() as connection:
        mine = ledger.memberships(connection, access.user.id)
    order = (tables.releases.c.requested_at, tables.releases.c.id)
    return paging.page(statement, order=order, make=lambda row: _release_answer(access, row, mine))


@router.get("/{release_id}")
def get_release(response: Response, access: Reader, release_id: ReleaseId) -> ReleaseAnswer:
    """Get one release: its contents, verified properties, and overlap with earlier releases."""
    row = four_eyes.find(access, release_id)
    set_etag(response, f"{row.version}-{access.user.id}")
    return _answer(access, release_id)


@router.get("/{release_id}/documents/{name}", response_class=FileResponse)
def get_document(access: Reader, release_id: ReleaseId, name: Document) -> FileResponse:
    """Get a document of the bundle (report, dictionary or manifest), to review before deciding."""
    row = four_eyes.find(access, release_id)
    path = four_eyes.bundle_folder(access, row) / name
    if not path.is_file():
        raise NotFound("there is no such document")
    kind = _TYPES[name.rpartition(".")[2]]
    return FileResponse(path, media_type=kind, headers={"Content-Security-Policy": REPORT_POLICY})


@router.post("/{release_id}/approval")
def approve_release(access: Officer, release_id: ReleaseId, body: Approval) -> ReleaseAnswer:
    """Approve exactly this bundle. The requester cannot approve it."""
    reasons = four_eyes.Reasons(again=body.override_reason, attack=body.attack_override)
    four_eyes.approve(access, release_id, manifest_hash=body.manifest_hash, reasons=reasons)
    return _answer(access, release_id)


@router.post("/{release_id}/rejection")
def reject_release(access: Officer, release_id: ReleaseId, body: Rejection) -> ReleaseAnswer:
    """Reject a release."""
    four_eyes.reject(access, release_id, reason=body.reason)
    return _answer(access, release_id)


@router.get(
    "/{release_id}/bundle.zip",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {}}, "description": "The bundle"}},
)
def download_bundle(access: Reader, release_id: ReleaseId) -> StreamingResponse:
    """Download the approved bundle, for the requester and for officers."""
    row = four_eyes.find(access, release_id)
    if row.state != "approved":
        raise Conflict("the release has not been approved", code="not-approved", state=row.state)
    if not four_eyes.may_download(access.user, row):
        raise Forbidden("the bundle is only for the person who requested it and for officers", code="role")
    folder = four_eyes.bundle_folder(access, row)
    sums = four_eyes.check_bundle(folder, row.manifest_hash)
    with access.service.database.write() as connection:
        access.record(connection, "release.download", release_id)
    name = f"release-{row.manifest_hash[:16]}"
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(
        four_eyes.stream_zip(folder, sums, root=name), media_type="application/zip", headers=headers
    )


def _select_releases() -> Any:
    asked, decided = tables.users.alias("asked"), tables.users.alias("decided")
    return (
        select(tables.releases, asked.c.name.label("asked_by"), decided.c.name.label("decided_by_name"))
        .join(asked, asked.c.id == tables.releases.c.requested_by)
        .outerjoin(decided, decided.c.id == tables.releases.c.decided_by)
    )


def find_release(access: ProjectAccess, release_id: str) -> Row[Any]:
    """Return a release of this project with the names of who asked for it and who decided."""
    row = four_eyes.find(access, release_id)
    with access.service.database.read() as connection:
        return connection.execute(_select_releases().where(tables.releases.c.id == row.id)).one()


def _answer(access: ProjectAccess, release_id: str) -> ReleaseAnswer:
    with access.service.database.read() as connection:
        row = connection.execute(_select_releases().where(tables.releases.c.id == release_id)).one()
        mine = ledger.memberships(connection, access.user.id)
    return _release_answer(access, row, mine)


def _tell_reason(access: ProjectAccess, row: Row[Any]) -> str:
    if row.state == "failed" and not access.may_work:
        return "the bundle could not be prepared; the reason is shown to those who may work on the file"
    # The reason of an approval would reveal that there was an alarm.
    return str(row.reason) if access.user.role == Role.OFFICER or row.state != "approved" else ""


def _release_answer(access: ProjectAccess, row: Row[Any], mine: frozenset[str]) -> ReleaseAnswer:
    checks, decides = row.checks or {}, access.user.role == Role.OFFICER
    return ReleaseAnswer.of(
        row,
        masking=row.masking_id,
        records=checks.get("records", 0),
        files=checks.get("files", []),
        checks=checks.get("verified", []),
        remarks=checks.get("remarks", []),
        # Success figures may tell the rate, and so may the reason for which a bundle was refused.
        attacks=checks.get("attacks", []) if access.may_work else [],
        terms={name: value for name, value in row.terms.items() if access.may_work or name != "override"},
        policy=checks.get("policy", ""),
        needs_attack_override=decides and four_eyes.needs_attack_override(row),
        attack_override=four_eyes.told_override(row) if access.may_work else "",
        ledger=ledger.sentence(access.user, mine, row),
        needs_reason=decides and bool(ledger.list_alarms(row)),
        differencing=[DifferencingAnswer.of(each) for each in ledger.visible_findings(access.user, mine, row)],
        requested_by=row.asked_by,
        decided_by=row.decided_by_name or "",
        reason=_tell_reason(access, row),
        is_stale=four_eyes.is_stale(access, row),
        may_approve=four_eyes.may_approve(access, row),
        may_reject=four_eyes.may_reject(access, row),
        may_download=four_eyes.may_download(access.user, row),
    )
