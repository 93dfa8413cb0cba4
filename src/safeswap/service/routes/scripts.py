"""Python scripts that reproduce what a screen shows, with the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from safeswap.model.scenario import Scenario
from safeswap.model.schema import Kind, Schema, household_attributes, require_household
from safeswap.model.two_files import divide_schema
from safeswap.service.http.wire import Wire, example
from safeswap.service.people.roles import Reader
from safeswap.service.routes.data import TWO_NAMES
from safeswap.service.routes.settings import scenarios_of, with_default_keys
from safeswap.service.work.tasks import read_schema


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


def script_of(
    asked: ScriptRequest,
    *,
    file_name: str,
    schema: Schema | None,
    tolerance: int,
    scenarios: Sequence[Scenario] = (),
) -> str:
    """Generate the script, in the order of the screens.

    >>> print(script_of(ScriptRequest(), file_name="survey.csv", schema=None, tolerance=3))
    import safeswap as ss
    <BLANKLINE>
    data = ss.read('survey.csv')
    print(ss.describe(data))
    <BLANKLINE>
    """
    blocks = [
        _read_block(file_name, schema, tolerance),
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


def _read_block(file_name: str, schema: Schema | None, tolerance: int) -> str:
    shown = "" if tolerance == 3 else f", tolerance={tolerance}"
    homes, _, people = file_name.partition(TWO_NAMES)
    if people and schema is not None and household_attributes(schema):
        of_homes, of_people = divide_schema(schema)
        number = require_household(schema)
        told = of_homes.replace(of_homes[number].model_copy(update={"kind": Kind.HOUSEHOLD}))
        read = "from safeswap.workflow.households import merge_households\n\n"
        read += f"homes = ss.read({homes!r}{_read_options(told)})\n"
        read += f"people = ss.read({people!r}{_read_options(of_people)})\n"
        read += f"data = merge_households(homes, people, on={number!r})\n"
    else:
        read = f"data = ss.read({file_name or 'survey.csv'!r}{_read_options(schema)})\n"
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
        "from safeswap.reports.plot_files import write_plot\nwrite_plot(plot, 'plot.html')\n"
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


router = APIRouter(tags=["library"])


@router.post("/projects/{project_id}/script")
def make_script(access: Reader, body: ScriptRequest) -> ScriptAnswer:
    """Generate the Python script for what a screen shows. Nothing is changed."""
    version = access.row.data_version
    schema = read_schema(access.service.store, access.id, version) if version else None
    tolerance = access.row.tolerance
    if body.spec is not None:
        body = body.model_copy(update={"spec": with_default_keys(access, body.spec)})
    known = {"schema": schema, "tolerance": tolerance, "scenarios": scenarios_of(access)}
    return ScriptAnswer(script=script_of(body, file_name=access.row.file_name, **known))
