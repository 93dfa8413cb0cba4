"""The job that runs a risk-utility study, and goes on where it was when a worker dies."""

from __future__ import annotations

from typing import Any

from safeswap import workflow
from safeswap.errors import InfeasibleError
from safeswap.model.study import StudySpec
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import prepared_data

STUDY = "study"


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Evaluate every candidate; what is finished outlives the worker, since the job keeps a checkpoint."""
    context.progress(0.01, "reading the data")
    data = prepared_data(context, payload)
    spec = StudySpec(**payload["spec"])

    def done(finished: int, total: int) -> None:
        context.progress(0.05 + 0.85 * finished / max(total, 1), f"{finished:,} of {total:,} candidates")

    found = workflow.study(data, spec, key=context.key(), progress=done, checkpoint=context.checkpoint)
    context.progress(0.92, "choosing, and writing the report")
    try:
        choice = found.choose(spec.objective)
    except InfeasibleError:
        choice = None  # no candidate meets the objective: the map is still worth looking at
    workflow.save_study(found, context.result_folder / STUDY, choice=choice, data=data)
    summary = {
        "candidates": len(found),
        "specifications": len(found.specs),
        "rejected": found.rejected().num_rows,
        "records": len(data),
        "frontier": len(found.frontier()),
        "choice": None if choice is None else choice.as_dict(),
    }
    asked = {"spec": spec.model_dump(mode="json"), "recipe": payload.get("recipe")}
    return {"kind": "study", "id": context.save_result("study", asked, summary)}


TASK = Task("study", run)
