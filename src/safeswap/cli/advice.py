"""``safeswap advice``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.options import (
    OUTPUT,
    Force,
    ScenarioFile,
    check_outputs,
    command,
    read_scenario,
    reading_options,
    spec_options,
)
from safeswap.cli.recode import RecipeFile
from safeswap.errors import InfeasibleError
from safeswap.model.combination import Combinations
from safeswap.model.scenario import Scenario
from safeswap.model.text import plural

_WHOLE_NUMBERS_FROM = 100


@command
@spec_options(Combinations)
@reading_options
def advice(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine")],
    *,
    parameters: dict[str, Any],
    scenario: ScenarioFile = None,
    recipe: RecipeFile = None,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="maximum number of recodes to show")] = 10,
    take: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", help="write the recipe, with the best recode added as its last step", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Rank single recodes by the unsafe combinations they remove for the information they cost.

    Choose the combinations with --keys, --combinations or --levels, or with --scenario, as for safeswap risky. With
    --recipe, its steps are applied first and the advice is about the next one.
    """
    from safeswap import workflow
    from safeswap.methods.recode.recipe import Recipe
    from safeswap.projects.toml import read_recipe, write_recipe
    from safeswap.workflow.argus import restate_scenario
    from safeswap.workflow.recode_advice import advice as rank_recodes

    check_outputs([take] if take else [], inputs=[file, *([recipe] if recipe else [])], force=force)
    stated = read_scenario(scenario)
    asked = Combinations(**parameters) if stated is None else restate_scenario(stated, None, parameters)
    made = Recipe() if recipe is None else read_recipe(recipe)
    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("trying recodes")
        found = rank_recodes(workflow.recode(data, made), asked, most=most)
    if take is not None:
        if not len(found):
            raise InfeasibleError(
                "no recode removes an unsafe combination" if found.unsafe else "there is no unsafe combination",
                code="no-advice",
                hint="nothing was written",
            )
        write_recipe(made + found[0].step, take, force=force)
    whose = f"Scenario {visible(asked.name)}: " if isinstance(asked, Scenario) else ""
    console.say(
        f"{whose}{plural(found.unsafe, 'unsafe combination')} of values; {plural(found.tried, 'recode')} tried."
    )
    rows = [
        [
            visible(each.step.sentence),
            f"{each.removed:,}",
            f"{each.unsafe:,}",
            f"{each.loss:.2%}",
            _format_worth(each.worth),
        ]
        for each in found
    ]
    if rows:
        heading = ["recode", "removes", "still unsafe", "information lost", "removed per percent lost"]
        console.say(table(heading, rows, right="lrrrr"), gap=True)
    if take is not None:
        console.say(f"\nWrote {visible(str(take))}; it is confidential.")
    console.result({"command": "advice", **found.as_dict(), "output": str(take) if take else None})


def _format_worth(value: float) -> str:
    """Format a benefit with the digits that matter.

    >>> _format_worth(87474.1), _format_worth(0.1812), _format_worth(float("inf"))
    ('87,474', '0.18', 'at no cost')
    """
    if value == float("inf"):
        return "at no cost"
    return f"{value:,.0f}" if value >= _WHOLE_NUMBERS_FROM else f"{value:.2g}"
