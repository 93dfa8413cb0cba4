"""What a crash may leave in the store, found by comparing folders with rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from safeswap.service.store import orphans
from safeswap.service.tables import jobs, projects, releases, results

if TYPE_CHECKING:
    from safeswap.service.database import Database


def result_id(job_id: str, fence: int) -> str:
    """The name of what one attempt at a job makes: known beforehand, and never that of another attempt.

    >>> result_id("a1", 1) == result_id("a1", 1), result_id("a1", 1) == result_id("a1", 2)
    (True, False)
    """
    return hashlib.sha256(f"safeswap result {job_id} {fence}".encode()).hexdigest()[:32]


def leftovers(root: Path, database: Database) -> list[Path]:
    """Folders and files that no row of the database tells of, and that no running job is filling.

    Folders are listed before rows are read: what is made in between is not taken for a leftover.
    """
    scratch = orphans(root / "scratch", ())
    folders = orphans(root / "projects", ())
    made = [path for folder in folders for path in orphans(folder / "results", ())]
    released = [path for folder in folders for path in orphans(folder / "releases", ())]
    with database.read() as connection:
        alive = connection.execute(select(jobs.c.id, jobs.c.fence).where(jobs.c.state.in_(["queued", "running"])))
        fences = {row.id: row.fence for row in alive}
        known_projects = set(connection.scalars(select(projects.c.id).where(projects.c.state != "deleted")))
        known = set(connection.scalars(select(results.c.id))) | {result_id(*each) for each in fences.items()}
        known_releases = set(connection.scalars(select(releases.c.id)))
    return [
        *(path for path in scratch if path.name not in fences),
        *_old_attempts(scratch, fences),
        *(path for path in folders if path.name not in known_projects),
        *(path for path in made if path.parent.parent.name in known_projects and path.name not in known),
        *(path for path in released if path.parent.parent.name in known_projects and path.name not in known_releases),
    ]


def _old_attempts(scratch: list[Path], fences: dict[str, int]) -> list[Path]:
    """Temporary files of earlier attempts at a job that is still to be done."""
    alive = [path for path in scratch if path.name in fences and path.is_dir()]
    return [old for path in alive for old in orphans(path, {"checkpoint", str(fences[path.name])})]
