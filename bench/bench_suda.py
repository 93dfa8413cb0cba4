"""Special uniques: groups refined key by key, against a group-by for every set of keys.

Prints processor and wall-clock seconds on the whole file, and the ratio to pandas measured in the same run on a smaller
one, where both find the same minimal uniques. `python bench/bench_suda.py 1000000` takes another number of records.
`python bench/bench_suda.py 1000000 OTHER/src` also runs the version in that folder, in turns with this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import safeswap
from goals import judge
from safeswap import datasets
from safeswap.measures.risk.individual_risk import record_risks
from safeswap.measures.risk.suda2 import special_uniques

SMALL = 100_000
MOST = 3
TARGET = 0.85  # of the processor time of the other version
CASES = (("5 keys", 1_000_000, 5), ("8 keys", 48_842, 8))
ONE_CASE = """
import sys, time
from safeswap import datasets
try:
    from safeswap.measures.risk.suda2 import special_uniques
except ImportError:
    from safeswap.measures.special_uniques import special_uniques
data = datasets.synthetic_census(int(sys.argv[1]))
keys = data.schema.categorical[-int(sys.argv[2]):]
spent = []
for _ in range(8):
    start = time.process_time()
    found = special_uniques(data, keys, most=3)
    spent.append(time.process_time() - start)
print(min(spent[1:]), len(found.unique))
"""


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


def one_case(source: str, cache: str, records: int, keys: int) -> tuple[float, int]:
    """Run one case in a process of its own; return its best time and the number of minimal uniques."""
    places = {"PYTHONPATH": source, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", ONE_CASE, str(records), str(keys)]
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=True)
    seconds, found = done.stdout.split()
    return float(seconds), int(found)


def beside(other: str) -> None:
    """Print the ratio to the other version, both started in turns."""
    ours = str(Path(safeswap.__file__).parents[1])
    with tempfile.TemporaryDirectory() as folder:
        for title, records, keys in CASES:
            runs = [
                [one_case(source, f"{folder}/{i}", records, keys) for i, source in enumerate((ours, other))]
                for _ in range(3)
            ]
            assert all(pair[0][1] == pair[1][1] for pair in runs), "both find the same"
            seconds = [min(pair[side][0] for pair in runs) for side in (0, 1)]
            judge(f"SUDA2, {title}, beside the other version", seconds[0] / seconds[1], TARGET, records=records)


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
    if len(sys.argv) > 2:
        beside(sys.argv[2])


if __name__ == "__main__":
    main()
