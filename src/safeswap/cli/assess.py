"""``safeswap assess``, ``confidentiality`` and ``attack``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeswap.cli.console import Console, escape, say_left_out, say_shared, score_table, small_tables, table
from safeswap.cli.mask import JoinedFiles
from safeswap.cli.options import (
    OUTPUT,
    Force,
    KeyFile,
    ScenarioFile,
    Shown,
    check_outputs,
    command,
    names,
    option,
    read_scenario,
    read_scenarios,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.errors import InputError, SpecError
from safeswap.measures.spec import PlotSpec
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.attacks.base import Attacked
    from safeswap.measures.plot.values import ConfidentialityPlot
    from safeswap.model.microdata import Microdata

# Errors that a wrong guess of delimiter, encoding or quote may cause.
LAYOUT_ERRORS = {"wrong-encoding", "ambiguous-delimiter", "ragged-row", "bad-quoting", "unparsable-file", "no-header"}

# Errors that the schema of the original may cause for a recoded file.
SCHEMA_ERRORS = {"unlisted-level", "schema-mismatch"}


@dataclass(frozen=True, kw_only=True)
class AssessOptions(JoinedFiles):
    """The measures, and the way the two files are compared."""

    measure: list[str] | None = option("measure, e.g. hellinger or n_rule:n=5,keys=Age+Sex; repeatable", metavar="NAME")
    indicators: Path | None = option("measure the largest change of these key indicators", metavar="TOML")
    ways: int | None = option(
        "measure every table of this many attributes, instead of all attributes jointly", min=1, max=3
    )
    attributes: list[str] | None = option(
        "attributes that form the cells; all categorical ones if omitted", metavar="A,B"
    )
    keys: list[str] | None = option("attributes that an intruder may know: keys of the risk measures", metavar="A,B")
    scenario: ScenarioFile = None
    masked_schema: Path | None = option("schema of a recoded file, as written by recode --write-schema", metavar="TOML")
    match: Literal["auto", "position"] = option(
        "match records by identifier if both files have one (auto), or by position", default="auto"
    )
    record: Path | None = option(
        "audit record of the release, for a file with new identifiers or row order", metavar="DIR"
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``workflow.assess``."""
        return {
            "measures": self._measures(),
            "attributes": names(self.attributes) if self.attributes else None,
            "keys": names(self.keys or ()),
            "ways": self.ways,
            "match": self.match,
            "audit": self.record,
            "scenario": None if self.scenario is None else read_scenarios(self.scenario),
        }

    def _measures(self) -> list[str] | None:
        """Return the stated measures, with the indicators of a file last; None for the default ones."""
        if self.indicators is None:
            return self.measure or None
        from safeswap.measures.utility.indicators import read_indicators

        return [*(self.measure or ()), read_indicators(self.indicators).text]


@command
@request_options(AssessOptions)
@reading_options
def assess(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    masked: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    options: AssessOptions,
    reading: dict[str, Any],
) -> None:
    """Measure the risk and distortion of a masked file.

    The two files are compared record by record; records that differ count as swapped. Without --measure, the default
    measures that apply to the changed attributes are used, and the others are listed. Delimiter, encoding and quote
    apply to the original; those of the masked file may differ and are detected. A recoded file has other levels: pass
    its schema with --masked-schema. A person file is joined with its file of households, if that is given.
    """
    from safeswap import workflow
    from safeswap.workflow.masking import reading_alike

    options.require_both()
    options.check_on()
    with console.steps(3) as steps, reading_alike():
        steps.at("reading the original")
        persons = workflow.read(original, **reading)
        before = options.join(persons, options.households)
        steps.at("reading the masked file")
        after = _read_recoded(masked, persons, reading, options.masked_schema)
        after = options.join(after, options.masked_households)
        steps.at("measuring")
        assessment = workflow.assess(before, after, **options.arguments())
    if console.is_read:
        console.say(score_table(assessment))
    say_shared(console, assessment)
    say_left_out(console, assessment)
    if options.ways and (tables := small_tables(assessment, ways=options.ways)):
        console.say(tables, gap=True)
    console.result({"command": "assess", "records": len(before), **assessment.as_dict()})


def _read_recoded(path: Path, before: Microdata, reading: dict[str, Any], schema: Path | None) -> Microdata:
    """Read the masked file by its own schema if it has one; where that is missing, say so."""
    try:
        return read_masked(path, before, reading if schema is None else {**reading, "schema": schema})
    except InputError as error:
        if error.code not in SCHEMA_ERRORS or schema is not None:
            raise
        hint = "if the file was recoded, pass its schema: --masked-schema TOML"
        raise InputError(error.message, code=error.code, hint=hint, **error.fields) from None


