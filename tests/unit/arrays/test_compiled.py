"""Kernels are compiled when they are called, also where nothing can be cached."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from safeswap.arrays import compiled, order
from safeswap.arrays.compiled import Kernel

RUN = """
import sys, warnings
import numpy as np
from safeswap.arrays import cells, order, sparse
assert "numba" not in sys.modules
from numba.core import caching
caching.CacheImpl._locator_classes = []
warnings.simplefilter("always")
print(order.assign_moves(np.array([0, 1], np.uint32), np.array([[0, 1, 1]]), 2).tolist(), int(sparse.scramble(0)))
"""


def test_without_a_place_for_a_cache_kernels_run_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert done.stdout == "[[0, 1]] 0\n"
    assert done.stderr.count("compiled code cannot be cached") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr


LOAD = """
import numpy as np
from safeswap.arrays import compiled, order
compiled._LONGEST_WAIT = 600
print(order.assign_moves(np.array([0, 1, 1, 0], np.uint32), np.array([[0, 1, 2]]), 2).tolist())
print(sum(order.assign_moves._dispatcher.stats.cache_hits.values()))
"""


def test_processes_that_start_together_compile_a_kernel_once_and_get_the_same(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = [sys.executable, "-c", LOAD]
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    (one, hits), (other, more_hits) = (process.communicate()[0].splitlines() for process in started)
    assert one == other
    assert sorted([hits, more_hits]) == ["0", "1"]


HANG = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_that_hangs_with_the_lock_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_LONGEST_WAIT", 0.05)
    lock = str(tmp_path / "kernel.lock")
    run = [sys.executable, "-c", HANG, lock]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with compiled._hold(lock):
            assert process.poll() is None
        process.stdin.close()
    with compiled._hold(str(tmp_path / "no such folder" / "kernel.lock")):
        pass  # where no file can be made, every process compiles for itself


def test_a_kernel_stays_a_function_of_its_module() -> None:
    # Spark sends kernels to its workers by name.
    assert isinstance(order.assign_moves, Kernel)
    assert pickle.loads(pickle.dumps(order.assign_moves)) is order.assign_moves
    assert order.assign_moves.__doc__ == order.assign_moves.py_func.__doc__
