"""Plan, mask and assess, by any registered method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import ConfigDict, Field
from sqlalchemy import Row

from safeswap import registry, workflow
from safeswap.service.http.problems import Conflict
from safeswap.service.http.wire import Identifier, Wire, example
from safeswap.service.keeping.register import export_known
from safeswap.service.people.roles import ProjectAccess, Reader, Worker
from safeswap.service.routes.jobs import (
    REPORT,
    Job,
    ResultId,
    find_result,
    offer_results,
    serve_page,
    submit,
)
from safeswap.service.state import service_of
from safeswap.service.work.questions import QuestionSlot, load_data, load_data_version
from safeswap.service.work.rare import BeforeAfterAnswer, before_after
from safeswap.service.work.tasks import Context, Task, masked_data, request_of

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.score import Assessment

router = APIRouter(tags=["masking"])

MOST_RECORDS_AT_ONCE = 2_000_000  # larger files take too long for an interactive table
MOST_SECONDS_AT_ONCE = 60.0
_REPORT = "see the report"

TableAttributes = Annotated[list[str], Query(min_length=1, max_length=3, description="One to three attributes.")]
Spec = dict[str, Any]
Measures = Annotated[
    tuple[str, ...] | None,
    Field(min_length=1, max_length=50, description="Default: those that apply to what was changed."),
]


class PlanRequest(Wire):
    """A specification to plan."""

    model_config = ConfigDict(json_schema_extra=example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}))

    spec: Spec = Field(description="`method` and its parameters.")


class RelaxationAnswer(Wire):
    """A change of the specification and the number of pairs it would allow."""

    change: str
    feasible: int
    at_most: int | None = None


class PlanAnswer(Wire):
    """Pairs requested, pairs feasible, and the binding constraint."""

    model_config = ConfigDict(
        json_schema_extra=example(
            method="swap",
            records=48842,
            asked=1221,
            feasible=7080,
            is_feasible=True,
            binds=["Race"],
            sentence="1,221 pairs asked for, at most 7,080 feasible; Race binds",
            relaxations=[],
            details={},
        )
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

    model_config = ConfigDict(
        json_schema_extra=example(
            spec={"method": "swap", "swap": ["Race"], "rate": 0.05}, measures=["n_rule", "hellinger"]
        )
    )

    spec: Spec
    measures: Measures = None
    attributes: tuple[str, ...] | None = Field(
        default=None, description="Attributes that form the cells; default: all."
    )
    replicate: int = Field(default=0, ge=0, lt=1_000_000)
    use_recipe: bool = Field(
        default=True, description="Mask the data after the recipe; false: the original data, e.g. to recode by `spec`."
    )


class AssessmentRequest(Wire):
    """Assess a masking again."""

    model_config = ConfigDict(json_schema_extra=example(masking="6f1c2d9a", measures=["n_rule", "hellinger"]))

    masking: Identifier
    measures: Measures = None
    attributes: tuple[str, ...] | None = None


@router.post("/projects/{project_id}/plan")
def plan(request: Request, access: Reader, body: PlanRequest, _: QuestionSlot) -> PlanAnswer:
    """Plan a specification: what it would do and whether it is feasible, from counts alone. Nothing is changed."""
    found = workflow.plan(load_data(request, access), body.spec)
    return PlanAnswer(method=found.method, **found.as_dict())


@router.post("/projects/{project_id}/maskings", status_code=202)
def ask_for_masking(request: Request, response: Response, access: Worker, body: MaskingRequest) -> Job:
    """Mask the data by any method and measure the result; figures are stored, never masked records."""
    payload = check_request(body.spec, body.measures)
    payload |= {"replicate": body.replicate, "recipe": access.recipe if body.use_recipe else None}
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "mask", payload)


offer_results(
    router, "maskings", "masking", "Get one masking: the request, its plan, and its scores with the tables behind them."
)


@router.get("/projects/{project_id}/maskings/{result_id}/report.html", response_class=FileResponse)
def get_masking_report(request: Request, access: Reader, result_id: ResultId) -> FileResponse:
    """Get the internal report of a masking."""
    return serve_page(request, access, result_id, "masking", REPORT)


@router.get("/projects/{project_id}/maskings/{result_id}/table")
def get_masking_table(
    request: Request, access: Reader, result_id: ResultId, attributes: TableAttributes, _: QuestionSlot
) -> BeforeAfterAnswer:
    """Get a table of the original and the masked data, side by side; counts below the tolerance are not shown."""
    row = find_result(request, access, result_id, "masking")
    _refuse_slow(request, row)
    return table_of(
        request, access, row, row.spec["spec"], replicate=row.spec.get("replicate", 0), attributes=attributes
    )


def find_masking(request: Request, access: ProjectAccess, result_id: str) -> Row[Any]:
    """Return a masking of the project's current data, so that masking again gives the same records."""
    row = find_result(request, access, result_id, "masking")
    if row.data_version != access.row.data_version:
        raise Conflict(
            "the data have been replaced since this masking was made", code="old-data", hint="mask the new data"
        )
    return row


