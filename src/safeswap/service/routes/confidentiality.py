"""The confidentiality plot of a masking: each record by perturbation and neighbours."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field

from safeswap import workflow
from safeswap.model.scenario import Scenario
from safeswap.service.http.problems import NotFound, Unprocessable
from safeswap.service.http.wire import Identifier, Wire, example
from safeswap.service.people.roles import Reader, Worker
from safeswap.service.routes.jobs import (
    NONE_YET,
    Job,
    ResultId,
    find_or_latest,
    offer_results,
    payload_of,
    serve_page,
    submit,
)
from safeswap.service.routes.maskings import AS_SCENARIO, find_masking, masking_request
from safeswap.service.routes.settings import scenario_of
from safeswap.service.work.tasks import Context, Task, masked_data, request_of

router = APIRouter(tags=["confidentiality"])

# Options allowed over HTTP; not those that name server files (archive, population).
OPTIONS = frozenset({"alpha", "scale", "distance", "policy", "weight", "sampling_fraction", "importance", "k"})

PAGE = "plot.html"
PAYLOAD = "plot.json"


class ConfidentialityRequest(Wire):
    """Compute the confidentiality plot of a masking."""

    model_config = example(masking="6f1c2d9a", keys=["turnover", "employees"], linkage="auto", options={})

    masking: Identifier
    keys: tuple[str, ...] = Field(default=(), max_length=50, description="Needed unless a scenario states them.")
    scenario: Scenario | None = AS_SCENARIO
    linkage: str = Field(default="auto", pattern="^(auto|distance|fellegi_sunter|frequency)$")
    options: dict[str, Any] = Field(default_factory=dict, description="As for `confidentiality` in Python.")


@router.post("/projects/{project_id}/confidentiality", status_code=202)
def ask_for_plot(request: Request, response: Response, access: Worker, body: ConfidentialityRequest) -> Job:
    """Link every record of a masking to the original as an intruder would, and plot the result."""
    unknown = sorted(set(body.options) - OPTIONS)
    if unknown:
        raise Unprocessable(
            "there is no such option", code="unknown-option", hint="options: " + ", ".join(sorted(OPTIONS))
        )
    scenario = body.scenario if body.scenario is not None or body.keys else scenario_of(access)
    if not body.keys and scenario is None:
        raise Unprocessable("name the keys, or state a scenario", code="bad-keys", hint='"keys": ["turnover"]')
    if scenario is not None:
        scenario.require_persons("a confidentiality plot")
    row = find_masking(access, body.masking)
    payload = {
        "masking": row.id,
        **masking_request(row),
        "keys": list(body.keys),
        "linkage": body.linkage,
        "options": body.options,
        **({} if scenario is None else {"scenario": scenario.as_dict()}),
    }
    return submit(request, response, access, "confidentiality", payload)


offer_results(router, "confidentiality", "confidentiality", "Get one plot: the request and its totals.")


@router.get(
    "/projects/{project_id}/confidentiality/{result_id}/plot", response_model=dict[str, Any], responses=NONE_YET
)
def get_plot_payload(access: Reader, result_id: ResultId) -> Response:
    """Get the plot's data for its script: points, or bins if there are many; `latest` is the newest."""
    row = find_or_latest(access, result_id, "confidentiality")
    if row is None:
        return Response(status_code=204)
    path = access.service.store.result(access.id, row.id) / PAYLOAD
    if not path.is_file():
        raise NotFound("there is no such plot")
    return payload_of(row, path.read_bytes(), "plot")


@router.get("/projects/{project_id}/confidentiality/{result_id}/plot.html", response_class=FileResponse)
def get_plot_page(access: Reader, result_id: ResultId) -> FileResponse:
    """Get the plot as a standalone page."""
    return serve_page(access, result_id, "confidentiality", PAGE)


def run_confidentiality(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask, link each record to the release as an intruder would, and store the plot."""
    from safeswap.charts.confidentiality import default_second, plot_payload
    from safeswap.reports.plot_files import write_plot

    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.3, "looking for neighbours")
    options = payload.get("options") or {}
    plot = workflow.confidentiality(
        masked,
        keys=payload["keys"],
        linkage=payload.get("linkage", "auto"),
        key=context.key(),
        scenario=payload.get("scenario"),
        **options,
    )
    # Identifiers are values of records: the API identifies records by position.
    plot = plot.numbered()
    context.progress(0.9, "writing the plot")
    write_plot(plot, context.result_folder / PAGE)
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
    summary |= {"scenario": plot.settings["scenario"]} if "scenario" in plot.settings else {}
    spec = request_of(payload, "masking", "keys", "linkage", "options", "scenario")
    return context.save_result("confidentiality", spec, summary)


TASKS = (Task("confidentiality", run_confidentiality),)
