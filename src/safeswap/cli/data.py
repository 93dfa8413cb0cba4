"""``safeswap describe``, ``merge-households``, ``split-households``, ``keygen``, ``datasets`` and ``demo``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, escape, table
from safeswap.cli.mask import CONFIDENTIAL
from safeswap.cli.options import (
    OUTPUT,
    REQUIRED,
    Force,
    check_outputs,
    command,
    make_group,
    option,
    reading_options,
    request_options,
    warn_of_losses,
)
from safeswap.errors import SpecError
from safeswap.model.text import list_names, plural


@command
def keygen(
    console: Console,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="key file to create")],
    force: Force = False,
) -> None:
    """Generate a secret key, the source of all randomness.

    The file holds 32 random bytes and is readable by its owner only. Anyone who has it and a release can undo every
    swap: store it with the original data, and keep it for as long as the release must be accounted for.
    """
    from safeswap.files.keyfile import generate_key

    key = generate_key(path, force=force)
    console.say(f"Wrote {escape(str(path))}, key {key.id}, readable by you only. Keep it confidential.")
    console.result({"command": "keygen", "path": str(path), "key_id": key.id})


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
    """Show the attributes of a file, their levels and its small cells, but no records.

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
    console.say(escape(title))
    console.say(table(columns, description.rows(), right="llrrl"), gap=True)
    console.say(description.cells.sentence, gap=True)
    for warning in description.warnings:
        console.warn(f"! {warning}")
    if write_schema is not None:
        console.say(f"\nWrote {escape(str(write_schema))}.")
    written = str(write_schema) if write_schema is not None else None
    console.result({"command": "describe", "file": str(file), **description.as_dict(), "schema": written})


@dataclass(frozen=True, kw_only=True)
class MergedFiles:
    """Options for joining the two files, and where the result is written."""

    on: str | None = option("number of the household, a column of both files", metavar="A")
    household_schema: Path | None = option("schema of the household file", metavar="TOML")
    output: Path = option("merged person file (confidential)", default=REQUIRED, metavar="FILE", panel=OUTPUT)
    write_schema: Path = option("write the schema of the merged file", default=REQUIRED, metavar="TOML", panel=OUTPUT)
    force: Force = False


@command
@request_options(MergedFiles)
@reading_options
def merge_households(
    console: Console,
    households: Annotated[Path, typer.Argument(metavar="HOUSEHOLDS", help="file with one record per household")],
    persons: Annotated[Path, typer.Argument(metavar="PERSONS", help="file with one record per person")],
    *,
    options: MergedFiles,
    reading: dict[str, Any],
) -> None:
    """Join a file of households and a file of persons into one person file.

    Columns of the household file are marked as the household's in the schema: with it, methods change it for all
    members of a household or for none. Reading options apply to the person file.
    """
    from safeswap import workflow
    from safeswap.files.atomic import atomic_write
    from safeswap.files.schema_file import write_schema
    from safeswap.files.write import write_part
    from safeswap.workflow.households import merge_households as merge

    output, schema, force = options.output, options.write_schema, options.force
    check_outputs([output, schema], inputs=[households, persons], force=force)
    with console.steps(2) as steps:
        steps.at("reading")
        homes = workflow.read(households, schema=options.household_schema)
        merged = merge(homes, workflow.read(persons, **reading), on=options.on)
        steps.at("writing")
        with atomic_write(output, force=force) as part:  # both or neither
            write_part(merged, part, output)
            write_schema(merged.schema, schema, force=force)
    shared = [each.name for each in merged.schema.attributes if each.household]
    console.say(f"{plural(len(merged), 'person')}; the household's: {escape(list_names(shared)) or 'nothing'}.")
    console.say_places(("merged file", output, CONFIDENTIAL), ("schema", schema, ""))
    places = {"output": str(output), "schema": str(schema)}
    console.result({"command": "merge-households", "records": len(merged), "household": shared, **places})


