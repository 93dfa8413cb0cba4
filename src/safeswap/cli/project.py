"""``safeswap init``, ``run``, ``status`` and ``step``: a whole job in one file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, escape, table
from safeswap.cli.mask import CONFIDENTIAL, HOUSEHOLDS
from safeswap.cli.options import OUTPUT, RANDOMNESS, KeyFile, check_outputs, command, make_group, reading_options
from safeswap.errors import SpecError
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from safeswap.projects.project import Project
    from safeswap.workflow.project import ProjectRun, StepReport

NOT_READY = 9  # of no error: the run did what it was asked to
_MOST_NAMED = 5

ProjectFile = Annotated[Path, typer.Argument(metavar="PROJECT", help="project file, or the directory that holds it")]


@command
@reading_options
def init(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="data file")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="directory of the project; by default one beside the file, with its name",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    households: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="file of households that belongs to the person file FILE", rich_help_panel=HOUSEHOLDS
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="A", help="number of the household, a column of both files", rich_help_panel=HOUSEHOLDS),
    ] = None,
    reading: dict[str, Any],
) -> None:
    """Write a project file for a data file, with every guess marked.

    The kinds of columns are inferred, keys are ranked, and first steps are proposed. A guess is marked "# ?" with its
    evidence: check it, correct it, and remove the question mark. Nothing is overwritten.
    """
    from safeswap.files.atomic import PRIVATE_DIRECTORY
    from safeswap.files.formats import existing_file
    from safeswap.projects.project import Project
    from safeswap.workflow.project_status import PROJECT

    if on is not None and households is None:
        raise typer.BadParameter("--on belongs to --households FILE")
    source = existing_file(file)
    folder = source.parent / source.name.split(".", 1)[0] if output is None else output
    target = folder / PROJECT
    check_outputs([folder] if not folder.is_dir() else [target], hint="edit it, or choose another --output")
    with console.steps(1) as steps:
        steps.at("reading")
        project = Project.start(file, folder=folder, households=households, on=on, **reading)
    made = not folder.is_dir()
    if made:
        folder.mkdir(mode=PRIVATE_DIRECTORY)
    try:
        project.save(target)
    except BaseException:
        if made:
            folder.rmdir()
        raise
    console.say(f"Wrote {escape(str(target))}.")
    if project.guesses:
        console.say(f'{plural(len(project.guesses), "guess", "guesses")} marked "# ?":')
        console.say(table(["place", "evidence"], list(project.guesses.items())))
    console.say(f"Next: look at them, then safeswap run {escape(str(target))}")
    console.result({"command": "init", "project": str(target), "guesses": dict(project.guesses)})


@command
def run(
    console: Console,
    project: ProjectFile,
    *,
    key: KeyFile = None,
    replicate: Annotated[
        int, typer.Option(min=0, metavar="N", help="number of the draw from the key", rich_help_panel=RANDOMNESS)
    ] = 0,
    study: Annotated[bool, typer.Option("--study/--no-study", help="run the project's study")] = True,
) -> None:
    """Run a project file up to "ready for release".

    Reads the data, carries out the steps, measures the risk under every scenario, verifies all promises and checks what
    the project requires. The study of the project is run too, if it has one. Finished steps are kept sealed in
    .safeswap beside the file, and a run that was stopped resumes from them. Nothing is released. The exit code is 9 if
    anything prevents a release.
    """
    from safeswap import workflow
    from safeswap.cli.study import Bar
    from safeswap.workflow.project import run_project

    secret = None if key is None else workflow.read_key(key)
    with Bar(console) as bar:
        done = run_project(
            project,
            key=secret,
            replicate=replicate,
            progress=lambda report: _show_step(console, report),
            study=study,
            studied=bar,
        )
    _show_run(console, done)
    console.result({"command": "run", **done.as_dict()})
    if not done.is_ready:
        raise typer.Exit(NOT_READY)


def _show_step(console: Console, report: StepReport) -> None:
    took = "kept" if report.kept else f"{report.seconds:.1f} s"
    loss = "" if report.information_loss is None else f"   information lost {report.information_loss:.1%}"
    loss += "" if report.hellinger is None else f"   Hellinger {report.hellinger:.3f}"
    figures = "; ".join(each.sentence for each in report.figures)
    console.say(escape(f"{report.number:>2} {report.name:<18} {report.done:<50} {took:>7}   {figures}{loss}"))


def _show_run(console: Console, done: ProjectRun) -> None:
    for flag in done.flags:
        console.warn(f"! {flag}")
    reports = done.reports[0].parent if done.reports else None
    places = [("masked file", done.output, CONFIDENTIAL), ("audit record", done.audit, CONFIDENTIAL)]
    places[1:1] = [] if done.households is None else [("masked households", done.households, CONFIDENTIAL)]
    console.say_places(*places, *([("reports", reports, CONFIDENTIAL)] if reports else []))
    for each in done.outcomes:
        console.say(f"  {'✓' if each.ok else '✗'} {escape(each.sentence)}")
    if done.study is not None:
        whose = f" under {escape(done.study.scenario)}" if done.study.scenario else ""
        console.say(f"Study of {plural(done.study.candidates, 'candidate')}{whose}: {escape(done.study.sentence)}")
        console.say_places(("study", done.study.output, CONFIDENTIAL))
    if done.is_ready:
        console.say(f"All promises hold ({plural(done.checks, 'check')}). Ready for release.")
        if done.unconfirmed:
            names = escape(list_names(done.unconfirmed))
            console.warn(
                f"Before releasing, confirm the guesses for {names} in the project file: remove the question marks."
            )
        return
    for failure in done.failures:
        console.warn(f"Not ready for release: {failure}.")


@command
def status(console: Console, project: ProjectFile) -> None:
    """Show which parts of a project are up to date.

    Compares the data, the steps and the masked file with those of the last run. Needs no key.
    """
    from safeswap.workflow.project_status import project_status

    found = project_status(project)
    current = sum(how == "current" for _, how in found.steps)
    others = ", ".join(f"{name} {how}" for name, how in found.steps if how != "current")
    steps = f"{current} of {len(found.steps)} current" + (f" ({others})" if others else "")
    shown = ", ".join(found.guesses[:_MOST_NAMED]) + (" …" if len(found.guesses) > _MOST_NAMED else "")
    guesses = f"{len(found.guesses)} left: {shown}" if found.guesses else "none left"
    rows = [
        ("data", found.data),
        ("guesses", guesses),
        ("steps", steps),
        ("masked file", found.masked),
        ("last run", found.ready),
        ("study", found.study),
        ("release", found.release),
    ]
    console.say(table(["part", "state"], rows))
    console.result({"command": "status", **found.as_dict()})


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
    on: Annotated[bool | None, typer.Option("--on/--off", help="run the step, or keep it but skip it")] = None,
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
    from safeswap.workflow.project_status import find_project

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
        f"the project has {plural(len(steps), 'step')} ({', '.join(names) or 'none'}), and none is {escape(which)!r}",
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
            raise typer.BadParameter(f"--set takes NAME=VALUE, not {escape(text)!r}")
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
