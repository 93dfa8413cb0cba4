"""Risk-utility studies: run one, inspect its candidates, choose."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field

from safeswap import workflow
from safeswap.charts.points import Room, map_payload
from safeswap.errors import InfeasibleError
from safeswap.model.study import StudySpec
from safeswap.model.text import plural
from safeswap.service.http.problems import NotFound, Unprocessable
from safeswap.service.http.wire import Page, Paged, Wire, example, write_cursor
from safeswap.service.people.roles import ProjectAccess, Reader, Worker
from safeswap.service.routes.jobs import (
    NONE_YET,
    STUDY,
    Job,
    QuestionSlot,
    ResultId,
    can_answer,
    find_or_latest,
    find_result,
    load_data,
    offer_results,
    payload_of,
    serve_page,
    submit,
)
from safeswap.service.routes.maskings import TableAttributes, table_of
from safeswap.service.routes.settings import project_of, scenario_of
from safeswap.service.work.rare import BeforeAfterAnswer
from safeswap.service.work.tasks import Context, Task, prepared_data, read_schema

if TYPE_CHECKING:
    from safeswap.studies.study import Study

router = APIRouter(tags=["studies"])

Number = Annotated[int, Path(ge=0, le=2**31 - 1, description="Number of the candidate.")]

# The map holds every candidate it can draw; tables and texts are fetched on demand.
ROOM = Room(specifications=10_000, draws=30_000, tables=1_000_000, texts=500_000)


class StudyRequest(Wire):
    """A study of many candidates. The parameters are those of a study in Python.

    Without `first` and `last`, the recodes at the beginning of the pipeline come first.
    """

    model_config = example(
        spec={"attributes": ["Race", "Sex"], "rates": [0.01, 0.1], "replicates": 5, "objective": "linear:a=1"}
    )

    spec: dict[str, Any] = Field(default_factory=dict)


class StudySize(Wire):
    """The number of candidates of a study."""

    candidates: int


class Candidate(Wire):
    """One candidate release: figures only."""

    number: int
    specification: int
    label: str
    constraint: str
    rate: float | None
    replicate: int
    outcome: str
    reason: str
    scores: dict[str, float | None]
    on_frontier: bool


class DistortionTable(Wire):
    """The distortion of one two-way table, by measure."""

    attributes: tuple[str, str]
    values: dict[str, float | None]


class CandidateAnswer(Candidate):
    """One candidate in detail: its specification as Python, command and TOML, and all distorted two-way tables."""

    spec: dict[str, Any]
    python: str
    command: str
    toml: str
    tables: tuple[DistortionTable, ...]


class ChoiceRequest(Wire):
    """The objective for choosing a candidate."""

    model_config = example(objective="linear:a=2")

    objective: str = Field(max_length=500, description="linear:a=…, cap_risk:… or cap_distortion:…")
    risk: str | None = Field(default=None, max_length=200, description="Measure on the vertical axis.")
    distortion: str | None = Field(default=None, max_length=200, description="Measure on the horizontal axis.")


class ChoiceAnswer(Wire):
    """The chosen candidate, and the reason."""

    candidate: int
    specification: int
    spec: dict[str, Any]
    replicate: int
    risk: float
    distortion: float
    objective: str
    dominates: int
    certainty: float | None
    sentence: str
    rivals: tuple[dict[str, Any], ...]


@router.post("/projects/{project_id}/study-size")
def study_size(access: Reader, body: StudyRequest, _: QuestionSlot) -> StudySize:
    """Count the candidates of a study; refuse one that cannot be run."""
    return StudySize(candidates=_count_candidates(access, _spec_of(access, body)))


@router.post("/projects/{project_id}/studies", status_code=202)
def ask_for_study(request: Request, response: Response, access: Worker, body: StudyRequest, _: QuestionSlot) -> Job:
    """Run a study. Finished candidates are kept: it resumes if the worker dies."""
    spec = _spec_of(access, body)
    most = access.service.settings.limits.candidates
    if (size := _count_candidates(access, spec)) > most:
        raise Unprocessable(
            f"the study has {size:,} candidates, the most allowed here are {most:,}",
            code="too-many-candidates",
            hint="fewer attributes together, fewer rates or fewer replicates",
            candidates=size,
            most=most,
        )
    payload = {"spec": spec.model_dump(mode="json"), "recipe": access.recipe}
    return submit(request, response, access, "study", payload)


offer_results(
    router,
    "studies",
    "study",
    "Get one study: the request, the number of candidates, and the one chosen by its objective.",
)


@router.get("/projects/{project_id}/studies/{result_id}/map", response_model=dict[str, Any], responses=NONE_YET)
def get_map(access: Reader, result_id: ResultId) -> Response:
    """Get the risk-utility map's data for its script; `latest` is the newest study's."""
    row = find_or_latest(access, result_id, "study")
    if row is None:
        return Response(status_code=204)
    objective = row.spec["spec"]["objective"] if row.summary["choice"] is not None else None
    return payload_of(row, _map_text(_folder(access, row.id), objective), "map")


@router.get("/projects/{project_id}/studies/{result_id}/candidates")
def list_candidates(access: Reader, result_id: ResultId, paging: Paged) -> Page[Candidate]:
    """List the candidates of a study by number."""
    _, found = _find_study(access, result_id)
    start = _start_of_page(paging.after)
    on_frontier = {int(number) for number in found.frontier()}
    rows = found.table.slice(start, paging.limit).to_pylist()
    items = [_candidate_answer(found, row, on_frontier=row["candidate"] in on_frontier) for row in rows]
    end = start + len(rows)
    return Page[Candidate](items=items, next=write_cursor([end]) if rows and end < len(found) else None)


@router.get("/projects/{project_id}/studies/{result_id}/candidates/{number}")
def get_candidate(access: Reader, result_id: ResultId, number: Number) -> CandidateAnswer:
    """Get one candidate in detail: its specification, its scores and the distortion of every two-way table."""
    from safeswap.arrays.two_way import MEASURES
    from safeswap.charts import spec_text

    _, found = _find_study(access, result_id)
    row = _find_candidate(found, number)
    spec = found.specs[row["specification"]]
    plain = _candidate_answer(found, row, on_frontier=number in {int(each) for each in found.frontier()})
    tables = {measure: found.distortion_table(number, measure) for measure in MEASURES}
    values = {measure: table.column(measure).to_pylist() for measure, table in tables.items() if table is not None}
    return CandidateAnswer(
        **plain.model_dump(),
        spec=spec.as_dict(),
        python=spec_text.python_text(spec, replicate=row["replicate"]),
        command=spec_text.command_text(spec, replicate=row["replicate"]),
        toml=spec_text.toml_text(spec),
        tables=tuple(
            DistortionTable(attributes=pair, values={measure: _finite(found[i]) for measure, found in values.items()})
            for i, pair in enumerate(found.table_pairs)
            if values
        ),
    )


@router.get("/projects/{project_id}/studies/{result_id}/candidates/{number}/table")
def get_before_after(
    access: Reader,
    result_id: ResultId,
    number: Number,
    attributes: TableAttributes,
    _: QuestionSlot,
) -> BeforeAfterAnswer:
    """Get a table of the original and this candidate, side by side; counts below the tolerance are not shown."""
    row, found = _find_study(access, result_id)
    chosen = _find_candidate(found, number)
    spec = found.specs[chosen["specification"]]
    return table_of(access, row, spec, replicate=chosen["replicate"], attributes=attributes)


@router.post("/projects/{project_id}/studies/{result_id}/choice")
def choose(access: Reader, result_id: ResultId, body: ChoiceRequest) -> ChoiceAnswer:
    """Choose a candidate by an objective, with the reason. Nothing is changed."""
    _, found = _find_study(access, result_id)
    choice = found.choose(body.objective, risk=body.risk, distortion=body.distortion)
    number = found.table.column("specification")[choice.candidate].as_py()
    rivals = tuple(
        {name: _finite(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in choice.rivals.to_pylist()
    )
    return ChoiceAnswer(specification=number, **{**choice.as_dict(), "rivals": rivals})


@router.get("/projects/{project_id}/studies/{result_id}/report.html", response_class=FileResponse)
def get_study_report(access: Reader, result_id: ResultId) -> FileResponse:
    """Get the internal report of a study."""
    return serve_page(access, result_id, "study", f"{STUDY}/report.html")


def _spec_of(access: ProjectAccess, body: StudyRequest) -> StudySpec:
    """Return the study under its scenario, or under the one in use if it names none and no keys of its own.

    If it states no first steps, the recodes at the beginning of the pipeline are those.
    """
    stated = dict(body.spec)
    if "scenario" not in stated and (scenario := scenario_of(access)) is not None:
        stated["scenario"] = scenario
    if not {"first", "last"} & set(stated) and not access.recipe:
        steps = project_of(access).pipeline.as_dict()["steps"]
        stated["first"] = list(takewhile(lambda step: step["method"] == "recode", steps))
    return StudySpec(**stated)


def _count_candidates(access: ProjectAccess, spec: StudySpec) -> int:
    from safeswap.studies.run import count_candidates

    service = access.service
    access.require_data()
    if can_answer(service.settings.limits, access, access.recipe):
        return count_candidates(load_data(access), spec)
    # Too large for the server: an invalid study is refused by the job.
    schema = read_schema(service.store, access.id, access.row.data_version)
    return spec.number_of_candidates(spec.attributes or schema.categorical)


def _find_study(access: ProjectAccess, result_id: str) -> tuple[Any, Study]:
    row = find_result(access, result_id, "study")
    return row, _load_study(_folder(access, row.id))


def _folder(access: ProjectAccess, result_id: str) -> str:
    return str(access.service.store.result(access.id, result_id) / STUDY)


@lru_cache(maxsize=8)
def _load_study(folder: str) -> Study:
    # Studies are immutable and are requested repeatedly.
    from safeswap.studies.study import Study

    return Study.load(folder)


@lru_cache(maxsize=8)
def _map_text(folder: str, objective: str | None) -> bytes:
    # Serialised: making the payload dominates the request.
    found = _load_study(folder)
    choice = found.choose(objective) if objective is not None else None
    return json.dumps(map_payload(found, choice=choice, room=ROOM), allow_nan=False, separators=(",", ":")).encode()


def _start_of_page(after: tuple[Any, ...] | None) -> int:
    if after is None:
        return 0
    if len(after) != 1 or not isinstance(after[0], int) or after[0] < 0:
        raise Unprocessable(
            "the cursor belongs to another list", code="bad-cursor", hint="use `next` of the previous page"
        )
    return after[0]


def _find_candidate(found: Study, number: int) -> dict[str, Any]:
    if number >= len(found):
        raise NotFound("there is no such candidate", hint=f"candidates are numbered from 0 to {len(found) - 1:,}")
    row: dict[str, Any] = found.table.slice(number, 1).to_pylist()[0]
    return row


def _candidate_answer(found: Study, row: dict[str, Any], *, on_frontier: bool) -> Candidate:
    return Candidate(
        number=row["candidate"],
        specification=row["specification"],
        label=row["label"],
        constraint=row["constraint"],
        rate=_finite(row["rate"]),
        replicate=row["replicate"],
        outcome=row["outcome"],
        reason=row["reason"] or "",
        scores={measure: _finite(row[measure]) for measure in found.spec.measures},
        on_frontier=on_frontier,
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def run_study(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Run a risk-utility study; a checkpoint lets the next attempt resume if the worker dies."""
    context.progress(0.01, "reading the data")
    data = prepared_data(context, payload)
    spec = StudySpec(**payload["spec"])

    def report(finished: int, total: int) -> None:
        context.progress(0.05 + 0.85 * finished / max(total, 1), f"{finished:,} of {plural(total, 'candidate')}")

    found = workflow.study(data, spec, key=context.key(), progress=report, checkpoint=context.checkpoint)
    context.progress(0.92, "choosing, and writing the report")
    try:
        choice = found.choose(spec.objective)
    except InfeasibleError:
        choice = None  # no candidate meets the objective: the map is still useful
    found.save(context.result_folder / STUDY, choice=choice, data=data)
    summary = {
        "candidates": len(found),
        "specifications": len(found.specs),
        "rejected": found.rejected().num_rows,
        "records": len(data),
        "frontier": len(found.frontier()),
        "frontier_specifications": _count_best(found),
        "choice": None if choice is None else choice.as_dict(),
    }
    asked = {"spec": spec.model_dump(mode="json"), "recipe": payload.get("recipe")}
    return context.save_result("study", asked, summary)


def _count_best(found: Study) -> int:
    """Return how many specifications no other beats at the means of their draws: the frontier of the map."""
    from safeswap.model.study import find_undominated

    means = found.summary()
    # Rounded as on the map: means that differ by the order of their sum are the same.
    risk, distortion = (
        [float(f"{v:.9g}") for v in means[f"{axis}_mean"].to_numpy()] for axis in ("risk", "distortion")
    )
    return int(find_undominated(np.array(risk), np.array(distortion)).sum())


TASKS = (Task("study", run_study),)