@command
@reading_options
def split_households(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="person file; its schema marks the household's columns")],
    *,
    households: Annotated[
        Path, typer.Option(metavar="FILE", help="file of households to write", rich_help_panel=OUTPUT)
    ],
    persons: Annotated[Path, typer.Option(metavar="FILE", help="file of persons to write", rich_help_panel=OUTPUT)],
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Divide a person file into a file of households and a file of persons.

    Both contain the household number. Pass the schema that marks the household's attributes: --schema.
    """
    from safeswap import workflow
    from safeswap.files.write import write_files
    from safeswap.workflow.households import split_households as split

    check_outputs([households, persons], inputs=[file], force=force)
    with console.steps(2) as steps:
        steps.at("reading")
        homes, people = split(workflow.read(file, **reading))
        steps.at("writing")
        write_files({households: homes, persons: people}, force=force)
    console.say(f"{plural(len(homes), 'household')} and {plural(len(people), 'person')}.")
    console.say_places(("households", households, CONFIDENTIAL), ("persons", persons, CONFIDENTIAL))
    places = {"households": str(households), "persons": str(persons)}
    console.result({"command": "split-households", "records": len(people), "units": len(homes), **places})


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
        f"Wrote {escape(str(path))}: {plural(len(data), 'record')}, {plural(len(data.attributes), 'attribute')}."
    )
    schema = str(write_schema) if write_schema else None
    console.result({"command": "datasets", "name": name, "output": str(path), "records": len(data), "schema": schema})


def _list(console: Console) -> None:
    from safeswap import datasets as shipped

    console.say(table(["name", "description"], shipped.available().items()))
    console.result({"command": "datasets", "datasets": dict(shipped.available())})


# The rates of Gomatam, Karr & Sanil (2003); every choice of one or two attributes is drawn several times at each.
RATES = (0.01, 0.02, 0.10)
REPLICATES = 12
OBJECTIVE = "cap_risk:0.0135"
TITLE = "CPS-8d, swapped"


@command
def demo(
    console: Console,
    output: Annotated[Path, typer.Option(metavar="DIR", help="directory to create", rich_help_panel=OUTPUT)] = Path(
        "demo-output"
    ),
) -> None:
    """Walk through the whole path, from survey file to release, on included data.

    Evaluates every swap of one or two attributes of CPS-8d at three rates, shows the risk–distortion frontier, chooses
    one candidate and releases it.
    """
    from safeswap import datasets, workflow
    from safeswap.cli.study import Bar, frontier_rows, frontier_table
    from safeswap.files.keyfile import generate_key
    from safeswap.releases.ledger import LedgerFile
    from safeswap.workflow.masking import keep

    check_outputs([output], hint="choose another name with --output, or remove the directory")
    data = datasets.cps8d()
    inside = output / "confidential"
    with _directory(output):
        inside.mkdir(mode=0o700)
        key = generate_key(inside / "demo.key")
        with Bar(console) as bar:
            study = workflow.study(data, rates=RATES, replicates=REPLICATES, objective=OBJECTIVE, key=key, progress=bar)
        with console.steps(2) as steps:
            steps.at("writing the map and the reports")
            choice = study.choose()
            study.save(inside / "study", choice=choice, data=data)
            steps.at("releasing the chosen candidate")
            masked = workflow.mask(data, choice.spec, key=key, replicate=choice.replicate)
            ledger = LedgerFile(inside / "ledger.db")  # not the agency's ledger
            record = keep(masked, inside / "masked.parquet", audit=inside / "audit", ledger=ledger)
            published = workflow.release(
                masked,
                output / "public",
                audit=inside / "audit",
                key=key,
                title=TITLE,
                ledger=ledger,
            )
    console.say(f"CPS-8d: {plural(len(data), 'record')}, {plural(len(study), 'candidate release')}.\n")
    console.say(frontier_table(study, choice))
    console.say(f"\n{choice.sentence}\n")
    places = [
        ("report to open", inside / "study" / "report.html", "confidential: the map, the choice and the reason"),
        ("public bundle", published.public, "for publication; try safeswap verify"),
        ("masked file", inside / "masked.parquet", "confidential"),
        ("audit records", record.parent, "confidential: they undo the swap"),
        ("key", inside / "demo.key", "confidential: it reproduces the swap"),
    ]
    console.say(table(["what", "where", ""], places))
    console.result(
        {
            "command": "demo",
            "candidates": len(study),
            "frontier": frontier_rows(study),
            "choice": choice.as_dict(),
            **published.as_dict(),
        }
    )


@contextmanager
def _directory(output: Path) -> Iterator[None]:
    """Create the directory, and remove it again if anything fails."""
    output.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
