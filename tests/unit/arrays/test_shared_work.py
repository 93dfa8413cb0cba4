"""Work is done once, by all threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from safeswap.arrays import compiled
from safeswap.arrays.compiled import run_all
from safeswap.arrays.sparse import group


def count_threads(**environment: str) -> list[str]:
    """Return the number of threads in a new process before and after Numba is imported, and what it imported first."""
    script = (
        "import sys; from safeswap.arrays import compiled as c; first = c._most_threads(); "
        "print(first, 'numba' in sys.modules); import numba; print(c._most_threads(), numba.config.NUMBA_NUM_THREADS)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("stated", ["", "1", "5"])
def test_threads_are_as_many_as_numba_would_use_without_importing_it(stated: str) -> None:
    before, imported, after, of_numba = count_threads(**({"NUMBA_NUM_THREADS": stated} if stated else {}))
    assert imported == "False"
    assert before == after == of_numba
    assert stated in ("", before)


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 9])
def test_every_item_is_worked_on_once(threads: int | None) -> None:
    done: list[int] = []
    run_all(done.append, range(7), threads)
    assert sorted(done) == list(range(7))


def test_the_caller_gets_the_error_of_any_thread() -> None:
    def fail(item: int) -> None:
        if item == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run_all(fail, range(5))


def test_the_caller_does_not_wait_for_threads_that_are_busy_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, done = Event(), list[int]()
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(compiled._Pool, "open", pool)
        pool.submit(go_on.wait)
        try:
            run_all(done.append, range(7), 4)
            assert done == list(range(7))
        finally:
            go_on.set()


def test_work_that_is_shared_out_may_share_out_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(compiled._Pool, "open", pool)
        run_all(lambda i: run_all(lambda j: done.append((i, j)), range(5), 3), range(20), 3)
    assert sorted(done) == [(i, j) for i in range(20) for j in range(5)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of a process with threads
def test_a_forked_process_has_threads_of_its_own() -> None:
    run_all(lambda _: None, range(4))
    before = compiled._open_pool()
    child = os.fork()
    if not child:
        done: list[int] = []
        run_all(done.append, range(4))
        os._exit(0 if sorted(done) == list(range(4)) and compiled._Pool.open is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("distinct", [1, 500, 50_000])
def test_groups_spread_their_values(distinct: int) -> None:
    codes = np.random.default_rng(3).integers(0, distinct, 300_000).astype(np.uint64)
    groups = group(codes)
    assert (groups.spread(groups.codes) == codes).all()
