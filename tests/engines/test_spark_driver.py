"""Spark's driver dies in the middle of a run: no release, a clear error if somebody is left to tell, nothing left."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.engines.spark_runs import QUICK
from tests.engines.specs import census, write_parts

from safeswap import datasets, workflow

if importlib.util.find_spec("pyspark") is None:
    pytest.fail("PySpark is not installed: `make test` installs it, or `make .venv/.spark`", pytrace=False)

SPEC = {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.2}
MASK = """
import sys
from pathlib import Path
from safeswap import datasets, workflow
from safeswap.engines.spark.session import own_session
from safeswap.errors import SafeswapError
from safeswap.on_disk import run

def noticed(*arguments):
    assert any(part.glob("part-*.parquet") for part in folder.glob(".safeswap-*"))
    print(session.sparkContext._gateway.proc.pid, flush=True)
    return verified(*arguments)

folder, verified = Path(sys.argv[1]), run._verify
run._verify = noticed
session = own_session(master="local[1]", **{settings!r})
try:
    workflow.mask_file(folder / "census", folder / "masked", {spec!r}, audit=folder / "audit", engine="spark",
                       spark=session, schema=datasets.synthetic_census_schema(), insecure_seed=1)
except SafeswapError as error:
    print(error.code, flush=True)
"""


def begun(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A run that has written its files and is about to look at them, and the process of its Java."""
    write_parts(census(), folder / "census", 2)
    program = MASK.format(settings={**QUICK, "spark.sql.shuffle.partitions": "1"}, spec=SPEC)
    run = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    return run, int(run.stdout.readline())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_java_that_is_killed_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    run, java = begun(tmp_path)
    os.kill(java, signal.SIGKILL)
    told, _ = run.communicate(timeout=120)
    assert told.split() == ["engine-failed"]
    assert names(tmp_path) == ["census"]


def test_what_a_killed_driver_leaves_goes_with_the_next_run(tmp_path: Path) -> None:
    run, java = begun(tmp_path)
    run.kill()
    run.communicate(timeout=120)
    end = time.monotonic() + 120
    while Path(f"/proc/{java}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{java}").exists(), "Java lives on without the program that started it"
    hidden = [name for name in names(tmp_path) if name.startswith(".safeswap-")]
    assert hidden, "the run was killed too late to leave anything"
    assert set(names(tmp_path)) <= {*hidden, "census", "audit"}
    assert not list(tmp_path.glob("audit/*"))
    places = {"target": tmp_path / "masked.parquet", "audit": tmp_path / "audit"}
    stated = {"schema": datasets.synthetic_census_schema(), "insecure_seed": 1}
    workflow.mask_file(tmp_path / "census", spec=SPEC, **places, **stated)
    assert names(tmp_path) == ["audit", "census", "masked.parquet"]
