"""The numeric methods beside plain NumPy: ratios of processor time in one run.

`python bench/bench_numeric.py 100000` takes another number of records. Each figure is the best of several alternating
runs; verdicts compare it with its target. How the methods grow with the file is in ``bench_growth.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import safeswap as ss
from goals import judge
from safeswap import datasets, registry
from safeswap.arrays import keyed
from safeswap.methods.numeric import microaggregation, rank_swap
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.workflow import mask_file

KEY = ss.Key(bytes(32))
AMOUNTS = ("turnover", "employees")
CATEGORIES = ("division", "region")
SPECS: Mapping[str, Mapping[str, Any]] = {
    "rank swapping": {"method": "rank_swap", "attributes": AMOUNTS, "window": 0.05},
    "noise": {"method": "noise", "attributes": AMOUNTS, "kind": "correlated"},
    "PRAM": {"method": "pram", "attributes": CATEGORIES},
    "top coding": {"method": "top_bottom", "attributes": AMOUNTS, "top_share": 0.01},
    "univariate groups": {"method": "microaggregation", "attributes": AMOUNTS, "k": 3, "groups": "univariate"},
    "MDAV": {"method": "microaggregation", "attributes": AMOUNTS, "k": 3},
}
TARGETS = {"rank swapping": 2.5, "noise": 6.0, "PRAM": 6.0}


def spent(job: Callable[[], object]) -> float:
    started = time.process_time()
    job()
    return time.process_time() - started


def best(jobs: Mapping[str, Callable[[], object]], times: int = 5) -> dict[str, float]:
    """The least processor time of each job, all in turn, so that a noisy minute hits every one of them."""
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(times):
        for name, job in jobs.items():
            found[name] = min(found[name], spent(job))
    return found


def plain_ways(data: Microdata) -> dict[str, Callable[[], object]]:
    """What the same work costs in NumPy without keys, ties, missing values, rounding, an audit or a new table."""
    columns = [data.table[name].to_numpy() for name in AMOUNTS]
    numbers = np.stack(columns, axis=1).astype(np.float64)
    codes = [data.coded(name).codes for name in CATEGORIES]
    factor = np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]]))
    rng = np.random.default_rng(1)
    levels = np.arange(256, dtype=np.uint8)

    def noise() -> None:
        deviates = rng.standard_normal((len(numbers), 2))
        for start in range(0, len(numbers), 4096):  # few rows at a time: BLAS would start threads for more
            deviates[start : start + 4096] @ factor.T

    return {
        "rank swapping": lambda: [np.argsort(column) for column in columns],
        "noise": noise,
        "PRAM": lambda: [(rng.random(len(column)), levels.take(column)) for column in codes],
        "top coding": lambda: [np.minimum(column, np.partition(column, -len(column) // 100)[0]) for column in columns],
        "univariate groups": lambda: [np.argsort(column) for column in columns],
    }


def masking(data: Microdata, name: str) -> Callable[[], object]:
    """The whole call, on data that nobody has coded yet."""
    return lambda: ss.mask(Microdata(data.table, data.schema), SPECS[name], key=KEY)


def verifying(data: Microdata, name: str) -> Callable[[], object]:
    masked = ss.mask(data, SPECS[name], key=KEY)
    method = registry.method(masked.spec.method)

    def check() -> None:
        promises = method.invariants(masked.original, masked.spec)
        findings = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
        assert all(finding.ok for finding in findings)

    return check


def floors(data: Microdata) -> dict[str, Callable[[], object]]:
    """What cannot be saved while the draws keep their bytes."""
    numbers = np.arange(len(data))
    words = keyed.record_words(numbers, bytes(32))
    values = data.table["turnover"].to_numpy()
    lazy = keyed.KeyedWords(numbers, bytes(32))
    order, keys, draws = rank_swap.rank_values(values.copy(), lazy)
    return {
        "cipher, one column": lambda: keyed.record_words(numbers, bytes(32)),
        "inverse normal, one column": lambda: keyed.normals(words[:, 0]),
        "NumPy's normal draws, one column": lambda: np.random.default_rng(1).standard_normal(len(data)),
        "rank order, one column": lambda: rank_swap.rank_values(values.copy(), lazy),
        "pairs within the window, one column": lambda: rank_swap.pairs_within(keys, order, draws, len(data) // 20),
    }


def ratios(records: int) -> None:
    data = datasets.synthetic_enterprises(records)
    plain = plain_ways(data)
    print(f"\n{records:,} records, two columns, processor seconds, load {os.getloadavg()[0]:.1f}")
    for name, reference in plain.items():
        found = best({"mask": masking(data, name), "plain": reference, "verify": verifying(data, name)})
        ratio = found["mask"] / found["plain"]
        print(
            f"  {name}: mask {found['mask']:.3f}, plain NumPy {found['plain']:.3f}, ratio {ratio:.2f}; "
            f"verification {found['verify']:.3f}"
        )
        if name in TARGETS:
            judge(f"{name} of 2 columns beside plain NumPy", ratio, TARGETS[name], records=records)
    for name, seconds in best(floors(data)).items():
        print(f"    {name}: {seconds:.4f}")


THREADS = """
import os, time
import safeswap as ss
from safeswap import datasets
data, key = datasets.synthetic_enterprises({records}), ss.Key(bytes(32))
spec = {{"method": "rank_swap", "attributes": ("turnover", "employees")}}
os.sched_setaffinity(0, range({cores}))
ss.mask(datasets.synthetic_enterprises(2000), spec, key=key)
best = 1e9
for _ in range(5):
    start = time.perf_counter()
    ss.mask(data, spec, key=key)
    best = min(best, time.perf_counter() - start)
