"""What the benchmarks share: timers, and figures judged against their targets.

A benchmark calls :func:`judge` for every figure that has a target. It prints one line; under ``make bench``
(``bench/run.py``) the figure also goes to a results file, from which one table of all benchmarks is made.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

RESULTS = "SAFESWAP_BENCH_RESULTS"
ONCE = "SAFESWAP_BENCH_ONCE"  # set where it only matters that a benchmark runs


def best_of(times: int, job: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the fewest seconds of several runs: the machine is noisy, the work is not."""
    seconds = []
    for _ in range(1 if os.environ.get(ONCE) else times):
        start = clock()
        job()
        seconds.append(clock() - start)
    return min(seconds)


def keep_byte_code(folder: Path) -> None:
    """Let the processes started from here keep their byte code, as an installed package does."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "byte-code")


def timed(job: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a job, its wall-clock seconds and its processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    found = job()
    return found, time.perf_counter() - wall, time.process_time() - processor


def peak_megabytes() -> float:
    """Return the peak memory of this process; unlike ``ru_maxrss``, without that of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


def judge(
    name: str,
    figure: float,
    target: float,
    *,
    unit: str = "×",
    wanted: Literal["at most", "at least"] = "at most",
    records: int | None = None,
) -> bool:
    """Print a figure with its target and verdict, and store it for the table; return whether the target is met."""
    met = bool(figure <= target if wanted == "at most" else figure >= target)
    size = "" if records is None else f", {records:,} records"
    verdict = "met" if met else "MISSED"
    print(f"{name}{size}: {figure:.4g} {unit}, {wanted} {target:g}: {verdict}", flush=True)
    if path := os.environ.get(RESULTS):
        row = {
            "name": name,
            "records": records,
            "figure": float(figure),
            "target": target,
            "unit": unit,
            "wanted": wanted,
        }
        with Path(path).open("a", encoding="utf-8") as results:
            results.write(json.dumps(row | {"met": met}) + "\n")
    return met
