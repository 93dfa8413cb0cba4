"""What a swap costs on Spark: measured runs, a model fitted to them, and what it predicts for a cluster.

``python bench/spark_cost.py`` masks censuses of several sizes and widths and predicts 10⁹ records on 10 × 16 cores.
Measured is processor time, of the Java process and of the Python workers: other work on the machine does not count. The
model, with n records, c columns and k cores:

    time = start + n (records + columns × c) / (k × share of the time that cores are busy)

``start`` is the processor time that does not grow with the file: Java starts and compiles, jobs are planned. It is
taken to run on one core. Network and disks are not in the model: they are taken to keep up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RUN = """
import os, time, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import safeswap as ss
from safeswap import datasets, workflow
from safeswap.engines.spark.session import own_session
from safeswap.model.schema import Schema

def spent(process):
    total, parents = 0, {{}}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    for number, facts in parents.items():
        above = number
        while above not in (0, process):
            above = int(parents[above][1]) if above in parents else 0
        if above == process:
            total += sum(map(int, facts[11:15])) if number != process else sum(map(int, facts[11:13]))
    return total / os.sysconf("SC_CLK_TCK")

known = datasets.synthetic_census_schema()
schema = Schema(name=known.name, attributes=tuple(a for a in known.attributes if a.name in {names!r}))
session = own_session(master="local[{cores}]", records={records})
spec = ss.SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.1)
begun = time.perf_counter()
workflow.mask_file({source!r}, {target!r}, spec, audit={audit!r}, engine="spark", spark=session, schema=schema,
                   insecure_seed=1)
print("measured", time.perf_counter() - begun, spent(os.getpid()))
session.stop()
"""
NARROW = ["HHID", "STATE", "COUNTY", "ADULTS", "FAMILIES", "TRAILER", "TENURE", "OCCUPATION"]


def make(folder: Path, records: int, columns: int) -> list[str]:
    """A census in a directory of files of 100,000 records, with all its columns or some of them; their names."""
    import pyarrow.parquet as pq

    from safeswap import datasets
    from safeswap.datasets.census import synthetic_census_chunks

    names = NARROW if columns == len(NARROW) else list(datasets.synthetic_census_schema().names)
    (folder / "census").mkdir()
    for number, chunk in enumerate(synthetic_census_chunks(records, chunk_size=100_000)):
        pq.write_table(chunk.select(names), folder / "census" / f"part-{number:05d}.parquet")
    return names


def measured(records: int, columns: int, cores: int) -> tuple[int, float, float]:
    """Columns, seconds and processor seconds of one run in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="safeswap-cost-") as place:
        folder = Path(place)
        names = make(folder, records, columns)
        named = {"source": str(folder / "census"), "target": str(folder / "masked"), "audit": str(folder / "audit")}
        code = RUN.format(names=names, records=records, cores=cores, **named)
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    told = next(line for line in done.stdout.splitlines() if line.startswith("measured")).split()
    return len(names), float(told[1]), float(told[2])


def fitted(runs: list[tuple[int, int, int, float, float]]) -> tuple[float, float, float]:
    """Start, cost per record, and cost per record and column, in processor seconds; none below 0."""
    from scipy.optimize import nnls

    design = np.array([[1.0, n, n * c] for n, c, _, _, _ in runs])
    spent = np.array([processor for *_, processor in runs])
    scale = design.max(axis=0)
    found, _ = nnls(design / scale, spent)
    start, record, column = (found / scale).tolist()
    return start, record, column


def main() -> None:
    """Measure, fit, predict."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", nargs="+", type=float, default=[3e5, 1e6, 3e6])
    options.add_argument("--columns", nargs="+", type=int, default=[len(NARROW), 23], choices=(len(NARROW), 23))
    options.add_argument("--cores", type=int, default=2)
    options.add_argument(
        "--predict", nargs=3, type=float, default=[1e9, 23, 160], metavar=("RECORDS", "COLUMNS", "CORES")
    )
    options.add_argument("--busy", type=float, default=0.5, help="share of the time that cores of a cluster are busy")
    chosen = options.parse_args()
    runs = []
    for records in map(int, chosen.records):
        for columns in chosen.columns:
            width, seconds, processor = measured(records, columns, chosen.cores)
            runs.append((records, width, chosen.cores, seconds, processor))
            print(
                f"{records:>11,} records  {width:2} columns  {chosen.cores} cores  {seconds:7.1f} s"
                f"  {processor:7.1f} s of processor time",
                flush=True,
            )
    start, record, column = fitted(runs)
    print(
        f"start {start:.0f} s, per million records {record * 1e6:.1f} s, and per column {column * 1e6:.2f} s of a core"
    )
    for n, c, _, _, processor in runs:
        print(
            f"{n:>11,} records  {c:2} columns  fitted {start + n * (record + column * c):7.1f} s of {processor:.1f} s"
        )
    n, c, k = chosen.predict
    predicted = start + n * (record + column * c) / (k * chosen.busy)
    print(f"{n:,.0f} records, {c:.0f} columns, {k:.0f} cores, busy {chosen.busy:.0%}: {predicted / 60:.0f} minutes")


if __name__ == "__main__":
    main()
