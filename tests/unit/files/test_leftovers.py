"""The next run removes the files of a killed run, and leaves those of a living one."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import safeswap as ss
from safeswap import datasets, workflow
from safeswap.files import atomic
from safeswap.files.atomic import atomic_directory, atomic_write, claim_prefix, remove_leftovers

pytestmark = pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="elsewhere nothing goes")

SPEC = ss.SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.2)
MASK = """
import os, signal, sys
from pathlib import Path
from safeswap import datasets, workflow
from safeswap.on_disk import job, run

def stop(*_, **__):
    print("here", flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if {kill} else sys.stdin.readline()
    return keep(*_, **__)

keep = {step}
{step} = stop
folder = Path({folder!r})
workflow.mask_file(folder / {source!r}, folder / {target!r}, {spec!r}, audit=folder / "audit", engine={engine!r},
                   schema=datasets.synthetic_census_schema(), insecure_seed=1)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def hidden(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.startswith(".")]


def census(folder: Path, *, parts: bool = False) -> str:
    datasets.write_synthetic_census(folder / "census.parquet", 3_000, chunk_size=700)
    if not parts:
        return "census.parquet"
    (folder / "census").mkdir()
    (folder / "census.parquet").rename(folder / "census" / "a.parquet")
    return "census"


def masked(folder: Path, source: str, target: str, engine: str) -> None:
    stated = {"schema": datasets.synthetic_census_schema(), "insecure_seed": 1, "engine": engine}
    workflow.mask_file(folder / source, folder / target, SPEC, audit=folder / "audit", **stated)


def program(folder: Path, step: str, engine: str, source: str, target: str, *, kill: bool) -> list[str]:
    stated = {"folder": str(folder), "step": step, "engine": engine, "source": source, "target": target}
    return [sys.executable, "-c", MASK.format(spec=SPEC.as_dict(), kill=kill, **stated)]


@contextmanager
def holding(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that says a line when it is where it should be, and is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_an_interrupt_at_the_very_first_file_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> int:
        os.close(opened(*arguments))
        raise KeyboardInterrupt

    opened = os.open
    monkeypatch.setattr(atomic.os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), claim_prefix(tmp_path / "masked.csv"):
        pass
    monkeypatch.undo()
    assert names(tmp_path) == []


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("step", ["job.rewrite", "run._verify", "job.write_audit_json"])
def test_the_run_after_a_killed_one_removes_what_that_left(engine: str, step: str, tmp_path: Path) -> None:
    parts = step == "run._verify"
    source, target = census(tmp_path, parts=parts), "masked" if parts else "masked.parquet"
    killed = subprocess.run(
        program(tmp_path, step, engine, source, target, kill=True), capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / target).exists()
    left = hidden(tmp_path)
    assert {name.partition(".part")[1] for name in left} == {".part", ""}
    assert any(name.endswith(".work") for name in left)
    assert bool(hidden(tmp_path / "audit")) == (step == "job.write_audit_json")
    masked(tmp_path, source, target, engine)
    assert names(tmp_path) == sorted(["audit", source, target])
    assert not hidden(tmp_path / "audit")


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_a_run_that_lives_keeps_its_files_and_ends_well(engine: str, tmp_path: Path) -> None:
    source = census(tmp_path)
    code = program(tmp_path, "run._verify", engine, source, "first.parquet", kill=False)[2]
    with holding(code) as process:
        before = hidden(tmp_path)
        assert before
        masked(tmp_path, source, "second.parquet", engine)
        assert hidden(tmp_path) == before
        process.communicate("go on\n", timeout=60)
        assert process.returncode == 0
    assert names(tmp_path) == sorted(["audit", source, "first.parquet", "second.parquet"])
    assert pq.read_table(tmp_path / "first.parquet").equals(pq.read_table(tmp_path / "second.parquet"))


def test_what_a_killed_count_spilt_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = """
import os, signal
from safeswap.files.atomic import working_directory
with working_directory() as work:
    (work / "spilt").write_text("words")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(hidden(tmp_path)) == 2
    with atomic.working_directory() as work:
        assert work.parent == tmp_path
        assert work.stat().st_mode & 0o777 == 0o700
        assert len(hidden(tmp_path)) == 2
    assert names(tmp_path) == []


def left_behind(folder: Path, target: str = "out", **said: str) -> Path:
    """Leave the files of a dead run: a claim without an owner."""
    with claim_prefix(folder / target) as own:
        lock = json.loads((folder / f"{own.name}.lock").read_text())
    (folder / f"{own.name}.part").write_text("records")
    (folder / f"{own.name}.work").mkdir()
    (folder / f"{own.name}.lock").write_text(json.dumps({**lock, **said}))
    return own


def test_what_nobody_holds_goes_with_whatever_is_written_next(tmp_path: Path) -> None:
    left_behind(tmp_path)
    with atomic_write(tmp_path / "something else") as part:
        part.write_text("x")
    assert names(tmp_path) == ["something else"]


def test_claims_of_this_very_process_are_left_alone(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "outer") as outer:
        (outer / "a").write_text("a")
        with atomic_write(tmp_path / "inner") as part:
            part.write_text("b")
        assert (outer / "a").exists()
    assert names(tmp_path) == ["inner", "outer"]


def test_what_another_machine_or_an_earlier_start_left_stays(tmp_path: Path) -> None:
    left_behind(tmp_path, boot="00000000-0000-0000-0000-000000000000")
    before = names(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == before


def test_a_claim_that_is_just_being_made_stays(tmp_path: Path) -> None:
    (tmp_path / f".safeswap-{'0' * 16}.lock").touch()
    (tmp_path / f".safeswap-{'1' * 16}.lock").write_text("[1, 2")
    (tmp_path / f".safeswap-{'2' * 16}.lock").write_text("[1]")
    (tmp_path / f".safeswap-{'3' * 16}.lock").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / f".safeswap-{'4' * 16}.lock")
    before = names(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == before


def test_without_locks_or_the_number_of_the_start_nothing_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(tmp_path)
    before = names(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError("no locks on this file system")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        with atomic_write(tmp_path / "out") as part:
            part.write_text("x")
        assert names(tmp_path) == sorted([*before, "out"])
    monkeypatch.setattr(atomic, "_boot_id", lambda: "")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted([*before, "out"])


def test_files_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(tmp_path)
    (tmp_path / ".safeswap-notes").write_text("somebody's own")
    before = names(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == before
    monkeypatch.undo()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".safeswap-notes"]


REPLACE = """
import os, signal, sys
from pathlib import Path
from safeswap.files.atomic import atomic_directory
rename = Path.rename
def killed_before_the_second(self, to):
    if to.name == "bundle":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, to)
Path.rename = killed_before_the_second
with atomic_directory(Path(sys.argv[1]), force=True, marker="manifest.json") as part:
    (part / "manifest.json").write_text("new")
"""


def test_a_directory_that_was_to_be_replaced_gets_its_name_back(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    target.mkdir()
    (target / "manifest.json").write_text("old")
    done = subprocess.run([sys.executable, "-c", REPLACE, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    with atomic_write(tmp_path / "out") as part:
        part.write_text("x")
    assert names(tmp_path) == ["bundle", "out"]
    assert (target / "manifest.json").read_text() == "old"
