"""The settings of a project, and the agency's policy on attacks.

Settings are what a ``project.toml`` says of scenarios, steps, study and release. The row has the content of the file,
so that one reader serves the file and the browser. One scenario is in use: it states the keys of every request that
names none. Changes of the steps can be undone.

The policy states the largest advantage that each attack may have on a release. One policy is in force for the whole
service. Officers and administrators replace it; every version is kept, and every change is in the audit log. Until one
is stored, that of the configuration (``SAFESWAP_POLICY``) or the default holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from safeswap import registry, workflow
from safeswap.attacks.run import POLICY, ReleasePolicy, configured_policy, parse_policy
from safeswap.errors import SafeswapError, SpecError
from safeswap.methods.recode.steps import Labels
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.model.schema import Attribute, Schema
from safeswap.pipelines.spec import Pipeline
from safeswap.projects.project import Project
from safeswap.projects.settings import DataSource
from safeswap.service.http.problems import Conflict, Unprocessable
from safeswap.service.http.wire import Wire, example, require_match, set_etag, version_conflict
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, now
from safeswap.service.keeping.tables import policies, projects
from safeswap.service.people.roles import Caller, Governor, ProjectAccess, Reader, Worker, allow
from safeswap.service.routes.data import name_files, read_origin
from safeswap.service.routes.jobs import (
    QuestionSlot,
    estimate_work,
    load_data_version,
    refuse_long,
    tables_of,
)
from safeswap.service.state import service_of
from safeswap.service.work.rare import Noise, check_tolerance, perturb_risky
from safeswap.service.work.tasks import read_schema
from safeswap.workflow.step_table import StepTable, find_unsafe, make_table

router = APIRouter(tags=["settings"])

MOST_CHANGES = 50
MOST_STEPS = 200
Step = dict[str, Any]


class SettingsAnswer(Wire):
    """The settings, as the project file states them."""

    scenarios: tuple[dict[str, Any], ...]
    scenario: str = Field(description="The scenario in use; empty if there is none.")
    sentence: str = Field(description="The scenario in use, in words.")
    steps: tuple[Step, ...] = Field(description="The pipeline; a step with `off` is kept but skipped.")
    sentences: tuple[str, ...] = Field(description="Each step in words.")
    can_undo: bool
    can_redo: bool
    study: dict[str, Any] | None
    release: dict[str, Any]
    version: int


class SettingsChange(Wire):
    """Sections to replace; omitted ones stay."""

    model_config = example(scenarios=[{"name": "prosecutor", "keys": ["Age", "Sex"], "tolerance": 3}])

    scenarios: tuple[dict[str, Any], ...] | None = Field(default=None, max_length=50)
    scenario: str | None = Field(default=None, max_length=80, description="The scenario in use from now on.")
    renamed: dict[str, str] = Field(default_factory=dict, description="New names of scenarios, by their old ones.")
    steps: tuple[Step, ...] | None = Field(default=None, max_length=MOST_STEPS)
    study: dict[str, Any] | None = Field(default=None, description="An empty object removes the study.")
    release: dict[str, Any] | None = None


class ProjectText(Wire):
    """A project file. The data that it names are not read: the project has its own."""

    model_config = example(text='[[scenario]]\nname = "prosecutor"\nkeys = ["Age", "Sex"]\n')

    text: str = Field(max_length=2**20)


class BandsAnswer(Wire):
    """Bands for a numeric attribute."""

    attribute: str
    breaks: tuple[float, ...] = Field(description="Where each band but the first starts; empty if none make sense.")
    counts: tuple[int, ...] = Field(
        description="Records in each band, at least the tolerance; empty if too few have a value."
    )


class StepProblem(Wire):
    """The step that no longer fits, why, and what to do."""

    position: int
    step: str
    code: str
    detail: str
    hint: str


class StepTableAnswer(Wire):
    """The effect of each step that is switched on: totals, those of unsafe combinations approximate."""

    records: int
    scenarios: tuple[str, ...]
    spreads: dict[str, int] = Field(
        description="By scenario: how far an unsafe total above 0 is from the truth at most, 19 times out of 20."
    )
    steps: tuple[dict[str, Any], ...]
    columns: dict[str, str] = Field(description="The kind of each column after the last step; dropped ones are gone.")
    problem: StepProblem | None = Field(description="The first step that cannot be run; those after it wait.")


@router.get("/projects/{project_id}/settings")
def get_settings(response: Response, access: Reader) -> SettingsAnswer:
    """Get the scenarios, the steps, the study and the settings of the release."""
    set_etag(response, access.row.version)
    return _answer(_read_stored(access), access, access.row.version)


@router.patch("/projects/{project_id}/settings")
def change_settings(request: Request, response: Response, access: Worker, body: SettingsChange) -> SettingsAnswer:
    """Replace sections of the settings. Refused as a whole if one of them is invalid."""
    require_match(request, access.row.version)
    stored = _read_stored(access)
    content = _rename(stored["content"], body.renamed)
    sections = {"scenario": body.scenarios, "step": body.steps, "study": body.study, "release": body.release}
    content |= {name: _plain(value) for name, value in sections.items() if value is not None}
    content = {name: value for name, value in content.items() if value or name != "study"}
    project = _check_content(access, content)
    used = body.renamed.get(stored["scenario"], stored["scenario"]) if body.scenario is None else body.scenario
    return _store(response, access, _next(stored, project, used), "settings.change")


@router.post("/projects/{project_id}/settings/{way}")
def step_through_settings(
    response: Response, access: Worker, way: Annotated[Literal["undo", "redo"], Path()]
) -> SettingsAnswer:
    """Undo the last change of the steps, or redo the last one undone."""
    stored = _read_stored(access)
    past, future = list(stored["past"]), list(stored["future"])
    source, target = (past, future) if way == "undo" else (future, past)
    if not source:
        raise Conflict(f"there is nothing to {way}", code=f"nothing-to-{way}")
    target.append(stored["content"].get("step", []))
    project = _check_content(access, {**stored["content"], "step": source.pop()})
    changed = {**_next(stored, project, stored["scenario"]), "past": past, "future": future}
    return _store(response, access, changed, f"settings.{way}")


@router.get("/projects/{project_id}/project.toml", response_class=Response)
def get_project_file(access: Reader) -> Response:
    """Get the project as `project.toml`, for `safeswap run`. Levels that few records have are omitted."""
    schema = _shown_schema(access)
    file, households = name_files(access.row.file_name, schema)
    layout = read_origin(access.service.store, access.id, access.row.data_version).layout
    project = replace(
        Project.of(_read_stored(access)["content"]),
        title=access.row.name,
        data=DataSource(file=file or "data.csv", households=households, **_name_roles(access), **layout),
        schema=schema,
    )
    headers = {"Content-Disposition": 'attachment; filename="project.toml"'}
    return Response(project.text(), media_type="application/toml", headers=headers)


@router.put("/projects/{project_id}/project.toml")
def put_project_file(request: Request, response: Response, access: Worker, body: ProjectText) -> SettingsAnswer:
    """Replace all settings by those of a `project.toml`; its data and schema are not taken over."""
    require_match(request, access.row.version)
    read = Project.parse_alone(body.text)
    project = _check_content(access, read.content())
    stored = _read_stored(access)
    return _store(response, access, _next(stored, project, stored["scenario"]), "settings.import")


@router.post("/projects/{project_id}/step-table")
def get_step_table(access: Reader, _: QuestionSlot) -> StepTableAnswer:
    """Get what each step does: risk under every scenario before and after it, values blanked, utility.

    Steps that did not change since the last time are not carried out again.
    """
    project = project_of(access)
    table, problem = _make_table(access, project)
    noise = Noise(key=access.key, tolerance=access.row.tolerance)
    after = _plain_data(access).schema if table is None else table.masked.data.schema
    return StepTableAnswer(
        records=access.row.records,
        scenarios=tuple(each.name for each in project.scenarios),
        spreads={each.name: noise.spread_of(tables_of(each)) for each in project.scenarios},
        steps=() if table is None else tuple(asdict(row) for row in table.rows),
        columns={each.name: each.kind.value for each in after.attributes if each.name not in project.pipeline.dropped},
        problem=problem,
    )


@router.get("/projects/{project_id}/bands")
def propose_bands(
    access: Reader, attribute: Annotated[str, Query(max_length=200, examples=["age"])], _: QuestionSlot
) -> BandsAnswer:
    """Propose bands for a numeric attribute, so that it can be a key: round numbers at which they start."""
    from safeswap.model.columns import to_numbers
    from safeswap.model.scenario import propose_bands as propose

    data = _plain_data(access)
    if attribute not in data.schema or not data.schema[attribute].kind.is_numeric:
        raise Unprocessable("this is no numeric attribute of the data", code="not-numeric", attribute=attribute)
    values = to_numbers(data, attribute)
    values = values[np.isfinite(values)]
    breaks, counts = list(propose(values)), np.array([len(values)])
    # A band that few records have would tell something about them.
    while breaks:
        counts = np.bincount(np.searchsorted(breaks, values, side="right"), minlength=len(breaks) + 1)
        if counts.min() >= access.row.tolerance:
            break
        breaks.pop(min(int(counts.argmin()), len(breaks) - 1))
    # The counts sum up to the records with a value: they would tell how many have none, if few have.
    without = access.row.records - len(values)
    shown = counts.tolist() if breaks and (without == 0 or without >= access.row.tolerance) else []
    return BandsAnswer(attribute=attribute, breaks=tuple(breaks), counts=tuple(shown))


def project_of(access: ProjectAccess) -> Project:
    """Return the project that the settings state, without its data."""
    return Project.of(_read_stored(access)["content"])


def scenario_of(access: ProjectAccess, name: str = "") -> Scenario | None:
    """Return a scenario of the project; by default the one in use, which states the keys of requests with none."""
    settings = access.row.settings or {}
    stated = settings.get("content", {}).get("scenario", [])
    found = [each for each in stated if each.get("name") == (name or settings.get("scenario"))]
    return Scenario(**found[0]) if found else None


def scenarios_of(access: ProjectAccess) -> list[Scenario]:
    """Return all scenarios of the project, the one in use first."""
    used = scenario_of(access)
    return [] if used is None else [used, *(each for each in project_of(access).scenarios if each.name != used.name)]


def with_default_keys(access: ProjectAccess, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification with the keys of the scenario that it names, or of the one in use if it names none.

    A specification that states its keys is not touched.
    """
    if spec.get("method") == "pipeline" and isinstance(spec.get("steps"), list | tuple):
        steps = [with_default_keys(access, each) if isinstance(each, Mapping) else each for each in spec["steps"]]
        return {**spec, "steps": steps}
    scenario = scenario_of(access, str(spec.get("scenario") or ""))
    stated = {name: value for name, value in spec.items() if name != "name"}
    try:
        takes_one = "scenario" in registry.method(str(spec.get("method"))).spec_type.model_fields
        if scenario is None or not takes_one or not isinstance(spec.get("scenario", ""), str):
            return dict(spec)
        registry.make_spec(stated)
    except SpecError:
        try:
            return {**spec, **registry.make_spec({**stated, "scenario": scenario}).as_dict()}
        except SpecError:
            pass  # the scenario does not help: what is wrong is said of the request as it was made
    return dict(spec)


