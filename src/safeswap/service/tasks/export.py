"""The job that exports a project to one archive, in safeswap's or WebSwap's format."""

from __future__ import annotations

import json
import shutil
from typing import Any

from safeswap.projects.webswap import new_project
from safeswap.service.tasks.archive import FORMAT, PROJECT, pack
from safeswap.service.tasks.context import DATA, SCHEMA, Context, Task

FILE = "project.zip"
LOG = "session.log"


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Export data, description, recipe, specifications, figures and log, but no keys and audit records."""
    folder = context.scratch / "export"
    folder.mkdir(mode=0o700)
    context.progress(0.1, "gathering the files")
    (_write_webswap if payload["form"] == "webswap" else _write_safeswap)(context, payload, folder)
    context.progress(0.5, "packing")
    pack(folder, context.result_folder / FILE)
    size = (context.result_folder / FILE).stat().st_size
    summary = {"form": payload["form"], "bytes": size, "files": len(list(folder.iterdir()))}
    return {"kind": "export", "id": context.save_result("export", {"form": payload["form"]}, summary)}


def _write_safeswap(context: Context, payload: dict[str, Any], folder: Any) -> None:
    source = context.store.data(context.project_id, context.project["data_version"])
    for name in (DATA, SCHEMA):
        shutil.copyfile(source / name, folder / name)
    facts = {"format": FORMAT, **payload["facts"]}
    (folder / PROJECT).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    (folder / LOG).write_text(payload["log"], encoding="utf-8")


def _write_webswap(context: Context, payload: dict[str, Any], folder: Any) -> None:
    spec = payload["spec"]
    new_project(
        context.data(),
        folder,
        name="project",
        rate=spec["rate"],
        swap=spec["swap"],
        fixed=spec.get("fixed", ()),
        differ=spec.get("differ", ()),
    )
    (folder / "project.log").write_text(payload["log"], encoding="utf-8")


TASK = Task("export", run)
