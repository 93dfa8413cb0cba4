"""Unsafe combinations and their suppression: counting on a million records, the fewest blanks on the CPS file.

Prints processor seconds measured in one run; the load says how far to trust the clock. Counting is compared with
`pandas.DataFrame.groupby(...).size()` on the same file. `python bench/bench_argus.py count`, `suppress` or `million`
runs a part.
"""

from __future__ import annotations

import argparse
import os
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from goals import judge, timed
from safeswap import datasets
from safeswap.measures.risk.risky import risky
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.workflow import mask, read

LEVELS = (300, 50, 20, 12, 9, 7, 5, 2)


def wide_file(records: int) -> Microdata:
    """Eight keys of 2 to 300 levels, small ones rare: nearly every record is the only one of its kind."""
    rng = np.random.default_rng(1)
    columns = {}
    for number, levels in enumerate(LEVELS):
        share = 1 / np.arange(1, levels + 1)
        columns[f"k{number}"] = pa.array(rng.choice(levels, records, p=share / share.sum()).astype(np.int16))
    return Microdata(pa.table(columns), Schema(attributes=tuple(Attribute(name=name) for name in columns)))


def survey_file(records: int) -> Microdata:
    """The CPS file drawn anew, a tenth of the values of each key from another record: many records are alike."""
    rng = np.random.default_rng(2)
    data = datasets.cps8d()
    rows = rng.integers(0, len(data), records)
    columns = {}
    for name in data.schema.categorical:
        other = np.where(rng.random(records) < 0.1, rng.integers(0, len(data), records), rows)
        columns[name] = data.table.column(name).take(pa.array(other))
    return Microdata(pa.table(columns), Schema(attributes=tuple(Attribute(name=name) for name in columns)))


def with_geography(data: Microdata) -> Microdata:
    """A key of 300 levels more."""
    share = 1 / np.arange(1, 301) ** 0.5
    towns = np.random.default_rng(1).choice(300, len(data), p=share / share.sum())
    table = data.table.append_column("Town", pa.array(towns.astype(np.int16)))
    return read(table, kinds={"Town": "geography"})


def count(records: int) -> None:
    for kind, made in (("unlike", wide_file), ("alike", survey_file)):
        data = made(records)
        names = data.schema.categorical
        asked = {"keys": names, "up_to": 3, "tolerance": 3}
        small = Microdata(data.table.slice(0, 1000), data.schema)
        risky(small, asked)  # compiled once, kept in the cache
        found, wall, processor = timed(lambda d=data, a=asked: risky(d, a))
        lists = len(found.combinations)
        frame = pd.DataFrame({name: data.coded(name).codes for name in names})
        some = list(combinations(names, 3))[:8]
        theirs, _, of_pandas = timed(
            lambda f=frame, s=some: [int((f.groupby(list(keys)).size() < 3).sum()) for keys in s]
        )
        told = {each.keys: each.unsafe for each in found.combinations}
        agree = [told[keys] for keys in some] == theirs
        print(
            f"{records:,} records, {kind}: {lists} combinations in {wall:.2f} s, {processor:.2f} s of processor, "
            f"{100 * processor / lists:.2f} s per 100; pandas {100 * of_pandas / len(some):.1f} s per 100; "
            f"counts agree: {agree}; {found.sentence}"
        )
        assert agree
        ratio = processor / lists / (of_pandas / len(some))
        judge(f"risky combinations, {kind}, beside pandas", ratio, 0.2, records=records)


def suppress(data: Microdata, what: str, *, limit: float = 60.0, **stated: Any) -> None:
    names = data.schema.categorical
    for solver in ("greedy", "optimal"):
        spec = {"method": "suppress", "keys": names, "solver": solver, "time_limit": limit, "gap": 0.0, **stated}
        masked, wall, processor = timed(lambda s=spec: mask(data, s, insecure_seed=1))
        facts = masked.audit.facts
        print(
            f"{what}, missing {stated['missing']}, {solver}: {facts['values_blanked']:,} values, "
            f"bound {facts['least_possible']:,.0f}, gap {100 * (facts['gap'] or 0):.2f}%, "
            f"{wall:.1f} s, {processor:.1f} s of processor",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", default=["count", "suppress", "million"])
    options.add_argument("--records", type=int, default=1_000_000)
    chosen = options.parse_args()
    parts = chosen.parts
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    if "count" in parts:
        count(chosen.records)
    cps = datasets.cps8d()
    for missing in ("none", "own", "any"):  # compiled once, kept in the cache
        mask(
            Microdata(cps.table.slice(0, 300), cps.schema),
            {"method": "suppress", "keys": cps.schema.categorical, "missing": missing, "time_limit": 2},
            insecure_seed=1,
        )
    if "suppress" in parts:
        for missing in ("none", "own", "any"):
            suppress(cps, "CPS, all 8 keys", missing=missing)
            suppress(with_geography(cps), "CPS, 8 keys and 300 towns", missing=missing)
        suppress(cps, "CPS, all of up to 4 of 8 keys, tolerance 30", missing="none", up_to=4, tolerance=30)
    if "million" in parts:
        for missing in ("none", "own", "any"):
            suppress(survey_file(chosen.records), f"{chosen.records:,} records, 8 keys", missing=missing)


if __name__ == "__main__":
    main()