def data_after(access: ProjectAccess, number: int) -> Microdata:
    """Return the data after the first steps of the pipeline; those that are switched off count, without effect."""
    project, data = project_of(access), _plain_data(access)
    pipeline = Pipeline(tuple(step for step, is_on in project.listed[:number] if is_on))
    if not len(pipeline):
        return data
    _refuse_long(access, project, pipeline)
    return _mask(access, data, pipeline).data


def _mask(access: ProjectAccess, data: Microdata, pipeline: Pipeline) -> Masked:
    known = access.service.data_cache.table_of(access.id)
    return workflow.mask(data, pipeline, key=access.key, known=None if known is None else known.masked)


def _make_table(access: ProjectAccess, project: Project) -> tuple[StepTable | None, StepProblem | None]:
    """Carry out the steps as far as they go, and measure each."""
    data, pipeline, problem = _plain_data(access), project.pipeline, None
    _refuse_long(access, project, pipeline)
    try:
        masked = _mask(access, data, pipeline)
    except SafeswapError as error:
        position = int(error.fields.get("position", 1))
        problem = StepProblem(
            position=position,
            step=str(error.fields.get("step", "")),
            code=error.code,
            detail=error.message,
            hint=error.hint,
        )
        pipeline = pipeline[: position - 1]
        masked = _mask(access, data, pipeline)
    if not len(pipeline):
        return None, problem
    known = access.service.data_cache.table_of(access.id)
    table = make_table(masked, project.scenarios, known, _Counter(access))
    access.service.data_cache.keep_table(access.id, table)
    return table, problem


