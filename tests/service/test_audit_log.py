"""The audit log is a chain: whatever is done to it afterwards shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, insert, select, update
from tests.service.installed import database_of, settings_in
from tests.service.serving import Running, running

from safeswap.service.keeping import auditlog
from safeswap.service.keeping.auditlog import Anchor
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.tables import audit_log

Tamper = Callable[[Connection], object]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    settings = settings_in(tmp_path)
    database_of(settings).close()
    found = open_database(settings.database)  # without a key: what the chain alone shows
    with found.write() as connection:
        for number in range(1, 7):
            auditlog.record(connection, "ada", "act", "project", str(number), {"number": number, "ü": [1.5, None]})
    return found


def test_an_untouched_log_is_found_whole(database: Database) -> None:
    found = auditlog.verify(database, anchors=[auditlog.end(database)])
    assert (found.ok, found.entries, found.end) == (True, 6, auditlog.end(database))


def _change(**values: object) -> Tamper:
    return lambda connection: connection.execute(update(audit_log).where(audit_log.c.number == 3).values(**values))


def _remove(number: int) -> Tamper:
    return lambda connection: connection.execute(delete(audit_log).where(audit_log.c.number == number))


def _swap_two(connection: Connection) -> None:
    for old, new in ((3, 99), (4, 3), (99, 4)):
        connection.execute(update(audit_log).where(audit_log.c.number == old).values(number=new))


def _rehash_one(connection: Connection) -> None:
    """Change an entry and give it the hash that fits: the next one no longer follows it."""
    row = dict(connection.execute(select(audit_log).where(audit_log.c.number == 3)).mappings().one())
    row.pop("hash")
    row["actor"] = "eve"
    connection.execute(update(audit_log).where(audit_log.c.number == 3).values(actor="eve", hash=auditlog._hash(row)))


def _insert_between(connection: Connection) -> None:
    row = dict(connection.execute(select(audit_log).where(audit_log.c.number == 6)).mappings().one())
    connection.execute(insert(audit_log).values({**row, "number": 7, "hash": "f" * 64}))


@pytest.mark.parametrize(
    ("tamper", "first_broken"),
    [
        (_change(actor="eve"), 3),
        (_change(detail="{}"), 3),
        (_change(at=1.0), 3),
        (_change(project_id="other"), 3),
        (_change(hash="e" * 64), 3),
        (_change(previous="e" * 64), 3),
        (_remove(1), 2),
        (_remove(3), 4),
        (_swap_two, 3),
        (_rehash_one, 4),
        (_insert_between, 7),
    ],
)
def test_a_log_that_was_tampered_with_is_found_out(database: Database, tamper: Tamper, first_broken: int) -> None:
    with database.write() as connection:
        tamper(connection)
    found = auditlog.verify(database)
    assert (found.ok, found.first_broken) == (False, first_broken)
    assert found.problem


def test_an_anchor_shows_that_the_end_was_cut_off(database: Database) -> None:
    anchor = auditlog.end(database)
    with database.write() as connection:
        connection.execute(delete(audit_log).where(audit_log.c.number > 4))
    assert auditlog.verify(database).ok, "the chain itself cannot tell"
    found = auditlog.verify(database, anchors=[anchor])
    assert (found.ok, found.first_broken) == (False, 5)


def test_an_anchor_shows_that_everything_was_written_anew(database: Database) -> None:
    anchor = auditlog.end(database)
    with database.write() as connection:
        connection.execute(delete(audit_log))
        for number in range(8):
            auditlog.record(connection, "eve", "act", "project", str(number))
    assert auditlog.verify(database).ok
    found = auditlog.verify(database, anchors=[Anchor(number=2, hash="0" * 64), anchor])
    assert (found.ok, found.first_broken) == (False, 2)


def test_what_is_undone_leaves_no_entry(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as connection:
        auditlog.record(connection, "ada", "act")
        raise RuntimeError
    assert auditlog.end(database).number == 6


def test_many_writers_make_one_chain(database: Database) -> None:
    def write() -> None:
        for _ in range(5):
            with database.write() as connection:
                auditlog.record(connection, "ada", "act")

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = auditlog.verify(database)
    assert (found.ok, found.entries) == (True, 26)


def test_every_start_writes_an_anchor_down(tmp_path: Path) -> None:
    with running(tmp_path) as here:
        here.client("vera").delete("/api/v1/session")
    with running(tmp_path, people=False) as here:
        service = here.service
        kept = auditlog.read_anchors(service.store.root / auditlog.ANCHORS)
        assert [each.number for each in kept] == [0, 1]
        assert (service.store.root / auditlog.ANCHORS).stat().st_mode & 0o077 == 0
        with service.database.write() as connection:
            connection.execute(delete(audit_log))
            auditlog.record(connection, "eve", "act")
        assert auditlog.verify(service.database).ok
        found = here.client("adam").get("/api/v1/audit-log/verification").json()
        assert (found["ok"], found["first_broken"]) == (False, 1)


def test_a_line_of_the_anchors_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "anchors").write_text('{"hash":"00","number":1}\n{"hash":"0')
    assert auditlog.read_anchors(tmp_path / "anchors") == [Anchor(number=1, hash="00")]


def test_an_administrator_asks_for_the_verdict_and_the_anchor(town: Running) -> None:
    admin = town.client("adam")
    town.client("vera").delete("/api/v1/session")
    first = admin.get("/api/v1/audit-log/verification").json()
    assert first["ok"] is True
    anchor = {"number": first["number"], "hash": first["hash"]}
    assert admin.get("/api/v1/audit-log/verification", params=anchor).json()["ok"] is True
    wrong = admin.get("/api/v1/audit-log/verification", params={**anchor, "hash": "0" * 64}).json()
    assert wrong["ok"] is False
    newest = admin.get("/api/v1/audit-log", params={"limit": 1}).json()["items"][0]
    assert newest["number"] >= first["number"]
