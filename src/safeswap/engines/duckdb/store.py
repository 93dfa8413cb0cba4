"""A DuckDB database for one job: closed to the outside, limited in memory, gone afterwards.

Data enter as Arrow tables and leave as Arrow batches. No name of the caller's gets in: columns are called c0, c1, …
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
_OUR_OWN = 300 * 10**6  # batches of records, codes of areas, and what else is held outside of DuckDB
_ENOUGH = 500 * 10**6  # with less DuckDB is not asked to share


def limit_bytes(stated: str) -> int:
    """A limit of memory as a number of bytes.

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


def _for_duckdb(limit: int) -> int:
    """What is left of a limit for DuckDB."""
    return max(min(limit, _ENOUGH), limit - _OUR_OWN)


class Store:
    """The connection, and the few things that are done with it."""

    def __init__(self, work: Path, *, memory_limit: str, threads: int | None = None) -> None:
        import duckdb

        self.work = work / "spill"
        self.work.mkdir(mode=0o700, exist_ok=True)
        settings: dict[str, Any] = {
            "memory_limit": f"{_for_duckdb(limit_bytes(memory_limit))}B",
            "temp_directory": str(self.work),
            "preserve_insertion_order": "false",
            **({"threads": str(threads)} if threads else {}),
        }
        self._connection = duckdb.connect(":memory:", config=settings)
        # In this order: the place for spilling must be known before the door is shut. Progress is told by safeswap
        # itself; DuckDB would print a bar of its own into a notebook, or between what `python -c` prints.
        for setting in (
            "enable_progress_bar = false",
            "enable_external_access = false",
            "python_enable_replacements = false",
        ):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET lock_configuration = true")
        self._tables = 0

    def close(self) -> None:
        """Let go of everything, what was spilt included."""
        import shutil

        self._connection.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def new_table(self, columns: str) -> str:
        """Make an empty table; its name."""
        name = self._name()
        self.run(f"CREATE TABLE {name} ({columns})")
        return name

    def table_of(self, query: str) -> str:
        """Make a table of what a query gives; its name."""
        name = self._name()
        self.run(f"CREATE TABLE {name} AS {query}")
        return name

    def drop(self, table: str) -> None:
        """Let go of a table."""
        self.run(f"DROP TABLE {table}")

    def insert(self, table: str, rows: pa.Table, *, select: str = "SELECT * FROM incoming") -> None:
        """Add rows by position of their columns, or what a query makes of them under the name ``incoming``."""
        with _in_our_words():
            self._connection.register("incoming", rows)
            try:
                self._connection.execute(f"INSERT INTO {table} {select}")
            finally:
                self._connection.unregister("incoming")

    @contextmanager
    def adding(self, table: str) -> Iterator[Callable[[pa.Table], None]]:
        """A function that adds rows by position; few at a time are put down together, which costs less."""
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
        with _in_our_words():
            self._connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """A result that is known to be small."""
        with _in_our_words():
            return list(self._connection.execute(query).fetchall())

    def number(self, query: str) -> int:
        """A result that is one number."""
        return int(self.rows(query)[0][0] or 0)

    def arrow(self, query: str) -> pa.Table:
        """A result that fits in memory."""
        return pa.Table.from_batches(list(self.batches(query)), schema=None) if query else pa.table({})

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """A result of any size, a batch at a time, while other queries may run."""
        with _in_our_words():
            # A cursor of its own: the result goes on being made while this connection does other things.
            cursor = self._connection.cursor()
            try:
                yield from cursor.sql(query).to_arrow_reader(BATCH)
            finally:
                cursor.close()

    def _name(self) -> str:
        self._tables += 1
        return f"t{self._tables}"


@contextmanager
def _in_our_words() -> Iterator[None]:
    """DuckDB's messages quote statements and may quote data: they are not passed on."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        full = "temp_directory" in str(error) or "offload" in str(error)
        if full:
            raise _no_room() from None
        raise EngineError(
            "the memory limit is too low for this job",
            code="memory-limit",
            hint="raise memory_limit, or use fewer threads",
        ) from None
    except duckdb.IOException:
        raise _no_room() from None
    except duckdb.Error as error:
        raise EngineError(
            "DuckDB could not do its part", code="engine-failed", hint="please report it", reason=type(error).__name__
        ) from None


def _no_room() -> OutputError:
    return OutputError(
        "there is no room for what does not fit in memory; nothing was left behind",
        code="disk-full",
        hint="make room beside the target, or raise memory_limit",
    )