class _Counter:
    """Counts unsafe combinations with noise, as every question about them is answered."""

    def __init__(self, access: ProjectAccess) -> None:
        self.noise = Noise(key=access.key, tolerance=access.row.tolerance)

    def __call__(self, original: Microdata, data: Microdata | None, scenario: Scenario) -> tuple[int | None, str]:
        try:
            check_tolerance(scenario, self.noise.tolerance)
            found = find_unsafe(original, data, scenario)
        except SafeswapError as error:
            return None, f"not counted: {error.message}"
        return (None, found) if isinstance(found, str) else (perturb_risky(found, self.noise).unsafe, "")


def _plain_data(access: ProjectAccess) -> Microdata:
    access.require_data()
    return load_data_version(access, version=access.row.data_version, recipe=None)


def _refuse_long(access: ProjectAccess, project: Project, pipeline: Pipeline) -> None:
    counted = sum(tables_of(each) for each in project.scenarios) * (1 + len(pipeline))
    tables = counted + sum(estimate_work([step.spec.as_dict()]) for step in pipeline)
    hint = "run the pipeline as a job, which reports each step too"
    refuse_long(access.service.settings.limits, records=access.row.records, tables=tables, hint=hint)


def _read_stored(access: ProjectAccess) -> dict[str, Any]:
    kept = access.row.settings or {}
    empty: dict[str, Any] = {"content": {}, "scenario": "", "past": [], "future": []}
    return {**empty, **kept}


