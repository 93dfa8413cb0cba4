from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import insert, update
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap.errors import OutputError, SpecError
from safeswap.service.keeping import store as erasing
from safeswap.service.keeping.database import now
from safeswap.service.keeping.store import Store, result_id
from safeswap.service.keeping.tables import projects, results
from safeswap.service.settings import Limits
from safeswap.service.work.jobs import Queue


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(settings_in(tmp_path))


def filled(folder: Path, name: str = "file", content: str = "x") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_every_folder_is_its_owners_alone(store):
    before = os.umask(0)
    try:
        store.data("a", 1), store.result("a", "b"), store.release("a", "c"), store.uploads("a"), store.scratch("d", 2)
        store.checkpoint("d")
    finally:
        os.umask(before)
    made = [path for path in store.root.rglob("*") if path.is_dir()]
    assert len(made) == 13
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "/etc", "a" * 65, ".deleted-1", "a\0", "ä", "a\n"])
def test_no_name_leads_out_of_the_store(store, name):
    for ask in (store.project, store.exists, store.delete, store.clear, lambda each: store.result("a", each)):
        with pytest.raises(SpecError):
            ask(name)


def test_a_project_may_not_take_more_than_its_share(tmp_path):
    settings = settings_in(tmp_path, limits=Limits(project_bytes=100, reserve_bytes=0))
    store = Store(settings)
    filled(store.data("a", 1), content="x" * 60)
    assert store.count_bytes("a") == 60
    store.check_room("a", 40)
    with pytest.raises(OutputError) as refused:
        store.check_room("a", 41)
    assert refused.value.code == "over-quota"


def test_room_is_kept_free_on_the_disk(tmp_path):
    store = Store(settings_in(tmp_path, limits=Limits(reserve_bytes=2**62)))
    with pytest.raises(OutputError) as refused:
        store.check_room("a", 1)
    assert refused.value.code == "disk-full"


def test_what_is_deleted_was_overwritten_before_it_went(store, monkeypatch):
    path = filled(store.data("a", 1), content="secret")
    with path.open("rb") as open_before:
        kept = []
        monkeypatch.setattr(erasing.os, "ftruncate", lambda *_: kept.append(open_before.read()))
        assert store.delete("a") == 1
    assert kept == [bytes(6)]
    assert not store.exists("a")


def test_deleting_follows_no_link_out_of_the_project(store, tmp_path):
    outside = filled(tmp_path, "outside", "mine")
    (tmp_path / "folder").mkdir()
    inside_folder = filled(tmp_path / "folder", "inside", "mine")
    second_name = filled(tmp_path, "shared", "mine")
    folder = store.data("a", 1)
    (folder / "link").symlink_to(outside)
    (folder / "folder").symlink_to(tmp_path / "folder", target_is_directory=True)
    (folder / "shared").hardlink_to(second_name)
    store.delete("a")
    assert not store.exists("a")
    assert [path.read_text() for path in (outside, inside_folder, second_name)] == ["mine"] * 3


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_sweep(store, tmp_path, monkeypatch):
    filled(store.data("a", 1))
    with monkeypatch.context() as patched:
        patched.setattr("safeswap.service.keeping.store.erase", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.delete("a")
    assert not store.exists("a")
    assert list((store.root / "projects").iterdir()) != []
    store.sweep(database_of(settings_in(tmp_path)))
    assert list((store.root / "projects").iterdir()) == []


def test_a_sweep_takes_what_no_row_tells_of_and_nothing_else(store, tmp_path):
    settings = settings_in(tmp_path, workers=3)  # two jobs of one person run at a time
    database = database_of(settings)
    queue, user = Queue(database, settings), add_user(database)
    project = add_project(database, store, user=user)
    gone = add_project(database, store, user=user)
    with database.write() as connection:
        connection.execute(update(projects).where(projects.c.id == gone).values(state="deleted"))
    ids = [queue.enqueue("study", {}, project_id=project, created_by=user) for _ in range(3)]
    first = queue.claim("w")
    done = queue.claim("w")
    queue.succeed(done, None)
    (waiting,) = set(ids) - {first.id, done.id}
    with database.write() as connection:
        row = {"id": "kept", "project_id": project, "kind": "study", "data_version": 1, "spec": {}, "summary": {}}
        connection.execute(insert(results).values(**row, created_by=user, created_at=now()))
    stays = [
        filled(store.scratch(first.id, first.fence)),
        filled(store.checkpoint(first.id)),
        filled(store.checkpoint(waiting)),
        filled(store.data(project, 1)),
        filled(store.result(project, "kept")),
        filled(store.result(project, result_id(first.id, first.fence))),
    ]
    goes = [
        filled(store.scratch(first.id, first.fence - 1)),
        filled(store.scratch(done.id, done.fence)),
        filled(store.checkpoint(done.id)),
        filled(store.scratch("unknown")),
        filled(store.data(gone, 1)),
        filled(store.result(project, "unknown")),
        filled(store.release(project, "unknown")),
    ]
    assert store.sweep(database) == len(goes)
    assert all(path.exists() for path in stays)
    assert not any(path.exists() for path in goes)
    assert store.sweep(database) == 0
