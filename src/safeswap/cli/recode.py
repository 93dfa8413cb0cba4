"""``safeswap recode``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, table, visible
from safeswap.cli.masking import CONFIDENTIAL, AuditDirectory, ReportFile
from safeswap.cli.options import (
    OUTPUT,
    Force,
    KeyFile,
    check_outputs,
    command,
    reading_options,
    spec_options,
    warn_of_losses,
)
from safeswap.errors import SpecError
from safeswap.model.combination import Combinations

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.recode.recipe import Recipe
    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata
    from safeswap.workflow.session import Stage

RecipeFile = Annotated[Path | None, typer.Option("--recipe", metavar="TOML", help="recipe: the steps in order")]
GrcFiles = Annotated[
    list[str] | None, typer.Option("--grc", metavar="A=FILE", help="ARGUS recode file for attribute A; repeatable")
]


@command
@spec_options(Combinations)
@reading_options
def recode(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to recode")],
    *,
    recipe: RecipeFile = None,
    grc: GrcFiles = None,
    parameters: dict[str, Any],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="recoded file (confidential)", rich_help_panel=OUTPUT)
    ] = None,
    audit: AuditDirectory = None,
    report: ReportFile = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", help="write the steps with explicit breaks, for next year's file", rich_help_panel=OUTPUT
        ),
    ] = None,
    write_schema: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="write the schema of the columns after all steps", rich_help_panel=OUTPUT),
    ] = None,
    key: KeyFile = None,
    force: Force = False,
    reading: dict[str, Any],
) -> None:
    """Coarsen values by a recipe, and show what is still unsafe after each step.

    Choose the combinations with --keys, --combinations or --levels, as for safeswap risky. With --audit and --key, the
    recoded file can be released; without them it remains internal. A recipe may include maskings by other methods,
    which need --key; to release such a file, recode first, then mask the result with the schema written here.
    """
    from safeswap import workflow
    from safeswap.files.schema_file import write_schema as write_description
    from safeswap.files.write import write_microdata
    from safeswap.projects.toml import write_recipe as write_steps
    from safeswap.workflow.masking import keep, register
    from safeswap.workflow.session import ArgusSession

    outputs = [path for path in (output, report, write_recipe, write_schema) if path is not None]
    inputs = [path for path in (file, recipe, key) if path is not None]
    check_outputs(outputs, inputs=inputs, force=force)
    if audit is not None and (key is None or output is None):
        raise typer.BadParameter("an audit record needs all of --output FILE --audit DIR --key FILE")
    if report is not None and audit is None:
        raise typer.BadParameter("a report needs all of --output FILE --audit DIR --key FILE")
    wanted = _read_recipe(recipe, grc or ())
    recodes = _require_recodes(wanted) if audit is not None else []
    record: Path | None = None
    written: Masked | Microdata | None = None
    secret = None if key is None else workflow.read_key(key)
    with console.steps(3) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("recoding")
        asked = Combinations(**parameters) if parameters else Combinations(keys=_default_keys(data, wanted))
        stages = ArgusSession.start(data, asked, recipe=wanted, key=secret).stages
        steps.at("writing")
        if write_recipe is not None:
            write_steps(wanted.pinned(data), write_recipe, force=force)
        if write_schema is not None:
            write_description(stages[-1].data.schema, write_schema, force=force)
        if audit is not None and output is not None:
            written = masked = workflow.mask(data, {"method": "recode", "steps": recodes}, key=secret)
            if report is not None:
                from safeswap.reports.masking import write_masking_report

                write_masking_report(masked, report, assessment=workflow.assess(masked), force=force)
            record = keep(masked, output, audit=audit, reading=reading, source=file, force=force)
        elif output is not None:
            written = stages[-1].data
            register(written)
            write_microdata(written, output, force=force)
    if written is not None and output is not None:
        warn_of_losses(console, written, output)
    console.say(_stage_table(stages, risk=bool(parameters)))
    places = {"recoded file": output, "audit record": record, "report": report, "recipe": write_recipe}
    places["schema"] = write_schema
    made = {what: str(path) for what, path in places.items() if path is not None}
    if made:
        console.say("")
        console.say(table(["made", "where", ""], [(what, visible(path), CONFIDENTIAL) for what, path in made.items()]))
    console.result({"command": "recode", "stages": [stage.as_dict() for stage in stages], "made": made})


def _read_recipe(recipe: Path | None, grc: list[str] | tuple[()]) -> Recipe:
    """Read the steps of the recipe file, then those of the recode files."""
    from safeswap.methods.recode.recipe import Recipe
    from safeswap.projects.argus import read_grc
    from safeswap.projects.toml import read_recipe

    found = Recipe() if recipe is None else read_recipe(recipe)
    for text in grc:
        name, equals, path = text.rpartition("=")
        if not (name and equals and path):
            raise SpecError("--grc takes an attribute and a file", code="bad-grc", hint="write --grc Age=age.grc")
        found = found + read_grc(path, name)
    if not len(found):
        raise SpecError("the recipe has no steps", code="empty-recipe", hint="pass --recipe FILE or --grc A=FILE")
    return found


def _stage_table(stages: tuple[Stage, ...], *, risk: bool) -> Table:
    """Make a table with one line per step: what is unsafe after it, and the information about the keys lost."""
    rows = []
    for number, stage in enumerate(stages):
        counted = (stage.unsafe, stage.unsafe_records) if risk else ()
        figures = ["–" if each is None else f"{each:,}" for each in counted]
        rows.append([str(number) if number else "", visible(stage.sentence), *figures, f"{stage.information_loss:.2%}"])
    heading = ["", "step", *(["unsafe combinations", "unsafe records"] if risk else []), "information lost"]
    return table(heading, rows, right="rl" + "r" * (len(heading) - 2))


def _default_keys(data: Microdata, recipe: Recipe) -> tuple[str, ...]:
    """Return the attributes that the recipe names: those whose loss is shown if no combinations were chosen."""
    named = dict.fromkeys(name for step in recipe for name in getattr(step, "names", ()))
    return tuple(named) or data.schema.categorical


def _require_recodes(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the steps, all of which must be recodes for a release."""
    if not recipe.is_recoding:
        raise SpecError(
            "a recipe with maskings by other methods cannot be released in one run",
            code="not-a-recode",
            hint="write the recoded file without --audit, then mask it with safeswap mask",
        )
    return recipe.as_dicts()
