from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import func, insert, select
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import now
from safeswap.service.keeping.store import Store, delete_idle_projects, delete_project
from safeswap.service.keeping.tables import audit_log, jobs, ledger, members, projects, releases, results
from safeswap.service.work.jobs import Queue

DAY = 24 * 3600


class Place:
    """A service with one person and projects full of everything."""

    def __init__(self, folder: Path, **given) -> None:
        self.settings = settings_in(folder, **given)
        self.database, self.store = database_of(self.settings), Store(self.settings)
        self.queue = Queue(self.database, self.settings)
        self.user = add_user(self.database)
        self.officer = add_user(self.database, "olga", "officer")

    def full_project(self, **given) -> str:
        project = add_project(
            self.database, self.store, user=self.user, description={"town": "Rareville"}, file_name="a.csv", **given
        )
        job = self.queue.enqueue("mask", {"town": "Rareville"}, project_id=project, created_by=self.user)
        common = {"project_id": project, "job_id": job}
        made = {"id": f"r{project[:8]}", "kind": "masking", "data_version": 1, "spec": {}, "summary": {}}
        left = {"id": f"e{project[:8]}", "masking_id": made["id"], "state": "approved", "terms": {}}
        left["decided_by"] = self.officer
        place = self.count(ledger) + 1
        with self.database.write() as connection:
            connection.execute(insert(members).values(project_id=project, user_id=self.user, added_at=now()))
            connection.execute(insert(results).values(**common, **made, created_by=self.user, created_at=now()))
            connection.execute(insert(releases).values(**common, **left, requested_by=self.user, requested_at=now()))
            connection.execute(
                insert(ledger).values(
                    number=place,
                    release_id=left["id"],
                    manifest_hash="0",
                    approved_by="b",
                    approved_at=1,
                )
            )
        (self.store.data(project, 1) / "data.parquet").write_text("Rareville")
        (self.store.checkpoint(job) / "block").write_text("Rareville")
        return project

    def count(self, table) -> int:
        with self.database.read() as connection:
            return connection.scalar(select(func.count()).select_from(table))

    def end_jobs(self) -> None:
        while claim := self.queue.claim("w"):
            self.queue.succeed(claim, None)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_of_a_deleted_project_an_empty_row_and_the_ledger_stay_and_nothing_else(place):
    project, other = place.full_project(), place.full_project()
    assert delete_project(place.database, place.store, project)
    with place.database.read() as connection:
        row = connection.execute(select(projects).where(projects.c.id == project)).mappings().one()
    assert (row["state"], row["name"], row["file_name"], row["description"]) == ("deleted", "", "", None)
    assert [place.count(table) for table in (jobs, results, releases, members, ledger)] == [1, 1, 1, 1, 2]
    assert not place.store.exists(project)
    assert place.store.exists(other)
    assert len(list((place.store.root / "scratch").iterdir())) == 1
    assert not delete_project(place.database, place.store, project)


def test_no_value_of_a_deleted_project_is_left_in_any_file_of_the_store(place):
    delete_project(place.database, place.store, place.full_project())
    place.database.close()
    left = [path.name for path in place.store.root.rglob("*") if path.is_file() and b"Rareville" in path.read_bytes()]
    assert left == []


def test_if_what_goes_with_it_fails_nothing_is_deleted(place):
    project = place.full_project()

    def broken(_connection):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        delete_project(place.database, place.store, project, also=broken)
    assert place.store.exists(project)
    assert place.count(members) == 1


def test_a_worker_whose_project_is_deleted_is_not_heard(place):
    project = place.full_project()
    claim = place.queue.claim("w")
    delete_project(place.database, place.store, project)
    assert not place.queue.heartbeat(claim)
    assert not place.queue.succeed(claim, None)


def test_idle_projects_go_after_the_agreed_days_and_the_log_says_so(tmp_path):
    place = Place(tmp_path, retention_days=30)
    old, busy = place.full_project(used_at=now() - 31 * DAY), None
    place.end_jobs()
    busy = place.full_project(used_at=now() - 31 * DAY)
    young = place.full_project(used_at=now() - 29 * DAY)
    assert delete_idle_projects(place.database, place.store, place.settings) == [old]
    assert [place.store.exists(each) for each in (old, busy, young)] == [False, True, True]
    with place.database.read() as connection:
        (entry,) = connection.execute(select(audit_log)).mappings()
    assert (entry["actor"], entry["action"], entry["project_id"]) == ("retention", "project.expire", old)
    assert auditlog.verify(place.database).ok
    assert delete_idle_projects(place.database, place.store, place.settings) == []


def test_without_an_agreed_time_nothing_is_deleted(place):
    project = place.full_project(used_at=0.0)
    place.end_jobs()
    assert delete_idle_projects(place.database, place.store, place.settings) == []
    assert place.store.exists(project)
