"""A long run of one promise: the same key, data and specification give the same records on every engine.

    python bench/same_bytes.py [--records 200000] [--specs 20] [--engines memory duckdb spark] [--seed 1]

Draws specifications of swaps and edits, masks a synthetic census with each engine from differently cut and ordered
files, with one, two or eight threads in DuckDB and shuffles into one, seven or 64 partitions in Spark, and compares the
records, in the order of their identifiers, bit for bit, and the totals of the audit.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from safeswap import datasets, workflow
from safeswap.datasets import CENSUS_GEOGRAPHY, CENSUS_KEYS
from safeswap.errors import InfeasibleError

KEY = {"insecure_seed": 20_000}


def drawn(draw: random.Random) -> dict[str, Any]:
    """A specification: most of them swaps, some the edit of 1990."""
    if draw.random() < 0.25:
        keys = draw.sample(CENSUS_KEYS, draw.randint(1, 3))
        return {
            "method": "edit_1990",
            "keys": keys,
            "geography": list(CENSUS_GEOGRAPHY),
            "rate": draw.choice([0.01, 0.1]),
        }
    names = draw.sample(CENSUS_KEYS, 4)
    swap, rest = names[: draw.randint(1, 2)], names[2:]
    spec: dict[str, Any] = {"method": "swap", "swap": swap, "rate": draw.choice([0.01, 0.05, 0.2])}
    if draw.random() < 0.6:
        spec["fixed"] = [rest[0]]
    if draw.random() < 0.3:
        spec["differ"] = [rest[1]]
    spec["pairing"] = draw.choice(["repaired", "uniform"])
    spec["on_shortfall"] = "take"
    return spec


def cut(source: Path, target: Path, parts: int, seed: int) -> None:
    """The same records in another order and another number of files."""
    frame = pl.read_parquet(source).sample(fraction=1.0, shuffle=True, seed=seed)
    target.mkdir()
    size = -(-len(frame) // parts)
    for number in range(parts):
        piece = frame.slice(number * size, size)
        if len(piece):
            piece.write_parquet(target / f"part-{number:04d}.parquet")


def fingerprint(path: Path) -> str:
    """Of the records by identifier, whatever the files and their order."""
    files = path if path.is_file() else path / "*.parquet"
    frame = pl.read_parquet(files).with_columns(pl.col(pl.Categorical).cast(pl.String)).sort("HHID")
    return hashlib.sha256(frame.write_csv().encode()).hexdigest()


def means(engine: str, draw: random.Random, session: Any) -> dict[str, Any]:
    """The threads, or the session with other partitions than before."""
    if engine != "spark":
        return {"threads": draw.choice([1, 2, 8])} if engine == "duckdb" else {}
    session.conf.set("spark.sql.shuffle.partitions", str(draw.choice([1, 7, 64])))
    return {"spark": session}


def run(engine: str, source: Path, spec: dict[str, Any], folder: Path, extra: dict[str, Any]) -> tuple[str, Any]:
    """What came out: the records, or that it could not be done."""
    target = folder / (f"masked-{engine}" if engine == "spark" else f"masked-{engine}.parquet")
    try:
        masked = workflow.mask_file(
            source,
            target,
            spec,
            audit=folder / f"audit-{engine}",
            engine=engine,
            identifier="HHID",
            schema=datasets.synthetic_census_schema(),
            name="census",
            **KEY,
            **extra,
        )
    except InfeasibleError as error:
        return error.code, None
    named = ("records", "asked", "feasible", "made", "compensating")
    totals = {name: masked.as_dict()[name] for name in named}
    return fingerprint(target), totals


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=200_000)
    options.add_argument("--specs", type=int, default=20)
    options.add_argument("--engines", nargs="+", default=["memory", "duckdb"])
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    draw, session, differ = random.Random(asked.seed), None, 0
    if "spark" in asked.engines:
        from safeswap.engines.spark.session import own_session

        session = own_session(master="local[2]", records=asked.records)
    with tempfile.TemporaryDirectory() as place:
        census = Path(place) / "census.parquet"
        datasets.write_synthetic_census(census, asked.records)
        for number in range(asked.specs):
            spec, folder, began = drawn(draw), Path(place) / f"spec-{number}", time.perf_counter()
            folder.mkdir()
            found = {}
            for engine in asked.engines:
                parts = draw.choice([1, 7, 64])
                source = folder / f"source-{engine}"
                cut(census, source, parts, seed=draw.randrange(2**31))
                found[engine] = run(engine, source, spec, folder, means(engine, draw, session))
            same = len({repr(each) for each in found.values()}) == 1
            differ += not same
            told = "same" if same else "DIFFERENT " + repr(found)
            print(f"{number:3} {told}  {time.perf_counter() - began:5.1f} s  {spec}", flush=True)
    print(f"{asked.specs - differ} of {asked.specs} specifications gave the same records on {', '.join(asked.engines)}")
    raise SystemExit(1 if differ else 0)


if __name__ == "__main__":
    main()
