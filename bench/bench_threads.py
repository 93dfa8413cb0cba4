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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

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


T = TypeVar("T")


class Path:
    """The processor seconds that work shared out takes in one thread, and in so many at best."""

    whole = shared = 0.0


def add_shared(seconds: Sequence[float], number: int) -> None:
    """Add the time of pieces that are dealt to so many threads, each to the one that is free first."""
    ends = [0.0] * number
    for each in seconds:
        ends[ends.index(min(ends))] += each
    Path.whole += sum(seconds)
    Path.shared += max(ends)


def share_out(work: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Do the work piece by piece in this thread, and measure each piece."""
    seconds, before = [], (Path.whole, Path.shared)
    for item in items:
        start = time.thread_time()
        work(item)
        seconds.append(time.thread_time() - start)
    Path.whole, Path.shared = before  # a thread that has a piece shares out no more
    add_shared(seconds, threads)


class Pool:
    """In place of a pool of threads: does what is submitted at once, and measures it."""

    def __init__(self, number: int) -> None:
        self.number, self.seconds = number, list[float]()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        add_shared(self.seconds, self.number)

    def submit(self, job: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Do a job now."""
        done: Future[Any] = Future()
        start, before = time.thread_time(), (Path.whole, Path.shared)
        done.set_result(job(*given))
        self.seconds.append(time.thread_time() - start)
        Path.whole, Path.shared = before
        return done


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Use so many threads."""
    kept, compiled._most_threads = compiled._most_threads, lambda: number
    try:
        yield
    finally:
        compiled._most_threads = kept


@contextmanager
def measured_pieces() -> Iterator[None]:
    """Do in one thread what is meant for several, and measure its pieces."""
    kept = compiled._share_out, studies.ThreadPoolExecutor
    compiled._share_out, studies.ThreadPoolExecutor = share_out, Pool  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        compiled._share_out, studies.ThreadPoolExecutor = kept  # type: ignore[misc]


def clocked(job: Callable[[int], object], number: int) -> float:
    """Return the seconds by the clock with so many threads."""
    with use_threads(number):
        start = time.perf_counter()
        job(number)
        return time.perf_counter() - start


def longest_path(job: Callable[[int], object], number: int) -> float:
    """Return the processor seconds of the longest path with so many threads."""
    Path.whole = Path.shared = 0.0
    with use_threads(number), measured_pieces():
        start = time.thread_time()
        job(number)
        return time.thread_time() - start - Path.whole + Path.shared


def compare(name: str, job: Callable[[int], object], records: int) -> None:
    """Run a job with one thread and with two, by turns, and judge both ratios."""
    for number in (1, 2):
        clocked(job, number)  # compiled, and data read once
    runs = [
        [spend(job, number) for number in (1, 2) for spend in (clocked, longest_path)]
        for _ in range(1 if os.environ.get(ONCE) else TIMES)
    ]
    one, path_one, two, path_two = np.min(np.array(runs), axis=0)
    print(f"{name}, {records:,} records: {path_one:.4f} s of processor, longest path of two threads {path_two:.4f} s")
    judge(f"{name}, speed-up that two threads allow", path_one / path_two, TARGET, wanted="at least", records=records)
    title = f"{name}, speed-up of two threads (wall clock)"
    judge(title, one / two, TARGET, wanted="at least", records=records)


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
