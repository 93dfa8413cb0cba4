"""The risk of a project's data from several sides, before the pipeline and after it: a sentence and some bars each.

The confidentiality plot of a masking has each record by perturbation and neighbours.
"""

from __future__ import annotations

import json
from math import comb
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field

from safeswap import workflow
from safeswap.errors import SafeswapError
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.model.text import plural
from safeswap.service.http.problems import NotFound, Unprocessable
from safeswap.service.http.wire import Identifier, Wire, example
from safeswap.service.people.roles import ProjectAccess, Reader, Worker
from safeswap.service.routes.argus import RiskyRequest
from safeswap.service.routes.jobs import (
    NONE_YET,
    Job,
    QuestionSlot,
    ResultId,
    find_or_latest,
    load_data_version,
    offer_results,
    payload_of,
    refuse_long,
    serve_page,
    submit,
)
from safeswap.service.routes.maskings import AS_SCENARIO, find_masking, masking_request
from safeswap.service.routes.settings import data_after, project_of, scenario_of
from safeswap.service.work.rare import Noise, check_tolerance
from safeswap.service.work.tasks import Context, Task, masked_data, request_of

if TYPE_CHECKING:
    from safeswap.measures.risk.by_record import Bar, RiskView
    from safeswap.model.microdata import Microdata

router = APIRouter(tags=["risk"])

ViewName = Literal["groups", "individual", "households", "suda", "population"]


class RiskBar(Wire):
    """A bar of a view: after the pipeline, and in the file itself."""

    label: str
    now: int
    before: int | None = Field(description="None if the bar has no counterpart in the file itself.")


class RiskViewAnswer(Wire):
    """The risk from one side: totals with noise, never values."""

    view: ViewName
    scenario: str
    sentence: str = Field(description="What was found; empty if nothing could be.")
    problem: str = Field(default="", description="Why this view does not apply, and what would help.")
    unit: str = "records"
    total: int = 0
    at_risk: int = 0
    at_risk_before: int | None = None
    bars: tuple[RiskBar, ...] = ()
    sensitive: tuple[RiskBar, ...] = Field(
        default=(), description="Records of which a sensitive value can be inferred."
    )
    steps: int = Field(default=0, description="Steps of the pipeline that are switched on.")


@router.post("/projects/{project_id}/risk-views/{view}")
def view_risk(access: Worker, view: ViewName, body: RiskyRequest, _: QuestionSlot) -> RiskViewAnswer:
    """Look at the risk from one side, in the file and after the pipeline. Totals are approximate."""
    from safeswap.measures.risk.by_record import make_view

    access.require_data()
    asked = as_scenario(body.asked(access))
    check_tolerance(asked, access.row.tolerance)
    _refuse_long(access, view, asked)
    original = load_data_version(access, version=access.row.data_version, recipe=None)
    listed = project_of(access).listed
    steps = sum(is_on for _, is_on in listed)
    try:
        data = data_after(access, len(listed)) if steps else original
        before = make_view(view, original, original, asked)
        now = make_view(view, original, data, asked) if steps else before
    except SafeswapError as error:
        told = ". ".join(_capitalise(part) for part in (error.message, error.hint) if part)
        problem = _PLAIN.get(error.code, f"{told}.")
        return RiskViewAnswer(view=view, scenario=asked.name, sentence="", problem=problem, steps=steps)
    if isinstance(now, str) or isinstance(before, str):
        return RiskViewAnswer(view=view, scenario=asked.name, sentence="", problem=str(now), steps=steps)
    shown = _Shown(access, original)
    return shown.answer(view, asked, now, before, steps)


_PLAIN = {
    "bad-population": "The size of the population is not known: give the scenario a survey weight, or the "
    "number of people in the population.",
    "no-household": "No column numbers the households: if there is one, set its kind to household on the Data page.",
}


