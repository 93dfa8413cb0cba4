"""Rank swapping and microaggregation at scale: a million records, and how the time grows with the file.

Prints seconds of the clock and of the processor; the load says how far to trust the clock. For comparison, rank
swapping by a list of free ranks and MDAV by a pass over all records per group are timed on a small part and
extrapolated by their order of growth. `python bench/bench_numeric.py 1000000` takes another number of records.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np

from safeswap import datasets, workflow
from safeswap.methods.numeric import microaggregation
from safeswap.model.key import Key

KEYS = ("turnover", "employees")


def seconds(job: Callable[[], object]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - wall, time.process_time() - processor


def by_a_list(values: np.ndarray, window: int) -> None:
    """Rank swapping as it is usually written: the free ranks within the window, listed anew for every record."""
    rng = np.random.default_rng(1)
    free = np.ones(len(values), dtype=bool)
    for i in range(len(values)):
        if free[i]:
            above = i + 1 + np.flatnonzero(free[i + 1 : i + 1 + window])
            free[i] = False
            if len(above):
                free[rng.choice(above)] = False


def by_passes(points: np.ndarray, k: int) -> None:
    """MDAV as it is usually written: distances to all that is left, twice per group."""
    left = points
    while len(left) >= 2 * k:
        pivot = left[np.argmax(((left - left.mean(axis=0)) ** 2).sum(axis=1))]
        left = np.delete(left, np.argpartition(((left - pivot) ** 2).sum(axis=1), k)[:k], axis=0)


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    data = datasets.synthetic_enterprises(records)
    key = Key(bytes(32))
    print(f"{records:,} records × {len(KEYS)} attributes, load {os.getloadavg()[0]:.1f}")
    specs = (
        {"method": "rank_swap", "attributes": KEYS, "window": 0.05},
        {"method": "noise", "attributes": KEYS, "kind": "correlated"},
        {"method": "microaggregation", "attributes": KEYS, "k": 3},
        {"method": "microaggregation", "attributes": KEYS, "k": 3, "groups": "univariate"},
        {"method": "top_bottom", "attributes": KEYS, "top_share": 0.01},
    )
    for spec in specs:
        workflow.mask(datasets.synthetic_enterprises(2_000), spec, key=key)  # compiled once, kept in the cache
        wall, processor = seconds(lambda s=spec: workflow.mask(data, s, key=key))
        groups = f", {spec['groups']}" if "groups" in spec else ""
        print(f"{spec['method']}{groups}: {wall:.2f} s ({processor:.2f} s of processor)")
    small = 20_000
    values = np.sort(np.log(data.table["turnover"].to_numpy()))
    _, listed = seconds(lambda: by_a_list(values[:small], small // 20))
    print(f"rank swapping by a list: {listed:.2f} s for {small:,} records and one attribute, in the order of n²:")
    print(f"  about {2 * listed * (records / small) ** 2:,.0f} s of processor for all")
    points = np.random.default_rng(3).lognormal(size=(records, 2))
    points /= points.std(axis=0)
    _, passes = seconds(lambda: by_passes(points[:small], 3))
    _, tree = seconds(lambda: microaggregation.mdav(points, 3))
    print(f"MDAV alone: {tree:.2f} s of processor; by passes over what is left {passes:.2f} s for {small:,} records,")
    print(
        f"  about {passes * (records / small) ** 2:,.0f} s for all: ratio {passes * (records / small) ** 2 / tree:,.0f}"
    )


if __name__ == "__main__":
    main()
