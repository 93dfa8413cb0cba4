"""Plan, mask and assess, by any registered method."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from sqlalchemy import Row, delete, select

from safeswap import registry, workflow
from safeswap.model.scenario import Scenario
from safeswap.service.http.problems import Conflict, Unprocessable
from safeswap.service.http.wire import Identifier, Wire, example
from safeswap.service.keeping.ledger import export_known
from safeswap.service.keeping.store import erase
from safeswap.service.keeping.tables import releases, results
from safeswap.service.people.roles import ProjectAccess, Reader, Worker, WorkReader
from safeswap.service.routes.jobs import (
    LATEST,
    REPORT,
    STUDY,
    Job,
    QuestionSlot,
    ResultId,
    find_or_latest,
    find_result,
    load_data,
    load_data_version,
    offer_results,
    serve_page,
    submit,
)
from safeswap.service.routes.settings import data_after, project_of, scenarios_of, with_default_keys
from safeswap.service.work.rare import BeforeAfterAnswer, Noise, before_after, refuse_below
from safeswap.service.work.tasks import Context, Task, masked_data, prepared_data, request_of
from safeswap.workflow.thresholds import mask_below

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.score import Assessment
    from safeswap.reports.facts import Facts
    from safeswap.studies.study import Study

router = APIRouter(tags=["masking"])

MOST_RECORDS_AT_ONCE = 2_000_000  # larger files take too long for an interactive table
MOST_SECONDS_AT_ONCE = 60.0
_REPORT = "see the report"
FACTS = "facts.json"
"""The facts of a masking, from which its reports for all readers are made; confidential."""

TableAttributes = Annotated[list[str], Query(min_length=1, max_length=3, description="One to three attributes.")]
Spec = dict[str, Any]
Measures = Annotated[
    tuple[str, ...] | None,
    Field(min_length=1, max_length=50, description="Default: those that apply to what was changed."),
]


AS_SCENARIO = Field(
    default=None,
    description="Who might attack: states the keys of the measures of risk. Default: every scenario of the project, "
    "that in use first.",
)


class PlanRequest(Wire):
    """A specification to plan."""

    model_config = example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05})

    spec: Spec = Field(description="`method` and its parameters.")
    after_steps: int | None = Field(
        default=None, ge=0, le=1000, description="Plan it after that many steps of the pipeline; default: the recipe."
    )


class RelaxationAnswer(Wire):
    """A change of the specification and the number of pairs it would allow."""

    change: str
    feasible: int
    at_most: int | None = None


class PlanAnswer(Wire):
    """Pairs requested, pairs feasible, and the binding constraint."""

    model_config = example(
        method="swap",
        records=48842,
        asked=1221,
        feasible=7080,
        is_feasible=True,
        binds=["Race"],
        sentence="1,221 pairs requested, at most 7,080 feasible; Race binds",
        relaxations=[],
        details={},
    )

    method: str
    records: int
    asked: int
    feasible: int
    at_most: int | None = None
    is_feasible: bool
    binds: tuple[str, ...]
    sentence: str
    relaxations: tuple[RelaxationAnswer, ...]
    details: dict[str, Any] = Field(
        description="What only this method's plan states, e.g. `moved`: households expected to move, partners included."
    )


class MaskingRequest(Wire):
    """Mask the project's data and measure the result."""

    model_config = example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}, measures=["n_rule", "hellinger"])

    spec: Spec | None = Field(default=None, description="Default: the steps of the project's pipeline, from the file.")
    measures: Measures = None
    attributes: tuple[str, ...] | None = Field(
        default=None, description="Attributes that form the cells; default: all."
    )
    scenario: Scenario | None = AS_SCENARIO
    replicate: int = Field(default=0, ge=0, lt=1_000_000)
    use_recipe: bool = Field(
        default=True, description="Mask the data after the recipe; false: the original data, e.g. to recode by `spec`."
    )
    study: Identifier | None = Field(
        default=None,
        description="Study whose map the reports show, as what was tried. Default: the newest one of the same data.",
    )


class AssessmentRequest(Wire):
    """Assess a masking again."""

    model_config = example(masking="6f1c2d9a", measures=["n_rule", "hellinger"])

    masking: Identifier
    measures: Measures = None
    attributes: tuple[str, ...] | None = None
    scenario: Scenario | None = AS_SCENARIO
    indicators: str = Field(
        default="",
        max_length=2**18,
        description="Key indicators as TOML, `[[indicators]]` blocks: a further measure, and the only one by default.",
    )


