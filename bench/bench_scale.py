"""Masking files on disk as they grow: records per second, peak memory and the ratio to a plain copy, per engine.

``python bench/bench_scale.py`` tries a million and ten million households in memory and in DuckDB.
``python bench/bench_scale.py 1e6 1e7 1e8 --engines memory duckdb spark`` tries what it is told to.
Every figure is of a process of its own; plain copy and masking are measured in the same run.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = 'ss.SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.1)'
COPIES = {
    "pyarrow": "import pyarrow.parquet as pq; pq.write_table(pq.read_table({source!r}), {target!r})",
    "polars": "import polars as pl; pl.read_parquet({source!r}).write_parquet({target!r})",
}
MASK = (
    "import safeswap as ss\n"
    "from safeswap import datasets, workflow\n"
    f"spec = {SPEC}\n"
    "known = dict(schema=datasets.synthetic_census_schema(), insecure_seed=1, memory_limit='1GB')\n"
    "workflow.mask_file({source!r}, {target!r}, spec, audit={audit!r}, engine={engine!r}, force=True, **known)\n"
)
ASSESS = (
    "from safeswap import datasets, workflow\n"
    "keys = ['STATE', *datasets.CENSUS_KEYS, 'TENURE', 'OCCUPATION']\n"
    "known = dict(schema=datasets.synthetic_census_schema(), attributes=keys)\n"
    "workflow.assess_file({source!r}, {target!r}, **known)\n"
)


def measured(code: str) -> tuple[float, float]:
    """Seconds, its start included, and peak memory in MB of a Python process with all its children."""
    told = "\nimport resource as r\nwho = r.RUSAGE_SELF, r.RUSAGE_CHILDREN"
    told += "\nprint(max(r.getrusage(w).ru_maxrss for w in who) / 1024)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + told], check=True, capture_output=True, text=True)
    return time.perf_counter() - start, float(done.stdout.split()[-1])


def make(path: Path, records: int) -> None:
    """The synthetic census, made in a process of its own: its memory is not to be counted."""
    code = f"from safeswap import datasets; datasets.write_synthetic_census({str(path)!r}, {records})"
    subprocess.run([sys.executable, "-c", code], check=True)


def run(folder: Path, records: int, engines: list[str]) -> dict[str, float]:
    """One size: the copies, then each engine."""
    source = str(folder / "census.parquet")
    make(Path(source), records)
    copies = {
        name: measured(code.format(source=source, target=str(folder / "copy.parquet"))) for name, code in COPIES.items()
    }
    plain = min(seconds for seconds, _ in copies.values())
    for name, (seconds, peak) in copies.items():
        print(f"{records:>11,}  copy {name:8} {seconds:8.1f} s  {records / seconds:>12,.0f} records/s  {peak:8,.0f} MB")
    times = {}
    for engine in engines:
        target = str(folder / ("masked" if engine == "spark" else "masked.parquet"))
        named = {"source": source, "target": target, "audit": str(folder / "audit"), "engine": engine}
        seconds, peak = measured(MASK.format(**named))
        times[engine] = seconds
        print(
            f"{records:>11,}  mask {engine:8} {seconds:8.1f} s  {records / seconds:>12,.0f} records/s  {peak:8,.0f} MB"
            f"  {seconds / plain:5.2f} × the copy"
        )
    if "memory" in engines:
        seconds, peak = measured(ASSESS.format(source=source, target=str(folder / "masked.parquet")))
        print(f"{records:>11,}  assess        {seconds:8.1f} s  {records / seconds:>12,.0f} records/s  {peak:8,.0f} MB")
    return times


def main() -> None:
    """All sizes, and how the time grows with them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("records", nargs="*", type=float, default=[1e6, 1e7])
    options.add_argument("--engines", nargs="+", default=["memory", "duckdb"])
    options.add_argument(
        "--folder", type=Path, default=None, help="where to write; a temporary directory if not stated"
    )
    chosen = options.parse_args()
    sizes = [int(records) for records in chosen.records]
    grown: dict[str, list[float]] = {engine: [] for engine in chosen.engines}
    for records in sizes:
        folder = Path(tempfile.mkdtemp(prefix="safeswap-scale-", dir=chosen.folder))
        try:
            for engine, seconds in run(folder, records, chosen.engines).items():
                grown[engine].append(seconds)
        finally:
            shutil.rmtree(folder)
    for engine, seconds in grown.items():
        for i in range(1, len(sizes)):
            slope = math.log(seconds[i] / seconds[i - 1]) / math.log(sizes[i] / sizes[i - 1])
            print(
                f"{engine}: from {sizes[i - 1]:,} to {sizes[i]:,} time grows with the power {slope:.2f} (at most 1.05)"
            )


if __name__ == "__main__":
    main()
