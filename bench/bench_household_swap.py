"""Targeted record swapping of households: from coded columns, with scarce donors, and from Parquet to Parquet.

`python bench/bench_household_swap.py 1000000 10000000` takes these numbers of persons. Goals are CPU seconds on one
core of the machine on which sdcMicro 5.8.1 took 16 to 97 s for a million persons, and 33 s with scarce donors, where it
missed 117 households.
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

from goals import best_of, judge
from safeswap import Key, datasets
from safeswap.files.coded_columns import load_coded
from safeswap.files.parquet import open_parquet
from safeswap.methods.household_swap.households import read_households
from safeswap.methods.household_swap.method import HouseholdSwap
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import Population, Risk, Rules, Swapped, swap_once
from safeswap.model.microdata import Microdata

SPEC = HouseholdSwapSpec(
    risk_variables=datasets.POPULATION_RISK,
    similar=(("TENURE",), ()),
    rate=0.05,
    communal="HTYPE",
    communal_values=("communal",),
)
GOALS = {1_000_000: 0.15, 10_000_000: 2.5, 100_000_000: 25.0}


def again(people: Population) -> Population:
    """Return the population without what was computed from it."""
    derived = ("areas", "ranks")
    return Population(**{name: value for name, value in vars(people).items() if name not in derived})


def swap(people: Population, rate: int = 50_000, k: int = 3) -> Swapped:
    """Count, pair and top up in one round."""
    fresh = again(people)
    return swap_once(fresh, Rules(rate_per_million=rate), Risk.of(fresh, k))


def from_coded_columns(data: Microdata) -> None:
    """Swap once, from the columns as kernels take them; then the whole of ``mask``, with coding and three rounds."""
    found = read_households(data, SPEC.resolve(data.schema), Key(bytes(32)), bytes(32))
    done = swap(found.population)
    risky = done.risk.required < found.population.areas.depth
    busy = best_of(3, lambda: swap(found.population), time.process_time)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{len(data):,} persons in {len(found):,} households: {busy:.3f} CPU s, peak {peak:,.0f} MB")
    print(
        f"  {np.count_nonzero(risky):,} at risk, {np.count_nonzero(done.partner >= 0):,} swapped, proved: {done.proved}"
    )
    judge("household swap, from coded columns (CPU)", busy, GOALS.get(len(data), 25.0), records=len(data), unit="s")


def scarce_donors(households: int = 40_000, cells: int = 11_000) -> None:
    """Few households per cell, a third of them at risk: most of the work is repair and search."""
    rng = np.random.default_rng(7)
    paths = np.array([[a, 8 * a + b, 64 * a + 8 * b + c] for a in range(8) for b in range(8) for c in range(8)])
    size = rng.choice([1, 2, 3, 4, 5], households, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    household = np.repeat(np.arange(households, dtype=np.int32), size)
    people = Population(
        household=household,
        cell=np.minimum(rng.geometric(0.035, len(household)) - 1, 249).astype(np.uint8),
        cells=250,
        area=rng.integers(0, len(paths), households).astype(np.int32),
        paths=paths,
        profiles=(rng.integers(0, cells, households),),
        draw=rng.integers(0, 2**64, households, dtype=np.uint64),
    )
    done = swap(people, rate=0)
    risky = done.risk.required < 3
    covered = int(np.count_nonzero(risky & (done.partner >= 0)))
    busy = best_of(3, lambda: swap(people, rate=0), time.process_time)
    print(f"scarce donors, {len(household):,} persons, {cells:,} cells: {busy:.3f} CPU s")
    print(f"  {covered:,} of {np.count_nonzero(risky):,} at risk swapped, the largest number: {done.proved}")
    judge("household swap, scarce donors (CPU)", busy, 0.3, records=len(household), unit="s")


def from_file_to_file(path: Path, folder: Path, persons: int) -> None:
    """Mask a Parquet file with verification, against a plain pyarrow copy."""
    target = str(folder / "copy.parquet")
    copy = f"import pyarrow.parquet as pq; pq.write_table(pq.read_table({str(path)!r}), {target!r})"
    mask = (
        "import resource, safeswap as ss\nfrom safeswap.workflow import mask_file\n"
        f"mask_file({str(path)!r}, {str(folder / 'masked.parquet')!r}, {SPEC.as_dict()!r}, key=ss.Key.generate(), "
        f"audit={str(folder / 'audit')!r}, schema=ss.datasets.synthetic_population_schema(), force=True, engine=%r)\n"
        "print(f'peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB')"
    )
    plain = _cpu_of(copy)
    print(f"plain pyarrow read + write {plain:.1f} CPU s")
    for engine in ("memory", "duckdb"):
        whole = _cpu_of(mask % engine)
        print(f"from Parquet to masked Parquet on {engine} {whole:.1f} CPU s")
        judge(
            f"household swap on {engine}, Parquet to Parquet, beside a copy (CPU)", whole / plain, 2.0, records=persons
        )


def _cpu_of(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """All comparisons for each number of persons."""
    scarce_donors()
    for persons in [int(text) for text in sys.argv[1:]] or [1_000_000, 10_000_000]:
        folder = Path(tempfile.mkdtemp(prefix="safeswap-bench-"))
        try:
            datasets.write_synthetic_population(folder / "people.parquet", persons)
            schema = datasets.synthetic_population_schema()
            named = HouseholdSwap().columns(schema, SPEC).read
            from_coded_columns(load_coded(open_parquet(folder / "people.parquet"), schema, named))
            from_file_to_file(folder / "people.parquet", folder, persons)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
