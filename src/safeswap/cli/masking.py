"""The masking run that ``swap``, ``mask`` and ``safe records`` share: one file in, masked file and audit record out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, as_options, table
from safeswap.cli.options import (
    OUTPUT,
    RANDOMNESS,
    Force,
    InsecureSeed,
    KeyFile,
    check_outputs,
    option,
    randomness,
    warn_of_losses,
)
from safeswap.cli.scores import say_left_out, score_table
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.model.masked import Masked, MaskedFile
    from safeswap.model.plan import Plan, Relaxation
    from safeswap.model.score import Assessment
    from safeswap.model.spec import MaskSpec

CONFIDENTIAL = "confidential"
LARGE_FILES = "Large files"

AuditDirectory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="directory for the confidential audit records", rich_help_panel=OUTPUT),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="HTML", help="report on the masking (confidential)", rich_help_panel=OUTPUT),
]
# Reading options that also apply to a file masked on disk; a Parquet file has no delimiter, encoding or quotes.
_READ_ON_DISK = ("schema", "identifier")


@dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Options of a masking run, apart from file, method and how the file is read."""

    plan_only: bool = option("only check feasibility; needs no key and writes nothing", "--plan-only", default=False)
    scores: bool = option("measure the risk and distortion of the result", default=True)
    key: KeyFile = None
    insecure_seed: InsecureSeed = None
    replicate: int = option(
        "number of the draw from the key: 0, or the one that a study chose",
        default=0,
        min=0,
        metavar="N",
        panel=RANDOMNESS,
    )
    output: Path | None = option("masked file (confidential)", metavar="FILE", panel=OUTPUT)
    audit: AuditDirectory = None
    report: ReportFile = None
    force: Force = False
    engine: str | None = option(
        "mask a Parquet file, or a directory of them, on disk: memory (holds the columns involved), "
        "duckdb (within --memory-limit) or spark",
        metavar="NAME",
        panel=LARGE_FILES,
    )
    memory_limit: str = option("memory that duckdb may use", default="1GB", metavar="SIZE", panel=LARGE_FILES)

    def places(self) -> tuple[Path, Path]:
        """Return output and audit directory, both of which a run needs."""
        if self.output is None or self.audit is None:
            raise typer.BadParameter("missing output: pass --output FILE and --audit DIR")
        return self.output, self.audit


ON_DISK = ("engine", "memory_limit")
"""The options for files that are masked on disk."""


def mask_file(
    console: Console, spec: MaskSpec, file: Path, *, reading: dict[str, Any], options: MaskingOptions
) -> None:
    """Plan the masking, or mask, measure and keep the result."""
    if options.engine is not None:
        _mask_on_disk(console, spec, file, options.engine, reading=reading, options=options)
    elif options.plan_only:
        _plan(console, spec, file, reading=reading)
    else:
        _mask_in_memory(console, spec, file, reading=reading, options=options)


def _plan(console: Console, spec: MaskSpec, file: Path, *, reading: dict[str, Any]) -> None:
    from safeswap import workflow

    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("planning")
        plan = workflow.plan(data, spec)
    _show_plan(console, plan)


