"""``safeswap release``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, RANDOMNESS, Force, check_outputs, command, names

DOCUMENTATION = "Documentation"


@command
def release(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file, as written by swap or mask")],
    *,
    audit: Annotated[
        Path, typer.Option(metavar="DIR", help="audit directory of the masking; a record of the release is added")
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="secret key; determines the row order", rich_help_panel=RANDOMNESS)
    ],
    output: Annotated[Path, typer.Option(metavar="BUNDLE", help="directory to publish", rich_help_panel=OUTPUT)],
    data_format: Annotated[
        Literal["csv", "parquet", "dta", "sav"],
        typer.Option("--format", help="file format of the data", rich_help_panel=OUTPUT),
    ] = "csv",
    identifiers: Annotated[
        Literal["new", "none"], typer.Option(help="assign new record numbers, or none", rich_help_panel=OUTPUT)
    ] = "new",
    drop: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="columns to leave out", rich_help_panel=OUTPUT)
    ] = None,
    force: Force = False,
    title: Annotated[str, typer.Option(help="title of the data set", rich_help_panel=DOCUMENTATION)] = "",
    date: Annotated[str, typer.Option(help="date of the release", rich_help_panel=DOCUMENTATION)] = "",
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="recipe by which ORIGINAL was recoded without an audit record",
            rich_help_panel=DOCUMENTATION,
        ),
    ] = None,
    publish_rate: Annotated[
        bool,
        typer.Option(
            "--publish-rate", help="publish the share of records that took part", rich_help_panel=DOCUMENTATION
        ),
    ] = False,
    second_release: Annotated[
        str,
        typer.Option(metavar="REASON", help="reason for releasing records that were released before"),
    ] = "",
    unmasked: Annotated[
        bool, typer.Option("--unmasked", help="release the data although nothing was masked; the report says so")
    ] = False,
) -> None:
    """Verify a masked file and write the bundle for publication.

    Original, masked file and audit record are read again, and every guarantee is verified on them. The bundle holds the
    data in a secret row order, a dictionary, a report and a manifest. If any check fails, nothing is written.
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
        table(["made", "where", ""], [("bundle", output, "public"), ("record", published.audit, "confidential")])
    )
    console.result({"command": "release", **published.as_dict()})