class BelowRequest(Wire):
    """Mask as little as brings every record below a threshold of risk."""

    model_config = example(keys=["Age", "Race"], threshold=0.2, by="swap", swap=["Race"])

    keys: tuple[str, ...] = Field(min_length=1, max_length=50, description="Attributes an intruder is assumed to know.")
    threshold: float = Field(gt=0, le=1, description="Largest risk: one over the number of people who share the keys.")
    by: Literal["suppress", "swap"] = "suppress"
    swap: tuple[str, ...] = Field(default=(), max_length=50, description="With `swap`: the keys to exchange.")
    fixed: tuple[str, ...] = Field(default=(), max_length=50, description="With `swap`: equal within a pair.")
    weight: str | None = Field(default=None, max_length=200, description="Survey weight by which risk is estimated.")


@router.post("/projects/{project_id}/plan")
def plan(access: Reader, body: PlanRequest, _: QuestionSlot) -> PlanAnswer:
    """Plan a specification: what it would do and whether it is feasible, from counts alone. Nothing is changed.

    Numbers of small cells, and of records in them, are approximate.
    """
    data = load_data(access) if body.after_steps is None else data_after(access, body.after_steps)
    found = workflow.plan(data, with_default_keys(access, body.spec))
    refuse_below(access.row.tolerance, found.least_tolerance)
    told = found.blur(Noise(key=access.key, tolerance=access.row.tolerance).add).as_dict()
    if isfinite(found.least_tolerance):
        told["sentence"] += " (approximate numbers)"
    return PlanAnswer(method=found.method, **told)


@router.post("/projects/{project_id}/maskings", status_code=202)
def ask_for_masking(request: Request, response: Response, access: Worker, body: MaskingRequest) -> Job:
    """Mask the data by any method and measure the result; figures are stored, never masked records."""
    payload = check_request(_spec_of(access, body), body.measures, _scenarios_of(access, body))
    recipe = access.recipe if body.use_recipe and body.spec is not None else None
    payload |= {"replicate": body.replicate, "recipe": recipe}
    if body.scenario is None and payload.get("scenarios"):
        payload["require"] = {name: list(rules) for name, rules in project_of(access).release.require.items()}
    payload["study"] = _find_study(access, body.study, recipe or None)
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "mask", payload)


def _spec_of(access: ProjectAccess, body: MaskingRequest) -> Spec:
    """Return the specification of a request, with keys; that of the project's pipeline if it has none."""
    if body.spec is not None:
        return with_default_keys(access, body.spec)
    pipeline = project_of(access).pipeline
    if not len(pipeline):
        raise Unprocessable("the project's pipeline has no step", code="no-steps", hint="add one, or state a spec")
    return pipeline.as_dict()


def _scenarios_of(access: ProjectAccess, body: MaskingRequest | AssessmentRequest) -> list[Scenario]:
    """Return the scenario that a request states, or those of the project, the one in use first."""
    if body.scenario is not None:
        return [body.scenario]
    return [] if body.attributes is not None else scenarios_of(access)


def _find_study(access: ProjectAccess, stated: str | None, recipe: Any) -> str | None:
    """Return the id of the study that a request names, or of the latest one if it has the same data."""
    row = find_or_latest(access, stated or LATEST, "study")
    if row is not None and row.data_version == access.row.data_version and (row.spec.get("recipe") or None) == recipe:
        return str(row.id)
    if stated is None:
        return None
    raise Conflict("the study was run on other data, or after different recodes", code="old-data", hint="run it again")


offer_results(
    router, "maskings", "masking", "Get one masking: the request, its plan, and its scores with the tables behind them."
)


@router.delete("/projects/{project_id}/maskings/{result_id}", status_code=204)
def undo_masking(access: Worker, result_id: ResultId) -> None:
    """Undo a masking: its figures and reports are erased, and it cannot be released. One that was requested stays."""
    row = find_result(access, result_id, "masking")
    with access.service.database.write() as connection:
        asked_for = connection.scalar(select(releases.c.id).where(releases.c.masking_id == row.id).limit(1))
        if asked_for is not None:
            raise Conflict("the release of this masking was requested", code="masking-in-use", hint="make another one")
        connection.execute(delete(results).where(results.c.id == row.id))
        access.record(connection, "masking.undo", row.id)
    erase(access.service.store.result(access.id, row.id))


@router.get("/projects/{project_id}/maskings/{result_id}/report.html", response_class=FileResponse)
def get_masking_report(access: Reader, result_id: ResultId) -> FileResponse:
    """Get the internal report of a masking."""
    return serve_page(access, result_id, "masking", REPORT)


