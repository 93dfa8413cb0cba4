"""The first second: what starting costs, in CPU seconds, and how many of our files a call passes through.

Every figure is of a process of its own. Times are the best of several, beside that of an empty Python.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from goals import judge, keep_byte_code

WALK = """
import json, sys, threading
files, importing = set(), 0
def note(frame, event, _):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += (event == "call") - (event == "return")
    elif event == "call" and not importing:
        files.add(frame.f_code.co_filename)
def walk(work):
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    except SystemExit:
        pass
    sys.setprofile(None)
    ours = [name.rpartition("/safeswap/")[2] for name in files if "/safeswap/" in name]
    print(json.dumps({"files": sorted(ours), "modules": sorted(sys.modules)}))
"""
"""Runs a function; prints the files of ours that it called into, leaving out what merely importing runs, and the
modules that were loaded."""


def walk(work: str, **environment: str) -> dict[str, list[str]]:
    """Return the files called into and the modules loaded by a statement, in a process of its own."""
    code = f"{WALK}\ndef work():\n    {work}\nwalk(work)\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def swap_arguments(folder: Path) -> list[str]:
    """Return the arguments of a swap of CPS-8d as CSV; makes file and key if they are not there."""
    if not (folder / "cps8d.csv").exists():
        make = (["datasets", "write", "cps8d", str(folder / "cps8d.csv")], ["keygen", str(folder / "key")])
        for arguments in make:
            subprocess.run([sys.executable, "-m", "safeswap", *arguments], check=True, capture_output=True)
    places = ["--output", str(folder / "out.csv"), "--audit", str(folder / "audit"), "--force"]
    return [
        "swap",
        str(folder / "cps8d.csv"),
        "--swap",
        "Race",
        "--rate",
        "0.05",
        "--key",
        str(folder / "key"),
        *places,
    ]


def seconds(arguments: list[str], *, times: int, **environment: str) -> float:
    """Return the CPU seconds of a process, the best of several."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env={**os.environ, **environment})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def main() -> None:
    """Measure imports, help, a swap in a warm and in a fresh environment, and two walks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    times = options.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        keep_byte_code(Path(name))
        measure(times)


def measure(times: int) -> None:
    """Print every figure."""
    empty = seconds(["-c", "pass"], times=times)
    print(f"{'an empty Python':<46} {empty:8.3f} s CPU")
    judge("import safeswap", seconds(["-c", "import safeswap"], times=times), 0.1, unit="s CPU")
    for arguments in ([], ["study"], ["swap"], ["keygen"]):
        call = ["safeswap", *arguments, "--help"]
        judge(" ".join(call), seconds(["-m", *call], times=times), 0.15, unit="s CPU")
    with tempfile.TemporaryDirectory() as name:
        arguments = swap_arguments(Path(name))
        judge("swap of CPS-8d", seconds(["-m", "safeswap", *arguments], times=times), 1.0, unit="s CPU")
        fresh = seconds(["-m", "safeswap", *arguments], times=1, NUMBA_CACHE_DIR=str(Path(name) / "numba"))
        judge("swap of CPS-8d, nothing compiled before", fresh, 4.0, unit="s CPU")
        call = f"from safeswap.cli import main; main({arguments!r})"
        judge("files called into by a swap of CSV", len(walk(call)["files"]), 33, unit="files")
    study = "import safeswap as ss; ss.study(ss.datasets.cps8d(), up_to=1, rates=[0.01], insecure_seed=1)"
    judge("files called into by a study", len(walk(study)["files"]), 20, unit="files")


if __name__ == "__main__":
    main()
