"""The job that prepares a release: the bundle, locked until approved, and its sealed audit record."""

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
from safeswap.releases.ledger import compare_releases
from safeswap.service.keeping import auditlog, ledger
from safeswap.service.keeping.erase import erase, sync_folder
from safeswap.service.keeping.register import export_known
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import releases
from safeswap.service.work.jobs import Claim, JobRow
from safeswap.service.work.tasks import Context, Task, masked_data

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
    new = ledger.NewEntry(ledger.secret_of(context.vault), registers=context.registers)
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
    sync_folder(folder)  # before the release is announced
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
                *_remark_on_tolerance(context, payload),
                *_remark_on_recipe(payload),
                *(remark.message for remark in published.remarks),
            ],
            "files": [{"name": name, "size": size, "sha256": sha} for name, (size, sha) in sorted(sums.items())],
        },
        "differencing": alike,
    }


def _remark_on_tolerance(context: Context, payload: dict[str, Any]) -> list[str]:
    """Remark that smaller counts are shown than the agency's floor."""
    tolerance, floor = int(payload["tolerance"]), context.settings.tolerance
    if tolerance >= floor:
        return []
    return [f"The tolerance of this project is {tolerance}; the agency's floor is {floor}. An officer has lowered it."]


def _remark_on_recipe(payload: dict[str, Any]) -> list[str]:
    """Remark that the verification refers to the file after the project's recipe."""
    from safeswap.workflow.recoding import as_recipe

    steps = as_recipe(payload.get("recipe") or ()).sentences
    if not steps:
        return []
    intro = "Before masking, the recipe was applied, and what is verified holds for the file as it left it: "
    return [intro + "; ".join(steps) + "."]


def _new_folder(parent: Path, fence: int) -> Path:
    """Create the folder of this attempt and erase those of earlier ones.

    A later attempt's folder is left alone: this attempt may have been delayed and overtaken.
    """
    for left in parent.iterdir():
        if left.name in {f"attempt-{number}" for number in range(fence + 1)}:
            erase(left)
    folder = parent / f"attempt-{fence}"
    folder.mkdir(mode=0o700)
    return folder


def record_context(release_id: str) -> str:
    """Return the context for sealing a release's audit record."""
    return f"release {release_id}"


def _find_alike(
    context: Context, payload: dict[str, Any], entry: Entry, masked: Masked
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of the last entry compared, and the earlier releases with records in common."""
    last, found = 0, []
    known = {each["id"]: each for each in payload["comparable"]}
    file, alarm_share = (context.project_id, payload["data_version"]), context.settings.ledger_alarm
    for earlier in ledger.read_entries(context.scratch, context.vault):
        last = earlier.number
        alike = ledger.find_alike(entry, earlier, file=file, alarm_share=alarm_share)
        if alike is not None:
            finding = _describe(context, known.get(earlier.release_id), alike, earlier.entry, masked)
            finding |= {"release_id": earlier.release_id, "project_id": earlier.project_id, "alarm": alike.alarm}
            found.append(finding)
    return last, found


def _describe(
    context: Context, known: dict[str, str] | None, alike: Likeness, earlier: Entry | None, masked: Masked
) -> dict[str, Any]:
    """Return sentence and figures for an officer of both projects; without one, nothing is computed."""
    if known is None or earlier is None or not alike.alarm:
        return {"sentence": alike.sentence, "differ": None}
    sealed = _find_record(context, known)
    record = context.scratch / "earlier" / known["id"]
    if sealed is not None:
        record.parent.mkdir(mode=0o700, exist_ok=True)
        context.vault.open_folder(sealed, record, record_context(known["id"]))
    secret = ledger.secret_of(context.vault)
    compared = compare_releases(masked, alike, replace(earlier, record=str(record) if sealed else ""), secret=secret)
    return {"sentence": compared.sentence, "differ": compared.differ}


def _find_record(context: Context, known: dict[str, str]) -> Path | None:
    """Return the sealed record of an earlier release; None if it no longer exists."""
    if not known["folder"] or not context.store.exists(known["project_id"]):
        return None
    folder = context.store.release(known["project_id"], known["id"]) / known["folder"] / AUDIT
    return folder if folder.is_dir() else None


def prepare(connection: Connection, claim: Claim, store: Store) -> None:
    """Export what was released before, and what the project's data went through before their upload."""
    ledger.export_entries(connection, claim, store)
    export_known(connection, claim, store)


def finish(connection: Connection, job: JobRow, outcome: dict[str, Any], _store: Store) -> dict[str, Any]:
    """Mark the release as requested: the bundle awaits a decision."""
    _update_preparing(
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


def mark_failed(connection: Connection, job: JobRow, error: dict[str, Any], _store: Store) -> None:
    """Mark the release as failed, with the reason."""
    release_id = job["payload"]["release_id"]
    _update_preparing(connection, release_id, state="failed", reason=str(error.get("message", "the job was cancelled")))
    detail = {"code": str(error.get("code", ""))}
    auditlog.record(connection, "worker", "release.failed", job["project_id"], release_id, detail)


def _update_preparing(connection: Connection, release_id: str, **values: Any) -> None:
    waiting = (releases.c.id == release_id) & (releases.c.state == "preparing")
    connection.execute(update(releases).where(waiting).values(**values, version=releases.c.version + 1))


TASKS = (Task("release", run, prepare=prepare, finish=finish, failed=mark_failed),)
