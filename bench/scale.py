"""Masking and assessing files on disk as they grow: records per second, peak memory and the ratio to a plain copy.

``python bench/scale.py`` tries a million and ten million households in memory and in DuckDB.
``python bench/scale.py 1e6 1e7 1e8 --engines memory duckdb spark --chart growth.svg`` tries what it is told to and
draws how the time grows. What is measured is the whole run: read, mask, write, verify, assess (n-rule, Hellinger, total
variation and entropy over all categorical attributes), keep the record. Every figure is of a process of its own, its
start included; the plain copies are of the same file in the same run. On a machine that others use too, look at the
seconds of processor time, which are less at the mercy of the others than those of the clock.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

from goals import judge
from growth_chart import growth_chart

COLUMNS = (
    *("HHID", "STATE", "COUNTY", "TRACT", "BLOCK"),
    *("WHITE", "BLACK", "HISPANIC", "ADULTS", "FAMILIES", "TRAILER", "TENURE", "OCCUPATION"),
    *("INCOME", "HOME_VAL"),
)
"""Identifier, four levels of geography, eight small categorical attributes, two continuous ones."""

KEYS = '["WHITE", "BLACK", "HISPANIC", "ADULTS", "FAMILIES", "TRAILER"]'
METHODS = {
    "swap": '{"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.1}',
    "edit_1990": f'{{"method": "edit_1990", "keys": {KEYS}, "rate": 0.01, '
    '"geography": ["STATE", "COUNTY", "TRACT", "BLOCK"], "single_areas": "leave"}',
    "edit_targeted": f'{{"method": "edit_targeted", "keys": {KEYS}, "within": ["STATE"]}}',
}
TARGETS = {"memory": 1.25, "duckdb": 2.0}
"""The CPU seconds of a whole run, at most so many times those of the faster copy."""
MOST_IN_DUCKDB = 2048.0
"""Peak memory in megabytes, with the default limit."""

COPIES = {
    "pyarrow": "import pyarrow.parquet as pq; pq.write_table(pq.read_table({source!r}), {target!r})",
    "polars": "import polars as pl; pl.read_parquet({source!r}).write_parquet({target!r})",
}
DESCRIBED = f"""
from safeswap import datasets, workflow
from safeswap.model.schema import Schema
whole = datasets.synthetic_census_schema()
schema = Schema(name=whole.name, attributes=tuple(whole[name] for name in {COLUMNS!r}))
"""
MAKE = """
from pyarrow import parquet
writer = None
for chunk in datasets.synthetic_census_chunks({records}):
    chunk = chunk.select({columns!r})
    writer = writer or parquet.ParquetWriter({path!r}, chunk.schema)
    writer.write_table(chunk)
writer.close()
"""
RUN = """
from safeswap.errors import EngineError
measures = ["n_rule", "hellinger", "total_variation", "entropy_change"]
stated = dict(schema=schema, insecure_seed=1, memory_limit={memory!r}, force=True, measures=measures)
try:
    workflow.mask_file({source!r}, {target!r}, {spec}, audit={audit!r}, engine={engine!r}, **stated)
except EngineError as error:
    if error.code != "not-supported":
        raise
    print("NOT SUPPORTED:", error)
"""
PEAK = """
import os, resource
from pathlib import Path
parents, held = {}, {}
for folder in Path("/proc").glob("[0-9]*"):
    try:
        parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        peak = [line.split()[1] for line in (folder / "status").read_text().splitlines() if line.startswith("VmHWM")]
    except OSError:
        continue
    parents[int(folder.name)], held[int(folder.name)] = int(parent), int((peak or [0])[0])
def is_below(number):
    while number and parents.get(number, 0) != os.getpid():
        number = parents.get(number, 0)
    return bool(number)
own = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print((own + sum(held[number] for number in parents if is_below(number))) / 1024)
"""
"""Peak memory, also of children that still live: nobody waits for the Java of Spark."""


class Spent(Thread):
    """Adds up the processor time of a process and of all below it, also of those that nobody waits for.

    Spark ends its workers without waiting for them, so their time is read while they live, five times a second.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root, self._ended = root, Event()
        self._seen: dict[tuple[int, str], int] = {}

    def run(self) -> None:
        """Look until :meth:`stop`."""
        while not self._ended.wait(0.2):
            self._look()

    def stop(self) -> float:
        """Return the seconds."""
        self._ended.set()
        self.join()
        return sum(self._seen.values()) / os.sysconf("SC_CLK_TCK")

    def _look(self) -> None:
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        for number, facts in found.items():
            above = number
            while above not in (0, self._root):
                above = int(found[above][1]) if above in found else 0
            if above:
                self._seen[number, facts[19]] = int(facts[11]) + int(facts[12])  # by number and start


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one process took."""

    seconds: float
    processor: float
    megabytes: float
    refused: str = ""


def measured(code: str) -> Figures:
    """Run a piece of Python in a process of its own; its children count."""
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", code + PEAK], stdout=subprocess.PIPE, text=True) as process:
        spent = Spent(process.pid)
        spent.start()
        assert process.stdout is not None
        told = process.stdout.read().split("\n")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seen = spent.stop()
    if process.returncode:
        raise SystemExit(f"a run ended with status {process.returncode}")
    refused = next((line for line in told if line.startswith("NOT SUPPORTED")), "")
    return Figures(
        seconds=time.perf_counter() - start,
        processor=max(usage.ru_utime + usage.ru_stime, seen),
        megabytes=float([line for line in told if line][-1]),
        refused=refused,
    )


def told(records: int, what: str, found: Figures, plain: Figures | None = None) -> None:
    """One line of the table."""
    ratio = ""
    if plain is not None:
        ratio = f"  {found.seconds / plain.seconds:5.2f} × the copy, {found.processor / plain.processor:5.2f} × its CPU"
    print(
        f"{records:>11,}  {what:24} {found.seconds:7.1f} s  {found.processor:7.1f} CPU s"
        f"  {records / found.seconds:>11,.0f} records/s  {found.megabytes:7,.0f} MB{ratio}",
        flush=True,
    )


def one_size(folder: Path, records: int, chosen: argparse.Namespace) -> dict[str, Figures]:
    """The copies, then each method on each engine."""
    source, copy = str(folder / "census.parquet"), folder / "copy.parquet"
    measured(DESCRIBED + MAKE.format(records=records, columns=list(COLUMNS), path=source))
    copies = []
    for name, code in COPIES.items():
        copies.append(measured(code.format(source=source, target=str(copy))))
        told(records, f"copy by {name}", copies[-1])
    copy.unlink()
    # The faster one by either clock: neither library is to be blamed for the load of the machine.
    plain = Figures(
        seconds=min(each.seconds for each in copies),
        processor=min(each.processor for each in copies),
        megabytes=min(each.megabytes for each in copies),
    )
    found = {}
    for engine in chosen.engines:
        for method in chosen.methods:
            target = folder / ("masked" if engine == "spark" else "masked.parquet")
            places = {"source": source, "target": str(target), "audit": str(folder / "audit")}
            code = DESCRIBED + RUN.format(engine=engine, spec=METHODS[method], memory=chosen.memory, **places)
            figures = measured(code)
            if figures.refused:
                print(f"{records:>11,}  {engine} {method}: {figures.refused}", flush=True)
                continue
            found[f"{method}, {engine}"] = figures
            told(records, f"{method}, {engine}", figures, plain)
            if engine in TARGETS:
                name, ratio = f"{method} of files on {engine}", figures.processor / plain.processor
                judge(f"{name}, beside a copy (CPU)", ratio, TARGETS[engine], records=records)
            if engine == "duckdb":
                judge(f"{name} (peak)", figures.megabytes, MOST_IN_DUCKDB, unit="MB", records=records)
    return {"plain copy": plain, **found}


def slopes(grown: dict[str, dict[int, float]]) -> None:
    """The power with which time grows, from one size to the next."""
    for name, seconds in grown.items():
        sizes = sorted(seconds)
        for small, large in pairwise(sizes):
            slope = math.log(seconds[large] / seconds[small]) / math.log(large / small)
            print(f"{name}: from {small:,} to {large:,} records time grows with the power {slope:.2f} (at most 1.05)")


def main() -> None:
    """All sizes, and how the time grows with them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", nargs="*", type=float, default=[1e6, 1e7])
    options.add_argument("--engines", nargs="+", default=["memory", "duckdb"], choices=["memory", "duckdb", "spark"])
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--memory", default="1GB", help="the limit of memory for DuckDB")
    options.add_argument("--folder", type=Path, help="where to write; a temporary directory if not stated")
    options.add_argument("--chart", type=Path, help="an SVG file for the growth curve")
    chosen = options.parse_args()
    if "spark" in chosen.engines and find_spec("pyspark") is None:
        print("SKIPPED: the engine spark, since PySpark is not installed (pip install 'safeswap[spark]')")
        chosen.engines = [engine for engine in chosen.engines if engine != "spark"]
    grown: dict[str, dict[int, float]] = {}
    for records in sorted(int(size) for size in chosen.records):
        folder = Path(tempfile.mkdtemp(prefix="safeswap-scale-", dir=chosen.folder))
        try:
            for name, figures in one_size(folder, records, chosen).items():
                grown.setdefault(name, {})[records] = figures.processor
        finally:
            shutil.rmtree(folder)
    slopes(grown)
    if chosen.chart:
        chosen.chart.write_text(growth_chart(grown), encoding="utf-8")


if __name__ == "__main__":
    main()
