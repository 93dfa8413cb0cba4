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

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import case, exists, select, update

from safeswap.errors import OutputError, SpecError
from safeswap.service.keeping.database import now
from safeswap.service.keeping.erase import erase
from safeswap.service.keeping.tables import jobs, projects, releases, results
from safeswap.service.settings import Settings

if TYPE_CHECKING:
    from safeswap.service.keeping.database import Database


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


# What a crash may leave in the store, found by comparing folders with rows.

READING = ("ingest", "import_project")
"""Kinds of jobs that give a project its data."""

_DAY = 24 * 3600.0


def result_id(job_id: str, fence: int) -> str:
    """The name of what one attempt at a job makes: known beforehand, and never that of another attempt.

    >>> result_id("a1", 1) == result_id("a1", 1), result_id("a1", 1) == result_id("a1", 2)
    (True, False)
    """
    return hashlib.sha256(f"safeswap result {job_id} {fence}".encode()).hexdigest()[:32]


def attempt_name(job_id: str, fence: int) -> str:
    """The folder that one attempt at reading data fills; it gets its number when the attempt succeeds."""
    return f"{job_id}-{int(fence)}"


def leftovers(root: Path, database: Database) -> list[Path]:
    """Folders and files that no row of the database tells of, and that no running job is filling.

    Folders are listed before rows are read: what is made in between is not taken for a leftover.
    """
    scratch = orphans(root / "scratch", ())
    folders = orphans(root / "projects", ())
    made = [path for folder in folders for path in orphans(folder / "results", ())]
    begun = [path for folder in folders for path in orphans(folder / "data" / "0", ())]
    sent = [path for folder in folders for path in orphans(folder / "uploads", ()) if _is_old(path)]
    released = [path for folder in folders for path in orphans(folder / "releases", ())]
    with database.read() as connection:
        query = select(jobs.c.id, jobs.c.fence, jobs.c.payload).where(jobs.c.state.in_(["queued", "running"]))
        alive = connection.execute(query).all()
        fences = {row.id: row.fence for row in alive}
        known_projects = set(connection.scalars(select(projects.c.id).where(projects.c.state != "deleted")))
        known = set(connection.scalars(select(results.c.id))) | {result_id(*each) for each in fences.items()}
        known_releases = set(connection.scalars(select(releases.c.id)))
    filling = {attempt_name(*each) for each in fences.items()}
    awaited = {row.payload.get("upload") for row in alive}
    return [
        *(path for path in begun if path.name not in filling),
        *(path for path in sent if path.name not in awaited),
        *(path for path in scratch if path.name not in fences),
        *_old_attempts(scratch, fences),
        *(path for path in folders if path.name not in known_projects),
        *(path for path in made if path.parent.parent.name in known_projects and path.name not in known),
        *(path for path in released if path.parent.parent.name in known_projects and path.name not in known_releases),
    ]


def free_projects(database: Database) -> int:
    """Free projects whose file did not come whole because the server was killed meanwhile; how many.

    For the start of a server, when nobody sends a file: a project that is being read has a job that reads it.
    """
    read = exists().where(jobs.c.project_id == projects.c.id, jobs.c.state.in_(["queued", "running"]))
    stuck = update(projects).where(projects.c.state == "reading", ~read.where(jobs.c.kind.in_(READING)))
    state = case((projects.c.data_version > 0, "ready"), else_="empty")
    with database.write() as connection:
        return connection.execute(stuck.values(state=state, version=projects.c.version + 1)).rowcount


def _is_old(path: Path) -> bool:
    """Whether a file that was sent has stood still for a day: one that is being sent has no job yet."""
    try:
        return path.lstat().st_mtime < now() - _DAY
    except FileNotFoundError:
        return False


def _old_attempts(scratch: list[Path], fences: dict[str, int]) -> list[Path]:
    """Temporary files of earlier attempts at a job that is still to be done."""
    alive = [path for path in scratch if path.name in fences and path.is_dir()]
    return [old for path in alive for old in orphans(path, {"checkpoint", str(fences[path.name])})]


# Folders on the server from which data files may be taken: what lies in them, and nothing that they lead to.
#
# People may write into such a folder, so between a look at a path and its use a part of it can become a link to
# anywhere. A file is therefore opened part by part, no part of it a link, and from then on used by what was opened.

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
