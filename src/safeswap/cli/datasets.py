"""``safeswap datasets``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, make_group, warn_of_losses
from safeswap.errors import SpecError
from safeswap.model.text import plural

datasets = make_group("List and write the data sets included with safeswap.", invoke_without_command=True)


@datasets.callback()
@command
def _list_by_default(console: Console, context: typer.Context) -> None:
    """List and write the data sets included with safeswap.

    Without a subcommand, they are listed.
    """
    if context.invoked_subcommand is None:
        _list(console)


@datasets.command(name="list")
@command
def list_datasets(console: Console) -> None:
    """List the data sets."""
    _list(console)


@datasets.command()
@command
def write(
    console: Console,
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the data set")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="file to write: .csv, .tsv, .parquet, .dta or .sav")],
    *,
    write_schema: Annotated[
        Path | None, typer.Option(metavar="TOML", help="also write the schema of the columns", rich_help_panel=OUTPUT)
    ] = None,
    force: Force = False,
) -> None:
    """Write a data set to a file."""
    from safeswap import datasets as shipped
    from safeswap.files.schema_file import write_schema as write_schema_file
    from safeswap.files.write import write

    if name not in shipped.available():
        raise SpecError(
            f"there is no data set {name!r}",
            code="unknown-dataset",
            hint="choose one of: " + ", ".join(shipped.available()),
        )
    check_outputs([path, *([write_schema] if write_schema else [])], force=force)
    data = getattr(shipped, name)()
    write(data, path, force=force)
    warn_of_losses(console, data, path)
    if write_schema:
        write_schema_file(data.schema, write_schema, force=force)
    console.say(
        f"Wrote {visible(str(path))}: {plural(len(data), 'record')}, {plural(len(data.attributes), 'attribute')}."
    )
    schema = str(write_schema) if write_schema else None
    console.result({"command": "datasets", "name": name, "output": str(path), "records": len(data), "schema": schema})


def _list(console: Console) -> None:
    from safeswap import datasets as shipped

    console.say(table(["name", "description"], shipped.available().items()))
    console.result({"command": "datasets", "datasets": dict(shipped.available())})
