"""Freed memory is kept within blocks that may nest and overlap, and returned after the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from safeswap.arrays import heap
from safeswap.arrays.heap import reusing_memory


class Glibc:
    """What the C library is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def mallopt(self, parameter: int, value: int) -> None:
        self.told.append((parameter, value))

    def malloc_trim(self, pad: int) -> None:
        self.told.append(("trim", pad))


@pytest.fixture
def glibc(monkeypatch: pytest.MonkeyPatch) -> Glibc:
    found = Glibc()
    monkeypatch.setattr(heap, "_glibc", lambda: found)
    return found


BEGIN = [*heap._REUSED.items()]
END = [*heap._USUAL.items(), ("trim", 0)]


def test_only_the_outermost_block_counts(glibc: Glibc) -> None:
    with reusing_memory():
        with reusing_memory():
            pass
        assert glibc.told == BEGIN
    assert glibc.told == BEGIN + END


def test_a_block_that_fails_returns_memory_too(glibc: Glibc) -> None:
    with pytest.raises(KeyError), reusing_memory():
        raise KeyError
    assert glibc.told == BEGIN + END


def test_blocks_of_several_threads_may_overlap(glibc: Glibc) -> None:
    together = Barrier(4)

    def work(_: int) -> None:
        with reusing_memory():
            together.wait()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert glibc.told == BEGIN + END
