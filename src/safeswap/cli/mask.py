"""``safeswap mask``: one command per registered method, with options derived from the method's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from safeswap.cli.app import HELP, Command, Group
from safeswap.cli.console import Console
from safeswap.cli.masking import MaskingOptions, mask_by, mask_file
from safeswap.cli.options import command, make_group, reading_options, request_options, spec_options

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
    about = "Several steps of any methods, one after the other: one record undoes them all."
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
