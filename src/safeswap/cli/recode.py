"""``safeswap recode`` and ``advice``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, escape, table
from safeswap.cli.mask import CONFIDENTIAL, AuditDirectory, ReportFile
from safeswap.cli.options import (
    OUTPUT,
    Force,
    KeyFile,
    ScenarioFile,
    check_outputs,
    command,
    option,
    read_scenario,
    reading_options,
    request_options,
    spec_options,
    warn_of_losses,
)
from safeswap.errors import InfeasibleError, SpecError
from safeswap.model.combination import Combinations
from safeswap.model.scenario import Scenario
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.methods.recode.recipe import Recipe
    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata
    from safeswap.workflow.recode_advice import AdviceList
    from safeswap.workflow.session import Stage

RecipeFile = Annotated[Path | None, typer.Option("--recipe", metavar="TOML", help="recipe: the steps in order")]


@dataclass(frozen=True, kw_only=True)
class RecodeFiles:
    """The steps, and the files to write."""

    recipe: RecipeFile = None
    scenario: ScenarioFile = None
    grc: list[str] | None = option("ARGUS recode file for attribute A; repeatable", metavar="A=FILE")
    output: Path | None = option("recoded file (confidential)", metavar="FILE", panel=OUTPUT)
    audit: AuditDirectory = None
    report: ReportFile = None
    write_recipe: Path | None = option(
        "write the steps with explicit breaks, for next year's file", metavar="TOML", panel=OUTPUT
    )
    write_schema: Path | None = option("write the schema of the columns after all steps", metavar="TOML", panel=OUTPUT)
    key: KeyFile = None
    force: Force = False

    def check(self, file: Path) -> None:
        """Refuse outputs, and options that do not go together, before anything is read."""
        outputs = (self.output, self.report, self.write_recipe, self.write_schema)
        inputs = (file, self.recipe, self.key)
        check_outputs([each for each in outputs if each], inputs=[each for each in inputs if each], force=self.force)
        if self.audit is not None and (self.key is None or self.output is None):
            raise typer.BadParameter("an audit record needs all of --output FILE --audit DIR --key FILE")
        if self.report is not None and self.audit is None:
            raise typer.BadParameter("a report needs all of --output FILE --audit DIR --key FILE")

    def list_written(self, record: Path | None) -> dict[str, str]:
        """Return what was written, and where."""
        places = {"recoded file": self.output, "audit record": record, "report": self.report}
        places |= {"recipe": self.write_recipe, "schema": self.write_schema}
        return {what: str(path) for what, path in places.items() if path is not None}


@command
@spec_options(Combinations)
@request_options(RecodeFiles)
@reading_options
def recode(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to recode")],
    *,
    parameters: dict[str, Any],
    options: RecodeFiles,
    reading: dict[str, Any],
) -> None:
    """Coarsen values by a recipe, and show what is still unsafe after each step.

    Choose the combinations with --scenario, --keys, --combinations or --levels, as for safeswap risky. With --audit
    and --key, the recoded file can be released; without them it remains internal. A recipe may include maskings by
    other methods, which need --key; to release such a file, recode first, then mask the result with the schema written
    here.
    """
    from safeswap import workflow
    from safeswap.workflow.session import ArgusSession

    options.check(file)
    wanted = _read_recipe(options.recipe, options.grc or ())
    scenario = read_scenario(options.scenario)
    if scenario is not None and parameters:
        raise typer.BadParameter("a scenario states the combinations: omit --" + next(iter(parameters)) + " out")
    recodes = _require_recodes(wanted) if options.audit is not None else []
    secret = None if options.key is None else workflow.read_key(options.key)
    with console.steps(3) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("recoding")
        stated = Combinations(**parameters) if parameters else scenario
        asked = Combinations(keys=_default_keys(data, wanted)) if stated is None else stated
        stages = ArgusSession.start(data, asked, recipe=wanted, key=secret).stages
        steps.at("writing")
        _write_description(wanted, data, stages[-1].data, options)
        recoded: Masked | Microdata = stages[-1].data
        if recodes:
            recoded = workflow.mask(data, {"method": "recode", "steps": recodes}, key=secret)
        record = _write_recoded(recoded, file, reading, options, scenario)
    if options.output is not None:
        warn_of_losses(console, recoded, options.output)
    if scenario is not None:
        console.say(f"Scenario {escape(scenario.name)}, keys {escape(list_names(scenario.names))}:")
    console.say(_stage_table(stages, risk=stated is not None))
    if made := options.list_written(record):
        console.say_places(*((what, path, CONFIDENTIAL) for what, path in made.items()))
    told = {"scenario": scenario.name} if scenario is not None else {}
    console.result({"command": "recode", **told, "stages": [stage.as_dict() for stage in stages], "made": made})


def _write_description(recipe: Recipe, before: Microdata, after: Microdata, options: RecodeFiles) -> None:
    """Write the steps and the schema if requested."""
    from safeswap.files.schema_file import write_schema
    from safeswap.projects.toml import write_recipe

    if options.write_recipe is not None:
        write_recipe(recipe.pinned(before), options.write_recipe, force=options.force)
    if options.write_schema is not None:
        write_schema(after.schema, options.write_schema, force=options.force)


def _write_recoded(
    recoded: Masked | Microdata, file: Path, reading: dict[str, Any], options: RecodeFiles, scenario: Scenario | None
) -> Path | None:
    """Write the recoded file, and of a masking the report and the audit record; return the place of the record."""
    from safeswap import workflow
    from safeswap.files.write import write_microdata
    from safeswap.model.masked import Masked
    from safeswap.workflow.masking import keep, register

    if options.output is None:
        return None
    if not isinstance(recoded, Masked) or options.audit is None:
        register(recoded)
        write_microdata(recoded, options.output, force=options.force)
        return None
    if options.report is not None:
        from safeswap.reports.masking import write_masking_report

        assessment = workflow.assess(recoded, scenario=scenario)
        write_masking_report(recoded, options.report, assessment=assessment, force=options.force)
    return keep(recoded, options.output, audit=options.audit, reading=reading, source=file, force=options.force)


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
        rows.append([str(number) if number else "", escape(stage.sentence), *figures, f"{stage.information_loss:.2%}"])
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


_WHOLE_NUMBERS_FROM = 100


@dataclass(frozen=True, kw_only=True)
class AdviceOptions:
    """The steps before, the number of recodes to show, and the recipe to write."""

    scenario: ScenarioFile = None
    recipe: RecipeFile = None
    most: int = option("maximum number of recodes to show", default=10, min=1, metavar="N")
    take: Path | None = option(
        "write the recipe, with the best recode added as its last step", metavar="TOML", panel=OUTPUT
    )
    force: Force = False


@command
@spec_options(Combinations)
@request_options(AdviceOptions)
@reading_options
def advice(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to examine")],
    *,
    parameters: dict[str, Any],
    options: AdviceOptions,
    reading: dict[str, Any],
) -> None:
    """Rank single recodes by the unsafe combinations they remove for the information they cost.

    Choose the combinations with --keys, --combinations or --levels, or with --scenario, as for safeswap risky. With
    --recipe, its steps are applied first and the advice is about the next one.
    """
    from safeswap import workflow
    from safeswap.methods.recode.recipe import Recipe
    from safeswap.projects.toml import read_recipe, write_recipe
    from safeswap.workflow.recode_advice import advice as rank_recodes
    from safeswap.workflow.risks import restate_scenario

    recipe, take = options.recipe, options.take
    check_outputs([take] if take else [], inputs=[file, *([recipe] if recipe else [])], force=options.force)
    stated = read_scenario(options.scenario)
    asked = Combinations(**parameters) if stated is None else restate_scenario(stated, None, parameters)
    made = Recipe() if recipe is None else read_recipe(recipe)
    with console.steps(2) as steps:
        steps.at("reading")
        data = workflow.read(file, **reading)
        steps.at("trying recodes")
        found = rank_recodes(workflow.recode(data, made), asked, most=options.most)
    if take is not None:
        if not len(found):
            raise InfeasibleError(
                "no recode removes an unsafe combination" if found.unsafe else "there is no unsafe combination",
                code="no-advice",
                hint="nothing was written",
            )
        write_recipe(made + found[0].step, take, force=options.force)
    whose = f"Scenario {escape(asked.name)}: " if isinstance(asked, Scenario) else ""
    console.say(
        f"{whose}{plural(found.unsafe, 'unsafe combination')} of values; {plural(found.tried, 'recode')} tried."
    )
    if len(found):
        console.say(_advice_table(found), gap=True)
    if take is not None:
        console.say(f"\nWrote {escape(str(take))}; it is confidential.")
    console.result({"command": "advice", **found.as_dict(), "output": str(take) if take else None})


def _advice_table(found: AdviceList) -> Table:
    rows = [
        [
            escape(each.step.sentence),
            f"{each.removed:,}",
            f"{each.unsafe:,}",
            f"{each.loss:.2%}",
            _format_worth(each.worth),
        ]
        for each in found
    ]
    heading = ["recode", "removes", "still unsafe", "information lost", "removed per percent lost"]
    return table(heading, rows, right="lrrrr")


def _format_worth(value: float) -> str:
    """Format a benefit with the digits that matter.

    >>> _format_worth(87474.1), _format_worth(0.1812), _format_worth(float("inf"))
    ('87,474', '0.18', 'at no cost')
    """
    if value == float("inf"):
        return "at no cost"
    return f"{value:,.0f}" if value >= _WHOLE_NUMBERS_FROM else f"{value:.2g}"
