"""Connections that stay open, and when they may not."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from safeswap.service.keeping.database import Database, open_database


def noted(path: Path, word: str) -> Database:
    database = open_database(f"sqlite:///{path}")
    with database.write() as connection:
        connection.execute(text("CREATE TABLE notes (word TEXT)"))
        connection.execute(text("INSERT INTO notes VALUES (:word)"), {"word": word})
    return database


def words(database: Database) -> list[str]:
    with database.read() as connection:
        return [*connection.execute(text("SELECT word FROM notes")).scalars()]


def test_a_connection_is_used_again(tmp_path: Path) -> None:
    database = noted(tmp_path / "a.db", "first")
    opened = []
    for _ in range(3):
        with database.read() as connection:
            opened.append(connection.connection.dbapi_connection)
    assert len({id(each) for each in opened}) == 1
    database.close()


def test_a_file_that_was_replaced_is_the_one_that_is_read(tmp_path: Path) -> None:
    database = noted(tmp_path / "a.db", "first")
    noted(tmp_path / "b.db", "restored").close()
    assert words(database) == ["first"]
    for end in ("-wal", "-shm"):
        (tmp_path / f"a.db{end}").unlink(missing_ok=True)
    (tmp_path / "b.db").replace(tmp_path / "a.db")
    assert words(database) == ["restored"]
    database.close()


def test_who_opens_a_new_file_waits_for_one_that_writes_it(tmp_path: Path) -> None:
    # SQLite answers "busy" at once to who would change the journal while another writes, whatever the timeout.
    writer = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    writer.execute("CREATE TABLE notes (word TEXT)")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO notes VALUES ('late')")
    end = threading.Timer(0.3, lambda: (writer.execute("COMMIT"), writer.close()))
    end.start()
    database = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    assert words(database) == ["late"]
    with database.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    end.join()
    database.close()


@pytest.mark.filterwarnings("ignore")  # Python warns of forks beside threads: that is what is tried
def test_behind_a_fork_connections_are_new(tmp_path: Path) -> None:
    database = noted(tmp_path / "a.db", "first")
    with database.read() as connection:
        before = id(connection.connection.dbapi_connection)
    child = os.fork()
    if child == 0:
        with database.read() as connection:
            same = id(connection.connection.dbapi_connection) == before
        os._exit(1 if same or words(database) != ["first"] else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert words(database) == ["first"]
    database.close()
