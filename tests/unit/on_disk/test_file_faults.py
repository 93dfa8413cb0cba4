"""Whatever happens while a file is masked: a complete verified file or none, and a clear word about it."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safeswap import datasets, workflow
from safeswap.errors import InputError, UnsafeRelease
from safeswap.files import rewrite
from safeswap.files.parquet import open_parquet
from safeswap.on_disk import job as module

SCHEMA = datasets.synthetic_census_schema()
KEYS = ["ADULTS", "FAMILIES", "TRAILER"]
SPECS: dict[str, dict[str, Any]] = {
    "swap": {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.5},
    "edit_1990": {
        "method": "edit_1990",
        "keys": KEYS,
        "geography": ["STATE", "COUNTY", "PLACE", "TRACT", "BLOCK"],
        "across": "TRACT",
        "rate": 0.1,
    },
    "edit_targeted": {"method": "edit_targeted", "keys": [*KEYS, "TENURE"], "within": ["STATE"]},
}
PROGRAM = """
import json, os, signal, sys
from safeswap import datasets, workflow
from safeswap.errors import SafeswapError
from safeswap.files import rewrite
folder, spec, ending = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
copied, copies = rewrite._copy_chunk, []
def counted(*arguments):
    copies.append(1)
    if len(copies) == 20 and ending:
        os.kill(os.getpid(), getattr(signal, ending))
    return copied(*arguments)
rewrite._copy_chunk = counted
places = dict(target=f"{folder}/masked.parquet", audit=f"{folder}/audit", schema=datasets.synthetic_census_schema())
try:
    workflow.mask_file(f"{folder}/census.parquet", spec=spec, insecure_seed=1, **places)
except SafeswapError as error:
    print(type(error).__name__, error.code)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    datasets.write_synthetic_census(tmp_path / "census.parquet", 6_000, chunk_size=1_500)
    return tmp_path


def run(
    folder: Path, spec: str, ending: str = "", *, most_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    def limited() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(SPECS[spec]), ending]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "census.parquet")


@pytest.mark.parametrize(
    ("spec", "share"), [("swap", 0.005), ("swap", 0.6), ("edit_1990", 0.05), ("edit_targeted", 0.5), ("swap", 0.99)]
)
def test_a_full_disk_is_told_and_leaves_nothing(folder: Path, spec: str, share: float) -> None:
    # A process with a limit on file size: the operating system itself refuses the rest.
    most = int(share * (folder / "census.parquet").stat().st_size)
    done = run(folder, spec, most_bytes=most)
    assert done.stdout.split() == ["OutputError", "disk-full"], done.stderr[-2000:]
    assert left(folder) == []


def test_an_interrupt_in_the_middle_of_writing_leaves_nothing(folder: Path) -> None:
    assert run(folder, "edit_targeted", "SIGINT").stdout.strip() == "interrupted"
    assert left(folder) == []


def test_what_a_killed_process_leaves_is_hidden_private_and_in_nobodys_way(folder: Path) -> None:
    assert run(folder, "swap", "SIGKILL").returncode == -signal.SIGKILL
    remains = left(folder)
    assert "masked.parquet" not in remains
    assert "audit" not in remains or not any((folder / "audit").iterdir())
    hidden = [name for name in remains if name != "audit"]
    assert hidden
    assert all(name.startswith(".safeswap-") and (".part" in name or name.endswith(".lock")) for name in hidden)
    assert all(stat.S_IMODE((folder / name).stat().st_mode) & 0o077 == 0 for name in hidden)
    assert [part.path.name for part in open_parquet(folder).parts] == ["census.parquet"]
    assert run(folder, "swap").stdout == ""
    assert left(folder) == ["audit", "masked.parquet"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("change", ["cut short", "written anew", "other values"])
def test_an_input_that_changes_underneath_is_told_and_leaves_nothing(
    folder: Path, spec: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder / "census.parquet"
    data = pq.read_table(source)
    write = rewrite._write_replaced

    def then_changed(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        if change == "cut short":
            os.truncate(source, source.stat().st_size // 2)
        elif change == "written anew":
            pq.write_table(data, source, compression="zstd")
        else:
            turned = pa.chunked_array([data["HHID"].to_numpy()[::-1]])
            pq.write_table(data.set_column(0, "HHID", turned), source, row_group_size=1_500)

    monkeypatch.setattr(rewrite, "_write_replaced", then_changed)
    with pytest.raises(InputError) as caught:
        workflow.mask_file(
            source, folder / "masked.parquet", SPECS[spec], audit=folder / "audit", insecure_seed=1, schema=SCHEMA
        )
    assert caught.value.code == "input-changed"
    assert left(folder) == []


def test_a_disk_that_gives_back_other_bytes_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_together = module.rewrite

    def then_rotten(files: Any, target: Path, **options: Any) -> Any:
        written = put_together(files, target, **options)
        start, length = rewrite._extent(rewrite._chunks(rewrite.read_footer(target).groups[0])["INCOME"])
        with target.open("r+b") as file:
            file.seek(start + length // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        return written

    monkeypatch.setattr(module, "rewrite", then_rotten)
    with pytest.raises((UnsafeRelease, InputError)) as caught:
        workflow.mask_file(
            folder / "census.parquet",
            folder / "masked.parquet",
            SPECS["swap"],
            audit=folder / "audit",
            insecure_seed=1,
            schema=SCHEMA,
        )
    assert caught.value.code in ("promise-broken", "corrupt-file")
    assert left(folder) == []
