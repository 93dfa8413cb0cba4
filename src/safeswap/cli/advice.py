"""``safeswap advice``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import OUTPUT, Force, check_outputs, command, reading_options, spec_options
from safeswap.cli.recode import RecipeFile
from safeswap.errors import InfeasibleError
from safeswap.model.combination import Combinations

_LARGE = 100


@command
@spec_options(Combinations)
@reading_options
def advice(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file to look at")],
    *,
    parameters: dict[str, Any],
    recipe: RecipeFile = None,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="how many recodes are shown")] = 10,
    take: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", help="write the recipe with the best recode as its last step", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Rank single recodes by the unsafe combinations they remove for the information they cost.

    Say what to protect with --keys, --combinations or --levels, as for safeswap risky. With --recipe its steps are made
    first, and the advice is on the next one.
    """
    from safeswap import workflow

    check_outputs([take] if take else [], inputs=[file, *([recipe] if recipe else [])], force=force)
    asked = Combinations(**parameters)
    made = workflow.as_recipe(()) if recipe is None else workflow.read_recipe(recipe)
    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("trying recodes")
        found = workflow.advice(workflow.recode(data, made), asked, most=most)
    if take is not None:
        if not len(found):
            raise InfeasibleError(
                "no recode removes an unsafe combination" if found.unsafe else "nothing is unsafe",
                code="no-advice",
                hint="nothing was written",
            )
        workflow.write_recipe(made + found[0].step, take, force=force)
    console.say(f"{found.unsafe:,} combinations of values are unsafe; {found.tried:,} recodes were tried.")
    rows = [
        [visible(each.step.sentence), f"{each.removed:,}", f"{each.unsafe:,}", f"{each.loss:.2%}", _worth(each.worth)]
        for each in found
    ]
    if rows:
        heading = ["recode", "removes", "still unsafe", "information lost", "removed per percent lost"]
        console.say("")
        console.say(table(heading, rows, right="lrrrr"))
    if take is not None:
        console.say(f"\nWrote {visible(str(take))}; it stays inside.")
    console.result({"command": "advice", **found.as_dict(), "output": str(take) if take else None})


def _worth(value: float) -> str:
    """With as many digits as tell.

    >>> _worth(87474.1), _worth(0.1812), _worth(float("inf"))
    ('87,474', '0.18', 'at no cost')
    """
    if value == float("inf"):
        return "at no cost"
    return f"{value:,.0f}" if value >= _LARGE else f"{value:.2g}"