def read_masked(path: Path, before: Microdata, reading: dict[str, Any]) -> Microdata:
    """Read the masked file in its detected layout or, if that fails, in the layout of the original."""
    from safeswap import workflow

    own = {name: value for name, value in reading.items() if name not in ("delimiter", "encoding", "quote")}
    try:
        after = workflow.read(path, **own)
    except InputError as error:
        if error.code not in LAYOUT_ERRORS or own == reading:
            raise
        return workflow.read(path, **reading)
    return after if set(before.attributes) <= set(after.attributes) else workflow.read(path, **reading)


POLICY = "Policy"
CATEGORICAL = "Categorical keys"
DISTANCES = "Comparing records"


@dataclass(frozen=True, kw_only=True)
class PlotFiles:
    """The other files that the intruder may have, the records to compare, and what is written."""

    archive: Path | None = option("file that the intruder has; the original if omitted", metavar="FILE")
    only: list[str] | None = option("use only records with this value, e.g. division=18", metavar="A=VALUE")
    population: Path | None = option("file in which the keys are counted", metavar="FILE", panel=CATEGORICAL)
    output: list[Path] | None = option(
        "plot (.html, .svg, .png) or records (.csv, .parquet)", metavar="FILE", panel=OUTPUT
    )
    public: bool = option("write the public version: bins, no records", "--public", default=False, panel=OUTPUT)
    key: KeyFile = None
    force: Force = False

    def check(self, inputs: list[Path]) -> list[Path]:
        """Return the outputs, or refuse them before anything is read."""
        outputs = self.output or []
        others = [path for path in (self.archive, self.population) if path is not None]
        check_outputs(outputs, inputs=[*inputs, *others], force=self.force)
        return outputs


_SHOWN = {
    **dict.fromkeys(("r", "k", "curvature"), Shown(panel=POLICY)),
    "linkage": Shown(panel=DISTANCES, metavar="METHOD"),
    "scale": Shown(panel=DISTANCES, metavar="SCALE"),
    "distance": Shown(panel=DISTANCES, metavar="KIND"),
    "weight": Shown(panel=CATEGORICAL, metavar="NAME"),
    "sampling_fraction": Shown(panel=CATEGORICAL),
    "alpha": Shown(panel=DISTANCES),
}


@command
@spec_options(PlotSpec, shown=_SHOWN)
@request_options(PlotFiles)
@reading_options
def confidentiality(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file")],
    released: Annotated[Path, typer.Argument(metavar="MASKED", help="masked file")],
    *,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="attributes that an intruder may know; repeat to compare several sets"),
    ] = None,
    scenario: ScenarioFile = None,
    parameters: dict[str, Any],
    options: PlotFiles,
    reading: dict[str, Any],
) -> None:
    """Show which records of a masked file are unsafe.

    Numeric keys are compared by distance: a record is unsafe if its perturbation and its number of neighbours are too
    small together. Categorical keys are counted: a record is unsafe if too few records share them. Records are matched
    by identifier or, if the files have none, by row order.
    """
    from safeswap import workflow
    from safeswap.charts.confidentiality import write_plot
    from safeswap.model.scenario import resolve_files

    outputs = options.check([original, released])
    asked_by = read_scenario(scenario)
    if not keys and asked_by is None:
        raise typer.BadParameter("missing option --keys: pass --keys A,B or --scenario FILE[:NAME]")
    sets = [names([one]) for one in keys or ()] or [()]
    if outputs and len(sets) > 1:
        raise SpecError("a plot shows one set of keys", code="bad-keys", hint="give --keys once, or omit --output")
    with console.steps(3) as steps:
        steps.at("reading the files")
        before = workflow.read(original, **reading)
        after = read_masked(released, before, reading)
        asked = _read_others(options, before, reading)
        steps.at("comparing records")
        spec = PlotSpec(**parameters)
        if asked_by is not None:
            spec = spec.for_scenario(resolve_files(asked_by, before, after), keys=sets[0])
            asked |= {"scenario": asked_by}
        asked |= {**spec.options_for(before, sets[0]), "only": _parse_only(options.only or ())}
        asked |= {"key": workflow.read_key(options.key)} if options.key is not None else {}
        plots = [workflow.confidentiality(before, after, keys=chosen, **asked) for chosen in sets]
        steps.at("writing")
        for path in outputs:
            write_plot(plots[0], path, version="public" if options.public else "internal", force=options.force)
    for plot in plots:
        console.say(_describe(plot))
    if len(plots) > 1:
        console.say(_comparison_table(plots))
    console.result(
        {
            "command": "confidentiality",
            "outputs": [str(path) for path in outputs],
            "plots": [plot.as_dict() for plot in plots],
        }
    )


