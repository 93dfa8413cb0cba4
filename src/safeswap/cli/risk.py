"""``safeswap risk``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, Force, Shown, check_outputs, command, reading_options, spec_options
from safeswap.cli.scores import figure
from safeswap.measures.risk.spec import RiskSpec

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.measures.base import Measure
    from safeswap.measures.risk.suda2 import SpecialUniques
    from safeswap.model.score import Assessment

MOST_SETS = 12


# A missing key, and a number out of its bounds, are refused before the file is read.
_SHOWN = {
    **dict.fromkeys(("keys", "k", "max_size"), Shown(is_usage=True)),
    **dict.fromkeys(("sensitive", "weight"), Shown(metavar="NAME")),
}


@command
@spec_options(RiskSpec, shown=_SHOWN)
@reading_options
def risk(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine, before or after masking")],
    *,
    parameters: dict[str, Any],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="risks of every record, csv or parquet (confidential)", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Measure how easily records can be singled out by their keys.

    Shows how many records share their keys with too few others, whether a sensitive value can be inferred from the
    keys, how many records an intruder is expected to find, and which small sets of keys make a record unique. Shows
    totals only; pass --output to write the risks of single records to a file.
    """
    from safeswap import workflow
    from safeswap.measures.risk.by_record import file_risk, special_uniques, write_record_risks

    if output is not None:
        check_outputs([output], inputs=[file], force=force)
    spec = RiskSpec(**parameters)
    search = spec.only("max_size", "sampling_fraction", "missing")
    weighting = spec.only("weight", "model")
    with console.steps(4) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("counting cells")
        assessment = file_risk(data, spec.keys, **spec.only("sensitive", "k", "l"), **weighting, **search)
        steps.at("searching for special uniques")
        found = special_uniques(data, spec.keys, **search)
        if output is not None:
            steps.at("writing")
            write_record_risks(data, output, spec.keys, force=force, **weighting, **search)
    console.say(f"Keys {visible(', '.join(spec.keys))}:")
    console.say("")
    console.say(_score_table(assessment))
    for each in (_by_size(found), _by_key(found), _by_keys(found)) if found.special else ():
        console.say("")
        console.say(each)
    if output is not None:
        console.say(f"\nWrote {visible(str(output))}: one line per record; it is confidential.")
    written = str(output) if output is not None else None
    console.result(
        {"command": "risk", "records": len(data), **assessment.as_dict(), **_totals(found), "output": written}
    )


def _score_table(assessment: Assessment) -> Table:
    from safeswap import registry

    measures = [registry.measure(score.measure) for score in assessment]
    rows = [
        (_title(each, measures), figure(score.value), score.sentence)
        for each, score in zip(measures, assessment, strict=True)
    ]
    return table(["measure", "value", "meaning"], rows, right="lrl")


def _title(measure: Measure, others: Sequence[Measure]) -> str:
    """Return the title of a measure; if several share it, with the parameters that distinguish it."""
    twins = [each.parameters for each in others if each.title == measure.title]
    own = [str(value) for name, value in measure.parameters.items() if any(twin[name] != value for twin in twins)]
    return f"{measure.title} ({', '.join(own)})" if own else measure.title


def _by_size(found: SpecialUniques) -> Table:
    rows = [list(row.values()) for row in found.by_size.to_pylist()]
    title = "Smallest sets of keys that make a record unique"
    return table(["keys in the set", "sets", "records with no smaller set"], rows, title=title, right="rrr")


def _by_key(found: SpecialUniques) -> Table:
    rows = [(row["key"], row["minimal_uniques"], f"{row['share_of_score']:.1%}") for row in found.by_key.to_pylist()]
    return table(["key", "sets with it", "share of total score"], rows, right="lrr")


def _by_keys(found: SpecialUniques) -> Table:
    rows = [(" × ".join(row["keys"]), row["minimal_uniques"]) for row in found.by_keys.to_pylist()]
    title = f"First {MOST_SETS} of {len(rows):,} sets; --json lists all" if len(rows) > MOST_SETS else ""
    return table(["set of keys", "unique records"], rows[:MOST_SETS], title=title, right="lr")


def _totals(found: SpecialUniques) -> dict[str, Any]:
    tables = {"by_size": found.by_size, "by_key": found.by_key, "by_keys": found.by_keys}
    return {"special_uniques": {name: each.to_pylist() for name, each in tables.items()}}
