"""``safeswap recode``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.masking import INSIDE, AuditDirectory, ReportFile
from safeswap.cli.options import OUTPUT, Force, KeyFile, check_outputs, command, reading_options, spec_options
from safeswap.errors import SpecError
from safeswap.model.combination import Combinations

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.recode.recipe import Recipe
    from safeswap.model.microdata import Microdata
    from safeswap.workflow.session import Stage

RecipeFile = Annotated[Path | None, typer.Option("--recipe", metavar="TOML", help="the steps, one after the other")]
GrcFiles = Annotated[
    list[str] | None, typer.Option("--grc", metavar="A=FILE", help="a recode file of ARGUS for attribute A; repeat")
]


@command
@spec_options(Combinations)
@reading_options
def recode(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file to recode")],
    *,
    recipe: RecipeFile = None,
    grc: GrcFiles = None,
    parameters: dict[str, Any],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the recoded file; it stays inside", rich_help_panel=OUTPUT)
    ] = None,
    audit: AuditDirectory = None,
    report: ReportFile = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", help="the steps with breaks written down, for next year's file", rich_help_panel=OUTPUT
        ),
    ] = None,
    write_schema: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="what the columns are after all steps", rich_help_panel=OUTPUT),
    ] = None,
    key: KeyFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Make values coarser by a recipe, and show after each step what is still unsafe.

    Say what to protect with --keys, --combinations or --levels, as for safeswap risky. With --audit and --key the
    recoded file can be released; without them it is a file that stays inside. A recipe may hold maskings by other
    methods, which need --key; mask such a file in two turns if it is to be released, the second time with the schema
    written here.
    """
    from safeswap import workflow
    from safeswap.files.schema_file import write_schema as write_description

    outputs = [path for path in (output, report, write_recipe, write_schema) if path is not None]
    inputs = [path for path in (file, recipe, key) if path is not None]
    check_outputs(outputs, inputs=inputs, force=force)
    if audit is not None and (key is None or output is None):
        raise typer.BadParameter("for a release state all of --output FILE --audit DIR --key FILE")
    if report is not None and audit is None:
        raise typer.BadParameter("a report goes with --output FILE --audit DIR --key FILE")
    steps_made = stated_recipe(recipe, grc or ())
    recodes = _recodes(steps_made) if audit is not None else []
    record: Path | None = None
    lost: tuple[str, ...] = ()
    secret = None if key is None else workflow.read_key(key)
    with console.steps(3) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("recoding")
        asked = Combinations(**parameters) if parameters else Combinations(keys=_keys(data, steps_made))
        stages = workflow.argus_session(data, asked, recipe=steps_made, key=secret).stages
        steps.at("writing")
        if write_recipe is not None:
            workflow.write_recipe(steps_made, write_recipe, data=data, force=force)
        if write_schema is not None:
            write_description(stages[-1].data.schema, write_schema, force=force)
        if audit is not None and output is not None:
            masked = workflow.mask(data, {"method": "recode", "steps": recodes}, key=secret)
            if report is not None:
                workflow.report(masked, report, force=force)
            record = workflow.keep(masked, output, audit=audit, reading=reading, source=file, force=force)
        elif output is not None:
            lost = workflow.write(stages[-1].data, output, force=force)
    for what in lost:
        console.warn(f"! the file does not keep {visible(what)}")
    console.say(stage_table(stages, risk=bool(parameters)))
    places = {"recoded file": output, "audit record": record, "report": report, "recipe": write_recipe}
    places["schema"] = write_schema
    made = {what: str(path) for what, path in places.items() if path is not None}
    if made:
        console.say("")
        console.say(table(["made", "where", ""], [(what, visible(path), INSIDE) for what, path in made.items()]))
    told = [stage.as_dict() for stage in stages]
    console.result({"command": "recode", "stages": told, "made": made})


def stated_recipe(recipe: Path | None, grc: list[str] | tuple[()]) -> Recipe:
    """The steps of the recipe file, then those of the recode files."""
    from safeswap import workflow

    found = workflow.as_recipe(()) if recipe is None else workflow.read_recipe(recipe)
    for text in grc:
        name, equals, path = text.rpartition("=")
        if not (name and equals and path):
            raise SpecError("--grc takes an attribute and a file", code="bad-grc", hint="--grc Age=age.grc")
        found = found + workflow.read_grc(path, name)
    if not len(found):
        raise SpecError("there is no step to make", code="empty-recipe", hint="state --recipe FILE or --grc A=FILE")
    return found


def stage_table(stages: tuple[Stage, ...], *, risk: bool) -> Table:
    """One line per step: what is unsafe after it, and how much information about the keys is gone."""
    rows = []
    for number, stage in enumerate(stages):
        counted = (stage.unsafe, stage.unsafe_records) if risk else ()
        figures = ["–" if each is None else f"{each:,}" for each in counted]
        rows.append([str(number) if number else "", visible(stage.sentence), *figures, f"{stage.information_loss:.2%}"])
    heading = ["", "step", *(["unsafe combinations", "unsafe records"] if risk else []), "information lost"]
    return table(heading, rows, right="rl" + "r" * (len(heading) - 2))


def _keys(data: Microdata, recipe: Recipe) -> tuple[str, ...]:
    """Where nobody says what to protect, the loss is told of the attributes that the recipe names."""
    named = dict.fromkeys(name for step in recipe for name in getattr(step, "names", ()))
    return tuple(named) or data.schema.categorical


def _recodes(recipe: Recipe) -> list[dict[str, Any]]:
    if not recipe.is_recoding:
        raise SpecError(
            "a recipe that also masks by other methods is released in two turns",
            code="not-a-recode",
            hint="write the recoded file without --audit, then mask that file with safeswap mask",
        )
    return recipe.as_dicts()
