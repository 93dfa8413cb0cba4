"""The service under load: people who browse while jobs run, against one person alone.

    python bench/bench_service.py [--users 50] [--minutes 10] [--alone 60] [--records 48842]

Prints the 95th percentile of the time to an answer for one user and for all, their ratio, the number of errors, and
how much the memory of the server grew. Everything runs on loopback.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from goals import judge
from safeswap import datasets
from safeswap.files.write import write
from safeswap.model.microdata import Microdata
from safeswap.service.client import Client
from safeswap.service.keeping.database import open_database
from safeswap.service.keeping.vault import make_master_key
from safeswap.service.people import accounts, sessions
from safeswap.service.settings import Settings
from safeswap.service.state import open_service

PAGES = ("", "/description", "/jobs", "/maskings", "/studies", "/recipe", "/log", "/releases")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--alone", type=float, default=60.0, help="seconds of one user alone")
    parser.add_argument("--records", type=int, default=48_842, help="of the file that jobs work on")
    stated = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings, secret = prepared(Path(folder))
        server = subprocess.Popen(
            [sys.executable, "-m", "safeswap", "serve", "--settings", str(Path(folder) / "settings.toml")],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            address = f"http://127.0.0.1:{settings.port}"
            until_up(address)
            load(stated, address, secret, server.pid, Path(folder))
        finally:
            server.terminate()
            server.wait(60)


def prepared(folder: Path) -> tuple[Settings, str]:
    """A service with one analyst, and a token of hers."""
    port = free_port()
    make_master_key(folder / "master.key")
    text = f'store = "{folder}/store"\nmaster_key_file = "{folder}/master.key"\nport = {port}\nworkers = 2\n'
    (folder / "settings.toml").write_text(text)
    (folder / "store").mkdir(mode=0o700)
    settings = Settings(store=folder / "store", master_key_file=folder / "master.key", port=port, workers=2)
    service = open_service(settings)
    with service.database.write() as connection:
        user = accounts.add_user(connection, name="ana", role="analyst")
        _, secret = sessions.make_token(connection, user_id=user, name="bench", scopes=("read", "write"), days=1)
    service.close()
    open_database(settings.database).close()
    return settings, secret


def load(stated: argparse.Namespace, address: str, secret: str, server: int, folder: Path) -> None:
    whole = datasets.cps8d()
    write(Microdata(whole.table.slice(0, stated.records), whole.schema), folder / "cps.csv")
    with Client(address, token=secret) as client:
        project = client.make_project("load").id
        client.wait(client.send_data(project, folder / "cps.csv"))
        study = client.wait(client.study(project, attributes=["Race", "Sex", "MS"], replicates=5)).result
        assert study is not None
    paths = [f"/api/v1/projects/{project}{page}" for page in PAGES]
    paths += [f"/api/v1/projects/{project}/studies/{study.id}{part}" for part in ("", "/candidates", "/candidates/1")]
    alone = browse(address, secret, paths, users=1, seconds=stated.alone)
    print(f"one user alone: {alone.times.size:,} answers, p95 {alone.p95 * 1000:.0f} ms, {alone.errors} errors")
    stop = threading.Event()
    busy = threading.Thread(target=keep_busy, args=(address, secret, project, stop))
    busy.start()
    # What fifty users need at all is not growth: it is counted from when they have all been there for a while.
    browse(address, secret, paths, users=stated.users, seconds=min(60.0, 15 * stated.minutes))
    before = resident(server)
    crowd = browse(address, secret, paths, users=stated.users, seconds=60 * stated.minutes)
    stop.set()
    busy.join()
    after = resident(server)
    print(
        f"{stated.users} users for {stated.minutes:g} min with 2 jobs running: {crowd.times.size:,} answers, "
        f"p95 {crowd.p95 * 1000:.0f} ms, {crowd.errors} errors"
    )
    for minute, p95 in enumerate(crowd.by_minute(), start=1):
        print(f"    minute {minute}: p95 {p95 * 1000:.0f} ms")
    for page, p50, p95 in crowd.by_page():
        short = page.replace(project, "…").replace(study.id, "…")
        print(f"    {short}: half within {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")
    judge(f"service, p95 with {stated.users} users beside one", crowd.p95 / alone.p95, 3)
    print(f"memory of the server {before / 2**20:.0f} → {after / 2**20:.0f} MiB, {after / before - 1:+.1%}")


class Answers:
    """How long answers took, and how many were none."""

    def __init__(self, answers: list[tuple[float, str, float]], errors: int) -> None:
        self.began = np.array([began for began, _, _ in answers])
        self.pages = np.array([page for _, page, _ in answers])
        self.times, self.errors = np.array([seconds for _, _, seconds in answers]), errors
        self.p95 = float(np.quantile(self.times, 0.95))

    def by_minute(self) -> list[float]:
        """The 95th percentile of each minute."""
        minute = ((self.began - self.began.min()) // 60).astype(int)
        return [float(np.quantile(self.times[minute == each], 0.95)) for each in np.unique(minute)]

    def by_page(self) -> list[tuple[str, float, float]]:
        """For each page, the time within which half and 95% of the answers came."""
        return [
            (str(page), *np.quantile(self.times[self.pages == page], (0.5, 0.95)).tolist())
            for page in np.unique(self.pages)
        ]


def browse(address: str, secret: str, paths: list[str], *, users: int, seconds: float) -> Answers:
    """People who look at a page, think for about a second, and look at the next."""
    answers: list[tuple[float, str, float]] = []
    errors = 0
    lock = threading.Lock()
    until = time.monotonic() + seconds

    def person(number: int) -> None:
        nonlocal errors
        draw = random.Random(number)
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {secret}"}, timeout=60.0) as client:
            time.sleep(draw.random())
            while time.monotonic() < until:
                page, began = draw.choice(paths), time.perf_counter()
                try:
                    wrong = client.get(page).status_code != 200
                except httpx.HTTPError:
                    wrong = True
                with lock:
                    answers.append((began, page, time.perf_counter() - began))
                    errors += wrong
                time.sleep(draw.expovariate(1.0))

    people = [threading.Thread(target=person, args=(number,)) for number in range(users)]
    for each in people:
        each.start()
    for each in people:
        each.join()
    return Answers(answers, errors)


def keep_busy(address: str, secret: str, project: str, stop: threading.Event) -> None:
    """Two jobs at any time: a study and a masking."""
    with Client(address, token=secret, timeout=120.0) as client:
        spec = {"method": "swap", "swap": ["Race"], "rate": 0.05}
        while not stop.is_set():
            for job in (client.study(project, replicates=20), client.mask(project, spec)):
                client.wait(job)


def resident(pid: int) -> int:
    """Memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until_up(address: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if httpx.get(f"{address}/health/ready").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
