"""A disk that is full in the middle of a job: one clear error, and nothing left behind."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.engines.specs import KEY, SCHEMA

from safeswap import datasets, workflow
from safeswap.engines.duckdb import store
from safeswap.errors import OutputError

RECORDS = 150_000
LIMIT = "25MB"
JOBS: dict[str, dict[str, Any]] = {
    "swap": {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.8},
    "targeted swap": {"method": "swap", "swap": ["TENURE"], "rate": 0.1, "targeting": {"n": 3}},
    "edit": {
        "method": "edit_1990",
        "keys": ["ADULTS", "FAMILIES"],
        "geography": ["STATE", "COUNTY", "PLACE", "TRACT", "BLOCK"],
        "rate": 0.5,
        "single_areas": "leave",
    },
}
MASK = """
import sys
from pathlib import Path
from safeswap import datasets, workflow
from safeswap.errors import OutputError

folder = Path(sys.argv[1])
try:
    workflow.mask_file(folder / "census.parquet", folder / "masked.parquet", {spec!r}, audit=folder / "audit",
                       schema=datasets.synthetic_census_schema(), insecure_seed=1, engine={engine!r},
                       memory_limit={limit!r}, threads=1)
except OutputError as error:
    print(error.code, error)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "census.parquet"
    datasets.write_synthetic_census(path, RECORDS)
    return path


@pytest.fixture
def census(made: Path, tmp_path: Path) -> Path:
    path = tmp_path / "census.parquet"
    path.hardlink_to(made)
    return path


def masked(source: Path, spec: dict[str, Any]) -> workflow.MaskedFile:
    stated: dict[str, Any] = {"schema": SCHEMA, "engine": "duckdb", "memory_limit": LIMIT, "threads": 1}
    return workflow.mask_file(
        source, source.parent / "masked.parquet", spec, key=KEY, audit=source.parent / "audit", **stated
    )


def with_room(connect: Callable[..., Any], room: str) -> Callable[..., Any]:
    """DuckDB on a disk with so much room: by default it stops when nine tenths of what is free are used."""

    def connected(*arguments: Any, **options: Any) -> Any:
        connection = connect(*arguments, **options)
        connection.execute(f"SET max_temp_directory_size = '{room}'")
        return connection

    return connected


@pytest.mark.parametrize("name", JOBS)
def test_a_disk_too_small_for_what_is_spilt_leaves_nothing(
    name: str, census: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = duckdb.connect
    monkeypatch.setattr(store, "_DRAWN", 10**9)  # every drawn row goes to the database
    monkeypatch.setattr(duckdb, "connect", with_room(connect, "1MB"))
    with pytest.raises(OutputError) as caught:
        masked(census, JOBS[name])
    assert caught.value.code == "disk-full"
    assert "free disk space" in str(caught.value.hint)
    assert [path.name for path in census.parent.iterdir()] == [census.name]
    monkeypatch.setattr(duckdb, "connect", with_room(connect, "1GB"))
    masked(census, JOBS[name])
    assert sorted(path.name for path in census.parent.iterdir()) == ["audit", census.name, "masked.parquet"]


@pytest.mark.parametrize(("engine", "most"), [("duckdb", 100_000), ("duckdb", 1_000_000), ("memory", 100_000)])
def test_a_write_that_the_system_refuses_leaves_nothing(engine: str, most: int, census: Path) -> None:
    # A limit on the size of files, in a process of its own: first what is spilt does not fit, then what is written.
    code = MASK.format(spec=JOBS["swap"], engine=engine, limit=LIMIT if most < 1_000_000 else "1GB")
    done = subprocess.run(
        [sys.executable, "-c", code, str(census.parent)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert done.stdout.startswith("disk-full "), done.stderr
    assert [path.name for path in census.parent.iterdir()] == [census.name]
