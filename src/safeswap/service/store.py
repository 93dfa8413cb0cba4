"""Where the files of the service lie: one private folder a project, one a job, nothing that others may enter.

::

    store/
      projects/<project>/data/<version>/      the data as they were read, and what is known about them
                         uploads/             files as they came, until they have been read
                         results/<result>/    what jobs made
                         releases/<release>/  bundles, and the sealed records that undo them
                         key.sealed, session.log
      scratch/<job>/                          temporary files of a job, and what it can go on from
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safeswap.errors import OutputError, SpecError
from safeswap.service.erase import erase
from safeswap.service.settings import Settings

if TYPE_CHECKING:
    from safeswap.service.database import Database

_PRIVATE = 0o700
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}", re.ASCII)
_LEAVING = ".deleted-"


class Store:
    """Paths within the store. A folder is made, for its owner only, when it is first asked for.

    >>> import tempfile
    >>> store = Store(Settings(store=tempfile.mkdtemp(), master_key_file="/etc/safeswap/master.key"))
    >>> store.data("0a1b", 3).relative_to(store.root).as_posix(), oct(store.project("0a1b").stat().st_mode)[-3:]
    ('projects/0a1b/data/3', '700')
    """

    def __init__(self, settings: Settings) -> None:
        self.root = settings.store.absolute()
        self._limits = settings.limits

    def project(self, project_id: str) -> Path:
        """The folder of a project."""
        return self._folder("projects", project_id)

    def data(self, project_id: str, version: int) -> Path:
        """The folder of the data as they were read in for the ``version``-th time."""
        return self._folder("projects", project_id, "data", str(int(version)))

    def uploads(self, project_id: str) -> Path:
        """Where files lie as they came, under names of ours, until they have been read."""
        return self._folder("projects", project_id, "uploads")

    def upload(self, project_id: str, name: str) -> Path:
        """One of these files."""
        return self.uploads(project_id) / _checked(name)

    def result(self, project_id: str, result_id: str) -> Path:
        """The folder of what one job made."""
        return self._folder("projects", project_id, "results", result_id)

    def release(self, project_id: str, release_id: str) -> Path:
        """The folder of a release: the bundle, and the sealed record that undoes it."""
        return self._folder("projects", project_id, "releases", release_id)

    def log(self, project_id: str) -> Path:
        """The file of a project's session log."""
        return self.project(project_id) / "session.log"

    def scratch(self, job_id: str, fence: int = 0) -> Path:
        """Temporary files of one attempt at a job; nothing of it outlives the attempt."""
        return self._folder("scratch", job_id, str(int(fence)))

    def checkpoint(self, job_id: str) -> Path:
        """From where the next attempt at a job goes on."""
        return self._folder("scratch", job_id, "checkpoint")

    def exists(self, project_id: str) -> bool:
        """Whether anything is kept for a project."""
        return (self.root / "projects" / _checked(project_id)).is_dir()

    def used(self, project_id: str) -> int:
        """How many bytes a project takes."""
        total = 0
        for folder, _, files in os.walk(self.project(project_id)):
            for name in files:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).lstat().st_size
        return total

    def check_room(self, project_id: str, wanted: int) -> None:
        """Refuse what would fill the disk, or what is more than one project may take."""
        used, quota = self.used(project_id), self._limits.project_bytes
        if used + wanted > quota:
            raise OutputError(
                f"the project would take {used + wanted:,} bytes; it may take {quota:,}",
                code="over-quota",
                hint="delete results that are no longer needed, or ask the administrator for more",
                found=used + wanted,
                limit=quota,
            )
        if shutil.disk_usage(self.root).free < wanted + self._limits.reserve_bytes:
            raise OutputError(
                "there is not enough room on the disk of the store",
                code="disk-full",
                hint="ask the administrator to make room",
                wanted=wanted,
            )

    def delete(self, project_id: str) -> int:
        """Erase all that is kept for a project; how many files there were.

        The folder loses its name first: from then on nothing of it can be reached, and a deletion that is interrupted
        is finished by the next :meth:`sweep`.
        """
        folder = self.root / "projects" / _checked(project_id)
        leaving = folder.with_name(_LEAVING + secrets.token_hex(8))
        try:
            folder.rename(leaving)
        except FileNotFoundError:
            return 0
        return erase(leaving)

    def clear(self, job_id: str, fence: int | None = None) -> None:
        """Erase the temporary files of one attempt at a job, or all that is kept for going on with it."""
        folder = self.root / "scratch" / _checked(job_id)
        erase(folder if fence is None else folder / str(int(fence)))

    def sweep(self, database: Database) -> int:
        """Erase what nobody needs any more after a crash; how many files.

        That is: temporary files of jobs that do not run, folders of projects that were deleted, results that no row
        tells of. Jobs that run are left alone, so workers may be busy meanwhile; a project's row is made before its
        folder.
        """
        from safeswap.service.leftovers import leftovers

        return sum(erase(path) for path in leftovers(self.root, database))

    def _folder(self, *parts: str) -> Path:
        folder = self.root
        _made(folder)
        for part in parts:
            folder = folder / _checked(part)
            _made(folder)
        return folder


def _made(folder: Path) -> None:
    # One at a time: mkdir(parents=True) would make the ones above for everybody to enter.
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE, parents=False)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SpecError("this is not the name of anything in the store", code="bad-name", hint="give an id")
    return name


def orphans(folder: Path, known: Collection[str]) -> list[Path]:
    """The entries of a folder that are not among the known names."""
    return [path for path in folder.iterdir() if path.name not in known] if folder.is_dir() else []
