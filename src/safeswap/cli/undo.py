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
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Restore the original from a masked file and its audit record."""
    from safeswap import workflow
    from safeswap.files.write import write_microdata

    check_outputs([output], inputs=[masked, record], force=force)
    with console.steps(2) as steps:
        steps.at("restoring")
        original = workflow.undo(workflow.read(masked, **reading), record)
        steps.at("writing")
        write_microdata(original, output, force=force)
    warn_of_losses(console, original, output)
    console.say(f"Restored {plural(len(original), 'record')} to {visible(str(output))}. Keep them confidential.")
    console.result({"command": "undo", "records": len(original), "output": str(output)})
