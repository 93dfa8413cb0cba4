"""The database of a job: closed, limited, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from safeswap.engines.duckdb.store import DuckDBTable, Store
from safeswap.errors import EngineError, SpecError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path, memory_limit="100MB", threads=1)
    yield made
    made.close()


def test_rows_come_out_as_they_went_in(store: Store) -> None:
    table = store.new_table("a BIGINT, b UBIGINT")
    store.insert(table, pa.table({"x": np.arange(3), "y": np.array([0, 1, 2**64 - 1], dtype=np.uint64)}))
    assert store.rows(f"SELECT * FROM {table} ORDER BY a") == [(0, 0), (1, 1), (2, 2**64 - 1)]
    assert sum(batch.num_rows for batch in store.batches(f"SELECT a FROM {table}")) == 3


def test_results_can_be_read_while_rows_are_added(store: Store) -> None:
    table = store.table_of("SELECT range AS a FROM range(3000000)")
    other = store.new_table("a BIGINT")
    for batch in store.batches(f"SELECT a FROM {table}"):
        store.insert(other, pa.table({"x": batch.column(0).slice(0, 5)}))
    assert store.number(f"SELECT count(*) FROM {other}") >= 10


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{0}/leak.csv'",
        "SELECT * FROM read_csv('{0}/data.csv')",
        "SELECT * FROM '{0}/data.csv'",
        "ATTACH '{0}/other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '8GB'",
        "SET enable_external_access = true",
        "SELECT * FROM secret",
    ],
)
def test_nothing_outside_can_be_reached_and_no_setting_changed(store: Store, statement: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a\n1\n")
    secret = pa.table({"a": [1]})  # a variable of Python's that replacement scans would find
    with pytest.raises(EngineError) as caught:
        store.run(statement.format(tmp_path))
    assert caught.value.code == "engine-failed"
    assert str(tmp_path) not in str(caught.value.as_dict())
    assert secret.num_rows == 1
    assert not (tmp_path / "leak.csv").exists()


def test_a_limit_that_is_no_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        Store(tmp_path, memory_limit="plenty")
    assert caught.value.code == "bad-limit"


def test_no_room_for_spilling_is_said_and_nothing_stays(tmp_path: Path) -> None:
    # A limit on the size of files, in a process of its own, is as good as a full disk.
    code = f"""
import resource
from pathlib import Path
from safeswap.engines.duckdb.store import Store
from safeswap.errors import OutputError
store = Store(Path({str(tmp_path)!r}), memory_limit="30MB", threads=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    store.table_of("SELECT hash(range) AS h FROM range(8000000) ORDER BY h")
except OutputError as error:
    print(error.code)
store.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["disk-full"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_spilt_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    store = Store(tmp_path, memory_limit="30MB", threads=1)
    assert (tmp_path / "spill").stat().st_mode & 0o777 == 0o700
    table = store.table_of("SELECT hash(range) AS h FROM range(6000000)")
    assert store.number(f"SELECT count(*) FROM (SELECT h FROM {table} ORDER BY h)") == 6_000_000
    assert any((tmp_path / "spill").iterdir())
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_it_prints_no_progress_where_it_takes_itself_for_interactive(tmp_path: Path) -> None:
    # without a file, as in a notebook, DuckDB draws a bar into what the program prints
    code = (
        "import sys; from pathlib import Path; from safeswap.engines.duckdb.store import Store; "
        "store = Store(Path(sys.argv[1]), memory_limit='100MB', threads=1); "
        "print(store.rows(\"SELECT current_setting('enable_progress_bar')\"))"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout == "[(False,)]\n"


def test_a_table_goes_with_the_last_that_uses_it(tmp_path):
    store = Store(tmp_path, memory_limit="1GB")
    stored = store.table_of("SELECT 1::BIGINT AS r, 2::UBIGINT AS h, 3::UBIGINT AS l, 4::BIGINT AS c0")
    table = DuckDBTable(store, stored, ("x",))
    view = table.where("x", 4).union(table.where("x", 5))
    del table
    assert view.totals("x") == (4,)
    del view
    assert store.number("SELECT count(*) FROM duckdb_tables()") == 0
    left = DuckDBTable(store, store.table_of("SELECT 1"), ())
    store.close()
    del left  # closed already: nothing to drop, and no complaint
