"""The same on PostgreSQL, for real: a server of its own, which is crashed and started again in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text
from tests.service import hard_jobs
from tests.service.claiming import check_none_twice_none_lost, claim_all_at_once, start
from tests.service.installed import add_project, add_user, database_of, settings_in
from tests.service.postgres import Cluster, programs

from safeswap.service.keeping.database import open_database
from safeswap.service.keeping.migrate import check, newest, upgrade
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import metadata, projects
from safeswap.service.settings import Settings
from safeswap.service.work.jobs import Queue
from safeswap.service.work.worker import Worker

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = programs()
    if found is None:
        pytest.skip("NOT TESTED ON POSTGRESQL: no initdb and pg_ctl on this machine; run tools/install-postgres")
    made = Cluster.make(found)
    made.start()
    yield made
    made.remove()


@pytest.fixture
def settings(cluster: Cluster, tmp_path: Path) -> Iterator[Settings]:
    settings = settings_in(tmp_path, database_url=cluster.address, lease_seconds=5)
    yield settings
    database = open_database(settings.database)
    with database.write() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    database.close()


def test_the_steps_lead_to_exactly_the_tables_of_the_code(settings):
    database = open_database(settings.database)
    assert upgrade(database) == upgrade(database) == newest()
    check(database)
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_claims_survive_kills_of_workers_and_a_crash_of_the_server(settings, cluster, tmp_path):
    database_of(settings).close()
    running = start(settings, tmp_path, jobs=600, kills=5, lease=1.0)
    time.sleep(1.0)
    cluster.stop("immediate")
    time.sleep(0.5)
    cluster.start()
    check_none_twice_none_lost(running, number=600)


def test_looking_first_and_taking_afterwards_does_not_pass_the_same_test(settings, tmp_path):
    database_of(settings).close()
    running = start(settings, tmp_path, jobs=300, queue="naive", patience=3)
    with pytest.raises(AssertionError, match="handed out twice"):
        check_none_twice_none_lost(running, number=300)


def test_a_worker_outlives_a_crash_of_the_server_in_the_middle_of_a_job(settings, cluster, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    database, store = database_of(settings), Store(settings)
    user = add_user(database)
    project = add_project(database, store, user=user)
    queue = Queue(database, settings)
    job = queue.enqueue("wait", {}, project_id=project, created_by=user)
    worker = Worker(settings, database=database, modules=hard_jobs.MODULES)
    doing = threading.Thread(target=worker.run_until_idle)
    doing.start()
    begun = store.checkpoint(job) / "pid"
    while not begun.exists():
        time.sleep(0.05)
    cluster.stop("immediate")
    time.sleep(1.5)  # long enough for a heartbeat to fail, shorter than the lease
    cluster.start()
    assert queue.get(job)["state"] == "running"
    assert queue.cancel(job)
    doing.join()
    row = queue.get(job)
    assert (row["state"], row["attempts"]) == ("cancelled", 1)
    database.close()


def test_a_file_is_read_in_by_a_worker_whose_process_reaches_no_database(settings):
    database, store = database_of(settings), Store(settings)
    user = add_user(database)
    project = add_project(database, store, user=user, state="reading")
    (store.uploads(project) / "sent").write_text("id,sex\n1,f\n2,m\n3,m\n4,m\n")
    queue = Queue(database, settings)
    job = queue.enqueue("ingest", {"upload": "sent", "name": "a.csv"}, project_id=project, created_by=user)
    Worker(settings, database=database).run_until_idle()
    assert queue.get(job)["state"] == "succeeded"
    with database.read() as connection:
        row = connection.execute(select(projects)).mappings().one()
    assert (row["state"], row["records"], row["data_version"]) == ("ready", 4, 1)
    database.close()


def test_claims_at_the_same_moment_leave_a_worker_for_the_others(settings):
    assert claim_all_at_once(settings.model_copy(update={"workers": 3}), times=40) == [2] * 40
