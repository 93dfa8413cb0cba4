"""``safeswap swap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console
from safeswap.cli.masking import CONFIDENTIAL, MaskingOptions, mask_by, show_masked
from safeswap.cli.options import check_outputs, command, randomness, reading_options, request_options, spec_options
from safeswap.model.spec import SwapSpec


@command
@spec_options(SwapSpec, prefixes={"targeting": "target"})
@request_options(MaskingOptions)
@reading_options
def swap(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="file to mask")] = None,
    *,
    parameters: dict[str, Any],
    project: Annotated[
        Path | None, typer.Option(metavar="SPECS", help="run this WebSwap project; it names file, roles and rate")
    ] = None,
    options: MaskingOptions,
    reading: dict[str, Any],
) -> None:
    """Exchange values between random pairs of records.

    Writes the masked file and an audit record from which the original can be restored. Both are confidential; use
    release to make the bundle for publication. To name several attributes, repeat the option or separate the names with
    commas.
    """
    if project is not None:
        if file is not None or parameters or reading or options.output is not None:
            raise typer.BadParameter("a project defines file, roles, rate and output itself: leave these options out")
        _run_project(console, project, options)
        return
    if file is None:
        raise typer.BadParameter("missing input: name the file to mask, or a project with --project")
    mask_by(console, SwapSpec, file, parameters=parameters, reading=reading, options=options)


def _run_project(console: Console, specs: Path, options: MaskingOptions) -> None:
    """Swap as a WebSwap project says; with an audit directory the result can be released and undone."""
    from safeswap import workflow
    from safeswap.on_disk.masking import note, write_both
    from safeswap.projects.webswap import read_project
    from safeswap.workflow.masking import register

    audit, force = options.audit, options.force
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    with console.steps(3) as steps:
        steps.at("reading")
        project = read_project(specs)
        results = [project.path("output"), project.path("log")]
        check_outputs(results, inputs=[specs, project.path("data"), project.path("description")], force=force)
        data = project.microdata()
        steps.at("masking")
        masked = workflow.swap(data, project.swap_spec(), **secret)
        steps.at("writing")
        with write_both(audit, results[0], new=[] if force else results) as records:
            register(masked)
            project.write_results(masked, force=force)
            reading = {"delimiter": ",", "encoding": "utf-8", "quote": '"'}
            record = note(masked, results[0], audit=audit, reading=reading, records=records) if audit else None
    show_masked(console, masked)
    places = [("masked file", results[0]), ("log", results[1]), *([("audit record", record)] if record else [])]
    console.say_places(*((*place, CONFIDENTIAL) for place in places))
    if record is None:
        console.warn("No audit record was kept (--audit DIR): the output can be neither released nor undone.")
    where = {"output": str(results[0]), "log": str(results[1]), "audit": str(record) if record else None}
    console.result({"command": "swap", **masked.as_dict(), **where})
