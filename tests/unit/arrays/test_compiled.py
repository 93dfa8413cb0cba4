"""Kernels are compiled when they are called, also where nothing can be cached."""

from __future__ import annotations

import pickle
import subprocess
import sys

from safeswap.arrays import pairing
from safeswap.arrays.compiled import Kernel

RUN = """
import sys, warnings
import numpy as np
from safeswap.arrays import cells, pairing, sparse
assert "numba" not in sys.modules
from numba.core import caching
caching.CacheImpl._locator_classes = []
warnings.simplefilter("always")
print(pairing.assign_moves(np.array([0, 1], np.uint32), np.array([[0, 1, 1]]), 2).tolist(), int(sparse.scramble(0)))
"""


def test_without_a_place_for_a_cache_kernels_run_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert done.stdout == "[[0, 1]] 0\n"
    assert done.stderr.count("compiled code cannot be cached") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr


def test_a_kernel_stays_a_function_of_its_module() -> None:
    # Spark sends kernels to its workers by name.
    assert isinstance(pairing.assign_moves, Kernel)
    assert pickle.loads(pickle.dumps(pairing.assign_moves)) is pairing.assign_moves
    assert pairing.assign_moves.__doc__ == pairing.assign_moves.py_func.__doc__
