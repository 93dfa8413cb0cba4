"""Special uniques: groups refined key by key, against a group-by for every set of keys.

Prints processor and wall-clock seconds on the whole file, and the ratio to pandas measured in the same run on a smaller
one, where both find the same minimal uniques. `python bench/bench_suda.py 1000000` takes another number of records.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from safeswap import datasets
from safeswap.measures.risk.individual_risk import record_risks
from safeswap.measures.risk.suda2 import special_uniques

SMALL = 100_000
MOST = 3


def timed(job: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    found = job()
    return found, time.perf_counter() - wall, time.process_time() - processor


def plain(frame: pd.DataFrame, most: int) -> int:
    """How many minimal uniques there are: the size of every record's group, for every set of keys."""
    unique: dict[tuple[str, ...], np.ndarray] = {}
    found = 0
    for size in range(1, most + 1):
        for keys in combinations(frame.columns, size):
            alone = (frame.groupby(list(keys), observed=True)[keys[0]].transform("size") == 1).to_numpy()
            parts = [unique[part] for n in range(1, size) for part in combinations(keys, n)]
            minimal = alone & ~np.logical_or.reduce(parts) if parts else alone
            unique[keys] = alone
            found += int(np.count_nonzero(minimal))
    return found


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    census = datasets.synthetic_census(records)
    narrow, wide = census.schema.categorical[-8:], census.schema.categorical[:8]
    small = datasets.synthetic_census(SMALL)
    for key_set in (narrow, wide):
        special_uniques(census, key_set, most=1)  # compiled once, kept in the cache
    print(f"{records:,} records × 8 keys, up to {MOST} together; load {os.getloadavg()[0]:.1f}")
    for name, keys in (("households", narrow), ("with places", wide)):
        census.coded_columns(keys)
        found, wall, cpu = timed(lambda keys=keys: special_uniques(census, keys, most=MOST))
        print(f"  {name}: {len(found.unique):,} minimal uniques, {cpu:.2f} s processor, {wall:.2f} s")
        risks, wall, cpu = timed(lambda keys=keys: record_risks(census, keys))
        print(f"  {name}: {len(risks.cells.classes):,} cells, risks of all in {cpu:.2f} s processor, {wall:.2f} s")
        frame = pd.DataFrame({key: small.coded(key).codes for key in keys})
        ours, _, cpu = timed(lambda keys=keys: special_uniques(small, keys, most=MOST))
        theirs, _, plain_cpu = timed(lambda frame=frame: plain(frame, MOST))
        assert theirs == len(ours.unique), "both find the same"
        print(f"  {name}, {SMALL:,} records: pandas takes {plain_cpu / cpu:.0f} times as long ({plain_cpu:.1f} s)")


if __name__ == "__main__":
    main()
