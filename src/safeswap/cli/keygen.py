"""``safeswap keygen``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.options import Force, command


@command
def keygen(
    console: Console,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="the key file to make")],
    force: Force = False,
) -> None:
    """Make a secret key from which all randomness comes.

    The file holds 32 random bytes and can be read by its owner alone. Whoever has it and a release can undo every swap:
    keep it where the original data are kept, and keep it as long as the release has to be explained.
    """
    from safeswap import workflow

    key = workflow.keygen(path, force=force)
    console.say(f"Wrote {visible(str(path))}, key {key.id}, readable by you alone. It stays inside.")
    console.result({"command": "keygen", "path": str(path), "key_id": key.id})
