"""What two threads gain over one: a study, a swap, counting and neighbour counts, best of ten alternating runs.

``python bench/bench_threads.py 10000000`` takes another number of records. There are two figures for each: the ratio by
the clock, which needs two idle cores, and the ratio that the work allows. For this the processor time of one thread is
divided by that of the longest path through the run with two: all that the main thread does by itself, and of every pool
the thread with most to do. It does not depend on other work on the machine, and leaves out what threads wait for each
other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np

import safeswap as ss
from goals import ONCE, judge
from safeswap import datasets
from safeswap.arrays import compiled, kd_tree
from safeswap.measures.key_cells import key_cells
from safeswap.measures.plot.neighbours import count_within
from safeswap.model.microdata import Microdata
from safeswap.model.study import StudySpec
from safeswap.studies import run as studies

KEY = ss.Key(bytes(32))
TARGET = 1.8
TIMES = 10


class Pool(ThreadPoolExecutor):
    """A pool that adds to ``longest`` what its busiest thread takes beyond the thread that opened it."""

    longest = 0.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.spent: dict[int, float] = {}
        self.opened = time.thread_time()

    def submit(self, job: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        def measured() -> Any:
            start = time.thread_time()
            try:
                return job(*given, **named)
            finally:
                self.spent[get_ident()] = self.spent.get(get_ident(), 0.0) + time.thread_time() - start

        return super().submit(measured)

    def shutdown(self, *given: Any, **named: Any) -> None:
        own = time.thread_time() - self.opened  # the opening thread works beside the others
        super().shutdown(*given, **named)
        Pool.longest += max(0.0, max(self.spent.values(), default=0.0) - own)
        self.spent = {}


@contextmanager
def measured_pools(number: int) -> Iterator[None]:
    """Use so many threads, in pools that measure them."""
    kept = compiled._most_threads, compiled.ThreadPoolExecutor, studies.ThreadPoolExecutor
    compiled._most_threads = lambda: number
    compiled.ThreadPoolExecutor = studies.ThreadPoolExecutor = Pool  # type: ignore[misc]
    try:
        yield
    finally:
        compiled._most_threads, compiled.ThreadPoolExecutor, studies.ThreadPoolExecutor = kept  # type: ignore[misc]


def spend(job: Callable[[int], object], number: int) -> tuple[float, float]:
    """Return the seconds by the clock, and the processor seconds of the longest path."""
    Pool.longest = 0.0
    with measured_pools(number):
        clock, processor = time.perf_counter(), time.thread_time()
        job(number)
        return time.perf_counter() - clock, time.thread_time() - processor + Pool.longest


def compare(name: str, job: Callable[[int], object], records: int) -> None:
    """Run a job with one thread and with two, by turns, and judge both ratios."""
    for number in (1, 2):
        spend(job, number)  # compiled, and data read once
    runs = [[spend(job, number) for number in (1, 2)] for _ in range(1 if os.environ.get(ONCE) else TIMES)]
    clock, path = (np.min(np.array(runs)[:, :, kind], axis=0) for kind in (0, 1))
    print(f"{name}, {records:,} records: {path[0]:.4f} s of processor, longest path of two threads {path[1]:.4f} s")
    judge(f"{name}, speed-up that two threads allow", path[0] / path[1], TARGET, wanted="at least", records=records)
    title = f"{name}, speed-up of two threads (wall clock)"
    judge(title, clock[0] / clock[1], TARGET, wanted="at least", records=records)


def count_neighbours(records: int) -> Callable[[int], object]:
    """Count the neighbours of lognormal points, one per cent of the file each on average."""
    points = np.random.default_rng(3).normal(size=(records, 2))
    tree = kd_tree.build(points)
    return lambda _: count_within(tree, tree, np.full(records, 0.2))


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"load {os.getloadavg()[0]:.1f}: above 1 the ratios by the clock say little")
    small = datasets.cps8d()
    question = StudySpec(replicates=2 if os.environ.get(ONCE) else 93)
    compare("study", lambda number: studies.run_study(small, question, key=KEY, threads=number), len(small))
    census = datasets.synthetic_census(records)
    spec = {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.1}
    compare("swap", lambda _: ss.mask(Microdata(census.table, census.schema), spec, key=KEY), records)
    keys = census.schema.categorical[-8:]
    census.coded_columns(keys)
    compare("counting", lambda _: key_cells(census, keys, missing="any"), records)
    compare("neighbour counts", count_neighbours(records), records)


if __name__ == "__main__":
    main()
