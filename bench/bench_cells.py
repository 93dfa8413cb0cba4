"""Counting the records that share their keys: ratios to NumPy, pandas and a pass over the columns, and the growth.

Run ``python bench/bench_cells.py [records] [largest]``. Figures are the best of several alternating runs in this
process, compilation aside, in seconds of processor time. What gains from two threads, the ratios to NumPy and the speed
of two threads, is by the clock and needs a quiet machine. Keys start coded, as ``Microdata`` holds them. ``largest`` is
the number of records up to which growth is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from goals import judge
from safeswap import datasets
from safeswap.arrays import cells, compiled
from safeswap.measures.key_cells import key_cells
from safeswap.measures.risk.individual_risk import record_risks

DENSE = (3, 4, 5, 2, 2, 2, 3, 2)  # the cardinalities of CPS-8d: 2,880 cells
SPARSE = (20, 30, 25, 12, 40, 18, 22, 35)  # 1e11 cells, most of which are empty
Columns = list[npt.NDArray[np.uint8]]


def best(jobs: Sequence[Callable[[], Any]], runs: int, clock: Callable[[], float] = time.process_time) -> list[float]:
    """Return the best time of each job; jobs take turns, so that all meet the same neighbours on the machine."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for job in jobs:
        job()
    for _ in range(runs):
        for job, spent in zip(jobs, seconds, strict=True):
            start = clock()
            job()
            spent.append(clock() - start)
    return [min(spent) for spent in seconds]


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


def against_numpy(
    title: str, records: int, cardinalities: Sequence[int], theirs: Callable[..., Any], *, target: float
) -> None:
    """Compare per-record counts from the columns with the obvious way in NumPy."""
    data = columns(records, cardinalities)
    code, _ = cells.pack(data, cardinalities)
    np.testing.assert_array_equal(cells.record_cell_counts(data, cardinalities), theirs(code))
    ours, numpy = best(
        [
            lambda: cells.record_cell_counts(data, cardinalities),
            lambda: theirs(packed_by_numpy(data, cardinalities, code.dtype)),
        ],
        3,
        time.perf_counter,
    )
    judge(f"per-record counts, {title}, beside NumPy's {theirs.__name__}", ours / numpy, target, records=records)


def against_pandas(records: int) -> None:
    """Compare the cells of eight keys with pandas' sizes of groups, and individual risk with its counts."""
    data = datasets.synthetic_census(records)
    keys = data.schema.categorical[-8:]
    coded = [data.coded(key) for key in keys]
    levels = [pd.Categorical.from_codes(c.codes.astype(np.int64), range(c.cardinality)) for c in coded]
    frame = pd.DataFrame(dict(zip(keys, levels, strict=True)))
    found, sizes = key_cells(data, keys, missing="any"), frame.groupby(list(keys), observed=True).size()
    assert sorted(found.like.tolist()) == sorted(sizes.tolist()), "both count the same"
    counting, risk, pandas, floor = best(
        [
            lambda: key_cells(data, keys, missing="any"),
            lambda: record_risks(data, keys),
            lambda: frame.groupby(list(keys), observed=True).size(),
            lambda: [c.codes.max() for c in coded],
        ],
        9,
    )
    print(f"8 keys of {records:,} records, {len(found.classes):,} cells: {counting:.4f} s of processor")
    judge("counts of 8 keys beside pandas' groupby", counting / pandas, 0.15, records=records)
    judge("individual risk beside its counts", risk / counting, 1.3, records=records)
    print(f"  counts, ratio to reading the columns once {counting / floor:24.1f}")
    one, both = best([lambda: on_threads(1, data, keys), lambda: on_threads(2, data, keys)], 10, time.perf_counter)
    judge("counts, speed of two threads over one (wall clock)", one / both, 1.8, wanted="at least", records=records)


def on_threads(number: int, data: Any, keys: Sequence[str]) -> None:
    most = compiled._most_threads
    compiled._most_threads = lambda: number
    try:
        key_cells(data, keys, missing="any")
    finally:
        compiled._most_threads = most


def growth(largest: int) -> None:
    """Print how the time of counting grows: the exponent between sizes ten times apart."""
    for title, cardinalities in (("few cells", DENSE), ("many cells", SPARSE)):
        spent: list[float] = []
        size = 100_000
        while size <= largest:
            data = columns(size, cardinalities)
            spent += best([lambda data=data, c=cardinalities: cells.record_cell_counts(data, c)], 3)
            size *= 10
        for i, (before, after) in enumerate(pairwise(spent)):
            name = f"counts, {title}, growth exponent from {10 ** (5 + i):,}"
            judge(name, float(np.log10(after / before)), 1.15, unit="power")


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    against_pandas(records)
    against_numpy("dense", records, DENSE, bincount_and_gather, target=0.3)
    against_numpy("sparse", records, SPARSE, unique, target=0.5)
    growth(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)


if __name__ == "__main__":
    main()