def _check_content(access: ProjectAccess, content: Mapping[str, Any]) -> Project:
    """Return the project of a content; its names must be those of the data, if there are any."""
    project = Project.of(content)
    if access.row.data_version:
        schema = read_schema(access.service.store, access.id, access.row.data_version)
        replace(project, schema=schema)
    return project


def _next(stored: Mapping[str, Any], project: Project, used: str) -> dict[str, Any]:
    """Return what is stored after a change; the first scenario is in use if none was."""
    content = project.content()
    names = [each.name for each in project.scenarios]
    if used and used not in names:
        if used != stored["scenario"]:
            raise Unprocessable("there is no such scenario", code="unknown-scenario", hint=", ".join(names))
        used = ""
    before = stored["content"].get("step", [])
    history = {"past": stored["past"], "future": stored["future"]}
    if content["step"] != before:
        history = {"past": [*stored["past"], before][-MOST_CHANGES:], "future": []}
    return {"content": content, "scenario": used or (names[0] if names else ""), **history}


def _rename(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the content with other names of scenarios wherever they are named."""

    def rename(values: Mapping[str, Any]) -> dict[str, Any]:
        name = values.get("scenario")
        return {**values, "scenario": names[name]} if isinstance(name, str) and name in names else dict(values)

    made = dict(content)
    made["scenario"] = [{**each, "name": names.get(each["name"], each["name"])} for each in content.get("scenario", [])]
    made["step"] = [rename(each) for each in content.get("step", [])]
    if "study" in made:
        made["study"] = rename(made["study"])
    if require := made.get("release", {}).get("require"):
        made["release"] = {**made["release"], "require": {names.get(n, n): rule for n, rule in require.items()}}
    return made


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _store(response: Response, access: ProjectAccess, settings: dict[str, Any], action: str) -> SettingsAnswer:
    version = access.row.version + 1
    with access.service.database.write() as connection:
        change = update(projects).where(projects.c.id == access.id, projects.c.version == access.row.version)
        if connection.execute(change.values(settings=settings, version=version, used_at=now())).rowcount != 1:
            raise version_conflict()
        content = settings["content"]
        detail = {"scenarios": len(content["scenario"]), "steps": len(content["step"])}
        access.record(connection, action, detail=detail)
    set_etag(response, version)
    return _answer(settings, access, version)


def _answer(stored: Mapping[str, Any], access: ProjectAccess, version: int) -> SettingsAnswer:
    project = Project.of(stored["content"])
    content = project.content()
    used = [each for each in project.scenarios if each.name == stored["scenario"]]
    return SettingsAnswer(
        scenarios=tuple(content["scenario"]),
        scenario=stored["scenario"] if used else "",
        sentence=used[0].sentence if used else "",
        steps=tuple(content["step"]),
        sentences=tuple(_describe_steps(project, _shown_labels(access))),
        can_undo=bool(stored["past"]),
        can_redo=bool(stored["future"]),
        study=content.get("study"),
        release=content["release"],
        version=version,
    )


def _describe_steps(project: Project, labels: Labels) -> Iterator[str]:
    for step, is_on in project.listed:
        yield step.describe(labels)
        labels = step.surviving_labels(labels) if is_on else labels


def _shown_labels(access: ProjectAccess) -> Labels:
    """Return the labels of the levels that are not too rare to be named."""
    return {
        each["name"]: {level["level"]: level["label"] for level in each.get("levels") or () if level.get("label")}
        for each in (access.row.description or {}).get("attributes", ())
    }


def _name_roles(access: ProjectAccess) -> dict[str, str]:
    """Return the columns that identify records and households, by their option of reading."""
    roles = {each["kind"]: each["name"] for each in (access.row.description or {}).get("attributes", ())}
    return {kind: roles[kind] for kind in ("identifier", "household") if kind in roles}


def _shown_schema(access: ProjectAccess) -> Schema | None:
    """Return the schema without levels where some of them are too rare to be named."""
    if not access.row.data_version:
        return None
    schema = read_schema(access.service.store, access.id, access.row.data_version)
    shown = {each["name"]: each for each in (access.row.description or {}).get("attributes", ())}
    return Schema(
        name=schema.name,
        label=schema.label,
        attributes=tuple(_shown_attribute(each, shown.get(each.name, {})) for each in schema.attributes),
    )


def _shown_attribute(attribute: Attribute, described: Mapping[str, Any]) -> Attribute:
    rare = (described.get("levels_below_tolerance") or {}).get("number", 1)
    if described.get("levels") is not None and rare == 0:
        return attribute
    return attribute.model_copy(update={"levels": (), "labels": {}, "hierarchy": type(attribute)(name="a").hierarchy})


policy_router = APIRouter(tags=["policy"])


class PolicyAnswer(Wire):
    """The policy in force."""

    model_config = example(
        name="Public-use files",
        limits={"linkage": 0.05},
        text='name = "Public-use files"\n\n[limits]\nlinkage = 0.05\n',
        source="stored",
        version=1,
        set_by="olga",
        set_at="2026-01-01T09:00:00Z",
    )

    name: str
    limits: dict[str, float] = Field(description="Largest advantage allowed for each attack; others are only shown.")
    text: str = Field(description="The policy as TOML.")
    source: Literal["stored", "configured", "default"]
    version: int = Field(description="0 until a policy is stored.")
    set_by: str = ""
    set_at: datetime | None = None


class PolicyRequest(Wire):
    """A new policy: as TOML, or its name and limits."""

    model_config = example(text='name = "Public-use files"\n[limits]\nlinkage = 0.05\n')

    text: str | None = Field(default=None, max_length=2**16)
    name: str = Field(default="", max_length=200)
    limits: dict[str, float] | None = Field(default=None, max_length=200)

    def policy(self) -> ReleasePolicy:
        """Return the policy that is stated; refused if it is invalid or stated twice."""
        if (self.text is None) == (self.limits is None):
            raise Unprocessable("state the policy as text, or by its limits", code="bad-policy")
        if self.text is not None:
            return parse_policy(self.text)
        return ReleasePolicy(name=self.name or "unnamed", limits=self.limits or {})


@policy_router.get("/release-policy")
def get_policy(request: Request, response: Response, _: Annotated[Caller, Depends(allow("self"))]) -> PolicyAnswer:
    """Get the policy that releases are judged by."""
    found = _policy_answer(service_of(request).database)
    set_etag(response, found.version)
    return found


@policy_router.put("/release-policy")
def put_policy(request: Request, response: Response, caller: Governor, body: PolicyRequest) -> PolicyAnswer:
    """Replace the policy. It holds for releases that are requested from now on."""
    database = service_of(request).database
    require_match(request, _policy_answer(database).version)
    policy = body.policy()
    try:
        with database.write() as connection:
            store_policy(connection, policy, by=caller.name)
    except IntegrityError:  # someone else has stored this version at the same moment
        raise version_conflict() from None
    found = _policy_answer(database)
    set_etag(response, found.version)
    return found


def store_policy(connection: Connection, policy: ReleasePolicy, *, by: str) -> int:
    """Store a policy as the one in force, and enter it in the audit log; return its number."""
    last = connection.scalar(select(policies.c.number).order_by(policies.c.number.desc()).limit(1)) or 0
    content = policy.model_dump(mode="json")
    connection.execute(insert(policies).values(number=last + 1, content=content, set_by=by, set_at=now()))
    auditlog.record(connection, by, "policy.set", subject=str(last + 1), detail=content)
    return last + 1


def policy_in_force(database: Database) -> ReleasePolicy:
    """Return the policy that a release is judged by."""
    row = _newest(database)
    return configured_policy() if row is None else ReleasePolicy(**row.content)


def _newest(database: Database) -> Any:
    with database.read() as connection:
        return connection.execute(select(policies).order_by(policies.c.number.desc()).limit(1)).one_or_none()


def _policy_answer(database: Database) -> PolicyAnswer:
    row = _newest(database)
    policy = configured_policy() if row is None else ReleasePolicy(**row.content)
    source = "stored" if row is not None else "configured" if os.environ.get(POLICY) else "default"
    stated: dict[str, Any] = {} if row is None else {"set_by": row.set_by, "set_at": row.set_at}
    version = 0 if row is None else row.number
    return PolicyAnswer(
        name=policy.name, limits=policy.limits, text=policy.text, source=source, version=version, **stated
    )
