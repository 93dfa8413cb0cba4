"""A DuckDB database for one job: no outside access, limited memory, removed afterwards; and the tables kept in it.

The tables hold pairs of records, drawn rows of integers, and changed records, on which an exchange is checked. Data
enter as Arrow tables and leave as Arrow batches. No name of the caller's enters: columns are called c0, c1, …
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Integers, Rows, UInt32s, Words
from safeswap.engines.base import DRAW, Kernel, Table
from safeswap.engines.memory import MemoryTable
from safeswap.engines.stream import MISSING
from safeswap.errors import EngineError, OutputError, SpecError
from safeswap.model.microdata import smallest_code_type

BATCH = 1 << 18
_TOGETHER = 1 << 17

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)(I?)B?")
_OUR_OWN = 300 * 10**6  # batches of records, codes of areas, and everything else outside DuckDB
_DRAWN = 4  # a drawn table gets at most this part of the limit
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

        self.room = limit_bytes(memory_limit) // _DRAWN
        """The bytes of drawn rows that are held in memory; sorted and joined, they take three times as much."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPairs:
    """Pairs in a table: rows a and b, the code of each column on either side (a0, b0, …), and their place k."""

    table: str
    number: int
    columns: Names

    def __len__(self) -> int:
        return self.number


@dataclass(frozen=True, eq=False)
class HeldPairs:
    """Pairs that a method decided on the driver, which holds their rows."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


class DrawnRows:
    """Rows of integers as they are drawn: in memory, and from some number of bytes on in DuckDB."""

    def __init__(self, store: Store, columns: Names, encrypt: Callable[[Rows], Words]) -> None:
        self._store, self._columns, self._encrypt = store, columns, encrypt
        self._held: list[tuple[Rows, Words, dict[str, Integers]]] = []
        self._room = store.room
        self._table = ""
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def add(self, rows: Rows, words: Words, columns: Mapping[str, Integers]) -> None:
        """Take in some rows, the whole draw of each, and their columns."""
        narrow = {name: _narrow(column) for name, column in columns.items()}
        self._room -= rows.nbytes + words.nbytes + sum(column.nbytes for column in narrow.values())
        self._held.append((rows, words, narrow))
        if self._table or self._room < 0:
            self._store_held()

    def table(self, bounds: Mapping[str, int]) -> Table:
        """Return all rows; codes are below their bounds."""
        if self._table:
            return DuckDBTable(self._store, self._table, self._columns)
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _, _ in self._held)])
        draws = np.concatenate([np.zeros(0, dtype=np.uint64), *(words[:, 0] for _, words, _ in self._held)])
        columns: dict[str, Integers] = {}
        for name in self._columns:
            parts = [columns.pop(name) for _, _, columns in self._held]
            columns[name] = np.concatenate([np.zeros(0, dtype=np.uint8), *parts])
        self._held.clear()
        return HeldTable(rows, draws, columns, bounds, self._encrypt).kept_by(self._store)

    def _store_held(self) -> None:
        if not self._table:
            self._table, put = create_table(self._store, self._columns)
            self._put = self._open.enter_context(put)
        for rows, words, columns in self._held:
            alike = (columns[name].astype(np.int64) for name in self._columns)
            self._put(table_by_position([rows, words[:, 0], words[:, 1], *alike]))
        self._held.clear()


def _narrow(column: Integers) -> Integers:
    """Return numbers in the narrowest type, unless some are negative."""
    if column.min(initial=0) < 0:
        return column
    return column.astype(smallest_code_type(int(column.max(initial=0)) + 1), copy=False)


def create_table(store: Store, columns: Names) -> tuple[str, AbstractContextManager[Callable[[pa.Table], None]]]:
    """Create a table of drawn rows, for :class:`DuckDBTable`; return its name, and what inserts rows."""
    kinds = "".join(f", c{i} BIGINT" for i in range(len(columns)))
    table = store.new_table(f"r BIGINT, h UBIGINT, l UBIGINT{kinds}")
    return table, store.inserter(table)


class HeldTable(MemoryTable):
    """Rows of integers that are few enough to be held in memory; joined with others in DuckDB, they move there."""

    _store: Store

    def kept_by(self, store: Store) -> Self:
        """Return the table, which may move to this database."""
        self._store = store
        return self

    def union(self, other: Table) -> Table:
        """Return the rows of both tables."""
        return self.stored().union(other) if isinstance(other, DuckDBTable) else super().union(other)

    def pairs(self, first: str, partner: str, order: Names) -> HeldPairs:
        """Pair each row in which ``first`` is 1 with its partner."""
        return HeldPairs(self.pair_rows(first, partner, order))

    def stored(self) -> DuckDBTable:
        """Return the table in DuckDB."""
        names = tuple(self._columns)
        table, inserter = create_table(self._store, names)
        words = self._encrypt(self._rows)
        with inserter as put:
            put(table_by_position([self._rows, words[:, 0], words[:, 1], *(self._columns[n] for n in names)]))
        return DuckDBTable(self._store, table, names)

    def _derive(self, rows: Rows, draws: Words, columns: Mapping[str, Integers], bounds: Mapping[str, int]) -> Self:
        return super()._derive(rows, draws, columns, bounds).kept_by(self._store)


class DuckDBTable:
    """Rows of integers in DuckDB: row r of the file, both words of its draw (h, l), and columns c0, c1, ….

    A stored table is dropped when neither it nor a query on it is used any more.
    """

    def __init__(self, store: Store, table: str, columns: Names, *sources: DuckDBTable) -> None:
        self._store, self._table, self._columns = store, table, columns
        self._sources = sources  # of a query: they live as long as it does
        if not sources:
            weakref.finalize(self, store.drop, table).atexit = False

    def map_groups(self, by: Names, order: Names, kernel: Kernel) -> DuckDBTable:
        """Stream the sorted rows through the kernel, cut where a group ends."""
        columns = (*by, *kernel.adds)
        table, inserter = create_table(self._store, columns)
        read = tuple(dict.fromkeys((*by, *kernel.needs)))
        listed = ", ".join(self._column(name) for name in read)
        query = f"SELECT r, h, l, {listed} FROM {self._table} ORDER BY {self._order((*by, *order))}"  # noqa: S608
        with inserter as put:
            for (rows, *words), codes, bounds in _whole_groups(self._store.batches(query), len(by)):
                values = dict(zip(read, codes, strict=True))
                added = dict(kernel(bounds, values))
                if kernel.partner:
                    partner = added[kernel.partner]
                    added[kernel.partner] = np.where(partner < 0, -1, rows[partner])
                put(table_by_position([rows, *words, *(values[n] for n in by), *(added[n] for n in kernel.adds)]))
        return DuckDBTable(self._store, table, columns)

    def where(self, name: str, value: int) -> DuckDBTable:
        """Return the rows with this value in a column."""
        query = f"SELECT * FROM {self._table} WHERE {self._column(name)} = {int(value)}"  # noqa: S608
        return DuckDBTable(self._store, f"({query})", self._columns, self)

    def union(self, other: Table) -> DuckDBTable:
        """Return the rows of both tables."""
        other = other.stored() if isinstance(other, HeldTable) else other
        assert isinstance(other, DuckDBTable)  # noqa: S101  (tables of one engine)
        query = f"SELECT * FROM {self._table} UNION ALL SELECT * FROM {other._table}"  # noqa: S608
        return DuckDBTable(self._store, f"({query})", self._columns, self, other)

    def totals(self, *names: str) -> tuple[int, ...]:
        """Return the sums of some columns."""
        sums = ", ".join(f"sum({self._column(name)})" for name in names)
        return tuple(int(total or 0) for total in self._store.rows(f"SELECT {sums} FROM {self._table}")[0])  # noqa: S608

    def distinct(self, names: Names) -> Int64s:
        """Return the distinct combinations of some columns."""
        listed = ", ".join(self._column(name) for name in names)
        rows = self._store.rows(f"SELECT DISTINCT {listed} FROM {self._table}")  # noqa: S608
        return np.array(rows, dtype=np.int64).reshape(-1, len(names))

    def pairs(self, first: str, partner: str, order: Names) -> StoredPairs:
        """Pair each row in which ``first`` is 1 with its partner."""
        table = self._store.table_of(
            f"SELECT row_number() OVER (ORDER BY {self._order(order)}) AS k, r AS a, {self._column(partner)} AS b "  # noqa: S608
            f"FROM {self._table} WHERE {self._column(first)} = 1"
        )
        number = self._store.number(f"SELECT count(*) FROM {table}")  # noqa: S608
        return StoredPairs(table=table, number=number, columns=())

    def _column(self, name: str) -> str:
        return f"c{self._columns.index(name)}"

    def _order(self, names: Names) -> str:
        return ", ".join("h, l" if name == DRAW else self._column(name) for name in names)


def _whole_groups(batches: Iterator[pa.RecordBatch], width: int) -> Iterator[tuple[list[Any], list[Int64s], Int64s]]:
    """Yield sorted rows in batches that split no group: row and words, the other columns, and the bounds of groups.

    The first ``width`` of the other columns tell one group from the next.
    """
    held: list[Any] = []

    def cut(columns: list[Any], stop: int, begins: Flags) -> tuple[list[Any], list[Int64s], Int64s]:
        some = [column[:stop] for column in columns]
        return some[:3], some[3:], np.append(np.flatnonzero(begins[:stop]), stop)

    for batch in batches:
        fresh = [column.to_numpy() for column in batch.columns]
        held = [np.concatenate(both) for both in zip(held, fresh, strict=True)] if held else fresh
        begins = _group_begins(held[3 : 3 + width])
        stop = int(np.flatnonzero(begins)[-1])  # the last group may go on in the next batch
        if stop:
            yield cut(held, stop, begins)
            held = [column[stop:] for column in held]
    if held:
        yield cut(held, len(held[0]), _group_begins(held[3 : 3 + width]))


def _group_begins(columns: list[Int64s]) -> Flags:
    begins = np.zeros(len(columns[0]), dtype=np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


class InOrder:
    """Ascending numbers from batches, taken up to a given one."""

    def __init__(self, batches: Iterator[Rows]) -> None:
        self._batches = batches
        self._held: Rows = np.zeros(0, dtype=np.int64)

    def take_below(self, stop: int) -> Rows:
        """Return the next numbers below ``stop``."""
        while not len(self._held) or self._held[-1] < stop:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._held = np.concatenate([self._held, batch])
        cut = int(np.searchsorted(self._held, stop))
        taken, self._held = self._held[:cut], self._held[cut:]
        return taken


def table_by_position(columns: Sequence[Any]) -> pa.Table:
    """Return columns as a table, to insert by position."""
    return pa.table([pa.array(column) for column in columns], names=[f"x{i}" for i in range(len(columns))])


class ChangedTable:
    """Records with their old codes (c0, …), their new codes (n0, …) and codes of other columns (r0, …)."""

    def __init__(self, store: Store, *, changed: int, others: int) -> None:
        self._store = store
        self._changed = [f"c{i}" for i in range(changed)], [f"n{i}" for i in range(changed)]
        self._others = [f"r{i}" for i in range(others)]
        codes = "".join(f", {name} UINTEGER" for name in (*self._changed[0], *self._changed[1], *self._others))
        self.table = store.new_table(f"r BIGINT{codes}")

    @contextmanager
    def inserter(self) -> Iterator[Callable[[Rows, Sequence[UInt32s], Sequence[UInt32s], Sequence[UInt32s]], None]]:
        """Yield a function that stores records: their rows, the codes before and after, and those of other columns."""
        with self._store.inserter(self.table) as put:

            def add(rows: Rows, before: Sequence[UInt32s], after: Sequence[UInt32s], others: Sequence[UInt32s]) -> None:
                put(table_by_position([rows, *before, *after, *others]))

            yield add

    def close(self) -> None:
        """Drop the table."""
        self._store.drop(self.table)

    def count_moved_cells(self, changed: Sequence[int], others: Sequence[int], *, unit: int | None = None) -> int:
        """Count the cells over some changed and some other columns whose count changed.

        With the place of a column among the others, its distinct values are counted in place of records.
        """
        before, after = ([names[i] for i in changed] for names in self._changed)
        keep = [self._others[i] for i in others]
        tail = "".join(f", {name}" for name in keep)
        once = "" if unit is None else f"DISTINCT {self._others[unit]} AS u, "
        where = "" if unit is None else f" WHERE {self._others[unit]} <> {MISSING}"
        now = ", ".join(f"{new} AS {old}" for old, new in zip(before, after, strict=True))
        return self._store.number(
            f"SELECT count(*) FROM (SELECT sum(s) AS s FROM ("  # noqa: S608
            f"SELECT {once}{', '.join(before)}{tail}, -1 AS s FROM {self.table}{where} UNION ALL "
            f"SELECT {once}{now}{tail}, 1 FROM {self.table}{where}) "
            f"GROUP BY {', '.join([*before, *keep])}) WHERE s <> 0"
        )

    def count_torn(self, unit: int, columns: Sequence[int], sizes: Integers) -> int:
        """Count the units whose members differ in these columns now, or of which only some are here.

        ``unit`` is the place of their column among the others, ``sizes`` has the number of members by code.
        """
        own = self._others[unit]
        differ = " OR ".join(f"min(n{i}) <> max(n{i})" for i in columns) or "false"
        query = f"SELECT {own}, count(*), ({differ})::INT FROM {self.table} WHERE {own} <> {MISSING} GROUP BY {own}"  # noqa: S608
        torn = 0
        for batch in self._store.batches(query):
            code, members, differs = (column.to_numpy() for column in batch.columns)
            torn += int(np.count_nonzero((members != sizes[code]) | (differs > 0)))
        return torn

    def count_changed(self, columns: Sequence[int]) -> int:
        """Count the records that changed in any of these columns."""
        changed = " OR ".join(f"c{i} <> n{i}" for i in columns)
        return self._store.number(f"SELECT count(*) FROM {self.table} WHERE {changed}")  # noqa: S608

    def count_changed_outside(self, pairs: StoredPairs, columns: Sequence[int]) -> list[int]:
        """Count, for each of these columns, the records that changed and are in none of the pairs."""
        counts = ", ".join(f"count(*) FILTER (WHERE c{i} <> n{i})" for i in columns)
        others = f"{self.table} ANTI JOIN ({_members(pairs)}) USING (r)"
        return list(self._store.rows(f"SELECT {counts} FROM {others}")[0])  # noqa: S608

    def count_repeated(self, pairs: StoredPairs, *, directed: bool = False, mutual: bool = False) -> int:
        """Count the places beyond a record's first; of a directed exchange, on each side, and one-sided ones.

        A record of a mutual one may give several times, or not at all.
        """
        if directed:
            sides = f"SELECT a AS r, 1 AS x, 0 AS y FROM {pairs.table} UNION ALL SELECT b, 0, 1 FROM {pairs.table}"  # noqa: S608
            places = f"SELECT sum(x) AS x, sum(y) AS y FROM ({sides}) GROUP BY r"  # noqa: S608
            # What is beyond one place on a side; what has a place on one side only.
            taking, giving = "greatest(x - 1, 0) + (x = 0)::INT", "greatest(y - 1, 0) + (y = 0)::INT"
            surplus = taking if mutual else f"{taking} + {giving}"
            return self._store.number(f"SELECT coalesce(sum({surplus}), 0) FROM ({places})")  # noqa: S608
        return self._store.number(f"SELECT count(*) - count(DISTINCT r) FROM ({_members(pairs)})")  # noqa: S608

    def count_pairs(self, pairs: StoredPairs, conditions: Sequence[str]) -> int:
        """Count the pairs for whose two records, x and y, all of these conditions hold."""
        return self.count_pairs_by(pairs, [" AND ".join(conditions)])[0]

    def count_pairs_by(self, pairs: StoredPairs, conditions: Sequence[str]) -> list[int]:
        """Count, for each of these conditions, the pairs for whose two records, x and y, it holds."""
        counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in conditions)
        found = self._store.rows(
            f"SELECT {counts} FROM {pairs.table} p JOIN {self.table} x ON x.r = p.a "  # noqa: S608
            f"JOIN {self.table} y ON y.r = p.b"
        )
        return list(found[0])


def _members(pairs: StoredPairs) -> str:
    return f"SELECT a AS r FROM {pairs.table} UNION ALL SELECT b FROM {pairs.table}"  # noqa: S608


def find_repeated(store: Store, table: str) -> tuple[int, list[int]]:
    """Count the records that share both words (w0, w1) with another; also return the first rows that do."""
    shared = f"SELECT w0, w1, min(r) AS least, count(*) AS s FROM {table} GROUP BY w0, w1 HAVING count(*) > 1"  # noqa: S608
    total = store.number(f"SELECT sum(s) FROM ({shared})")  # noqa: S608
    if not total:
        return 0, []
    first = store.rows(
        f"SELECT t.r FROM {table} t JOIN (SELECT w0, w1 FROM ({shared}) ORDER BY least LIMIT 1) f "  # noqa: S608
        f"ON t.w0 = f.w0 AND t.w1 = f.w1 ORDER BY t.r LIMIT 5"
    )
    return total, [row for (row,) in first]
