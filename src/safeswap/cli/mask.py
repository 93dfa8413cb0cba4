"""``safeswap mask``: one command per registered method, its options made from the method's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from safeswap.cli.console import Console
from safeswap.cli.masking import (
    AuditDirectory,
    MaskedFile,
    Outputs,
    PlanOnly,
    ReplicateNumber,
    ReportFile,
    Scores,
    mask_file,
)
from safeswap.cli.on_disk import EngineName, MemoryLimit
from safeswap.cli.options import Force, InsecureSeed, KeyFile, command, reading_options, spec_options


class Methods(TyperGroup):
    """The registered methods, plug-ins among them, as commands; one is loaded when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all methods."""
        from safeswap import registry

        return list(registry.method_names())

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of one method, or None where there is no such method."""
        return method_command(name) if name in self.list_commands(ctx) else None


mask = typer.Typer(
    cls=Methods,
    help="Mask a file by any method.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@mask.callback()
def _methods() -> None: ...


def method_command(name: str) -> Any:
    """The command that masks by one method."""
    from safeswap import registry

    method = registry.method(name)
    prefixes = {"targeting": "target"} if "targeting" in method.spec_type.model_fields else {}

    @command
    @spec_options(method.spec_type, prefixes=prefixes)
    @reading_options
    def run(
        console: Console,
        file: Annotated[Path, typer.Argument(metavar="FILE", help="the file to mask")],
        *,
        parameters: dict[str, Any],
        plan_only: PlanOnly = False,
        scores: Scores = True,
        key: KeyFile = None,
        insecure_seed: InsecureSeed = None,
        replicate: ReplicateNumber = 0,
        output: MaskedFile = None,
        audit: AuditDirectory = None,
        report: ReportFile = None,
        engine: EngineName = None,
        memory_limit: MemoryLimit = "1GB",
        force: Force = False,
        reading: dict[str, Any],
    ) -> None:
        outputs = Outputs(output=output, audit=audit, force=force, report=report)
        mask_file(
            console,
            method.spec_type(**parameters),
            file,
            reading=reading,
            outputs=outputs,
            key=key,
            insecure_seed=insecure_seed,
            replicate=replicate,
            plan_only=plan_only,
            scores=scores,
            engine=engine,
            memory_limit=memory_limit,
        )

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.command(name=name, help=f"{method.title}.", context_settings={"help_option_names": ["-h", "--help"]})(run)
    return get_command(app)
