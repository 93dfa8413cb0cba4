"""Risky combinations, the recipe that removes them, and advice on the next step.

The project's row stores the recipe with its undo history. A change is anything that turns one recipe into another.
Recipes of a history share most of their steps, so each step is stored once in a pool and a recipe is a list of
indices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import update

from safeswap import workflow
from safeswap.errors import SafeswapError
from safeswap.methods.recode.recipe import History, Recipe
from safeswap.methods.recode.steps import Recode
from safeswap.model.combination import Combinations, as_combinations
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.service.http.problems import Conflict, Unprocessable
from safeswap.service.http.wire import Wire, example, require_match, set_etag, version_conflict
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import projects
from safeswap.service.people.roles import ProjectAccess, Reader, Worker
from safeswap.service.routes.jobs import (
    Job,
    QuestionSlot,
    estimate_work,
    load_data,
    load_data_version,
    offer_results,
    refuse_long,
    submit,
    tables_of,
)
from safeswap.service.routes.settings import data_after, project_of, scenario_of
from safeswap.service.work.rare import (
    MISSING,
    RARE,
    Noise,
    check_tolerance,
    perturb_advice,
    perturb_risky,
    rare_texts,
    shown_texts,
)
from safeswap.service.work.tasks import Context, Task, plain_data

if TYPE_CHECKING:
    from safeswap.workflow.session import ArgusSession, Stage

router = APIRouter(tags=["risk"])

MOST_CHANGES = 100
"""Maximum number of changes that can be undone."""

MOST_BYTES = 2**18
"""Maximum size of the pool: the row is read with every request, so a history with long steps keeps fewer changes."""

_RECODES = 10  # estimated cost of evaluating the candidate recodes, in multiples of counting the tables


class RiskyRequest(Wire):
    """Combinations of keys to examine; the parameters are those of `risky` in Python.

    `keys` alone means every combination of up to all of them. A `scenario` states the same with a name. If neither is
    given, the project's scenario in use applies.
    """

    model_config = example(combinations={"keys": ["Age", "Edu", "Race"], "tolerance": 3})

    combinations: dict[str, Any] | None = None
    scenario: Scenario | None = Field(default=None, description="Instead of `combinations`.")
    pipeline: bool = Field(
        default=False, description="Look at the data after the steps of the pipeline, instead of those of the recipe."
    )

    def asked(self, access: ProjectAccess) -> Combinations:
        """Return the combinations, however they were stated; those of the scenario in use if they were not."""
        scenario = self.scenario
        if self.combinations is None and scenario is None:
            scenario = scenario_of(access)
        if (self.combinations is None) == (scenario is None):
            raise Unprocessable("state either combinations or a scenario", code="bad-spec")
        return as_combinations(self.combinations) if scenario is None else scenario


class RiskyAnswer(Wire):
    """Unsafe combinations, which too few records share: totals, never values."""

    sentence: str
    scenario: str = Field(default="", description="The name of the scenario that states the combinations.")
    note: str = Field(default="", description="Keys of the scenario that are no longer in the file.")
    protected: str = Field(default="", description="The examined combinations, in words.")
    records: int
    unsafe_records: int
    unsafe_combinations: int
    spread: int = Field(default=0, description="How far that number is from the truth at most, 19 times out of 20.")
    by_dimension: dict[str, int]
    keys: tuple[dict[str, Any], ...]
    combinations: tuple[dict[str, Any], ...]
    stages: tuple[dict[str, Any], ...] = Field(description="The totals after each step of the recipe.")


class RecipeRequest(Wire):
    """All steps of the project's recipe."""

    model_config = example(steps=[{"step": "truncate", "attribute": "NACE", "characters": 2}])

    steps: tuple[dict[str, Any], ...] = Field(max_length=1000)


class RecipeAnswer(Wire):
    """The project's recipe: the active steps, and whether changes can be undone or redone."""

    steps: tuple[dict[str, Any], ...]
    can_undo: bool
    can_redo: bool
    sentences: tuple[str, ...]
    toml: str
    version: int


class AdviceRequest(RiskyRequest):
    """Combinations of keys, or a scenario, for which to recommend recodes."""

    model_config = example(combinations={"keys": ["region", "age", "sex"], "up_to": 3}, most=5)

    most: int = Field(default=10, ge=1, le=100)


class AdviceAnswer(Wire):
    """Single recodes, best first, with their effect and cost."""

    unsafe: int
    tried: int
    advice: tuple[dict[str, Any], ...]
    hidden: int = Field(default=0, description="Number of recodes not shown, since they would name rare levels.")


class SuggestedKeysAnswer(Wire):
    """Attributes by how identifying they are, the most identifying first: shares, never values."""

    records: int
    suggestions: tuple[dict[str, Any], ...]
    skipped: tuple[dict[str, str], ...]
    note: str = ""


