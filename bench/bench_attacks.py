"""The quick attacks of every release, permutation swapping and log-linear risk, on synthetic households.

Prints processor seconds. `python bench/bench_attacks.py 1000000` takes another number of records.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import safeswap as ss
from goals import judge
from safeswap.attacks.base import Setting
from safeswap.attacks.run import run_attacks
from safeswap.measures.risk.population_risk import loglinear_risk
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, resolve_files
from safeswap.model.score import Comparison

GATE = 10.0  # seconds for all quick attacks at a million records
LOGLINEAR = 10.0  # seconds for fitting and choosing among all models on a million cells


def timed(job: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = job()
    return found, time.process_time() - start


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    data = ss.datasets.synthetic_census(records)
    key = ss.Key(bytes(range(32)))
    spec = {"method": "swap_permutation", "swap": ["TENURE", "OCCUPATION"], "fixed": ["STATE", "ADULTS"]}
    spec |= {"probability": 0.1}
    ss.mask(ss.datasets.synthetic_census(2_000), spec, key=key)
    masked, seconds = timed(lambda: ss.mask(data, spec, key=key))
    print(f"swap_permutation of {records:,} records: {seconds:.2f} s, {masked.audit.made:,} changed")
    scenario = Scenario(keys=["ADULTS", "FAMILIES", "TENURE"], sensitive=["OCCUPATION"])
    order = np.random.default_rng(1).permutation(records)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(masked.data.table.take(pa.array(order)).replace_schema_metadata(None), f"{folder}/data.parquet")
        setting = Setting(
            comparison=Comparison(before=masked.original, after=masked.data, attributes=()),
            scenario=resolve_files(scenario, masked.original, masked.data),
            masked=masked,
            earlier=(ss.mask(data, spec, key=ss.Key(bytes(32))).data,),
            bundle=Path(folder),
            order=order,
        )
        attacked, seconds = timed(lambda: run_attacks(setting, full=False))
    print(attacked)
    judge("quick attacks", seconds, GATE, unit="s", records=records)
    sparse = sparse_sample(records // 10)
    for interactions in ("1", "2", "3", "auto"):
        ask = partial(loglinear_risk, sparse, sparse.attributes, population=5.0 * records, interactions=interactions)
        found, seconds = timed(ask)
        sweeps = sum(model.sweeps for model in found.models)
        print(f"log-linear risk, {found.cells:,} cells, interactions {interactions}: {seconds:.2f} s, {sweeps} sweeps")
    judge("log-linear risk, 10^6 cells, choice of the model", seconds, LOGLINEAR, unit="s", records=len(sparse))


def sparse_sample(records: int) -> Microdata:
    """Six keys of ten levels, related in pairs: a million cells, most of them empty."""
    rng = np.random.default_rng(5)
    common = rng.integers(0, 10, records)
    columns = {
        name: np.where(rng.random(records) < 0.3, common, np.minimum(rng.geometric(0.3, records), 10) - 1)
        for name in "abcdef"
    }
    return ss.read(pa.table(columns), kinds=dict.fromkeys(columns, "nominal"))


if __name__ == "__main__":
    main()
