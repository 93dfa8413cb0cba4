"""``safeswap assess``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import (
    ScenarioFile,
    command,
    names,
    option,
    read_scenarios,
    reading_options,
    request_options,
)
from safeswap.errors import InputError

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata

# Errors that a wrong guess of delimiter, encoding or quote may cause.
LAYOUT_ERRORS = {"wrong-encoding", "ambiguous-delimiter", "ragged-row", "bad-quoting", "unparsable-file", "no-header"}

# Errors that the schema of the original may cause for a recoded file.
SCHEMA_ERRORS = {"unlisted-level", "schema-mismatch"}


@dataclass(frozen=True, kw_only=True)
class AssessOptions:
    """What to measure, and how the two files are compared."""

    measure: list[str] | None = option("measure, e.g. hellinger or n_rule:n=5,keys=Age+Sex; repeatable", metavar="NAME")
    indicators: Path | None = option("measure the largest change of these key indicators", metavar="TOML")
    ways: int | None = option(
        "measure every table of this many attributes, instead of all attributes jointly", min=1, max=3
    )
    attributes: list[str] | None = option(
        "attributes that form the cells; all categorical ones if omitted", metavar="A,B"
    )
    keys: list[str] | None = option("attributes that an intruder may know: keys of the risk measures", metavar="A,B")
    scenario: ScenarioFile = None
    masked_schema: Path | None = option("schema of a recoded file, as written by recode --write-schema", metavar="TOML")
    match: Literal["auto", "position"] = option(
        "match records by identifier if both files have one (auto), or by position", default="auto"
    )
    record: Path | None = option(
        "audit record of the release, for a file with new identifiers or row order", metavar="DIR"
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``workflow.assess``."""
        return {
            "measures": self._measures(),
            "attributes": names(self.attributes) if self.attributes else None,
            "keys": names(self.keys or ()),
            "ways": self.ways,
            "match": self.match,
            "audit": self.record,
            "scenario": None if self.scenario is None else read_scenarios(self.scenario),
        }

    def _measures(self) -> list[str] | None:
        """Return the stated measures, with the indicators of a file last; None for the default ones."""
        if self.indicators is None:
            return self.measure or None
        from safeswap.measures.utility.indicators import read_indicators

        return [*(self.measure or ()), read_indicators(self.indicators).text]


@command
@request_options(AssessOptions)
@reading_options
def assess(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    options: AssessOptions,
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
        after = _read_recoded(masked, before, reading, options.masked_schema)
        steps.at("measuring")
        assessment = workflow.assess(before, after, **options.arguments())
    console.say(score_table(assessment))
    say_left_out(console, assessment)
    if options.ways and (tables := small_tables(assessment, ways=options.ways)):
        console.say(tables, gap=True)
    console.result({"command": "assess", "records": len(before), **assessment.as_dict()})


def _read_recoded(path: Path, before: Microdata, reading: dict[str, Any], schema: Path | None) -> Microdata:
    """Read the masked file by its own schema if it has one; where that is missing, say so."""
    try:
        return read_masked(path, before, reading if schema is None else {**reading, "schema": schema})
    except InputError as error:
        if error.code not in SCHEMA_ERRORS or schema is not None:
            raise
        hint = "if the file was recoded, pass its schema: --masked-schema TOML"
        raise InputError(error.message, code=error.code, hint=hint, **error.fields) from None


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