@router.get("/projects/{project_id}/suggested-keys")
def suggest_keys(access: Reader, _: QuestionSlot, most: Annotated[int, Query(ge=1, le=20)] = 10) -> SuggestedKeysAnswer:
    """Rank the attributes by how identifying they are, as a start for a scenario. Shares are approximate.

    A record counts if fewer than the project's tolerance have its values. Strata and sampling units are left out.
    """
    from safeswap.measures.risk.suggest_keys import perturb_suggestions, rank_keys

    access.require_data()
    data = load_data(access)
    _refuse_long(access, tables=most * len(data.attributes))
    noise = Noise(key=access.key, tolerance=access.row.tolerance)
    known = [each.name for each in data.schema.attributes if not each.design]  # nobody outside knows the sample
    found = perturb_suggestions(rank_keys(data, among=known, most=most, below=access.row.tolerance), noise.add)
    return SuggestedKeysAnswer.model_validate(found.as_dict())


@router.post("/projects/{project_id}/risky")
def find_risky(access: Reader, body: RiskyRequest, _: QuestionSlot) -> RiskyAnswer:
    """Count the unsafe combinations of keys, now and after each step of the recipe. Totals only."""
    from safeswap.workflow.session import ArgusSession

    access.require_data()
    asked = body.asked(access)
    check_tolerance(asked, access.row.tolerance)
    if body.pipeline:
        return RiskyAnswer.model_validate(_count_after_pipeline(access, asked))
    steps = access.recipe or []
    # Counted once for the file and once after each step.
    tables = tables_of(asked) * (1 + len(steps)) + estimate_work(steps)
    _refuse_long(access, tables=tables, hint="POST /projects/{project_id}/risky-lists counts them as a job")
    plain = load_data_version(access, version=access.row.data_version, recipe=None)
    key = access.key
    session = ArgusSession.start(plain, asked, recipe=steps, key=key)
    noise = Noise(key=key, tolerance=access.row.tolerance)
    return RiskyAnswer.model_validate(summarise_risky(session, noise))


def _count_after_pipeline(access: ProjectAccess, asked: Combinations) -> dict[str, Any]:
    """Count in the file and after the steps that are switched on; two stages."""
    from safeswap.measures.risk.risky import find_under

    _refuse_long(access, tables=2 * tables_of(asked))
    scenario, noise = as_scenario(asked), Noise(key=access.key, tolerance=access.row.tolerance)
    original = load_data_version(access, version=access.row.data_version, recipe=None)
    listed = project_of(access).listed
    stages: list[dict[str, Any]] = []
    told: dict[str, Any] = {}
    steps = sum(is_on for _, is_on in listed)
    for name, data in [("the file", original), *([("the pipeline", data_after(access, len(listed)))] if steps else [])]:
        found = perturb_risky(find_under(data, resolve_files(scenario, original, data)), noise)
        sentence = f"about {found.sentence}" if found.unsafe else found.sentence
        spread = noise.spread_of(len(found.combinations))
        told = {"sentence": sentence, **found.as_dict(), "note": found.note, "spread": spread}
        stages.append({"step": name, **{key: told[key] for key in _TOTALS}})
    return {**told, "scenario": asked.name if isinstance(asked, Scenario) else "", "stages": stages}


_TOTALS = ("unsafe_combinations", "unsafe_records", "by_dimension")


@router.post("/projects/{project_id}/risky-lists", status_code=202)
def ask_for_risky(request: Request, response: Response, access: Worker, body: RiskyRequest) -> Job:
    """Count unsafe combinations as a job, for a long list or a large file."""
    asked = body.asked(access)
    check_tolerance(asked, access.row.tolerance)  # refuse invalid combinations before submitting a job
    stated = {"scenario": asked.as_dict()} if isinstance(asked, Scenario) else {"combinations": body.combinations}
    payload = {"recipe": access.recipe, **stated}
    return submit(request, response, access, "risky", payload)


offer_results(router, "risky-lists", "risky", "Get one counted list: totals, never values.")


@router.get("/projects/{project_id}/recipe")
def get_recipe(response: Response, access: Reader) -> RecipeAnswer:
    """Get the steps of the project's recipe, as values, in words and as TOML."""
    set_etag(response, access.row.version)
    return _answer(history_of(access.row.recipe), access.row.version)


@router.put("/projects/{project_id}/recipe")
def set_recipe(
    request: Request, response: Response, access: Worker, body: RecipeRequest, _: QuestionSlot
) -> RecipeAnswer:
    """Replace the steps of the project's recipe. They are tried on the data before they are stored."""
    from safeswap.workflow.session import as_recipe

    require_match(request, access.row.version)
    recipe: Recipe = as_recipe(list(body.steps))
    if len(recipe):
        access.require_data()
        load_data_version(access, version=access.row.data_version, recipe=recipe.as_dicts())
    return _store(response, access, history_of(access.row.recipe).do(recipe), "recipe.set")


