"""``safeswap release``, ``verify``, ``undo`` and ``report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from safeswap.cli.console import Console, escape
from safeswap.cli.mask import HOUSEHOLDS, HouseholdFiles, MaskedHouseholds, OriginalHouseholds
from safeswap.cli.options import (
    OUTPUT,
    RANDOMNESS,
    REQUIRED,
    Force,
    ScenarioFile,
    Shown,
    check_outputs,
    command,
    names,
    option,
    read_scenario,
    reading_options,
    request_options,
    spec_options,
    warn_of_losses,
)
from safeswap.model.spec import Strict
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.releases.publish import Published
    from safeswap.reports.facts import Facts

CONSENT = "Exceptions to confirm"
_CONSENTS = ("second_release", "unmasked", "attack", "override")
DOCUMENTATION = "Documentation"


_SHOWN = {
    "data_format": Shown(flag="--format", panel=OUTPUT),
    **dict.fromkeys(("identifiers", "drop"), Shown(panel=OUTPUT)),
    "two_files": Shown(flag="--two-files", panel=HOUSEHOLDS),
    **dict.fromkeys(("title", "date"), Shown(panel=DOCUMENTATION)),
    "publish_rate": Shown(flag="--publish-rate", panel=DOCUMENTATION),
    "publish_errors": Shown(panel=DOCUMENTATION, metavar="TOML"),
    "second_release": Shown(panel=CONSENT, metavar="REASON"),
    "attack": Shown(panel=CONSENT),
    "override": Shown(panel=CONSENT, metavar="REASON"),
    "unmasked": Shown(flag="--unmasked", panel=CONSENT),
}


class ReleaseSpec(Strict):
    """Settings of a release: its files, and what is published about it.

    >>> ReleaseSpec(title="Survey 2026").identifiers
    'new'
    """

    data_format: Annotated[Literal["csv", "parquet", "dta", "sav"], Field(description="file format of the data")] = (
        "csv"
    )
    identifiers: Annotated[Literal["new", "none"], Field(description="assign new record numbers, or none")] = "new"
    drop: Annotated[tuple[str, ...], Field(description="columns to omit")] = ()
    two_files: Annotated[bool, Field(description="publish a file of households and a file of persons")] = False
    title: Annotated[str, Field(description="title of the data set")] = ""
    date: Annotated[str, Field(description="date of the release")] = ""
    publish_rate: Annotated[bool, Field(description="publish the share of records that took part")] = False
    publish_errors: Annotated[
        str,
        Field(description="publish the factor by which masking enlarges the standard errors of these key indicators"),
    ] = ""
    second_release: Annotated[str, Field(description="reason for releasing records that were released before")] = ""
    attack: Annotated[
        Literal["quick", "full"], Field(description="attacks to try before the release: the quick ones, or all")
    ] = "quick"
    override: Annotated[str, Field(description="reason for releasing although an attack exceeds the policy")] = ""
    unmasked: Annotated[bool, Field(description="release the data although nothing was masked; the report says so")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """The files of a release, and what it is judged by; a project file states them itself."""

    audit: Path | None = option("audit directory of the masking; a record of the release is added", metavar="DIR")
    key: Path | None = option("secret key; determines the row order", metavar="FILE", panel=RANDOMNESS)
    output: Path | None = option("directory to publish", metavar="BUNDLE", panel=OUTPUT)
    force: Force = False
    recipe: Path | None = option(
        "recipe by which ORIGINAL was recoded without an audit record", metavar="TOML", panel=DOCUMENTATION
    )
    households: OriginalHouseholds = None
    masked_households: MaskedHouseholds = None
    scenario: ScenarioFile = None
    policy: Path | None = option(
        "largest advantage allowed for each attack; by default SAFESWAP_POLICY", metavar="TOML", panel=CONSENT
    )
    control: Path | None = option("records held out before masking, to judge attacks by", metavar="FILE", panel=CONSENT)

    def list_stated(self) -> list[str]:
        """Return the options given that a project file states."""
        given = {name: value for name, value in vars(self).items() if name not in ("key", "force")}
        return [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]


@command
@spec_options(ReleaseSpec, shown=_SHOWN)
@request_options(ReleaseOptions)
def release(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file, or a project file")],
    masked: Annotated[
        Path | None,
        typer.Argument(metavar="MASKED", help="masked file, as written by swap or mask; none for a project"),
    ] = None,
    *,
    options: ReleaseOptions,
    parameters: dict[str, Any],
) -> None:
    """Verify a masked file and write the bundle for publication.

    Original, masked file and audit record are read again, and every guarantee is verified on them. The bundle holds the
    data in a secret row order, a dictionary, a report and a manifest. If any check fails, nothing is written. What was
    masked as a household file and a person file is released as two files.

    Given a project file, the result of its last run is released with the settings of the file. This is refused if the
    run is out of date, if a requirement is not met, or if a column that looks like an identifier is still marked as a
    guess.
    """
    from safeswap.attacks.run import list_unlimited

    if masked is None:
        published = _release_project(console, original, options, parameters)
    else:
        published = _release_files(console, (original, masked), options, parameters)
    console.say("Verified:")
    for finding in published.findings:
        console.say(f"  ✓ {escape(finding.sentence)}")
    for remark in published.remarks:
        console.warn(f"! {remark.message}")
    for judged in published.attacks:
        if judged.is_above:
            console.warn(f"! {judged.outcome.attack} is above the policy and was overridden: {judged.outcome.sentence}")
    for sentence in list_unlimited(published.attacks):
        console.warn(f"! {sentence}")
    for each in published.differencing:
        console.warn(f"! {each.sentence}")
    console.say_places(("bundle", published.public, "public"), ("record", published.audit, "confidential"))
    console.result({"command": "release", **published.as_dict()})


def _release_files(
    console: Console, files: tuple[Path, Path], options: ReleaseOptions, parameters: dict[str, Any]
) -> Published:
    from safeswap import workflow
    from safeswap.workflow.masking import recall

    audit, key, output = options.audit, options.key, options.output
    if audit is None or key is None or output is None:
        absent = "--audit DIR" if audit is None else "--key FILE" if key is None else "--output BUNDLE"
        raise typer.BadParameter(f"missing option: {absent}")
    both = HouseholdFiles(households=options.households, masked_households=options.masked_households).require_both()
    gate = {"scenario": read_scenario(options.scenario), "policy": options.policy, "control": options.control}
    check_outputs([output], inputs=[*files, *both, key, audit], force=options.force)
    secret = workflow.read_key(key)
    with console.steps(2) as steps:
        steps.at("reading")
        masking = recall(*files, audit=audit, recipe=options.recipe, households=both)
        steps.at("verifying and writing")
        spec = ReleaseSpec(**{**parameters, **({"two_files": True} if both else {})})
        terms = {**spec.model_dump(), **gate}
        return workflow.release(masking, output, audit=audit, key=secret, force=options.force, **terms)


def _release_project(console: Console, project: Path, options: ReleaseOptions, parameters: dict[str, Any]) -> Published:
    """Release from a project file; what it states is not stated again."""
    from safeswap import workflow
    from safeswap.workflow.project import release_project

    if project.suffix.lower() != ".toml" and not project.is_dir():
        raise typer.BadParameter("missing argument MASKED: give the original and the masked file, or a project file")
    twice = options.list_stated()
    twice += [f"--{name.replace('_', '-')}" for name in parameters if name not in _CONSENTS]
    if twice:
        raise typer.BadParameter(f"{twice[0]} is stated in the project file: change it there, and run it again")
    secret = None if options.key is None else workflow.read_key(options.key)
    with console.steps(1) as steps:
        steps.at("verifying and writing")
        return release_project(project, key=secret, force=options.force, **parameters)


@command
def verify(
    console: Console,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="directory written by release")],
) -> None:
    """Check a published bundle.

    Needs nothing but the bundle. Checks that all files are present and match the manifest, that there are no others,
    and that no file reveals more than the released data do.
    """
    from safeswap import workflow

    with console.steps(1) as steps:
        steps.at("checking")
        found = workflow.verify(bundle)
    console.say(
        f"{escape(str(bundle))} is intact: {plural(found.records, 'record')}, {plural(found.columns, 'column')}."
    )
    for name, value in found.facts.items():
        values = value if isinstance(value, list) else [value]
        for each in values:
            console.say(escape(f"  {name.replace('_', ' ')}: {each}"))
    for remark in found.remarks:
        console.warn(f"! {remark.message}")
    console.result({"command": "verify", **found.as_dict()})


@dataclass(frozen=True, kw_only=True)
class UndoFiles:
    """The record of the masking, and the files to write."""

    record: Path = option(
        "its audit record: the directory shown by swap or mask", "--record", default=REQUIRED, metavar="DIR"
    )
    output: Path = option("restored original (confidential)", default=REQUIRED, metavar="FILE", panel=OUTPUT)
    households: Path | None = option("masked file of households, if it was masked with one", metavar="FILE")
    on: str | None = option("number of the household, a column of both files", metavar="A")
    household_output: Path | None = option("restored file of households", metavar="FILE", panel=OUTPUT)
    force: Force = False


@command
@request_options(UndoFiles)
@reading_options
def undo(
    console: Console,
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="internal masked file (not a published bundle)")],
    *,
    options: UndoFiles,
    reading: dict[str, Any],
) -> None:
    """Restore the original from a masked file and its audit record."""
    from safeswap import workflow
    from safeswap.files.write import write_files
    from safeswap.workflow.households import undo_households

    record, output = options.record, options.output
    households, household_output = options.households, options.household_output
    if (households is None) != (household_output is None):
        raise typer.BadParameter("--households and --household-output belong together")
    inputs = [path for path in (masked, record, households) if path is not None]
    check_outputs([path for path in (output, household_output) if path is not None], inputs=inputs, force=options.force)
    with console.steps(2) as steps:
        steps.at("restoring")
        read = workflow.read(masked, **reading)
        written: dict[Path, Microdata] = {}
        if households is None or household_output is None:
            original = workflow.undo(read, record)
        else:
            written[household_output], original = undo_households(households, read, record, on=options.on)
        steps.at("writing")
        write_files({**written, output: original}, force=options.force)
    warn_of_losses(console, original, output)
    console.say(f"Restored {plural(len(original), 'record')} to {escape(str(output))}. Keep them confidential.")
    console.result({"command": "undo", "records": len(original), "output": str(output)})


DECISION = "Decision"
PUBLIC = "public."


@dataclass(frozen=True, kw_only=True)
class ReportOptions(HouseholdFiles):
    """The readers of the reports, their subject, and the decision."""

    audience: list[str] | None = option(
        "analyst, chair, members, board (chair and members), five-safes or public; repeatable. All if omitted",
        "--for",
        metavar="READER",
    )
    audit: Path | None = option("audit directory of the masking", metavar="DIR")
    scenario: Path | None = option("scenarios under which risk is measured, e.g. a project file", metavar="FILE")
    study: Path | None = option("directory of a study, for the map of what was tried", metavar="DIR")
    measure: list[str] | None = option("measure instead of the default ones; repeatable", metavar="NAME")
    indicators: Path | None = option("report these key indicators and their errors before and after", metavar="TOML")
    drop: list[str] | None = option("columns omitted from the release", metavar="A,B")
    title: str = option("title of the release", default="", metavar="TEXT")
    date: str = option("date on the reports", default="", metavar="TEXT")
    decision: Literal["open", "requested", "approved", "rejected", "released"] | None = option(
        "what was decided", panel=DECISION
    )
    asked_by: str = option("who requested the release", default="", metavar="NAME", panel=DECISION)
    decided_by: str = option("who decided", default="", metavar="NAME", panel=DECISION)
    decided_at: str = option("when it was decided", default="", metavar="TEXT", panel=DECISION)
    reason: str = option("reason for the decision", default="", metavar="TEXT", panel=DECISION)
    output: Path | None = option("directory for the reports", metavar="DIR", panel=OUTPUT)
    force: Force = False

    def state_decision(self) -> dict[str, Any]:
        """Return what is stated of the decision."""
        stated = {
            "state": self.decision or "",
            "asked_by": self.asked_by,
            "decided_by": self.decided_by,
            "decided_at": self.decided_at,
            "reason": self.reason,
        }
        return {name: value for name, value in stated.items() if value}


@command
@request_options(ReportOptions)
def report(
    console: Console,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="project file, original file, or facts.json of earlier reports")
    ],
    masked: Annotated[
        Path | None, typer.Argument(metavar="MASKED", help="masked file; none for a project or for facts.json")
    ] = None,
    *,
    options: ReportOptions,
) -> None:
    """Write the reports on a masking, one for each kind of reader.

    All are made from the same facts, which are written beside them as JSON. The version for the chair of a review board
    contains the shares changed; the members' and public versions contain nothing from which they could be inferred.
        Everything but the public report is confidential and readable by its owner only.
    """
    from safeswap.reports.facts import AUDIENCES, list_audiences

    if options.output is None:
        raise typer.BadParameter("missing option: --output DIR")
    asked = list_audiences(options.audience or AUDIENCES)
    place = options.output
    targets = [place / f"{audience}.html" for audience in asked] if place.is_dir() else [place]
    files = [path for path in (source, masked, *options.require_both()) if path is not None]
    check_outputs(targets, inputs=files, force=options.force)
    if options.require_both() and masked is None:
        raise typer.BadParameter("--households and --masked-households belong to an original and a masked file")
    with console.steps(2) as steps:
        steps.at("collecting the facts")
        facts = _collect(source, masked, options)
        steps.at("writing")
        written = facts.write(place, asked, force=options.force)
    places = [(path.name, path, "public" if path.name.startswith(PUBLIC) else "confidential") for path in written]
    console.say_places(*places)
    if "public" in asked and facts.public is None:
        console.warn(f"! No public report: {' '.join(facts.decision.obstacles)}")
    console.result({"command": "report", "written": [str(path) for path in written], "state": facts.decision.state})


def _collect(source: Path, masked: Path | None, options: ReportOptions) -> Facts:
    """Collect the facts from a project, from two files and their record, or from facts written before."""
    from safeswap.studies.study import Study
    from safeswap.workflow.project import report_project

    study = None if options.study is None else Study.load(options.study)
    if masked is not None:
        return _collect_files(source, masked, options, study)
    if source.suffix.lower() == ".json":
        return _decide_again(source, options)
    if source.suffix.lower() != ".toml" and not source.is_dir():
        raise typer.BadParameter("missing argument MASKED: give the original and the masked file, or a project file")
    return report_project(
        source,
        study=study,
        decision=options.state_decision(),
        measures=options.measure or None,
        indicators=options.indicators or "",
    )


def _collect_files(source: Path, masked: Path, options: ReportOptions, study: Any) -> Facts:
    from safeswap.projects.toml import read_scenarios
    from safeswap.workflow.masking import recall
    from safeswap.workflow.reporting import report as collect

    if options.audit is None:
        raise typer.BadParameter("missing option: --audit DIR")
    scenarios = () if options.scenario is None else read_scenarios(options.scenario)
    return collect(
        recall(source, masked, audit=options.audit, households=options.require_both()),
        scenarios=list(scenarios),
        measures=options.measure or None,
        indicators=options.indicators or "",
        study=study,
        decision=options.state_decision(),
        title=options.title,
        date=options.date,
        drop=names(options.drop or ()),
    )


def _decide_again(source: Path, options: ReportOptions) -> Facts:
    """Read facts that were written before, with another decision if one is stated."""
    from safeswap.reports.facts import DecisionFacts, Facts

    facts = Facts.read(source)
    stated = {**facts.decision.model_dump(), **options.state_decision()}
    return facts.replace(decision=DecisionFacts(**stated))
