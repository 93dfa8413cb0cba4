"""``safeswap confidentiality``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.assess import read_masked
from safeswap.cli.console import Console, table
from safeswap.cli.options import OUTPUT, Force, KeyFile, check_outputs, command, names, reading_options
from safeswap.errors import SpecError
from safeswap.model.text import several

if TYPE_CHECKING:
    from safeswap.measures.plot.values import ConfidentialityPlot

POLICY = "Policy"
CATEGORICAL = "Categorical keys"


@command
@reading_options
def confidentiality(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    released: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    keys: Annotated[
        list[str],
        typer.Option(metavar="A,B", help="attributes that an intruder may know; repeat to compare several sets"),
    ],
    linkage: Annotated[
        str, typer.Option(metavar="METHOD", help="auto, distance, fellegi_sunter (needs splink) or frequency")
    ] = "auto",
    alpha: Annotated[
        float | None, typer.Option(help="share of non-matching pairs that count as near (default: 0.05)")
    ] = None,
    scale: Annotated[str | None, typer.Option(metavar="SCALE", help="log (default), asinh or linear")] = None,
    distance: Annotated[
        str | None, typer.Option(metavar="KIND", help="relative (default), standardised or mahalanobis")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file that the intruder has; the original if omitted")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="A=VALUE", help="use only records with this value, e.g. division=18")
    ] = None,
    r: Annotated[
        float, typer.Option(help="perturbation that is safe without neighbours", rich_help_panel=POLICY)
    ] = 0.15,
    k: Annotated[
        float | None,
        typer.Option(
            help="neighbours (15), or frequency (3), that are safe without perturbation", rich_help_panel=POLICY
        ),
    ] = None,
    curvature: Annotated[
        float,
        typer.Option(
            help="0: straight line; above: bent to the origin; below: away",
            rich_help_panel=POLICY,
        ),
    ] = 0.0,
    population: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="file in which the keys are counted", rich_help_panel=CATEGORICAL),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="NAME", help="survey weight to sum", rich_help_panel=CATEGORICAL)
    ] = None,
    sampling_fraction: Annotated[
        float | None, typer.Option(help="share of the population in the file", rich_help_panel=CATEGORICAL)
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="plot (.html, .svg, .png) or records (.csv, .parquet)", rich_help_panel=OUTPUT
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="write the public version: bins, no records", rich_help_panel=OUTPUT)
    ] = False,
    key: KeyFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Show which records of a masked file are unsafe.

    Numeric keys are compared by distance: a record is unsafe if its perturbation and its number of neighbours are too
    small together. Categorical keys are counted: a record is unsafe if too few records share them. Records are matched
    by identifier or, if the files have none, by row order.
    """
    from safeswap import workflow
    from safeswap.measures.plot.values import Policy

    outputs = output or []
    inputs = [path for path in (original, released, archive, population) if path is not None]
    check_outputs(outputs, inputs=inputs, force=force)
    sets = [names([one]) for one in keys]
    if outputs and len(sets) > 1:
        raise SpecError("a plot shows one set of keys", code="bad-keys", hint="give --keys once, or omit --output")
    stated = {"alpha": alpha, "scale": scale, "distance": distance, "weight": weight}
    options: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    options |= {} if sampling_fraction is None else {"sampling_fraction": sampling_fraction}
    with console.steps(3) as steps:
        steps.at("reading the files")
        before = workflow.read(original, **reading)
        after = read_masked(released, before, reading)
        # Other files have other columns: schema and identifier do not apply to them.
        own = {name: value for name, value in reading.items() if name not in ("schema", "identifier")}
        if archive is not None:
            identifier = before.schema.identifier
            options["archive"] = workflow.read(
                archive, **own, **({"identifier": identifier.name} if identifier else {})
            )
        if population is not None:
            options["population"] = workflow.read(population, **own)
        steps.at("comparing records")
        if linkage == "frequency" or (linkage == "auto" and all(before.schema[n].kind.is_categorical for n in sets[0])):
            options |= {} if k is None else {"k": k}
        else:
            options["policy"] = Policy(r=r, k=15.0 if k is None else k, curvature=curvature)
        options |= {"linkage": linkage, "only": _parse_only(only or ())}
        options |= {"key": workflow.read_key(key)} if key is not None else {}
        plots = [workflow.confidentiality(before, after, keys=chosen, **options) for chosen in sets]
        steps.at("writing")
        for path in outputs:
            version = "public" if public else "internal"
            workflow.write_confidentiality(plots[0], path, version=version, force=force)  # type: ignore[arg-type]
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


def _parse_only(stated: list[str] | tuple[()]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in stated]
    if not all(name and equals for name, equals, _ in pairs):
        raise SpecError("--only takes an attribute and a value", code="bad-only", hint="write --only division=18")
    return {name: value for name, _, value in pairs} or None


def _describe(plot: ConfidentialityPlot) -> str:
    totals = plot.as_dict()
    lines = [f"Keys {', '.join(plot.keys)}: {plot.sentence}", plot.policy.sentence]
    if totals.get("delta") is not None:
        error = "" if plot.threshold_error is None else f", standard error {plot.threshold_error:.2g}"
        lines.append(f"Records within δ = {plot.threshold:.4g}{error} are neighbours.")
    if "rank_units" in totals:
        lines.append(
            f"Of the largest {several(totals['rank_units'], 'unit')}, {totals['rank_links']} can be identified by rank."
        )
    return "\n".join([*lines, *plot.notes])


def _comparison_table(plots: list[ConfidentialityPlot]) -> Any:
    figures = ["unsafe", "correct_links", "links_within_neighbourhoods", "empty_neighbourhoods"]
    totals = [plot.as_dict() for plot in plots]
    rows = [[", ".join(t["keys"]), *(f"{t[name]:,}" if name in t else "–" for name in figures)] for t in totals]
    return table(["keys", "unsafe", "correct links", "in neighbourhood", "no neighbour"], rows, right="lrrrr")