def _read_others(options: PlotFiles, before: Microdata, reading: dict[str, Any]) -> dict[str, Any]:
    """Read the archive and the population, where given."""
    from safeswap import workflow

    # Other files have other columns: schema and identifier do not apply to them.
    own = {name: value for name, value in reading.items() if name not in ("schema", "identifier")}
    found: dict[str, Any] = {}
    if options.archive is not None:
        identifier = before.schema.identifier
        found["archive"] = workflow.read(options.archive, **own, identifier=identifier.name if identifier else None)
    if options.population is not None:
        found["population"] = workflow.read(options.population, **own)
    return found


def _parse_only(stated: list[str] | tuple[()]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in stated]
    if not all(name and equals for name, equals, _ in pairs):
        raise SpecError("--only takes an attribute and a value", code="bad-only", hint="write --only division=18")
    return {name: value for name, _, value in pairs} or None


def _describe(plot: ConfidentialityPlot) -> str:
    totals = plot.as_dict()
    whose = f"Scenario {plot.settings['scenario']}, keys" if "scenario" in plot.settings else "Keys"
    lines = [f"{whose} {list_names(plot.keys)}: {plot.sentence}", plot.policy.sentence]
    if totals.get("delta") is not None:
        error = "" if plot.threshold_error is None else f", standard error {plot.threshold_error:.2g}"
        lines.append(f"Records within δ = {plot.threshold:.4g}{error} are neighbours.")
    if "rank_units" in totals:
        lines.append(
            f"Of the largest {plural(totals['rank_units'], 'unit')}, {totals['rank_links']} can be identified by rank."
        )
    return "\n".join([*lines, *plot.notes])


def _comparison_table(plots: list[ConfidentialityPlot]) -> Any:
    figures = ["unsafe", "correct_links", "links_within_neighbourhoods", "empty_neighbourhoods"]
    totals = [plot.as_dict() for plot in plots]
    rows = [[list_names(t["keys"]), *(f"{t[name]:,}" if name in t else "–" for name in figures)] for t in totals]
    return table(["keys", "unsafe", "correct links", "in neighbourhood", "no neighbour"], rows, right="lrrrr")


@dataclass(frozen=True, kw_only=True)
class AttackOptions(JoinedFiles):
    """The attacks to try, and the means of intruder and agency."""

    attack: list[str] | None = option("attack to try, e.g. linkage; repeatable; all if omitted", metavar="NAME")
    scenario: ScenarioFile = None
    quick: bool = option("only the quick attacks, those of every release", "--quick", default=False)
    audit: Path | None = option("audit directory of the masking, or audit record of a bundle", metavar="DIR")
    control: Path | None = option("records that were held out before masking", metavar="FILE")
    rules: Path | None = option("JSON list of impossible combinations", metavar="JSON")
    tables: list[str] | None = option("attributes of a published table; repeatable", metavar="A,B")
    tolerance: int = option("published counts below this are withheld", default=3, metavar="N")
    earlier: list[Path] | None = option(
        "masked file of the same records released before; repeatable; default: those in the ledger", metavar="FILE"
    )
    policy: Path | None = option(
        "largest advantage allowed for each attack; the command fails above it", metavar="TOML"
    )


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
    from safeswap.workflow.releasing import attack as run

    policy = None if options.policy is None else read_policy(options.policy)
    with console.steps(2) as steps:
        steps.at("reading")
        subject, known, record = _read(masked, original, options, reading)
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
        console.say(f"Not tried: {each.attack}: {escape(each.reason)}.")
    if policy is not None:
        refuse_above(policy.judge(found))
    console.result({"command": "attack", **found.as_dict()})


def _read(masked: Path, original: Path | None, options: AttackOptions, reading: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return what is attacked, the original, and the audit record that matches the two."""
    from safeswap import workflow
    from safeswap.releases.manifest import MANIFEST
    from safeswap.workflow.masking import recall

    def read_joined(persons: Path, households: Path | None) -> Microdata:
        return options.join(workflow.read(persons, **reading), households)

    options.check_on()
    if original is None and options.households is not None:
        raise typer.BadParameter("--households belongs to an ORIGINAL file")
    if (masked / MANIFEST).is_file():
        if options.masked_households is not None:
            raise typer.BadParameter("a bundle has its own file of households: drop --masked-households")
        return masked, None if original is None else read_joined(original, options.households), options.audit
    if original is None:
        return read_joined(masked, options.masked_households), None, None
    households = options.require_both()
    if options.audit is not None:
        return recall(original, masked, audit=options.audit, households=households), None, None
    return read_joined(masked, options.masked_households), read_joined(original, options.households), None


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
        table.add_row(each.attack, *shares, escape(each.sentence + (f" ({each.note})" if each.note else "")))
    return table
