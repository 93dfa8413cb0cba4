"""Risky combinations, the recipe that removes them step by step, and advice on the next step."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import update

from safeswap import workflow
from safeswap.model.combination import as_combinations
from safeswap.model.microdata import Microdata
from safeswap.model.recipe import History, Recipe
from safeswap.service import auditlog
from safeswap.service.asking import ask, recipe_of, require_data
from safeswap.service.database import now
from safeswap.service.etags import changed_meanwhile, require_match, set_etag
from safeswap.service.paging import Page, Paged
from safeswap.service.problems import Conflict
from safeswap.service.questions import Turn, refuse_long, tables_of, work_of
from safeswap.service.rare import rare_texts
from safeswap.service.recipes import as_kept, history_of
from safeswap.service.results import find_result, result_of, result_page
from safeswap.service.roles import ProjectAccess, project
from safeswap.service.routes.maskings import data_as, data_of
from safeswap.service.schemas.argus import (
    AdviceAnswer,
    AdviceRequest,
    RecipeAnswer,
    RecipeRequest,
    RiskyAnswer,
    RiskyRequest,
)
from safeswap.service.schemas.jobs import Job
from safeswap.service.schemas.library import ResultAnswer
from safeswap.service.state import service_of
from safeswap.service.tables import projects
from safeswap.service.tasks.risky import told

router = APIRouter(tags=["risk"])

_RECODES = 10  # as long as it takes to count the tables of so many, the recodes that suggest themselves take

ResultId = Annotated[str, Path(max_length=64)]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]


@router.post("/projects/{project_id}/risky")
def find_risky(request: Request, access: Reader, body: RiskyRequest, _: Turn) -> RiskyAnswer:
    """Which combinations of keys too few records share, now and after each step of the recipe. Totals only."""
    require_data(access)
    steps = recipe_of(access) or []
    # Counted once for the file and once after each step.
    tables = tables_of(body.combinations) * (1 + len(steps)) + work_of(steps)
    _refuse_long(request, access, tables=tables, hint="POST /projects/{project_id}/risky-lists counts them as a job")
    plain = data_as(request, access, version=access.row.data_version, recipe=None)
    key = service_of(request).vault.project_key(access.id)
    session = workflow.argus_session(plain, body.combinations, recipe=steps, key=key)
    return RiskyAnswer.model_validate(told(session))


@router.post("/projects/{project_id}/risky-lists", status_code=202)
def ask_for_risky(request: Request, response: Response, access: Worker, body: RiskyRequest) -> Job:
    """The same as a job, for a long list or a large file."""
    as_combinations(body.combinations).stated()  # what is no list of combinations is refused before a job is made
    payload = {"combinations": body.combinations, "recipe": recipe_of(access)}
    return ask(request, response, access, "risky", payload)


@router.get("/projects/{project_id}/risky-lists")
def list_risky(request: Request, access: Reader, paging: Paged) -> Page[ResultAnswer]:
    """The lists that jobs have counted, newest first."""
    return result_page(request, access, "risky", paging)


@router.get("/projects/{project_id}/risky-lists/{result_id}")
def get_risky(request: Request, access: Reader, result_id: ResultId) -> ResultAnswer:
    """One such list: totals, never values."""
    return result_of(find_result(request, access, result_id, "risky"))


@router.get("/projects/{project_id}/recipe")
def get_recipe(response: Response, access: Reader) -> RecipeAnswer:
    """The steps of the project's recipe, as values, in words and as TOML."""
    set_etag(response, access.row.version)
    return _answer(history_of(access.row.recipe), access.row.version)


@router.put("/projects/{project_id}/recipe")
def set_recipe(request: Request, response: Response, access: Worker, body: RecipeRequest, _: Turn) -> RecipeAnswer:
    """Give the project other steps: all of them, in their order. They are tried on the data before they are kept."""
    require_match(request, access.row.version)
    recipe: Recipe = workflow.as_recipe(list(body.steps))
    if len(recipe):
        require_data(access)
        data_as(request, access, version=access.row.data_version, recipe=recipe.as_dicts())
    return _keep(request, response, access, history_of(access.row.recipe).do(recipe), "recipe.set")


@router.post("/projects/{project_id}/recipe/{way}")
def step_through_recipe(
    request: Request, response: Response, access: Worker, way: Annotated[Literal["undo", "redo"], Path()]
) -> RecipeAnswer:
    """Take back the last change, whatever it was, or make again the one that was taken back last."""
    history = history_of(access.row.recipe)
    if not (history.can_undo if way == "undo" else history.can_redo):
        raise Conflict(f"there is nothing to {way}", code=f"nothing-to-{way}")
    changed = history.undo() if way == "undo" else history.redo()
    return _keep(request, response, access, changed, f"recipe.{way}")


@router.post("/projects/{project_id}/advice")
def give_advice(request: Request, access: Reader, body: AdviceRequest, _: Turn) -> AdviceAnswer:
    """Which single recode removes most unsafe combinations for the information it costs. Nothing is changed."""
    require_data(access)
    _refuse_long(request, access, tables=_RECODES * tables_of(body.combinations))
    data = data_of(request, access)
    found = workflow.advice(data, body.combinations)
    every = [each.as_dict() for each in found]
    shown = [each for each in every if not _names_rare_levels(each["step"], data, access.row.tolerance)]
    hidden = len(every) - len(shown)
    return AdviceAnswer(unsafe=found.unsafe, tried=found.tried, advice=tuple(shown[: body.most]), hidden=hidden)


def _refuse_long(request: Request, access: ProjectAccess, *, tables: float, hint: str = "") -> None:
    refuse_long(service_of(request).settings.limits, records=access.row.records, tables=tables, hint=hint)


def _names_rare_levels(step: dict[str, Any], data: Microdata, tolerance: int) -> bool:
    """Whether a step would tell a level that fewer records have than may be shown."""
    grouped = [level for levels in step.get("groups", {}).values() for level in levels]
    bounds = [step[end] for end in ("top", "bottom") if step.get(end) is not None]
    if not (grouped or bounds):
        return False
    rare = rare_texts(data, step["attribute"], tolerance)
    return any(level in rare for level in (*grouped, *bounds))


def _keep(request: Request, response: Response, access: ProjectAccess, history: History, action: str) -> RecipeAnswer:
    version = access.row.version + 1
    with service_of(request).database.write() as connection:
        change = update(projects).where(projects.c.id == access.id, projects.c.version == access.row.version)
        if connection.execute(change.values(recipe=as_kept(history), version=version, used_at=now())).rowcount != 1:
            raise changed_meanwhile()
        detail = {"steps": len(history.present)}
        auditlog.record(connection, actor=access.user.name, action=action, project_id=access.id, detail=detail)
    set_etag(response, version)
    return _answer(history, version)


def _answer(history: History, version: int) -> RecipeAnswer:
    from safeswap.io.recipe_toml import recipe_text

    recipe = history.present
    return RecipeAnswer(
        steps=tuple(recipe.as_dicts()),
        can_undo=history.can_undo,
        can_redo=history.can_redo,
        sentences=recipe.sentences,
        toml=recipe_text(recipe) if len(recipe) else "",
        version=version,
    )
