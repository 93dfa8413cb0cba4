"""The file store of the service: a private folder per project and per job.

::

    store/
      projects/<project>/data/<version>/      the data as they were read, and their schema
                         uploads/             uploaded files, until they have been read
                         results/<result>/    files of a job's result
                         releases/<release>/  bundles and their sealed audit records
                         key.sealed, session.log
      scratch/<job>/                          temporary files and the checkpoint of a job

A project is deleted on request, or after too long without use. Its row stays, emptied, so that its id in the audit log
remains meaningful, and so do its entries in the ledger. Everything else is deleted: the rows first, in one transaction,
then the files.

A file is overwritten and synced before it is removed. This is sufficient on a magnetic disk, or on an encrypted volume.
A bare SSD, a copy-on-write file system, a snapshot or a backup may keep earlier versions of a block, out of reach of
any program: there the disk must be encrypted, so that destroying its key destroys the rest. The page on administration
says more.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, exists, null, select, update

from safeswap.errors import OutputError, SpecError
from safeswap.model.text import plural
from safeswap.service.http import logs
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, now
from safeswap.service.keeping.tables import jobs, members, projects, releases, results
from safeswap.service.settings import Settings

_PRIVATE = 0o700
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}", re.ASCII)
_DELETED_PREFIX = ".deleted-"


class Store:
    """Paths in the store. A folder is created, with private permissions, when its path is first requested.

    >>> import tempfile
    >>> store = Store(Settings(store=tempfile.mkdtemp(), master_key_file="/etc/safeswap/master.key"))
    >>> store.data("0a1b", 3).relative_to(store.root).as_posix(), oct(store.project("0a1b").stat().st_mode)[-3:]
    ('projects/0a1b/data/3', '700')
    """

    def __init__(self, settings: Settings) -> None:
        self.root = settings.store.absolute()
        self._limits = settings.limits

    def project(self, project_id: str) -> Path:
        """Return the folder of a project."""
        return self._folder("projects", project_id)

    def data(self, project_id: str, version: int) -> Path:
        """Return the folder of a version of the data."""
        return self._folder("projects", project_id, "data", str(int(version)))

    def uploads(self, project_id: str) -> Path:
        """Return the folder of uploaded files, stored under generated names until they have been read."""
        return self._folder("projects", project_id, "uploads")

    def upload(self, project_id: str, name: str) -> Path:
        """Return the path of an uploaded file."""
        return self.uploads(project_id) / _check_name(name)

    def result(self, project_id: str, result_id: str) -> Path:
        """Return the folder of a job's result."""
        return self._folder("projects", project_id, "results", result_id)

    def release(self, project_id: str, release_id: str) -> Path:
        """Return the folder of a release: the bundle and its sealed audit record."""
        return self._folder("projects", project_id, "releases", release_id)

    def log(self, project_id: str) -> Path:
        """Return the path of a project's session log."""
        return self.project(project_id) / "session.log"

    def scratch(self, job_id: str, fence: int = 0) -> Path:
        """Return the folder for temporary files of one attempt at a job; erased after the attempt."""
        return self._folder("scratch", job_id, str(int(fence)))

    def checkpoint(self, job_id: str) -> Path:
        """Return the folder for the checkpoint of a job, from which the next attempt resumes."""
        return self._folder("scratch", job_id, "checkpoint")

    def exists(self, project_id: str) -> bool:
        """Return True if the project has a folder."""
        return (self.root / "projects" / _check_name(project_id)).is_dir()

    def count_bytes(self, project_id: str) -> int:
        """Return the bytes used by a project."""
        total = 0
        for folder, _, files in os.walk(self.project(project_id)):
            for name in files:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).lstat().st_size
        return total

    def check_room(self, project_id: str, wanted: int) -> None:
        """Refuse to exceed the project's quota or the disk."""
        used, quota = self.count_bytes(project_id), self._limits.project_bytes
        if used + wanted > quota:
            raise OutputError(
                f"the project would take {plural(used + wanted, 'byte')}; it may take {quota:,}",
                code="over-quota",
                hint="delete results that are no longer needed, or ask the administrator for more",
                found=used + wanted,
                limit=quota,
            )
        if shutil.disk_usage(self.root).free < wanted + self._limits.reserve_bytes:
            raise OutputError(
                "there is not enough space on the disk of the store",
                code="disk-full",
                hint="ask the administrator to free disk space",
                wanted=wanted,
            )

    def delete(self, project_id: str) -> int:
        """Erase the folder of a project and return the number of files.

        The folder is renamed first: from then on it cannot be reached, and an interrupted deletion is finished by the
        next :meth:`sweep`.
        """
        folder = self.root / "projects" / _check_name(project_id)
        leaving = folder.with_name(_DELETED_PREFIX + secrets.token_hex(8))
        try:
            folder.rename(leaving)
        except FileNotFoundError:
            return 0
        return erase(leaving)

    def clear(self, job_id: str, fence: int | None = None) -> None:
        """Erase the temporary files of one attempt at a job, or all its files including the checkpoint."""
        folder = self.root / "scratch" / _check_name(job_id)
        erase(folder if fence is None else folder / str(int(fence)))

    def sweep(self, database: Database) -> int:
        """Erase leftovers of a crash and return the number of files.

        These are temporary files of jobs that do not run, folders of deleted projects, and results without a row.
        Running jobs are left alone, so workers may be busy meanwhile; a project's row is created before its folder.
        """

        return sum(erase(path) for path in find_leftovers(self.root, database))

    def _folder(self, *parts: str) -> Path:
        folder = self.root
        _make_private(folder)
        for part in parts:
            folder = folder / _check_name(part)
            _make_private(folder)
        return folder


