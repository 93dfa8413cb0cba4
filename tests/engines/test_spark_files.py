"""Files on Spark: identifiers of any type, private directories, other file systems, damage, and no key in sight."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.on_files import rows_of
from tests.engines.spark_runs import masked, session_on
from tests.engines.specs import KEY, census, spec_of, write_parts

import safeswap as ss
from safeswap import workflow
from safeswap.arrays import keyed
from safeswap.engines.spark.engine import SparkRecords
from safeswap.errors import InputError, UnsafeRelease
from safeswap.files.parquet import open_parquet
from safeswap.on_disk import run

if importlib.util.find_spec("pyspark") is None:
    pytest.fail("PySpark is not installed: `make test` installs it, or `make .venv/.spark`", pytrace=False)

pytestmark = pytest.mark.filterwarnings("ignore")

SPEC = ss.SwapSpec(swap=["x"], fixed=["z"], rate=0.5)
EPOCH = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def session(logs: Path) -> Iterator[Any]:
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with session_on("local[1]", **{"spark.sql.shuffle.partitions": "2", **settings}) as session:
        yield session


def identifiers() -> dict[str, pa.Array]:
    """Sixty identifiers of each type that Spark holds otherwise than Parquet, or not at all."""
    numbers = [(7 * i) % 60 for i in range(60)]
    times = [EPOCH + dt.timedelta(milliseconds=37 * i) for i in numbers]
    return {
        "ms": pa.array(times, pa.timestamp("ms")),
        "us": pa.array(times, pa.timestamp("us", "UTC")),
        "ns": pa.array([10**18 + i for i in numbers], pa.timestamp("ns")),
        "unsigned": pa.array([2**64 - 1 - i for i in numbers], pa.uint64()),
        "text": pa.array(["NaN", "nan", "None", *(f"n{i}" for i in numbers[3:])]),
    }


def table_of(own: pa.Array) -> pa.Table:
    values, strata = [str(i % 4) for i in range(60)], [i % 3 for i in range(60)]
    return pa.table({"id": own, "x": values, "z": strata})


@pytest.mark.parametrize("kind", identifiers())
def test_draws_are_those_in_memory_whatever_the_identifier(kind: str, session: Any, tmp_path: Path) -> None:
    pq.write_table(table_of(identifiers()[kind]), tmp_path / "data.parquet", row_group_size=25)
    asked: dict[str, Any] = {"spec": SPEC, "key": KEY, "identifier": "id", "audit": tmp_path / "audit"}
    found = []
    for engine, options in (("memory", {}), ("spark", {"spark": session})):
        workflow.mask_file(tmp_path / "data.parquet", tmp_path / engine, engine=engine, **asked, **options)
        found.append(rows_of(open_parquet(tmp_path / engine).table(["id", "x", "z"])))
    assert found[0] == found[1]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system, or where there is none, on the same."""
    memory = Path("/dev/shm")
    is_another = memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev and os.access(memory, os.W_OK)
    folder = Path(tempfile.mkdtemp(dir=memory if is_another else tmp_path))
    yield folder
    shutil.rmtree(folder)


def test_a_run_shows_no_key_and_lets_nobody_read_and_may_write_to_another_file_system(
    session: Any, logs: Path, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, modes = [], []

    def noted_plan(records: SparkRecords, *arguments: Any) -> Any:
        frame = read(records, *arguments)
        plans.append(frame._jdf.queryExecution().toString())
        return frame

    def noted_modes(*arguments: Any) -> Any:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in elsewhere.glob(".safeswap-*") if path.is_dir())
        return verify(*arguments)

    read, verify = SparkRecords.read, run._verify
    monkeypatch.setattr(SparkRecords, "read", noted_plan)
    monkeypatch.setattr(run, "_verify", noted_modes)
    source = write_parts(census(), tmp_path / "census", 2)
    asked: dict[str, Any] = {"spec": spec_of("a number of pairs"), "key": KEY, "identifier": "HHID"}
    asked |= {"engine": "spark", "spark": session}
    result = workflow.mask_file(source, elsewhere / "masked", audit=tmp_path / "audit", **asked)

    logged = b"".join(path.read_bytes() for path in logs.rglob("*") if path.is_file())
    assert plans
    assert b"MapInArrow" in logged
    for secret in (KEY.secret, keyed.derive(KEY.secret, "identity")):
        for shown in (secret, secret.hex().encode(), repr(secret).encode()[2:-1]):
            assert shown not in logged
            assert shown not in "".join(plans).encode()
    assert modes == [0o700, 0o700]  # the output and the working directory
    assert stat.S_IMODE(result.audit.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in result.audit.iterdir()} == {0o600}
    assert len(open_parquet(result.target)) == census().num_rows
    assert [path.name for path in elsewhere.iterdir()] == ["masked"]


@pytest.mark.parametrize(("own", "code"), [("", "missing-identifier"), ("n9", "duplicate-identifier")])
def test_text_identifiers_are_checked(own: str, code: str, session: Any, tmp_path: Path) -> None:
    values = [f"n{i}" for i in range(59)]
    pq.write_table(table_of(pa.array([*values, own])), tmp_path / "data.parquet", row_group_size=25)
    asked: dict[str, Any] = {"spec": SPEC, "key": KEY, "identifier": "id", "engine": "spark", "spark": session}
    with pytest.raises(InputError) as caught:
        workflow.mask_file(tmp_path / "data.parquet", tmp_path / "out", audit=tmp_path / "audit", **asked)
    assert caught.value.code == code


def test_one_wrong_value_in_what_was_written_is_found(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def verified(output: Any, part: Path, *rest: Any) -> Any:
        path = sorted(part.glob("*.parquet"))[-1]
        table = pq.read_table(path)
        for column in ("HHID", "INCOME", "TENURE"):  # copied, a number; copied; exchanged
            values = table[column].to_pylist()
            values[3] = next(value for value in values if value != values[3])
            wrong = pa.array(values, table.schema.field(column).type)
            pq.write_table(table.set_column(table.column_names.index(column), column, wrong), path)
            with pytest.raises(UnsafeRelease) as caught:
                verify(output, part, *rest)
            found.append(column)
        raise caught.value

    verify = run._verify
    monkeypatch.setattr(run, "_verify", verified)
    with pytest.raises(UnsafeRelease):
        masked(write_parts(census(), tmp_path / "census", 2), spec_of("fixed"), session)
    assert found == ["HHID", "INCOME", "TENURE"]
    assert [path.name for path in tmp_path.iterdir()] == ["census"]
