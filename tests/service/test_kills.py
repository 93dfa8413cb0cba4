"""``kill -9`` of everything that a real service consists of, in the middle of a study: the study goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from sqlalchemy import select
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap import datasets
from safeswap.files.write import write
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import results
from safeswap.service.work.jobs import Queue

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="NOT TESTED: which process does a job is found out from /proc"
)


def until(look: Callable[[], Any], what: str) -> Any:
    for _ in range(2000):
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"it did not come about: {what}")


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for tasks in Path(f"/proc/{parent}/task").glob("*/children"):  # a server starts workers from threads
        with suppress(OSError):
            found += map(int, tasks.read_text().split())
    return found


class Served:
    """A service as an administrator starts it, in a process of its own with a worker beside it."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_in(folder, port=0, workers=1, lease_seconds=3)
        self.file = folder / "settings.toml"
        self.file.write_text(tomli_w.dumps(self.settings.model_dump(mode="json", exclude_none=True)))
        self.database, self.store = database_of(self.settings), Store(self.settings)
        self.queue = Queue(self.database, self.settings)
        self.server = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, "-m", "safeswap", "serve", "--settings", str(self.file)], **quiet)

    def state(self, job: str) -> str:
        row = self.queue.get(job)
        assert row is not None
        return str(row["state"])

    def job_process(self, job: str) -> int:
        """The process that does a job, once it has finished a part of it."""

        def busy() -> int | None:
            finished = self.store.root / "scratch" / job / "checkpoint"
            fence = self.queue.get(job)["fence"]
            if self.state(job) != "running" or not (self.store.root / "scratch" / job / str(fence)).is_dir():
                return None
            for worker in children(self.server.pid):
                for process in children(worker):
                    here = Path(f"/proc/{process}/cwd")
                    if finished.is_dir() and any(finished.iterdir()) and job in str(here.resolve()):
                        return process
            return None

        return int(until(busy, "a process that does the job"))


@pytest.fixture
def served(tmp_path: Path):
    here = Served(tmp_path)
    yield here
    here.server.terminate()
    here.server.wait()
    here.database.close()


def test_a_study_outlives_its_process_its_worker_and_its_server(served, tmp_path):
    user = add_user(served.database)
    project = add_project(served.database, served.store, user=user, state="reading")
    write(datasets.cps8d(), tmp_path / "cps.csv")
    (tmp_path / "cps.csv").rename(served.store.uploads(project) / "sent")
    whose = {"project_id": project, "created_by": user}
    reading = served.queue.enqueue("ingest", {"upload": "sent", "name": "cps.csv"}, **whose)
    until(lambda: served.state(reading) == "succeeded", "the data are read")
    study = served.queue.enqueue("study", {"spec": {"replicates": 200}}, **whose)

    os.kill(served.job_process(study), signal.SIGKILL)
    until(lambda: served.queue.get(study)["attempts"] == 2, "a second attempt")

    process = served.job_process(study)
    (worker,) = [each for each in children(served.server.pid) if process in children(each)]
    os.kill(worker, signal.SIGKILL)
    until(lambda: served.queue.get(study)["attempts"] == 3, "a third attempt, by another worker")

    served.job_process(study)
    served.server.kill()
    served.server.wait()
    until(lambda: served.state(study) == "queued", "the worker has given the study back")
    served.server = served.start()
    until(lambda: served.state(study) == "succeeded", "the study is done")

    with served.database.read() as connection:
        (row,) = connection.execute(select(results)).mappings()
    assert (row["job_id"], row["kind"]) == (study, "study")
    folders = list((served.store.project(project) / "results").iterdir())
    assert [folder.name for folder in folders] == [row["id"]]
    until(lambda: list((served.store.root / "scratch").iterdir()) == [], "nothing temporary is left")
