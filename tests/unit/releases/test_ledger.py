"""The ledger file: private, sealed, named once, and whole or not there."""

import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from tests.hand_made import KEY, account_of, masked_survey, survey

from safeswap.errors import InputError, OutputError, SpecError, UnsafeRelease
from safeswap.model.ledger import make_entry
from safeswap.releases import publish
from safeswap.releases.ledger import LedgerFile, configured_ledger
from safeswap.releases.publish import Terms, check_and_write


def release(folder: Path, name: str, *, masked=None, ledger=None, **terms):
    masked = masked or masked_survey()
    return check_and_write(
        masked,
        public=folder / name,
        audit=folder / f"{name}-audit",
        key=KEY,
        account=account_of(masked),
        terms=Terms(method="Swapped.", **terms),
        ledger=ledger,
    )


def entries(ledger: LedgerFile) -> list:
    with ledger.open() as book:
        return list(book.entries())


def test_the_ledger_and_its_key_are_their_owners_alone_and_tell_nothing(tmp_path, own_ledger):
    release(tmp_path, "one")
    key = own_ledger.with_suffix(".key")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own_ledger, key)] == [0o600, 0o600]
    content = own_ledger.read_bytes()
    assert not any(word in content for word in (b"Race", b"white", b"release", b"audit", str(tmp_path).encode()))


def test_another_audit_directory_does_not_hide_an_earlier_release(tmp_path):
    release(tmp_path, "one")
    with pytest.raises(UnsafeRelease) as caught:
        release(tmp_path, "two", masked=masked_survey(seed=5))
    assert caught.value.code == "second-release"
    assert "About 100% of these records" in caught.value.message
    assert not (tmp_path / "two").exists()
    assert not (tmp_path / "two-audit").exists()


def test_a_bundle_with_several_entries_is_told_once(tmp_path, own_ledger):
    release(tmp_path, "one")
    release(tmp_path, "again")
    assert len({entry.release for entry in entries(LedgerFile(own_ledger))}) == 1 < len(entries(LedgerFile(own_ledger)))
    with pytest.raises(UnsafeRelease) as caught:
        release(tmp_path, "two", masked=masked_survey(seed=5))
    assert caught.value.message.count("About 100% of these records") == 1
    assert len(caught.value.fields["differencing"]) == 1


def test_the_reason_of_a_second_release_is_kept(tmp_path, own_ledger):
    release(tmp_path, "one")
    release(tmp_path, "two", masked=masked_survey(seed=5), second_release="corrected weights")
    assert [entry.reason for entry in entries(LedgerFile(own_ledger))] == ["", "corrected weights"]


def test_an_earlier_record_that_is_gone_makes_figures_impossible_and_not_the_alarm(tmp_path):
    first = release(tmp_path, "one")
    for path in first.audit.iterdir():
        path.unlink()
    with pytest.raises(UnsafeRelease) as caught:
        release(tmp_path, "two", masked=masked_survey(seed=5))
    assert "cannot be counted" in caught.value.message


def test_other_contents_under_the_same_identifiers_are_mentioned(tmp_path):
    release(tmp_path, "one")
    done = release(tmp_path, "two", masked=masked_survey(survey(400, seed=9)))
    assert "equal-identifiers" in {remark.code for remark in done.remarks}


