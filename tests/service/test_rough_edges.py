"""What goes wrong outside the program is said in words of ours, and nothing is left lying about."""

from __future__ import annotations

import errno
import io
import os
import stat
import zipfile
from pathlib import Path

import pytest
from tests.service.at_work import do_jobs
from tests.service.installed import settings_in
from tests.service.serving import running
from typer.testing import CliRunner

from safeswap.cli.app import app
from safeswap.errors import InternalError
from safeswap.service import routes
from safeswap.service.keeping.database import check_file, open_database
from safeswap.service.state import open_service
from safeswap.service.work.running import _write_settings

BAD_NAMES = ["a\x00b", "a\r\nb", "a\nb", "a\u202eb", "a\u2066b", "a\u200eb", "a\u2028b"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_during_an_upload_is_said_to_be_full(town, monkeypatch, number):
    fsync, calls = os.fsync, []

    def full(file):
        calls.append(file)
        if len(calls) == 1:  # what came so far is erased afterwards
            raise OSError(number, "full")
        fsync(file)

    monkeypatch.setattr(routes.data.os, "fsync", full)
    ana, project = town.client("ana"), town.add_project("ana")
    address = f"/api/v1/projects/{project}"
    answer = ana.put(f"{address}/data", params={"name": "a.csv"}, content=b"a,b\n1,2\n")
    assert answer.json()["code"] == "disk-full"
    assert 400 <= answer.status_code < 600
    assert answer.status_code != 500
    assert ana.get(address).json()["state"] == "empty"
    assert list(town.service.store.uploads(project).iterdir()) == []


@pytest.mark.parametrize("depth", [60, 100_000])
def test_an_archive_with_deeply_nested_facts_is_refused(town, depth):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        nested = "[" * depth + "]" * depth
        archive.writestr("project.json", f'{{"format": "safeswap-project-1", "results": {nested}}}')
    ana = town.client("ana")
    asked = ana.put("/api/v1/imports", params={"name": "a.zip"}, content=packed.getvalue())
    do_jobs(town.service)
    job = ana.get(asked.headers["location"]).json()
    assert (job["state"], job["error"]["code"]) == ("failed", "bad-archive")


@pytest.mark.parametrize("damage", [b"this is no database", None])
def test_a_damaged_database_says_so_at_the_start(tmp_path, damage):
    settings = settings_in(tmp_path)
    open_service(settings).close()
    file = settings.store / "safeswap.db"
    content = file.read_bytes()
    file.write_bytes(damage * 500 if damage else content[:4096] + b"\xff" * 8192 + content[12288:])
    with pytest.raises(InternalError) as refused:
        check_file(open_database(settings.database))
    assert refused.value.code == "database-damaged"
    stated = ["--store", str(settings.store), "--master-key", str(settings.master_key_file)]
    told = CliRunner().invoke(app, ["serve", *stated])
    assert told.exit_code != 0


def test_the_files_of_the_database_are_for_their_owner_only(tmp_path):
    settings = settings_in(tmp_path)
    before = os.umask(0)
    try:
        service = open_service(settings)
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.store.glob("safeswap.db*")}
        service.close()
    finally:
        os.umask(before)
    assert set(found.values()) == {0o600}
    file = settings.store / "safeswap.db"
    file.chmod(0o644)
    open_database(settings.database).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_settings_that_a_killed_server_left_are_swept_at_the_next_start(tmp_path):
    settings = settings_in(tmp_path)
    left, other = settings.store / "workers-999999999.toml", settings.store / "workers-1.toml"
    for path in (left, other):
        path.write_text("database_url = 'postgresql://u:password@h/n'")
    made = _write_settings(settings)
    assert made.exists()
    assert not left.exists()
    assert other.exists()  # of a process that is running


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_hold_nothing_that_is_not_seen(town, name):
    ana, adam = town.client("ana"), town.client("adam")
    project = town.add_project("ana")
    assert ana.post("/api/v1/projects", json={"name": name}).status_code == 422
    assert ana.post("/api/v1/tokens", json={"name": name, "scopes": ["read"]}).status_code == 422
    assert adam.post("/api/v1/users", json={"name": "x", "role": "viewer", "display_name": name}).status_code == 422
    sent = ana.put(f"/api/v1/projects/{project}/data", params={"name": f"{name}.csv"}, content=b"a\n1\n")
    assert sent.status_code == 422
    assert ana.get(f"/api/v1/projects/{project}").json()["state"] == "empty"


@pytest.mark.parametrize(
    ("given", "status"),
    [({}, 200), ({"hosts": ["sdc.agency.example"]}, 404), ({"metrics": False, "api_pages": False}, 404)],
)
def test_figures_and_the_contract_are_behind_a_setting(tmp_path: Path, given, status):
    with running(tmp_path, people=False, **given) as here:
        for path in ("/metrics", "/api/docs", "/api/openapi.json"):
            assert here.client().get(path).status_code == status, path
