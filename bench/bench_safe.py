"""SAFE: how near the best a table comes in which time, and ten million records made safe in five tables.

Prints seconds of the clock and of the processor, the proved gap, and the memory beyond the data as a multiple of the
coded data. `python bench/bench_safe.py tables` and `… records 1000000` run a part of it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from goals import timed
from safeswap import workflow
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

Q = 5
AXES = ("axis 0", "axis 1", "axis 2")
LEVELS = {"Region": 100, "Age": 20, "Origin": 60, "Occupation": 40, "Sex": 2, "Education": 8, "Status": 5, "Tenure": 4}
SKEW = {"Origin": 0.1, "Occupation": 0.3, "Age": 0.4, "Education": 0.5, "Region": 0.5}
TABLES = (
    ("Region", "Age", "Origin"),
    ("Region", "Occupation", "Sex"),
    ("Age", "Education", "Occupation"),
    ("Origin", "Status", "Tenure"),
    ("Region", "Education", "Origin"),
)


def counts(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    """A table with a third of its cells small and no small margin."""
    rng = np.random.default_rng(seed)
    small = rng.random(shape) < 1 / 3
    return np.where(small, rng.integers(1, Q, shape), rng.integers(Q, 60, shape))


def tables(*, most: int = 1_000_000) -> None:
    """Make tables of up to this many cells safe."""
    workflow.safe_table(counts((6, 6)), Q)  # compiled once
    for shape, kept, options in (
        ((12, 12), "both margins", {}),
        ((50, 50), "both margins", {}),
        ((20, 20, 20), "all two-way margins", {}),
        ((20, 20, 20), "two two-way margins", {"keep": [AXES[:2], AXES[1:]]}),
        ((20, 20, 20), "a two-way and a one-way margin", {"keep": [AXES[:2], AXES[2:]]}),
        ((20, 20, 20), "all one-way margins", {"keep": list(AXES)}),
        ((1000, 1000), "both margins", {"solver": "heuristic"}),
        ((100, 100, 100), "all two-way margins", {"solver": "heuristic"}),
    ):
        if np.prod(shape) > most:
            continue
        table = counts(shape)
        found, wall, processor = timed(lambda t=table, o=options: workflow.safe_table(t, Q, **o))
        name = f"{' × '.join(map(str, shape))}, {kept} kept"
        print(
            f"{name}, {np.mean((table > 0) & (table < Q)):.0%} small: {wall:.1f} s ({processor:.1f} s of processor), "
            f"{found.status}, change {found.value:,.0f}, at least {found.bound:,.0f}, gap {found.gap:.2%}",
            flush=True,
        )


def persons(records: int) -> Microdata:
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {"id": pa.array(rng.permutation(records) + 10**9)}
    for name, size in LEVELS.items():
        share = rng.random(records, dtype=np.float32) ** (1 / SKEW.get(name, 1.0))
        codes = np.minimum((share * size).astype(np.uint8), size - 1)
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([f"{name} {i}" for i in range(size)]))
    kinds = {"id": Kind.IDENTIFIER, "Age": Kind.ORDINAL, "Education": Kind.ORDINAL, "Region": Kind.GEOGRAPHY}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in columns)
    return Microdata(pa.table(columns), Schema(name="persons", attributes=attributes))


class Peak:
    """The most memory that the process held meanwhile, beyond what it held at first."""

    def __enter__(self) -> Peak:
        self.first = self.most = resident()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def _look(self) -> None:
        while not self._done.wait(0.01):
            self.most = max(self.most, resident())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watch.join()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def records(number: int, time_limit: float) -> None:
    key = Key(bytes(range(32)))
    warm = persons(min(number, 100_000))
    for keep in ((), (("Region",), ("Age", "Sex"))):
        workflow.safe_records(warm, TABLES[1:4], Q, keep=keep, key=key, search="quick", time_limit=time_limit)
    data = persons(number)
    coded = sum(data.coded(name).codes.nbytes for name in data.schema.categorical) + 8 * number
    for keep in ((), (("Region",), ("Age", "Sex"))):
        with Peak() as peak:
            masked, wall, processor = timed(
                lambda k=keep: workflow.safe_records(data, TABLES, Q, keep=k, key=key, time_limit=time_limit)
            )
        facts = masked.audit.facts
        small = sum(table["small_before"] for table in facts["tables"])
        print(
            f"{number:,} records, {len(TABLES)} tables, kept {len(keep)} margins: {wall:.1f} s "
            f"({processor:.1f} s of processor); {small:,} small cells, {facts['records_changed']:,} records changed "
            f"(at least {facts['fewest_records']:,} must), memory {(peak.most - peak.first) / coded:.2f} × the coded "
            f"data of {coded / 1e6:,.0f} MB",
            flush=True,
        )
        del masked


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else "all"
    print(f"load {os.getloadavg()[0]:.1f}")
    if part in ("all", "tables"):
        tables()
    if part == "small":
        tables(most=144)
    if part in ("all", "records"):
        number = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
        records(number, float(sys.argv[3]) if len(sys.argv) > 3 else 60.0)


if __name__ == "__main__":
    main()
