"""Checks and counts of exchanges stored in DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from safeswap.arrays.types import Integers, Rows, UInt32s
from safeswap.engines.duckdb.engine import StoredPairs, table_by_position
from safeswap.engines.duckdb.store import Store
from safeswap.engines.stream import MISSING


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
