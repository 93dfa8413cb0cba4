"""``safeswap release``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, RANDOMNESS, Force, check_outputs, command, names

TOLD = "What is told about it"


@command
def release(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="the file as it was")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="the masked file that swap has written")],
    *,
    audit: Annotated[
        Path, typer.Option(metavar="DIR", help="the audit directory that swap was given; gets a record of the release")
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="the secret key; orders the rows", rich_help_panel=RANDOMNESS)
    ],
    output: Annotated[Path, typer.Option(metavar="BUNDLE", help="the directory to publish", rich_help_panel=OUTPUT)],
    data_format: Annotated[
        Literal["csv", "parquet", "dta", "sav"], typer.Option("--format", help="of the data", rich_help_panel=OUTPUT)
    ] = "csv",
    identifiers: Annotated[
        Literal["new", "none"], typer.Option(help="number the records anew, or not at all", rich_help_panel=OUTPUT)
    ] = "new",
    drop: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="columns that do not leave", rich_help_panel=OUTPUT)
    ] = None,
    force: Force = False,
    title: Annotated[str, typer.Option(help="of the data set", rich_help_panel=TOLD)] = "",
    date: Annotated[str, typer.Option(help="of the release", rich_help_panel=TOLD)] = "",
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="the recipe by which ORIGINAL was recoded without an audit record",
            rich_help_panel=TOLD,
        ),
    ] = None,
    publish_rate: Annotated[
        bool, typer.Option("--publish-rate", help="tell which share of the records took part", rich_help_panel=TOLD)
    ] = False,
    second_release: Annotated[
        str,
        typer.Option(metavar="REASON", help="why these records are released again although they were released before"),
    ] = "",
    unmasked: Annotated[
        bool, typer.Option("--unmasked", help="release the values although nothing was masked; the report says so")
    ] = False,
) -> None:
    """Verify a masked file and write the bundle that may leave the building.

    Original, masked file and audit record are read again and every promise is checked on them. The bundle holds the
    data in a secret order, a dictionary, a report and a manifest. If anything is wrong, nothing is written.
    """
    from safeswap import workflow

    check_outputs([output], inputs=[original, masked, key, audit], force=force)
    secret = workflow.read_key(key)
    with console.steps(2) as steps:
        steps.at("reading")
        masking = workflow.recall(original, masked, audit=audit, recipe=recipe)
        steps.at("verifying and writing")
        published = workflow.release(
            masking,
            output,
            audit=audit,
            key=secret,
            data_format=data_format,
            identifiers=identifiers,
            drop=names(drop or ()),
            title=title,
            date=date,
            publish_rate=publish_rate,
            second_release=second_release,
            unmasked=unmasked,
            force=force,
        )
    console.say("Verified:")
    for finding in published.findings:
        console.say(f"  ✓ {visible(finding.sentence)}")
    for remark in published.remarks:
        console.warn(f"! {remark.message}")
    for each in published.differencing:
        console.warn(f"! {each.sentence}")
    console.say("")
    console.say(
        table(["made", "where", ""], [("bundle", output, "may leave"), ("record", published.audit, "stays inside")])
    )
    console.result({"command": "release", **published.as_dict()})
