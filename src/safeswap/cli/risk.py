"""``safeswap risk``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, names, reading_options
from safeswap.cli.scores import figure
from safeswap.model.combination import Missing

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.measures.base import Measure
    from safeswap.measures.risk.suda2 import SpecialUniques
    from safeswap.model.score import Assessment

MOST_SETS = 12


@command
@reading_options
def risk(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine, before or after masking")],
    *,
    keys: Annotated[list[str], typer.Option(metavar="A,B", help="attributes that an intruder may know")],
    sensitive: Annotated[
        str | None, typer.Option(metavar="NAME", help="sensitive attribute to protect (l-diversity)")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="NAME", help="survey weight; if omitted, the file is the population")
    ] = None,
    model: Annotated[
        Literal["franconi-polettini", "inverse"],
        typer.Option(help="with a weight: expected 1/F given the sample, or 1 / sum of weights"),
    ] = "franconi-polettini",
    k: Annotated[
        int, typer.Option("--k", min=2, metavar="K", help="smallest number of records that must share their keys")
    ] = 3,
    l: Annotated[  # noqa: E741  (the established name)
        float, typer.Option("--l", metavar="L", help="smallest acceptable diversity of the sensitive attribute")
    ] = 2,
    max_size: Annotated[
        int, typer.Option(min=1, max=62, metavar="M", help="find records that are unique on up to M keys")
    ] = 3,
    sampling_fraction: Annotated[
        float, typer.Option(metavar="SHARE", help="sampling fraction of the file, for the DIS scores")
    ] = 0.01,
    missing: Annotated[
        Missing | None,
        typer.Option(
            help="missing keys: count a record by the keys that it has (none, any), treat missing as a value (own), or "
            "let it match everything both ways (vouching)"
        ),
    ] = None,
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

    if output is not None:
        check_outputs([output], inputs=[file], force=force)
    chosen, meaning = names(keys), {} if missing is None else {"missing": missing}
    search: dict[str, Any] = {"max_size": max_size, "sampling_fraction": sampling_fraction, **meaning}
    weighting: dict[str, Any] = {"weight": weight, "model": model}
    with console.steps(4) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("counting cells")
        assessment = workflow.file_risk(data, chosen, sensitive=sensitive, k=k, l=l, **weighting, **search)
        steps.at("searching for special uniques")
        found = workflow.special_uniques(data, chosen, **search)
        if output is not None:
            steps.at("writing")
            workflow.write_record_risks(data, output, chosen, force=force, **weighting, **search)
    console.say(f"Keys {visible(', '.join(chosen))}:")
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
