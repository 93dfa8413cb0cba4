"""Targeted record swapping of households: from coded columns, with scarce donors, and from Parquet to Parquet.

`python bench/bench_household_swap.py 1000000 10000000` takes these numbers of persons; ``--engines duckdb`` leaves out
the engine that holds the columns. Goals are CPU seconds on one core of the machine on which sdcMicro 5.8.1 took 16 to
97 s for a million persons, and 33 s with scarce donors, where it missed 117 households. Peak memory is that of the
whole process: for the swap from coded columns, with reading and coding them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from goals import best_of, judge, keep_byte_code, peak_megabytes
from safeswap import Key, datasets
from safeswap.engines.memory import MemoryRecords
from safeswap.files.coded_columns import load_coded
from safeswap.files.parquet import open_parquet
from safeswap.methods.household_swap.households import read_households
from safeswap.methods.household_swap.method import HouseholdSwap
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import Population, Risk, Rules, Swapped, swap_once

SPEC = HouseholdSwapSpec(
    risk_variables=datasets.POPULATION_RISK,
    similar=(("TENURE",), ()),
    rate=0.05,
    communal="HTYPE",
    communal_values=("communal",),
)
GOALS = {1_000_000: 0.15, 10_000_000: 2.5, 100_000_000: 25.0}
MOST_MEMORY = {10_000_000: 1_200, 100_000_000: 5_000}
MOST_IN_DUCKDB = {100_000_000: 3_000}
"""Goals in megabytes."""


def again(people: Population) -> Population:
    """Return the population without what was computed from it."""
    derived = ("areas", "ranks")
    return Population(**{name: value for name, value in vars(people).items() if name not in derived})


def swap(people: Population, rate: int = 50_000, k: int = 3) -> Swapped:
    """Count, pair and top up in one round."""
    fresh = again(people)
    return swap_once(fresh, Rules(rate_per_million=rate), Risk.of(fresh, k))


def from_coded_columns(path: Path) -> None:
    """Swap once, from the columns as kernels take them."""
    schema = datasets.synthetic_population_schema()
    data = load_coded(open_parquet(path), schema, HouseholdSwap().columns(schema, SPEC).read)
    persons = len(data)
    key = Key(bytes(32))
    people = read_households(MemoryRecords(data, key), SPEC.resolve(data.schema), key, bytes(32)).population
    del data
    done = swap(people)
    risky = done.risk.required < people.areas.depth
    busy = best_of(3, lambda: swap(people), time.process_time)
    peak = peak_megabytes()
    print(f"{persons:,} persons in {len(people.area):,} households: {busy:.3f} CPU s, peak {peak:,.0f} MB")
    print(
        f"  {np.count_nonzero(risky):,} at risk, {np.count_nonzero(done.partner >= 0):,} swapped, proved: {done.proved}"
    )
    judge("household swap, from coded columns (CPU)", busy, GOALS.get(persons, 25.0), records=persons, unit="s")
    if most := MOST_MEMORY.get(persons):
        judge("household swap, from coded columns (peak)", peak, most, records=persons, unit="MB")


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
        profiles=(rng.integers(0, cells, households).astype(np.uint16),),
        draw=rng.integers(0, 2**64, households, dtype=np.uint64),
    )
    done = swap(people, rate=0)
    risky = done.risk.required < 3
    covered = int(np.count_nonzero(risky & (done.partner >= 0)))
    busy = best_of(3, lambda: swap(people, rate=0), time.process_time)
    print(f"scarce donors, {len(household):,} persons, {cells:,} cells: {busy:.3f} CPU s")
    print(f"  {covered:,} of {np.count_nonzero(risky):,} at risk swapped, the largest number: {done.proved}")
    judge("household swap, scarce donors (CPU)", busy, 0.3, records=len(household), unit="s")


def from_file_to_file(path: Path, persons: int, engines: Sequence[str]) -> None:
    """Mask a Parquet file with verification, against the faster plain copy."""
    folder = path.parent
    source, target = str(path), str(folder / "copy.parquet")
    copies = {
        "pyarrow": f"import pyarrow.parquet as pq; pq.write_table(pq.read_table({source!r}), {target!r})",
        "Polars": f"import polars as pl; pl.read_parquet({source!r}).write_parquet({target!r})",
    }
    mask = (
        "import safeswap as ss\nfrom safeswap.workflow import mask_file\n"
        f"mask_file({source!r}, {str(folder / 'masked.parquet')!r}, {SPEC.as_dict()!r}, key=ss.Key.generate(), "
        f"audit={str(folder / 'audit')!r}, schema=ss.datasets.synthetic_population_schema(), force=True, engine=%r)"
    )
    taken = {name: _measure(code)[0] for name, code in copies.items()}
    print("plain copy by " + ", by ".join(f"{name} {seconds:.1f} CPU s" for name, seconds in taken.items()))
    plain = min(taken.values())
    for engine in engines:
        whole, peak = _measure(mask % engine)
        print(f"from Parquet to masked Parquet on {engine} {whole:.1f} CPU s, peak {peak:,.0f} MB")
        name = f"household swap on {engine}, Parquet to Parquet"
        judge(f"{name}, beside a copy (CPU)", whole / plain, 2.0, records=persons)
        if engine == "duckdb" and (most := MOST_IN_DUCKDB.get(persons)):
            judge(f"{name} (peak)", peak, most, records=persons, unit="MB")


def _measure(code: str) -> tuple[float, float]:
    """Return the CPU seconds and the peak memory, in megabytes, of a process of its own."""
    told = "\nfrom goals import peak_megabytes; print(peak_megabytes())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code + told]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"a run ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, float(said.split()[-1])


def _run_apart(work: Callable[[Path], None], path: Path) -> None:
    """Run in a process of its own, so that its peak is that of the work."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(path,))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"a run ended with status {process.exitcode}")


def main() -> None:
    """All comparisons for each number of persons."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("persons", nargs="*", type=int, default=[1_000_000, 10_000_000])
    options.add_argument("--engines", nargs="+", default=["memory", "duckdb"], choices=["memory", "duckdb"])
    chosen = options.parse_args()
    scarce_donors()
    for persons in chosen.persons:
        folder = Path(tempfile.mkdtemp(prefix="safeswap-bench-"))
        keep_byte_code(folder)
        try:
            datasets.write_synthetic_population(folder / "people.parquet", persons)
            _run_apart(from_coded_columns, folder / "people.parquet")
            from_file_to_file(folder / "people.parquet", persons, chosen.engines)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
