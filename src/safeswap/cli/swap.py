"""``safeswap swap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, table
from safeswap.cli.masking import (
    AuditDirectory,
    MaskedFile,
    Outputs,
    PlanOnly,
    ReplicateNumber,
    ReportFile,
    Scores,
    mask_file,
)
from safeswap.cli.on_disk import EngineName, MemoryLimit
from safeswap.cli.options import (
    Force,
    InsecureSeed,
    KeyFile,
    check_outputs,
    command,
    randomness,
    reading_options,
    spec_options,
)
from safeswap.model.spec import SwapSpec

# ``safeswap swap --project``: a WebSwap project is run, and its output and log are written.


def run_project(console: Console, specs: Path, *, secret: dict[str, Any], audit: Path | None, force: bool) -> None:
    """Swap as the project says; with an audit directory the result can be released and undone."""
    from safeswap import workflow
    from safeswap.cli.masking import INSIDE, tell
    from safeswap.on_disk.masking import both_or_neither, note
    from safeswap.projects.webswap import read_project

    with console.steps(3) as steps:
        steps.at("reading")
        project = read_project(specs)
        results = [project.path("output"), project.path("log")]
        check_outputs(results, inputs=[specs, project.path("data"), project.path("description")], force=force)
        data = project.microdata()
        steps.at("masking")
        masked = workflow.swap(data, project.swap_spec(), **secret)
        steps.at("writing")
        with both_or_neither(audit, results[0], new=[] if force else results):
            project.write_results(masked, force=force)
            reading = {"delimiter": ",", "encoding": "utf-8", "quote": '"'}
            record = note(masked, results[0], audit=audit, reading=reading) if audit else None
    tell(console, masked)
    places = [("masked file", results[0]), ("log", results[1]), *([("audit record", record)] if record else [])]
    console.say("")
    console.say(table(["made", "where", ""], [(*place, INSIDE) for place in places]))
    if record is None:
        console.warn("No audit record was kept (--audit DIR): the output can be neither released nor undone.")
    where = {"output": str(results[0]), "log": str(results[1]), "audit": str(record) if record else None}
    console.result({"command": "swap", **masked.as_dict(), **where})


@command
@spec_options(SwapSpec, prefixes={"targeting": "target"})
@reading_options
def swap(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="the file to mask")] = None,
    *,
    parameters: dict[str, Any],
    plan_only: PlanOnly = False,
    scores: Scores = True,
    project: Annotated[
        Path | None, typer.Option(metavar="SPECS", help="run this WebSwap project; it names file, roles and rate")
    ] = None,
    key: KeyFile = None,
    insecure_seed: InsecureSeed = None,
    replicate: ReplicateNumber = 0,
    output: MaskedFile = None,
    audit: AuditDirectory = None,
    report: ReportFile = None,
    engine: EngineName = None,
    memory_limit: MemoryLimit = "1GB",
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Exchange values between random pairs of records.

    Makes the masked file and the audit record, from which the original can be restored. Both stay inside; release makes
    from them what may leave. An option for attribute names can be repeated, or hold several names parted by commas.
    """

    if project is not None:
        if file is not None or parameters or reading or output is not None:
            raise typer.BadParameter("a project names file, roles, rate and output itself: leave them out")
        secret = randomness(key=key, insecure_seed=insecure_seed)
        run_project(console, project, secret=secret, audit=audit, force=force)
        return
    if file is None:
        raise typer.BadParameter("name the file to mask, or a project with --project")
    spec = SwapSpec(**parameters)
    outputs = Outputs(output=output, audit=audit, force=force, report=report)
    mask_file(
        console,
        spec,
        file,
        reading=reading,
        outputs=outputs,
        key=key,
        insecure_seed=insecure_seed,
        replicate=replicate,
        plan_only=plan_only,
        scores=scores,
        engine=engine,
        memory_limit=memory_limit,
    )
