"""Release workflow with four eyes: one person requests a release, another approves exactly that bundle.

::

    preparing ──job──▶ requested ──approve(manifest hash)──▶ approved, and entered in the ledger
        └──▶ failed         └──reject(reason)──▶ rejected

The bundle is prepared before the decision: an approval names the SHA-256 of its manifest, which holds the SHA-256 of
every file. The ledger (:mod:`safeswap.service.keeping.ledger`) recognises released content. A file of which the ledger
knows half of the records or more is released again only if an officer gives a reason.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import IntegrityError

from safeswap.files.formats import sum_file
from safeswap.releases.manifest import MANIFEST, check_files, damaged_error, read_manifest
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.keeping import ledger
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import releases
from safeswap.service.people.roles import Caller, ProjectAccess, Role
from safeswap.service.routes.releases.task import BUNDLE, ENTRY
from safeswap.service.state import Service

_ATTEMPTS = 5


def log_consent(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return for the log what is requested by one and consented to by the officer who approves.

    That is publishing the rate or the errors that masking adds, and releasing although an attack exceeds the policy.
    """
    return {name: True for name in ("publish_rate", "publish_errors", "override") if terms.get(name)}


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """The reasons of an officer who approves in spite of earlier releases or of an attack above the policy."""

    again: str = ""
    attack: str = ""


def needs_attack_override(row: Row[Any]) -> bool:
    """Return whether an attack on a release exceeds the policy, and no officer has yet stated a reason to release it.

    An officer who asks for a release states it in the request; for anyone else the approving officer does.
    """
    checks = row.checks or {}
    above = any(each.get("is_above") for each in checks.get("attacks", ()))
    return above and not checks.get("asked_by_officer") and not checks.get("attack_override")


def told_override(row: Row[Any]) -> str:
    """Return the officer's reason to release although an attack exceeds the policy; empty if there is none."""
    checks = row.checks or {}
    if not any(each.get("is_above") for each in checks.get("attacks", ())):
        return ""
    asked = row.terms.get("override", "") if checks.get("asked_by_officer") else ""
    return str(checks.get("attack_override") or asked)


def find(access: ProjectAccess, release_id: str) -> Row[Any]:
    """Return a release of this project."""
    statement = select(releases).where(releases.c.id == release_id, releases.c.project_id == access.id)
    with access.service.database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound("there is no such release", hint="see GET /projects/{project_id}/releases")
    return row


def approve(access: ProjectAccess, release_id: str, *, manifest_hash: str, reasons: Reasons) -> None:
    """Approve exactly this bundle, and enter it in the ledger and the audit log in the same transaction."""
    row = find(access, release_id)
    _refuse_undecidable(row)
    _refuse_own(access, row)
    if manifest_hash != row.manifest_hash:
        raise Conflict(
            "this is not the manifest that was prepared", code="other-manifest", hint="look at the release again"
        )
    if is_stale(access, row):
        raise Conflict(
            "the data have been replaced since this release was requested",
            code="old-data",
            hint="mask the present data and request the release again, or reject it",
        )
    check_bundle(bundle_folder(access, row), manifest_hash)
    content = _read_entry(access, row)
    for _ in range(_ATTEMPTS):
        try:
            _approve_now(access, row, content, reasons)
        except IntegrityError:  # a concurrent release took the number: compare with it and retry
            continue
        return
    raise Conflict("other releases are being approved at this moment", code="ledger-busy", hint="try again")


def _approve_now(access: ProjectAccess, row: Row[Any], content: bytes, reasons: Reasons) -> None:
    with access.service.database.read() as connection:
        last = _refuse_released_since(access.service, connection, row, content)
        mine = ledger.memberships(connection, access.user.id)
    _refuse_second(access.user, mine, row, reasons.again)
    _refuse_above_policy(row, reasons.attack)
    reason = reasons.again if ledger.list_alarms(row) else ""
    with access.service.database.write() as connection:
        alone = access.service.settings.single_user
        _decide(connection, access.user, row, state="approved", reason=reasons.again, single_user=alone)
        ledger.insert_entry(connection, last + 1, row, by=access.user.id, content=content, reason=reason)
        detail: dict[str, Any] = {"manifest_hash": row.manifest_hash, "override_reason": reasons.again}
        detail |= log_consent(row.terms)
        if needs_attack_override(row):
            detail["attack_override"] = reasons.attack
            told = {**row.checks, "attack_override": reasons.attack}
            connection.execute(update(releases).where(releases.c.id == row.id).values(checks=told))
        if alone:
            detail["single_user"] = True
        access.record(connection, "release.approve", row.id, detail)


