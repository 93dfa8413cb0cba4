from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from sqlalchemy import text

from safeswap.errors import InternalError
from safeswap.service.keeping import migrate
from safeswap.service.keeping.database import open_database
from safeswap.service.keeping.migrate import check, newest, upgrade
from safeswap.service.keeping.tables import metadata

UPGRADE = """
import sys
from safeswap.service.keeping.database import open_database
from safeswap.service.keeping.migrate import upgrade
print("ready", flush=True)
sys.stdin.readline()
print(upgrade(open_database(sys.argv[1])))
"""


def differences(address):
    options = {"compare_type": True, "compare_server_default": True}
    with open_database(address).read() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'safeswap.db'}"


def test_the_steps_lead_to_exactly_the_tables_of_the_code(address):
    upgrade(open_database(address))
    assert differences(address) == []


def test_a_table_without_a_step_would_be_noticed(address):
    database = open_database(address)
    upgrade(database)
    with database.write() as connection:
        connection.execute(text("DROP TABLE replies"))
    assert differences(address) != []


def test_a_second_upgrade_changes_nothing(address):
    database = open_database(address)
    upgrade(database)
    with database.write() as connection:
        connection.execute(text("INSERT INTO log_ins (id, subject, at) VALUES ('1', 'x', 0)"))
    assert upgrade(database) == newest()
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM log_ins")).scalar_one() == 1


def test_four_processes_that_upgrade_at_once_all_succeed(address):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [process.stdout.readline() for process in running] == ["ready\n"] * 4
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0].strip() for process in running] == [newest()] * 4
    assert differences(address) == []


def test_work_on_tables_of_another_version_is_refused(address):
    database = open_database(address)
    with pytest.raises(InternalError) as refused:
        check(database)
    assert refused.value.code == "schema-behind"
    upgrade(database)
    check(database)
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refuses in (check, upgrade):
        with pytest.raises(InternalError) as refused:
            refuses(database)
        assert refused.value.code == "schema-ahead"


def test_a_step_that_breaks_leaves_nothing_behind(address, monkeypatch):
    from safeswap.service.keeping import migrate

    def half_a_step(connection, _script):
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        raise RuntimeError

    monkeypatch.setattr(migrate, "_run_migrations", half_a_step)
    database = open_database(address)
    with pytest.raises(RuntimeError):
        upgrade(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT name FROM sqlite_master")).all() == []


def test_releases_from_before_the_ledger_of_content_keep_their_places(address):
    database, script = open_database(address), migrate._load_script()
    with (
        database.write() as connection,
        EnvironmentContext(Config(), script, fn=lambda at, _: script._upgrade_revs("0001", at)) as environment,
    ):
        environment.configure(connection=connection, target_metadata=metadata)
        environment.run_migrations()
        for lineage, number, release, at in (("a", 1, "r1", 1.0), ("a", 2, "r3", 3.0), ("b", 1, "r2", 2.0)):
            values = {"lineage": lineage, "number": number, "release": release, "at": at}
            row = ":lineage, :number, :release, 'manifest', 'olga', :at, ''"
            connection.execute(text(f"INSERT INTO ledger VALUES ({row})"), values)
    upgrade(database)
    with database.read() as connection:
        found = connection.execute(text("SELECT number, release_id, content FROM ledger ORDER BY number")).all()
    assert [tuple(row) for row in found] == [(1, "r1", None), (2, "r2", None), (3, "r3", None)]
    assert differences(address) == []
