"""The one claim that every queue has to meet: whatever is killed, no job is handed out twice and none is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.service.installed import add_user, database_of

from safeswap.service.work.jobs import Queue

PROGRAM = Path(__file__).with_name("claimers.py")


def start(settings: Any, folder: Path, **given: Any) -> subprocess.Popen[str]:
    """Begin; the processes claim and are killed until nothing is left to do, or patience is at an end."""
    notes = folder / "notes"
    notes.mkdir()
    order = {
        "address": settings.database,
        "store": str(settings.store),
        "key": str(settings.master_key_file),
        "notes": str(notes),
        "queue": "real",
        "processes": 8,
        "kills": 0,
        "pause": 0.3,
        "lease": 2.0,
        "patience": 900.0,
        **given,
    }
    process = subprocess.Popen([sys.executable, str(PROGRAM), json.dumps(order)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def check_none_twice_none_lost(process: subprocess.Popen[str], *, number: int) -> dict[str, Any]:
    """Wait for the end, and look at every claim that was handed out."""
    output, _ = process.communicate()
    found = json.loads(output)
    assert found["errors"] == []
    twice = [claim for claim, times in Counter(map(tuple, found["claimed"])).items() if times > 1]
    assert twice == [], f"{len(twice)} claims were handed out twice"
    done = Counter(job for job, _ in found["succeeded"])
    assert max(done.values()) == 1, "a job succeeded twice"
    assert len(found["jobs"]) == number
    assert {state for _, state, _, _ in found["jobs"]} == {"succeeded"}, "a job was lost"
    # What was told to have succeeded did so by the claim that was the last one.
    fences = {job: fence for job, _, fence, _ in found["jobs"]}
    assert all(fences[job] == int(fence) for job, fence in found["succeeded"])
    return found


def claim_all_at_once(settings: Any, *, times: int, threads: int = 6) -> list[int]:
    """How many jobs of one person run after several workers have claimed at the same moment, time after time."""
    database = database_of(settings)
    queue, user, together = Queue(database, settings), add_user(database), threading.Barrier(threads)

    def claim(worker: int) -> Any:
        together.wait()
        return queue.claim(f"worker {worker}")

    found = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(times):
            waiting = [queue.enqueue("claim", {}, project_id=None, created_by=user) for _ in range(threads)]
            claims = [each for each in pool.map(claim, range(threads)) if each is not None]
            found.append(len(claims))
            assert all(queue.succeed(each, None) for each in claims)
            for job in waiting:
                queue.cancel(job)
    database.close()
    return found
