"""``safeswap swap``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table
from safeswap.cli.options import (
    OUTPUT,
    Force,
    InsecureSeed,
    KeyFile,
    command,
    randomness,
    reading_options,
    spec_options,
)
from safeswap.cli.outputs import check_outputs
from safeswap.cli.scores import score_table
from safeswap.cli.wording import as_options
from safeswap.model.spec import SwapSpec

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.plan import Plan


INSIDE = "stays inside"


@command
@spec_options(SwapSpec, prefixes={"targeting": "target"})
@reading_options
def swap(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="the file to mask")] = None,
    *,
    parameters: dict[str, Any],
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="only say whether it can be done; needs no key and writes nothing")
    ] = False,
    scores: Annotated[bool, typer.Option(help="measure the risk and the distortion of the result")] = True,
    project: Annotated[
        Path | None, typer.Option(metavar="SPECS", help="run this WebSwap project; it names file, roles and rate")
    ] = None,
    key: KeyFile = None,
    insecure_seed: InsecureSeed = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the masked file; it stays inside", rich_help_panel=OUTPUT)
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="where confidential audit records are collected", rich_help_panel=OUTPUT),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Exchange values between random pairs of records.

    Makes the masked file and the audit record, from which the original can be restored. Both stay inside; release makes
    from them what may leave. An option for attribute names can be repeated, or hold several names parted by commas.
    """
    from safeswap import workflow
    from safeswap.cli.project import run_project

    if project is not None:
        if file is not None or parameters or reading or output is not None:
            raise typer.BadParameter("a project names file, roles, rate and output itself: leave them out")
        secret = randomness(key=key, insecure_seed=insecure_seed)
        run_project(console, project, secret=secret, audit=audit, force=force)
        return
    if file is None:
        raise typer.BadParameter("name the file to mask, or a project with --project")
    spec = SwapSpec(**parameters)
    if plan_only:
        with console.steps(2) as steps:
            steps.at("reading")
            data = workflow.read(file, **reading)
            steps.at("planning")
            plan = workflow.plan(data, spec)
        show_plan(console, plan)
        return
    if output is None or audit is None:
        raise typer.BadParameter("say where the results go: --output FILE --audit DIR")
    check_outputs([output], inputs=[file, *([key] if key else [])], force=force)
    secret = randomness(key=key, insecure_seed=insecure_seed)
    with console.steps(3 + scores) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("masking")
        masked = workflow.swap(data, spec, **secret)
        if scores:
            steps.at("measuring")
        assessment = workflow.assess(masked) if scores else None
        steps.at("writing")
        record = workflow.keep(masked, output, audit=audit, reading=reading, force=force)
    tell(console, masked)
    if assessment is not None:
        console.say("")
        console.say(score_table(assessment, brief=True))
    console.say("")
    console.say(table(["made", "where", ""], [("masked file", output, INSIDE), ("audit record", record, INSIDE)]))
    measured = assessment.as_dict() if assessment is not None else {}
    console.result({"command": "swap", **masked.as_dict(), **measured, "output": str(output), "audit": str(record)})


def show_plan(console: Console, plan: Plan) -> None:
    """Whether it can be done; where not, what would make it possible."""
    console.say(plan.sentence + ("." if plan.is_feasible else ": it cannot be done."))
    if not plan.is_feasible:
        rows = [(as_options(each.change), f"{each.feasible:,}") for each in plan.relaxations]
        console.say(table(["what would help", "pairs then feasible"], rows, right="lr"))
    relaxations = [{"change": each.change, "feasible": each.feasible} for each in plan.relaxations]
    facts = {"records": plan.records, "asked": plan.asked, "feasible": plan.feasible, "binds": list(plan.binds)}
    console.result({"command": "swap", "plan": {**facts, "is_feasible": plan.is_feasible, "relaxations": relaxations}})


def tell(console: Console, masked: Masked) -> None:
    """What was asked for, what could be had and what was done."""
    audit = masked.audit
    touched = int(audit.touched().sum())
    console.say(masked.plan.sentence + ".")
    share = f"{touched:,} of {audit.records:,} records took part ({touched / audit.records:.2%})"
    console.say(f"{audit.made:,} pairs exchanged: {share}.")
    if not audit.releasable:
        console.warn("Made from an insecure seed: anyone can undo it. NOT FOR RELEASE.")