@router.post("/projects/{project_id}/recipe/{way}")
def step_through_recipe(
    response: Response, access: Worker, way: Annotated[Literal["undo", "redo"], Path()]
) -> RecipeAnswer:
    """Undo the last change of the recipe, or redo the last one undone."""
    history = history_of(access.row.recipe)
    if not (history.can_undo if way == "undo" else history.can_redo):
        raise Conflict(f"there is nothing to {way}", code=f"nothing-to-{way}")
    changed = history.undo() if way == "undo" else history.redo()
    return _store(response, access, changed, f"recipe.{way}")


@router.post("/projects/{project_id}/advice")
def give_advice(access: Reader, body: AdviceRequest, _: QuestionSlot) -> AdviceAnswer:
    """Rank single recodes by unsafe combinations removed per information lost. Nothing is changed."""
    from safeswap.workflow.recode_advice import advice

    access.require_data()
    asked = body.asked(access)
    check_tolerance(asked, access.row.tolerance)
    _refuse_long(access, tables=_RECODES * tables_of(asked))
    data = data_after(access, len(project_of(access).listed)) if body.pipeline else load_data(access)
    if body.pipeline and (gone := [name for name in as_scenario(asked).names if name not in data.schema]):
        raise Unprocessable(
            f"{gone[0]!r} is dropped by the pipeline", code="key-dropped", hint="leave it out of the keys"
        )
    noise = Noise(key=access.key, tolerance=access.row.tolerance)
    found = perturb_advice(advice(data, asked), workflow.risky(data, asked), noise)
    every = [_hide_rare_levels(each.as_dict(), data, access.row.tolerance) for each in found]
    shown = [each for each in every if not _names_rare_levels(each["step"], data, access.row.tolerance)]
    hidden = len(every) - len(shown)
    return AdviceAnswer(unsafe=found.unsafe, tried=found.tried, advice=tuple(shown[: body.most]), hidden=hidden)


def _refuse_long(access: ProjectAccess, *, tables: float, hint: str = "") -> None:
    refuse_long(access.service.settings.limits, records=access.row.records, tables=tables, hint=hint)


def _names_rare_levels(step: dict[str, Any], data: Microdata, tolerance: int) -> bool:
    """Return True if a step names a level that too few records have."""
    grouped = [level for levels in step.get("groups", {}).values() for level in levels]
    bounds = [step[end] for end in ("top", "bottom") if step.get(end) is not None]
    if not (grouped or bounds):
        return False
    rare = rare_texts(data, step["attribute"], tolerance)
    return any(level in rare for level in (*grouped, *bounds))


def _hide_rare_levels(advice: dict[str, Any], data: Microdata, tolerance: int) -> dict[str, Any]:
    """Return the same advice without the names of rare levels, if all of them join one group: they are the others."""
    step = advice["step"]
    if step["step"] != "recode" or step.get("otherwise") != "keep" or not step.get("groups"):
        return advice
    rare = rare_texts(data, step["attribute"], tolerance)
    holding = [new for new, levels in step["groups"].items() if rare & set(levels)]
    if len(holding) != 1 or not rare <= set(step["groups"][holding[0]]):
        return advice
    levels = [text for text in shown_texts(data, step["attribute"], tolerance) if text not in (RARE, MISSING)]
    # The name of a group is made of its levels: one with rare levels gets another.
    others = next(name for name in (f"other{'s' * number}" for number in count()) if name not in levels)
    target = {level: new for new, grouped in step["groups"].items() for level in grouped}
    news = {level: others if target.get(level) == holding[0] else target.get(level, level) for level in levels}
    made = Recode(attribute=step["attribute"], map=news, others=others)
    return {**advice, "step": made.as_dict(), "sentence": made.sentence}


def _store(response: Response, access: ProjectAccess, history: History, action: str) -> RecipeAnswer:
    version = access.row.version + 1
    with access.service.database.write() as connection:
        change = update(projects).where(projects.c.id == access.id, projects.c.version == access.row.version)
        if (
            connection.execute(change.values(recipe=dump_history(history), version=version, used_at=now())).rowcount
            != 1
        ):
            raise version_conflict()
        detail = {"steps": len(history.present)}
        access.record(connection, action, detail=detail)
    set_etag(response, version)
    return _answer(history, version)


def _answer(history: History, version: int) -> RecipeAnswer:
    from safeswap.projects.toml import recipe_text

    recipe = history.present
    return RecipeAnswer(
        steps=tuple(recipe.as_dicts()),
        can_undo=history.can_undo,
        can_redo=history.can_redo,
        sentences=recipe.sentences,
        toml=recipe_text(recipe) if len(recipe) else "",
        version=version,
    )


