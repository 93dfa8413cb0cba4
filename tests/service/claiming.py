"""The one claim that every queue has to meet: whatever is killed, no job is handed out twice and none is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

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
