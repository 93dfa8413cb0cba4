"""``safeswap describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, reading_options
from safeswap.model.text import plural


@command
@reading_options
def describe(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file: CSV, Parquet, Arrow, Stata, SPSS or SAS")],
    *,
    tolerance: Annotated[int, typer.Option(min=1, metavar="Q", help="hide values shared by fewer than Q records")] = 3,
    write_schema: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="write the schema of the columns, for editing", rich_help_panel=OUTPUT),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Show the attributes of a file, their levels and its small cells, but no record.

    A kind with a question mark is a guess. Write the schema, correct it, and pass it to the other commands.
    """
    from safeswap import workflow
    from safeswap.files.schema_file import write_schema as write

    if write_schema is not None:
        check_outputs([write_schema], inputs=[file], force=force)
    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("counting cells")
        description = workflow.describe(data, tolerance=tolerance)
    if write_schema is not None:
        write(data.schema, write_schema, force=force)
    size = f"{plural(description.records, 'record')}, {plural(len(description.attributes), 'attribute')}"
    title = f"{description.name}: {size}"
    columns = ["attribute", "kind", "levels", "missing", "records per level"]
    console.say(visible(title))
    console.say(table(columns, description.rows(), right="llrrl"), gap=True)
    console.say(description.cells.sentence, gap=True)
    for warning in description.warnings:
        console.warn(f"! {warning}")
    if write_schema is not None:
        console.say(f"\nWrote {visible(str(write_schema))}.")
    written = str(write_schema) if write_schema is not None else None
    console.result({"command": "describe", "file": str(file), **description.as_dict(), "schema": written})
