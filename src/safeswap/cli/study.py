"""``safeswap study``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import OUTPUT, Force, InsecureSeed, KeyFile, command, names, randomness, reading_options
from safeswap.cli.outputs import check_outputs
from safeswap.errors import InfeasibleError, OutputError

if TYPE_CHECKING:
    from safeswap.io.checkpoint import CheckpointDirectory
    from safeswap.model.microdata import Microdata
    from safeswap.model.study import StudySpec
    from safeswap.search.choice import Choice
    from safeswap.search.study import Study

CANDIDATES = "What is tried"
FIGURES = "How it is measured and chosen"
RUNNING = "How it runs"
LARGE = 200_000  # candidates; more than this takes long enough to think of a search


def _option(panel: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, rich_help_panel=panel, **more)


@command
@reading_options
def study(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file of which a release is to be made")],
    *,
    attributes: Annotated[
        list[str] | None,
        _option(CANDIDATES, metavar="A,B", help="attributes that may be swapped; all categorical ones if not stated"),
    ] = None,
    up_to: Annotated[
        int | None, _option(CANDIDATES, metavar="N", help="how many attributes may be swapped together (default: 2)")
    ] = None,
    rates: Annotated[
        list[str] | None,
        _option(CANDIDATES, metavar="R,R", help="shares of records that take part (default: 0.01,0.02,0.1)"),
    ] = None,
    fixed: Annotated[
        list[str] | None, _option(CANDIDATES, metavar="A,B", help="attributes that must be equal within a pair")
    ] = None,
    differ: Annotated[
        list[str] | None, _option(CANDIDATES, metavar="A,B", help="attributes that must differ within a pair")
    ] = None,
    constraints: Annotated[
        list[str] | None,
        _option(
            CANDIDATES,
            metavar="TEXT",
            help='a set of constraints, each tried in turn, e.g. "Sex equal, MS different" or none; repeatable',
        ),
    ] = None,
    true_swap: Annotated[
        Literal["any", "all"] | None,
        _option(CANDIDATES, help="a pair counts if any, or all, of its swap attributes differ (default: any)"),
    ] = None,
    pairing: Annotated[
        Literal["repaired", "uniform"] | None,
        _option(
            CANDIDATES,
            help="go on until the asked-for number or the maximum, or make one random pass (default: repaired)",
        ),
    ] = None,
    replicates: Annotated[
        int | None, _option(CANDIDATES, metavar="N", help="keyed draws per specification (default: 1)")
    ] = None,
    risk: Annotated[
        list[str] | None,
        _option(FIGURES, metavar="NAME", help="risk measures, the first is the upward axis (default: n_rule)"),
    ] = None,
    distortion: Annotated[
        list[str] | None,
        _option(
            FIGURES,
            metavar="NAME",
            help="distortion measures, the first is the sideways axis (default: the usual ones, hellinger first)",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        _option(FIGURES, metavar="A,B", help="attributes that form the cells; all categorical ones if not stated"),
    ] = None,
    objective: Annotated[
        str | None,
        _option(
            FIGURES,
            metavar="RULE",
            help="how one is chosen: linear:a=2, cap_risk:0.01 or cap_distortion:0.05 (default: linear:a=1)",
        ),
    ] = None,
    question: Annotated[
        Path | None,
        _option(RUNNING, "--study", metavar="TOML", help="a study in a file; what options state takes its place"),
    ] = None,
    write_study: Annotated[
        Path | None, _option(RUNNING, metavar="TOML", help="only write the study to a file, to be run with --study")
    ] = None,
    plan_only: Annotated[
        bool, _option(RUNNING, "--plan-only", help="only say how many candidates there are; needs no key")
    ] = False,
    search: Annotated[
        int | None,
        _option(RUNNING, metavar="BUDGET", help="look at so many specifications only, chosen by a search"),
    ] = None,
    resume: Annotated[bool, _option(RUNNING, "--resume", help="go on where a study was stopped")] = False,
    threads: Annotated[
        int | None, _option(RUNNING, min=1, metavar="N", help="threads; all cores if not stated")
    ] = None,
    key: KeyFile = None,
    insecure_seed: InsecureSeed = None,
    output: Annotated[
        Path | None, _option(OUTPUT, metavar="DIR", help="the directory to make: figures, map, reports; stays inside")
    ] = None,
    pages: Annotated[bool, _option(OUTPUT, help="write the map and the reports besides the figures")] = True,
    publish_figures: Annotated[
        bool,
        _option(
            OUTPUT,
            "--publish-figures",
            help="put the map and the figures into the public report; the rate can be inferred from them",
        ),
    ] = False,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Try many candidate releases, show their frontier and choose one.

    Candidates are figures only: no masked file is made. Mask the file by the chosen specification and replicate, with
    the same key, and you get the very draw that was measured.

    Ctrl-C stops it; the same call with --resume goes on.
    """
    from safeswap import workflow
    from safeswap.cli.study_words import document, masking_command

    stated = {
        "attributes": names(attributes) if attributes else None,
        "up_to": up_to,
        "rates": names(rates) if rates else None,
        "constraints": _constraints(fixed, differ, constraints),
        "true_swap": true_swap,
        "pairing": pairing,
        "replicates": replicates,
        "risk": _measures(risk),
        "distortion": _measures(distortion),
        "keys": names(keys) if keys else None,
        "objective": objective,
    }
    spec = _question(question, {name: value for name, value in stated.items() if value is not None})
    if write_study is not None:
        from safeswap.io.study_toml import write_study_spec

        write_study_spec(spec, write_study, force=force)
        console.say(f"Written to {write_study}; run it with --study.")
        console.result({"command": "study", "study": str(write_study)})
        return
    if plan_only:
        _, total = _read(console, file, reading, spec, search)
        console.result({"command": "study", "candidates": total})
        return
    output = _checked_output(output, [file, *([key] if key else [])], force=force)
    secret = randomness(key=key, insecure_seed=insecure_seed)
    data, _ = _read(console, file, reading, spec, search)
    checkpoint = _checkpoint(output, resume=resume, force=force)
    secret |= {} if search is None else {"budget": search}
    found = _run(console, data, spec, threads=threads, checkpoint=checkpoint, **secret)
    choice, why_none = _choice(found)
    workflow.save_study(
        found, output, choice=choice, data=data, pages=pages, publish_figures=publish_figures, force=force
    )
    checkpoint.discard()
    _tell(console, found, choice, output, pages=pages)
    if choice is not None:
        console.say("\nThis very draw as a masked file:\n" + masking_command(choice, file, key, insecure_seed, reading))
    if why_none is not None:
        hint = f"{why_none.hint}; all figures are in {output}"
        raise InfeasibleError(why_none.message, code=why_none.code, hint=hint, output=str(output))
    console.result({"command": "study", **document(found, choice), "output": str(output)})


