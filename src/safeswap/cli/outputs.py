"""Refuse an output before the work is done, not after."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from safeswap.errors import OutputError


def check_outputs(
    outputs: Sequence[Path],
    *,
    inputs: Sequence[Path] = (),
    force: bool = False,
    hint: str = "choose another name, or allow overwriting with --force",
) -> None:
    """Refuse outputs that exist (unless ``force``), that have nowhere to go, or that would cost an input.

    What writes them refuses too; here it costs nothing, after an hour of masking it would be a nuisance.
    """
    for position, output in enumerate(outputs):
        if not output.absolute().parent.is_dir():
            raise OutputError(
                f"the directory of {output.name!r} does not exist",
                code="no-directory",
                hint="make the directory first",
                file=str(output),
            )
        if _is_one_of(output, inputs):
            raise OutputError(
                f"{output.name!r} is an input and would be overwritten",
                code="overwrites-input",
                hint="choose another name for the output",
                file=str(output),
            )
        if _is_one_of(output, outputs[:position]):
            raise OutputError(
                f"two outputs are called {output.name!r}",
                code="same-output",
                hint="give each output a name of its own",
                file=str(output),
            )
        if os.path.lexists(output) and not force:
            raise OutputError(
                f"{output.name!r} exists already",
                code="exists",
                hint=hint,
                file=str(output),
            )


def _is_one_of(path: Path, others: Sequence[Path]) -> bool:
    """Whether two names mean one place: links are followed, for overwriting would follow them too."""
    found = os.path.realpath(path)
    return any(os.path.realpath(other) == found for other in others)
