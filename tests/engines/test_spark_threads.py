"""The same records and totals from Spark in one process, whatever the threads and the partitions."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.engines.spark_runs import check, dealt, masked, session_on, shuffled
from tests.engines.specs import spec_of

if importlib.util.find_spec("pyspark") is None:
    pytest.fail("PySpark is not installed: `make test` installs it, or `make .venv/.spark`", pytrace=False)

# In the process of the tests on a cluster, whose Java has been started already.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("threads", "parts"), [(1, 1), (2, 7), (8, 12)])
def test_neither_threads_nor_files_nor_partitions_change_anything(threads: int, parts: int, tmp_path: Path) -> None:
    with session_on(f"local[{threads}]") as session:
        assert session.sparkContext.defaultParallelism == threads
        source = shuffled(tmp_path, parts)
        with dealt(session, shuffles=parts, every_file=True):
            read = session.read.parquet(str(source))
            assert read.rdd.getNumPartitions() == parts
            assert read.groupBy("STATE").count().rdd.getNumPartitions() == parts
            check(tmp_path, masked(source, spec_of("repaired"), session), "repaired")