def _read_entry(access: ProjectAccess, row: Row[Any]) -> bytes:
    """Read the sealed ledger entry that was prepared with the bundle."""
    path = bundle_folder(access, row).parent / ENTRY
    if not path.is_file():
        raise Conflict(
            "this bundle was prepared before the ledger of content existed",
            code="not-prepared",
            hint="request it again",
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
                hint="request the release again: the effect of comparing the two must be known first",
            )
    return last


def _refuse_above_policy(row: Row[Any], reason: str) -> None:
    if needs_attack_override(row) and not reason.strip():
        raise Conflict(
            "an attack on this release exceeds the agency's policy",
            code="attack-above-policy",
            hint="reject it, or approve it with attack_override, the reason",
        )


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


def reject(access: ProjectAccess, release_id: str, *, reason: str) -> None:
    """Reject a release."""
    row = find(access, release_id)
    _refuse_undecidable(row)
    with access.service.database.write() as connection:
        _decide(connection, access.user, row, state="rejected", reason=reason)
        access.record(connection, "release.reject", release_id, {"reason": reason})


def _refuse_undecidable(row: Row[Any]) -> None:
    if row.state != "requested":
        reasons = {
            "preparing": "the bundle is still being prepared",
            "failed": "the bundle could not be prepared",
            "approved": "the release has been approved already",
            "rejected": "the release has been rejected",
        }
        raise Conflict(reasons[row.state], code="not-requested", state=row.state)


def _refuse_own(access: ProjectAccess, row: Row[Any]) -> None:
    if row.requested_by == access.user.id and not access.service.settings.single_user:
        raise Forbidden(
            "the person who requested a release cannot approve it",
            code="four-eyes",
            hint="another officer must review it",
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
        raise Conflict("someone else has just decided", code="not-requested")


def bundle_folder(access: ProjectAccess, row: Row[Any]) -> Path:
    """Return the folder of a release's bundle."""
    folder = (row.checks or {}).get("folder", "")
    if not folder:
        raise Conflict("the bundle is missing", code="not-prepared", state=row.state)
    return access.service.store.release(row.project_id, row.id) / str(folder) / BUNDLE


def check_bundle(folder: Path, manifest_hash: str) -> dict[str, str]:
    """Verify the bundle against the hash of its manifest, byte for byte, and return the hashes of its files."""
    manifest = read_manifest(folder)
    if sum_file(folder / MANIFEST)[1] != manifest_hash:
        raise Conflict("the bundle has been changed since it was prepared", code="bundle-changed")
    check_files(folder, manifest)
    return {MANIFEST: manifest_hash, **{name: digest for name, (_, digest) in manifest.files.items()}}


def is_stale(access: ProjectAccess, row: Row[Any]) -> bool:
    """Return True if a release waits for a decision although the data have changed since it was requested."""
    return bool(row.state == "requested" and (row.checks or {}).get("data_version") != access.row.data_version)


def may_reject(access: ProjectAccess, row: Row[Any]) -> bool:
    """Return True if the caller is asked to decide on the release now."""
    other = row.requested_by != access.user.id or access.service.settings.single_user
    return access.user.role == Role.OFFICER and row.state == "requested" and other


def may_approve(access: ProjectAccess, row: Row[Any]) -> bool:
    """Return True if the caller may approve the release now."""
    return may_reject(access, row) and not is_stale(access, row)


def may_download(caller: Caller, row: Row[Any]) -> bool:
    """Return True if the caller may download the bundle now: requester and officers, once it is approved."""
    return row.state == "approved" and (caller.role == Role.OFFICER or row.requested_by == caller.id)


_PIECE = 1 << 20
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # same files, same bytes


class _Buffer(io.RawIOBase):
    """A buffer between the zip writer and the response."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._bytes += piece
        return len(piece)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


def stream_zip(folder: Path, sums: Mapping[str, str], *, root: str = "") -> Iterator[bytes]:
    """Yield a zip file, chunk by chunk, with the files of ``folder`` named in ``sums`` (SHA-256), below ``root``.

    Each file is hashed while it is sent. On a mismatch the stream is cut off, so the client gets no valid zip file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.txt").write_text("one")
    ...     sums = {"a.txt": hashlib.sha256(b"one").hexdigest()}
    ...     made = b"".join(stream_zip(Path(name), sums, root="all"))
    >>> zipfile.ZipFile(io.BytesIO(made)).namelist()
    ['all/a.txt']
    """
    buffer = _Buffer()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, wanted in sorted(sums.items()):
            entry = zipfile.ZipInfo("/".join(part for part in (root, name) if part), _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            digest = hashlib.sha256()
            with archive.open(entry, "w", force_zip64=True) as target, (folder / name).open("rb") as source:
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    target.write(piece)
                    yield buffer.take()
            if digest.hexdigest() != wanted:
                raise damaged_error("it differs from what was released", file=name)
    yield buffer.take()
