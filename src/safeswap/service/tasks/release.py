"""The job that prepares a release: the bundle that may leave, locked until it is approved, and its sealed record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, update

from safeswap import workflow
from safeswap.errors import SpecError
from safeswap.io.manifest import read_manifest
from safeswap.service import auditlog
from safeswap.service.durable import sync_folder
from safeswap.service.erase import erase
from safeswap.service.jobs import JobRow
from safeswap.service.store import Store
from safeswap.service.tables import releases
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import masked_data

BUNDLE, AUDIT = "bundle", "audit"

_UNKNOWN = (
    "These records have been released before; the confidential record of that release cannot be laid beside this one, "
    "so what comparing the two would tell cannot be counted."
)


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again (the same data, specification and key give the same records), verify, write, seal."""
    if context.project["data_version"] != payload["data_version"]:
        raise SpecError("the data have been replaced since this masking was made", code="old-data")
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.4, "verifying and writing the bundle")
    folder = _new_folder(context.store.release(context.project_id, payload["release_id"]), context.job.fence)
    earlier = _open_earlier(context, payload["earlier"])
    published = workflow.release(
        masked,
        folder / BUNDLE,
        audit=context.scratch / AUDIT,
        key=context.key(),
        tolerance=payload["tolerance"],
        recipe=payload.get("recipe"),
        second_release=True,  # not refused here: the officer decides, and is shown what the library finds
        **payload["terms"],
    )
    context.progress(0.9, "sealing the confidential record")
    context.vault.seal_folder(published.audit, folder / AUDIT, record_context(payload["release_id"]))
    sync_folder(folder)  # before anybody is told of it
    sums = read_manifest(published.public).files
    return {
        "kind": "release",
        "id": payload["release_id"],
        "manifest_hash": published.manifest_sha256,
        "checks": {
            "folder": folder.name,
            "records": published.records,
            "verified": [{"sentence": each.sentence, "ok": each.ok} for each in published.findings],
            "remarks": [
                *_lowered(context, payload),
                *_prepared(payload),
                *(remark.message for remark in published.remarks),
            ],
            "files": [{"name": name, "size": size, "sha256": sha} for name, (size, sha) in sorted(sums.items())],
        },
        "differencing": _told(payload["earlier"], earlier, published.differencing),
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


def _open_earlier(context: Context, earlier: list[dict[str, str]]) -> dict[str, str]:
    """Lay the records of earlier releases where the library looks for them; the release of each folder's name."""
    opened = {}
    (context.scratch / AUDIT).mkdir(mode=0o700, exist_ok=True)
    for each in earlier:
        sealed = _sealed(context, each)
        if sealed is not None:
            name = f"release-{each['id'][:16]}"
            context.vault.open_folder(sealed, context.scratch / AUDIT / name, record_context(each["id"]))
            opened[name] = each["id"]
    return opened


def _sealed(context: Context, earlier: dict[str, str]) -> Path | None:
    """The sealed record of an earlier release; None where its project has been deleted."""
    if not earlier["folder"] or not context.store.exists(earlier["project_id"]):
        return None
    folder = context.store.release(earlier["project_id"], earlier["id"]) / earlier["folder"] / AUDIT
    return folder if folder.is_dir() else None


def _told(earlier: list[dict[str, str]], opened: dict[str, str], found: tuple[Any, ...]) -> list[dict[str, Any]]:
    """One sentence for every earlier release, whether or not the two could be compared."""
    known = {opened[each.earlier]: each for each in found if each.earlier in opened}
    told = []
    for each in earlier:
        compared = known.get(each["id"])
        told.append(
            {
                "release_id": each["id"],
                "sentence": compared.sentence if compared is not None else _UNKNOWN,
                "differ": compared.differ if compared is not None else None,
            }
        )
    return told


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


TASK = Task("release", run, finish=finish, failed=failed)
