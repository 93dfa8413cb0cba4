"""``safeswap assess``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command, names, reading_options
from safeswap.errors import InputError

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata

# What a wrong guess of delimiter, encoding or quote may lead to.
LAYOUT_ERRORS = {"wrong-encoding", "ambiguous-delimiter", "ragged-row", "bad-quoting", "unparsable-file", "no-header"}

# What comes of a schema that is the one of the file before it was recoded.
OTHER_COLUMNS = {"unlisted-level", "schema-mismatch"}


@command
@reading_options
def assess(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="the file as it was")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="the masked file")],
    *,
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a measure, e.g. hellinger or n_rule:n=5,keys=Age+Sex; repeatable"),
    ] = None,
    ways: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="over every table of so many attributes, instead of all attributes jointly"),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="form cells from these attributes; all categorical ones if not stated"),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="what an intruder knows: the keys of the risk measures"),
    ] = None,
    masked_schema: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="what the columns of a recoded file are, as recode --write-schema says"),
    ] = None,
    match: Annotated[
        Literal["auto", "position"],
        typer.Option(help="find the same record by identifier where both files have one (auto), or by its position"),
    ] = "auto",
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="audit record of the release, for a file with new identifiers or order"),
    ] = None,
    reading: dict[str, Any],
) -> None:
    """Measure the risk and the distortion of a masked file.

    The two files are compared record by record; what differs counts as swapped. Without --measure the measures are
    those that say something about what was changed; the usual ones that do not are named. Delimiter, encoding and
    quote are those of the original; those of the masked file may be others and are found out. A file that was recoded
    has other levels: say which with --masked-schema.
    """
    from safeswap import workflow
    from safeswap.cli.scores import say_left_out, score_table, small_tables

    with console.steps(3) as steps:
        steps.at("reading the original")
        before = workflow.read(original, **reading)
        steps.at("reading the masked file")
        own = {} if masked_schema is None else {"schema": masked_schema}
        try:
            after = read_masked(masked, before, {**reading, **own})
        except InputError as error:
            if error.code not in OTHER_COLUMNS or own:
                raise
            hint = "if the file was recoded, state what its columns are: --masked-schema TOML"
            raise InputError(error.message, code=error.code, hint=hint, **error.fields) from None
        steps.at("measuring")
        chosen = names(attributes) if attributes else None
        assessment = workflow.assess(
            before,
            after,
            measures=measure or None,
            attributes=chosen,
            keys=names(keys or ()),
            ways=ways,
            match=match,
            audit=record,
        )
    console.say(score_table(assessment))
    say_left_out(console, assessment)
    if ways and (tables := small_tables(assessment, ways=ways)):
        console.say("")
        console.say(tables)
    console.result({"command": "assess", "records": len(before), **assessment.as_dict()})


def read_masked(path: Path, before: Microdata, reading: dict[str, Any]) -> Microdata:
    """Read the masked file as it shows itself to be, or if that cannot be so in the layout of the original."""
    from safeswap import workflow

    own = {name: value for name, value in reading.items() if name not in ("delimiter", "encoding", "quote")}
    try:
        after = workflow.read(path, **own)
    except InputError as error:
        if error.code not in LAYOUT_ERRORS or own == reading:
            raise
        return workflow.read(path, **reading)
    return after if set(before.attributes) <= set(after.attributes) else workflow.read(path, **reading)
