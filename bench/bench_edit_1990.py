"""The Confidentiality Edit of 1990 at scale: against a sort of the keys, and the whole job against a plain copy.

Prints ratios measured in one run. `python bench/bench_edit_1990.py 100000 1000000` takes other numbers of households.
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

import safeswap as ss
from goals import best_of, judge
from safeswap import datasets
from safeswap.arrays import cells
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.microdata import Microdata

SPEC = Edit1990Spec(
    keys=datasets.CENSUS_KEYS, geography=datasets.CENSUS_GEOGRAPHY, across="PLACE", rate=0.01, single_areas="leave"
)
SMALL_BLOCKS = SPEC.replace(small_block_units=5, small_block_rate=0.05)


def edit(census: Microdata) -> None:
    """Everything that ``mask`` does, in memory, against NumPy's argsort of eight packed keys."""
    for name in (*SPEC.keys, *SPEC.geography):
        census.coded(name)
    columns, sizes = census.coded_columns(SPEC.keys[:8])
    packed = cells.pack(columns, sizes)[0].astype(np.uint64)
    sort, busy_sort = (
        best_of(3, lambda: np.argsort(packed), clock) for clock in (time.perf_counter, time.process_time)
    )
    key = ss.Key.generate()
    for name, spec in (("1% sample", SPEC), ("1% sample, 5% in small blocks", SMALL_BLOCKS)):

        def job(spec: Edit1990Spec = spec) -> object:
            return ss.mask(census, spec, key=key)

        job()
        mask, busy = (best_of(5, job, clock) for clock in (time.perf_counter, time.process_time))
        print(f"{name}, {len(census):,} households: {mask:.3f} s, argsort of 8 packed keys {sort:.3f} s")
        judge(f"1990 edit, {name}, beside an argsort of 8 keys", mask / sort, 0.2, records=len(census))
        print(f"  processor time of all cores {busy:.3f} s against {busy_sort:.3f} s, ratio {busy / busy_sort:.2f}")
    masked = ss.mask(census, SPEC, key=key)
    start = time.perf_counter()
    diagnosis = masked.audit.facts["diagnosis"]
    took = time.perf_counter() - start
    facts = masked.audit.facts
    print(f"  {facts['sampled']:,} sampled, {facts['match_rate']:.2%} matched; diagnosis of the others {took:.3f} s")
    print("  " + "; ".join(f"{each['change']}: {each['more']:,} more" for each in diagnosis[:3]))


def end_to_end(path: Path, folder: Path, households: int) -> None:
    """Read and mask and write, a file that stays inside or a verified public bundle, against a plain pyarrow copy."""
    target = str(folder / "copy.parquet")
    copy = f"import pyarrow.parquet as pq; pq.write_table(pq.read_table({str(path)!r}), {target!r})"
    mask = (
        "import safeswap as ss\n"
        f"data = ss.read({str(path)!r}, schema=ss.datasets.synthetic_census_schema())\n"
        "key = ss.Key.generate()\n"
        f"masked = ss.mask(data, {SMALL_BLOCKS.as_dict()!r}, key=key)\n"
    )
    write = f"from safeswap.files.write import write\nwrite(masked, {target!r}, force=True)\n"
    names = (str(folder / "public"), str(folder / "audit"))
    release = f"ss.release(masked, {names[0]!r}, audit={names[1]!r}, key=key, data_format='parquet')\n"
    plain, busy_plain = _process(copy)
    for what, code in (("a masked file", mask + write), ("a verified public bundle", mask + release)):
        whole, busy = _process(code)
        print(f"from Parquet to {what} {whole:.1f} s, plain pyarrow read + write {plain:.1f} s")
        print(f"  processor time of all cores {busy:.1f} s against {busy_plain:.1f} s")
        judge(f"1990 edit, Parquet to {what}, beside a copy (CPU)", busy / busy_plain, 2.5, records=households)
    for made in names:
        shutil.rmtree(made)


def _process(code: str) -> tuple[float, float]:
    """Seconds on the clock and of the processors, of a Python process of its own."""
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    """Both comparisons for each number of households."""
    numbers = [int(text) for text in sys.argv[1:]] or [100_000, 1_000_000, 10_000_000]
    for households in numbers:
        folder = Path(tempfile.mkdtemp(prefix="safeswap-bench-"))
        try:
            path = folder / "census.parquet"
            start = time.perf_counter()
            datasets.write_synthetic_census(path, households)
            took = time.perf_counter() - start
            print(f"synthetic census of {households:,} households written in {took:.1f} s")
            edit(datasets.synthetic_census(households))
            end_to_end(path, folder, households)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
