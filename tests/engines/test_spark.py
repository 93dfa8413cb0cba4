"""The same records, pairs and totals from Spark: on two workers, and when one of them dies."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.conformance.on_files import rows_of
from tests.engines.spark_runs import check, dealt, expected, masked, session_on, shuffled
from tests.engines.specs import SCHEMA, census, spec_of, write_parts

from safeswap import workflow
from safeswap.engines.spark import engine
from safeswap.errors import EngineError, InputError
from safeswap.files.parquet import open_parquet
from safeswap.model.audit import undo
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.on_disk import run
from safeswap.on_disk.audit_record import read_audit

if importlib.util.find_spec("pyspark") is None:
    pytest.fail("PySpark is not installed: `make test` installs it, or `make .venv/.spark`", pytrace=False)

# All in one process of the test run (see tests/conftest.py): there is one cluster.
pytestmark = pytest.mark.filterwarnings("ignore")

CUT = {
    "a number of pairs": (3, 1),
    "no pairs": (1, 2),
    "one pair": (3, 2),
    "swapped and different": (3, 2),
    "two attributes, all": (3, 1),
    "fixed": (64, 1),
    "fixed, many strata": (7, 7),
    "all roles": (1, 1),
    "geography": (3, 2),
    "sequential, fixed": (3, 1),
    "uniform, fixed": (3, 2),
    "repaired to the most there are": (1, 2),
    "targeted": (3, 1),
    "targeted, all keys": (1, 2),
    "targeted and repaired": (3, 2),
    "edit, small blocks": (1, 1),
    "edit, many keys": (3, 2),
    "permuted": (3, 2),
    "permuted, one stratum": (1, 2),
}
"""Nineteen specifications, the files in which the records of each come, and the partitions of every shuffle.

Records that come in several files are also walked in slices, as many records are.
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of one core each, in processes of their own."""
    settings = {
        "spark.executor.memory": "800m",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "8",
    }
    with session_on("local-cluster[2,1,1024]", **settings) as session:
        yield session


@pytest.mark.parametrize("name", CUT)
def test_two_workers_give_the_records_and_totals_of_the_reference(
    name: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, shuffles = CUT[name]
    if files > 1:
        monkeypatch.setattr(engine, "_SLICE", 1000)
    with dealt(cluster, shuffles=shuffles):
        result = masked(shuffled(tmp_path, files), spec_of(name), cluster)
    check(tmp_path, result, name)
    stages = expected(name).audit.exchanges
    source, masked_table = (open_parquet(tmp_path / name).table(SCHEMA.names) for name in ("census", "masked"))
    own, before = census()["HHID"].to_numpy(), source["HHID"].to_numpy()
    audit = read_audit(result.audit)
    told = [before[stage.pairs].tolist() for stage in audit.exchanges]
    assert told == [own[stage.pairs].tolist() for stage in stages]
    assert masked_table["HHID"].equals(source["HHID"])
    assert rows_of(undo(Microdata(masked_table, SCHEMA), audit).table) == rows_of(source)
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


def test_figures_are_those_of_the_reference(cluster: Any, tmp_path: Path) -> None:
    names, measures = ["STATE", "ADULTS", "TENURE"], ["n_rule", "hellinger", "entropy_change"]
    source = shuffled(tmp_path, 7)
    with dealt(cluster, shuffles=1):
        result = masked(source, spec_of("fixed"), cluster, measures=measures, attributes=names)
        asked: dict[str, Any] = {"attributes": names, "schema": SCHEMA, "measures": measures}
        again = workflow.assess_file(source, result.target, engine="spark", spark=cluster, **asked)
        written = open_parquet(result.target).table(SCHEMA.names)
        turned = write_parts(written.take(pa.array(np.arange(len(written))[::-1])), tmp_path / "turned", 7)
        joined = workflow.assess_file(source, turned, engine="spark", spark=cluster, **asked)
        other = written.set_column(0, "HHID", pc.add(written["HHID"], 1).cast(written["HHID"].type))
        with pytest.raises(InputError) as caught:
            workflow.assess_file(
                source, write_parts(other, tmp_path / "other", 7), engine="spark", spark=cluster, **asked
            )
    assert caught.value.code == "files-differ"
    reference = workflow.assess(expected("fixed"), measures=measures, attributes=names)
    for found in (result.assessment, again, joined):  # in the same order, and brought together
        assert found is not None
        assert [score.value for score in found] == pytest.approx([score.value for score in reference], rel=1e-12)


def test_measures_of_cells_are_left_out_as_in_the_reference_where_only_numbers_changed(
    cluster: Any, tmp_path: Path
) -> None:
    names, measures = ["STATE", "TENURE"], ["n_rule", "hellinger"]
    source = shuffled(tmp_path, 2)
    with dealt(cluster, shuffles=1):
        result = masked(source, spec_of("fixed, many strata"), cluster, measures=measures, attributes=names)
        spark_on: dict[str, Any] = {"engine": "spark", "spark": cluster, "schema": SCHEMA}
        seen = workflow.assess_file(source, result.target, attributes=[*names, "INCOME"], **spark_on)
    assert result.assessment is not None
    assert [each.measure for each in result.assessment.left_out] == measures
    assert not result.assessment.scores
    reference = workflow.assess(expected("fixed, many strata"), attributes=[*names, "INCOME"])
    assert not seen.left_out
    for score in seen:
        assert score.value == pytest.approx(reference[score.measure].value, rel=1e-12)


def test_an_input_that_changes_underneath_leaves_nothing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_parts(census(), tmp_path / "census", 1)
    verify = run._verify

    def verified_late(*arguments: Any) -> Any:
        found = verify(*arguments)
        os.utime(next(source.glob("*.parquet")), ns=(1, 1))
        return found

    monkeypatch.setattr(run, "_verify", verified_late)
    with pytest.raises(InputError) as caught:
        masked(source, spec_of("a number of pairs"), cluster)
    assert caught.value.code == "input-changed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["census"]


def test_an_interrupted_write_leaves_nothing(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_parts(census(), tmp_path / "census", 1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_verify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        masked(source, spec_of("a number of pairs"), cluster)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["census"]


def test_a_job_that_fails_leaves_nothing(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_parts(census(), tmp_path / "census", 1)

    def fail(*_: object) -> None:
        cluster.range(1).selectExpr("assert_true(id > 5)").collect()

    monkeypatch.setattr(run, "_verify", fail)
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
