"""Eight processes that claim jobs while somebody kills them: run as a program, tells what each of them got.

``python claimers.py ORDER`` with ORDER a JSON object: address, store, key, notes, jobs, processes, kills, queue ("real"
or "naive"), lease, pause (seconds between kills), patience. Prints "begun", and a JSON object: the claims that were
handed out, those told to have succeeded, and the jobs as they stand in the end. Processes are forked, so that killing
one and starting another costs nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError

from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.tables import jobs
from safeswap.service.settings import Settings
from safeswap.service.work.jobs import Claim, Queue


class NaiveQueue(Queue):
    """What one writes first: look for a job that waits, then take it."""

    def claim(self, worker, kinds=None):
        with self._database.read() as connection:
            row = connection.execute(
                select(jobs).where(jobs.c.state == "queued").order_by(jobs.c.available_at, jobs.c.id).limit(1)
            ).mappings().first()  # fmt: skip
        if row is None:
            return None
        taken = {"state": "running", "worker": worker, "fence": row["fence"] + 1, "attempts": row["attempts"] + 1}
        with self._database.write() as connection:
            connection.execute(
                update(jobs).where(jobs.c.id == row["id"]).values(**taken, lease_until=self._clock() + self._lease)
            )
        names = ("id", "kind", "project_id", "payload")
        return Claim(**{name: row[name] for name in names}, fence=taken["fence"], attempts=1, worker=worker)


QUEUES = {"real": Queue, "naive": NaiveQueue}


def main(order: dict) -> dict:
    """Fill the queue, let the processes empty it, tell what happened."""
    settings = Settings(store=order["store"], master_key_file=order["key"], lease_seconds=order["lease"])
    database = open_database(order["address"])
    queue = QUEUES[order["queue"]](database, settings)
    with database.write() as connection:
        for number in range(order["jobs"]):
            queue.enqueue("claim", {"n": number}, project_id=None, created_by=None, connection=connection)
    database.close()
    print("begun", flush=True)
    notes = Path(order["notes"])
    running = {fork(order, settings, notes): None for _ in range(order["processes"])}
    killed = kill_some(order, settings, notes, running)
    for pid in running:
        os.waitpid(pid, 0)
    return told(database, notes, killed)


def kill_some(order: dict, settings: Settings, notes: Path, running: dict) -> int:
    """Kill one process at random every now and then, and start another in its place."""
    chance = random.Random(7)
    for _ in range(order["kills"]):
        time.sleep(order["pause"] * chance.uniform(0.5, 1.5))
        victim = chance.choice(list(running))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        del running[victim]
        running[fork(order, settings, notes)] = None
    return order["kills"]


def fork(order: dict, settings: Settings, notes: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(
            QUEUES[order["queue"]](open_database(order["address"]), settings),
            notes / str(os.getpid()),
            order["patience"],
        )
    except BaseException as error:  # noqa: BLE001  (said in a file: the forked process has nobody to tell)
        (notes / f"error-{os.getpid()}").write_text(repr(error))
        os._exit(1)
    os._exit(0)


def work(queue: Queue, notes: Path, patience: float) -> None:
    """Claim, note it, say that it is done, note that too; until nothing waits or runs."""
    worker, file = f"w{os.getpid()}", os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    started, looked = time.monotonic(), 0.0
    while time.monotonic() - started < patience:
        try:
            claim = queue.claim(worker)
            if claim is not None:
                os.write(file, f"claimed {claim.id} {claim.fence}\n".encode())
                if queue.succeed(claim, None):
                    os.write(file, f"succeeded {claim.id} {claim.fence}\n".encode())
                continue
            if time.monotonic() - looked > 0.2:
                queue.expire()
                looked = time.monotonic()
                if not {state for _, state in queue.counts()} & {"queued", "running"}:
                    return
            time.sleep(0.02)
        except DBAPIError:  # the database is being restarted, or another holds it for too long
            time.sleep(0.05)


def told(database: Database, notes: Path, killed: int) -> dict:
    """All that was noted, and how the jobs stand."""
    lines = [line.split() for path in notes.iterdir() for line in path.read_text().splitlines()]
    with database.read() as connection:
        rows = connection.execute(select(jobs.c.id, jobs.c.state, jobs.c.fence, jobs.c.attempts)).all()
    return {
        "claimed": [line[1:] for line in lines if line[0] == "claimed"],
        "succeeded": [line[1:] for line in lines if line[0] == "succeeded"],
        "errors": [path.read_text() for path in notes.glob("error-*")],
        "jobs": [tuple(row) for row in rows],
        "killed": killed,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
