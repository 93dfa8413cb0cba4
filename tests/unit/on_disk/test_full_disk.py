"""Every writer that meets a full disk says so, and leaves nothing behind."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import pyarrow as pa
from safeswap.errors import OutputError
from safeswap.files.write import write
table = pa.table({"a": [f"text {i * 7919 % 100003}" for i in range(50_000)], "b": [i / 7 for i in range(50_000)]})
try:
    write(table, sys.argv[1])
except OutputError as error:
    print(error.code)
"""


@pytest.mark.parametrize("suffix", ["csv", "parquet", "dta", "sav", "zsav"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    # A process that may write 64 kB per file only: the operating system itself refuses the rest.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / f"out.{suffix}")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536)),
    )
    assert done.stdout.strip() == "disk-full", done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
