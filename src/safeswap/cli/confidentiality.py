"""``safeswap confidentiality``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.assess import read_masked
from safeswap.cli.console import Console, table
from safeswap.cli.options import (
    OUTPUT,
    Force,
    KeyFile,
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
from safeswap.errors import SpecError
from safeswap.measures.spec import PlotSpec
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.measures.plot.values import ConfidentialityPlot
    from safeswap.model.microdata import Microdata

POLICY = "Policy"
CATEGORICAL = "Categorical keys"
DISTANCES = "Comparing records"


@dataclass(frozen=True, kw_only=True)
class PlotFiles:
    """The other files that the intruder may have, the records to compare, and what is written."""

    archive: Path | None = option("file that the intruder has; the original if omitted", metavar="FILE")
    only: list[str] | None = option("use only records with this value, e.g. division=18", metavar="A=VALUE")
    population: Path | None = option("file in which the keys are counted", metavar="FILE", panel=CATEGORICAL)
    output: list[Path] | None = option(
        "plot (.html, .svg, .png) or records (.csv, .parquet)", metavar="FILE", panel=OUTPUT
    )
    public: bool = option("write the public version: bins, no records", "--public", default=False, panel=OUTPUT)
    key: KeyFile = None
    force: Force = False

    def check(self, inputs: list[Path]) -> list[Path]:
        """Return the outputs, or refuse them before anything is read."""
        outputs = self.output or []
        others = [path for path in (self.archive, self.population) if path is not None]
        check_outputs(outputs, inputs=[*inputs, *others], force=self.force)
        return outputs


_SHOWN = {
    **dict.fromkeys(("r", "k", "curvature"), Shown(panel=POLICY)),
    "linkage": Shown(panel=DISTANCES, metavar="METHOD"),
    "scale": Shown(panel=DISTANCES, metavar="SCALE"),
    "distance": Shown(panel=DISTANCES, metavar="KIND"),
    "weight": Shown(panel=CATEGORICAL, metavar="NAME"),
    "sampling_fraction": Shown(panel=CATEGORICAL),
    "alpha": Shown(panel=DISTANCES),
}


@command
@spec_options(PlotSpec, shown=_SHOWN)
@request_options(PlotFiles)
@reading_options
def confidentiality(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    released: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="attributes that an intruder may know; repeat to compare several sets"),
    ] = None,
    scenario: ScenarioFile = None,
    parameters: dict[str, Any],
    options: PlotFiles,
    reading: dict[str, Any],
) -> None:
    """Show which records of a masked file are unsafe.

    Numeric keys are compared by distance: a record is unsafe if its perturbation and its number of neighbours are too
    small together. Categorical keys are counted: a record is unsafe if too few records share them. Records are matched
    by identifier or, if the files have none, by row order.
    """
    from safeswap import workflow
    from safeswap.model.scenario import resolve_files
    from safeswap.reports.plot_files import write_plot

    outputs = options.check([original, released])
    asked_by = read_scenario(scenario)
    if not keys and asked_by is None:
        raise typer.BadParameter("missing option --keys: pass --keys A,B or --scenario FILE[:NAME]")
    sets = [names([one]) for one in keys or ()] or [()]
    if outputs and len(sets) > 1:
        raise SpecError("a plot shows one set of keys", code="bad-keys", hint="give --keys once, or omit --output")
    with console.steps(3) as steps:
        steps.at("reading the files")
        before = workflow.read(original, **reading)
        after = read_masked(released, before, reading)
        asked = _read_others(options, before, reading)
        steps.at("comparing records")
        spec = PlotSpec(**parameters)
        if asked_by is not None:
            spec = spec.under(resolve_files(asked_by, before, after), keys=sets[0])
            asked |= {"scenario": asked_by}
        asked |= {**spec.options_for(before, sets[0]), "only": _parse_only(options.only or ())}
        asked |= {"key": workflow.read_key(options.key)} if options.key is not None else {}
        plots = [workflow.confidentiality(before, after, keys=chosen, **asked) for chosen in sets]
        steps.at("writing")
        for path in outputs:
            write_plot(plots[0], path, version="public" if options.public else "internal", force=options.force)
    for plot in plots:
        console.say(_describe(plot))
    if len(plots) > 1:
        console.say(_comparison_table(plots))
    console.result(
        {
            "command": "confidentiality",
            "outputs": [str(path) for path in outputs],
            "plots": [plot.as_dict() for plot in plots],
        }
    )


def _read_others(options: PlotFiles, before: Microdata, reading: dict[str, Any]) -> dict[str, Any]:
    """Read the archive and the population, where given."""
    from safeswap import workflow

    # Other files have other columns: schema and identifier do not apply to them.
    own = {name: value for name, value in reading.items() if name not in ("schema", "identifier")}
    found: dict[str, Any] = {}
    if options.archive is not None:
        identifier = before.schema.identifier
        found["archive"] = workflow.read(
            options.archive, **own, **({"identifier": identifier.name} if identifier else {})
        )
    if options.population is not None:
        found["population"] = workflow.read(options.population, **own)
    return found


def _parse_only(stated: list[str] | tuple[()]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in stated]
    if not all(name and equals for name, equals, _ in pairs):
        raise SpecError("--only takes an attribute and a value", code="bad-only", hint="write --only division=18")
    return {name: value for name, _, value in pairs} or None


def _describe(plot: ConfidentialityPlot) -> str:
    totals = plot.as_dict()
    whose = f"Scenario {plot.settings['scenario']}, keys" if "scenario" in plot.settings else "Keys"
    lines = [f"{whose} {', '.join(plot.keys)}: {plot.sentence}", plot.policy.sentence]
    if totals.get("delta") is not None:
        error = "" if plot.threshold_error is None else f", standard error {plot.threshold_error:.2g}"
        lines.append(f"Records within δ = {plot.threshold:.4g}{error} are neighbours.")
    if "rank_units" in totals:
        lines.append(
            f"Of the largest {plural(totals['rank_units'], 'unit')}, {totals['rank_links']} can be identified by rank."
        )
    return "\n".join([*lines, *plot.notes])


def _comparison_table(plots: list[ConfidentialityPlot]) -> Any:
    figures = ["unsafe", "correct_links", "links_within_neighbourhoods", "empty_neighbourhoods"]
    totals = [plot.as_dict() for plot in plots]
    rows = [[", ".join(t["keys"]), *(f"{t[name]:,}" if name in t else "–" for name in figures)] for t in totals]
    return table(["keys", "unsafe", "correct links", "in neighbourhood", "no neighbour"], rows, right="lrrrr")