print(best)
"""


def threads(records: int) -> None:
    """Rank swapping draws each attribute in a thread: wall time on one core and on two, if the machine is idle."""
    if (os.cpu_count() or 1) < 2:
        return
    walls = []
    for cores in (1, 2):
        code = THREADS.format(records=records, cores=cores)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        walls.append(float(done.stdout))
    print(f"\nrank swapping on one core {walls[0]:.3f} s, on two {walls[1]:.3f} s: {walls[0] / walls[1]:.2f} times")
    print(f"  load {os.getloadavg()[0]:.1f}: above 1 the wall time says little")


def on_disk(records: int) -> None:
    """Masking a Parquet file against a plain copy of it."""
    folder = Path(tempfile.mkdtemp())
    source = folder / "source.parquet"
    pq.write_table(datasets.synthetic_enterprises(records).table, source)
    print(f"\nParquet file of {records:,} records, processor seconds")

    def copy() -> None:
        pq.write_table(pq.read_table(source), folder / "copy.parquet")

    def mask(name: str) -> None:
        target, audit = folder / "masked.parquet", folder / "audit"
        mask_file(source, target, SPECS[name], audit=audit, key=KEY, identifier="id", force=True)
        shutil.rmtree(audit)

    for name in ("noise", "PRAM", "top coding"):
        found = best({"copy": copy, "mask": lambda name=name: mask(name)}, 3)
        print(f"  {name}: {found['mask']:.2f}, a copy {found['copy']:.2f}: ratio {found['mask'] / found['copy']:.2f}")
    shutil.rmtree(folder)


def passes(points: np.ndarray, k: int) -> None:
    """MDAV as it is usually written: distances to all that is left, twice per group."""
    left = points
    while len(left) >= 2 * k:
        pivot = left[np.argmax(((left - left.mean(axis=0)) ** 2).sum(axis=1))]
        left = np.delete(left, np.argpartition(((left - pivot) ** 2).sum(axis=1), k)[:k], axis=0)


def trees(records: int) -> None:
    points = np.random.default_rng(3).lognormal(size=(records, 2))
    small = points[: max(1_000, records // 100)]
    by_passes, by_tree = spent(lambda: passes(small, 3)), spent(lambda: microaggregation.mdav(small, 3))
    print(f"\nMDAV of {len(small):,} records by passes {by_passes:.2f}, by the tree {by_tree:.3f}", end="")
    print(f": ratio {by_passes / by_tree:,.0f}")


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    small = datasets.synthetic_enterprises(20_000)
    for name in SPECS:
        masking(small, name)()  # compiled once, kept in the cache
    ratios(records)
    trees(records)
    on_disk(records)
    threads(records)


if __name__ == "__main__":
    main()
