"""Release workflow with four eyes: one person requests a release, another approves exactly that bundle.

::

    preparing ──job──▶ requested ──approve(manifest hash)──▶ approved, and entered in the ledger
        └──▶ failed         └──reject(reason)──▶ rejected

The bundle is prepared before the decision: an approval names the SHA-256 of its manifest, which holds the SHA-256 of
every file. The ledger (:mod:`safeswap.service.keeping.ledger`) recognises released content. A file of which the ledger
knows half of the records or more is released again only if an officer gives a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import IntegrityError

from safeswap.files.manifest import MANIFEST, check_files, read_manifest, sum_file
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.keeping import auditlog, ledger
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import releases
from safeswap.service.people.callers import Caller
from safeswap.service.people.roles import ProjectAccess, Role
from safeswap.service.routes.releases.task import BUNDLE, ENTRY
from safeswap.service.state import Service

_ATTEMPTS = 5


def log_consent(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return for the log that the rate is published: requested by one, consented to by the officer who approves."""
    return {"publish_rate": True} if terms.get("publish_rate") else {}


def find(connection: Connection, access: ProjectAccess, release_id: str) -> Row[Any]:
    """Return a release of this project."""
    statement = select(releases).where(releases.c.id == release_id, releases.c.project_id == access.id)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound("there is no such release", hint="see GET /projects/{project_id}/releases")
    return row


def approve(
    service: Service, access: ProjectAccess, release_id: str, *, manifest_hash: str, override_reason: str = ""
) -> None:
    """Approve exactly this bundle, and enter it in the ledger and the audit log in the same transaction."""
    with service.database.read() as connection:
        row = find(connection, access, release_id)
    _refuse_undecidable(row)
    _refuse_own(service, access.user, row)
    if manifest_hash != row.manifest_hash:
        raise Conflict(
            "this is not the manifest that was prepared", code="other-manifest", hint="look at the release again"
        )
    check_bundle(bundle_folder(service, row), manifest_hash)
    content = _read_entry(service, row)
    for _ in range(_ATTEMPTS):
        try:
            _approve_now(service, access, row, content, override_reason)
        except IntegrityError:  # a concurrent release took the number: compare with it and retry
            continue
        return
    raise Conflict("other releases are being approved at this moment", code="ledger-busy", hint="try again")


def _approve_now(service: Service, access: ProjectAccess, row: Row[Any], content: bytes, override_reason: str) -> None:
    with service.database.read() as connection:
        last = _refuse_released_since(service, connection, row, content)
        mine = ledger.memberships(connection, access.user.id)
    _refuse_second(access.user, mine, row, override_reason)
    reason = override_reason if ledger.list_alarms(row) else ""
    with service.database.write() as connection:
        alone = service.settings.single_user
        _decide(connection, access.user, row, state="approved", reason=override_reason, single_user=alone)
        ledger.insert_entry(connection, last + 1, row, by=access.user.id, content=content, reason=reason)
        detail: dict[str, Any] = {"manifest_hash": row.manifest_hash, "override_reason": override_reason}
        detail |= log_consent(row.terms)
        if alone:
            detail["single_user"] = True
        auditlog.record(connection, access.user.name, "release.approve", access.id, row.id, detail)


def _read_entry(service: Service, row: Row[Any]) -> bytes:
    """Read the sealed ledger entry that was prepared with the bundle."""
    path = bundle_folder(service, row).parent / ENTRY
    if not path.is_file():
        raise Conflict(
            "this bundle was prepared before the ledger of content", code="not-prepared", hint="request it again"
        )
    return path.read_bytes()


def _refuse_released_since(service: Service, connection: Connection, row: Row[Any], content: bytes) -> int:
    """Refuse records approved since the bundle was prepared; return the number of the newest entry."""
    entry = ledger.open_entry(service.vault, row.id, content)
    last = int(row.checks.get("compared", 0))
    file, alarm_share = (row.project_id, int(row.checks["data_version"])), service.settings.ledger_alarm
    for earlier in ledger.entries_after(connection, service.vault, last):
        last = earlier.number
        alike = ledger.find_alike(entry, earlier, file=file, alarm_share=alarm_share)
        if alike is not None and alike.alarm:
            raise Conflict(
                "these records have been released since this bundle was prepared",
                code="differencing-unknown",
                hint="request the release again: what comparing the two would tell has to be known first",
            )
    return last


def _refuse_second(caller: Caller, mine: Collection[str], row: Row[Any], override_reason: str) -> None:
    if not ledger.list_alarms(row) or override_reason.strip():
        return
    seen = [each["sentence"] for each in ledger.visible_findings(caller, mine, row) if each["alarm"]]
    raise Conflict(
        " ".join([ledger.sentence(caller, mine, row), *seen]),
        code="second-release",
        hint="reject it, or approve it with override_reason",
        differencing=seen,
    )


def reject(service: Service, access: ProjectAccess, release_id: str, *, reason: str) -> None:
    """Reject a release."""
    with service.database.write() as connection:
        row = find(connection, access, release_id)
        _refuse_undecidable(row)
        _decide(connection, access.user, row, state="rejected", reason=reason)
        auditlog.record(connection, access.user.name, "release.reject", access.id, release_id, {"reason": reason})


def _refuse_undecidable(row: Row[Any]) -> None:
    if row.state != "requested":
        reasons = {
            "preparing": "the bundle is still being prepared",
            "failed": "the bundle could not be prepared",
            "approved": "the release has been approved already",
            "rejected": "the release has been rejected",
        }
        raise Conflict(reasons[row.state], code="not-requested", state=row.state)


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


def bundle_folder(service: Service, row: Row[Any]) -> Path:
    """Return the folder of a release's bundle."""
    folder = (row.checks or {}).get("folder", "")
    if not folder:
        raise Conflict("the bundle is not there", code="not-prepared", state=row.state)
    return service.store.release(row.project_id, row.id) / str(folder) / BUNDLE


def check_bundle(folder: Path, manifest_hash: str) -> dict[str, str]:
    """Verify the bundle against the hash of its manifest, byte for byte, and return the hashes of its files."""
    manifest = read_manifest(folder)
    if sum_file(folder / MANIFEST)[1] != manifest_hash:
        raise Conflict("the bundle has been changed since it was prepared", code="bundle-changed")
    check_files(folder, manifest)
    return {MANIFEST: manifest_hash, **{name: digest for name, (_, digest) in manifest.files.items()}}


def may_approve(service: Service, caller: Caller, row: Row[Any]) -> bool:
    """Return True if the caller may approve the release now."""
    other = row.requested_by != caller.id or service.settings.single_user
    return caller.role == Role.OFFICER and row.state == "requested" and other


def may_download(caller: Caller, row: Row[Any]) -> bool:
    """Return True if the caller may download the bundle now: requester and officers, once it is approved."""
    return row.state == "approved" and (caller.role == Role.OFFICER or row.requested_by == caller.id)
