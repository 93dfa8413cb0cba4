"""``safeswap mask``, ``swap`` and ``mask-below``, and the masking run that they share with ``safe records``.

One file in, masked file and audit record out. ``mask`` has one command per registered method, with options derived from
the method's specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_command

from safeswap.cli.app import HELP, Command, Group
from safeswap.cli.console import Console, as_options, say_left_out, score_table, table
from safeswap.cli.options import (
    OUTPUT,
    RANDOMNESS,
    Force,
    InsecureSeed,
    KeyFile,
    check_outputs,
    command,
    make_group,
    names,
    option,
    randomness,
    read_scenario,
    read_scenarios,
    reading_options,
    request_options,
    spec_options,
    warn_of_losses,
)
from safeswap.model.spec import SwapSpec
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.model.masked import Masked, MaskedFile
    from safeswap.model.microdata import Microdata
    from safeswap.model.scenario import Scenario
    from safeswap.model.score import Assessment
    from safeswap.model.spec import MaskSpec, Plan, Relaxation

CONFIDENTIAL = "confidential"
LARGE_FILES = "Large files"
HOUSEHOLDS = "Household file and person file"

AuditDirectory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="directory for the confidential audit records", rich_help_panel=OUTPUT),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="HTML", help="report on the masking (confidential)", rich_help_panel=OUTPUT),
]
OriginalHouseholds = Annotated[
    Path | None,
    typer.Option(
        "--households",
        metavar="FILE",
        help="original file of households, if two files were masked",
        rich_help_panel=HOUSEHOLDS,
    ),
]
MaskedHouseholds = Annotated[
    Path | None,
    typer.Option("--masked-households", metavar="FILE", help="masked file of households", rich_help_panel=HOUSEHOLDS),
]
# Reading options that also apply to a file masked on disk; a Parquet file has no delimiter, encoding or quotes.
_READ_ON_DISK = ("schema", "identifier")


@dataclass(frozen=True, kw_only=True)
class HouseholdFiles:
    """The files of households that belong to an original and a masked person file, which the audit record joins."""

    households: OriginalHouseholds = None
    masked_households: MaskedHouseholds = None

    def require_both(self) -> tuple[Path, ...]:
        """Return both files, or neither; refuse one without the other."""
        found = tuple(path for path in (self.households, self.masked_households) if path is not None)
        if len(found) == 1:
            raise typer.BadParameter("--households and --masked-households belong together")
        return found


@dataclass(frozen=True, kw_only=True)
class JoinedFiles(HouseholdFiles):
    """The files of households of two person files that no audit record describes."""

    on: str | None = option("number of the household, a column of both files", metavar="A", panel=HOUSEHOLDS)

    def check_on(self) -> None:
        """Refuse a number of the household where there is no household to join."""
        if self.on is not None and self.households is None and self.masked_households is None:
            raise typer.BadParameter("--on belongs to --households and --masked-households")

    def join(self, persons: Microdata, households: Path | None) -> Microdata:
        """Return the persons with the attributes of their households, if these have a file."""
        from safeswap import workflow
        from safeswap.workflow.households import merge_households

        return persons if households is None else merge_households(workflow.read(households), persons, on=self.on)


@dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Options of a masking run, apart from file, method and how the file is read."""

    plan_only: bool = option("only check feasibility; needs no key and writes nothing", "--plan-only", default=False)
    scores: bool = option("measure the risk and distortion of the result", default=True)
    measure: list[str] | None = option("measure instead of the default ones; repeatable", metavar="NAME")
    scenario: str | None = option(
        "scenario that states the keys, or all scenarios of a file: every risk figure names its own",
        metavar="FILE[:NAME]",
    )
    key: KeyFile = None
    insecure_seed: InsecureSeed = None
    replicate: int = option(
        "number of the draw from the key: 0, or the one that a study chose",
        default=0,
        min=0,
        metavar="N",
        panel=RANDOMNESS,
    )
    output: Path | None = option("masked file (confidential)", metavar="FILE", panel=OUTPUT)
    audit: AuditDirectory = None
    report: ReportFile = None
    force: Force = False
    households: Path | None = option(
        "file of households that belongs to the person file FILE: both are masked in one job",
        metavar="FILE",
        panel=HOUSEHOLDS,
    )
    on: str | None = option("number of the household, a column of both files", metavar="A", panel=HOUSEHOLDS)
    household_schema: Path | None = option("schema of the file of households", metavar="TOML", panel=HOUSEHOLDS)
    household_output: Path | None = option("masked file of households (confidential)", metavar="FILE", panel=OUTPUT)
    engine: str | None = option(
        "mask a Parquet file, or a directory of them, on disk: memory (holds the columns involved), "
        "duckdb (within --memory-limit) or spark",
        metavar="NAME",
        panel=LARGE_FILES,
    )
    memory_limit: str = option("memory that duckdb may use", default="1GB", metavar="SIZE", panel=LARGE_FILES)

    def check_households(self) -> None:
        """Refuse options of two files without the second, and two files that would not both be written."""
        stated = (self.on, self.household_schema, self.household_output)
        if self.households is None and any(each is not None for each in stated):
            raise typer.BadParameter("--on, --household-schema and --household-output belong to --households FILE")
        if self.households is not None and self.engine is not None:
            raise typer.BadParameter("two files are merged in memory: omit --engine, or merge them first")
        if self.households is not None and self.household_output is None and not self.plan_only:
            raise typer.BadParameter("missing output: pass --household-output FILE")

    def read(self, file: Path, reading: dict[str, Any]) -> Microdata:
        """Read the file, with its file of households if there is one."""
        from safeswap import workflow
        from safeswap.workflow.households import merge_households

        data, homes = workflow.read(file, **reading), self.read_households()
        return data if homes is None else merge_households(homes, data, on=self.on)

    def read_households(self) -> Microdata | None:
        """Read the file of households, if there is one."""
        from safeswap import workflow

        return None if self.households is None else workflow.read(self.households, schema=self.household_schema)

    def places(self) -> tuple[Path, Path]:
        """Return output and audit directory, both of which a run needs."""
        if self.output is None or self.audit is None:
            raise typer.BadParameter("missing output: pass --output FILE and --audit DIR")
        return self.output, self.audit


