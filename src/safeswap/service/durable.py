"""Files that are there after the power has failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Force every file below a folder, and the folders themselves, to the disk.

    >>> import tempfile
    >>> sync_folder(Path(tempfile.mkdtemp()))
    """
    for path in _paths(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _paths(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, topdown=False):
        yield from (path for name in names if (path := Path(parent) / name).is_file())
        yield Path(parent)