@router.get("/projects/{project_id}/maskings/{result_id}/table")
def get_masking_table(
    access: Reader, result_id: ResultId, attributes: TableAttributes, _: QuestionSlot
) -> BeforeAfterAnswer:
    """Get a table of the original and the masked data, side by side; counts below the tolerance are not shown."""
    row = find_result(access, result_id, "masking", figures=False)
    _refuse_slow(access, row)
    return table_of(access, row, row.spec["spec"], replicate=row.spec.get("replicate", 0), attributes=attributes)


def find_masking(access: ProjectAccess, result_id: str) -> Row[Any]:
    """Return a masking of the project's current data, so that masking again gives the same records."""
    row = find_result(access, result_id, "masking")
    if row.data_version != access.row.data_version:
        raise Conflict(
            "the data have been replaced since this masking was made", code="old-data", hint="mask the new data"
        )
    return row


def masking_request(row: Row[Any]) -> dict[str, Any]:
    """Return the part of a job's payload that repeats a masking."""
    return {"spec": row.spec["spec"], "recipe": row.spec.get("recipe"), "replicate": row.spec.get("replicate", 0)}


def _refuse_slow(access: ProjectAccess, row: Any) -> None:
    """Refuse to repeat a masking whose job took long."""
    job = access.service.queue.get(row.job_id)
    took = (job["finished_at"] or 0.0) - (job["started_at"] or 0.0) if job is not None else 0.0
    if took > MOST_SECONDS_AT_ONCE:
        raise Conflict("this masking takes too long to be repeated while you wait", code="too-long", hint=_REPORT)


def table_of(access: ProjectAccess, row: Any, spec: Any, *, replicate: int, attributes: list[str]) -> BeforeAfterAnswer:
    """Return a before-and-after table; masks again, since masked records are not stored."""
    data = load_data_version(access, version=row.data_version, recipe=row.spec.get("recipe"))
    if len(data) > MOST_RECORDS_AT_ONCE:
        raise Conflict("the file is too large to be masked while you wait", code="too-large", hint=_REPORT)
    key = access.key
    masked = workflow.mask(data, spec, key=key, replicate=replicate)
    return before_after(masked, tuple(attributes), tolerance=access.row.tolerance, key=key)


@router.post("/projects/{project_id}/assessments", status_code=202)
def ask_for_assessment(request: Request, response: Response, access: Worker, body: AssessmentRequest) -> Job:
    """Assess a masking by other measures or on other attributes."""
    row = find_masking(access, body.masking)
    payload = {
        "masking": row.id,
        **masking_request(row),
        **check_request(row.spec["spec"], _measures_of(body), _scenarios_of(access, body)),
    }
    payload["indicators"] = body.indicators or None
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "assess", payload)


def _measures_of(body: AssessmentRequest) -> tuple[str, ...] | None:
    """Return the measures of a request, with that of its indicators."""
    from safeswap.measures.utility.indicators import parse_indicators

    if not body.indicators.strip():
        return body.measures
    return (*(body.measures or ()), parse_indicators(body.indicators).text)


offer_results(router, "assessments", "assessment", "Get one assessment.")


@router.post("/projects/{project_id}/mask-below", status_code=202)
def ask_for_below(request: Request, response: Response, access: Worker, body: BelowRequest) -> Job:
    """Find the specification that blanks or swaps as little as leaves no record above a threshold of risk."""
    payload = {**body.model_dump(mode="json"), "recipe": access.recipe}
    return submit(request, response, access, "below", payload)


offer_results(
    router,
    "mask-below",
    "below",
    "Get the specification that was found, to mask by, and how many records were above the threshold.",
    access_type=WorkReader,
)


def check_request(
    spec: dict[str, Any], measures: tuple[str, ...] | None, scenarios: Sequence[Scenario] = ()
) -> dict[str, Any]:
    """Validate specification, measures and scenarios before a job is submitted."""
    made = registry.make_spec(spec)
    named = None if measures is None else [registry.measure(text).text for text in measures]
    if not scenarios:
        return {"spec": made.as_dict(), "measures": named}
    # The measures as they were written: a default that is stated wins over the scenario.
    texts = None if measures is None else list(measures)
    stated = [each.as_dict() for each in scenarios]
    return {"spec": made.as_dict(), "measures": texts, "scenario": stated[0], "scenarios": stated}


