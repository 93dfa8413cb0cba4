"""Four eyes: one person asks for a release, another lets exactly that bundle leave, and a ledger remembers.

::

    preparing ──job──▶ requested ──approve(manifest hash)──▶ approved, and a place in the ledger
        └──▶ failed         └──reject(reason)──▶ rejected

A bundle is prepared before anybody decides: what is approved is the SHA-256 of its manifest, which holds the SHA-256 of
every file. The ledger has one place per lineage, that is per file known by its records; a further one is given only to
an officer who says why, after being shown what comparing the two releases would tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from safeswap.io.manifest import MANIFEST, check_files, read_manifest, sum_file
from safeswap.service import auditlog
from safeswap.service.asking import touch
from safeswap.service.callers import Caller
from safeswap.service.database import new_id, now
from safeswap.service.problems import Conflict, Forbidden, NotFound
from safeswap.service.roles import ProjectAccess, Role
from safeswap.service.state import Service
from safeswap.service.tables import ledger, releases, results
from safeswap.service.tasks.release import BUNDLE


def request(service: Service, access: ProjectAccess, *, masking: Row[Any], terms: dict[str, Any]) -> str:
    """Ask for a release: a job prepares the bundle; the release's id."""
    _refuse_old_data(access, masking)
    release_id = new_id()
    with service.database.write() as connection:
        touch(connection, access.id)
        payload = {
            "release_id": release_id,
            "spec": masking.spec["spec"],
            "recipe": masking.spec.get("recipe"),
            "replicate": masking.spec.get("replicate", 0),
            "data_version": masking.data_version,
            "tolerance": access.row.tolerance,
            "terms": terms,
            "earlier": earlier_releases(connection, access.row.fingerprint),
        }
        job_id = service.queue.enqueue(
            "release", payload, project_id=access.id, created_by=access.user.id, connection=connection
        )
        row = {"id": release_id, "project_id": access.id, "masking_id": masking.id, "job_id": job_id, "terms": terms}
        row |= {"state": "preparing", "lineage": access.row.fingerprint}
        row |= {"requested_by": access.user.id, "requested_at": now()}
        connection.execute(insert(releases).values(**row))
        auditlog.record(connection, access.user.name, "release.request", access.id, release_id, {"masking": masking.id})
    return release_id


def _refuse_old_data(access: ProjectAccess, masking: Row[Any]) -> None:
    if masking.data_version != access.row.data_version:
        raise Conflict(
            "the data have been replaced since this masking was made", code="old-data", hint="mask the new data"
        )
    if not access.row.fingerprint:
        raise Conflict("the data are not known to the ledger", code="no-fingerprint", hint="read the data in again")


def earlier_releases(connection: Connection, lineage: str) -> list[dict[str, str]]:
    """What has left of the same records, and where its confidential record lies, if that is still there."""
    statement = (
        select(ledger.c.release_id, releases.c.project_id, releases.c.checks)
        .outerjoin(releases, releases.c.id == ledger.c.release_id)
        .where(ledger.c.lineage == lineage)
        .order_by(ledger.c.number)
    )
    return [
        {"id": row.release_id, "project_id": row.project_id or "", "folder": (row.checks or {}).get("folder", "")}
        for row in connection.execute(statement)
    ]


def find(connection: Connection, access: ProjectAccess, release_id: str) -> Row[Any]:
    """A release of this project."""
    statement = select(releases).where(releases.c.id == release_id, releases.c.project_id == access.id)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound("there is no such release", hint="see GET /projects/{project_id}/releases")
    return row


def approve(
    service: Service, access: ProjectAccess, release_id: str, *, manifest_hash: str, override_reason: str = ""
) -> None:
    """Let exactly this bundle leave; its place in the ledger and the entry in the audit log are made with it."""
    with service.database.read() as connection:
        row = find(connection, access, release_id)
    _refuse_undecidable(row)
    _refuse_own(service, access.user, row)
    if manifest_hash != row.manifest_hash:
        raise Conflict(
            "this is not the manifest that was prepared", code="other-manifest", hint="look at the release again"
        )
    check_bundle(bundle_folder(service, row), manifest_hash)
    try:
        with service.database.write() as connection:
            _decide(
                connection,
                access.user,
                row,
                state="approved",
                reason=override_reason,
                single_user=service.settings.single_user,
            )
            number = _enter(connection, access.user, row, override_reason)
            detail = {"manifest_hash": manifest_hash, "number": number, "override_reason": override_reason}
            if service.settings.single_user:
                detail["single_user"] = True
            auditlog.record(connection, access.user.name, "release.approve", access.id, release_id, detail)
    except IntegrityError:  # two officers, two releases of the same records, one moment: the primary key decides
        raise Conflict(
            "another release of these records was approved at the same moment",
            code="second-release",
            hint="look at the release again",
        ) from None


