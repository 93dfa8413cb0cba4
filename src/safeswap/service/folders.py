"""Folders on the server from which data files may be taken: what lies in them, and nothing that they lead to.

People may write into such a folder, so between a look at a path and its use a part of it can become a link to anywhere.
A file is therefore opened part by part, no part of it a link, and from then on used by what was opened.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Not blocking: what has become a pipe meanwhile would otherwise keep us waiting for somebody to write.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def found_in(path: Path, folders: tuple[Path, ...]) -> Path | None:
    """The file that a path leads to, if it is there and lies in one of the folders, links followed.

    A path without a beginning is looked for in each of the folders.

    >>> found_in(Path("/etc/passwd"), (Path("/srv/data"),)) is None
    True
    """
    for each in (path,) if path.is_absolute() else tuple(folder / path for folder in folders):
        try:
            real = each.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            continue
        if _folder_of(real, folders) is not None:
            return real
    return None


def opened_in(path: Path, folders: tuple[Path, ...]) -> int | None:
    """A descriptor of a regular file in one of the folders; None if there is none without a link on the way."""
    folder = _folder_of(path, folders)
    if folder is None or path == folder or ".." in path.parts:
        return None
    *between, last = path.relative_to(folder).parts
    held: list[int] = []
    try:
        held.append(os.open(folder, _FOLDER))
        for part in between:
            held.append(os.open(part, _FOLDER, dir_fd=held[-1]))
        file = os.open(last, _FILE, dir_fd=held[-1])
    except OSError:
        return None
    finally:
        for each in held:
            with suppress(OSError):
                os.close(each)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _folder_of(real: Path, folders: tuple[Path, ...]) -> Path | None:
    known = (Path(os.path.realpath(folder)) for folder in folders)
    return next((folder for folder in known if real.is_relative_to(folder)), None)
