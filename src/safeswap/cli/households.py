"""``safeswap merge-households`` and ``safeswap split-households``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.masking import CONFIDENTIAL
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, reading_options
from safeswap.model.text import plural


@command
@reading_options
def merge_households(
    console: Console,
    households: Annotated[Path, typer.Argument(metavar="HOUSEHOLDS", help="file with one record per household")],
    persons: Annotated[Path, typer.Argument(metavar="PERSONS", help="file with one record per person")],
    *,
    on: Annotated[str | None, typer.Option(metavar="A", help="number of the household, a column of both files")] = None,
    household_schema: Annotated[Path | None, typer.Option(metavar="TOML", help="schema of the household file")] = None,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="merged person file (confidential)", rich_help_panel=OUTPUT)
    ],
    write_schema: Annotated[
        Path, typer.Option(metavar="TOML", help="write the schema of the merged file", rich_help_panel=OUTPUT)
    ],
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Join a file of households and a file of persons to one person file.

    What the household file has is marked as the household's in the schema: with it, methods change it for all members
    of a household or for none. Reading options apply to the person file.
    """
    from safeswap import workflow
    from safeswap.files.schema_file import write_schema as write_schema_file
    from safeswap.files.write import write
    from safeswap.workflow.households import merge_households as merge

    check_outputs([output, write_schema], inputs=[households, persons], force=force)
    with console.steps(2) as steps:
        steps.at("reading")
        described = {} if household_schema is None else {"schema": household_schema}
        merged = merge(workflow.read(households, **described), workflow.read(persons, **reading), on=on)
        steps.at("writing")
        write(merged, output, force=force)
        write_schema_file(merged.schema, write_schema, force=force)
    shared = [each.name for each in merged.schema.attributes if each.household]
    console.say(f"{plural(len(merged), 'person')}; the household's: {visible(', '.join(shared)) or 'nothing'}.")
    console.say_places(("merged file", output, CONFIDENTIAL), ("schema", write_schema, ""))
    places = {"output": str(output), "schema": str(write_schema)}
    console.result({"command": "merge-households", "records": len(merged), "household": shared, **places})


@command
@reading_options
def split_households(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="person file; its schema marks what is the household's")],
    *,
    households: Annotated[
        Path, typer.Option(metavar="FILE", help="file of households to write", rich_help_panel=OUTPUT)
    ],
    persons: Annotated[Path, typer.Option(metavar="FILE", help="file of persons to write", rich_help_panel=OUTPUT)],
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Divide a person file into a file of households and a file of persons.

    Both have the number of the household. Pass the schema that marks the household's attributes: --schema.
    """
    from safeswap import workflow
    from safeswap.files.write import write
    from safeswap.workflow.households import split_households as split

    check_outputs([households, persons], inputs=[file], force=force)
    with console.steps(2) as steps:
        steps.at("reading")
        homes, people = split(workflow.read(file, **reading))
        steps.at("writing")
        write(homes, households, force=force)
        write(people, persons, force=force)
    console.say(f"{plural(len(homes), 'household')} and {plural(len(people), 'person')}.")
    console.say_places(("households", households, CONFIDENTIAL), ("persons", persons, CONFIDENTIAL))
    places = {"households": str(households), "persons": str(persons)}
    console.result({"command": "split-households", "records": len(people), "units": len(homes), **places})
