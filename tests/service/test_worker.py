"""Whatever happens to a job, its process or its worker: it goes on or fails with a reason, nothing is seen twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select, update
from tests.service.hard_jobs import CANARY, MODULES
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap.service.keeping.database import Database
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import jobs, results
from safeswap.service.settings import Limits, Settings
from safeswap.service.work.jobs import Queue
from safeswap.service.work.worker import Worker

ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal, sys
from safeswap.service.settings import Settings
from safeswap.service.work.worker import Worker
from tests.service.hard_jobs import MODULES
parent = int(sys.argv[2]) if len(sys.argv) > 2 else None
worker = Worker(Settings.model_validate_json(sys.argv[1]), modules=MODULES, parent=parent)
signal.signal(signal.SIGTERM, worker.stop)
worker.run()
"""


class Place:
    """A service without a server: a queue, a store, a project, and workers when they are wanted."""

    def __init__(self, folder: Path, **given) -> None:
        self.settings: Settings = settings_in(folder, **given)
        self.database: Database = database_of(self.settings)
        self.store = Store(self.settings)
        self.queue = Queue(self.database, self.settings)
        self.user = add_user(self.database)
        self.project = add_project(self.database, self.store, user=self.user)

    def add(self, kind: str, **payload) -> str:
        return self.queue.enqueue(kind, payload, project_id=self.project, created_by=self.user)

    def work(self) -> None:
        """Let a worker do what waits, without pauses between attempts."""
        worker = Worker(self.settings, database=self.database, modules=MODULES)
        while worker.run_until_idle():
            with self.database.write() as connection:
                connection.execute(update(jobs).values(available_at=0.0))

    def done(self, kind: str, **payload):
        job = self.add(kind, **payload)
        self.work()
        return self.queue.get(job)

    def worker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, self.settings.model_dump_json()], cwd=ROOT)

    def pid_of(self, job: str) -> int:
        """The process that does a job which waits."""
        file = self.store.root / "scratch" / job / "checkpoint" / "pid"
        return int(until(lambda: file.exists() and file.read_text()))


def until(look, seconds: float = 60.0):
    """Wait for something to be true, for a long time if the machine is busy."""
    for _ in range(int(seconds / 0.05)):
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def namespaces_are_allowed() -> bool:
    program = "from safeswap.service.work import child; raise SystemExit(not child._enter_network_namespace())"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SAFESWAP_DATABASE_URL", "postgresql://somebody:secret@nowhere/db")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_job_sees_its_own_folder_and_no_network_database_or_secret(place):
    with socket.create_server(("127.0.0.1", 0)) as server:
        row = place.done("look_around", port=server.getsockname()[1])
    seen = row["result"]
    assert seen["network"] in {"PermissionError", "OSError", "ConnectionRefusedError", "TimeoutError"}
    if namespaces_are_allowed():
        assert seen["interfaces"] == ["lo"]
    assert seen["temporary"] == seen["here"] == str(place.store.root / "scratch" / row["id"] / "1")
    assert seen["memory"] == place.settings.limits.job_memory_bytes
    assert (seen["secrets"], seen["database"], seen["project"]) == ([], "", "survey")
    assert list((place.store.root / "scratch").iterdir()) == []


def test_a_process_that_is_killed_is_followed_by_another_that_goes_on(place):
    row = place.done("die_at_first", deaths=1)
    assert (row["state"], row["attempts"]) == ("succeeded", 2)
    with place.database.read() as connection:
        (result,) = connection.execute(select(results)).mappings()
    assert (result["id"], result["job_id"]) == (row["result"]["id"], row["id"])
    assert result["summary"] == {"tries": ["1", "2"]}
    folders = list((place.store.project(place.project) / "results").iterdir())
    assert [folder.name for folder in folders] == [result["id"]], "half a result was left"


def test_a_process_that_is_killed_three_times_fails_with_a_reason_and_leaves_nothing(place):
    row = place.done("die_at_first", deaths=3)
    assert (row["state"], row["attempts"], row["error"]["code"]) == ("failed", 3, "job-killed")
    assert list((place.store.project(place.project) / "results").iterdir()) == []
    assert list((place.store.root / "scratch").iterdir()) == []


def test_when_a_worker_is_killed_its_process_dies_and_the_job_goes_on_elsewhere(tmp_path):
    place = Place(tmp_path, lease_seconds=1)
    job = place.add("wait", attempts=1)
    worker = place.worker()
    child = place.pid_of(job)
    worker.kill()
    worker.wait()
    until(lambda: is_gone(child))
    until(place.queue.expire)
    with place.database.write() as connection:
        connection.execute(update(jobs).values(available_at=0.0))
    place.work()
    row = place.queue.get(job)
    assert (row["state"], row["attempts"]) == ("succeeded", 2)


