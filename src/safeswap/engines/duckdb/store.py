"""A DuckDB database for one job: no outside access, limited memory, removed afterwards.

Data enter as Arrow tables and leave as Arrow batches. No name of the caller's enters: columns are called c0, c1, …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.errors import EngineError, OutputError, SpecError

BATCH = 1 << 18
_TOGETHER = 1 << 17

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)(I?)B?")
_OUR_OWN = 300 * 10**6  # batches of records, codes of areas, and everything else outside DuckDB
_ENOUGH = 500 * 10**6  # DuckDB gets at least this, or the whole limit if that is less


def limit_bytes(stated: str) -> int:
    """Parse a memory limit into bytes.

    >>> limit_bytes("1GB"), limit_bytes("1.5 MiB")
    (1000000000, 1572864)
    """
    found = _SIZE.fullmatch(stated.strip().upper())
    size = 0 if found is None else int(float(found[1]) * (_BINARY if found[3] else _UNITS).get(found[2], 0))
    if not size:
        raise SpecError(
            "the memory limit cannot be used",
            code="bad-limit",
            hint='give a size such as "1GB" or "800MB"',
        )
    return size


def _share_of_limit(limit: int) -> int:
    """Return DuckDB's part of a memory limit."""
    return max(min(limit, _ENOUGH), limit - _OUR_OWN)


class Store:
    """A connection, and the few operations used on it."""

    def __init__(self, work: Path, *, memory_limit: str, threads: int | None = None) -> None:
        import duckdb

        self.work = work / "spill"
        self.work.mkdir(mode=0o700, exist_ok=True)
        settings: dict[str, Any] = {
            "memory_limit": f"{_share_of_limit(limit_bytes(memory_limit))}B",
            "temp_directory": str(self.work),
            "preserve_insertion_order": "false",
            **({"threads": str(threads)} if threads else {}),
        }
        # In this order: set the spill directory before locking access. safeswap reports progress itself; DuckDB would
        # print its own bar into a notebook, or into the output of `python -c`.
        with _translate_errors():
            self._connection = duckdb.connect(":memory:", config=settings)
            for setting in (
                "enable_progress_bar = false",
                "enable_external_access = false",
                "python_enable_replacements = false",
                "lock_configuration = true",
            ):
                self._connection.execute(f"SET {setting}")
        self._is_open = True
        self._tables = 0

    def close(self) -> None:
        """Close the connection and remove spilled files."""
        import shutil

        self._is_open = False
        self._connection.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def new_table(self, columns: str) -> str:
        """Create an empty table; return its name."""
        name = self._name()
        self.run(f"CREATE TABLE {name} ({columns})")
        return name

    def table_of(self, query: str) -> str:
        """Create a table from a query; return its name."""
        name = self._name()
        self.run(f"CREATE TABLE {name} AS {query}")
        return name

    def drop(self, table: str) -> None:
        """Drop a table; nothing is left to drop once the store is closed."""
        if self._is_open:
            self.run(f"DROP TABLE {table}")

    def insert(self, table: str, rows: pa.Table) -> None:
        """Insert rows by column position."""
        with _translate_errors():
            self._connection.register("incoming", rows)
            try:
                self._connection.execute(f"INSERT INTO {table} FROM incoming")
            finally:
                self._connection.unregister("incoming")

    @contextmanager
    def inserter(self, table: str) -> Iterator[Callable[[pa.Table], None]]:
        """Yield a function that inserts rows by position; small batches are buffered, which costs less."""
        held: list[pa.Table] = []

        def put_down() -> None:
            if held:
                self.insert(table, pa.concat_tables(held))
                held.clear()

        def add(rows: pa.Table) -> None:
            if rows.num_rows:
                held.append(rows)
            if sum(part.num_rows for part in held) >= _TOGETHER:
                put_down()

        yield add
        put_down()

    def run(self, statement: str) -> None:
        """Execute a statement."""
        with _translate_errors():
            self._connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a result known to be small."""
        with _translate_errors():
            return list(self._connection.execute(query).fetchall())

    def number(self, query: str) -> int:
        """Return a single number."""
        return int(self.rows(query)[0][0] or 0)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield a result of any size in batches, while other queries may run."""
        with _translate_errors():
            # A separate cursor, so that the result streams while this connection runs other queries.
            cursor = self._connection.cursor()
            try:
                yield from cursor.sql(query).to_arrow_reader(BATCH)
            finally:
                cursor.close()

    def _name(self) -> str:
        self._tables += 1
        return f"t{self._tables}"


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Replace DuckDB's messages, which quote statements and may quote data."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        # What cannot be spilt fails as a lack of memory, or of a commit.
        if isinstance(error, duckdb.IOException) or "temp_directory" in str(error) or "offload" in str(error):
            raise _disk_full() from None
        if not isinstance(error, duckdb.OutOfMemoryException):
            raise EngineError(
                "DuckDB failed",
                code="engine-failed",
                hint="please report it",
                reason=type(error).__name__,
            ) from None
        raise EngineError(
            "the memory limit is too low for this job",
            code="memory-limit",
            hint="raise memory_limit, or use fewer threads",
        ) from None


def _disk_full() -> OutputError:
    return OutputError(
        "no disk space for data that do not fit in memory; nothing was left behind",
        code="disk-full",
        hint="free disk space beside the target, or raise memory_limit",
    )
