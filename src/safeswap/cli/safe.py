"""``safeswap safe``: tables without small cells, records that tabulate to such tables, and a check of tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.app import Group
from safeswap.cli.console import Console, table, visible
from safeswap.cli.masking import CONFIDENTIAL, ON_DISK, MaskingOptions, ReportFile, mask_file
from safeswap.cli.options import (
    OUTPUT,
    Force,
    check_outputs,
    command,
    names,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.errors import SpecError
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.text import several

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.safe.spec import SafeTables

SOLVING = "Solver"

safe = typer.Typer(
    cls=Group,
    help="Publish tables in which every cell is 0 or large enough.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Tolerance = Annotated[int, typer.Option(metavar="Q", help="smallest count above 0 that may be published")]
TableNames = Annotated[
    list[str] | None,
    typer.Option("--tables", metavar="A,B", help="attributes of a table of the records; repeatable"),
]
CountColumn = Annotated[
    str, typer.Option(metavar="COLUMN", help="column with the counts, if the file is a table in long form")
]


@safe.command(name="table")
@command
@reading_options
def table_command(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="table in long form, or records to tabulate (--tables)")],
    *,
    tolerance: Tolerance = 3,
    tables: TableNames = None,
    count: CountColumn = "count",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B", help="margin to keep exactly; repeatable (default: all that leave out one variable)"
        ),
    ] = None,
    objective: Annotated[str, typer.Option(help="change to minimise: total or largest", rich_help_panel=SOLVING)] = (
        "total"
    ),
    keep_zeros: Annotated[
        bool, typer.Option("--keep-zeros", help="keep cells that are 0 at 0", rich_help_panel=SOLVING)
    ] = False,
    soft: Annotated[
        bool,
        typer.Option("--soft", help="if not all margins can be kept, violate them least", rich_help_panel=SOLVING),
    ] = False,
    solver: Annotated[str, typer.Option(help="auto, exact or heuristic", rich_help_panel=SOLVING)] = "auto",
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="time limit for a proof of optimality", rich_help_panel=SOLVING)
    ] = 30.0,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="safe table in long form, csv or parquet; repeat for each table",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report: ReportFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Change a table of counts as little as possible until every cell is 0 or at least the tolerance.

    Margins stay exact. Tables of the same records agree on the margins that they share.
    """
    from safeswap import workflow
    from safeswap.projects.tables import write_long
    from safeswap.reports.safe import write_safe_report

    outputs = output or []
    wanted = [*outputs, *([report] if report else [])]
    check_outputs(wanted, inputs=[file], force=force)
    if len(outputs) > max(1, len(tables or ())):
        raise SpecError("there are more outputs than tables", code="bad-spec", hint="give --output once per table")
    with console.steps(1 + bool(wanted)) as steps:
        steps.at("searching for a safe table")
        found = workflow.safe_table(
            file,
            tolerance,
            keep=None if keep is None else [names([one]) for one in keep],
            objective=objective,
            structural_zeros=(["all"] * len(tables) if tables and len(tables) > 1 else "all") if keep_zeros else None,
            soft=soft,
            solver=solver,
            time_limit=time_limit,
            attributes=None if tables is None else [names([one]) for one in tables],
            count=count,
            **reading,
        )
        if wanted:
            steps.at("writing")
        for number, path in enumerate(outputs):
            write_long(found, path, number=number, force=force)
        if report is not None:
            write_safe_report(found, report, force=force)
    sentence = found.sentence
    console.say(sentence[0].upper() + sentence[1:] + ".")
    console.say("")
    console.say(_change_table(found))
    if found.violations:
        inexact = several(len(found.violations), "figure to be kept is", "figures to be kept are")
        console.warn(f"{inexact} not exact; see the report or --json.")
    for path in outputs:
        console.say(f"\nWrote {visible(str(path))}.")
    if report is not None:
        console.say(f"\nWrote {visible(str(report))}; it is {CONFIDENTIAL}.")
    console.result({"command": "safe table", **found.as_dict(), "outputs": [str(path) for path in wanted]})


def _change_table(found: SafeTables) -> Table:
    rows = [
        (
            visible(" × ".join(each["variables"])),
            *(
                f"{each[name]:,}"
                for name in ("cells", "small_before", "changed_cells", "total_change", "largest_change")
            ),
        )
        for each in (changed.as_dict(found.tolerance) for changed in found.tables)
    ]
    return table(["table", "cells", "small before", "changed", "total change", "largest"], rows, right="lrrrrr")


@safe.command()
@command
@spec_options(SafeSpec)
@request_options(MaskingOptions, omit=ON_DISK)
@reading_options
def records(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file of records")],
    *,
    parameters: dict[str, Any],
    options: MaskingOptions,
    reading: dict[str, Any],
) -> None:
    """Change the fewest records that make all tables of the file safe together."""
    if "tables" not in parameters:
        raise typer.BadParameter("missing tables: name those to be published with --tables A,B")
    mask_file(console, SafeSpec(**parameters), file, reading=reading, options=options)


@safe.command()
@command
@reading_options
def check(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file of records (--tables), or a table in long form")],
    *,
    tables: TableNames = None,
    tolerance: Tolerance = 3,
    margins: Annotated[bool, typer.Option(help="assume that the margins of each table are published too")] = True,
    count: CountColumn = "count",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="list of small cells, csv or parquet (confidential)", rich_help_panel=OUTPUT),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Count cells that are too small, and how many of them can be derived from the published figures.

    Shows totals only; pass --output to write the cells to a file.
    """
    from safeswap import workflow

    check_outputs([output] if output else [], inputs=[file], force=force)
    with console.steps(1 + bool(output)) as steps:
        steps.at("counting")
        stated = None if tables is None else [names([one]) for one in tables]
        found = workflow.check_tables(file, stated, tolerance, margins=margins, count=count, **reading)
        if output:
            steps.at("writing")
            found.write(output, force=force)
    sentence = found.sentence
    console.say(sentence[0].upper() + sentence[1:] + ".")
    console.say("")
    rows = [
        (visible(" × ".join(each["variables"])), *(f"{each[name]:,}" for name in ("occupied", "small", "derived")))
        for each in found.as_dict()["tables"]
    ]
    console.say(table(["table", "occupied cells", "below tolerance", "derived"], rows, right="lrrr"))
    if output:
        console.say(f"\nWrote {visible(str(output))}; it is {CONFIDENTIAL}.")
    console.result({"command": "safe check", **found.as_dict(), "output": str(output) if output else None})
