"""Durable writes and secure deletion: overwrite, sync, then remove.

This is sufficient on a magnetic disk, or on an encrypted volume. A bare SSD, a copy-on-write file system, a snapshot or
a backup may keep earlier versions of a block, out of reach of any program: there the disk must be encrypted, so that
destroying its key destroys the rest. The page on administration says more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PIECE = 1 << 20


def sync_folder(folder: Path) -> None:
    """Sync every file below a folder, and the folders themselves, to disk.

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


def erase(path: Path) -> int:
    """Overwrite and remove a file, or a folder with its content; return the number of files.

    Symbolic links are removed, their targets are not. Files removed concurrently are no error.

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
    # A file with a second hard link may be the original in a shared folder: do not overwrite it.
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