def reject(service: Service, access: ProjectAccess, release_id: str, *, reason: str) -> None:
    """Do not let it leave."""
    with service.database.write() as connection:
        row = find(connection, access, release_id)
        _refuse_undecidable(row)
        _decide(connection, access.user, row, state="rejected", reason=reason)
        auditlog.record(connection, access.user.name, "release.reject", access.id, release_id, {"reason": reason})


def _refuse_undecidable(row: Row[Any]) -> None:
    if row.state != "requested":
        told = {
            "preparing": "the bundle is still being prepared",
            "failed": "the bundle could not be prepared",
            "approved": "the release has been approved already",
            "rejected": "the release has been rejected",
        }
        raise Conflict(told[row.state], code="not-requested", state=row.state)


def _refuse_own(service: Service, caller: Caller, row: Row[Any]) -> None:
    if row.requested_by == caller.id and not service.settings.single_user:
        raise Forbidden(
            "who asked for a release cannot approve it", code="four-eyes", hint="another officer has to look at it"
        )


def _decide(
    connection: Connection, caller: Caller, row: Row[Any], *, state: str, reason: str, single_user: bool = False
) -> None:
    undecided = (releases.c.id == row.id) & (releases.c.state == "requested") & (releases.c.version == row.version)
    values = {
        "state": state,
        "decided_by": caller.id,
        "decided_at": now(),
        "reason": reason,
        "single_user": single_user,
    }
    if connection.execute(update(releases).where(undecided).values(**values, version=row.version + 1)).rowcount != 1:
        raise Conflict("somebody else has decided at the same moment", code="not-requested")


def _enter(connection: Connection, caller: Caller, row: Row[Any], override_reason: str) -> int:
    """Take the next place of this lineage in the ledger, if it may be taken."""
    before = [each["id"] for each in earlier_releases(connection, row.lineage)]
    shown = {each["release_id"]: each["sentence"] for each in row.differencing or ()}
    if set(before) - set(shown):
        raise Conflict(
            "these records have been released since this bundle was prepared",
            code="differencing-unknown",
            hint="request the release again: what comparing the two would tell has to be known first",
        )
    if before and not override_reason.strip():
        raise Conflict(
            "these records have been released before. " + " ".join(shown[each] for each in before),
            code="second-release",
            hint="reject it, or approve it with override_reason",
            differencing=[shown[each] for each in before],
        )
    # The place after those that were looked at, not after those that are there by now: where somebody has taken it
    # since, the primary key refuses.
    number = len(before) + 1
    entry = {"lineage": row.lineage, "number": number, "release_id": row.id, "manifest_hash": row.manifest_hash}
    entry |= {"approved_by": caller.id, "approved_at": now(), "override_reason": override_reason if before else ""}
    connection.execute(insert(ledger).values(**entry))
    return number


def bundle_folder(service: Service, row: Row[Any]) -> Path:
    """Where the bundle of a release lies."""
    folder = (row.checks or {}).get("folder", "")
    if not folder:
        raise Conflict("the bundle is not there", code="not-prepared", state=row.state)
    return service.store.release(row.project_id, row.id) / str(folder) / BUNDLE


def check_bundle(folder: Path, manifest_hash: str) -> dict[str, str]:
    """The bundle is, byte for byte, the one that the hash of its manifest stands for; the sums of its files."""
    manifest = read_manifest(folder)
    if sum_file(folder / MANIFEST)[1] != manifest_hash:
        raise Conflict("the bundle has been changed since it was prepared", code="bundle-changed")
    check_files(folder, manifest)
    return {MANIFEST: manifest_hash, **{name: digest for name, (_, digest) in manifest.files.items()}}


def may_approve(service: Service, caller: Caller, row: Row[Any]) -> bool:
    """Whether this person may approve the release now."""
    other = row.requested_by != caller.id or service.settings.single_user
    return caller.role == Role.OFFICER and row.state == "requested" and other


def may_download(caller: Caller, row: Row[Any]) -> bool:
    """Whether this person may have the bundle now: who asked for it and officers, once it is approved."""
    return row.state == "approved" and (caller.role == Role.OFFICER or row.requested_by == caller.id)


def masking_of(connection: Connection, access: ProjectAccess, masking_id: str) -> Row[Any]:
    """A masking of this project."""
    statement = select(results).where(
        results.c.id == masking_id, results.c.project_id == access.id, results.c.kind == "masking"
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound("there is no such masking", hint="see GET /projects/{project_id}/maskings")
    return row
