"""The reports of a masking and of a release, each for its readers.

The facts of a masking are stored with its result, those of a release are the same with its decision, its checks and its
public part. What a reader may not know is not in the value that the page is made from; and who may ask is decided by
route: the public report is for all who may read, the members' and the chair's for who may decide, the analyst's and the
audit template for those who may work on the file.

Scripts in Python reproduce what a screen shows, with the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pprint import pformat
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from safeswap.model.scenario import Scenario
from safeswap.model.schema import Kind, Schema, require_household
from safeswap.model.two_files import divide_schema
from safeswap.reports.facts import AttackFacts, Audience, CheckFacts, DecisionFacts, Facts, tell_raised
from safeswap.reports.public import PublicPage
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.problems import NotFound
from safeswap.service.http.wire import Wire, example
from safeswap.service.keeping import ledger
from safeswap.service.people.roles import ProjectAccess, Reader, Role, project
from safeswap.service.routes.data import Origin, name_files, read_origin
from safeswap.service.routes.jobs import ResultId, find_result
from safeswap.service.routes.maskings import FACTS
from safeswap.service.routes.releases import ReleaseId, find_release
from safeswap.service.routes.releases.four_eyes import bundle_folder, told_override
from safeswap.service.routes.releases.task import PUBLIC
from safeswap.service.routes.settings import project_of, scenarios_of, with_default_keys
from safeswap.service.work.tasks import read_schema
from safeswap.workflow.reporting import compare_with_limits

router = APIRouter(tags=["reports"])

PERMISSIONS: dict[Audience, str] = {
    "analyst": "work",
    "chair": "decide",
    "members": "decide",
    "five-safes": "work",
    "public": "read",
}
"""The permission that each report requires."""

Form = Annotated[Literal["html", "json"], Query(alias="format", description="The page, or the facts behind it.")]


def _offer(audience: Audience, permission: str) -> None:
    """Add the two routes of a report: of a masking, and of a release."""
    access_type = Annotated[ProjectAccess, Depends(project(permission, once=False))]
    name = audience.replace("-", "_")

    def of_masking(access: ProjectAccess, result_id: ResultId, form: Form = "html") -> Response:
        return _answer(_masking_facts(access, result_id), audience, form)

    def of_release(access: ProjectAccess, release_id: ReleaseId, form: Form = "html") -> Response:
        return _answer(_release_facts(access, release_id), audience, form)

    for made, place in ((of_masking, "maskings/{result_id}"), (of_release, "releases/{release_id}")):
        made.__annotations__["access"] = access_type
        kind = place.partition("s/")[0]
        router.get(
            f"/projects/{{project_id}}/{place}/reports/{audience}",
            name=f"get_{kind}_{name}_report",
            description=f"Get the {audience} report of a {kind}, or the facts that it is made from.",
            response_class=Response,
            responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report"}},
        )(made)


def _answer(facts: Facts, audience: Audience, form: str) -> Response:
    if form == "json":
        return Response(facts.dump(audience), media_type="application/json")
    headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return Response(facts.page(audience), media_type="text/html; charset=utf-8", headers=headers)


def _masking_facts(access: ProjectAccess, result_id: str) -> Facts:
    """Read the facts that were stored with a masking."""
    row = find_result(access, result_id, "masking", figures=False)
    path = access.service.store.result(access.id, row.id) / FACTS
    if not path.is_file():
        raise NotFound("this masking predates these reports", hint="mask the data again")
    facts = Facts.parse(path.read_bytes())
    figures, unmet = compare_with_limits(facts.figures, project_of(access).release.requirements)
    decision = facts.decision.model_copy(update={"obstacles": (*facts.decision.obstacles, *unmet)})
    title = facts.title or f"Masking of {access.row.name}"
    # Facts that an earlier version stored do not say what rose.
    return facts.replace(title=title, figures=tuple(figures), raised=tell_raised(figures), decision=decision)


def _release_facts(access: ProjectAccess, release_id: str) -> Facts:
    """Return the facts of the masking that is released, with its checks, its decision and its public part."""
    row = find_release(access, release_id)
    path = bundle_folder(access, row).parent / PUBLIC
    if not path.is_file():
        raise NotFound("this release predates these reports", hint="request the release again")
    facts, public = _masking_facts(access, row.masking_id), PublicPage.model_validate_json(path.read_bytes())
    released = {each.name for each in public.columns}
    checks = row.checks or {}
    with access.service.database.read() as connection:
        mine = ledger.memberships(connection, access.user.id)
    told = [each["sentence"] for each in ledger.visible_findings(access.user, mine, row)]
    answer = ledger.sentence(access.user, mine, row)
    return facts.replace(
        title=row.terms.get("title") or facts.title,
        date=row.terms.get("date", ""),
        changes=tuple(c.model_copy(update={"released": c.column in released}) for c in facts.changes),
        checks=tuple(CheckFacts(**each) for each in checks.get("verified", ())),
        attacks=tuple(map(AttackFacts.of, checks.get("attacks", ()))),
        override=told_override(row),
        remarks=tuple(checks.get("remarks", ())),
        ledger=tuple(filter(None, (answer, *told))),
        released_before=bool(ledger.list_alarms(row)),
        decision=_decision(row, facts.decision.obstacles, decides=access.user.role == Role.OFFICER),
        public=public,
    )


def _decision(row: Any, obstacles: tuple[str, ...], *, decides: bool) -> DecisionFacts:
    def moment(seconds: float | None) -> str:
        return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

    return DecisionFacts(
        state=row.state if row.state in ("requested", "approved", "rejected") else "open",
        asked_by=row.asked_by,
        asked_at=moment(row.requested_at),
        decided_by=row.decided_by_name or "",
        decided_at=moment(row.decided_at),
        # The reason of an approval would reveal that there was an alarm.
        reason=(row.reason or "") if decides or row.state != "approved" else "",
        obstacles=obstacles,
    )


for _audience, _permission in PERMISSIONS.items():
    _offer(_audience, _permission)


class ScriptRequest(Wire):
    """The current state of the screen; omitted parts are omitted from the script."""

    model_config = example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}, release=True)

    recipe: tuple[dict[str, Any], ...] = Field(default=(), max_length=1000, description="Steps of the recipe.")
    risky: dict[str, Any] | None = Field(default=None, description="Keys, up_to, tolerance, … as for POST …/risky.")
    spec: dict[str, Any] | None = Field(default=None, description="The specification of a masking.")
    replicate: int = Field(default=0, ge=0)
    measures: tuple[str, ...] = Field(default=(), max_length=50)
    study: dict[str, Any] | None = Field(default=None, description="The parameters of a study.")
    objective: str = Field(default="", max_length=500)
    keys: tuple[str, ...] = Field(default=(), max_length=50, description="Keys of the confidentiality plot.")
    tables: dict[str, Any] | None = Field(default=None, description="Tables as for POST …/safe-tables.")
    release: bool = False


class ScriptAnswer(Wire):
    """A script in Python."""

    script: str


_RELEASE = "published = ss.release(masked, 'public', audit='confidential', key=key)\nprint(ss.verify('public'))\n"
_UNKNOWN = Origin()


def script_of(
    asked: ScriptRequest,
    *,
    file_name: str,
    schema: Schema | None,
    tolerance: int,
    scenarios: Sequence[Scenario] = (),
    origin: Origin = _UNKNOWN,
) -> str:
    """Generate the script, in the order of the screens; ``origin`` says how the data were read.

    >>> print(script_of(ScriptRequest(), file_name="survey.csv", schema=None, tolerance=3))
    import safeswap as ss
    <BLANKLINE>
    data = ss.read('survey.csv')
    print(ss.describe(data))
    <BLANKLINE>
    """
    blocks = [
        _read_block(file_name, schema, origin, tolerance),
        _recipe_block(asked.recipe),
        "" if asked.risky is None else f"print(workflow.risky(data, {_format_arguments(asked.risky)}))\n",
        _tables_block(asked.tables),
        _study_block(asked.study, asked.objective),
        _masking_block(asked, scenarios),
        _plot_block(asked.keys) if asked.spec else "",
        _RELEASE if asked.release else "",
    ]
    body = "\n".join(block for block in blocks if block)
    uses_verbs = "workflow." in body
    needs_key = "key=key" in body
    head = "import safeswap as ss\n" + ("from safeswap import workflow\n" if uses_verbs else "")
    key = "\nkey = ss.read_key('secret.key')  # made once by: safeswap keygen secret.key\n" if needs_key else ""
    return f"{head}{key}\n{body}"


def _read_block(file_name: str, schema: Schema | None, origin: Origin, tolerance: int) -> str:
    layout = "".join(f", {name}={value!r}" for name, value in origin.layout.items())
    shown = "" if tolerance == 3 else f", tolerance={tolerance}"
    people, homes = name_files(file_name, schema)
    if homes is not None and schema is not None:
        of_homes, of_people = divide_schema(schema, origin.household_columns)
        number = require_household(schema)
        told = of_homes.replace(of_homes[number].model_copy(update={"kind": Kind.HOUSEHOLD}))
        read = "from safeswap.workflow.households import merge_households\n\n"
        read += f"homes = ss.read({homes!r}{layout}{_read_options(told)})\n"
        read += f"people = ss.read({people!r}{layout}{_read_options(of_people)})\n"
        read += f"data = merge_households(homes, people, on={number!r})\n"
    else:
        read = f"data = ss.read({file_name or 'survey.csv'!r}{layout}{_read_options(schema)})\n"
    return f"{read}print(ss.describe(data{shown}))\n"


def _read_options(schema: Schema | None) -> str:
    if schema is None:
        return ""
    identifier = next((a.name for a in schema.attributes if a.kind.value == "identifier"), None)
    kinds = {a.name: a.kind.value for a in schema.attributes if a.name != identifier}
    stated = "" if identifier is None else f", identifier={identifier!r}"
    indented = _format_value(kinds).replace("\n", "\n    ")
    return f"{stated},\n    kinds={indented},\n" if kinds else stated


def _recipe_block(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return ""
    # A step that masks by a method draws at random: it needs the key.
    key = ", key=key" if any("method" in step for step in steps) else ""
    listed = "".join(f"    {_format_value(dict(step))},\n" for step in steps)
    return f"recipe = [\n{listed}]\ndata = workflow.recode(data, recipe{key})\n"


def _tables_block(asked: Mapping[str, Any] | None) -> str:
    """Return the lines that check tables and make them safe.

    >>> print(_tables_block({"tables": [["Race", "Sex"]], "tolerance": 5}), end="")
    tables = [['Race', 'Sex']]
    print(workflow.check_tables(data, tables, tolerance=5))
    safe = workflow.safe_table(data, attributes=tables, tolerance=5)
    print(safe)
    from safeswap.reports.safe import write_safe_report
    write_safe_report(safe, 'tables.html')
    """
    if asked is None:
        return ""
    tolerance = _format_arguments({"tolerance": asked.get("tolerance", 3)})
    rest = _format_arguments(
        {name: asked[name] for name in ("keep", "objective", "soft", "time_limit") if name in asked}
    )
    return (
        f"tables = {_format_value(asked.get('tables', []))}\nprint(workflow.check_tables(data, tables, {tolerance}))\n"
        f"safe = workflow.safe_table(data, attributes=tables, {tolerance}{rest and ', '}{rest})\n"
        "print(safe)\nfrom safeswap.reports.safe import write_safe_report\nwrite_safe_report(safe, 'tables.html')\n"
    )


def _study_block(asked: Mapping[str, Any] | None, objective: str) -> str:
    if asked is None:
        return ""
    rule = repr(objective) if objective else ""
    return (
        f"study = ss.study(data, {_format_arguments({**asked, 'key': _Code('key')})})\n"
        f"choice = study.choose({rule})\nprint(choice)\n"
        "study.save('study', choice=choice, data=data)  # study/report.html, study/map.html\n"
    )


def _masking_block(asked: ScriptRequest, scenarios: Sequence[Scenario]) -> str:
    """Return the lines that mask and measure, under the scenarios of the project."""
    if asked.spec is None:
        return ""
    drawn = f", replicate={asked.replicate}" if asked.replicate else ""
    measures = f", measures={list(asked.measures)!r}" if asked.measures else ""
    stated = f"scenarios = {_format_value([each.as_dict() for each in scenarios])}\n" if scenarios else ""
    under = ", scenario=scenarios" if scenarios else ""
    return (
        f"spec = {_format_value(asked.spec)}\nprint(ss.plan(data, spec).sentence)\n"
        f"masked = ss.mask(data, spec, key=key{drawn})\n{stated}print(ss.assess(masked{measures}{under}))\n"
    )


def _plot_block(keys: Sequence[str]) -> str:
    if not keys:
        return ""
    return (
        f"plot = workflow.confidentiality(masked, keys={list(keys)!r}, key=key)\n"
        "from safeswap.charts.confidentiality import write_plot\nwrite_plot(plot, 'plot.html')\n"
    )


class _Code(str):
    """Text inserted into a script verbatim."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _format_arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_format_value(value)}" for name, value in values.items() if name.isidentifier())


def _format_value(value: Any) -> str:
    """Format a value as a Python literal, so that no input can become code."""
    return pformat(value, width=100, sort_dicts=False, compact=True)


scripts_router = APIRouter(tags=["library"])


@scripts_router.post("/projects/{project_id}/script")
def make_script(access: Reader, body: ScriptRequest) -> ScriptAnswer:
    """Generate the Python script for what a screen shows. Nothing is changed."""
    version = access.row.data_version
    schema = read_schema(access.service.store, access.id, version) if version else None
    tolerance = access.row.tolerance
    if body.spec is not None:
        body = body.model_copy(update={"spec": with_default_keys(access, body.spec)})
    known: dict[str, Any] = {"schema": schema, "tolerance": tolerance, "scenarios": scenarios_of(access)}
    known["origin"] = read_origin(access.service.store, access.id, version)
    return ScriptAnswer(script=script_of(body, file_name=access.row.file_name, **known))
