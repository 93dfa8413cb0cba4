"""``safeswap demo``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console, table
from safeswap.cli.options import OUTPUT, check_outputs, command
from safeswap.cli.study import Bar, frontier_rows, frontier_table

# The rates of Gomatam, Karr & Sanil (2003): every choice of one and of two attributes at each, drawn several times.
RATES = (0.01, 0.02, 0.10)
REPLICATES = 12
OBJECTIVE = "cap_risk:0.0135"
TITLE = "CPS-8d, swapped"


@command
def demo(
    console: Console,
    output: Annotated[Path, typer.Option(metavar="DIR", help="the directory to make", rich_help_panel=OUTPUT)] = Path(
        "demo-output"
    ),
) -> None:
    """From a survey file to a release, on data that come with safeswap.

    Tries every swap of one or two attributes of CPS-8d at three rates, shows the frontier of risk and distortion,
    chooses one candidate and releases it.
    """
    from safeswap import datasets, workflow
    from safeswap.releases.ledger import LedgerFile

    check_outputs([output], hint="choose another name with --output, or remove the directory")
    data = datasets.cps8d()
    inside = output / "confidential"
    with _whole(output):
        inside.mkdir(mode=0o700)
        key = workflow.keygen(inside / "demo.key")
        with Bar(console) as bar:
            study = workflow.study(data, rates=RATES, replicates=REPLICATES, objective=OBJECTIVE, key=key, progress=bar)
        with console.steps(2) as steps:
            steps.at("drawing the map and writing the reports")
            choice = study.choose()
            workflow.save_study(study, inside / "study", choice=choice, data=data)
            steps.at("releasing the chosen candidate")
            masked = workflow.mask(data, choice.spec, key=key, replicate=choice.replicate)
            record = workflow.keep(masked, inside / "masked.parquet", audit=inside / "audit")
            published = workflow.release(
                masked,
                output / "public",
                audit=inside / "audit",
                key=key,
                title=TITLE,
                ledger=LedgerFile(inside / "ledger.db"),  # a demonstration is no release of the agency
            )
    console.say(f"CPS-8d: {len(data):,} records, {len(study):,} candidate releases.\n")
    console.say(frontier_table(study, choice))
    console.say(f"\n{choice.sentence}\n")
    places = [
        ("report to open", inside / "study" / "report.html", "stays inside: the map, the choice and why"),
        ("public bundle", published.public, "may leave; try safeswap verify"),
        ("masked file", inside / "masked.parquet", "stays inside"),
        ("audit records", record.parent, "stay inside: they undo the swap"),
        ("key", inside / "demo.key", "stays inside: it makes the swap again"),
    ]
    console.say(table(["what", "where", ""], places))
    console.result(
        {
            "command": "demo",
            "candidates": len(study),
            "frontier": frontier_rows(study),
            "choice": choice.as_dict(),
            **published.as_dict(),
        }
    )


@contextmanager
def _whole(output: Path) -> Iterator[None]:
    """The directory as a whole or not at all: should anything fail, what was made of it goes."""
    output.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
