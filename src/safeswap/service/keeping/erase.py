"""Deletion that leaves nothing to be read back by ordinary means: overwrite, force to disk, then remove.

On a magnetic disk, or an SSD behind an encrypted volume, this is what it says. An SSD alone, a file system that copies
on write, a snapshot or a backup may keep earlier versions of a block elsewhere, out of reach of any program: there the
disk has to be encrypted, so that throwing away its key throws away the rest. The page on administration says more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Files that are there after the power has failed.


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


_PIECE = 1 << 20


def erase(path: Path) -> int:
    """Overwrite and remove a file, or everything in a folder and the folder; how many files there were.

    Symbolic links are removed, what they point to is left alone. What somebody else removes meanwhile is gone too.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.txt").write_text("secret"), erase(folder), folder.exists()
    (6, 1, False)
    """
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(facts.st_mode):
        return _erase_file(path, facts)
    erased = 0
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            erased += erase(Path(folder) / name)
        for name in folders:
            _remove_folder(Path(folder) / name)
    _remove_folder(path)
    return erased


def _erase_file(path: Path, facts: os.stat_result) -> int:
    # A file with a second name is somebody else's too: a shared folder may hold the original by a hard link.
    if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
        with suppress(FileNotFoundError, PermissionError):
            _overwrite(path, facts.st_size)
    path.unlink(missing_ok=True)
    return 1


def _overwrite(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        zeros = bytes(min(size, _PIECE))
        done = 0
        while done < size:
            done += os.write(descriptor, zeros[: size - done])
        os.fsync(descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _remove_folder(path: Path) -> None:
    if path.is_symlink():
        path.unlink(missing_ok=True)
        return
    with suppress(FileNotFoundError):
        path.rmdir()
