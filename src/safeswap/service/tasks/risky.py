"""The job that counts unsafe combinations where that takes too long for somebody who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safeswap import workflow
from safeswap.service.tasks.context import Context, Task
from safeswap.service.tasks.prepared import plain_data

if TYPE_CHECKING:
    from safeswap.search.argus_session import ArgusSession


def told(session: ArgusSession) -> dict[str, Any]:
    """What is told of a list of unsafe combinations, now and after each step of the recipe: totals, never values."""
    found = session.now.risky
    stages = [stage.as_dict() for stage in session.stages]
    if found is not None:
        return {"sentence": found.sentence, **found.as_dict(), "stages": stages}
    none: dict[str, Any] = {"protected": "", "unsafe_records": 0, "unsafe_combinations": 0, "by_dimension": {}}
    nothing = {**none, "records": len(session.now.data), "keys": [], "combinations": []}
    return {"sentence": "No combination of keys is left.", **nothing, "stages": stages}


def run(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Count, and keep the totals."""
    context.progress(0.05, "counting the combinations")
    recipe = payload.get("recipe") or []
    session = workflow.argus_session(
        plain_data(context, payload), payload["combinations"], recipe=recipe, key=context.key()
    )
    summary = told(session)
    spec = {"combinations": payload["combinations"], "recipe": recipe}
    return {"kind": "risky", "id": context.save_result("risky", spec, summary)}


TASK = Task("risky", run)
