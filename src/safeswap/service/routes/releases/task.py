"""The job that prepares a release: the bundle, locked until approved, and its sealed audit record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, update

from safeswap import workflow
from safeswap.attacks.run import list_unlimited
from safeswap.errors import SpecError
from safeswap.model.ledger import Entry, Likeness
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.text import list_names
from safeswap.projects.project import Project
from safeswap.releases.ledger import compare_releases, replay_known
from safeswap.releases.manifest import read_manifest
from safeswap.reports.public import PublicPage
from safeswap.service.keeping import auditlog, ledger
from safeswap.service.keeping.ledger import export_known
from safeswap.service.keeping.store import Store, erase, sync_folder
from safeswap.service.keeping.tables import releases
from safeswap.service.routes.attacks import load_control
from safeswap.service.work.jobs import Claim, JobRow
from safeswap.service.work.tasks import Context, Task, masked_data
from safeswap.workflow.project import refuse_unmet

BUNDLE, AUDIT, ENTRY = "bundle", "audit", "ledger.sealed"
PUBLIC = "public.json"
"""The facts of the public report, for the reports of the release: beside the bundle, not in it."""

_LATER = "An officer decides, and is shown what the ledger says."


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again (the same data, specification and key give the same records), verify, write, seal."""
    if context.project["data_version"] != payload["data_version"]:
        raise SpecError("the data have been replaced since this masking was made", code="old-data")
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    if payload.get("required"):
        refuse_unmet(masked, Project.of(payload["required"]))
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
        scenario=payload.get("scenario"),
        policy=payload.get("policy"),
        control=load_control(context, payload),
        earlier=load_earlier(context, payload, masked),
        **payload["terms"],
    )
    (entry,) = new.entered
    (folder / PUBLIC).write_text(_public_page(masked, payload).model_dump_json(), encoding="utf-8")
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
            "asked_by_officer": payload.get("asked_by_officer", False),
            "compared": compared,
            "records": published.records,
            "verified": [{"sentence": each.sentence, "ok": each.ok} for each in published.findings],
            "remarks": [
                *list_unlimited(published.attacks),
                *_remark_on_tolerance(context, payload),
                *_remark_on_recipe(payload),
                *_remark_on_columns(masked, payload),
                *(remark.message for remark in published.remarks),
            ],
            "policy": (payload.get("policy") or {}).get("name", ""),
            "attacks": [_as_row(each.as_dict()) for each in published.attacks],
            "files": [{"name": name, "size": size, "sha256": sha} for name, (size, sha) in sorted(sums.items())],
        },
        "differencing": alike,
    }


def _public_page(masked: Masked, payload: dict[str, Any]) -> PublicPage:
    from safeswap.releases.publish import preview
    from safeswap.workflow.releasing import make_terms

    terms = make_terms(masked, recipe=payload.get("recipe"), tolerance=payload["tolerance"], **payload["terms"])
    return preview(masked, account=masked.account, terms=terms)


def _as_row(attack: dict[str, Any]) -> dict[str, Any]:
    """Return what the page of a release shows of an attack."""
    shown = ("attack", "success", "baseline", "advantage", "interval", "against", "allowed", "is_above", "note")
    return {name: attack[name] for name in shown}


def _remark_on_tolerance(context: Context, payload: dict[str, Any]) -> list[str]:
    """Remark that smaller counts are shown than the agency's floor."""
    tolerance, floor = int(payload["tolerance"]), context.settings.tolerance
    if tolerance >= floor:
        return []
    return [f"The tolerance of this project is {tolerance}; the agency's floor is {floor}. An officer has lowered it."]


def _remark_on_recipe(payload: dict[str, Any]) -> list[str]:
    """Remark that the verification refers to the file after the project's recipe."""
    from safeswap.workflow.session import as_recipe

    steps = as_recipe(payload.get("recipe") or ()).sentences
    if not steps:
        return []
    intro = "Before masking, the recipe was applied, and what is verified holds for the file as it left it: "
    return [intro + "; ".join(steps) + "."]


def _remark_on_columns(masked: Masked, payload: dict[str, Any]) -> list[str]:
    """Remark on released columns of unconfirmed kind, and on those that the scenario assumes to be unknown."""
    dropped = {*payload["terms"].get("drop", ()), *getattr(masked.spec, "dropped", ())}
    released = [each for each in masked.data.schema.attributes if each.name not in dropped]
    remarks = []
    if guessed := [each.name for each in released if each.inferred]:
        remarks.append(
            f"Kinds guessed from the values and not confirmed by anyone: {list_names(guessed, most=_MOST_NAMES)}."
        )
    scenario = payload.get("scenario")
    if scenario:
        stated = {*scenario.get("keys", ()), *scenario.get("sensitive", ())}
        outside = [each.name for each in released if each.kind in _KEY_KINDS and each.name not in stated]
        if outside:
            remarks.append(
                f"The scenario {scenario['name']!r} assumes that nobody knows: {list_names(outside, most=_MOST_NAMES)}."
            )
    else:
        remarks.append("No scenario was in use: what an intruder may know has not been stated.")
    return remarks


_KEY_KINDS = (Kind.NOMINAL, Kind.ORDINAL, Kind.GEOGRAPHY, Kind.DATE, Kind.NUMERIC)
_MOST_NAMES = 20


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


def load_earlier(context: Context, payload: dict[str, Any], masked: Masked) -> tuple[Microdata, ...]:
    """Return the earlier releases of this project, as far as their records give them row by row.

    Those of other projects are compared for the officers of both only: their figures are not for this project.
    """
    known = {each["id"]: each for each in payload.get("comparable", ()) if each["project_id"] == context.project_id}
    entries = []
    for earlier in ledger.read_entries(context.scratch, context.vault) if known else ():
        if earlier.entry is not None and earlier.release_id in known:
            record = _open_record(context, known[earlier.release_id])
            entries.append(replace(earlier.entry, record="" if record is None else str(record)))
    return replay_known(masked.original, entries, secret=ledger.secret_of(context.vault))


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
    record, secret = _open_record(context, known), ledger.secret_of(context.vault)
    compared = compare_releases(masked, alike, replace(earlier, record=str(record or "")), secret=secret)
    return {"sentence": compared.sentence, "differ": compared.differ}


def _open_record(context: Context, known: dict[str, str]) -> Path | None:
    """Unseal the record of an earlier release into the scratch folder; None if it no longer exists."""
    record = context.scratch / "earlier" / known["id"]
    if record.is_dir():
        return record
    sealed = _find_record(context, known)
    if sealed is None:
        return None
    record.parent.mkdir(mode=0o700, exist_ok=True)
    context.vault.open_folder(sealed, record, record_context(known["id"]))
    return record


def _find_record(context: Context, known: dict[str, str]) -> Path | None:
    """Return the sealed record of an earlier release; None if it no longer exists."""
    if not known["folder"] or not context.store.exists(known["project_id"]):
        return None
    folder = context.store.release(known["project_id"], known["id"]) / known["folder"] / AUDIT
    return folder if folder.is_dir() else None


def prepare(connection: Connection, claim: Claim, store: Store) -> None:
    """Export earlier releases, and the maskings of the project's data before their upload."""
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
