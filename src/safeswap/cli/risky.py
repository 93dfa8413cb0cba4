"""``safeswap risky``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import (
    OUTPUT,
    Force,
    ScenarioFile,
    check_outputs,
    command,
    option,
    read_scenario,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.model.combination import Combinations

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.measures.risk.risky import Risky

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
    whose = f"Scenario {visible(found.scenario)}: " if found.scenario else ""
    console.say(whose + sentence[0].upper() + sentence[1:] + "." + (f" {visible(found.note)}" if found.note else ""))
    for each in (_by_size(found), _by_key(found), _by_combination(found)) if found.unsafe else ():
        console.say(each, gap=True)
    for path in wanted.values():
        console.say(f"\nWrote {visible(str(path))}; it is confidential.")
    console.result({"command": "risky", **found.as_dict(), "outputs": {p: str(path) for p, path in wanted.items()}})


def _by_size(found: Risky) -> Table:
    rows = [
        [str(row["keys"]), *(f"{row[name]:,}" for name in ("combinations", "occupied", "unsafe"))]
        for row in found.to_frame("dimensions").to_pylist()
    ]
    return table(["keys", "combinations of keys", "combinations of values", "unsafe"], rows, right="rrrr")


def _by_key(found: Risky) -> Table:
    worst = sorted(found.keys, key=lambda each: (-each.records, -each.alone))
    rows = [(visible(each.key), f"{each.records:,}", f"{each.alone:,}") for each in worst]
    return table(["key", "unsafe records with it", "safe without it"], rows, right="lrr")


def _by_combination(found: Risky) -> Table:
    worst = sorted((each for each in found.combinations if each.unsafe), key=lambda each: -each.records)
    rows = [
        (visible(" × ".join(each.keys)), f"{each.tolerance:g}", f"{each.unsafe:,}", f"{each.records:,}")
        for each in worst[:MOST_COMBINATIONS]
    ]
    more = len(worst) - len(rows)
    title = f"Worst {len(rows)} of {len(worst):,}; --json lists all" if more else ""
    return table(["combination of keys", "tolerance", "unsafe", "records"], rows, right="lrrr", title=title)
