"""What an administrator does on the machine of the service, and what she is told when it does not work."""

import sqlite3

import pytest


@pytest.fixture
def settings(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(f'store = "{tmp_path / "store"}"\nmaster_key_file = "{tmp_path / "keys" / "master.key"}"\n')
    return file


@pytest.fixture
def made(safeswap, settings):
    run = safeswap("admin", "init", "--settings", settings)
    assert run.code == 0, run.said
    return settings


@pytest.mark.parametrize("command", [["serve"], ["admin", "worker"], ["admin", "check-log"]])
def test_a_service_that_was_never_made_says_how_to_make_it(safeswap, settings, command):
    run = safeswap(*command, "--settings", settings)
    assert run.code == 3
    assert "there is no master key" in run.stderr
    assert "safeswap admin init" in run.stderr
    assert not (settings.parent / "store").exists()


def test_making_it_again_changes_nothing(safeswap, made):
    key = (made.parent / "keys" / "master.key").read_bytes()
    assert safeswap("admin", "init", "--settings", made).code == 0
    assert (made.parent / "keys" / "master.key").read_bytes() == key


def test_a_log_whose_end_was_cut_off_is_found_out_by_the_anchors_of_earlier_starts(safeswap, made):
    assert safeswap("admin", "add-user", "ada", "--role", "admin", "--no-password", "--settings", made).code == 0
    assert safeswap("admin", "check-log", "--settings", made).code == 0
    with sqlite3.connect(made.parent / "store" / "safeswap.db") as connection:
        connection.execute("DELETE FROM audit_log WHERE number = (SELECT max(number) FROM audit_log)")
    connection.close()
    run = safeswap("admin", "check-log", "--settings", made)
    assert run.code != 0
    assert "missing at the end" in run.stderr


def test_a_backup_is_restored_to_an_empty_place_and_overwrites_nothing(safeswap, made):
    backup, store = made.parent / "backup", made.parent / "store"
    assert safeswap("admin", "back-up", backup, "--settings", made).code == 0
    again = safeswap("admin", "back-up", backup, "--settings", made)
    assert (again.code, "name a new folder" in again.stderr) == (8, True)
    assert "is not empty" in safeswap("admin", "restore", backup, "--settings", made).stderr
    store.rename(made.parent / "old")
    assert safeswap("admin", "restore", backup, "--settings", made).code == 0
    assert safeswap("admin", "check-log", "--settings", made).code == 0


def test_another_place_for_sqlite_is_refused(safeswap, made):
    made.write_text(made.read_text() + 'database_url = "sqlite:////elsewhere.db"\n')
    run = safeswap("admin", "check-log", "--settings", made)
    assert (run.code, "SQLite lies in the store" in run.stderr) == (4, True)


def test_the_policy_of_the_agency_is_shown_and_replaced(safeswap, made, tmp_path):
    run = ("admin", "policy", "--settings", made, "--json")
    assert safeswap(*run).document["limits"]["bundle_traces"] == 0
    file = tmp_path / "policy.toml"
    file.write_text('name = "ours"\n[limits]\nlinkage = 0.05\n')
    assert safeswap(*run, file).document["limits"] == {"linkage": 0.05}
    file.write_text("[limits]\nlinkages = 0.05\n")
    assert safeswap(*run, file).document["code"] == "unknown-attack"
    assert safeswap(*run).document["name"] == "ours"
    assert safeswap("admin", "check-log", "--settings", made).code == 0
