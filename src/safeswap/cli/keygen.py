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
    path: Annotated[Path, typer.Argument(metavar="FILE", help="key file to create")],
    force: Force = False,
) -> None:
    """Generate a secret key, the source of all randomness.

    The file holds 32 random bytes and is readable by its owner only. Anyone who has it and a release can undo every
    swap: store it with the original data, and keep it for as long as the release must be accounted for.
    """
    from safeswap.files.keyfile import generate_key

    key = generate_key(path, force=force)
    console.say(f"Wrote {visible(str(path))}, key {key.id}, readable by you only. Keep it confidential.")
    console.result({"command": "keygen", "path": str(path), "key_id": key.id})
