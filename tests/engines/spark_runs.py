"""Runs on Spark against the reference in memory: how records are cut, masked and compared."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.engines.specs import KEY, SCHEMA, census, records_of, spec_of, write_parts

from safeswap import registry, workflow
from safeswap.engines.spark.session import own_session
from safeswap.files.parquet import open_parquet
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata

# Few records and many plans: what compiling and adapting them gains is less than what it costs.
QUICK = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@contextmanager
def session_on(master: str, **settings: str) -> Iterator[Any]:
    """A session of our own with a master, stopped at the end."""
    import pyspark

    before = {name: os.environ.get(name) for name in ("SPARK_HOME", "SPARK_LOCAL_IP")}
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = own_session(master=master, **QUICK, **settings)
    try:
        yield session
    finally:
        session.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def dealt(session: Any, *, shuffles: int, every_file: bool = False) -> Iterator[None]:
    """Every shuffle into so many partitions, and if wished every file a partition of its own."""
    stated = {"spark.sql.shuffle.partitions": str(shuffles)}
    if every_file:
        stated["spark.sql.files.openCostInBytes"] = session.conf.get("spark.sql.files.maxPartitionBytes")
    before = {name: session.conf.get(name) for name in stated}
    for name, value in stated.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def shuffled(folder: Path, parts: int) -> Path:
    """The census in another order and in so many files."""
    order = np.random.default_rng(parts).permutation(census().num_rows)
    return write_parts(census().take(pa.array(order)), folder / "census", parts)


def masked(source: Path, spec: Any, session: Any, **options: Any) -> workflow.MaskedFile:
    """Mask to a neighbour of the source."""
    stated = {"schema": SCHEMA, "name": SCHEMA.name, **options}
    places = {"target": source.parent / "masked", "audit": source.parent / "audit"}
    return workflow.mask_file(source, spec=spec, key=KEY, engine="spark", spark=session, **places, **stated)


def expected(name: str) -> Masked:
    """What the reference makes of the census."""
    spec = spec_of(name)
    return registry.method(spec.method).apply(Microdata(census(), SCHEMA), spec, key=KEY)


def check(folder: Path, result: Any, name: str) -> None:
    """The records as a multiset, the totals and the facts are those of the reference."""
    reference = expected(name)
    written = open_parquet(folder / "masked").table(SCHEMA.names)
    assert records_of(written) == records_of(reference.data.table)
    told = {key: value for key, value in result.as_dict().items() if key != "engine"}
    assert told == reference.as_dict()
    known = {key: value for key, value in dict(reference.audit.facts).items() if key != "diagnosis"}
    assert dict(result.facts) == known
