"""Swapping at scale: the kernel against reading its columns, the whole job against a plain copy.

Prints ratios measured in one run. `python bench/bench_swap.py 1000000` takes another number of records.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import safeswap as ss
from goals import best_of, judge

LEVELS = (3, 4, 5, 2, 2, 2, 3, 2)


def make_file(path: Path, records: int) -> None:
    """Eight small categorical attributes, an identifier and two continuous items, in scattered order."""
    rng = np.random.default_rng(1)
    columns: dict[str, pa.Array] = {"id": pa.array(rng.permutation(records))}
    for number, levels in enumerate(LEVELS):
        codes = np.minimum(rng.geometric(0.45, records) - 1, levels - 1).astype(np.int8)
        columns[f"a{number}"] = pa.DictionaryArray.from_arrays(codes, [f"level {i}" for i in range(levels)])
    columns["income"] = pa.array(np.round(rng.lognormal(10, 1, records)))
    columns["weight"] = pa.array(np.round(rng.uniform(50, 150, records), 1))
    pq.write_table(pa.table(columns), path)


def kernel(path: Path, records: int) -> None:
    """Plan and apply in memory against reading the eight columns."""
    names = [f"a{number}" for number in range(len(LEVELS))]
    read = best_of(3, lambda: pq.read_table(path, columns=names, read_dictionary=names))
    data = ss.read(path, identifier="id")
    for name in names:
        data.coded(name)
    key = ss.Key.generate()
    spec = ss.SwapSpec(swap=["a3"], rate=0.1)
    ss.swap(data, spec, key=key)
    swap = best_of(5, lambda: ss.swap(data, spec, key=key))
    print(f"swap, rate 0.1, {records:,} records: plan + apply {swap:.3f} s, read of 8 columns {read:.3f} s")
    judge("swap of 10% in memory, beside reading its 8 columns", swap / read, 1, records=records)


def end_to_end(path: Path, folder: Path, arrow_bytes: int, records: int) -> None:
    """Read, mask, verify and write the bundle in a fresh process, against a plain pyarrow copy in another."""
    source, target = str(path), str(folder / "copy.parquet")
    public, audit = str(folder / "public"), str(folder / "audit")
    copy = f"import pyarrow.parquet as pq; pq.write_table(pq.read_table({source!r}), {target!r})"
    job = (
        "import safeswap as ss\n"
        f"data = ss.read({source!r}, identifier='id')\n"
        "key = ss.Key.generate()\n"
        "masked = ss.swap(data, swap=['a3'], rate=0.1, key=key)\n"
        f"ss.release(masked, {public!r}, audit={audit!r}, key=key, data_format='parquet')\n"
    )
    plain, _ = _process(copy)
    whole, peak = _process(job)
    allowed = 3 * arrow_bytes / 1e6 + 300
    print(f"end to end with verification and bundle {whole:.1f} s, plain pyarrow read + write {plain:.1f} s")
    judge("swap, Parquet to a bundle, beside a pyarrow copy", whole / plain, 2.5, records=records)
    judge("swap, peak memory beside 3 × the Arrow data + 300 MB", peak / allowed, 1, records=records)


def _process(code: str) -> tuple[float, float]:
    """Seconds and peak memory in MB of a Python process of its own, its start taken off."""
    idle = best_of(
        2, lambda: subprocess.run([sys.executable, "-c", "import pyarrow.parquet"], check=True), time.perf_counter
    )
    start = time.perf_counter()
    measured = "import resource as r, sys\n" + code
    measured += "\nprint(r.getrusage(r.RUSAGE_SELF).ru_maxrss / 1024)"
    done = subprocess.run([sys.executable, "-c", measured], check=True, capture_output=True, text=True)
    return time.perf_counter() - start - idle, float(done.stdout.split()[-1])


def main() -> None:
    """Both comparisons on one file."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    folder = Path(tempfile.mkdtemp(prefix="safeswap-bench-"))
    try:
        make_file(folder / "data.parquet", records)
        arrow_bytes = pq.read_table(folder / "data.parquet").nbytes
        kernel(folder / "data.parquet", records)
        end_to_end(folder / "data.parquet", folder, arrow_bytes, records)
    finally:
        shutil.rmtree(folder)
    print(f"  (this process peaked at {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB)")


if __name__ == "__main__":
    main()
