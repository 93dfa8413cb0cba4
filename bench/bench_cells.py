"""How long counting cells takes, as a ratio to NumPy: per-record cell counts of eight attributes.

Run ``python bench/cells.py [records]``. Each figure is the best of several runs in this process, compilation aside.
"Packing aside" starts both sides from the packed code, "with packing" starts both from the eight columns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells

RECORDS = 10_000_000
DENSE = (3, 4, 5, 2, 2, 2, 3, 2)  # the cardinalities of CPS-8d: 2,880 cells
SPARSE = (20, 30, 25, 12, 40, 18, 22, 35)  # 1e11 cells, most of which are empty
Columns = list[npt.NDArray[np.uint8]]


def best(work: Callable[[], Any], runs: int) -> float:
    work()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def columns(records: int, cardinalities: Sequence[int]) -> Columns:
    """Skewed levels, as in surveys: the first of m levels holds sqrt(1/m) of the records."""
    rng = np.random.default_rng(2003)
    return [(rng.random(records) ** 2 * m).astype(np.uint8) for m in cardinalities]


def packed_by_numpy(data: Columns, cardinalities: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    pairs = zip(data[1:], cardinalities[1:], strict=True)
    return reduce(lambda code, pair: code * np.dtype(dtype).type(pair[1]) + pair[0], pairs, data[0].astype(dtype))


def bincount_and_gather(code: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.bincount(code)[code]


def unique(code: npt.NDArray[Any]) -> npt.NDArray[Any]:
    _, inverse, counts = np.unique(code, return_inverse=True, return_counts=True)
    return counts[inverse]


def report(
    title: str, records: int, cardinalities: Sequence[int], theirs: Callable[..., Any], *, target: float, runs: int
) -> None:
    data = columns(records, cardinalities)
    code, possible = cells.pack(data, cardinalities)
    np.testing.assert_array_equal(cells.record_cell_counts([code], [possible]), theirs(code))
    print(f"{title}: {records:,} records, {possible:,} possible cells")
    aside = (
        best(lambda: cells.record_cell_counts([code], [possible]), runs),
        best(lambda: theirs(code), min(runs, 3)),
    )
    full = (
        best(lambda: cells.record_cell_counts(data, cardinalities), runs),
        best(lambda: theirs(packed_by_numpy(data, cardinalities, code.dtype)), min(runs, 3)),
    )
    for how, (ours, numpy) in (("packing aside", aside), ("with packing", full)):
        verdict = "met" if ours <= target * numpy else "MISSED"
        print(
            f"  {how:14}  ours {ours:7.4f} s   {theirs.__name__} {numpy:7.4f} s   "
            f"ratio {ours / numpy:6.3f}   target {target}: {verdict}"
        )


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    report("dense", records, DENSE, bincount_and_gather, target=0.3, runs=7)
    report("sparse", records, SPARSE, unique, target=0.5, runs=3)


if __name__ == "__main__":
    main()