def run_mask(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask by any registered method, assess, and write the internal report."""
    from safeswap.releases.register import enter_masked
    from safeswap.reports.masking import write_masking_report

    masked, assessment = _mask_and_assess(context, payload)
    for register in context.registers:
        enter_masked(masked, register)
    context.progress(0.8, "writing the report")
    write_masking_report(masked, context.result_folder / REPORT, assessment=assessment)
    (context.result_folder / FACTS).write_bytes(_collect_facts(context, payload, masked, assessment).dump())
    spec = request_of(payload, "measures", "attributes", "replicate", "scenario", "scenarios", "study")
    return context.save_result("masking", spec, _summarise(masked, assessment))


def _collect_facts(context: Context, payload: dict[str, Any], masked: Masked, assessment: Assessment) -> Facts:
    """Collect the facts for the reports of the masking; its promises are verified when it is released."""
    from safeswap.workflow.reporting import Known, collect, count_unsafe, figures_of, list_requirements, with_limits

    scenarios = _stated_scenarios(payload)
    counted = [count_unsafe(masked, scenario) for scenario in scenarios]
    figures = [*(figure for figure, _ in counted if figure is not None), *figures_of(assessment, masked.original)]
    required = list_requirements(payload.get("require") or {}, scenarios)
    known = Known(
        scenarios=scenarios,
        figures=with_limits(masked, figures, required, scenarios),
        left_out=[*(note for _, note in counted if note), *assessment.left_out_sentences],
        study=_load_study(context, payload),
        terms={"tolerance": context.project["tolerance"]},
        recipe=payload.get("recipe"),
        verify=False,
    )
    return collect(masked, known)


def run_below(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask until no record is above the threshold; the specification is the result."""
    context.progress(0.05, "masking")
    names = ("keys", "threshold", "by", "swap", "fixed", "weight")
    asked = {name: payload[name] for name in names}
    found = mask_below(prepared_data(context, payload), key=context.key(), **asked)
    return context.save_result("below", request_of(payload, *names), found.as_dict())


def run_assess(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again and assess by other measures or attributes."""
    masked, assessment = _mask_and_assess(context, payload)
    names = ("masking", "measures", "attributes", "replicate", "scenario", "scenarios", "indicators")
    spec = request_of(payload, *names)
    return context.save_result("assessment", spec, _summarise(masked, assessment))


def _mask_and_assess(context: Context, payload: dict[str, Any]) -> tuple[Masked, Assessment]:
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    how: dict[str, Any] = {name: payload.get(name) for name in ("measures", "attributes")}
    return masked, workflow.assess(masked, scenario=_stated_scenarios(payload), **how)


def _stated_scenarios(payload: dict[str, Any]) -> list[Scenario]:
    """Return the scenarios of a job; one that was submitted before there could be several has one."""
    stated = payload.get("scenarios") or [payload.get("scenario")]
    return [Scenario(**each) for each in stated if each]


def _load_study(context: Context, payload: dict[str, Any]) -> Study | None:
    """Load the study that is shown as what was tried, unless it was deleted since."""
    from safeswap.studies.study import Study

    if not payload.get("study"):
        return None
    folder = context.store.result(context.project_id, payload["study"]) / STUDY
    return Study.load(folder) if folder.is_dir() else None


def _summarise(masked: Masked, assessment: Assessment) -> dict[str, Any]:
    """Summarise a masking for internal use: totals and figures, no record."""
    assessed = assessment.as_dict()
    for score in assessed["scores"]:
        rows = score.get("detail") or []
        if rows and "cell_size" in rows[0]:  # the numbers of cells with 1, 2, … records are not told one by one
            score["detail"] = [{name: sum(row[name] for row in rows) for name in rows[0] if name != "cell_size"}]
    return {
        **masked.as_dict(),
        "plan": masked.plan.sentence,
        "done": _tell_done(masked),
        "unit": masked.audit.unit,
        "facts": dict(masked.audit.facts),
        **_summarise_steps(masked),
        **assessed,
    }


def _tell_done(masked: Masked) -> str:
    """Return what was done, in totals: a plan describes the file before."""
    from safeswap.pipelines.spec import Pipeline, Step
    from safeswap.workflow.step_table import tell_step

    spec, stages = masked.spec, masked.stages
    steps = list(spec.steps) if isinstance(spec, Pipeline) else [Step(name=spec.method, spec=spec)]
    return "; ".join(tell_step(step, stage) for step, stage in zip(steps, stages, strict=True))


def _summarise_steps(masked: Masked) -> dict[str, Any]:
    """Summarise the steps of a pipeline, what became of each column, and promises that a later step has broken."""
    if not masked.parts:
        return {}
    account = masked.account
    steps = [
        {"name": step.name, "plan": stage.plan.sentence, **stage.as_dict()}
        for step, stage in zip(masked.audit.steps, masked.stages, strict=True)
    ]
    return {"steps": steps, "columns": [c.as_dict() for c in account.changes], "flags": list(account.flags)}


TASKS = (Task("mask", run_mask, prepare=export_known), Task("assess", run_assess), Task("below", run_below))
