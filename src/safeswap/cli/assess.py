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

# Errors that a wrong guess of delimiter, encoding or quote may cause.
LAYOUT_ERRORS = {"wrong-encoding", "ambiguous-delimiter", "ragged-row", "bad-quoting", "unparsable-file", "no-header"}

# Errors that the schema of the original may cause for a recoded file.
SCHEMA_ERRORS = {"unlisted-level", "schema-mismatch"}


@command
@reading_options
def assess(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="measure, e.g. hellinger or n_rule:n=5,keys=Age+Sex; repeatable"),
    ] = None,
    ways: Annotated[
        int | None,
        typer.Option(
            min=1, max=3, help="measure every table of this many attributes, instead of all attributes jointly"
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="attributes that form the cells; all categorical ones if omitted"),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="attributes that an intruder may know: keys of the risk measures"),
    ] = None,
    masked_schema: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="schema of a recoded file, as written by recode --write-schema"),
    ] = None,
    match: Annotated[
        Literal["auto", "position"],
        typer.Option(help="match records by identifier if both files have one (auto), or by position"),
    ] = "auto",
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="audit record of the release, for a file with new identifiers or row order"),
    ] = None,
    reading: dict[str, Any],
) -> None:
    """Measure the risk and distortion of a masked file.

    The two files are compared record by record; records that differ count as swapped. Without --measure, the default
    measures that apply to the changed attributes are used, and the others are listed. Delimiter, encoding and quote
    apply to the original; those of the masked file may differ and are detected. A recoded file has other levels: pass
    its schema with --masked-schema.
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
            if error.code not in SCHEMA_ERRORS or own:
                raise
            hint = "if the file was recoded, pass its schema: --masked-schema TOML"
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
    """Read the masked file in its detected layout or, if that fails, in the layout of the original."""
    from safeswap import workflow

    own = {name: value for name, value in reading.items() if name not in ("delimiter", "encoding", "quote")}
    try:
        after = workflow.read(path, **own)
    except InputError as error:
        if error.code not in LAYOUT_ERRORS or own == reading:
            raise
        return workflow.read(path, **reading)
    return after if set(before.attributes) <= set(after.attributes) else workflow.read(path, **reading)
