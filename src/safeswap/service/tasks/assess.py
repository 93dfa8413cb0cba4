"""The job that measures a masking again, by other measures or on other attributes."""

from __future__ import annotations

from typing import Any

from safeswap import workflow
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import asked, masked_data, summary_of


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Make the same masked records again and assess them."""
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    assessment = workflow.assess(masked, measures=payload.get("measures"), attributes=payload.get("attributes"))
    spec = asked(payload, "masking", "measures", "attributes", "replicate")
    return {"kind": "assessment", "id": context.save_result("assessment", spec, summary_of(masked, assessment))}


TASK = Task("assess", run)