@pytest.mark.parametrize("step", ["_write_record", "make_entry", "compare_releases"])
def test_a_release_that_is_cut_short_leaves_no_entry(tmp_path, own_ledger, monkeypatch, step):
    release(tmp_path, "one")

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(publish, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        release(tmp_path, "two", masked=masked_survey(seed=5), second_release="again")
    assert len(entries(LedgerFile(own_ledger))) == 1


def test_an_entry_is_taken_back_if_the_bundle_does_not_get_its_name(tmp_path):
    ledger = LedgerFile(tmp_path / "ledger.db")
    with pytest.raises(KeyboardInterrupt), ledger.open() as book:
        assert list(book.entries()) == []
        book.enter(make_entry(masked_survey(), ledger.secret))
        raise KeyboardInterrupt
    assert entries(ledger) == []


def test_of_two_releases_at_the_same_moment_the_second_sees_the_first(tmp_path):
    ledger, order = LedgerFile(tmp_path / "ledger.db"), []
    entry = make_entry(masked_survey(), ledger.secret)
    entries(ledger)
    started = threading.Barrier(2)

    def run():
        started.wait()
        with ledger.open() as book:
            order.append(len(list(book.entries())))
            book.enter(entry)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == [0, 1]


def test_a_ledger_without_its_key_or_with_another_is_refused(tmp_path):
    path = tmp_path / "ledger.db"
    release(tmp_path, "one", ledger=LedgerFile(path))
    path.with_suffix(".key").rename(tmp_path / "away.key")
    with pytest.raises(InputError) as caught:
        release(tmp_path, "two", ledger=LedgerFile(path))
    assert caught.value.code == "no-ledger-key"
    other = LedgerFile(tmp_path / "other.db")
    assert entries(other) == []
    with pytest.raises(InputError) as caught:
        entries(LedgerFile(path, tmp_path / "other.key"))
    assert caught.value.code == "ledger-damaged"
    assert len(entries(LedgerFile(path, tmp_path / "away.key"))) == 1


def test_a_changed_entry_and_a_file_that_is_no_ledger_are_refused(tmp_path):
    ledger = LedgerFile(tmp_path / "ledger.db")
    release(tmp_path, "one", ledger=ledger)
    connection = sqlite3.connect(ledger.path)
    connection.execute(
        "UPDATE entries SET sealed = CAST(substr(sealed, 1, 99) || x'0000' || substr(sealed, 102) AS BLOB)"
    )
    connection.commit()
    connection.close()
    with pytest.raises(InputError) as caught:
        entries(ledger)
    assert caught.value.code == "ledger-damaged"
    ledger.path.write_bytes(b"no database at all, just some text that is long enough" * 20)
    with pytest.raises(InputError) as caught:
        entries(ledger)
    assert caught.value.code == "ledger-damaged"


def test_a_ledger_that_cannot_be_made_stops_the_release(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        release(tmp_path, "one", ledger=LedgerFile(tmp_path / "file" / "ledger.db"))
    assert caught.value.code == "no-ledger"
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("has_key", [False, True])
def test_a_directory_is_not_told_as_a_ledger_without_its_key(has_key, tmp_path):
    ledger = LedgerFile(tmp_path / "ledger.db")
    if has_key:
        assert entries(ledger) == []
        ledger.path.unlink()
    ledger.path.mkdir()
    with pytest.raises(InputError) as caught:
        entries(LedgerFile(ledger.path))
    assert (caught.value.code, caught.value.fields) == ("is-directory", {"file": str(ledger.path)})


def test_the_ledger_is_named_once(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[ledger]\nfile = "/agency/l.db"\nkey = "/safe/l.key"\nalarm = 0.3\n')
    named = configured_ledger({"SAFESWAP_CONFIG": str(config)})
    assert named == LedgerFile(Path("/agency/l.db"), Path("/safe/l.key"), 0.3)
    over = configured_ledger({"SAFESWAP_CONFIG": str(config), "SAFESWAP_LEDGER": "/tmp/x.db"})
    assert (over.path, over.key_path) == (Path("/tmp/x.db"), None)
    homes = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert configured_ledger(homes).path == tmp_path / "data" / "safeswap" / "ledger.db"


@pytest.mark.parametrize("text", ["[ledger]\nalarm = 2\n", "[ledger]\nfiles = 'a'\n", "[ledger\n", "ledger = 3\n"])
def test_a_configuration_that_makes_no_sense_is_refused(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        configured_ledger({"SAFESWAP_CONFIG": str(tmp_path / "config.toml")})
    assert caught.value.code == "bad-configuration"
