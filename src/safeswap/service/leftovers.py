"""What a crash may leave in the store, found by comparing folders with rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import case, exists, select, update

from safeswap.service.database import now
from safeswap.service.store import orphans
from safeswap.service.tables import jobs, projects, releases, results

if TYPE_CHECKING:
    from safeswap.service.database import Database

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
