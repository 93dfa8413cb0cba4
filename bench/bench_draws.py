"""The keyed draw in each engine: AES through Arrow batches against what the engines' own expressions offer.

``python bench/bench_draws.py`` prints processor time per million records; ``--spark`` tries Spark too. Only AES under a
secret key is a pseudorandom permutation: the others are there to show what it costs, or saves, to do the right thing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from safeswap.engines.spark.draws import Draw

KEY = bytes(range(32))


def processor(work: Callable[[], Any]) -> float:
    """Processor seconds of this process, after a first run that warms up."""
    work()
    start = time.process_time()
    work()
    return time.process_time() - start


def in_batches(table: pa.Table) -> None:
    """AES of every identifier, a batch at a time, as all engines do it."""
    for _ in draws(table.to_batches(max_chunksize=100_000)):
        pass


def draws(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first word of each draw, as Spark's workers compute it."""
    for batch in batches:
        words = Draw(KEY, KEY, KEY).words(batch.column(0))
        yield pa.record_batch({"h": np.ascontiguousarray(words[:, 0]).view(np.int64)})


def in_duckdb(table: pa.Table, expression: str) -> None:
    """A draw by an expression of DuckDB's own."""
    connection = duckdb.connect()
    connection.register("records", table)
    connection.execute(f"SELECT max({expression}) FROM records").fetchall()
    connection.close()


def in_spark(records: int) -> dict[str, float]:
    """Seconds of draws in Spark: through Arrow, and by its own expressions."""
    from pyspark.sql import functions as f

    from safeswap.engines.spark.session import own_session

    session = own_session(master="local[2]")
    frame = session.range(records).withColumnRenamed("id", "i")
    secret = f.lit(KEY.hex())
    ways = {
        "AES through Arrow batches": lambda: frame.mapInArrow(draws, "h long"),
        "sha2(key, identifier)": lambda: frame.select(
            f.sha2(f.concat(secret, f.col("i").cast("string")), 256).alias("h")
        ),
        "aes_encrypt(identifier)": lambda: frame.select(
            f.aes_encrypt(f.col("i").cast("string"), f.lit(KEY), f.lit("ECB")).alias("h")
        ),
    }
    found = {}
    for name, made in ways.items():
        made().agg(f.max("h")).collect()
        start = time.perf_counter()
        made().agg(f.max("h")).collect()
        found[name] = time.perf_counter() - start
    session.stop()
    return found


def main() -> None:
    """All ways, per million records."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=float, default=1e6)
    options.add_argument("--spark", action="store_true")
    chosen = options.parse_args()
    records = int(chosen.records)
    table = pa.table({"i": np.arange(records)})
    millions = records / 1e6
    plain = processor(lambda: in_batches(table)) / millions
    print(f"AES through Arrow batches        {plain * 1000:8.0f} ms per million records")
    for name in ("md5", "sha256"):
        spent = processor(lambda name=name: in_duckdb(table, f"{name}('{KEY.hex()}' || i)")) / millions
        print(f"DuckDB {name}(key, identifier)".ljust(32), f"{spent * 1000:8.0f} ms, {spent / plain:.1f} × AES")
    if chosen.spark:
        for name, seconds in in_spark(records).items():
            print(f"Spark {name}".ljust(40), f"{seconds / millions * 1000:8.0f} ms on the clock, two cores")


if __name__ == "__main__":
    main()
