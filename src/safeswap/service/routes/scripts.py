"""The Python that does what a screen shows: a person can take it home, run it, and get the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field

from safeswap.model.schema import Schema
from safeswap.service.people.roles import ProjectAccess, project
from safeswap.service.schemas.projects import Wire, example
from safeswap.service.state import service_of


class ScriptRequest(Wire):
    """What the screen shows at the moment; what is left out is left out of the script."""

    model_config = ConfigDict(
        json_schema_extra=example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}, release=True)
    )

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


def script_of(asked: ScriptRequest, *, file_name: str, schema: Schema | None, tolerance: int) -> str:
    """The script, line by line in the order of the screens.

    >>> print(script_of(ScriptRequest(), file_name="survey.csv", schema=None, tolerance=3))
    import safeswap as ss
    <BLANKLINE>
    data = ss.read('survey.csv')
    print(ss.describe(data))
    <BLANKLINE>
    """
    blocks = [
        _opening(file_name, schema, tolerance),
        _recipe(asked.recipe),
        _risky(asked.risky),
        _tables(asked.tables),
        _study(asked.study, asked.objective),
        _masking(asked),
        _plot(asked.keys) if asked.spec else "",
        _release() if asked.release else "",
    ]
    body = "\n".join(block for block in blocks if block)
    uses_verbs = "workflow." in body
    needs_key = "key=key" in body
    head = "import safeswap as ss\n" + ("from safeswap import workflow\n" if uses_verbs else "")
    key = "\nkey = ss.read_key('secret.key')  # made once by: safeswap keygen secret.key\n" if needs_key else ""
    return f"{head}{key}\n{body}"


def _opening(file_name: str, schema: Schema | None, tolerance: int) -> str:
    options = _reading(schema)
    shown = "" if tolerance == 3 else f", tolerance={tolerance}"
    return f"data = ss.read({file_name or 'survey.csv'!r}{options})\nprint(ss.describe(data{shown}))\n"


def _reading(schema: Schema | None) -> str:
    if schema is None:
        return ""
    identifier = next((a.name for a in schema.attributes if a.kind.value == "identifier"), None)
    kinds = {a.name: a.kind.value for a in schema.attributes if a.name != identifier}
    stated = "" if identifier is None else f", identifier={identifier!r}"
    indented = _value(kinds).replace("\n", "\n    ")
    return f"{stated},\n    kinds={indented},\n" if kinds else stated


def _recipe(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return ""
    # A step that masks by a method of its own draws: it needs the key.
    key = ", key=key" if any("method" in step for step in steps) else ""
    listed = "".join(f"    {_value(dict(step))},\n" for step in steps)
    return f"recipe = [\n{listed}]\ndata = workflow.recode(data, recipe{key})\n"


def _risky(asked: Mapping[str, Any] | None) -> str:
    return "" if asked is None else f"print(workflow.risky(data, {_arguments(asked)}))\n"


def _tables(asked: Mapping[str, Any] | None) -> str:
    """Check tables, then make them safe.

    >>> print(_tables({"tables": [["Race", "Sex"]], "tolerance": 5}), end="")
    tables = [['Race', 'Sex']]
    print(workflow.check_tables(data, tables, tolerance=5))
    safe = workflow.safe_table(data, attributes=tables, tolerance=5)
    print(safe)
    workflow.safe_table_report(safe, 'tables.html')
    """
    if asked is None:
        return ""
    tolerance = _arguments({"tolerance": asked.get("tolerance", 3)})
    rest = _arguments({name: asked[name] for name in ("keep", "objective", "soft", "time_limit") if name in asked})
    return (
        f"tables = {_value(asked.get('tables', []))}\nprint(workflow.check_tables(data, tables, {tolerance}))\n"
        f"safe = workflow.safe_table(data, attributes=tables, {tolerance}{rest and ', '}{rest})\n"
        "print(safe)\nworkflow.safe_table_report(safe, 'tables.html')\n"
    )


def _study(asked: Mapping[str, Any] | None, objective: str) -> str:
    if asked is None:
        return ""
    rule = repr(objective) if objective else ""
    return (
        f"study = ss.study(data, {_arguments({**asked, 'key': _Code('key')})})\n"
        f"choice = study.choose({rule})\nprint(choice)\n"
        "workflow.save_study(study, 'study', choice=choice, data=data)  # study/report.html, study/map.html\n"
    )


def _masking(asked: ScriptRequest) -> str:
    if asked.spec is None:
        return ""
    drawn = f", replicate={asked.replicate}" if asked.replicate else ""
    measures = f", measures={list(asked.measures)!r}" if asked.measures else ""
    return (
        f"spec = {_value(asked.spec)}\nprint(ss.plan(data, spec).sentence)\n"
        f"masked = ss.mask(data, spec, key=key{drawn})\nprint(ss.assess(masked{measures}))\n"
    )


def _plot(keys: Sequence[str]) -> str:
    if not keys:
        return ""
    return (
        f"plot = workflow.confidentiality(masked, keys={list(keys)!r}, key=key)\n"
        "workflow.write_confidentiality(plot, 'plot.html')\n"
    )


def _release() -> str:
    return "published = ss.release(masked, 'public', audit='confidential', key=key)\nprint(ss.verify('public'))\n"


class _Code(str):
    """Text that stands in a script as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in values.items() if name.isidentifier())


def _value(value: Any) -> str:
    """A literal of Python: whatever a name holds, it stays text in the script."""
    return pformat(value, width=100, sort_dicts=False, compact=True)


# Show me the Python.

router = APIRouter(tags=["library"])


@router.post("/projects/{project_id}/script")
def make_script(
    request: Request, access: Annotated[ProjectAccess, Depends(project("read"))], body: ScriptRequest
) -> ScriptAnswer:
    """The script in Python that does what a screen shows. Nothing is changed."""
    from safeswap.service.tasks.context import read_schema

    version = access.row.data_version
    schema = read_schema(service_of(request).store, access.id, version) if version else None
    tolerance = access.row.tolerance
    return ScriptAnswer(script=script_of(body, file_name=access.row.file_name, schema=schema, tolerance=tolerance))
