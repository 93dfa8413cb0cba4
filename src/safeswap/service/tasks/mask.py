"""The job that masks the project's data and measures what that did. Figures are kept, never the masked records."""

from __future__ import annotations

from typing import Any

from safeswap import workflow
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import asked, masked_data, summary_of

REPORT = "report.html"


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask by any registered method, assess, and write the internal report."""
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    assessment = workflow.assess(masked, measures=payload.get("measures"), attributes=payload.get("attributes"))
    context.progress(0.8, "writing the report")
    workflow.report(masked, context.result_folder / REPORT, assessment=assessment)
    spec = asked(payload, "measures", "attributes", "replicate")
    return {"kind": "masking", "id": context.save_result("masking", spec, summary_of(masked, assessment))}


TASK = Task("mask", run)
