"""``safeswap verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.options import command
from safeswap.model.text import plural


@command
def verify(
    console: Console,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="directory written by release")],
) -> None:
    """Check a published bundle.

    Needs nothing but the bundle. Checks that all files are present and match the manifest, that there are no others,
    and that no file reveals more than the released data do.
    """
    from safeswap import workflow

    with console.steps(1) as steps:
        steps.at("checking")
        found = workflow.verify(bundle)
    console.say(
        f"{visible(str(bundle))} is intact: {plural(found.records, 'record')}, {plural(found.columns, 'column')}."
    )
    for name, value in found.facts.items():
        values = value if isinstance(value, list) else [value]
        for each in values:
            console.say(visible(f"  {name.replace('_', ' ')}: {each}"))
    for remark in found.remarks:
        console.warn(f"! {remark.message}")
    console.result({"command": "verify", **found.as_dict()})