def _read(
    console: Console, file: Path, reading: dict[str, Any], spec: StudySpec, search: int | None
) -> tuple[Microdata, int]:
    """The data, and how many candidates the study has: said before anything runs."""
    from safeswap import workflow

    with console.steps(1) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        total = workflow.number_of_candidates(data, spec)
    console.say(_number_told(spec, total, search))
    return data, total


def _question(path: Path | None, stated: dict[str, Any]) -> StudySpec:
    from safeswap.io.study_toml import read_study_spec
    from safeswap.model.study import StudySpec

    return StudySpec(**stated) if path is None else read_study_spec(path, **stated)


def _constraints(fixed: list[str] | None, differ: list[str] | None, sets: list[str] | None) -> tuple[Any, ...] | None:
    """Each --constraints is a set; --fixed and --differ together are one more."""
    from safeswap.model.study import ConstraintSet

    found = [ConstraintSet.from_text(text) for text in sets or ()]
    if fixed or differ:
        found.append(ConstraintSet(fixed=names(fixed or ()), differ=names(differ or ())))
    return tuple(found) or None


def _measures(stated: Sequence[str] | None) -> tuple[str, ...] | None:
    """Measures from repeated options; names without parameters may be parted by commas."""
    if not stated:
        return None
    found = [part.strip() for text in stated for part in ([text] if ":" in text else next(csv.reader([text]), []))]
    return tuple(part for part in found if part)


def _checked_output(output: Path | None, inputs: Sequence[Path], *, force: bool) -> Path:
    if output is None:
        raise typer.BadParameter("say where the figures go: --output DIR")
    check_outputs([output], inputs=inputs, force=force)
    return output


def _number_told(spec: StudySpec, total: int, search: int | None) -> str:
    draws = f" ({total // spec.replicates:,} specifications × {spec.replicates:,} replicates)"
    text = f"{total:,} candidates" + (draws if spec.replicates > 1 else "")
    if search is not None:
        return f"{text}; a search looks at {min(search, total // spec.replicates):,} specifications."
    return f"{text}; a search (--search BUDGET) would look at fewer." if total > LARGE else f"{text}."


def _checkpoint(output: Path, *, resume: bool, force: bool) -> CheckpointDirectory:
    """Where finished blocks are kept: beside the output, under a name that says so."""
    from safeswap.io.checkpoint import CheckpointDirectory

    place = output.with_name(f"{output.name}.unfinished")
    if resume and not place.is_dir():
        raise OutputError(
            f"there is no unfinished study {place.name!r} to go on with",
            code="nothing-to-resume",
            hint="leave out --resume",
            file=str(place),
        )
    kept = CheckpointDirectory(place, must_match=resume)
    if not resume and kept.digests():
        if not force:
            raise OutputError(
                f"an unfinished study is in {place.name!r}",
                code="unfinished",
                hint="go on with --resume, or start anew with --force",
                file=str(place),
            )
        kept.discard()
        kept = CheckpointDirectory(place)
    return kept


def _run(console: Console, data: Microdata, spec: StudySpec, *, checkpoint: CheckpointDirectory, **how: Any) -> Study:
    from safeswap import workflow
    from safeswap.cli.app import Interrupted
    from safeswap.cli.study_words import Bar

    verb = workflow.search if "budget" in how else workflow.study
    with Bar(console) as bar:
        try:
            return verb(data, spec, checkpoint=checkpoint, progress=bar, **how)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped after {bar.done:,} of {bar.total:,} candidates, which are kept in {checkpoint.path.name!r}",
                code="interrupted",
                hint="the same call with --resume goes on",
                done=bar.done,
                total=bar.total,
            ) from None


def _choice(found: Study) -> tuple[Choice | None, InfeasibleError | None]:
    """The choice, or why there is none: the figures are worth keeping all the same."""
    try:
        return found.choose(), None
    except InfeasibleError as error:
        return None, error


def _tell(console: Console, found: Study, choice: Choice | None, output: Path, *, pages: bool) -> None:
    from safeswap.cli.study_words import frontier_table, places, rejected_lines

    for line in rejected_lines(found):
        console.say(line)
    console.say("")
    console.say(frontier_table(found, choice))
    if choice is not None:
        console.say(f"\n{choice.sentence}\n")
    console.say(places(output, pages=pages, choice=choice is not None))
    if not found.facts["for_release"]:
        console.warn("Made from an insecure seed: anyone can repeat the draws. NOT FOR RELEASE.")
