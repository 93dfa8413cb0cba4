"""The job that prepares a release: the bundle that may leave, locked until it is approved, and its sealed record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, update

from safeswap import workflow
from safeswap.errors import SpecError
from safeswap.files.manifest import read_manifest
from safeswap.model.ledger import Entry, Likeness
from safeswap.model.masked import Masked
from safeswap.releases.ledger import difference
from safeswap.service.keeping import auditlog, ledger
from safeswap.service.keeping.erase import erase, sync_folder
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import releases
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.library import masked_data
from safeswap.service.work.jobs import JobRow

BUNDLE, AUDIT, ENTRY = "bundle", "audit", "ledger.sealed"

_LATER = "An officer decides, and is shown what the ledger says."


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again (the same data, specification and key give the same records), verify, write, seal."""
    if context.project["data_version"] != payload["data_version"]:
        raise SpecError("the data have been replaced since this masking was made", code="old-data")
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.4, "verifying and writing the bundle")
    folder = _new_folder(context.store.release(context.project_id, payload["release_id"]), context.job.fence)
    new = ledger.NewEntry(ledger.secret_of(context.vault))
    published = workflow.release(
        masked,
        folder / BUNDLE,
        audit=context.scratch / AUDIT,
        key=context.key(),
        tolerance=payload["tolerance"],
        recipe=payload.get("recipe"),
        second_release=_LATER,
        ledger=new,
        before=context.data(),
        **payload["terms"],
    )
    (entry,) = new.entered
    context.progress(0.8, "comparing with what was released before")
    compared, alike = _find_alike(context, payload, entry, masked)
    context.progress(0.9, "sealing the confidential record")
    context.vault.seal_folder(published.audit, folder / AUDIT, record_context(payload["release_id"]))
    (folder / ENTRY).write_bytes(ledger.seal_entry(context.vault, payload["release_id"], entry))
    sync_folder(folder)  # before anybody is told of it
    sums = read_manifest(published.public).files
    return {
        "kind": "release",
        "id": payload["release_id"],
        "manifest_hash": published.manifest_sha256,
        "checks": {
            "folder": folder.name,
            "data_version": payload["data_version"],
            "compared": compared,
            "records": published.records,
            "verified": [{"sentence": each.sentence, "ok": each.ok} for each in published.findings],
            "remarks": [
                *_lowered(context, payload),
                *_prepared(payload),
                *(remark.message for remark in published.remarks),
            ],
            "files": [{"name": name, "size": size, "sha256": sha} for name, (size, sha) in sorted(sums.items())],
        },
        "differencing": alike,
    }


def _lowered(context: Context, payload: dict[str, Any]) -> list[str]:
    """That counts are shown which the agency does not show elsewhere."""
    tolerance, floor = int(payload["tolerance"]), context.settings.tolerance
    if tolerance >= floor:
        return []
    return [f"The tolerance of this project is {tolerance}; the agency's floor is {floor}. An officer has lowered it."]


def _prepared(payload: dict[str, Any]) -> list[str]:
    """That what was verified was verified against the file as the project's recipe had left it."""
    steps = workflow.as_recipe(payload.get("recipe") or ()).sentences
    if not steps:
        return []
    told = "Before masking, the recipe was applied, and what is verified holds for the file as it left it: "
    return [told + "; ".join(steps) + "."]


def _new_folder(parent: Path, fence: int) -> Path:
    """For this attempt; what earlier attempts have left is erased: nobody will be told of it.

    What a later one has made is left alone: this attempt may have been held up and overtaken.
    """
    for left in parent.iterdir():
        if left.name in {f"attempt-{number}" for number in range(fence + 1)}:
            erase(left)
    folder = parent / f"attempt-{fence}"
    folder.mkdir(mode=0o700)
    return folder


def record_context(release_id: str) -> str:
    """What the confidential record of a release is sealed for."""
    return f"release {release_id}"


def _find_alike(
    context: Context, payload: dict[str, Any], entry: Entry, masked: Masked
) -> tuple[int, list[dict[str, Any]]]:
    """The number of the last entry that was compared, and the earlier releases that have records in common."""
    last, found = 0, []
    known = {each["id"]: each for each in payload["comparable"]}
    file, alarm_share = (context.project_id, payload["data_version"]), context.settings.ledger_alarm
    for earlier in ledger.laid_out(context.scratch, context.vault):
        last = earlier.number
        alike = ledger.find_alike(entry, earlier, file=file, alarm_share=alarm_share)
        if alike is not None:
            told = _describe(context, known.get(earlier.release_id), alike, earlier.entry, masked)
            told |= {"release_id": earlier.release_id, "project_id": earlier.project_id, "alarm": alike.alarm}
            found.append(told)
    return last, found


def _describe(
    context: Context, known: dict[str, str] | None, alike: Likeness, earlier: Entry | None, masked: Masked
) -> dict[str, Any]:
    """The words and figures for an officer of both projects; where there is none, nothing is computed."""
    if known is None or earlier is None or not alike.alarm:
        return {"sentence": alike.sentence, "differ": None}
    sealed = _find_record(context, known)
    record = context.scratch / "earlier" / known["id"]
    if sealed is not None:
        record.parent.mkdir(mode=0o700, exist_ok=True)
        context.vault.open_folder(sealed, record, record_context(known["id"]))
    secret = ledger.secret_of(context.vault)
    compared = difference(masked, alike, replace(earlier, record=str(record) if sealed else ""), secret=secret)
    return {"sentence": compared.sentence, "differ": compared.differ}


def _find_record(context: Context, known: dict[str, str]) -> Path | None:
    """The sealed record of an earlier release; None where it is not there any more."""
    if not known["folder"] or not context.store.exists(known["project_id"]):
        return None
    folder = context.store.release(known["project_id"], known["id"]) / known["folder"] / AUDIT
    return folder if folder.is_dir() else None


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], _store: Store) -> dict[str, Any]:
    """The bundle is there: the release waits for somebody to decide."""
    _settle(
        connection,
        outcome["id"],
        state="requested",
        manifest_hash=outcome["manifest_hash"],
        checks=outcome["checks"],
        differencing=outcome["differencing"],
    )
    detail = {"manifest_hash": outcome["manifest_hash"]}
    auditlog.record(connection, "worker", "release.prepared", job["project_id"], outcome["id"], detail)
    return {"kind": "release", "id": outcome["id"]}


def failed(connection: Connection, job: JobRow, error: dict[str, Any], _store: Store) -> None:
    """There is no bundle, and the release says why."""
    release_id = job["payload"]["release_id"]
    _settle(connection, release_id, state="failed", reason=str(error.get("message", "the job was cancelled")))
    detail = {"code": str(error.get("code", ""))}
    auditlog.record(connection, "worker", "release.failed", job["project_id"], release_id, detail)


def _settle(connection: Connection, release_id: str, **values: Any) -> None:
    waiting = (releases.c.id == release_id) & (releases.c.state == "preparing")
    connection.execute(update(releases).where(waiting).values(**values, version=releases.c.version + 1))


TASK = Task("release", run, prepare=ledger.lay_out, finish=finish, failed=failed)
