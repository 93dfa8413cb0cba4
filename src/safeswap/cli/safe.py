"""``safeswap safe``: tables without small cells, the records that tabulate to them, and a check of tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.masking import (
    INSIDE,
    AuditDirectory,
    MaskedFile,
    Outputs,
    PlanOnly,
    ReplicateNumber,
    ReportFile,
    Scores,
    mask_file,
)
from safeswap.cli.options import (
    OUTPUT,
    Force,
    InsecureSeed,
    KeyFile,
    check_outputs,
    command,
    names,
    reading_options,
    spec_options,
)
from safeswap.errors import SpecError
from safeswap.methods.safe.spec import SafeSpec

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.safe.spec import SafeTables

SOLVING = "How the table is found"

safe = typer.Typer(
    help="Publish tables in which every cell is 0 or large enough.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Tolerance = Annotated[int, typer.Option(metavar="Q", help="the smallest count above 0 that may be published")]
TableNames = Annotated[
    list[str] | None,
    typer.Option("--tables", metavar="A,B", help="a table of this file of records; repeat for several"),
]
CountColumn = Annotated[
    str, typer.Option(metavar="COLUMN", help="the column with the counts, where the file is a table in rows")
]


@safe.command(name="table")
@command
@reading_options
def table_command(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a table in rows, or records to tabulate (--tables)")],
    *,
    tolerance: Tolerance = 3,
    tables: TableNames = None,
    count: CountColumn = "count",
    keep: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="a margin to keep exact; repeat (default: all but one way)")
    ] = None,
    objective: Annotated[str, typer.Option(help="what is made small: total or largest", rich_help_panel=SOLVING)] = (
        "total"
    ),
    keep_zeros: Annotated[
        bool, typer.Option("--keep-zeros", help="cells that are 0 stay 0", rich_help_panel=SOLVING)
    ] = False,
    soft: Annotated[
        bool,
        typer.Option("--soft", help="where margins cannot all be kept, violate them least", rich_help_panel=SOLVING),
    ] = False,
    solver: Annotated[str, typer.Option(help="auto, exact or heuristic", rich_help_panel=SOLVING)] = "auto",
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="how long to look for a proof", rich_help_panel=SOLVING)
    ] = 30.0,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="the safe table in rows, csv or parquet; repeat, one for each table",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report: ReportFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Change a table of counts as little as possible until every cell is 0 or at least the tolerance.

    Margins stay exact. Several tables of the same records come out with the margins that they share alike.
    """
    from safeswap import workflow

    outputs = output or []
    wanted = [*outputs, *([report] if report else [])]
    check_outputs(wanted, inputs=[file], force=force)
    if len(outputs) > max(1, len(tables or ())):
        raise SpecError("there are more outputs than tables", code="bad-spec", hint="give --output once for each table")
    with console.steps(1 + bool(wanted)) as steps:
        steps.at("looking for a safe table")
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
            workflow.write_safe_tables(found, path, number=number, force=force)
        if report is not None:
            workflow.safe_table_report(found, report, force=force)
    sentence = found.sentence
    console.say(sentence[0].upper() + sentence[1:] + ".")
    console.say("")
    console.say(_tables(found))
    if found.violations:
        console.warn(f"{len(found.violations):,} kept figures are off: --json or the report list them.")
    for path in outputs:
        console.say(f"\nWrote {visible(str(path))}.")
    if report is not None:
        console.say(f"\nWrote {visible(str(report))}; it {INSIDE}.")
    console.result({"command": "safe table", **found.as_dict(), "outputs": [str(path) for path in wanted]})


def _tables(found: SafeTables) -> Table:
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
@reading_options
def records(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file of records")],
    *,
    parameters: dict[str, Any],
    plan_only: PlanOnly = False,
    scores: Scores = True,
    key: KeyFile = None,
    insecure_seed: InsecureSeed = None,
    replicate: ReplicateNumber = 0,
    output: MaskedFile = None,
    audit: AuditDirectory = None,
    report: ReportFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Change the fewest records so that all tables together come out safe from the one file."""
    if "tables" not in parameters:
        raise typer.BadParameter("say which tables are to be published: --tables A,B")
    mask_file(
        console,
        SafeSpec(**parameters),
        file,
        reading=reading,
        outputs=Outputs(output=output, audit=audit, force=force, report=report),
        key=key,
        insecure_seed=insecure_seed,
        replicate=replicate,
        plan_only=plan_only,
        scores=scores,
    )


@safe.command()
@command
@reading_options
def check(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a file of records (--tables), or a table in rows")],
    *,
    tables: TableNames = None,
    tolerance: Tolerance = 3,
    margins: Annotated[bool, typer.Option(help="the margins of each table are published too")] = True,
    count: CountColumn = "count",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="every small cell, to stay inside: csv or parquet", rich_help_panel=OUTPUT),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Show how many cells of tables are too small, and how many of these the published figures would give back.

    Totals only; the cells go to a file where one is named.
    """
    from safeswap import workflow

    check_outputs([output] if output else [], inputs=[file], force=force)
    with console.steps(1 + bool(output)) as steps:
        steps.at("counting")
        stated = None if tables is None else [names([one]) for one in tables]
        found = workflow.check_tables(file, stated, tolerance, margins=margins, count=count, **reading)
        if output:
            steps.at("writing")
            workflow.write_checked(found, output, force=force)
    sentence = found.sentence
    console.say(sentence[0].upper() + sentence[1:] + ".")
    console.say("")
    rows = [
        (visible(" × ".join(each["variables"])), *(f"{each[name]:,}" for name in ("occupied", "small", "derived")))
        for each in found.as_dict()["tables"]
    ]
    console.say(table(["table", "occupied cells", "below tolerance", "derived"], rows, right="lrrr"))
    if output:
        console.say(f"\nWrote {visible(str(output))}; it {INSIDE}.")
    console.result({"command": "safe check", **found.as_dict(), "output": str(output) if output else None})