ON_DISK = ("engine", "memory_limit")
"""The options for files that are masked on disk."""


def mask_by(
    console: Console,
    spec_type: type[MaskSpec],
    file: Path,
    *,
    parameters: dict[str, Any],
    reading: dict[str, Any],
    options: MaskingOptions,
) -> None:
    """Mask by the parameters of a specification; one that takes a scenario takes that of the figures.

    Without a scenario for the figures, they are those of the scenario by which records are targeted.
    """
    if options.scenario is not None and "scenario" in spec_type.model_fields:
        parameters = {**parameters, "scenario": read_scenario(options.scenario)}
    target = parameters.get("targeting")
    default = target.get("scenario") if isinstance(target, dict) else None
    spec = spec_type(**parameters)
    mask_file(console, spec, file, reading=reading, options=options, scenarios=[default] if default else [])


def mask_file(
    console: Console,
    spec: MaskSpec,
    file: Path,
    *,
    reading: dict[str, Any],
    options: MaskingOptions,
    scenarios: Sequence[Scenario] = (),
) -> None:
    """Plan the masking, or mask, measure and keep the result; ``scenarios`` are those that no option states."""
    options.check_households()
    scenarios = scenarios if options.scenario is None else read_scenarios(options.scenario)
    if options.engine is not None:
        _mask_on_disk(console, spec, file, scenarios, reading=reading, options=options)
    elif options.plan_only:
        _plan(console, spec, file, reading=reading, options=options)
    else:
        _mask_in_memory(console, spec, file, scenarios, reading=reading, options=options)


def _plan(console: Console, spec: MaskSpec, file: Path, *, reading: dict[str, Any], options: MaskingOptions) -> None:
    from safeswap import workflow

    with console.steps(2) as steps:
        steps.at("reading")
        data = options.read(file, reading)
        steps.at("planning")
        plan = workflow.plan(data, spec)
    _show_plan(console, plan)


