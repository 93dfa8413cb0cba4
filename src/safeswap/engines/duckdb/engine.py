"""The engine for files that do not fit in memory: records sorted and exchanged in DuckDB, spilling to disk.

Only records whose draw is low enough to matter enter the database, with their codes. They are numbered in the order of
their draws, within a stratum or overall; odd ones are paired with the next, a pair counts if it is of one stratum and
differs in every coordinate, and the first ``wanted`` in the order of the later draw are taken. That is the walk of
:mod:`safeswap.arrays.order`, expressed in window functions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import keyed, order
from safeswap.arrays.cells import CellSet
from safeswap.arrays.heap import return_memory
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Flags, Int64s, Rows, UInt32s, Words
from safeswap.engines.base import (
    KEEP,
    Cells,
    Classes,
    Constraint,
    Derivation,
    Ends,
    Need,
    PairRequest,
    PartnerRule,
    Repair,
    Table,
    find_kept,
    number_labels,
    order_classes,
    prefix_share,
    repair,
)
from safeswap.engines.duckdb.store import (
    BATCH,
    DrawnRows,
    HeldPairs,
    InOrder,
    Store,
    StoredPairs,
    table_by_position,
)
from safeswap.engines.spilled_cells import SpilledCells
from safeswap.engines.stream import RecordStream, StreamBatch, Tally, rows_per_batch
from safeswap.files.coded_columns import load_coded
from safeswap.files.parquet import ParquetFiles
from safeswap.model.microdata import Microdata, column_blocks
from safeswap.model.spec import Targeting

_WHOLE_FILE = 100_000


class DuckDBRecords:
    """Records streamed from files; those drawn, and the pairs, are in DuckDB under a memory limit."""

    name: ClassVar[str] = "duckdb"
    lacks: ClassVar[Mapping[Need, str]] = {
        Need.WHOLE_FILE: "it holds only the records that were drawn",
        Need.HOUSEHOLDS: "it moves records one by one; mask the file of households, and merge",
        Need.RECORDS: "it counts cells while records pass",
    }

    def __init__(self, stream: RecordStream, store: Store, *, identity_key: bytes) -> None:
        self.stream, self.store = stream, store
        self.schema = stream.schema
        self._identity_key = identity_key
        self._joined: dict[tuple[str, Names], StoredPairs] = {}

    def __len__(self) -> int:
        return len(self.stream)

    @property
    def attributes(self) -> Names:
        """The attributes that are read, in file order."""
        return self.schema.names

    @property
    def held(self) -> None:
        """Nothing: the records are on disk."""
        return

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        return self.stream.is_constant(name)

    def is_unique(self, name: str) -> bool:
        """Return True if every record has a value of an attribute, and no two have the same; no value is stored."""
        cells, key = SpilledCells(self.store.work, records=len(self)), secrets.token_bytes(32)
        for _, batch in self.stream.source.batches((name,), rows=rows_per_batch(1)):
            if batch.column(0).null_count:
                return False
            words = keyed.encrypt(column_blocks(batch.column(0), key), key)
            cells.add(words, np.zeros(len(words), dtype=np.bool_), words[:0])
        return not bool((cells.kinds()[:, 0] > 1).any())

    def count(self, *keys: Names) -> tuple[Cells, ...]:
        """Count the records by each set of attributes, holding one row per cell."""
        names = tuple(dict.fromkeys(name for key in keys for name in key))
        tallies = [Tally(len(key)) for key in keys]
        for _, columns in self.stream.coded(names):
            codes = dict(zip(names, columns, strict=True))
            for key, tally in zip(keys, tallies, strict=True):
                tally.add([codes[name] for name in key], [self.stream.coders[name].bound for name in key])
        return tuple(self._cells(key, *tally.totals()) for key, tally in zip(keys, tallies, strict=True))

    def _cells(self, names: Names, codes: Int64s, counts: Counts) -> Cells:
        coders = [self.stream.coders[name] for name in names]
        values = [coder.values(codes[:, i].astype(np.uint32)) for i, coder in enumerate(coders)]
        return Cells(names=names, codes=codes, counts=counts, values=pa.table(values, names=list(names)))

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates, in one pass."""
        return self.stream.classes(constraint)

    def pair(self, request: PairRequest) -> StoredPairs:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        names = request.constraint.names
        if request.partners is not None:
            drawn, found = self._choose_partners(request, names, request.partners)
        elif request.targeting is None:
            drawn, found = self._walk_prefixes(request, names)
        else:
            drawn = self._load_weighted(request, names, request.targeting)
            found = self._walk(drawn, request, names)
        if found.number < request.wanted and request.repair:
            found = self._repair(request, drawn, found)
        self.store.drop(drawn)
        return found

    def draw(
        self,
        names: Names,
        key: bytes,
        *,
        keep: Ends | None = None,
        among: CellSet | None = None,
        derive: Derivation | None = None,
    ) -> Table:
        """Load the draws and the codes of some attributes, batch by batch; few enough of them stay in memory."""
        added = () if derive is None else tuple(name for name in derive.adds if name != KEEP)
        drawn = DrawnRows(self.store, (*names, *added), lambda rows: self._encrypt(rows, key))
        with drawn:
            for rows, words, codes in self._chosen_batches(names, key, keep, among):
                new = {} if derive is None else dict(derive(np.ascontiguousarray(words[:, 0]), codes))
                kept = np.flatnonzero(new.pop(KEEP)) if KEEP in new else slice(None)
                columns = {name: column[kept] for name, column in {**codes, **new}.items()}
                drawn.add(rows[kept], words[kept], columns)
        return drawn.table({name: self.stream.coder(name).bound for name in names})

    def _chosen_batches(
        self, names: Names, key: bytes, keep: Ends | None, among: CellSet | None
    ) -> Iterator[tuple[Rows, Words, dict[str, UInt32s]]]:
        """Yield the rows within ``keep`` and ``among``, their whole draws, and their codes."""
        if among is None:
            for batch, words in self._draw_batches(names, key):
                rows = find_kept(words[:, 0], keep)
                yield rows + batch.start, words[rows], {name: batch.codes(name, rows) for name in names}
            return
        for batch in self.stream.batches(names, identified=True):
            known = {name: batch.codes(name) for name in among.names}
            found = np.flatnonzero(among.flags(list(known.values())))
            words = self.stream.encrypt(batch, found, draw_key=key, identity_key=self._identity_key)
            kept = find_kept(words[:, 0], keep)
            rows = found[kept]
            codes = {name: known[name][rows] if name in known else batch.codes(name, rows) for name in names}
            yield rows + batch.start, words[kept], codes

    def _encrypt(self, rows: Rows, key: bytes) -> Words:
        """Return the whole draws of some records in any order."""
        order = np.argsort(rows)
        words: Words = np.empty((len(rows), 2), dtype=np.uint64)
        words[order] = self.words(rows[order], key)
        return words

    def load(self, names: Names) -> Microdata:
        """Read some attributes into memory, as codes where that loses nothing."""
        assert isinstance(self.stream.source, ParquetFiles)  # noqa: S101  (what is streamed from elsewhere is drawn)
        loaded = load_coded(self.stream.source, self.schema, names)
        return_memory()  # what the batches took
        return loaded

    def words(self, rows: Rows, key: bytes) -> Words:
        """Return the whole draws of some records, in one pass over the identifier."""
        return self.stream.words(rows, draw_key=key, identity_key=self._identity_key)

    def pair_rows(self, rows: Rows) -> HeldPairs:
        """Return the pairs, which stay where they were decided."""
        return HeldPairs(rows)

    def _draw_batches(self, names: Names, key: bytes) -> Iterator[tuple[StreamBatch, Words]]:
        return self.stream.draw_batches(names, draw_key=key, identity_key=self._identity_key)

    def changes(
        self, pairs: StoredPairs | HeldPairs, attributes: Names, *, directed: bool = False
    ) -> Iterator[tuple[Rows, list[UInt32s]]]:
        """Yield the rows of the pairs in ascending order with their new codes, in batches."""
        if isinstance(pairs, HeldPairs):
            yield self._exchange(pairs.rows, attributes, directed=directed)
            return
        pairs = self._with_codes(pairs, attributes)
        places = [pairs.columns.index(name) for name in attributes]
        gets_b = ", ".join(f"b{i} AS c{i}" for i in places)
        gets_a = ", ".join(f"a{i} AS c{i}" for i in places)
        others = "" if directed else f"UNION ALL SELECT b, {gets_a} FROM {pairs.table}"  # noqa: S608  (our own names)
        query = f"SELECT * FROM (SELECT a AS r, {gets_b} FROM {pairs.table} {others}) ORDER BY r"  # noqa: S608
        for batch in self.store.batches(query):
            rows, *codes = (column.to_numpy() for column in batch.columns)
            yield rows, codes

    def _exchange(self, pairs: Rows, names: Names, *, directed: bool) -> tuple[Rows, list[UInt32s]]:
        """Return the rows of some pairs in ascending order with their new codes."""
        flags = self._flag_members([pairs])
        rows = np.flatnonzero(flags)
        place = np.cumsum(flags, dtype=np.int32 if len(flags) < 2**31 else np.int64)
        codes = [np.empty(len(rows), dtype=np.uint32) for _ in names]
        for batch in self.stream.batches(names):
            low, high = np.searchsorted(rows, [batch.start, batch.stop])
            for name, new in zip(names, codes, strict=True):
                new[low:high] = batch.codes(name, rows[low:high] - batch.start)
        places = place[pairs].astype(np.int64) - 1
        del flags, place
        for column in codes:
            order.exchange(column, places, directed=directed)
        return rows, codes

    def _flag_members(self, pairs: Iterable[Rows]) -> Flags:
        """Flag the rows that are in some pair."""
        flags = np.zeros(len(self), dtype=np.bool_)
        for rows in pairs:
            flags[rows.ravel()] = True
        return flags

    def _with_codes(self, pairs: StoredPairs, names: Names) -> StoredPairs:
        """Return the pairs with the codes of these attributes on either side, read from the file if need be."""
        if set(names) <= set(pairs.columns):
            return pairs
        if (pairs.table, names) in self._joined:
            return self._joined[pairs.table, names]
        table = self.store.new_table("r BIGINT" + "".join(f", c{i} UINTEGER" for i in range(len(names))))
        rows_of = InOrder(self.members([pairs]))
        with self.store.inserter(table) as put:
            for start, codes in self.stream.coded(names):
                rows = rows_of.take_below(start + len(codes[0]))
                put(table_by_position([rows, *(column[rows - start] for column in codes)]))
        sides = "".join(f", x.c{i} AS a{i}, y.c{i} AS b{i}" for i in range(len(names)))
        joined = self.store.table_of(
            f"SELECT p.k, p.a, p.b{sides} FROM {pairs.table} p "  # noqa: S608
            f"JOIN {table} x ON x.r = p.a JOIN {table} y ON y.r = p.b"
        )
        self.store.drop(table)
        self._joined[pairs.table, names] = StoredPairs(table=joined, number=pairs.number, columns=names)
        return self._joined[pairs.table, names]

    def members(self, pairs: Iterable[StoredPairs | HeldPairs]) -> Iterator[Rows]:
        """Yield the rows that are in some pair, in ascending order, in batches."""
        pairs = tuple(pairs)
        stored = [each for each in pairs if isinstance(each, StoredPairs)]
        if len(stored) < len(pairs):
            yield np.flatnonzero(self._flag_members(rows for each in pairs for rows in self.rows_of(each)))
            return
        sides = " UNION ".join(f"SELECT {side} AS r FROM {each.table}" for each in stored for side in "ab")  # noqa: S608
        query = f"SELECT r FROM ({sides}) ORDER BY r"  # noqa: S608
        yield from (batch.column(0).to_numpy() for batch in (self.store.batches(query) if sides else ()))

    def rows_of(self, pairs: StoredPairs | HeldPairs) -> Iterator[Rows]:
        """Yield the pairs as rows, in the order of drawing, in batches."""
        if isinstance(pairs, HeldPairs):
            yield from (pairs.rows[start : start + BATCH] for start in range(0, len(pairs), BATCH))
            return
        for batch in self.store.batches(f"SELECT a, b FROM {pairs.table} ORDER BY k"):  # noqa: S608
            yield np.stack([batch.column(0).to_numpy(), batch.column(1).to_numpy()], axis=1)

    def _walk_prefixes(self, request: PairRequest, names: Names) -> tuple[str, StoredPairs]:
        """Walk a prefix of the order that should suffice, and a longer one if it does not."""
        records, expected, share = len(self), request.pairs_per_record, 0.0
        while True:
            share = 1.0 if records <= _WHOLE_FILE else prefix_share(request, records, expected, share)
            drawn, number = self._load(request, names, share)
            found = self._walk(drawn, request, names)
            if found.number >= request.wanted or share >= 1.0:
                return drawn, found
            expected = (found.number + 1) / (number + 1)
            self.store.drop(drawn)
            self.store.drop(found.table)

    def _load(self, request: PairRequest, names: Names, share: float) -> tuple[str, int]:
        """Load the records whose draw is among the lowest ``share`` of all possible ones: row, both words, codes."""
        threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
        kinds = "".join(f", c{i} UINTEGER" for i in range(len(names)))
        table = self.store.new_table(f"r BIGINT, h UBIGINT, l UBIGINT{kinds}")
        number = 0
        with self.store.inserter(table) as add:
            for batch, words in self._draw_batches(names, request.draw_key):
                low = np.flatnonzero(words[:, 0] <= threshold)
                codes = [batch.codes(name, low) for name in names]
                add(table_by_position([low + batch.start, words[low, 0], words[low, 1], *codes]))
                number += len(low)
        return table, number

    def _load_weighted(self, request: PairRequest, names: Names, targeting: Targeting) -> str:
        """Load all records, ordered by arrival in the race: sooner where their cell has fewer than n records.

        Both times are computed as a record is read; which of them applies is known once the cells are counted.
        """
        keys = targeting.keys or self.schema.categorical
        if targeting.rule == "pps":
            return self._load_by_size(request, names, targeting.n, keys)
        wide = tuple(dict.fromkeys((*names, *keys)))
        kinds = "".join(f", c{i} UINTEGER" for i in range(len(wide)))
        raced = self.store.new_table(f"r BIGINT, usual UBIGINT, sooner UBIGINT, l UBIGINT, m UBIGINT{kinds}")
        for batch, words in self._draw_batches(wide, request.draw_key):
            codes = [batch.codes(name) for name in wide]
            draws = np.ascontiguousarray(words[:, 0])
            times = [order.as_sortable(order.draw_arrivals(draws, weight)) for weight in (1.0, targeting.weight)]
            part = [np.arange(batch.start, batch.stop), *times, draws, words[:, 1], *codes]
            self.store.insert(raced, table_by_position(part))
        own = ", ".join(f"c{wide.index(key)}" for key in keys)
        kept = "".join(f", c{i}" for i in range(len(names)))
        small = f"SELECT ({own}) FROM {raced} GROUP BY {own} HAVING count(*) < {targeting.n}"  # noqa: S608  (our own names)
        # Two of 10⁸ first words are equal once in some thousand files; only then is it worth sorting by the second too.
        met = self.store.number(f"SELECT count(*) - count(DISTINCT l) FROM {raced}")  # noqa: S608
        last = "dense_rank() OVER (ORDER BY l, m) AS l" if met else "l"
        drawn = self.store.table_of(
            f"SELECT r, CASE WHEN ({own}) IN ({small}) THEN sooner ELSE usual END AS h, {last}{kept} FROM {raced}"  # noqa: S608
        )
        self.store.drop(raced)
        return drawn

    def _load_by_size(self, request: PairRequest, names: Names, n: int, keys: Names) -> str:
        """Load all records, ordered by arrival in the race in proportion to size: there are at most ``n`` sizes."""
        wide = tuple(dict.fromkeys((*names, *keys)))
        kinds = "".join(f", c{i} UINTEGER" for i in range(len(wide)))
        raced = self.store.new_table(f"r BIGINT, t DOUBLE, l UBIGINT, m UBIGINT{kinds}")
        for batch, words in self._draw_batches(wide, request.draw_key):
            codes = [batch.codes(name) for name in wide]
            draws = np.ascontiguousarray(words[:, 0])
            part = [np.arange(batch.start, batch.stop), order.draw_arrivals(draws, 1.0), draws, words[:, 1], *codes]
            self.store.insert(raced, table_by_position(part))
        own = [f"c{wide.index(key)}" for key in keys]
        sized = self.store.table_of(
            f"SELECT {', '.join(own)}, greatest(0, {n} - count(*)) + 1 AS size, count(*) AS members "  # noqa: S608
            f"FROM {raced} GROUP BY {', '.join(own)}"
        )
        counted = self.store.batches(f"SELECT size, sum(members)::BIGINT FROM {sized} GROUP BY size")  # noqa: S608
        found = [np.stack([column.to_numpy().astype(np.int64) for column in batch.columns]) for batch in counted]
        sizes, members = np.concatenate([np.zeros((2, 0), dtype=np.int64), *found], axis=1)
        weights = self.store.new_table("size BIGINT, weight DOUBLE")
        weight = order.weights_of_sizes(sizes.astype(np.float64), members, 2 * request.wanted)
        self.store.insert(weights, table_by_position([sizes, weight]))
        kept = "".join(f", d.c{i} AS c{i}" for i in range(len(names)))
        same = " AND ".join(f"d.{name} = s.{name}" for name in own)
        met = self.store.number(f"SELECT count(*) - count(DISTINCT l) FROM {raced}")  # noqa: S608
        last = "dense_rank() OVER (ORDER BY d.l, d.m)::UBIGINT AS l" if met else "d.l AS l"
        drawn = self.store.table_of(
            f"SELECT d.r AS r, dense_rank() OVER (ORDER BY d.t / w.weight)::UBIGINT AS h, {last}{kept} "  # noqa: S608
            f"FROM {raced} d JOIN {sized} s ON {same} JOIN {weights} w ON w.size = s.size"
        )
        for table in (raced, sized, weights):
            self.store.drop(table)
        return drawn

    def _choose_partners(self, request: PairRequest, names: Names, rule: PartnerRule) -> tuple[str, StoredPairs]:
        """Read what decides in keyed order, as whole numbers in memory, and pair each record with its best partner."""
        wide = (*names, *(name for name in rule.names if name not in names))
        if request.targeting is None:
            drawn = self._load(request, wide, 1.0)[0]
        else:
            drawn = self._load_weighted(request, wide, request.targeting)
        listed = ", ".join(f"c{i}" for i in range(len(wide)))
        query = f"SELECT r, {listed} FROM {drawn} ORDER BY h, l"  # noqa: S608
        batches = [np.stack([c.to_numpy().astype(np.int64) for c in b.columns]) for b in self.store.batches(query)]
        table = np.concatenate([np.zeros((len(wide) + 1, 0), dtype=np.int64), *batches], axis=1)
        rows, labels = table[0], table[1:].T
        merged = self.stream.without_signed_zeros(names, labels[:, : len(names)], request.constraint)
        equal = len(request.constraint.equal)
        strata = number_labels(merged[:, :equal]).astype(np.uint32) if equal else np.zeros(0, dtype=np.uint32)
        groups, place = [], equal
        for group in request.constraint.unequal:
            groups.append(number_labels(merged[:, place : place + len(group)]))
            place += len(group)
        coordinates = np.stack(groups, axis=1).astype(np.uint32)
        codes = {name: labels[:, wide.index(name)] for name in rule.names}
        choice = order.Choice(*rule.numbers(codes))
        number = int(strata.max(initial=0)) + 1
        found = order.walk_best(strata, number, coordinates, request.wanted, choice)
        kinds = "".join(f", {side}{i} UINTEGER" for side in "ab" for i in range(len(names)))
        stored = self.store.new_table(f"k BIGINT, a BIGINT, b BIGINT, h UBIGINT, l UBIGINT, n BIGINT{kinds}")
        nothing = np.zeros(len(found), dtype=np.uint64)
        sides = [labels[found[:, side], i] for side in (0, 1) for i in range(len(names))]
        pairs = [np.arange(1, len(found) + 1), rows[found[:, 0]], rows[found[:, 1]], nothing, nothing, nothing]
        self.store.insert(stored, table_by_position([*pairs, *sides]))
        return drawn, StoredPairs(table=stored, number=len(found), columns=names)

    def _walk(self, drawn: str, request: PairRequest, names: Names) -> StoredPairs:
        constraint = request.constraint
        places = range(len(names))
        equal = range(len(constraint.equal))
        by_stratum = request.repair and constraint.equal
        same = f"PARTITION BY {', '.join(f'c{i}' for i in equal)}" if by_stratum else ""
        differ = _differ_condition(constraint, [self.stream.signed_zeros(name) for name in names])
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

    def _repair(self, request: PairRequest, drawn: str, found: StoredPairs) -> StoredPairs:
        """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes."""
        names = found.columns
        numbered, classes = self._classes_in_order(drawn, names, request.constraint)
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

    def _classes_in_order(self, drawn: str, names: Names, constraint: Constraint) -> tuple[str, Classes]:
        """Number the classes by the first record of their stratum and then by their own."""
        columns = [f"c{i}" for i in range(len(names))]
        listed = ", ".join(columns)
        rows = self.store.rows(
            f"SELECT {listed}, count(*), min({{'h': h, 'l': l}}) FROM {drawn} GROUP BY {listed}"  # noqa: S608
        )
        labels = np.array([row[: len(names)] for row in rows], dtype=np.int64)
        earliest = [(row[-1]["h"], row[-1]["l"]) for row in rows]
        counts = np.array([row[-2] for row in rows], dtype=np.int64)
        merged = self.stream.without_signed_zeros(names, labels, constraint)
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
