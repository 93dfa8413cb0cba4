"""``safeswap release``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, RANDOMNESS, Force, Shown, check_outputs, command, spec_options
from safeswap.releases.spec import ReleaseSpec

CONSENT = "Exceptions to confirm"
DOCUMENTATION = "Documentation"


_SHOWN = {
    "data_format": Shown(flag="--format", panel=OUTPUT),
    **dict.fromkeys(("identifiers", "drop"), Shown(panel=OUTPUT)),
    **dict.fromkeys(("title", "date"), Shown(panel=DOCUMENTATION)),
    "publish_rate": Shown(flag="--publish-rate", panel=DOCUMENTATION),
    "second_release": Shown(panel=CONSENT, metavar="REASON"),
    "unmasked": Shown(flag="--unmasked", panel=CONSENT),
}


@command
@spec_options(ReleaseSpec, shown=_SHOWN)
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
    force: Force = False,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="recipe by which ORIGINAL was recoded without an audit record",
            rich_help_panel=DOCUMENTATION,
        ),
    ] = None,
    parameters: dict[str, Any],
) -> None:
    """Verify a masked file and write the bundle for publication.

    Original, masked file and audit record are read again, and every guarantee is verified on them. The bundle holds the
    data in a secret row order, a dictionary, a report and a manifest. If any check fails, nothing is written.
    """
    from safeswap import workflow
    from safeswap.workflow.masking import recall

    check_outputs([output], inputs=[original, masked, key, audit], force=force)
    secret = workflow.read_key(key)
    with console.steps(2) as steps:
        steps.at("reading")
        masking = recall(original, masked, audit=audit, recipe=recipe)
        steps.at("verifying and writing")
        terms = ReleaseSpec(**parameters).model_dump()
        published = workflow.release(masking, output, audit=audit, key=secret, force=force, **terms)
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