def _make_private(folder: Path) -> None:
    # One at a time: mkdir(parents=True) would create the parents with default permissions.
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE, parents=False)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SpecError("nothing in the store has this name", code="bad-name", hint="give an id")
    return name


def find_orphans(folder: Path, known: Collection[str]) -> list[Path]:
    """Return the entries of a folder that are not among the known names."""
    return [path for path in folder.iterdir() if path.name not in known] if folder.is_dir() else []


READING = ("ingest", "import_project")
"""Kinds of jobs that read data into a project."""

_DAY = 24 * 3600.0


def result_id(job_id: str, fence: int) -> str:
    """Return the id of the result of one attempt at a job: known in advance, and unique per attempt.

    >>> result_id("a1", 1) == result_id("a1", 1), result_id("a1", 1) == result_id("a1", 2)
    (True, False)
    """
    return hashlib.sha256(f"safeswap result {job_id} {fence}".encode()).hexdigest()[:32]


def attempt_name(job_id: str, fence: int) -> str:
    """Return the folder name for one attempt at reading data; renamed to its version on success."""
    return f"{job_id}-{int(fence)}"


def find_leftovers(root: Path, database: Database) -> list[Path]:
    """Return the folders and files that no row refers to and no running job is writing.

    Folders are listed before rows are read, so that new ones are not taken for leftovers.
    """
    scratch = find_orphans(root / "scratch", ())
    folders = find_orphans(root / "projects", ())
    made = [path for folder in folders for path in find_orphans(folder / "results", ())]
    begun = [path for folder in folders for path in find_orphans(folder / "data" / "0", ())]
    sent = [path for folder in folders for path in find_orphans(folder / "uploads", ()) if _is_old(path)]
    released = [path for folder in folders for path in find_orphans(folder / "releases", ())]
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
    """Reset projects whose upload was cut off when the server was killed; return how many.

    For the start of a server, when no upload is in progress: a project that is being read then has a job.
    """
    read = exists().where(jobs.c.project_id == projects.c.id, jobs.c.state.in_(["queued", "running"]))
    stuck = update(projects).where(projects.c.state == "reading", ~read.where(jobs.c.kind.in_(READING)))
    state = case((projects.c.data_version > 0, "ready"), else_="empty")
    with database.write() as connection:
        return connection.execute(stuck.values(state=state, version=projects.c.version + 1)).rowcount


def _is_old(path: Path) -> bool:
    """Return True if an upload has not grown for a day; one in progress has no job yet."""
    try:
        return path.lstat().st_mtime < now() - _DAY
    except FileNotFoundError:
        return False


