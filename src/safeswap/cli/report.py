"""``safeswap report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, names, option, request_options

if TYPE_CHECKING:
    from safeswap.reports.facts import Facts

DECISION = "Decision"
PUBLIC = "public."


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """For whom reports are made, of what, and what was decided."""

    audience: list[str] | None = option(
        "analyst, chair, members, board (chair and members), five-safes or public; repeatable. All if omitted",
        "--for",
        metavar="READER",
    )
    audit: Path | None = option("audit directory of the masking", metavar="DIR")
    scenario: Path | None = option("scenarios under which risk is measured, e.g. a project file", metavar="FILE")
    study: Path | None = option("directory of a study, for the map of what was tried", metavar="DIR")
    measure: list[str] | None = option("measure instead of the default ones; repeatable", metavar="NAME")
    indicators: Path | None = option("tell what becomes of these key indicators and their errors", metavar="TOML")
    drop: list[str] | None = option("columns that the release leaves out", metavar="A,B")
    title: str = option("title of the release", default="", metavar="TEXT")
    date: str = option("date on the reports", default="", metavar="TEXT")
    decision: Literal["open", "requested", "approved", "rejected", "released"] | None = option(
        "what was decided", panel=DECISION
    )
    asked_by: str = option("who asked for the release", default="", metavar="NAME", panel=DECISION)
    decided_by: str = option("who decided", default="", metavar="NAME", panel=DECISION)
    decided_at: str = option("when it was decided", default="", metavar="TEXT", panel=DECISION)
    reason: str = option("why it was decided so", default="", metavar="TEXT", panel=DECISION)
    output: Path | None = option("directory for the reports", metavar="DIR", panel=OUTPUT)
    force: Force = False

    def decided(self) -> dict[str, Any]:
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
    """Write the reports of a masking for their readers.

    All are made from the same facts, which are written beside them as JSON. The chair's version for a review board
    tells shares changed; the members' version and the public one tell nothing from which they follow. Everything but
    the public report is confidential and readable by its owner only.
    """
    from safeswap.reports.facts import AUDIENCES, list_audiences

    if options.output is None:
        raise typer.BadParameter("missing option: --output DIR")
    asked = list_audiences(options.audience or AUDIENCES)
    place = options.output
    targets = [place / f"{audience}.html" for audience in asked] if place.is_dir() else [place]
    check_outputs(targets, inputs=[source], force=options.force)
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
        decision=options.decided(),
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
        recall(source, masked, audit=options.audit),
        scenarios=list(scenarios),
        measures=options.measure or None,
        indicators=options.indicators or "",
        study=study,
        decision=options.decided(),
        title=options.title,
        date=options.date,
        drop=names(options.drop or ()),
    )


def _decide_again(source: Path, options: ReportOptions) -> Facts:
    """Read facts that were written before, with another decision if one is stated."""
    from safeswap.reports.facts import DecisionFacts, Facts

    facts = Facts.read(source)
    stated = {**facts.decision.model_dump(), **options.decided()}
    return facts.replace(decision=DecisionFacts(**stated))
