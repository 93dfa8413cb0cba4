"""Reuse of freed memory: kept for the next array within a block, returned to the system after it.

glibc only; with another C library nothing is changed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # parameters of mallopt
_REUSED = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1}
_USUAL = {_MMAP_MAX: 1 << 16, _TRIM_THRESHOLD: 1 << 26, _MMAP_THRESHOLD: 1 << 25}
"""As glibc sets itself once a large block was freed."""


class _Blocks:
    """The blocks now open, in any thread."""

    lock = Lock()
    number = 0


@contextmanager
def reusing_memory() -> Iterator[None]:
    """Let large arrays take the place of those that were freed, within the block.

    By default each is fresh memory, which the system clears page by page: a sixth of the time of masking a file.
    """
    with _Blocks.lock:
        _Blocks.number += 1
        if _Blocks.number == 1:
            _set(_REUSED)
    try:
        yield
    finally:
        with _Blocks.lock:
            _Blocks.number -= 1
            if not _Blocks.number:
                _set(_USUAL)
                if (glibc := _glibc()) is not None:
                    glibc.malloc_trim(0)


def return_memory() -> None:
    """Return to the system what Arrow and the C library keep free; within :func:`reusing_memory`, nothing."""
    if _Blocks.number:
        return
    pa.default_memory_pool().release_unused()
    if (glibc := _glibc()) is not None:
        glibc.malloc_trim(0)


def _set(parameters: Mapping[int, int]) -> None:
    if (glibc := _glibc()) is not None:
        for parameter, value in parameters.items():
            glibc.mallopt(parameter, value)


def _glibc() -> Any:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
