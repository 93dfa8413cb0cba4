"""``safeswap step``: list, add, move, edit and remove the steps of a project file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import command, make_group
from safeswap.cli.project import ProjectFile
from safeswap.errors import SpecError
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.projects.project import Project

step = make_group("List, add, move, edit and remove the steps of a project file.", no_args_is_help=True)

StepName = Annotated[str, typer.Argument(metavar="STEP", help="name of the step, or its number from 1")]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help='parameter, as in the file: rate=0.02, swap=region,sex, swap=["a,b"]'
    ),
]


@step.command(name="list")
@command
def list_steps(console: Console, project: ProjectFile) -> None:
    """Show the steps in order."""
    _, found = _read(project)
    _show(console, found, "list")


@step.command()
@command
def add(
    console: Console,
    project: ProjectFile,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="method of the step, such as swap or suppress")],
    *,
    values: Values = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="name of the step; default: its method")] = None,
    before: Annotated[str | None, typer.Option(metavar="STEP", help="put it before that step; default: last")] = None,
) -> None:
    """Add a step."""
    file, found = _read(project)
    steps = found.content()["step"]
    made = {"method": method, **({} if name is None else {"name": name}), **_parse(values or [], method)}
    steps.insert(len(steps) if before is None else _find(steps, before), made)
    _save(console, file, found.with_steps(steps), "add")


@step.command()
@command
def move(
    console: Console,
    project: ProjectFile,
    which: StepName,
    *,
    to: Annotated[int | None, typer.Option(min=1, metavar="N", help="its new place, from 1")] = None,
    before: Annotated[str | None, typer.Option(metavar="STEP", help="put it before that step")] = None,
    first: Annotated[bool, typer.Option("--first", help="put it first")] = False,
    last: Annotated[bool, typer.Option("--last", help="put it last")] = False,
) -> None:
    """Move a step to another place. Its random draws stay: they depend on its name."""
    if sum([to is not None, before is not None, first, last]) != 1:
        raise typer.BadParameter("give one of --to, --before, --first and --last")
    file, found = _read(project)
    steps = found.content()["step"]
    moved = steps.pop(_find(steps, which))
    place = 0 if first else len(steps) if last else (to - 1 if to is not None else _find(steps, str(before)))
    if place > len(steps):
        raise _no_such_step([*steps, moved], str(to))
    steps.insert(place, moved)
    _save(console, file, found.with_steps(steps), "move")


@step.command()
@command
def edit(
    console: Console,
    project: ProjectFile,
    which: StepName,
    *,
    values: Values = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="return a parameter to its default; may be repeated")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="new name; its random draws change with it")] = None,
    on: Annotated[bool | None, typer.Option("--on/--off", help="carry it out, or keep it without its effect")] = None,
) -> None:
    """Change parameters of a step, rename it, or switch it off and on."""
    file, found = _read(project)
    steps = found.content()["step"]
    at = _find(steps, which)
    old = {key: value for key, value in steps[at].items() if key not in (unset or [])}
    changed = {**old, **_parse(values or [], str(old["method"])), **({} if name is None else {"name": name})}
    if on is not None:
        changed["off"] = not on
    steps[at] = changed
    _save(console, file, found.with_steps(steps), "edit")


@step.command()
@command
def remove(console: Console, project: ProjectFile, which: StepName) -> None:
    """Remove a step."""
    file, found = _read(project)
    steps = found.content()["step"]
    steps.pop(_find(steps, which))
    _save(console, file, found.with_steps(steps), "remove")


def _read(path: Path) -> tuple[Path, Project]:
    from safeswap.projects.project import Project
    from safeswap.workflow.project import find_project

    file = find_project(path)
    return file, Project.read(file)


def _save(console: Console, file: Path, project: Project, done: str) -> None:
    project.save(file, force=True)
    _show(console, project, done)


def _show(console: Console, project: Project, done: str) -> None:
    stated = project.content()["step"]
    rows = [
        (number, each.name, "on" if is_on else "off", each.sentence.partition(": ")[2] or _tell(values))
        for number, ((each, is_on), values) in enumerate(zip(project.listed, stated, strict=True), start=1)
    ]
    console.say(table(["step", "name", "", "what"], rows) if rows else "The project has no steps.")
    console.result({"command": f"step {done}", "steps": stated})


def _tell(values: dict[str, Any]) -> str:
    """Return the parameters of a step in a line."""
    listed = {key: value for key, value in values.items() if key not in ("name", "off")}
    return ", ".join(
        f"{key} {' + '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in listed.items()
    )


def _find(steps: list[dict[str, Any]], which: str) -> int:
    names = [str(each["name"]) for each in steps]
    if which in names:
        return names.index(which)
    if which.isdecimal() and 1 <= int(which) <= len(steps):
        return int(which) - 1
    raise _no_such_step(steps, which)


def _no_such_step(steps: list[dict[str, Any]], which: str) -> SpecError:
    names = [str(each["name"]) for each in steps]
    return SpecError(
        f"the project has {plural(len(steps), 'step')} ({', '.join(names) or 'none'}), and none is {visible(which)!r}",
        code="no-such-step",
        hint="name a step, or give its number, from 1",
        steps=names,
    )


def _parse(texts: list[str], method: str) -> dict[str, Any]:
    """Return parameters from NAME=VALUE, where a value is written as in the file, or as plain text."""
    from safeswap import registry

    schema = registry.method(method).spec_type.model_json_schema()["properties"]
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise typer.BadParameter(f"--set takes NAME=VALUE, not {visible(text)!r}")
        found[name.strip()] = _parse_value(value.strip(), is_list=schema.get(name.strip(), {}).get("type") == "array")
    return found


def _parse_value(text: str, *, is_list: bool) -> Any:
    """Return the value of a text.

    >>> _parse_value("0.02", is_list=False), _parse_value("region, sex", is_list=True)
    (0.02, ['region', 'sex'])
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if is_list and not isinstance(value, list):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value
