"""Jobs that run the library: mask, assess, count risky combinations, safe tables, studies, confidentiality plots.

Results hold figures, never masked records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safeswap import workflow
from safeswap.errors import InfeasibleError, InputError
from safeswap.model.study import StudySpec
from safeswap.model.text import several
from safeswap.service.tasks.context import Context, Task
from safeswap.service.work.rare import Noise, perturb_risky, rare_texts

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata
    from safeswap.model.score import Assessment
    from safeswap.service.tasks.context import Context
    from safeswap.workflow.session import ArgusSession, Stage


def plain_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """Return the project's data; refuse if they changed since the job was submitted."""
    asked_for = payload.get("data_version", context.project["data_version"])
    if asked_for != context.project["data_version"]:
        raise InputError(
            "the project has other data now than when this was asked for",
            code="data-changed",
            hint="look at the data, and ask again",
        )
    return context.data()


def prepared_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """Return the project's data after the recipe stored with the job."""
    data = plain_data(context, payload)
    recipe = payload.get("recipe")
    return workflow.recode(data, recipe, key=context.key()) if recipe else data


def masked_data(context: Context, payload: dict[str, Any]) -> Masked:
    """Mask the project's data.

    Masking is a pure function of data, specification and key, so masked records are never stored between masking and
    release: they are recomputed when needed.
    """
    return workflow.mask(
        prepared_data(context, payload), payload["spec"], key=context.key(), replicate=payload.get("replicate", 0)
    )


def summarise(masked: Masked, assessment: Assessment) -> dict[str, Any]:
    """Summarise a masking for internal use: totals and figures, no record."""
    return {
        **masked.as_dict(),
        "plan": masked.plan.sentence,
        "unit": masked.audit.unit,
        **assessment.as_dict(),
    }


def request_of(payload: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the part of a payload that is stored with the result."""
    return {name: payload[name] for name in ("spec", "recipe", *names) if payload.get(name) is not None}


def run_assess(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again and assess by other measures or attributes."""
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    assessment = workflow.assess(masked, measures=payload.get("measures"), attributes=payload.get("attributes"))
    spec = request_of(payload, "masking", "measures", "attributes", "replicate")
    return {"kind": "assessment", "id": context.save_result("assessment", spec, summarise(masked, assessment))}


ASSESS_TASK = Task("assess", run_assess)


REPORT = "report.html"


def run_mask(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask by any registered method, assess, and write the internal report."""
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    assessment = workflow.assess(masked, measures=payload.get("measures"), attributes=payload.get("attributes"))
    context.progress(0.8, "writing the report")
    workflow.report(masked, context.result_folder / REPORT, assessment=assessment)
    spec = request_of(payload, "measures", "attributes", "replicate")
    return {"kind": "masking", "id": context.save_result("masking", spec, summarise(masked, assessment))}


MASK_TASK = Task("mask", run_mask)


def summarise_risky(session: ArgusSession, noise: Noise) -> dict[str, Any]:
    """Summarise the unsafe combinations, now and after each step of the recipe: totals with noise, never values."""
    found = session.now.risky
    stages = [_summarise_stage(stage, noise) for stage in session.stages]
    if found is not None:
        shown = perturb_risky(found, noise)
        sentence = f"about {shown.sentence}" if shown.unsafe else shown.sentence
        return {"sentence": sentence, **shown.as_dict(), "stages": stages}
    none: dict[str, Any] = {"protected": "", "unsafe_records": 0, "unsafe_combinations": 0, "by_dimension": {}}
    nothing = {**none, "records": len(session.now.data), "keys": [], "combinations": []}
    return {"sentence": "No combination of keys is left.", **nothing, "stages": stages}


def _summarise_stage(stage: Stage, noise: Noise) -> dict[str, Any]:
    told = stage.as_dict()
    if told["unsafe_combinations"] and stage.risky is not None:
        shown = perturb_risky(stage.risky, noise).as_dict()
        told |= {name: shown[name] for name in ("unsafe_combinations", "unsafe_records", "by_dimension")}
    return told


def run_risky(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Count the unsafe combinations and store the totals."""
    context.progress(0.05, "counting the combinations")
    recipe = payload.get("recipe") or []
    session = workflow.argus_session(
        plain_data(context, payload), payload["combinations"], recipe=recipe, key=context.key()
    )
    summary = summarise_risky(session, Noise(key=context.key(), tolerance=int(context.project["tolerance"])))
    spec = {"combinations": payload["combinations"], "recipe": recipe}
    return {"kind": "risky", "id": context.save_result("risky", spec, summary)}


RISKY_TASK = Task("risky", run_risky)


MOST_CELLS = 5_000


def run_safe_tables(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Find the nearest safe tables, write the internal report, and store the cells that may be shown."""
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
    """Return the publishable cells of a safe table. The original counts and rare levels are only in the report."""
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


SAFE_TABLES_TASK = Task("safe_tables", run_safe_tables)


STUDY = "study"


def run_study(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Run a risk-utility study; a checkpoint lets the next attempt resume if the worker dies."""
    context.progress(0.01, "reading the data")
    data = prepared_data(context, payload)
    spec = StudySpec(**payload["spec"])

    def report(finished: int, total: int) -> None:
        context.progress(0.05 + 0.85 * finished / max(total, 1), f"{finished:,} of {several(total, 'candidate')}")

    found = workflow.study(data, spec, key=context.key(), progress=report, checkpoint=context.checkpoint)
    context.progress(0.92, "choosing, and writing the report")
    try:
        choice = found.choose(spec.objective)
    except InfeasibleError:
        choice = None  # no candidate meets the objective: the map is still useful
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


STUDY_TASK = Task("study", run_study)


PAGE = "plot.html"
PAYLOAD = "plot.json"


def run_confidentiality(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask, link each record to the release as an intruder would, and store the plot."""
    from safeswap.charts.confidentiality import default_second, plot_payload

    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.3, "looking for neighbours")
    options = payload.get("options") or {}
    plot = workflow.confidentiality(
        masked, keys=payload["keys"], linkage=payload.get("linkage", "auto"), key=context.key(), **options
    )
    # Identifiers are values of records: the API identifies records by position.
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
    spec = request_of(payload, "masking", "keys", "linkage", "options")
    return {"kind": "confidentiality", "id": context.save_result("confidentiality", spec, summary)}


CONFIDENTIALITY_TASK = Task("confidentiality", run_confidentiality)


TASKS = (ASSESS_TASK, MASK_TASK, RISKY_TASK, SAFE_TABLES_TASK, STUDY_TASK, CONFIDENTIALITY_TASK)
