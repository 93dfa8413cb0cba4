"""The job that makes tables of the project's data safe: every cell 0 or large enough, the kept margins exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeswap import workflow
from safeswap.service.rare import rare_texts
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import prepared_data

REPORT = "report.html"
MOST_CELLS = 5_000


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Solve, write the internal report, and keep the cells that may be shown."""
    context.progress(0.05, "counting the tables")
    data = prepared_data(context, payload)
    asked = payload["tables"]
    context.progress(0.2, "looking for the nearest safe tables")
    found = workflow.safe_table(
        data,
        payload["tolerance"],
        attributes=asked if len(asked) > 1 else asked[0],
        keep=payload.get("keep"),
        objective=payload["objective"],
        soft=payload["soft"],
        time_limit=payload["time_limit"],
    )
    context.progress(0.9, "writing the report")
    workflow.safe_table_report(found, context.result_folder / REPORT)
    names = {name for names in asked for name in names}
    hidden = {name: rare_texts(data, name, int(context.project["tolerance"])) for name in names}
    summary = {**found.as_dict(), "sentence": found.sentence, "cells": [_cells(each, hidden) for each in found.tables]}
    named = ("tables", "tolerance", "keep", "objective", "soft", "time_limit", "recipe")
    spec = {name: payload[name] for name in named if payload.get(name) is not None}
    return {"kind": "safe_tables", "id": context.save_result("safe_tables", spec, summary)}


def _cells(changed: Any, hidden: Mapping[str, frozenset[str]]) -> list[dict[str, Any]]:
    """The safe table: what may be published. How it was before, and which levels are rare, is in the report."""
    names = changed.before.names
    rows = [
        row
        for row in changed.long().to_pylist()
        if not any(str(row[name]) in hidden.get(name, frozenset()) for name in names)
    ][:MOST_CELLS]
    return [
        {
            "levels": [str(row[name]) for name in names],
            "after": row["after"],
            "changed": row["before"] != row["after"],
        }
        for row in rows
    ]


TASK = Task("safe_tables", run)