def _mask_in_memory(
    console: Console, spec: MaskSpec, file: Path, *, reading: dict[str, Any], options: MaskingOptions
) -> None:
    from safeswap import workflow
    from safeswap.workflow.masking import keep

    output, audit = options.places()
    written = [output, *([options.report] if options.report else [])]
    check_outputs(written, inputs=[file, *([options.key] if options.key else [])], force=options.force)
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    with console.steps(3 + options.scores) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("masking")
        masked = workflow.mask(data, spec, replicate=options.replicate, **secret)
        if options.scores:
            steps.at("measuring")
        assessment = workflow.assess(masked) if options.scores else None
        steps.at("writing")
        if options.report is not None:
            from safeswap.reports.masking import write_masking_report

            shown = workflow.assess(masked) if assessment is None else assessment
            write_masking_report(masked, options.report, assessment=shown, force=options.force)
        record = keep(masked, output, audit=audit, reading=reading, source=file, force=options.force)
    warn_of_losses(console, masked, output)
    show_masked(console, masked)
    _show_scores(console, assessment)
    console.say("")
    made = [("masked file", output, CONFIDENTIAL), ("audit record", record, CONFIDENTIAL)]
    made += [("report", options.report, CONFIDENTIAL)] if options.report else []
    console.say(table(["made", "where", ""], made))
    measured = assessment.as_dict() if assessment is not None else {}
    where = {"output": str(output), "audit": str(record)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def _mask_on_disk(
    console: Console, spec: MaskSpec, file: Path, engine: str, *, reading: dict[str, Any], options: MaskingOptions
) -> None:
    """Mask, verify, measure and keep, without reading the whole file."""
    from safeswap import registry, workflow

    if options.plan_only or options.report is not None:
        raise typer.BadParameter("--plan-only and --report need the whole file in memory: drop them, or --engine")
    output, audit = options.places()
    unusable = [name for name in reading if name not in _READ_ON_DISK]
    if unusable:
        option = "--" + unusable[0].replace("_", "-")
        raise typer.BadParameter(f"{option} needs the whole file in memory: drop it, or --engine")
    check_outputs([output], inputs=[file, *([options.key] if options.key else [])], force=options.force)
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    with console.steps(1) as steps:
        steps.at("masking on disk")
        masked = workflow.mask_file(
            file,
            output,
            spec,
            audit=audit,
            engine=engine,
            memory_limit=options.memory_limit,
            replicate=options.replicate,
            force=options.force,
            measures=registry.default_measures("categories", by_counts=True) if options.scores else (),
            **secret,
            **reading,
        )
    _show_masked_file(console, masked)
    measured = masked.assessment.as_dict() if masked.assessment is not None else {}
    where = {"output": str(output), "audit": str(masked.audit)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def _show_plan(console: Console, plan: Plan) -> None:
    """Show whether the masking is feasible and, where it is not, what would make it so."""
    impossible = plan.asked > (plan.feasible if plan.at_most is None else plan.at_most)
    refused = ": this is impossible." if impossible else ": no way to do this was found."
    console.say(plan.sentence + ("." if plan.is_feasible else refused))
    if plan.relaxations:
        rows = [(as_options(each.change), _feasible_pairs(each)) for each in plan.relaxations]
        console.say(table(["possible change", "pairs then feasible"], rows, right="lr"))
    console.result({"command": plan.method, "plan": plan.as_dict()})


def _feasible_pairs(relaxation: Relaxation) -> str:
    """Return the number of pairs, or its range where the maximum is not proved."""
    upper = "" if relaxation.at_most is None else f" to {relaxation.at_most:,}"
    return f"{relaxation.feasible:,}{upper}"


def show_masked(console: Console, masked: Masked) -> None:
    """Show what was requested, what was feasible and what was done."""
    audit = masked.audit
    touched = int(audit.touched().sum())
    console.say(masked.plan.sentence + ".")
    share = f"{touched:,} of {plural(audit.records, 'record')} took part ({touched / max(audit.records, 1):.2%})"
    console.say(f"{plural(audit.made, 'pair')} exchanged: {share}." if audit.exchanges else f"{share}.")
    # The unit is in the sentence above.
    _show_facts(console, {name: value for name, value in audit.facts.items() if name != "unit"}, audit.stamp)


def _show_masked_file(console: Console, masked: MaskedFile) -> None:
    asked = "" if masked.made == masked.asked else f" of {masked.asked:,} requested"
    console.say(f"{masked.done}{asked} in {plural(masked.records, 'record')}; every guarantee was verified on disk.")
    _show_facts(console, {name: value for name, value in masked.facts.items() if name != "unit"}, masked.stamp)
    _show_scores(console, masked.assessment)
    console.say("")
    made = [("masked file", masked.target, CONFIDENTIAL), ("audit record", masked.audit, CONFIDENTIAL)]
    console.say(table(["made", "where", ""], made))


def _show_facts(console: Console, facts: Mapping[str, Any], stamp: str) -> None:
    from safeswap.model.audit import format_fact

    rows = [(name.replace("_", " "), format_fact(value)) for name, value in facts.items() if format_fact(value)]
    if rows:
        console.say("")
        console.say(table(["found", ""], rows, right="lr"))
    if stamp:
        console.warn(f"{stamp}: anyone can undo it.")


def _show_scores(console: Console, assessment: Assessment | None) -> None:
    if assessment is not None:
        console.say("")
        console.say(score_table(assessment, brief=True))
        say_left_out(console, assessment)
