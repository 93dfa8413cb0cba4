"""The targeted edit at scale: sort and walk against NumPy's argsort alone, the whole job against a plain copy.

Prints ratios measured in one run. `python bench/bench_edit_targeted.py 1000000` stops at that number of households.
"""

from __future__ import annotations

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
from safeswap.arrays import cells
from safeswap.methods.edit_targeted.classes import letter_walk, sort_classes
from safeswap.methods.edit_targeted.keyed_walk import CellLabels, DrawKeys, keyed_walk
from safeswap.methods.edit_targeted.near_optimal import near_optimal_order
from safeswap.model.columns import rank_columns
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = tuple(f"key{number}" for number in range(8))
AREAS = ("county", "tract", "block")
ALL_SIZES = (100_000, 1_000_000, 10_000_000)
KINDS = {
    "id": Kind.IDENTIFIER,
    "income": Kind.NUMERIC,
    "value": Kind.NUMERIC,
    **dict.fromkeys(AREAS, Kind.GEOGRAPHY),
}


def households(records: int) -> pa.Table:
    """Eight skewed counts as keys, three levels of geography, two amounts; in scattered order."""
    rng = np.random.default_rng(1)
    columns = {"id": pa.array(rng.permutation(records))}
    for name in KEYS:
        columns[name] = pa.array((rng.random(records) ** 4 * 10).astype(np.uint8))
    county = rng.integers(0, 60, records)
    tract = county * 100 + rng.integers(0, 100, records)
    columns |= {"county": pa.array(county), "tract": pa.array(tract)}
    columns["block"] = pa.array(tract * 100 + (rng.random(records) ** 2 * 100).astype(np.int64))
    columns["income"] = pa.array(np.round(rng.lognormal(10, 1, records)))
    columns["value"] = pa.array(np.round(rng.lognormal(12, 1, records)))
    return pa.table(columns)


def microdata(table: pa.Table) -> Microdata:
    attributes = tuple(Attribute(name=name, kind=KINDS.get(name, Kind.ORDINAL)) for name in table.column_names)
    return Microdata(table, Schema(name="households", attributes=attributes))


def sort_and_walk(data: Microdata) -> None:
    """From coded columns to pairs of rows: packing, sorting, draws and walk included."""
    labels = CellLabels(data, AREAS)
    draw_keys = DrawKeys.derive(bytes(32), data, replicate=0)
    for number in (4, 6, 8):
        keys = KEYS[:number]
        packed, _ = cells.pack(*rank_columns(data, keys))

        def by_letter(keys: tuple[str, ...] = keys) -> object:
            classes = sort_classes(data, keys)
            return letter_walk(classes, classes.sizes < 3)

        def by_key(keys: tuple[str, ...] = keys) -> object:
            classes = sort_classes(data, keys)
            return keyed_walk(data, classes, classes.sizes < 3, labels, candidates=10, keys=draw_keys)

        plain = best_of(3, lambda packed=packed: np.argsort(packed))
        letter, drawn = best_of(3, by_letter), best_of(3, by_key)
        small = np.count_nonzero(sort_classes(data, keys).sizes < 3)
        print(f"{len(data):>12,} households, {number} keys, {small:>9,} rare combinations; argsort {plain:.3f} s")
        for walk, seconds in (("letter", letter), ("key", drawn)):
            name = f"targeted edit by {walk}, {number} keys, beside an argsort"
            judge(name, seconds / plain, 1, records=len(data))


def near_optimal(data: Microdata) -> None:
    seconds = best_of(2, lambda: near_optimal_order(data, KEYS, "income"))
    judge("near-optimal order of 8 keys", seconds, 5, unit="s", records=len(data))


def end_to_end(table: pa.Table, folder: Path) -> None:
    """Read a Parquet file, mask it and write it, each in a fresh process, against a plain copy of it."""
    source, target = folder / "households.parquet", folder / "masked.parquet"
    pq.write_table(table, source)
    copy = f"import pyarrow.parquet as pq; pq.write_table(pq.read_table({str(source)!r}), {str(target)!r})"
    job = (
        "import pyarrow.parquet as pq, safeswap as ss\n"
        "from safeswap.model.schema import Attribute, Kind\n"
        f"data = ss.read({str(source)!r}, identifier='id')\n"
        f"kinds = {{name: Kind.GEOGRAPHY for name in {AREAS!r}}} | {{name: Kind.ORDINAL for name in {KEYS!r}}}\n"
        "known = data.schema.replace(*(Attribute(name=n, kind=k) for n, k in kinds.items()))\n"
        "data = ss.Microdata(data.table, known)\n"
        f"spec = {{'method': 'edit_targeted', 'keys': {KEYS[:6]!r}, 'geography': {AREAS!r}}}\n"
        "masked = ss.mask(data, spec, key=ss.Key.generate())\n"
        f"pq.write_table(masked.data.table, {str(target)!r})\n"
    )
    _process(job)  # compiled code is in the cache from here on
    plain, whole = (best_of(2, lambda code=code: _process(code), time.perf_counter) for code in (copy, job))
    print(f"{table.num_rows:,} households from Parquet to Parquet {whole:.1f} s, plain pyarrow copy {plain:.1f} s")
    judge("targeted edit, Parquet to Parquet, beside a copy", whole / plain, 2.5, records=table.num_rows)


def _process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else ALL_SIZES[-1]
    ss.mask(  # compile before anything is measured
        microdata(households(1000)), {"method": "edit_targeted", "keys": KEYS}, insecure_seed=1
    )
    for records in [size for size in ALL_SIZES if size <= most] or [most]:
        table = households(records)
        data = microdata(table)
        for name in (*KEYS, *AREAS):
            data.coded(name)
        sort_and_walk(data)
        if records == 1_000_000:
            near_optimal(data)
        if records == min(most, ALL_SIZES[-1]):
            with tempfile.TemporaryDirectory() as folder:
                end_to_end(table, Path(folder))


if __name__ == "__main__":
    main()