def _mask_in_memory(
    console: Console,
    spec: MaskSpec,
    file: Path,
    scenarios: Sequence[Scenario],
    *,
    reading: dict[str, Any],
    options: MaskingOptions,
) -> None:
    from safeswap import workflow
    from safeswap.workflow.households import split_masked
    from safeswap.workflow.masking import keep

    output, audit = options.places()
    written = [path for path in (output, options.household_output, options.report) if path is not None]
    inputs = [path for path in (file, options.households, options.key) if path is not None]
    check_outputs(written, inputs=inputs, force=options.force)
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    with console.steps(3 + options.scores) as steps:
        steps.at("reading")
        data = options.read(file, reading)
        steps.at("masking")
        masked = workflow.mask(data, spec, replicate=options.replicate, **secret)
        if options.scores:
            steps.at("measuring")
        how: dict[str, Any] = {"measures": options.measure or None, "scenario": scenarios}
        assessment = workflow.assess(masked, **how) if options.scores else None
        steps.at("writing")
        if options.report is not None:
            from safeswap.reports.masking import write_masking_report

            shown = workflow.assess(masked, **how) if assessment is None else assessment
            write_masking_report(masked, options.report, assessment=shown, force=options.force)
        homes = options.read_households()
        if homes is None or options.household_output is None:
            record = keep(masked, output, audit=audit, reading=reading, source=file, force=options.force)
        else:
            both = split_masked(masked, homes)
            places: dict[str, Any] = {"audit": audit, "sources": [options.households, file], "reading": reading}
            record = both.keep(options.household_output, output, force=options.force, **places)
    warn_of_losses(console, masked, output)
    show_masked(console, masked)
    _show_scores(console, assessment)
    made = [("masked file", output, CONFIDENTIAL), ("audit record", record, CONFIDENTIAL)]
    if options.household_output is not None:
        made.insert(1, ("masked households", options.household_output, CONFIDENTIAL))
    console.say_places(*made, *([("report", options.report, CONFIDENTIAL)] if options.report else []))
    measured = assessment.as_dict() if assessment is not None else {}
    where = {"output": str(output), "audit": str(record)}
    where |= {} if options.household_output is None else {"household_output": str(options.household_output)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def _mask_on_disk(
    console: Console,
    spec: MaskSpec,
    file: Path,
    scenarios: Sequence[Scenario],
    *,
    reading: dict[str, Any],
    options: MaskingOptions,
) -> None:
    """Mask, verify, measure and keep, without reading the whole file."""
    from safeswap import registry, workflow

    if options.plan_only or options.report is not None:
        raise typer.BadParameter("--plan-only and --report need the whole file in memory: omit them, or omit --engine")
    output, audit = options.places()
    unusable = [name for name in reading if name not in _READ_ON_DISK]
    if unusable:
        option = "--" + unusable[0].replace("_", "-")
        raise typer.BadParameter(f"{option} needs the whole file in memory: omit it, or omit --engine")
    check_outputs([output], inputs=[file, *([options.key] if options.key else [])], force=options.force)
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    usual = registry.default_measures("categories", by_counts=True)
    with console.steps(1) as steps:
        steps.at("masking on disk")
        masked = workflow.mask_file(
            file,
            output,
            spec,
            audit=audit,
            engine=options.engine or "memory",
            memory_limit=options.memory_limit,
            replicate=options.replicate,
            force=options.force,
            measures=options.measure or usual if options.scores else (),
            scenario=scenarios,
            **secret,
            **reading,
        )
    _show_masked_file(console, masked)
    measured = masked.assessment.as_dict() if masked.assessment is not None else {}
    where = {"output": str(output), "audit": str(masked.audit)}
    console.result({"command": spec.method, **masked.as_dict(), **measured, **where})


def _show_plan(console: Console, plan: Plan) -> None:
    """Show whether the masking is feasible and, where it is not, what would make it so."""
    impossible = plan.asked > (plan.feasible if plan.at_most is None else plan.at_most)
    refused = ": this is impossible." if impossible else ": no way to do this was found."
    console.say(plan.sentence + ("." if plan.is_feasible else refused))
    if plan.relaxations:
        rows = [(as_options(each.change), _feasible_pairs(each)) for each in plan.relaxations]
        console.say(table(["possible change", "pairs then feasible"], rows, right="lr"))
    console.result({"command": plan.method, "plan": plan.as_dict()})


def _feasible_pairs(relaxation: Relaxation) -> str:
    """Return the number of pairs, or its range where the maximum is not proved."""
    upper = "" if relaxation.at_most is None else f" to {relaxation.at_most:,}"
    return f"{relaxation.feasible:,}{upper}"


def show_masked(console: Console, masked: Masked) -> None:
    """Show what was requested, what was feasible and what was done."""
    audit = masked.audit
    touched = int(audit.touched().sum())
    if masked.parts:
        _show_steps(console, masked)
    else:
        console.say(masked.plan.sentence + ".")
    share = f"{touched:,} of {plural(audit.records, 'record')} took part ({touched / max(audit.records, 1):.2%})"
    done = f"{plural(audit.made, audit.unit.removesuffix('s'))} exchanged: " if audit.exchanges else ""
    console.say(f"{done}{share}.")
    # The unit is in the sentence above.
    _show_facts(console, {name: value for name, value in audit.facts.items() if name != "unit"}, audit.stamp)


def _show_steps(console: Console, masked: Masked) -> None:
    """Show what each step of a pipeline did, what became of each column, and promises that a later step broke."""
    account = masked.account
    rows = [
        (str(number), step.name, stage.plan.sentence, f"{stage.audit.made:,} {stage.audit.unit}")
        for number, (step, stage) in enumerate(zip(masked.audit.steps, masked.stages, strict=True), start=1)
    ]
    console.say(table(["", "step", "planned", "done"], rows, right="rllr"))
    console.say("")
    changed = [change for change in account.changes if change.status != "unchanged"]
    console.say(table(["column", "", "what happened"], [(c.column, c.status, c.details) for c in changed]))
    console.say("All other columns are as they were." if len(changed) < len(account.changes) else "")
    for flag in account.flags:
        console.warn(flag)


def _show_masked_file(console: Console, masked: MaskedFile) -> None:
    asked = "" if masked.made == masked.asked else f" of {masked.asked:,} requested"
    console.say(f"{masked.done}{asked} in {plural(masked.records, 'record')}; every guarantee was verified on disk.")
    _show_facts(console, {name: value for name, value in masked.facts.items() if name != "unit"}, masked.stamp)
    _show_scores(console, masked.assessment)
    console.say_places(("masked file", masked.target, CONFIDENTIAL), ("audit record", masked.audit, CONFIDENTIAL))


def _show_facts(console: Console, facts: Mapping[str, Any], stamp: str) -> None:
    from safeswap.model.audit import format_fact

    rows = [(name.replace("_", " "), format_fact(value)) for name, value in facts.items() if format_fact(value)]
    if rows:
        console.say(table(["found", ""], rows, right="lr"), gap=True)
    if stamp:
        console.warn(f"{stamp}: anyone can undo it.")


def _show_scores(console: Console, assessment: Assessment | None) -> None:
    if assessment is not None and console.is_read:
        console.say(score_table(assessment, brief=True), gap=True)
        say_left_out(console, assessment)


PIPELINE = "pipeline"


class Methods(Group):
    """The registered methods, including plug-ins, as commands that are loaded when called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all methods."""
        from safeswap import registry

        return [*registry.method_names(), PIPELINE]

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of a method, or None if there is no such method."""
        if name == PIPELINE:
            return pipeline_command()
        return method_command(name) if name in self.list_commands(ctx) else None


mask = make_group("Mask a file by any method.", cls=Methods, no_args_is_help=True)


@mask.callback()
def _methods() -> None: ...


def pipeline_command() -> Any:
    """Make the command that masks by several steps."""

    @command
    @request_options(MaskingOptions)
    @reading_options
    def run(
        console: Console,
        file: Annotated[Path, typer.Argument(metavar="FILE", help="file to mask")],
        steps: Annotated[Path, typer.Option(metavar="TOML", help="the steps: [[steps]] with method and parameters")],
        *,
        options: MaskingOptions,
        reading: dict[str, Any],
    ) -> None:
        from safeswap.projects.toml import read_pipeline, scenarios_beside

        pipeline = read_pipeline(steps)
        mask_file(console, pipeline, file, reading=reading, options=options, scenarios=scenarios_beside(steps))

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    about = "Several steps by any methods, one after another: one record undoes them all."
    app.command(name=PIPELINE, cls=Command, help=about, context_settings=HELP)(run)
    return get_command(app)


def method_command(name: str) -> Any:
    """Make the command of one method."""
    from safeswap import registry

    method = registry.method(name)
    prefixes = {"targeting": "target"} if "targeting" in method.spec_type.model_fields else {}

    @command
    @spec_options(method.spec_type, prefixes=prefixes, omit=("scenario",))
    @request_options(MaskingOptions)
    @reading_options
    def run(
        console: Console,
        file: Annotated[Path, typer.Argument(metavar="FILE", help="file to mask")],
        *,
        parameters: dict[str, Any],
        options: MaskingOptions,
        reading: dict[str, Any],
    ) -> None:
        mask_by(console, method.spec_type, file, parameters=parameters, reading=reading, options=options)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name=name, cls=Command, help=f"{method.title}.", context_settings=HELP)(run)
    return get_command(app)


@command
@spec_options(SwapSpec, prefixes={"targeting": "target"})
@request_options(MaskingOptions)
@reading_options
def swap(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="file to mask")] = None,
    *,
    parameters: dict[str, Any],
    project: Annotated[
        Path | None, typer.Option(metavar="SPECS", help="run this WebSwap project; it names file, roles and rate")
    ] = None,
    options: MaskingOptions,
    reading: dict[str, Any],
) -> None:
    """Exchange values between random pairs of records.

    Writes the masked file and an audit record from which the original can be restored. Both are confidential; use
    release to make the bundle for publication. To name several attributes, repeat the option or separate the names with
    commas.
    """
    if project is not None:
        if file is not None or parameters or reading or options.output is not None:
            raise typer.BadParameter("a project defines file, roles, rate and output itself: omit these options")
        _run_project(console, project, options)
        return
    if file is None:
        raise typer.BadParameter("missing input: name the file to mask, or a project with --project")
    mask_by(console, SwapSpec, file, parameters=parameters, reading=reading, options=options)


def _run_project(console: Console, specs: Path, options: MaskingOptions) -> None:
    """Swap as a WebSwap project says; with an audit directory the result can be released and undone."""
    from safeswap import workflow
    from safeswap.on_disk.masking import note, write_both
    from safeswap.projects.webswap import read_project
    from safeswap.workflow.masking import register

    audit, force = options.audit, options.force
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    with console.steps(3) as steps:
        steps.at("reading")
        project = read_project(specs)
        results = [project.path("output"), project.path("log")]
        check_outputs(results, inputs=[specs, project.path("data"), project.path("description")], force=force)
        data = project.microdata()
        steps.at("masking")
        masked = workflow.swap(data, project.swap_spec(), **secret)
        steps.at("writing")
        with write_both(audit, results[0], new=[] if force else results) as records:
            register(masked)
            project.write_results(masked, force=force)
            reading = {"delimiter": ",", "encoding": "utf-8", "quote": '"'}
            record = note(masked, results[0], audit=audit, reading=reading, records=records) if audit else None
    show_masked(console, masked)
    places = [("masked file", results[0]), ("log", results[1]), *([("audit record", record)] if record else [])]
    console.say_places(*((*place, CONFIDENTIAL) for place in places))
    if record is None:
        console.warn("No audit record was kept (--audit DIR): the output can be neither released nor undone.")
    where = {"output": str(results[0]), "log": str(results[1]), "audit": str(record) if record else None}
    console.result({"command": "swap", **masked.as_dict(), **where})


_UNUSED = (*ON_DISK, "plan_only", "replicate")


@dataclass(frozen=True, kw_only=True)
class BelowOptions(MaskingOptions):
    """The threshold, and what may be done to get below it."""

    keys: list[str] | None = option("attributes that an intruder is assumed to know; repeatable", metavar="A,B")
    threshold: float = option("largest risk, above 0 and at most 1", default=0.2, metavar="R")
    by: Literal["suppress", "swap"] = option(
        "suppress: blank values of the keys; swap: exchange some of them", default="suppress"
    )
    swap: list[str] | None = option("with --by swap: the keys to exchange; repeatable", metavar="A,B")
    fixed: list[str] | None = option("with --by swap: attributes equal within a pair; repeatable", metavar="A,B")
    weight: str | None = option("survey weight by which risk is estimated", metavar="NAME")


@command
@request_options(BelowOptions, omit=_UNUSED)
@reading_options
def mask_below(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to mask")],
    *,
    options: BelowOptions,
    reading: dict[str, Any],
) -> None:
    """Blank or swap as little as needed to bring every record below a risk threshold.

    The risk of a record is one over the number of people who share its keys, or its estimate by a survey weight. With
    --by swap the records above the threshold are swapped first, until none of them has its own keys.
    """
    from safeswap import workflow
    from safeswap.workflow.thresholds import mask_below as find

    options.places()
    if not options.keys:
        raise typer.BadParameter("missing option --keys: pass --keys A,B")
    how: dict[str, Any] = {"by": options.by, "threshold": options.threshold, "weight": options.weight}
    how |= {"swap": names(options.swap or []), "fixed": names(options.fixed or [])}
    secret = randomness(key=options.key, insecure_seed=options.insecure_seed)
    found = find(workflow.read(file, **reading), names(options.keys), **how, **secret)
    console.say(found.sentence)
    mask_file(console, found.masked.spec, file, reading=reading, options=options)
