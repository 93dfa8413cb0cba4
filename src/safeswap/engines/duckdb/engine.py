"""The engine for files that do not fit in memory: records sorted and exchanged in DuckDB, spilling to disk.

Only records whose draw is low enough to matter enter the database, with their codes. They are numbered in the order of
their draws, within a stratum or overall; odd ones are paired with the next, a pair counts if it is of one stratum and
differs in every coordinate, and the first ``wanted`` in the order of the later draw are taken. That is the walk of
:mod:`safeswap.arrays.pairing`, expressed in window functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import order
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Rows
from safeswap.engines.base import Classes, Constraint, PairRequest, Repair, repair
from safeswap.engines.duckdb.store import Store
from safeswap.engines.stream import RecordStream, dense
from safeswap.errors import InternalError
from safeswap.model.spec import Targeting

_WHOLE_FILE = 100_000
_PART = 1 << 20


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPairs:
    """Pairs in a table: rows a and b, the code of each column on either side (a0, b0, …), and their place k."""

    table: str
    number: int
    columns: Names

    def __len__(self) -> int:
        return self.number


class DuckDBEngine:
    """Records in DuckDB under a memory limit."""

    name = "duckdb"

    def __init__(self, work: Path, *, memory_limit: str = "1GB", threads: int | None = None) -> None:
        self.store = Store(work, memory_limit=memory_limit, threads=threads)

    def close(self) -> None:
        """Close the database and remove its files."""
        self.store.close()

    def classes(self, data: RecordStream, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates, in one pass."""
        return data.classes(constraint)

    def pairs(self, data: RecordStream, request: PairRequest) -> StoredPairs:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        names = _names(request.constraint)
        if request.targeting is None:
            drawn, found = self._walk_prefixes(data, request, names)
        else:
            drawn = self._load_weighted(data, request, names, request.targeting)
            found = self._walk(data, drawn, request, names)
        if found.number < request.wanted and request.repair:
            found = self._repair(data, request, drawn, found)
        self.store.drop(drawn)
        return found

    def exchange(self, data: Any, attributes: Names, pairs: Any) -> Any:
        """Refuse: :meth:`changes` gives the new values in record order instead."""
        raise InternalError("DuckDB gives changes instead of exchanging in place", code="no-exchange")

    def changes(self, pairs: StoredPairs, attributes: Names) -> Iterator[tuple[Rows, list[npt.NDArray[np.uint32]]]]:
        """Yield the rows of the pairs in ascending order with their new codes, in batches."""
        places = [pairs.columns.index(name) for name in attributes]
        gets_b = ", ".join(f"b{i} AS c{i}" for i in places)
        gets_a = ", ".join(f"a{i} AS c{i}" for i in places)
        query = (
            f"SELECT * FROM (SELECT a AS r, {gets_b} FROM {pairs.table} "  # noqa: S608  (our own names)
            f"UNION ALL SELECT b, {gets_a} FROM {pairs.table}) ORDER BY r"
        )
        for batch in self.store.batches(query):
            rows, *codes = (column.to_numpy() for column in batch.columns)
            yield rows, codes

    def rows_of(self, pairs: StoredPairs) -> Iterator[Rows]:
        """Yield the pairs as rows, in the order of drawing, in batches."""
        for batch in self.store.batches(f"SELECT a, b FROM {pairs.table} ORDER BY k"):  # noqa: S608
            yield np.stack([batch.column(0).to_numpy(), batch.column(1).to_numpy()], axis=1)

    def _walk_prefixes(self, data: RecordStream, request: PairRequest, names: Names) -> tuple[str, StoredPairs]:
        """Walk a prefix of the order that should suffice, and a longer one if it does not."""
        records, expected, share = len(data), request.pairs_per_record, 0.0
        while True:
            needed = request.wanted / max(expected, 1 / records)
            likely = (needed + 3 * np.sqrt(needed) + 1000) * 1.01 / records
            share = 1.0 if records <= _WHOLE_FILE else float(min(1.0, max(1.5 * share, likely)))
            drawn, number = self._load(data, request, names, share)
            found = self._walk(data, drawn, request, names)
            if found.number >= request.wanted or share >= 1.0:
                return drawn, found
            expected = (found.number + 1) / (number + 1)
            self.store.drop(drawn)
            self.store.drop(found.table)

    def _load(self, data: RecordStream, request: PairRequest, names: Names, share: float) -> tuple[str, int]:
        """Load the records whose draw is among the lowest ``share`` of all possible ones: row, both words, codes."""
        threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
        kinds = "".join(f", c{i} UINTEGER" for i in range(len(names)))
        table = self.store.new_table(f"r BIGINT, h UBIGINT, l UBIGINT{kinds}")
        number = 0
        drawing = {"draw_key": request.draw_key, "identity_key": request.identity_key}
        with self.store.inserter(table) as add:
            for start, words, columns in data.draw_batches(names, **drawing):
                low = np.flatnonzero(words[:, 0] <= threshold)
                codes = [data.codes(name, column.take(pa.array(low))) for name, column in columns.items()]
                add(table_by_position([low + start, words[low, 0], words[low, 1], *codes]))
                number += len(low)
        return table, number

    def _load_weighted(self, data: RecordStream, request: PairRequest, names: Names, targeting: Targeting) -> str:
        """Load all records, ordered by arrival in the race: sooner where their cell has fewer than n records.

        Both times are computed as a record is read; which of them applies is known once the cells are counted.
        """
        keys = targeting.keys or data.schema.categorical
        wide = tuple(dict.fromkeys((*names, *keys)))
        kinds = "".join(f", c{i} UINTEGER" for i in range(len(wide)))
        raced = self.store.new_table(f"r BIGINT, usual UBIGINT, sooner UBIGINT, l UBIGINT{kinds}")
        for start, words, columns in data.draw_batches(
            wide, draw_key=request.draw_key, identity_key=request.identity_key
        ):
            codes = [data.codes(name, column) for name, column in columns.items()]
            draws = np.ascontiguousarray(words[:, 0])
            times = [order.sortable(order.arrivals(draws, weight)) for weight in (1.0, targeting.weight)]
            part = [np.arange(start, start + len(draws)), *times, draws, *codes]
            self.store.insert(raced, table_by_position(part))
        own = ", ".join(f"c{wide.index(key)}" for key in keys)
        kept = "".join(f", c{i}" for i in range(len(names)))
        small = f"SELECT ({own}) FROM {raced} GROUP BY {own} HAVING count(*) < {targeting.n}"  # noqa: S608  (our own names)
        drawn = self.store.table_of(
            f"SELECT r, CASE WHEN ({own}) IN ({small}) THEN sooner ELSE usual END AS h, l{kept} FROM {raced}"  # noqa: S608
        )
        self.store.drop(raced)
        return drawn

    def _walk(self, data: RecordStream, drawn: str, request: PairRequest, names: Names) -> StoredPairs:
        constraint = request.constraint
        places = range(len(names))
        equal = range(len(constraint.equal))
        by_stratum = request.repair and constraint.equal
        same = f"PARTITION BY {', '.join(f'c{i}' for i in equal)}" if by_stratum else ""
        differ = _differ_condition(constraint, [data.signed_zeros(name) for name in names])
        agree = "".join(f"a{i} = b{i} AND " for i in equal)
        ahead = "".join(f", lead(c{i}) OVER w AS b{i}" for i in places)
        own = "".join(f", c{i} AS a{i}" for i in places)
        query = (
            f"SELECT row_number() OVER (ORDER BY h, l) AS k, * FROM (SELECT r AS a, lead(r) OVER w AS b, "  # noqa: S608
            f"lead(h) OVER w AS h, lead(l) OVER w AS l, row_number() OVER w AS n{own}{ahead} "
            f"FROM {drawn} WINDOW w AS ({same} ORDER BY h, l)) "
            f"WHERE n % 2 = 1 AND b IS NOT NULL AND {agree}{differ} "
            f"QUALIFY k <= {request.wanted}"
        )
        table = self.store.table_of(query)
        number = self.store.number(f"SELECT count(*) FROM {table}")  # noqa: S608
        return StoredPairs(table=table, number=number, columns=names)

    def _repair(self, data: RecordStream, request: PairRequest, drawn: str, found: StoredPairs) -> StoredPairs:
        """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes."""
        names = found.columns
        numbered, classes = self._classes_in_order(data, drawn, names, request.constraint)
        matching = " AND ".join(f"x.c{i} = y.c{i}" for i in range(len(names))) or "true"
        sides = " UNION ALL ".join(
            f"SELECT k, {side} AS r, {', '.join(f'{side}{i} AS c{i}' for i in range(len(names)))} FROM {found.table}"  # noqa: S608
            for side in "ab"
        )
        members = self.store.table_of(f"SELECT x.k, x.r, y.g FROM ({sides}) x JOIN {numbered} y ON {matching}")  # noqa: S608

        def first(pairs: int) -> Counts:
            counted = self.store.rows(f"SELECT g, count(*) FROM {members} WHERE k <= {pairs} GROUP BY g")  # noqa: S608
            counts = np.zeros(len(classes.counts), dtype=np.int64)
            for number, count in counted:
                counts[number] = count
            return counts

        decided = repair(classes, wanted=request.wanted, found=found.number, first=first)
        return self._deal_pairs(decided, found, drawn=drawn, numbered=numbered, members=members, matching=matching)

    def _classes_in_order(
        self, data: RecordStream, drawn: str, names: Names, constraint: Constraint
    ) -> tuple[str, Classes]:
        """Number the classes by the first record of their stratum and then by their own."""
        columns = [f"c{i}" for i in range(len(names))]
        listed = ", ".join(columns)
        rows = self.store.rows(
            f"SELECT {listed}, count(*), min({{'h': h, 'l': l}}) FROM {drawn} GROUP BY {listed}"  # noqa: S608
        )
        labels = np.array([row[: len(names)] for row in rows], dtype=np.int64)
        earliest = [(row[-1]["h"], row[-1]["l"]) for row in rows]
        counts = np.array([row[-2] for row in rows], dtype=np.int64)
        merged = data.without_signed_zeros(names, labels, constraint)
        arranged, classes = order_classes(merged, counts, earliest, constraint)
        table = self.store.new_table("g BIGINT" + "".join(f", c{i} UINTEGER" for i in range(labels.shape[1])))
        self.store.insert(table, table_by_position([np.arange(len(arranged)), *labels[arranged].T]))
        return table, classes

    def _deal_pairs(
        self, decided: Repair, found: StoredPairs, *, drawn: str, numbered: str, members: str, matching: str
    ) -> StoredPairs:
        intervals = self.store.new_table("g BIGINT, first BIGINT, last BIGINT, side BIGINT, pair BIGINT")
        self.store.insert(
            intervals, pa.table([pa.array(column) for column in decided.intervals.T], names=list("vwxyz"))
        )
        places = range(len(found.columns))
        codes = "".join(f", x.c{i}" for i in places)
        # Number the remaining records of each class in keyed order, each in its place of a pair.
        rest = self.store.table_of(
            f"SELECT x.r, x.h, x.l, y.g, row_number() OVER (PARTITION BY y.g ORDER BY x.h, x.l) - 1 AS n{codes} "  # noqa: S608
            f"FROM {drawn} x JOIN {numbered} y ON {matching} "
            f"WHERE x.r NOT IN (SELECT r FROM {members} WHERE k <= {decided.kept})"
        )
        placed = self.store.table_of(
            f"SELECT x.*, i.side AS side, i.pair + x.n - i.first AS pair FROM {rest} x "  # noqa: S608
            f"ASOF JOIN {intervals} i ON x.g = i.g AND x.n >= i.first WHERE x.n < i.last"
        )
        own = "".join(f", x.c{i} AS a{i}" for i in places)
        other = "".join(f", y.c{i} AS b{i}" for i in places)
        later = "CASE WHEN (x.h, x.l) > (y.h, y.l) THEN x.{0} ELSE y.{0} END"
        dealt = (
            f"SELECT row_number() OVER (ORDER BY h, l) + {decided.kept} AS k, * FROM (SELECT x.r AS a, y.r AS b, "  # noqa: S608
            f"{later.format('h')} AS h, {later.format('l')} AS l, 0 AS n{own}{other} "
            f"FROM {placed} x JOIN {placed} y ON x.pair = y.pair AND x.side = 0 AND y.side = 1)"
        )
        table = self.store.table_of(
            f"SELECT * FROM {found.table} WHERE k <= {decided.kept} UNION ALL "  # noqa: S608
            f"SELECT * FROM ({dealt}) WHERE k <= {decided.kept + decided.wanted}"
        )
        for old in (rest, placed, intervals, members, numbered, found.table):
            self.store.drop(old)
        return StoredPairs(table=table, number=decided.kept + decided.wanted, columns=found.columns)


