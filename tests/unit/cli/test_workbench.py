"""``safeswap workbench`` as its user meets it, without a browser."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import httpx
import pytest
from tests.unit.cli.conftest import survey_text

from safeswap.cli.service import open_privately

LONG = 60.0


@pytest.fixture
def survey(tmp_path):
    path = tmp_path / "survey.csv"
    path.write_text(survey_text(), encoding="utf-8")
    return path


@contextmanager
def opened(tmp_path, *arguments):
    """The program as a process of its own, with the folder of its temporary files and the address it told."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "safeswap", "workbench", "--json", "--no-browser", *map(str, arguments)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, temporary, _address(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _address(process):
    told = ""
    for line in process.stdout:
        told += line
        if line.rstrip() == "}":
            break
    document = json.loads(told)
    assert "address" in document, told
    return document["address"]


def _session(address):
    """A program that was let in by the address, as the browser is."""
    server, _, stated = address.partition("/open#")
    parts = dict(part.split("=") for part in stated.split("&"))
    client = httpx.Client(base_url=f"{server}/api/v1", timeout=LONG)
    client.post("/session", json={"start_token": parts["token"]}).raise_for_status()
    return client, parts.get("project")


def _ended(process):
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=LONG)
    return complaints


def test_a_file_is_opened_and_ctrl_c_erases_everything(tmp_path, survey):
    with opened(tmp_path, survey) as (process, temporary, address):
        (place,) = temporary.glob("safeswap-*")
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert address.startswith("http://127.")
        assert httpx.get(address.partition("/open#")[0] + "/api/v1/projects").status_code == 401
        client, project = _session(address)
        with closing(client):
            limit = time.monotonic() + LONG
            while client.get(f"/projects/{project}").json()["state"] != "ready" and time.monotonic() < limit:
                time.sleep(0.2)
            found = client.get(f"/projects/{project}/description").json()
        assert found["records"] == len(survey.read_text(encoding="utf-8").splitlines()) - 1
        complaints = _ended(process)
        assert "Traceback" not in complaints
        assert list(temporary.glob("safeswap-*")) == []


def test_a_store_of_ones_own_is_kept(tmp_path, survey):
    store = tmp_path / "kept"
    with opened(tmp_path, survey, "--store", store) as (process, temporary, _):
        assert list(temporary.glob("safeswap-*")) == []
        _ended(process)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert stat.S_IMODE((store / "master.key").stat().st_mode) == 0o600
    with opened(tmp_path, "--store", store) as (process, _, address):
        client, project = _session(address)
        assert project is None
        with closing(client):
            assert [each["name"] for each in client.get("/projects").json()["items"]] == ["survey.csv"]
        _ended(process)


def test_a_file_that_is_not_there_is_said_to_be_missing(safeswap, tmp_path):
    run = safeswap("workbench", str(tmp_path / "nothing.csv"), "--no-browser")
    assert run.code != 0
    assert "there is no file nothing.csv" in run.stderr


def test_a_port_in_use_is_said_to_be_in_use(safeswap, tmp_path, survey, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = safeswap("workbench", str(survey), "--no-browser", "--port", str(taken.getsockname()[1]))
    assert run.code != 0
    assert "port" in run.stderr
    assert "Traceback" not in run.stderr
    assert list(tmp_path.glob("safeswap-*")) == []


def test_the_browser_is_opened_by_a_private_file_and_no_token_stands_on_its_command_line(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = open_privately("http://127.0.0.1:1/open#token=secret&project=5", tmp_path)
    assert opened == [page.as_uri()]
    assert "secret" not in opened[0]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:1/open#token=secret&amp;project=5" in page.read_text(encoding="utf-8")


def test_the_address_lets_one_in_and_no_other(tmp_path):
    with opened(tmp_path) as (_, _, address):
        server, _, stated = address.partition("/open#token=")
        answers = [httpx.post(f"{server}/api/v1/session", json={"start_token": stated}, timeout=LONG) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 401]