def test_a_worker_that_is_asked_to_stop_gives_its_job_back(place):
    job = place.add("wait")
    worker = place.worker()
    child = place.pid_of(job)
    worker.terminate()
    assert worker.wait() == 0
    assert is_gone(child)
    row = place.queue.get(job)
    assert (row["state"], row["attempts"]) == ("queued", 0)


def test_a_worker_whose_server_is_gone_gives_its_job_back_and_ends(place):
    job = place.add("wait")
    arguments = [sys.executable, "-c", PROGRAM, place.settings.model_dump_json()]
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys; subprocess.run([*sys.argv[1:], str(os.getpid())])",
            *arguments,
        ],
        cwd=ROOT,
    )
    child = place.pid_of(job)
    server.kill()
    server.wait()
    until(lambda: is_gone(child))
    assert until(lambda: place.queue.get(job)["state"] == "queued")


def test_a_job_that_is_cancelled_stops(place):
    job = place.add("wait")
    watcher = threading.Thread(target=lambda: (place.pid_of(job), place.queue.cancel(job)))
    watcher.start()
    place.work()
    watcher.join()
    row = place.queue.get(job)
    assert (row["state"], row["result"], row["error"]) == ("cancelled", None, None)


def test_a_worker_that_has_lost_its_job_stops_and_is_not_heard(tmp_path):
    place = Place(tmp_path, lease_seconds=2)
    job = place.add("wait")

    def take_away():
        child = place.pid_of(job)
        with place.database.write() as connection:
            connection.execute(update(jobs).values(fence=jobs.c.fence + 1, worker="another"))
        until(lambda: is_gone(child))

    watcher = threading.Thread(target=take_away)
    watcher.start()
    Worker(place.settings, modules=MODULES).run_until_idle()
    watcher.join()
    row = place.queue.get(job)
    assert (row["state"], row["worker"], row["fence"]) == ("running", "another", 2)


LIMITS = Limits(parse_memory_bytes=4 * 2**30, parse_seconds=1, project_bytes=2**20, reserve_bytes=0)


@pytest.mark.parametrize(
    ("kind", "payload", "code"),
    [
        pytest.param("take_memory", {"bytes": 8 * 2**30}, "too-much-memory", id="memory"),
        pytest.param("take_time", {}, "too-much-time", id="time"),
        pytest.param("take_disk", {"bytes": 2**21}, "disk-full", id="disk"),
        pytest.param("crash", {}, "job-crashed", id="crash"),
        pytest.param("unrecordable", {}, "finish-broke", id="record"),
        pytest.param("stumble", {}, "job-broke", id="mistake"),
    ],
)
def test_a_job_that_takes_too_much_or_breaks_fails_at_once_with_a_reason(tmp_path, capfd, kind, payload, code):
    place = Place(tmp_path, limits=LIMITS)
    row = place.done(kind, **payload)
    assert (row["state"], row["attempts"], row["error"]["code"]) == ("failed", 1, code)
    assert CANARY not in json.dumps({**row})
    assert CANARY not in "".join(capfd.readouterr())


def test_a_kind_of_job_that_a_worker_does_not_know_is_left_to_others(place):
    job = place.add("from the future")
    place.work()
    assert place.queue.get(job)["state"] == "queued"


NO_SOCKETS = """
import ctypes, errno, os, socket, sys
from safeswap.service.work import child
for name in sys.argv[1:]:
    setattr(child, name, lambda: False)
means = child.cut_network()
for attempt in (lambda: socket.socket(), lambda: socket.create_connection(("127.0.0.1", 9))):
    try:
        attempt()
    except PermissionError:
        continue
    raise SystemExit("it was let out")
if "filter" in means:
    libc = ctypes.CDLL(None, use_errno=True)
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        assert libc.socket(family, socket.SOCK_STREAM, 0) == -1, "native code was let out"
        assert ctypes.get_errno() == errno.EACCES
    assert os.system("true") == 0
print(*sorted(means))
"""


@pytest.mark.parametrize(
    ("missing", "means"),
    [
        pytest.param(["_enter_network_namespace", "_install_filter"], {"hook"}, id="hook"),
        pytest.param(["_enter_network_namespace"], {"hook", "filter"}, id="filter"),
        pytest.param([], {"hook", "filter", "namespace"}, id="all"),
    ],
)
def test_no_socket_can_be_made_whatever_the_system_allows(missing, means):
    done = subprocess.run([sys.executable, "-c", NO_SOCKETS, *missing], stdout=subprocess.PIPE, text=True, check=True)
    assert "hook" in done.stdout.split()
    if set(done.stdout.split()) != means:
        pytest.skip(f"NOT TESTED: this system allows only {done.stdout.strip()}")


def test_signal_numbers_have_reasons():
    from safeswap.service.work.process import explain_exit

    assert [explain_exit(-number)[1] for number in (signal.SIGKILL, signal.SIGTERM)] == [True, True]
    assert [explain_exit(-number)[1] for number in (signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV)] == [False] * 3