def _old_attempts(scratch: list[Path], fences: dict[str, int]) -> list[Path]:
    """Return the temporary files of earlier attempts at unfinished jobs."""
    alive = [path for path in scratch if path.name in fences and path.is_dir()]
    return [old for path in alive for old in find_orphans(path, {"checkpoint", str(fences[path.name])})]


# Users may write into the folders from which data files are taken, so a path component can become a symbolic link
# between check and use. A file is therefore opened component by component without following links, and then used
# through its descriptor.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Non-blocking: a path that has become a pipe would otherwise block until someone writes.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def find_in(path: Path, folders: tuple[Path, ...]) -> Path | None:
    """Return the file that a path resolves to, if it exists inside one of the folders, else None.

    A relative path is looked up in each of the folders.

    >>> find_in(Path("/etc/passwd"), (Path("/srv/data"),)) is None
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


def open_in(path: Path, folders: tuple[Path, ...]) -> int | None:
    """Open a regular file in one of the folders and return its descriptor; None if there is none, or via a link."""
    folder = _folder_of(path, folders)
    if folder is None or path == folder or ".." in path.parts:
        return None
    *between, last = path.relative_to(folder).parts
    opened: list[int] = []
    try:
        opened.append(os.open(folder, _FOLDER))
        for part in between:
            opened.append(os.open(part, _FOLDER, dir_fd=opened[-1]))
        file = os.open(last, _FILE, dir_fd=opened[-1])
    except OSError:
        return None
    finally:
        for each in opened:
            with suppress(OSError):
                os.close(each)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _folder_of(real: Path, folders: tuple[Path, ...]) -> Path | None:
    known = (Path(os.path.realpath(folder)) for folder in folders)
    return next((folder for folder in known if real.is_relative_to(folder)), None)


def delete_project(
    database: Database, store: Store, project_id: str, also: Callable[[Connection], object] | None = None
) -> bool:
    """Delete a project and erase its files; False if there was none. ``also`` runs in the same transaction.

    A running job of the project loses its row: its worker stops it at the next heartbeat.
    """
    with database.write() as connection:
        if not _empty_row(connection, projects.c.id == project_id):
            return False
        ended = connection.scalars(select(jobs.c.id).where(jobs.c.project_id == project_id)).all()
        for table in (releases, results, jobs, members):
            connection.execute(delete(table).where(table.c.project_id == project_id))
        if also is not None:
            also(connection)
    for job in ended:
        store.clear(job)
    count = store.delete(project_id)
    logs.event("project-deleted", project_id=project_id, count=count)
    return True


def delete_idle_projects(database: Database, store: Store, settings: Settings, *, at: float | None = None) -> list[str]:
    """Delete projects that have been idle for the retention period; return their ids.

    A project with a queued or running job is in use.
    """
    if settings.retention_days == 0:
        return []
    moment = now() if at is None else at
    with database.read() as connection:
        idle = connection.scalars(select(projects.c.id).where(*_idle_conditions(moment, settings.retention_days))).all()
    return [each for each in idle if delete_project(database, store, each, also=_log_expiry(each, settings))]


def _empty_row(connection: Connection, which: ColumnElement[bool]) -> bool:
    nothing: dict[str, Any] = {"name": "", "file_name": "", "records": 0}
    nothing |= {"description": null(), "recipe": null(), "settings": null(), "state": "deleted"}
    nothing |= {"version": projects.c.version + 1}
    return (
        connection.execute(update(projects).where(which, projects.c.state != "deleted").values(nothing)).rowcount == 1
    )


def _idle_conditions(moment: float, days: int) -> tuple[ColumnElement[bool], ...]:
    busy = exists().where(jobs.c.project_id == projects.c.id, jobs.c.state.in_(["queued", "running"]))
    return projects.c.state != "deleted", projects.c.used_at < moment - days * _DAY, ~busy


def _log_expiry(project_id: str, settings: Settings) -> Callable[[Connection], object]:
    detail = {"days": settings.retention_days}
    return lambda connection: auditlog.record(connection, "retention", "project.expire", project_id, detail=detail)


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
