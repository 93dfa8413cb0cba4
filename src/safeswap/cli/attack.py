"""``safeswap attack``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.options import ScenarioFile, command, names, option, read_scenario, reading_options, request_options
from safeswap.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.attacks.base import Attacked


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """What to try, and what the intruder and the agency have."""

    attack: list[str] | None = option("attack to try, e.g. linkage; repeatable; all if omitted", metavar="NAME")
    scenario: ScenarioFile = None
    quick: bool = option("only the quick attacks, those of every release", "--quick", default=False)
    audit: Path | None = option("audit directory of the masking, or audit record of a bundle", metavar="DIR")
    control: Path | None = option("records that were held out before masking", metavar="FILE")
    rules: Path | None = option("JSON list of combinations that cannot be", metavar="JSON")
    tables: list[str] | None = option("attributes of a published table; repeatable", metavar="A,B")
    tolerance: int = option("published counts below this are withheld", default=3, metavar="N")
    earlier: list[Path] | None = option(
        "masked file of the same records released before; repeatable; default: those in the ledger", metavar="FILE"
    )
    policy: Path | None = option("largest advantage allowed by attack; above it the command fails", metavar="TOML")


@command
@request_options(AttackOptions)
@reading_options
def attack(
    console: Console,
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file, or the directory of a bundle")],
    original: Annotated[
        Path | None, typer.Argument(metavar="ORIGINAL", help="original file; without it few attacks can be judged")
    ] = None,
    *,
    options: AttackOptions,
    reading: dict[str, Any],
) -> None:
    """Attack a masked file or a bundle as an intruder would.

    Every attack shows its success, a baseline (control records or blind guessing), and the advantage over it with an
    interval at 95%. Attacks that lack something are listed with the reason.
    """
    from safeswap import workflow
    from safeswap.attacks.run import read_policy, refuse_above
    from safeswap.workflow.attacking import attack as run

    policy = None if options.policy is None else read_policy(options.policy)
    with console.steps(2) as steps:
        steps.at("reading")
        subject, known, record = _read(masked, original, options.audit, reading)
        steps.at("attacking")
        found = run(
            subject,
            known,
            scenario=read_scenario(options.scenario),
            attacks=names(options.attack) if options.attack else None,
            full=not options.quick,
            control=None if options.control is None else workflow.read(options.control, **reading),
            rules=_read_rules(options.rules),
            tables=[names([table]) for table in options.tables or ()],
            tolerance=options.tolerance,
            earlier=None if options.earlier is None else [workflow.read(path, **reading) for path in options.earlier],
            audit=record,
        )
    console.say(attack_table(found))
    for each in found.skipped:
        console.say(f"Not tried: {each.attack}: {visible(each.reason)}.")
    if policy is not None:
        refuse_above(policy.judge(found))
    console.result({"command": "attack", **found.as_dict()})


def _read(masked: Path, original: Path | None, audit: Path | None, reading: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return what is attacked, the original, and the audit record that matches the two."""
    from safeswap import workflow
    from safeswap.files.manifest import MANIFEST
    from safeswap.workflow.masking import recall

    if (masked / MANIFEST).is_file():
        return masked, None if original is None else workflow.read(original, **reading), audit
    if original is not None and audit is not None:
        return recall(original, masked, audit=audit), None, None
    return workflow.read(masked, **reading), None if original is None else workflow.read(original, **reading), None


def _read_rules(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    try:
        rules = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        rules = None
    if not isinstance(rules, list):
        raise InputError(
            f"the rules in {path.name!r} cannot be read",
            code="bad-rule",
            hint='write a JSON list such as [{"age": {"max": 15}, "civil": ["married"]}]',
            file=str(path),
        )
    return rules


def attack_table(found: Attacked) -> Table:
    """Return the outcomes as a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("attack", "success", "baseline", "advantage", "at 95%", "what it shows"):
        table.add_column(name, justify="left" if name in ("attack", "what it shows") else "right")
    for each in found:
        low, high = each.interval
        shares = (f"{each.success:.1%}", f"{each.baseline:.1%}", f"{each.advantage:.1%}", f"{low:.1%} to {high:.1%}")
        table.add_row(each.attack, *shares, visible(each.sentence + (f" ({each.note})" if each.note else "")))
    return table
