"""Records and tables on each engine give what plain Python gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.engines.shuffled import ShuffledRecords
from tests.engines.table_checks import KEY, check_every_operation, make_data

from safeswap.arrays import keyed
from safeswap.engines.base import Records
from safeswap.engines.duckdb import store as store_module
from safeswap.engines.duckdb.engine import DuckDBRecords
from safeswap.engines.duckdb.store import Store
from safeswap.engines.memory import MemoryRecords
from safeswap.engines.stream import RecordStream
from safeswap.files.parquet import open_parquet
from safeswap.model.microdata import Microdata

Opened = tuple[Records, Callable[[Any], list[list[int]]]]


@contextmanager
def memory(data: Microdata, folder: Path) -> Iterator[Opened]:
    yield MemoryRecords(data, KEY), lambda pairs: pairs.tolist()


@contextmanager
def shuffled(data: Microdata, folder: Path) -> Iterator[Opened]:
    yield ShuffledRecords(data, KEY, seed=len(data)), lambda pairs: pairs.tolist()


@contextmanager
def duckdb(data: Microdata, folder: Path, *, room: int | None = None) -> Iterator[Opened]:
    pq.write_table(data.table, folder / "data.parquet", row_group_size=5)
    store = Store(folder, memory_limit="100MB", threads=1)
    store.room = store.room if room is None else room
    stream = RecordStream(open_parquet(folder / "data.parquet"), data.schema)
    records = DuckDBRecords(stream, store, identity_key=keyed.derive(KEY.secret, "identity"))
    try:
        yield records, lambda pairs: [pair for batch in records.rows_of(pairs) for pair in batch.tolist()]
    finally:
        store.close()


def stored(data: Microdata, folder: Path) -> Any:
    """Every drawn row goes to the database."""
    return duckdb(data, folder, room=0)


def stored_if_many(data: Microdata, folder: Path) -> Any:
    """Some tables are in memory and others, which may be joined with them, in the database."""
    return duckdb(data, folder, room=700)


@pytest.mark.parametrize("engine", [memory, shuffled, duckdb, stored, stored_if_many])
@given(seed=st.integers(0, 2**32 - 1), records=st.integers(1, 60), identified=st.booleans())
@example(seed=0, records=1, identified=True)
@settings(phases=[Phase.explicit, Phase.generate])
def test_every_operation_gives_what_plain_python_gives(
    engine: Any, seed: int, records: int, identified: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = make_data(seed, records, identified=identified)
    with engine(data, tmp_path_factory.mktemp("table")) as opened:
        check_every_operation(data, *opened)


def test_groups_that_span_batches_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB hands out rows in batches; here every batch ends within a group."""
    found: list[int] = []

    def in_threes(store: Store, query: str) -> Any:
        for batch in batches(store, query):
            parts = [batch.slice(start, 3) for start in range(0, batch.num_rows, 3)]
            found.append(len(parts))
            yield from parts

    batches = store_module.Store.batches
    monkeypatch.setattr(store_module.Store, "batches", in_threes)
    data = make_data(1, 200, identified=True)
    with stored(data, tmp_path) as opened:
        check_every_operation(data, *opened)
    assert max(found) > 10
