"""What ``swap`` and ``mask`` have in common: one file in, the masked file and its audit record out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, as_options, table
from safeswap.cli.on_disk import mask_on_disk
from safeswap.cli.options import OUTPUT, RANDOMNESS, check_outputs, randomness
from safeswap.cli.scores import say_left_out, score_table
from safeswap.model.text import several

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.plan import Plan, Relaxation
    from safeswap.model.spec import MaskSpec

INSIDE = "stays inside"

ReplicateNumber = Annotated[
    int,
    typer.Option(
        "--replicate",
        min=0,
        metavar="N",
        help="which draw of the key: 0, or the one that a study chose",
        rich_help_panel=RANDOMNESS,
    ),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", help="only say whether it can be done; needs no key and writes nothing")
]
Scores = Annotated[bool, typer.Option(help="measure the risk and the distortion of the result")]
MaskedFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="the masked file; it stays inside", rich_help_panel=OUTPUT)
]
AuditDirectory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where confidential audit records are collected", rich_help_panel=OUTPUT),
]


ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="HTML", help="a report of the masking; it stays inside", rich_help_panel=OUTPUT),
]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where the results go."""

    output: Path | None
    audit: Path | None
    force: bool
    report: Path | None = None


def mask_file(
    console: Console,
    spec: MaskSpec,
    file: Path,
    *,
    reading: dict[str, Any],
    outputs: Outputs,
    key: Path | None,
    insecure_seed: int | None,
    replicate: int,
    plan_only: bool,
    scores: bool,
    engine: str | None = None,
    memory_limit: str = "1GB",
) -> None:
    """Plan, or mask, measure and keep."""
    from safeswap import workflow

    if engine is not None:
        if plan_only or outputs.report is not None:
            raise typer.BadParameter("a plan or a report needs the whole file in memory: leave it out, or --engine")
        mask_on_disk(
            console,
            spec,
            file,
            engine=engine,
            memory_limit=memory_limit,
            output=outputs.output,
            audit=outputs.audit,
            force=outputs.force,
            reading=reading,
            key=key,
            insecure_seed=insecure_seed,
            replicate=replicate,
            scores=scores,
        )
        return
    if plan_only:
        with console.steps(2) as steps:
            steps.at("reading")
            data = workflow.read(file, **reading)
            steps.at("planning")
            plan = workflow.plan(data, spec)
        show_plan(console, plan)
        return
    if outputs.output is None or outputs.audit is None:
        raise typer.BadParameter("say where the results go: --output FILE --audit DIR")
    written = [outputs.output, *([outputs.report] if outputs.report else [])]
    check_outputs(written, inputs=[file, *([key] if key else [])], force=outputs.force)
    secret = randomness(key=key, insecure_seed=insecure_seed)
    with console.steps(3 + scores) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("masking")
        masked = workflow.mask(data, spec, replicate=replicate, **secret)
        if scores:
            steps.at("measuring")
        assessment = workflow.assess(masked) if scores else None
        steps.at("writing")
        if outputs.report is not None:
            workflow.report(masked, outputs.report, assessment=assessment, force=outputs.force)
        record = workflow.keep(
            masked, outputs.output, audit=outputs.audit, reading=reading, source=file, force=outputs.force
        )
    tell(console, masked)
    if assessment is not None:
        console.say("")
        console.say(score_table(assessment, brief=True))
        say_left_out(console, assessment)
    console.say("")
    made = [("masked file", outputs.output, INSIDE), ("audit record", record, INSIDE)]
    made += [("report", outputs.report, INSIDE)] if outputs.report else []
    console.say(table(["made", "where", ""], made))
    measured = assessment.as_dict() if assessment is not None else {}
    where = {"output": str(outputs.output), "audit": str(record)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def show_plan(console: Console, plan: Plan) -> None:
    """Whether it can be done; where not, what would make it possible."""
    impossible = plan.asked > (plan.feasible if plan.at_most is None else plan.at_most)
    refused = ": it cannot be done." if impossible else ": no way to do it was found."
    console.say(plan.sentence + ("." if plan.is_feasible else refused))
    if plan.relaxations:
        rows = [(as_options(each.change), _feasible(each)) for each in plan.relaxations]
        console.say(table(["what would help", "pairs then feasible"], rows, right="lr"))
    relaxations = [each.as_dict() for each in plan.relaxations]
    facts = {"records": plan.records, "asked": plan.asked, "feasible": plan.feasible, "at_most": plan.at_most}
    plain = {**facts, "binds": list(plan.binds), "is_feasible": plan.is_feasible, "relaxations": relaxations}
    console.result({"command": plan.method, "plan": plain})


def _feasible(relaxation: Relaxation) -> str:
    """The number of pairs, or its range where the maximum is not proved."""
    upper = "" if relaxation.at_most is None else f" to {relaxation.at_most:,}"
    return f"{relaxation.feasible:,}{upper}"


def tell(console: Console, masked: Masked) -> None:
    """What was asked for, what could be had and what was done."""
    from safeswap.model.audit import told

    audit = masked.audit
    touched = int(audit.touched().sum())
    console.say(masked.plan.sentence + ".")
    share = f"{touched:,} of {several(audit.records, 'record')} took part ({touched / max(audit.records, 1):.2%})"
    console.say(f"{several(audit.made, 'pair')} exchanged: {share}." if audit.exchanges else f"{share}.")
    found = {name: value for name, value in audit.facts.items() if name != "unit"}  # the line above has said it
    facts = [(name.replace("_", " "), told(value)) for name, value in found.items() if told(value)]
    if facts:
        console.say("")
        console.say(table(["found", ""], facts, right="lr"))
    if audit.stamp:
        console.warn(f"{audit.stamp}: anyone can undo it.")