class _Shown:
    """Counts with noise that follows from the records concerned, however the question is put."""

    def __init__(self, access: ProjectAccess, original: Microdata) -> None:
        self.noise = Noise(key=access.key, tolerance=access.row.tolerance)
        self.words = self.noise.words(len(original))

    def count(self, bar: Bar, most: int) -> int:
        return self.noise.add(bar.count, "records", self._about(bar), most=most)

    def _about(self, bar: Bar) -> int:
        return int(self.words[bar.rows].sum(dtype=np.uint64))

    def answer(self, view: ViewName, asked: Scenario, now: RiskView, before: RiskView, steps: int) -> RiskViewAnswer:
        first = {bar.label: self.count(bar, before.total) for bar in before.bars}
        at_risk, at_first = self.count(now.at_risk, now.total), self.count(before.at_risk, before.total)
        bars = [
            RiskBar(label=bar.label, now=self.count(bar, now.total), before=first.get(bar.label)) for bar in now.bars
        ]
        if view == "population":
            pairs = [(self._share(now, at_risk, part), self._share(before, at_first, part)) for part in (0, 1)]
            labels = ("expected to be unique in the population", "expected to be matched correctly")
            bars += [RiskBar(label=label, now=a, before=b) for label, (a, b) in zip(labels, pairs, strict=True)]
        inferred = {bar.label: self.count(bar, before.total) for bar in before.sensitive}
        sensitive = tuple(
            RiskBar(label=bar.label, now=self.count(bar, now.total), before=inferred.get(bar.label))
            for bar in now.sensitive
        )
        answer = RiskViewAnswer(
            view=view,
            scenario=asked.name,
            sentence="",
            unit=now.unit,
            total=now.total,
            at_risk=at_risk,
            at_risk_before=at_first,
            bars=tuple(bars),
            sensitive=sensitive,
            steps=steps,
        )
        return answer.model_copy(update={"sentence": self._sentence(answer, asked, now)})

    def _share(self, view: RiskView, uniques: int, part: int) -> int:
        """Return an estimate of the model for as many uniques as are shown."""
        value = (view.expected_unique, view.expected)[part] or 0.0
        return round(value * uniques / view.at_risk.count) if view.at_risk.count else 0

    def _sentence(self, found: RiskViewAnswer, asked: Scenario, now: RiskView) -> str:
        number = f"about {found.at_risk:,}" if found.at_risk else "none"
        share = f" ({found.at_risk / found.total:.1%})" if found.at_risk and found.total else ""
        of = f"{number} of {found.total:,} {found.unit}{share}"
        if found.view == "groups":
            keys = plural(len(now.keys), "key")
            told = f"{of} are in groups of {found.bars[0].label} records with the same values of {keys}"
            for bar in found.sensitive:
                told += f"; {bar.label} can be inferred of {f'about {bar.now:,}' if bar.now else 'none'}"
        elif found.view in ("individual", "households"):
            which = map(self._about, (*now.bars, now.at_risk))
            expected = self.noise.add(round(now.expected or 0.0), "expected", *which, most=found.total)
            whose = "the file counts as the population" if asked.weight is None else f"weighted by {asked.weight}"
            way = "" if found.view == "individual" else " through a member"
            told = (
                f"about {expected:,} of {found.total:,} {found.unit} are expected to be found{way}; {number} at a risk "
                f"of 10% or more ({whose})"
            )
        elif found.view == "suda":
            told = f"{of} are made unique by at most three of the keys"
        else:
            told = (
                f"{of} are unique in the file; of these about {found.bars[1].now:,} are expected to be unique in the "
                f"population, and {found.bars[2].now:,} to be matched correctly"
            )
        return _capitalise(told) + "."


def _refuse_long(access: ProjectAccess, view: ViewName, asked: Scenario) -> None:
    keys = len(asked.names)
    tables = {"suda": 2 * sum(comb(keys, size) for size in (1, 2, 3)), "population": 40}.get(view, 6)
    refuse_long(access.service.settings.limits, records=access.row.records, tables=tables)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


plot_router = APIRouter(tags=["confidentiality"])

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


@plot_router.post("/projects/{project_id}/confidentiality", status_code=202)
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


offer_results(plot_router, "confidentiality", "confidentiality", "Get one plot: the request and its totals.")


@plot_router.get(
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


@plot_router.get("/projects/{project_id}/confidentiality/{result_id}/plot.html", response_class=FileResponse)
def get_plot_page(access: Reader, result_id: ResultId) -> FileResponse:
    """Get the plot as a standalone page."""
    return serve_page(access, result_id, "confidentiality", PAGE)


def run_confidentiality(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask, link each record to the release as an intruder would, and store the plot."""
    from safeswap.charts.confidentiality import default_second, plot_payload, write_plot

    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.3, "searching for neighbours")
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
