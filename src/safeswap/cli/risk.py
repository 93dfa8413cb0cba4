"""``safeswap risk``, ``suggest-keys`` and ``risky``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, escape, figure, table
from safeswap.cli.options import (
    OUTPUT,
    Force,
    ScenarioFile,
    Shown,
    check_outputs,
    command,
    names,
    option,
    read_scenario,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.measures.spec import RiskSpec
from safeswap.model.combination import Combinations
from safeswap.model.text import list_names

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.measures.base import Measure
    from safeswap.measures.risk.risky import Risky
    from safeswap.measures.risk.suda2 import SpecialUniques
    from safeswap.model.score import Assessment

MOST_SETS = 12


# A number out of its bounds is refused before the file is read.
_SHOWN = {
    **dict.fromkeys(("k", "max_size"), Shown(is_usage=True)),
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
    scenario: ScenarioFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="risk of every record, csv or parquet (confidential)", rich_help_panel=OUTPUT
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
    asked = read_scenario(scenario)
    if asked is None and "keys" not in parameters:
        raise typer.BadParameter("missing option --keys: pass --keys A,B or --scenario FILE[:NAME]")
    by_household = asked is not None and asked.unit == "household"
    if by_household and asked is not None and output is not None:
        asked.require_persons("the file with one line per record")
    if asked is None:
        RiskSpec(**parameters)
    with console.steps(4) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("counting cells")
        spec = RiskSpec(**parameters) if asked is None else RiskSpec.from_scenario(asked, data, **parameters)
        search = spec.select("max_size", "sampling_fraction", "missing")
        weighting = spec.select("weight", "model")
        if asked is None:
            assessment = file_risk(data, spec.keys, **spec.select("sensitive", "k", "l"), **weighting, **search)
        else:
            assessment = file_risk(data, **parameters, scenario=asked)
        steps.at("searching for special uniques")
        # Of households there are totals only: the tables and the file below are of persons.
        found = None if by_household else special_uniques(data, spec.keys, **search)
        if output is not None:
            steps.at("writing")
            write_record_risks(data, output, spec.keys, force=force, **weighting, **search)
    whose = f"Scenario {escape(asked.name)}, keys" if asked else "Keys"
    console.say(f"{whose} {escape(list_names(spec.keys))}:")
    console.say(_score_table(assessment), gap=True)
    for each in (_by_size(found), _by_key(found), _by_keys(found)) if found is not None and found.special else ():
        console.say(each, gap=True)
    if output is not None:
        console.say(f"\nWrote {escape(str(output))}: one line per record; it is confidential.")
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


def _totals(found: SpecialUniques | None) -> dict[str, Any]:
    if found is None:
        return {"special_uniques": None}
    tables = {"by_size": found.by_size, "by_key": found.by_key, "by_keys": found.by_keys}
    return {"special_uniques": {name: each.to_pylist() for name, each in tables.items()}}


@command
@reading_options
def suggest_keys(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine")],
    *,
    among: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="attributes to rank; all that can be keys if omitted")
    ] = None,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="maximum number of attributes to rank")] = 10,
    reading: dict[str, Any],
) -> None:
    """Rank the attributes of a file by how identifying they are.

    Each attribute is ranked by what it adds to those before it; identifiers, weights, constants and text are omitted,
    and numbers are ranked in groups. This is a start for a scenario: remove what nobody outside can know, and write the
    others as keys to a file for --scenario. Shows totals only.
    """
    from safeswap import workflow
    from safeswap.workflow.risks import suggest_keys as rank

    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("ranking")
        found = rank(data, among=names(among) if among else None, most=most)
    rows = [(escape(each.name), f"{each.unique:.2%}", f"{each.suda:.0%}", each.sentence) for each in found]
    console.say(table(["attribute", "unique so far", "SUDA", "meaning"], rows, right="lrrl"))
    for sentence in (*found.skipped_sentences, found.note):
        if sentence:
            console.say(escape(sentence))
    console.result({"command": "suggest-keys", **found.as_dict()})


MOST_COMBINATIONS = 20


@dataclass(frozen=True, kw_only=True)
class RiskyFiles:
    """The lists to write."""

    output: Path | None = option(
        "every unsafe combination with its values, csv or parquet (confidential)", metavar="FILE", panel=OUTPUT
    )
    records: Path | None = option(
        "records with an unsafe combination, csv or parquet (confidential)", metavar="FILE", panel=OUTPUT
    )
    scenario: ScenarioFile = None
    force: Force = False


@command
@spec_options(Combinations)
@request_options(RiskyFiles)
@reading_options
def risky(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine, before or after masking")],
    *,
    parameters: dict[str, Any],
    options: RiskyFiles,
    reading: dict[str, Any],
) -> None:
    """List the combinations of keys that too few records share.

    Choose the combinations: --keys for all combinations of these keys, --up-to to limit their size, --combinations for
    a list of your own, --levels for identification levels as in ARGUS. Shows totals only; pass --output and --records
    to write values and records to files.
    """
    from safeswap import workflow

    files = {"unsafe": options.output, "records": options.records}
    wanted = {part: path for part, path in files.items() if path is not None}
    check_outputs(list(wanted.values()), inputs=[file], force=options.force)
    scenario = read_scenario(options.scenario)
    asked = Combinations(**parameters) if scenario is None else None
    with console.steps(2 + bool(wanted)) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("counting")
        found = workflow.risky(data, asked) if asked else workflow.risky(data, scenario=scenario, **parameters)
        if wanted:
            steps.at("writing")
        for part, path in wanted.items():
            found.write(path, part=part, force=options.force)  # type: ignore[arg-type]
    sentence = found.sentence
    whose = f"Scenario {escape(found.scenario)}: " if found.scenario else ""
    console.say(whose + sentence[0].upper() + sentence[1:] + "." + (f" {escape(found.note)}" if found.note else ""))
    for each in (_unsafe_by_size(found), _unsafe_by_key(found), _by_combination(found)) if found.unsafe else ():
        console.say(each, gap=True)
    for path in wanted.values():
        console.say(f"\nWrote {escape(str(path))}; it is confidential.")
    console.result({"command": "risky", **found.as_dict(), "outputs": {p: str(path) for p, path in wanted.items()}})


def _unsafe_by_size(found: Risky) -> Table:
    rows = [
        [str(row["keys"]), *(f"{row[name]:,}" for name in ("combinations", "occupied", "unsafe"))]
        for row in found.to_frame("dimensions").to_pylist()
    ]
    return table(["keys", "combinations of keys", "combinations of values", "unsafe"], rows, right="rrrr")


def _unsafe_by_key(found: Risky) -> Table:
    worst = sorted(found.keys, key=lambda each: (-each.records, -each.alone))
    rows = [(escape(each.key), f"{each.records:,}", f"{each.alone:,}") for each in worst]
    return table(["key", "unsafe records with it", "safe without it"], rows, right="lrr")


def _by_combination(found: Risky) -> Table:
    worst = sorted((each for each in found.combinations if each.unsafe), key=lambda each: -each.records)
    rows = [
        (escape(" × ".join(each.keys)), f"{each.tolerance:g}", f"{each.unsafe:,}", f"{each.records:,}")
        for each in worst[:MOST_COMBINATIONS]
    ]
    more = len(worst) - len(rows)
    title = f"Worst {len(rows)} of {len(worst):,}; --json lists all" if more else ""
    return table(["combination of keys", "tolerance", "unsafe", "records"], rows, right="lrrr", title=title)
