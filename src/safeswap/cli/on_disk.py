"""``--engine`` of ``swap`` and ``mask``: a Parquet file masked on disk instead of being read as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table
from safeswap.cli.options import check_outputs, randomness
from safeswap.cli.scores import say_left_out, score_table
from safeswap.model.text import several

if TYPE_CHECKING:
    from safeswap.model.masked import MaskedFile
    from safeswap.model.spec import MaskSpec

ON_DISK = "Large files"
_UNDERSTOOD = ("schema", "identifier")

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="mask a Parquet file, or a directory of them, on disk: memory (holds the columns that play a part), "
        "duckdb (within --memory-limit) or spark",
        rich_help_panel=ON_DISK,
    ),
]
MemoryLimit = Annotated[
    str,
    typer.Option("--memory-limit", metavar="SIZE", help="how much memory duckdb may take", rich_help_panel=ON_DISK),
]


def mask_on_disk(
    console: Console,
    spec: MaskSpec,
    file: Path,
    *,
    engine: str,
    memory_limit: str,
    output: Path | None,
    audit: Path | None,
    force: bool,
    reading: dict[str, Any],
    key: Path | None,
    insecure_seed: int | None,
    replicate: int,
    scores: bool,
) -> None:
    """Mask, verify, measure and keep, without reading the whole file."""
    from safeswap import registry, workflow

    if output is None or audit is None:
        raise typer.BadParameter("say where the results go: --output FILE --audit DIR")
    foreign = [name for name in reading if name not in _UNDERSTOOD]
    if foreign:
        option = "--" + foreign[0].replace("_", "-")
        raise typer.BadParameter(f"{option} is for files that are read as a whole: leave it out, or --engine")
    check_outputs([output], inputs=[file, *([key] if key else [])], force=force)
    secret = randomness(key=key, insecure_seed=insecure_seed)
    with console.steps(1) as steps:
        steps.at("masking on disk")
        masked = workflow.mask_file(
            file,
            output,
            spec,
            audit=audit,
            engine=engine,
            memory_limit=memory_limit,
            replicate=replicate,
            force=force,
            measures=registry.default_measures("categories", by_counts=True) if scores else (),
            **secret,
            **reading,
        )
    _tell(console, masked)
    measured = masked.assessment.as_dict() if masked.assessment is not None else {}
    where = {"output": str(output), "audit": str(masked.audit)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def _tell(console: Console, masked: MaskedFile) -> None:
    from safeswap.cli.masking import INSIDE
    from safeswap.model.audit import told

    asked = "" if masked.made == masked.asked else f" of {masked.asked:,} asked for"
    console.say(
        f"{several(masked.made, 'pair')} exchanged{asked} in {several(masked.records, 'record')}; "
        "every promise was checked on disk."
    )
    facts = [(name.replace("_", " "), told(value)) for name, value in masked.facts.items() if told(value)]
    if facts:
        console.say("")
        console.say(table(["found", ""], facts, right="lr"))
    if masked.stamp:
        console.warn(f"{masked.stamp}: anyone can undo it.")
    if masked.assessment is not None:
        console.say("")
        console.say(score_table(masked.assessment, brief=True))
        say_left_out(console, masked.assessment)
    console.say("")
    made = [("masked file", masked.target, INSIDE), ("audit record", masked.audit, INSIDE)]
    console.say(table(["made", "where", ""], made))