def history_of(kept: Mapping[str, Any] | None) -> History:
    """Load the history from a row. If the row has only steps, they were added one by one.

    >>> drop = [{"step": "drop", "attributes": [name]} for name in "ab"]
    >>> history = history_of({"steps": drop, "undone": 1})
    >>> len(history.present), len(history.undo().present), len(history.redo().present)
    (1, 0, 2)
    """
    from safeswap.workflow.session import as_recipe

    if not kept:
        return History()
    if "pool" not in kept:
        every: Recipe = as_recipe(kept["steps"])
        now = len(every) - int(kept.get("undone", 0))
        before, after = range(now), range(now + 1, len(every) + 1)
        return History(every[:now], tuple(every[:n] for n in before), tuple(every[:n] for n in after))
    present: Recipe = as_recipe(kept["steps"])
    try:
        pool = as_recipe(kept["pool"]).steps
    except SafeswapError:  # a step of an earlier version: keep the present only
        return History(present)
    past, future = (tuple(Recipe(tuple(pool[i] for i in places)) for places in kept[way]) for way in ("past", "future"))
    return History(present, past, future)


def dump_history(history: History) -> dict[str, Any]:
    """Serialise a history for the row; ``steps`` are the active ones.

    >>> history = History().do(Recipe.of({"step": "drop", "attributes": ["Name"]})).do(Recipe())
    >>> history_of(dump_history(history)) == history
    True
    """
    past, future = history.past[-MOST_CHANGES:], history.future[:MOST_CHANGES]
    kept = _pool_steps(history.present, past, future)
    while (past or future) and len(json.dumps(kept["pool"])) > MOST_BYTES:
        past, future = past[len(past) // 2 + 1 :], future[: len(future) // 2]
        kept = _pool_steps(history.present, past, future)
    return kept


def _pool_steps(present: Recipe, past: tuple[Recipe, ...], future: tuple[Recipe, ...]) -> dict[str, Any]:
    places: dict[str, int] = {}

    def indices(recipe: Recipe) -> list[int]:
        texts = [json.dumps(step, sort_keys=True) for step in recipe.as_dicts()]
        return [places.setdefault(text, len(places)) for text in texts]

    before, after = [indices(recipe) for recipe in past], [indices(recipe) for recipe in future]
    pool = [json.loads(text) for text in places]
    return {"steps": present.as_dicts(), "pool": pool, "past": before, "future": after}


def run_risky(context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Count the unsafe combinations and store the totals."""
    from safeswap.workflow.session import ArgusSession

    context.progress(0.05, "counting the combinations")
    recipe = payload.get("recipe") or []
    stated = {name: payload[name] for name in ("combinations", "scenario") if payload.get(name) is not None}
    asked = as_scenario(stated["scenario"]) if "scenario" in stated else stated["combinations"]
    session = ArgusSession.start(plain_data(context, payload), asked, recipe=recipe, key=context.key())
    summary = summarise_risky(session, Noise(key=context.key(), tolerance=int(context.project["tolerance"])))
    spec = {**stated, "recipe": recipe}
    return context.save_result("risky", spec, summary)


def summarise_risky(session: ArgusSession, noise: Noise) -> dict[str, Any]:
    """Summarise the unsafe combinations, now and after each step of the recipe: totals with noise, never values."""
    found, asked = session.now.risky, session.asked
    told: dict[str, Any] = {}
    if isinstance(asked, Scenario):
        note = asked.resolve(session.stages[0].data.schema, session.now.data.schema).note
        told = {"scenario": asked.name, "note": note}
    stages = [_summarise_stage(stage, noise) for stage in session.stages]
    if found is not None:
        shown = perturb_risky(found, noise)
        sentence = f"about {shown.sentence}" if shown.unsafe else shown.sentence
        spread = noise.spread_of(len(shown.combinations))
        return {"sentence": sentence, **shown.as_dict(), **told, "spread": spread, "stages": stages}
    none: dict[str, Any] = {"protected": "", "unsafe_records": 0, "unsafe_combinations": 0, "by_dimension": {}}
    nothing = {**none, "records": len(session.now.data), "keys": [], "combinations": []}
    return {"sentence": "No combination of keys is left.", **nothing, **told, "stages": stages}


def _summarise_stage(stage: Stage, noise: Noise) -> dict[str, Any]:
    told = stage.as_dict()
    if told["unsafe_combinations"] and stage.risky is not None:
        shown = perturb_risky(stage.risky, noise).as_dict()
        told |= {name: shown[name] for name in ("unsafe_combinations", "unsafe_records", "by_dimension")}
    return told


TASKS = (Task("risky", run_risky),)
