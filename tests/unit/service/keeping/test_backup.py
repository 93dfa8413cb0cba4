from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from sqlalchemy import insert, select
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap.errors import InputError, OutputError
from safeswap.service.keeping.database import now, open_database
from safeswap.service.keeping.migrate import back_up, check, check_backup, restore
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import projects, results
from safeswap.service.keeping.vault import open_vault
from safeswap.service.settings import Settings


class Place:
    """A service with a project that has data, a key and results."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_in(folder)
        self.database, self.store = database_of(self.settings), Store(self.settings)
        self.user = add_user(self.database)
        self.project = add_project(self.database, self.store, user=self.user, name="survey")
        self.key = open_vault(self.settings).project_key(self.project)
        (self.store.data(self.project, 1) / "data.parquet").write_text("records")
        self.add_result("r0")
        (self.store.root / "audit-anchors.jsonl").write_text("{}")

    def add_result(self, name: str) -> None:
        """As jobs do it: the files first, then the row."""
        (self.store.result(self.project, name) / "report.html").write_text(name)
        row = {"id": name, "project_id": self.project, "kind": "masking", "data_version": 1, "spec": {}, "summary": {}}
        with self.database.write() as connection:
            connection.execute(insert(results).values(**row, created_by=self.user, created_at=now()))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def elsewhere(place: Place, folder: Path) -> Settings:
    return Settings(store=folder / "again", master_key_file=place.settings.master_key_file)


def test_a_service_can_be_made_again_from_its_backup_and_its_master_key(place, tmp_path):
    told = back_up(place.settings, tmp_path / "copy")
    assert told == {"database": True, "files": 5}
    again = elsewhere(place, tmp_path)
    assert restore(again, tmp_path / "copy") == 5
    database = open_database(again.database)
    check(database)
    store = Store(again)
    assert store.sweep(database) == 0
    with database.read() as connection:
        assert connection.scalars(select(projects.c.name)).all() == ["survey"]
    assert open_vault(again).project_key(place.project) == place.key
    assert (store.root / "audit-anchors.jsonl").read_text() == "{}"
    assert (store.data(place.project, 1) / "data.parquet").read_text() == "records"
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in store.root.rglob("*")}
    assert {mode for is_folder, mode in modes if is_folder} == {0o700}


def test_the_master_key_is_not_in_a_backup(place, tmp_path):
    back_up(place.settings, tmp_path / "copy")
    key = place.settings.master_key_file.read_bytes()
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and key in path.read_bytes()]
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_a_backup_taken_while_jobs_succeed_has_every_file_that_its_rows_tell_of(place, tmp_path):
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            place.add_result(f"r{number}")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(3):
            back_up(place.settings, tmp_path / f"copy{number}")
    finally:
        stop.set()
        worker.join()
    for number in range(3):
        again = Settings(store=tmp_path / f"again{number}", master_key_file=place.settings.master_key_file)
        restore(again, tmp_path / f"copy{number}")
        database = open_database(again.database)
        with database.read() as connection:
            known = connection.scalars(select(results.c.id)).all()
        store = Store(again)
        store.sweep(database)
        folder = store.project(place.project) / "results"
        assert sorted(path.name for path in folder.iterdir()) == sorted(known)
        assert all((folder / name / "report.html").read_text() == name for name in known)


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "no note", "no backup"])
def test_a_backup_that_is_not_whole_is_refused(place, tmp_path, harm):
    copy = tmp_path / "copy"
    back_up(place.settings, copy)
    file = next(copy.rglob("data.parquet"))
    {
        "changed": lambda: file.write_text("recordz"),
        "missing": file.unlink,
        "added": lambda: (copy / "more").write_text("x"),
        "no note": (copy / "backup.json").unlink,
        "no backup": lambda: copy.rename(tmp_path / "gone"),
    }[harm]()
    with pytest.raises(InputError) as refused:
        check_backup(copy)
    assert refused.value.code == "bad-backup"
    with pytest.raises(InputError):
        restore(elsewhere(place, tmp_path), copy)
    assert not (tmp_path / "again").exists()


def test_a_store_that_is_there_is_never_overwritten(place, tmp_path):
    back_up(place.settings, tmp_path / "copy")
    with pytest.raises(OutputError) as refused:
        restore(place.settings, tmp_path / "copy")
    assert refused.value.code == "exists"
    with pytest.raises(OutputError):
        back_up(place.settings, tmp_path / "copy")