def order_classes(
    labels: Counts, counts: Counts, earliest: Sequence[tuple[int, ...]], constraint: Constraint
) -> tuple[Counts, Classes]:
    """Order classes by first appearance in the keyed order, strata likewise; return the order and the classes."""
    strata = dense(labels[:, : len(constraint.equal)])
    stratum_of: list[int] = strata.tolist()
    first: dict[int, tuple[int, ...]] = {}
    for stratum, draw in zip(stratum_of, earliest, strict=True):
        first[stratum] = min(draw, first.get(stratum, draw))
    places = range(len(labels))
    order = np.array(sorted(places, key=lambda i: (first[stratum_of[i]], earliest[i])), dtype=np.int64)
    groups, width = [], len(constraint.equal)
    for group in constraint.unequal:
        groups.append(dense(labels[order][:, width : width + len(group)]))
        width += len(group)
    return order, Classes(strata=strata[order], coordinates=np.stack(groups, axis=1), counts=counts[order])


def table_by_position(columns: Sequence[Any]) -> pa.Table:
    """Return columns as a table, to insert by position."""
    return pa.table([pa.array(column) for column in columns], names=[f"x{i}" for i in range(len(columns))])


def _names(constraint: Constraint) -> Names:
    return (*constraint.equal, *(name for group in constraint.unequal for name in group), *constraint.carried)


def _differ_condition(constraint: Constraint, zeros: Sequence[tuple[int, int] | None]) -> str:
    """Build the condition on both sides of a pair: every group differs in any of its columns. −0.0 equals 0.0."""

    def label(column: str, zero: tuple[int, int] | None) -> str:
        return column if zero is None else f"(CASE WHEN {column} = {zero[0]} THEN {zero[1]} ELSE {column} END)"

    place = len(constraint.equal)
    groups = []
    for group in constraint.unequal:
        groups.append(
            "("
            + " OR ".join(
                f"{label(f'a{i}', zeros[i])} <> {label(f'b{i}', zeros[i])}" for i in range(place, place + len(group))
            )
            + ")"
        )
        place += len(group)
    return " AND ".join(groups)