def masking_request(row: Row[Any]) -> dict[str, Any]:
    """Return the part of a job's payload that repeats a masking."""
    return {"spec": row.spec["spec"], "recipe": row.spec.get("recipe"), "replicate": row.spec.get("replicate", 0)}


def _refuse_slow(request: Request, row: Any) -> None:
    """Refuse to repeat a masking whose job took long."""
    job = service_of(request).queue.get(row.job_id)
    took = (job["finished_at"] or 0.0) - (job["started_at"] or 0.0) if job is not None else 0.0
    if took > MOST_SECONDS_AT_ONCE:
        raise Conflict("this masking takes too long to be repeated while you wait", code="too-long", hint=_REPORT)


def table_of(
    request: Request, access: ProjectAccess, row: Any, spec: Any, *, replicate: int, attributes: list[str]
) -> BeforeAfterAnswer:
    """Return a before-and-after table; masks again, since masked records are not stored."""
    data = load_data_version(request, access, version=row.data_version, recipe=row.spec.get("recipe"))
    if len(data) > MOST_RECORDS_AT_ONCE:
        raise Conflict("the file is too large to be masked while you wait", code="too-large", hint=_REPORT)
    key = service_of(request).vault.project_key(access.id)
    masked = workflow.mask(data, spec, key=key, replicate=replicate)
    return before_after(masked, tuple(attributes), tolerance=access.row.tolerance, key=key)


@router.post("/projects/{project_id}/assessments", status_code=202)
def ask_for_assessment(request: Request, response: Response, access: Worker, body: AssessmentRequest) -> Job:
    """Assess a masking by other measures or on other attributes."""
    row = find_masking(request, access, body.masking)
    payload = {"masking": row.id, **masking_request(row), **check_request(row.spec["spec"], body.measures)}
    payload["attributes"] = None if body.attributes is None else list(body.attributes)
    return submit(request, response, access, "assess", payload)


offer_results(router, "assessments", "assessment", "Get one assessment.")


def check_request(spec: dict[str, Any], measures: tuple[str, ...] | None) -> dict[str, Any]:
    """Validate specification and measures before a job is submitted."""
    made = registry.make_spec(spec)
    named = None if measures is None else [registry.measure(text).text for text in measures]
    return {"spec": made.as_dict(), "measures": named}


def run_mask(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask by any registered method, assess, and write the internal report."""
    from safeswap.releases.register import enter_masked
    from safeswap.reports.masking import write_masking_report

    masked, assessment = _mask_and_assess(context, payload)
    for register in context.registers:
        enter_masked(masked, register)
    context.progress(0.8, "writing the report")
    write_masking_report(masked, context.result_folder / REPORT, assessment=assessment)
    spec = request_of(payload, "measures", "attributes", "replicate")
    return context.save_result("masking", spec, _summarise(masked, assessment))


def run_assess(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Mask again and assess by other measures or attributes."""
    masked, assessment = _mask_and_assess(context, payload)
    spec = request_of(payload, "masking", "measures", "attributes", "replicate")
    return context.save_result("assessment", spec, _summarise(masked, assessment))


def _mask_and_assess(context: Context, payload: dict[str, Any]) -> tuple[Masked, Assessment]:
    context.progress(0.05, "masking")
    masked = masked_data(context, payload)
    context.progress(0.5, "measuring risk and distortion")
    return masked, workflow.assess(masked, measures=payload.get("measures"), attributes=payload.get("attributes"))


def _summarise(masked: Masked, assessment: Assessment) -> dict[str, Any]:
    """Summarise a masking for internal use: totals and figures, no record."""
    return {
        **masked.as_dict(),
        "plan": masked.plan.sentence,
        "unit": masked.audit.unit,
        **assessment.as_dict(),
    }


TASKS = (Task("mask", run_mask, prepare=export_known), Task("assess", run_assess))
