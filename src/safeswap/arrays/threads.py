"""Run kernels on several cores, with results that do not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

_WORTH_A_THREAD = 1 << 17


def split_runs(records: int) -> list[tuple[int, int]]:
    """Divide the records into runs, one per thread worth starting (``NUMBA_NUM_THREADS`` at most).

    >>> split_runs(10)
    [(0, 10)]
    """
    count = max(1, min(_most_threads(), records // _WORTH_A_THREAD)) if records >= 2 * _WORTH_A_THREAD else 1
    edges = [records * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def run_all(work: Callable[[T], object], items: Sequence[T], threads: int | None = None) -> None:
    """Call ``work`` on every item: in a thread each if there are several, or in so many threads, by turns.

    Plain threads, not Numba's parallel loops: its default pool breaks when two threads enter it at once, and
    compiling for it takes several times as long. The kernels release the GIL.
    """
    if len(items) <= 1 or threads == 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(threads or len(items)) as pool:
        for future in [pool.submit(work, item) for item in items]:
            future.result()


def _most_threads() -> int:
    import numba  # takes a third of a second, so only for large files

    return int(vars(numba.config)["NUMBA_NUM_THREADS"])
