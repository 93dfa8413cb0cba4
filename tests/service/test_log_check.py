"""What ``check-log`` finds out: a chain made anew, a release that the log does not know, a damaged file."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError
from tests.service.at_work import Case
from tests.service.serving import Running, running
from typer.testing import CliRunner

from safeswap.cli.service import admin
from safeswap.service.keeping import auditlog
from safeswap.service.keeping import auditlog as log_check
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.tables import audit_log, releases


def rewrite(database: Database, key: bytes | None) -> None:
    """Make the whole chain anew after changing an entry, as somebody who can write to the database would."""
    last = auditlog.FIRST
    with database.write() as connection:
        rows = connection.execute(select(audit_log).order_by(audit_log.c.number)).mappings().all()
        for row in rows:
            entry = {**row, "previous": last, "actor": "eve" if row["number"] == 1 else row["actor"]}
            entry.pop("hash")
            last = auditlog._hash(entry, key)
            mine = audit_log.c.number == entry["number"]
            connection.execute(
                update(audit_log).where(mine).values(actor=entry["actor"], previous=entry["previous"], hash=last)
            )


def entry(here: Running) -> None:
    with here.service.database.write() as connection:
        auditlog.record(connection, "ada", "act")


def test_a_chain_made_anew_without_the_master_key_is_found_out(tmp_path: Path) -> None:
    with running(tmp_path) as here:
        entry(here)
        database = here.service.database
        assert (sound := log_check.check(database)).ok, sound.problem
        rewrite(database, None)
        found = log_check.check(database)
        assert (found.ok, found.first_broken, found.problem) == (False, 1, "it has been changed")


def test_entries_of_an_earlier_version_are_believed_up_to_a_seal_under_the_master_key(tmp_path: Path) -> None:
    with running(tmp_path) as here:
        plain = open_database(here.service.settings.database)
        with plain.write() as connection:
            auditlog.record(connection, "ada", "old")
        path = tmp_path / "anchors"
        assert not log_check.check(here.service.database).ok
        auditlog.append_anchor(here.service.database, path, unkeyed=True)
        entry(here)
        assert log_check.check(here.service.database, anchors=auditlog.read_anchors(path)).ok
        with plain.write() as connection:
            auditlog.record(connection, "eve", "forged")
        assert not log_check.check(here.service.database, anchors=auditlog.read_anchors(path)).ok
        plain.close()


@pytest.fixture(scope="module")
def approved(town: Running) -> Case:
    case = Case(town, seed=77)
    assert case.approve(case.olga).status_code == 200
    return case


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"manifest_hash": "0" * 64}, "another manifest"),
        ({"decided_by": "otto"}, "another officer"),
        ({"state": "rejected"}, "it is not there"),
        ({"single_user": True}, "by a second person"),
    ],
)
def test_an_approval_that_the_log_tells_otherwise_is_found_out(town, approved, values, problem):
    database, mine = town.service.database, releases.c.id == approved.address.rpartition("/")[2]
    values = {name: town.user_id(value) if name == "decided_by" else value for name, value in values.items()}
    assert (sound := log_check.check(database)).ok, sound.problem
    with database.write() as connection:
        before = connection.execute(select(*(releases.c[name] for name in values)).where(mine)).mappings().one()
        connection.execute(update(releases).where(mine).values(values))
    try:
        found = log_check.check(database)
        assert not found.ok
        assert problem in found.problem
    finally:
        with database.write() as connection:
            connection.execute(update(releases).where(mine).values(dict(before)))


def test_a_release_that_was_approved_beside_the_log_is_found_out(town):
    case = Case(town, seed=78)
    mine = releases.c.id == case.address.rpartition("/")[2]
    with town.service.database.write() as connection:
        values = {"state": "approved", "decided_by": town.user_id("olga")}
        connection.execute(update(releases).where(mine).values(values))
    found = log_check.check(town.service.database)
    with town.service.database.write() as connection:
        connection.execute(update(releases).where(mine).values(state="requested", decided_by=None))
    assert "the log does not say so" in found.problem


@pytest.mark.parametrize("who", ["ana", None])
def test_the_database_itself_refuses_an_approval_by_whoever_asked_or_by_nobody(town, who):
    case = Case(town, seed=79)
    values = {"state": "approved", "decided_by": town.user_id(who) if who else None}
    mine = releases.c.id == case.address.rpartition("/")[2]
    with pytest.raises(IntegrityError), town.service.database.write() as connection:
        connection.execute(update(releases).where(mine).values(values))


def test_check_log_notes_the_end_of_a_good_log_and_appends_nothing_to_a_broken_one(tmp_path):
    with running(tmp_path) as here:
        entry(here)
        settings = here.service.settings
    stated = ["--store", str(settings.store), "--master-key", str(settings.master_key_file)]
    anchors = settings.store / auditlog.ANCHORS
    before = anchors.read_bytes()
    assert CliRunner().invoke(admin, ["check-log", *stated]).exit_code == 0
    assert anchors.read_bytes().startswith(before)
    good = anchors.read_bytes()
    assert len(good) > len(before)
    database = open_database(settings.database)
    with database.write() as connection:
        connection.execute(text("UPDATE audit_log SET actor = 'eve'"))
    database.close()
    assert CliRunner().invoke(admin, ["check-log", *stated]).exit_code != 0
    assert anchors.read_bytes() == good


def test_a_row_that_refers_to_nothing_is_damage(tmp_path):
    with running(tmp_path) as here:
        database = here.service.database
        with database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            raw.execute("PRAGMA foreign_keys=OFF")
            raw.execute("INSERT INTO members (project_id, user_id, added_at) VALUES ('none', 'none', 0)")
            raw.execute("PRAGMA foreign_keys=ON")
        found = log_check.check(database)
        assert (found.ok, found.problem) == (False, "the table members refers to a row that is not there")
