"""The same records and totals from Spark: in one process, on two workers, and when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engines.specs import KEY, SCHEMA, census, records_of, spec_of, write_parts

from safeswap import workflow
from safeswap.engines.memory import MemoryEngine
from safeswap.engines.spark_session import own_session
from safeswap.errors import EngineError, InputError
from safeswap.io import spark_files
from safeswap.io.parquet_files import open_parquet
from safeswap.methods.swap import Swap
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema

pytest.importorskip("pyspark")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Spark's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of one core each, in processes of their own."""
    import pyspark

    before = {name: os.environ.get(name) for name in ("SPARK_HOME", "SPARK_LOCAL_IP")}
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = own_session(
            master="local-cluster[2,1,1024]",
            **{
                "spark.executor.memory": "800m",
                "spark.driver.host": "127.0.0.1",
                "spark.sql.shuffle.partitions": "3",
                "spark.task.maxFailures": "8",
                # Few records and many plans: what compiling them gains is less than what it costs.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def expected(name: str) -> Any:
    return Swap().apply(Microdata(census(), SCHEMA), spec_of(name), key=KEY, engine=MemoryEngine())


def masked(source: Path, spec: Any, session: Any, **options: Any) -> workflow.MaskedFile:
    stated = {"schema": SCHEMA, "name": SCHEMA.name, **options}
    places = {"target": source.parent / "masked", "audit": source.parent / "audit"}
    return workflow.mask_file(source, spec=spec, key=KEY, engine="spark", spark=session, **places, **stated)


def check(folder: Path, result: Any, name: str) -> None:
    reference = expected(name)
    written = open_parquet(folder / "masked").table(SCHEMA.names)
    assert records_of(written) == records_of(reference.data.table)
    told = {key: value for key, value in result.as_dict().items() if key != "engine"}
    assert told == reference.as_dict()


def shuffled(folder: Path, parts: int) -> Path:
    order = np.random.default_rng(parts).permutation(census().num_rows)
    return write_parts(census().take(pa.array(order)), folder / "census", parts)


def test_two_workers_give_the_records_and_totals_of_the_reference(cluster: Any, tmp_path: Path) -> None:
    spec = spec_of("sequential, fixed")
    result = masked(shuffled(tmp_path, 7), spec, cluster)
    check(tmp_path, result, "sequential, fixed")
    pairs = [len(open_parquet(path)) for path in sorted(result.audit.glob("pairs-*"))]
    assert pairs == [result.made] * len(spec.stages)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit", "census", "masked"]


def test_a_worker_that_is_killed_changes_nothing_nor_do_repairs_and_partitions(cluster: Any, tmp_path: Path) -> None:
    source = shuffled(tmp_path, 64)
    workers = executors()
    assert len(workers) == 2
    killed = threading.Timer(2.0, os.kill, (workers[0], signal.SIGKILL))
    killed.start()
    result = masked(source, spec_of("repaired"), cluster)
    killed.join()
    check(tmp_path, result, "repaired")
    assert workers[0] not in executors()


def test_a_job_that_fails_leaves_nothing(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_parts(census(), tmp_path / "census", 1)

    def fail(*_: object) -> None:
        cluster.range(1).selectExpr("assert_true(id > 5)").collect()

    monkeypatch.setattr(spark_files, "_verified", fail)
    with pytest.raises(EngineError) as caught:
        masked(source, spec_of("one attribute"), cluster)
    assert caught.value.code == "engine-failed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["census"]


def test_files_without_or_with_a_shared_identifier_are_refused(cluster: Any, tmp_path: Path) -> None:
    source = write_parts(census(), tmp_path / "census", 1)
    unknown = Schema(
        attributes=tuple(a.model_copy(update={"kind": "nominal"}) if a.name == "HHID" else a for a in SCHEMA.attributes)
    )
    with pytest.raises(EngineError) as refused:
        masked(source, spec_of("one attribute"), cluster, schema=unknown)
    assert refused.value.fields["engines"] == ["memory", "duckdb"]
    twice = pa.concat_tables([census(), census().slice(0, 2)])
    with pytest.raises(InputError) as shared:
        masked(write_parts(twice, tmp_path / "twice", 1), spec_of("one attribute"), cluster)
    assert shared.value.code == "duplicate-identifier"


def executors() -> list[int]:
    """The processes of the workers of our own cluster: descendants of this process that run Spark's executor."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                commands[int(folder.name)] = (folder / "cmdline").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = []
    for process, command in commands.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above == os.getpid() and "CoarseGrainedExecutorBackend" in command and "java" in command.split("\0")[0]:
            found.append(process)
    return sorted(found)
