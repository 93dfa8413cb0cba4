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
from safeswap.model.text import plural

# The rates of Gomatam, Karr & Sanil (2003); every choice of one or two attributes is drawn several times at each.
RATES = (0.01, 0.02, 0.10)
REPLICATES = 12
OBJECTIVE = "cap_risk:0.0135"
TITLE = "CPS-8d, swapped"


@command
def demo(
    console: Console,
    output: Annotated[Path, typer.Option(metavar="DIR", help="directory to create", rich_help_panel=OUTPUT)] = Path(
        "demo-output"
    ),
) -> None:
    """Walk through the whole path, from survey file to release, on included data.

    Evaluates every swap of one or two attributes of CPS-8d at three rates, shows the risk–distortion frontier, chooses
    one candidate and releases it.
    """
    from safeswap import datasets, workflow
    from safeswap.files.keyfile import generate_key
    from safeswap.releases.ledger import LedgerFile
    from safeswap.workflow.masking import keep

    check_outputs([output], hint="choose another name with --output, or remove the directory")
    data = datasets.cps8d()
    inside = output / "confidential"
    with _directory(output):
        inside.mkdir(mode=0o700)
        key = generate_key(inside / "demo.key")
        with Bar(console) as bar:
            study = workflow.study(data, rates=RATES, replicates=REPLICATES, objective=OBJECTIVE, key=key, progress=bar)
        with console.steps(2) as steps:
            steps.at("writing the map and the reports")
            choice = study.choose()
            study.save(inside / "study", choice=choice, data=data)
            steps.at("releasing the chosen candidate")
            masked = workflow.mask(data, choice.spec, key=key, replicate=choice.replicate)
            ledger = LedgerFile(inside / "ledger.db")  # not the agency's ledger
            record = keep(masked, inside / "masked.parquet", audit=inside / "audit", ledger=ledger)
            published = workflow.release(
                masked,
                output / "public",
                audit=inside / "audit",
                key=key,
                title=TITLE,
                ledger=ledger,
            )
    console.say(f"CPS-8d: {plural(len(data), 'record')}, {plural(len(study), 'candidate release')}.\n")
    console.say(frontier_table(study, choice))
    console.say(f"\n{choice.sentence}\n")
    places = [
        ("report to open", inside / "study" / "report.html", "confidential: the map, the choice and the reason"),
        ("public bundle", published.public, "for publication; try safeswap verify"),
        ("masked file", inside / "masked.parquet", "confidential"),
        ("audit records", record.parent, "confidential: they undo the swap"),
        ("key", inside / "demo.key", "confidential: it reproduces the swap"),
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
def _directory(output: Path) -> Iterator[None]:
    """Create the directory, and remove it again if anything fails."""
    output.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
