"""``safeswap mask-below``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from safeswap.cli.console import Console
from safeswap.cli.masking import ON_DISK, MaskingOptions, mask_file
from safeswap.cli.options import command, names, option, randomness, reading_options, request_options

_UNUSED = (*ON_DISK, "plan_only", "replicate")


@dataclass(frozen=True, kw_only=True)
class BelowOptions(MaskingOptions):
    """The threshold, and what may be done to get below it."""

    keys: list[str] | None = option("attributes that an intruder is assumed to know; repeatable", metavar="A,B")
    threshold: float = option("largest risk, above 0 and at most 1", default=0.2, metavar="R")
    by: Literal["suppress", "swap"] = option(
        "suppress: blank values of the keys; swap: exchange some of them", default="suppress"
    )
    swap: list[str] | None = option("with --by swap: the keys to exchange; repeatable", metavar="A,B")
    fixed: list[str] | None = option("with --by swap: attributes equal within a pair; repeatable", metavar="A,B")
    weight: str | None = option("survey weight by which risk is estimated", metavar="NAME")


@command
@request_options(BelowOptions, omit=_UNUSED)
@reading_options
def mask_below(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to mask")],
    *,
    options: BelowOptions,
    reading: dict[str, Any],
) -> None:
    """Blank or swap as little as brings every record below a threshold of risk.

    The risk of a record is one over the number of people who share its keys, or its estimate by a survey weight. With
    --by swap the records above the threshold are swapped first, until none of them has its own keys.
    """
    from safeswap import workflow
    from safeswap.workflow.thresholds import mask_below as find

    options.places()
    if not options.keys:
        raise typer.BadParameter("missing option --keys: pass --keys A,B")
    how: dict[str, Any] = {"by": options.by, "threshold": options.threshold, "weight": options.weight}
    how |= {"swap": names(options.swap or []), "fixed": names(options.fixed or [])}
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    found = find(workflow.read(file, **reading), names(options.keys), **how, **secret)
    console.say(found.sentence)
    mask_file(console, found.masked.spec, file, reading=reading, options=options)
