"""``safeswap safe``: tables without small cells, records that tabulate to such tables, and a check of tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, escape, table
from safeswap.cli.mask import CONFIDENTIAL, ON_DISK, MaskingOptions, ReportFile, mask_by
from safeswap.cli.options import (
    OUTPUT,
    Force,
    check_outputs,
    command,
    make_group,
    names,
    option,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.errors import SpecError
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.text import plural

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.safe.spec import SafeTables

SOLVING = "Solver"

safe = make_group("Publish tables in which every cell is 0 or large enough.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The tables of a file: counts in long form, or attributes of its records."""

    tolerance: int = option("smallest count above 0 that may be published", default=3, metavar="Q")
    tables: list[str] | None = option("attributes of a table of the records; repeatable", metavar="A,B")
    count: str = option(
        "column with the counts, if the file is a table in long form", default="count", metavar="COLUMN"
    )

    @property
    def attributes(self) -> list[tuple[str, ...]] | None:
        """The attributes of each table; None for a table in long form."""
        return _parse_sets(self.tables)


@dataclass(frozen=True, kw_only=True)
class SolverOptions(TableOptions):
    """Kept margins, objective, solver, and the files to write."""

    keep: list[str] | None = option(
        "margin to keep exactly; repeatable (default: all with one variable fewer)", metavar="A,B"
    )
    objective: str = option("change to minimise: total or largest", default="total", panel=SOLVING)
    keep_zeros: bool = option("keep cells that are 0 at 0", "--keep-zeros", default=False, panel=SOLVING)
    soft: bool = option("if not all margins can be kept, violate them least", "--soft", default=False, panel=SOLVING)
    solver: str = option("auto, exact or heuristic", default="auto", panel=SOLVING)
    time_limit: float = option("time limit for a proof of optimality", default=30.0, metavar="SECONDS", panel=SOLVING)
    output: list[Path] | None = option(
        "safe table in long form, csv or parquet; repeat for each table", metavar="FILE", panel=OUTPUT
    )
    report: ReportFile = None
    force: Force = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``workflow.safe_table``."""
        zeros = ["all"] * len(self.tables) if self.tables and len(self.tables) > 1 else "all"
        return {
            "keep": _parse_sets(self.keep),
            "structural_zeros": zeros if self.keep_zeros else None,
            "attributes": self.attributes,
            **{name: getattr(self, name) for name in ("objective", "soft", "solver", "time_limit", "count")},
        }


@dataclass(frozen=True, kw_only=True)
class CheckOptions(TableOptions):
    """The published tables, and the list to write."""

    margins: bool = option("assume that the margins of each table are published too", default=True)
    output: Path | None = option("list of small cells, csv or parquet (confidential)", metavar="FILE", panel=OUTPUT)
    force: Force = False


def _parse_sets(stated: list[str] | None) -> list[tuple[str, ...]] | None:
    return None if stated is None else [names([one]) for one in stated]


@safe.command(name="table")
@command
@request_options(SolverOptions)
@reading_options
def table_command(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="table in long form, or records to tabulate (--tables)")],
    *,
    options: SolverOptions,
    reading: dict[str, Any],
) -> None:
    """Change a table of counts as little as possible until every cell is 0 or at least the tolerance.

    Margins stay exact. Tables of the same records agree on the margins that they share.
    """
    from safeswap import workflow
    from safeswap.projects.tables import write_long
    from safeswap.reports.safe import write_safe_report

    outputs, report, force = options.output or [], options.report, options.force
    wanted = [*outputs, *([report] if report else [])]
    check_outputs(wanted, inputs=[file], force=force)
    if len(outputs) > max(1, len(options.tables or ())):
        raise SpecError("there are more outputs than tables", code="bad-spec", hint="give --output once per table")
    with console.steps(1 + bool(wanted)) as steps:
        steps.at("searching for a safe table")
        found = workflow.safe_table(file, options.tolerance, **options.arguments(), **reading)
        if wanted:
            steps.at("writing")
        for number, path in enumerate(outputs):
            write_long(found, path, number=number, force=force)
        if report is not None:
            write_safe_report(found, report, force=force)
    _say_sentence(console, found.sentence)
    console.say(_change_table(found))
    if found.violations:
        inexact = plural(len(found.violations), "figure to be kept is", "figures to be kept are")
        console.warn(f"{inexact} not exact; see the report or --json.")
    for path in outputs:
        console.say(f"\nWrote {escape(str(path))}.")
    if report is not None:
        console.say(f"\nWrote {escape(str(report))}; it is {CONFIDENTIAL}.")
    console.result({"command": "safe table", **found.as_dict(), "outputs": [str(path) for path in wanted]})


def _say_sentence(console: Console, sentence: str) -> None:
    console.say(sentence[0].upper() + sentence[1:] + ".")
    console.say("")


def _change_table(found: SafeTables) -> Table:
    rows = [
        (
            escape(" × ".join(each["variables"])),
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
    mask_by(console, SafeSpec, file, parameters=parameters, reading=reading, options=options)


@safe.command()
@command
@request_options(CheckOptions)
@reading_options
def check(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file of records (--tables), or a table in long form")],
    *,
    options: CheckOptions,
    reading: dict[str, Any],
) -> None:
    """Count cells that are too small, and how many of them can be derived from the published figures.

    Shows totals only; pass --output to write the cells to a file.
    """
    from safeswap import workflow

    output, force = options.output, options.force
    check_outputs([output] if output else [], inputs=[file], force=force)
    asked: dict[str, Any] = {"margins": options.margins, "count": options.count, **reading}
    with console.steps(1 + bool(output)) as steps:
        steps.at("counting")
        found = workflow.check_tables(file, options.attributes, options.tolerance, **asked)
        if output:
            steps.at("writing")
            found.write(output, force=force)
    _say_sentence(console, found.sentence)
    rows = [
        (escape(" × ".join(each["variables"])), *(f"{each[name]:,}" for name in ("occupied", "small", "derived")))
        for each in found.as_dict()["tables"]
    ]
    console.say(table(["table", "occupied cells", "below tolerance", "derived"], rows, right="lrrr"))
    if output:
        console.say(f"\nWrote {escape(str(output))}; it is {CONFIDENTIAL}.")
    console.result({"command": "safe check", **found.as_dict(), "output": str(output) if output else None})
