"""``safeswap mask``, ``swap`` and ``mask-below``.

``mask`` has one command per registered method, with options derived from the method's specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.main import get_command

from safeswap.cli.app import HELP, Command, Group
from safeswap.cli.console import Console
from safeswap.cli.masking import CONFIDENTIAL, ON_DISK, MaskingOptions, mask_by, mask_file, show_masked
from safeswap.cli.options import (
    check_outputs,
    command,
    make_group,
    names,
    option,
    randomness,
    reading_options,
    request_options,
    spec_options,
)
from safeswap.model.spec import SwapSpec

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
