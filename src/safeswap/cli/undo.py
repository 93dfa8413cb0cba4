"""``safeswap undo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, reading_options, warn_of_losses
from safeswap.model.text import plural


@command
@reading_options
def undo(
    console: Console,
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="internal masked file (not a published bundle)")],
    *,
    record: Annotated[
        Path, typer.Option("--record", metavar="DIR", help="its audit record: the directory shown by swap or mask")
    ],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="restored original (confidential)", rich_help_panel=OUTPUT)
    ],
    households: Annotated[
        Path | None, typer.Option(metavar="FILE", help="masked file of households, if it was masked with one")
    ] = None,
    on: Annotated[str | None, typer.Option(metavar="A", help="number of the household, a column of both files")] = None,
    household_output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="restored file of households", rich_help_panel=OUTPUT)
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Restore the original from a masked file and its audit record."""
    from safeswap import workflow
    from safeswap.files.write import write_microdata
    from safeswap.workflow.households import undo_households

    if (households is None) != (household_output is None):
        raise typer.BadParameter("--households and --household-output belong together")
    inputs = [path for path in (masked, record, households) if path is not None]
    check_outputs([path for path in (output, household_output) if path is not None], inputs=inputs, force=force)
    with console.steps(2) as steps:
        steps.at("restoring")
        read = workflow.read(masked, **reading)
        if households is None or household_output is None:
            original = workflow.undo(read, record)
        else:
            homes, original = undo_households(households, read, record, on=on)
            write_microdata(homes, household_output, force=force)
        steps.at("writing")
        write_microdata(original, output, force=force)
    warn_of_losses(console, original, output)
    console.say(f"Restored {plural(len(original), 'record')} to {visible(str(output))}. Keep them confidential.")
    console.result({"command": "undo", "records": len(original), "output": str(output)})
