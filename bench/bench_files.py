"""What describe, swap, assess and release cost on files, as ratios to a copy of the same file by Polars.

Run ``python bench/bench_files.py``; ``--records 10000000`` is the large run. Each figure is the processor time and the
peak memory of a process of its own: the command line on a file of ten columns. Copies and commands take turns, and the
best of ``--runs`` counts. A run on up to a million records comes first, so that no figure includes compiling: smaller
files do without the compiled code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from goals import judge, keep_byte_code

CHUNK = 1_000_000
LEVELS = {"region": 50, "sex": 2, "race": 6, "education": 16, "occupation": 400, "marital": 5}
TARGETS = {
    "csv": {"describe": 3.0, "swap": 3.0, "assess": 3.0, "release": 4.0},
    "parquet": {"describe": 2.5, "swap": 2.5, "assess": 2.5, "release": 3.0},
}
MORE_MEMORY = (3.0, 300.0)
"""Peak memory at most this many times the Arrow data, plus this many megabytes."""

COPY = "import polars as pl; pl.read_{0}({1!r}).write_{0}({2!r})"
WARM_UP = 1_000_000

MAKE = """
import numpy as np, pyarrow as pa
from pyarrow import csv, parquet
rng = np.random.default_rng(2026)
writer, size = None, 0
for start in range(0, {records}, {chunk}):
    many = min({chunk}, {records} - start)
    columns = {{"id": pa.array([f"P{{number:09d}}" for number in range(start, start + many)])}}
    for name, levels in {levels}.items():
        texts = pa.array([f"{{name}} {{number}}" for number in range(levels)])
        columns[name] = texts.take(pa.array((rng.random(many) ** 2 * levels).astype(np.int32)))
    columns["age"] = pa.array(rng.integers(0, 100, many))
    columns["income"] = pa.array(np.round(rng.lognormal(10, 1, many), 2))
    columns["weight"] = pa.array(np.round(rng.uniform(1, 50, many), 3))
    table = pa.table(columns)
    size += table.nbytes
    if writer is None:
        plain = csv.WriteOptions(quoting_style="none", quoting_header="none")
        as_text = csv.CSVWriter({csv!r}, table.schema, write_options=plain)
        writer = parquet.ParquetWriter({parquet!r}, table.schema)
    as_text.write_table(table)
    writer.write_table(table)
as_text.close()
writer.close()
print(size / 2**20)
"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one process took."""

    seconds: float
    megabytes: float
    told: str = ""


def measured(command: Sequence[str]) -> Figures:
    """Run a command in a process of its own."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return Figures(seconds=usage.ru_utime + usage.ru_stime, megabytes=usage.ru_maxrss / 1024, told=told)


def made(folder: Path, records: int) -> float:
    """Write the file in both formats; return the size of its Arrow data in megabytes."""
    paths = {"csv": str(folder / "data.csv"), "parquet": str(folder / "data.parquet")}
    code = MAKE.format(records=records, chunk=CHUNK, levels=LEVELS, **paths)
    return float(measured([sys.executable, "-c", code]).told)


def commands(folder: Path, kind: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a release, in their order."""
    source, masked = str(folder / f"data.{kind}"), str(folder / f"masked.{kind}")
    safeswap, key = [sys.executable, "-m", "safeswap"], str(folder / "key")
    audit, bundle = str(folder / f"audit-{kind}"), str(folder / f"bundle-{kind}")
    for each in (audit, bundle, str(folder / "ledger")):
        shutil.rmtree(each, ignore_errors=True)  # each run is the first release of these records
    swap = ["--swap", "race,education", "--fixed", "region,sex", "--rate", "0.05", "--key", key]
    quiet = ["--identifier", "id", "--quiet"]
    yield "copy", [sys.executable, "-c", COPY.format(kind, source, str(folder / f"copy.{kind}"))]
    yield "describe", [*safeswap, "describe", source, *quiet]
    yield "swap", [*safeswap, "swap", source, *swap, "--output", masked, "--audit", audit, "--force", *quiet]
    yield "assess", [*safeswap, "assess", source, masked, *quiet]
    where = ["--audit", audit, "--output", bundle, "--key", key, "--format", kind]
    yield "release", [*safeswap, "release", source, masked, *where, "--quiet"]


def best(folder: Path, kind: str, *, runs: int, only: Sequence[str]) -> dict[str, Figures]:
    """The least that each command took in several rounds of all of them."""
    found: dict[str, list[Figures]] = {}
    for _ in range(runs):
        for name, command in commands(folder, kind):
            if not only or name in only or name in ("copy", "swap"):
                found.setdefault(name, []).append(measured(command))
    return {
        name: Figures(seconds=min(f.seconds for f in each), megabytes=min(f.megabytes for f in each))
        for name, each in found.items()
    }


def report(kind: str, found: dict[str, Figures], arrow: float, records: int) -> None:
    """Print each figure with its target and verdict."""
    copy = found.pop("copy")
    times, more = MORE_MEMORY
    room = times * arrow + more
    print(f"{kind}: copy by Polars {copy.seconds:.2f} CPU s, {copy.megabytes:,.0f} MB")
    for name, figures in found.items():
        print(f"  {name:9} {figures.seconds:8.2f} CPU s, {figures.megabytes:7,.0f} MB")
        judge(f"{name} of {kind} beside a copy", figures.seconds / copy.seconds, TARGETS[kind][name], records=records)
        judge(f"{name} of {kind}, memory beside 3 × Arrow + 300 MB", figures.megabytes / room, 1, records=records)


def main() -> None:
    """Measure both formats."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--formats", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    options.add_argument("--only", nargs="+", default=[], help="measure these commands only, with copy and swap")
    options.add_argument("--folder", type=Path, help="where to write; a temporary directory if not stated")
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="safeswap-files-", dir=chosen.folder))
    os.environ["SAFESWAP_LEDGER"] = str(folder / "ledger" / "ledger.db")
    keep_byte_code(folder)
    try:
        measured([sys.executable, "-m", "safeswap", "keygen", str(folder / "key"), "--quiet"])
        made(folder, min(WARM_UP, chosen.records))
        for kind in chosen.formats:
            best(folder, kind, runs=1, only=chosen.only)
        arrow = made(folder, chosen.records)
        print(f"{chosen.records:,} records, {arrow:,.0f} MB of Arrow data")
        for kind in chosen.formats:
            report(kind, best(folder, kind, runs=chosen.runs, only=chosen.only), arrow, chosen.records)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
