"""The job that places every record between perturbation and neighbours: the confidentiality plot."""

from __future__ import annotations

import json
from typing import Any

from safeswap import workflow
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import asked, masked_data

PAGE = "plot.html"
PAYLOAD = "plot.json"


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask, link each record to the release as an intruder would, and keep the plot."""
    from safeswap.charts.plot_payload import default_second, plot_payload

    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.3, "looking for neighbours")
    options = payload.get("options") or {}
    plot = workflow.confidentiality(
        masked, keys=payload["keys"], linkage=payload.get("linkage", "auto"), key=context.key(), **options
    )
    # Identifiers are values of records: over the wire a record is known by its place.
    plot = plot.numbered()
    context.progress(0.9, "writing the plot")
    workflow.write_confidentiality(plot, context.result_folder / PAGE)
    other = default_second(plot.policy) if plot.policy.r is not None else None
    figure = plot_payload(plot, second=other, title=", ".join(plot.keys))
    (context.result_folder / PAYLOAD).write_text(json.dumps(figure, allow_nan=False), encoding="utf-8")
    summary = {
        "records": len(plot),
        "kind": plot.kind,
        "unsafe_share": plot.unsafe_share,
        "correct_link_share": None if plot.kind == "categorical" else plot.correct_link_share,
        "sentence": plot.sentence,
    }
    spec = asked(payload, "masking", "keys", "linkage", "options")
    return {"kind": "confidentiality", "id": context.save_result("confidentiality", spec, summary)}


TASK = Task("confidentiality", run)
