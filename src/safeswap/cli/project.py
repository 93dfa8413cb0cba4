"""``safeswap init``, ``run`` and ``status``: a whole job in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.masking import CONFIDENTIAL
from safeswap.cli.options import OUTPUT, RANDOMNESS, KeyFile, check_outputs, command, reading_options
from safeswap.model.text import plural

if TYPE_CHECKING:
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
    reading: dict[str, Any],
) -> None:
    """Write a project file for a data file, with every guess marked.

    The kinds of columns are inferred, keys are ranked, and first steps are proposed. A guess is marked "# ?" with its
    evidence: check it, correct it, and take the question mark out. Nothing is overwritten.
    """
    from safeswap.files.atomic import PRIVATE_DIRECTORY
    from safeswap.files.sources import existing_file
    from safeswap.projects.project import Project
    from safeswap.workflow.project import PROJECT

    source = existing_file(file)
    folder = source.parent / source.name.split(".", 1)[0] if output is None else output
    target = folder / PROJECT
    check_outputs([folder] if not folder.is_dir() else [target], hint="edit it, or choose another --output")
    with console.steps(1) as steps:
        steps.at("reading")
        project = Project.start(file, folder=folder, **reading)
    made = not folder.is_dir()
    if made:
        folder.mkdir(mode=PRIVATE_DIRECTORY)
    try:
        project.save(target)
    except BaseException:
        if made:
            folder.rmdir()
        raise
    console.say(f"Wrote {visible(str(target))}.")
    if project.guesses:
        console.say(f'{plural(len(project.guesses), "guess", "guesses")} marked "# ?":')
        console.say(table(["place", "evidence"], list(project.guesses.items())))
    console.say(f"Next: look at them, then safeswap run {visible(str(target))}")
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
    study: Annotated[bool, typer.Option("--study/--no-study", help="run the study that the project states")] = True,
) -> None:
    """Do what a project file says, up to "ready for release".

    Reads the data, carries out the steps, measures the risk under every scenario, verifies all promises and checks what
    the project requires. A study that the project states is run too. Finished steps are kept sealed in .safeswap beside
    the file: a run that was stopped goes on there. Nothing is released. The exit code is 9 if something stands against
    a release.
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
    console.say(visible(f"{report.number:>2} {report.name:<18} {report.done:<50} {took:>7}   {figures}{loss}"))


def _show_run(console: Console, done: ProjectRun) -> None:
    for flag in done.flags:
        console.warn(f"! {flag}")
    reports = done.reports[0].parent if done.reports else None
    places = [("masked file", done.output, CONFIDENTIAL), ("audit record", done.audit, CONFIDENTIAL)]
    console.say_places(*places, *([("reports", reports, CONFIDENTIAL)] if reports else []))
    for each in done.outcomes:
        console.say(f"  {'✓' if each.ok else '✗'} {visible(each.sentence)}")
    if done.study is not None:
        whose = f" under {visible(done.study.scenario)}" if done.study.scenario else ""
        console.say(f"Study of {plural(done.study.candidates, 'candidate')}{whose}: {visible(done.study.sentence)}")
        console.say_places(("study", done.study.output, CONFIDENTIAL))
    if done.is_ready:
        console.say(f"Everything that was promised holds ({plural(done.checks, 'check')}). Ready for release.")
        return
    for failure in done.failures:
        console.warn(f"Not ready for release: {failure}.")


@command
def status(console: Console, project: ProjectFile) -> None:
    """Say what of a project is up to date.

    Compares the data, the steps and the masked file with those of the last run. Needs no key.
    """
    from safeswap.workflow.project import project_status

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
