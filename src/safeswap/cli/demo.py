"""``safeswap demo``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeswap.cli.console import Console, table
from safeswap.cli.options import OUTPUT, command
from safeswap.cli.outputs import check_outputs
from safeswap.cli.scores import figure

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.model.score import Assessment

# The rates of Gomatam, Karr & Sanil (2003), and half of the largest, which Gomatam & Karr (2003) study.
RATES = (0.01, 0.02, 0.05, 0.10)
CHOSEN = 0.05
SHOWN = ("n_rule", "share_changed", "hellinger:ways=2", "total_variation:ways=2", "adV")


@command
def demo(
    console: Console,
    output: Annotated[Path, typer.Option(metavar="DIR", help="the directory to make", rich_help_panel=OUTPUT)] = Path(
        "demo-output"
    ),
) -> None:
    """From a survey file to a release, on data that come with safeswap.

    Swaps the attribute Race of CPS-8d at several rates, measures what each does to risk and to distortion, and releases
    one of them.
    """
    from safeswap import datasets, workflow

    check_outputs([output], hint="choose another name with --output, or remove the directory")
    data = datasets.cps8d()
    inside = output / "confidential"
    with console.steps(len(RATES) + 1) as steps, _whole(output):
        inside.mkdir(mode=0o700)
        key = workflow.keygen(inside / "demo.key")
        assessments = {}
        for rate in RATES:
            steps.at(f"swapping at a rate of {rate:.0%}")
            masked = workflow.swap(data, swap=["Race"], rate=rate, key=key)
            assessments[rate] = workflow.assess(masked, measures=SHOWN)
        steps.at("releasing")
        chosen = workflow.swap(data, swap=["Race"], rate=CHOSEN, key=key)
        workflow.write(data, inside / "original.parquet")
        workflow.write(chosen, inside / "masked.parquet")
        published = workflow.release(
            chosen, output / "public", audit=inside / "audit", key=key, title="CPS-8d, swapped"
        )
    console.say(f"CPS-8d: {len(data):,} records. Race swapped between random pairs of records:\n")
    console.say(_figures(assessments))
    console.say(f"\nRisk falls and distortion rises with the rate. Released: the swap at {CHOSEN:.0%}.\n")
    places = [
        ("bundle", published.public, "may leave; see report.html, and try safeswap verify"),
        ("original, masked file", inside, "stay inside"),
        ("audit record", published.audit, "stays inside: it undoes the swap"),
        ("key", inside / "demo.key", "stays inside: it makes the swap again"),
    ]
    console.say(table(["what", "where", ""], places))
    figures = [{"rate": rate, **each.as_dict()} for rate, each in assessments.items()]
    console.result({"command": "demo", "candidates": figures, "chosen": CHOSEN, **published.as_dict()})


def _figures(assessments: dict[float, Assessment]) -> Table:
    rows = [
        (f"{rate:.0%}", *(figure(score.value) for score in assessment), "←" if rate == CHOSEN else "")
        for rate, assessment in assessments.items()
    ]
    return table(["rate", *SHOWN, ""], rows, right="r" * (1 + len(SHOWN)) + "l")


@contextmanager
def _whole(output: Path) -> Iterator[None]:
    """The directory as a whole or not at all: should anything fail, what was made of it goes."""
    output.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
