"""Exchange and verify on a cluster: values go to the worker that writes their piece, and both files are compared there.

The records of pairs are sent to their pieces as a row, that of its partner, the exchange, the place of the pair, and
the side.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s
from safeswap.engines.base import Move
from safeswap.engines.spark.draws import value_codes
from safeswap.engines.spark.engine import SparkPairs, SparkRecords
from safeswap.engines.spark.session import (
    PACKETS,
    Batches,
    Piece,
    gather,
    long_columns,
    pack,
    packs_as_integer,
    pieces_of,
    plain,
    receive,
    send,
    split_by_piece,
    unpack,
    whole,
)

_ROW, _PARTNER, _EXCHANGE, _PLACE, _SIDE = range(5)
_COUNT, _NET, _MEMBER = range(3)
_SLICE = 1_000_000


def part_name(piece: Piece) -> str:
    """Return the name of the file to which a piece is written: names sort as the pieces do."""
    return f"part-{piece.number:06d}.parquet"


@dataclass(frozen=True, eq=False)
class Route:
    """Send both records of each pair to the pieces that hold them."""

    pieces: tuple[Piece, ...]
    exchange: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over places and pairs of rows."""
        for batch in batches:
            k, a, b = (column.to_numpy() for column in batch.columns)
            constant = np.full(len(k), self.exchange)
            sides = [
                np.column_stack([own, partner, constant, k, np.full(len(k), side)])
                for side, (own, partner) in enumerate(((a, b), (b, a)))
            ]
            rows = np.concatenate(sides)
            yield send(rows, pieces_of(rows[:, _ROW], self.pieces))


def _by_piece(batches: Batches, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Int64s]]:
    """Yield each piece that a task was given, with the records of pairs sent to it, in order."""
    for number, (rows,) in receive(batches, (5,)).items():
        yield pieces[number], rows[np.argsort(rows[:, _ROW], kind="stable")]


@dataclass(frozen=True, eq=False)
class Fetch:
    """Read the values of rows, and send them to the pieces of their partners."""

    pieces: tuple[Piece, ...]
    names: Names
    directed: tuple[bool, ...]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over routed rows; the first of a directed pair gives nothing."""
        for piece, every in _by_piece(batches, self.pieces):
            rows = every[(every[:, _SIDE] == 1) | ~np.isin(every[:, _EXCHANGE], np.flatnonzero(self.directed))]
            places, targets = pa.array(rows[:, _ROW] - piece.first), np.ascontiguousarray(rows[:, _PARTNER])
            values = [pack(whole(column).take(places)) for column in piece.read(self.names).columns]
            columns = [pieces_of(targets, self.pieces), targets, np.ascontiguousarray(rows[:, _EXCHANGE])]
            names = ["piece", "i", "m", *(f"v{j}" for j in range(len(values)))]
            yield pa.RecordBatch.from_arrays([*map(pa.array, columns), *values], names=names)


@dataclass(frozen=True, eq=False)
class Write:
    """Write each piece with its new values to a file of its own.

    A task that is run twice writes the same file: it gets its name when it is complete.
    """

    pieces: tuple[Piece, ...]
    names: Names
    exchanged: tuple[Names, ...]
    target: Path
    work: Path

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over new values; yield the number of records written."""
        for piece, rows in split_by_piece(batches, self.pieces):
            self._write(piece, rows)
            yield pa.RecordBatch.from_arrays([pa.array([piece.records])], names=["n"])

    def _write(self, piece: Piece, rows: pa.Table) -> None:
        from pyarrow import parquet

        path, first = self.work / f"{secrets.token_hex(8)}.parquet", piece.first
        with parquet.ParquetFile(piece.path) as file:
            codecs = _codecs(file.metadata)
            with parquet.ParquetWriter(path, file.schema_arrow, compression=codecs) as out:
                for group in piece.groups:
                    table = file.read_row_group(group, use_threads=False)
                    if table.num_rows:
                        out.write_table(self._replace(table, first, rows), row_group_size=table.num_rows)
                    first += table.num_rows
        path.replace(self.target / part_name(piece))

    def _replace(self, table: pa.Table, first: int, rows: pa.Table) -> pa.Table:
        low, high = np.searchsorted(rows.column("i").to_numpy(), [first, first + table.num_rows])
        rows = rows.slice(low, high - low)
        exchange, places = rows.column("m").to_numpy(), rows.column("i").to_numpy() - first
        for j, name in enumerate(self.names):
            here = np.flatnonzero(np.isin(exchange, [m for m, names in enumerate(self.exchanged) if name in names]))
            number, stored = table.schema.get_field_index(name), table.schema.field(name)
            old = whole(plain(table.column(name)))
            new = unpack(whole(rows.column(f"v{j}")).take(pa.array(here)), old.type)
            source = np.arange(len(old))
            source[places[here]] = len(old) + np.arange(len(here))
            values = pa.concat_arrays([old, new]).take(pa.array(source))
            table = table.set_column(number, stored, values.cast(stored.type))
        return table


@dataclass(frozen=True, eq=False)
class CompareCopied:
    """Find the columns of each piece that are not in the written file as in the source; −1 if it has other columns."""

    pieces: tuple[Piece, ...]
    names: Names
    written: Path

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over numbers of pieces; yield positions of columns."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = self._compare(self.pieces[number])
                yield pa.RecordBatch.from_arrays([pa.array(found, pa.int64())], names=["column"])

    def _compare(self, piece: Piece) -> list[int]:
        from pyarrow import parquet

        with parquet.ParquetFile(piece.path) as old, parquet.ParquetFile(self.written / part_name(piece)) as new:
            same = old.schema_arrow.remove_metadata().equals(new.schema_arrow.remove_metadata())
            if not same or new.metadata.num_rows != piece.records:
                return [-1]
            sides = [(old, piece.groups), (new, tuple(range(new.metadata.num_row_groups)))]
            # A column at a time: all of them together may not fit.
            changed = (_differ(*(_read_column(*side, name) for side in sides)) for name in self.names)
            return [place for place, flags in enumerate(changed) if flags.any()]


def _read_column(file: Any, groups: Sequence[int], name: str) -> pa.ChunkedArray:
    return plain(file.read_row_groups(list(groups), columns=[name], use_threads=False).column(name))


@dataclass(frozen=True, eq=False, kw_only=True)
class Compare:
    """Compare the exchanged columns of each piece before and after: counts, net changes of cells, and pairs.

    Values are coded again, with keys that drew nothing. What has to meet is sent to the same one of ``parts``.
    """

    pieces: tuple[Piece, ...]
    written: Path
    names: Names
    others: Names
    directed: tuple[bool, ...]
    margins: tuple[Names, ...]
    mutual: tuple[bool, ...] = ()
    parts: int = 1
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over the records of the pairs."""
        read = tuple(dict.fromkeys((*self.names, *self.others, *(n for names in self.margins for n in names))))
        for piece, rows in _by_piece(batches, self.pieces):
            before = dict(zip(read, map(whole, piece.read(read).columns), strict=True))
            copy = written_piece(piece, self.written).read(self.names)
            after = {**before, **dict(zip(self.names, map(whole, copy.columns), strict=True))}
            flags = [_differ(*(pa.chunked_array([side[name]]) for side in (before, after))) for name in self.names]
            changed = np.any(flags, axis=0) if flags else np.zeros(piece.records, dtype=np.bool_)
            counts = self._count(flags, changed, rows)
            yield send(np.column_stack([np.arange(len(counts)), counts]), np.zeros(len(counts), np.int64), _COUNT)
            index = pa.array(np.flatnonzero(changed))
            moved = [{name: side[name].take(index) for name in read} for side in (before, after)]
            for number, names in enumerate(self.margins):
                net = _net_changes(number, [[side[name] for name in names] for side in moved], self.key)
                yield send(net, net[:, 1] % self.parts, _NET)
            members = self._members(piece, rows, before, after)
            yield send(members, members[:, 1] % self.parts, _MEMBER)

    def _count(self, flags: Sequence[Flags], changed: Flags, rows: Int64s) -> Int64s:
        """Count the records that changed, by column and in any, and the surplus places of each exchange's pairs."""
        mine = [rows[rows[:, _EXCHANGE] == number] for number in range(len(self.directed))]
        counts = [np.count_nonzero(each) for each in (*flags, changed)]
        mutual = self.mutual or (False,) * len(mine)
        surplus = (_count_surplus(*each) for each in zip(mine, self.directed, mutual, strict=True))
        return np.array([*counts, *surplus], dtype=np.int64)

    def _members(
        self, piece: Piece, rows: Int64s, before: Mapping[str, pa.Array], after: Mapping[str, pa.Array]
    ) -> Int64s:
        """Return exchange, place and side of the records of pairs, and the codes of their values before and after."""
        index = pa.array(rows[:, _ROW] - piece.first)
        old = [value_codes(before[name].take(index), self.key) for name in (*self.names, *self.others)]
        new = [value_codes(after[name].take(index), self.key) for name in self.names]
        return np.column_stack([rows[:, [_EXCHANGE, _PLACE, _SIDE]], *old, *new])


@dataclass(frozen=True, eq=False)
class CompareUnits:
    """Read the unit of every record, such as its household, and its cell by some attributes before and after."""

    pieces: tuple[Piece, ...]
    written: Path
    unit: str
    names: Names
    exchanged: Names
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over numbers of pieces; a cell is two words that are random without the key."""
        from safeswap.engines.spilled_cells import column_keys, record_words

        keys, moved = column_keys(self.key, len(self.names)), [name in self.exchanged for name in self.names]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self.pieces[number]
                units, *old = map(whole, piece.read((self.unit, *self.names)).columns)
                copy = written_piece(piece, self.written).read(tuple(itertools.compress(self.names, moved)))
                fresh = map(whole, copy.columns)
                new = [next(fresh) if is_moved else column for column, is_moved in zip(old, moved, strict=True)]
                words = [record_words(side, keys).view(np.int64) for side in (old, new)]
                columns = [value_codes(units, self.key), *words[0].T, *words[1].T]
                arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=["u", "b0", "b1", "a0", "a1"])


_CHANGED = "(b0 <> a0 OR b1 <> a1)"


@dataclass(frozen=True, eq=False)
class ComparedUnits:
    """The unit of every record and its cells before and after, in the cluster."""

    frame: Any

    def count_torn(self) -> int:
        """Count the units of which some members changed and others did not, or which differ now."""
        from pyspark.sql import functions as f

        changed = f.expr(f"CAST({_CHANGED} AS INT)")
        ends = [each(column).alias(f"{each.__name__}_{column}") for column in ("a0", "a1") for each in (f.min, f.max)]
        units = self.frame.groupBy("u").agg(f.min(changed).alias("fewest"), f.max(changed).alias("most"), *ends)
        moved = units.where("most = 1 AND (fewest = 0 OR min_a0 <> max_a0 OR min_a1 <> max_a1)")
        return int(moved.count())

    def count_moved_cells(self) -> int:
        """Count the cells that have a different number of units from before."""
        from pyspark.sql import functions as f

        sides = [
            self.frame.where(_CHANGED)
            .select("u", f.col(f"{side}0").alias("c0"), f.col(f"{side}1").alias("c1"))
            .distinct()
            .withColumn("s", f.lit(sign))
            for side, sign in (("b", -1), ("a", 1))
        ]
        summed = sides[0].unionAll(sides[1]).groupBy("c0", "c1").agg(f.sum("s").alias("s"))
        return int(summed.where("s <> 0").count())


def _count_surplus(rows: Int64s, directed: bool, mutual: bool) -> int:  # noqa: FBT001  (flags of an exchange)
    """Count the places beyond a record's first; of a directed exchange, on each side, and one-sided ones.

    A record of a mutual one may give several times, or not at all.
    """
    if not directed:
        return len(rows) - len(np.unique(rows[:, _ROW]))
    sides = [rows[rows[:, _SIDE] == side, _ROW] for side in (0, 1)]
    if mutual:
        return len(sides[0]) - len(np.unique(sides[0])) + len(np.setdiff1d(sides[1], sides[0]))
    return sum(len(side) - len(np.unique(side)) for side in sides) + len(np.setxor1d(*sides))


def _net_changes(number: int, sides: Sequence[Sequence[pa.Array]], key: bytes) -> Int64s:
    """Return how many records each cell of a margin gained: its number, two words that name the cell, and the gain."""
    from safeswap.engines.spilled_cells import column_keys, record_words

    words = [record_words(columns, column_keys(key, len(columns))).view(np.int64) for columns in sides]
    signs = [np.full((len(some), 1), sign) for some, sign in zip(words, (-1, 1), strict=True)]
    net = _sum_cells(np.concatenate([np.column_stack(pair) for pair in zip(words, signs, strict=True)]))
    return np.column_stack([np.full(len(net), number), net])


def _sum_cells(rows: Int64s) -> Int64s:
    """Sum the last column over equal rows of the others; cells without a sum are omitted."""
    names = [str(j) for j in range(rows.shape[1])]
    table = pa.table([np.ascontiguousarray(column) for column in rows.T], names=names)
    summed = table.group_by(names[:-1], use_threads=False).aggregate([(names[-1], "sum")])
    found = [summed.column(name).to_numpy() for name in (*names[:-1], f"{names[-1]}_sum")]
    moved = found[-1] != 0
    return np.column_stack([column[moved] for column in found])


COMPARED = "kind long, x long, bits binary, total long, size long, cells long"


@dataclass(frozen=True, eq=False)
class CountPairs:
    """Add up what was compared, and count the pairs of each exchange by what is true of them, a bit each.

    First: the pair has two records. Then by attribute: both had the same value; each has the other's; the first one
    changed, the second one changed. Of a directed exchange, only the first one counts: the second is the first of
    another pair; each has the other's only where the exchange is mutual.
    """

    names: int
    others: int
    directed: tuple[bool, ...]
    mutual: tuple[bool, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over what was sent: all records of a pair, and all changes of a cell, are in one part."""
        for counts, net, members in receive(batches, (2, 4, 3 + 2 * self.names + self.others)).values():
            found = [(_COUNT, x, b"", total, 0, 0) for x, total in counts.tolist()]
            cells = _sum_cells(net)
            for margin in np.unique(cells[:, 0]).tolist():
                gained = cells[cells[:, 0] == margin, -1]
                found.append((_NET, margin, b"", int(gained.sum()), int(np.abs(gained).sum()), len(gained)))
            found += [(_MEMBER, stage, bits, number, 0, 0) for stage, bits, number in self._count_pairs(members)]
            columns = [list(column) for column in zip(*found, strict=True)] or [[]] * 6
            kinds = [pa.binary() if j == 2 else pa.int64() for j in range(6)]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=[part.split()[0] for part in COMPARED.split(", ")])

    def _count_pairs(self, rows: Int64s) -> Iterator[tuple[int, bytes, int]]:
        stage, place, side = rows[:, 0], rows[:, 1], rows[:, 2]
        rows = rows[np.lexsort((side, place, stage))]
        stage, place, side = rows[:, 0], rows[:, 1], rows[:, 2]
        begins = np.append(True, (place[1:] != place[:-1]) | (stage[1:] != stage[:-1]))[: len(rows)]
        start = np.flatnonzero(begins)
        last = np.append(start[1:], len(rows))[: len(start)] - 1
        whole_pair = (last - start == 1) & (side[start] == 0) & (side[last] == 1)
        one_way, mutual = (np.isin(stage[start], np.flatnonzero(each)) for each in (self.directed, self.mutual))
        bits = np.column_stack([whole_pair, *self._compare(rows[start, 3:].T, rows[last, 3:].T, one_way, mutual)])
        packed = np.column_stack([stage[start].astype(">i8").view("u1").reshape(-1, 8), np.packbits(bits, axis=1)])
        # Sorted as texts of bytes: rows of bytes would be compared one by one.
        texts = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").ravel()
        for text, number in zip(*np.unique(texts, return_counts=True), strict=True):
            yield int.from_bytes(bytes(text)[:8], "big", signed=True), bytes(text)[8:], int(number)

    def _compare(self, first: Int64s, second: Int64s, one_way: Flags, mutual: Flags) -> list[Flags]:
        width = self.names + self.others
        same = [first[j] == second[j] for j in range(width)]
        sides = [(first[j], first[width + j], second[j], second[width + j]) for j in range(self.names)]
        traded = [(new_a == old_b) & ((one_way & ~mutual) | (new_b == old_a)) for old_a, new_a, old_b, new_b in sides]
        moved = [side for old_a, new_a, old_b, new_b in sides for side in (old_a != new_a, ~one_way & (old_b != new_b))]
        return [*same, *traded, *moved]


@dataclass(frozen=True, eq=False)
class WritePairs:
    """Write the pairs of each slice of places, sorted, to a file of its own."""

    folder: Path

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over slices: number, place and both rows."""
        from pyarrow import parquet

        rows = gather(batches)
        if rows is None:
            return
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("k", "ascending")]))
        for number in np.unique(rows.column("s").to_numpy()).tolist():
            chosen = rows.filter(pa.compute.equal(rows.column("s"), number)).select(["a", "b"])
            path = self.folder / f"{secrets.token_hex(8)}.part"
            parquet.write_table(chosen, path)
            path.replace(self.folder / f"{number:06d}.parquet")
            yield pa.RecordBatch.from_arrays([pa.array([chosen.num_rows])], names=["n"])


def written_piece(piece: Piece, written: Path) -> Piece:
    """Return the piece as it was written."""
    from pyarrow import parquet

    path = written / part_name(piece)
    with parquet.ParquetFile(path) as file:
        groups = tuple(range(file.metadata.num_row_groups))
    return replace(piece, path=path, groups=groups)


def _differ(before: pa.ChunkedArray, after: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    from safeswap.model.columns import aligned_columns, flag_changes

    if len(before) != len(after):
        return np.ones(max(len(before), 1), dtype=np.bool_)
    return flag_changes(*aligned_columns(before, after))


_CODECS = {"UNCOMPRESSED": "none", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4"}


def _codecs(footer: Any) -> dict[str, str] | str:
    """Return the compression of each column, as the source has it."""
    chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    return {chunk.path_in_schema: _CODECS.get(chunk.compression, "snappy") for chunk in chunks}


class Exchanges:
    """The exchanges of a job on a cluster."""

    def __init__(self, records: SparkRecords, names: Names, moves: Sequence[Move]) -> None:
        self.records, self.names, self._moves = records, names, moves
        self._directed, self._mutual = (tuple(getattr(each, kind) for each in moves) for kind in ("directed", "mutual"))

    def write(self, target: Path, work: Path) -> None:
        """Let the workers write all pieces."""
        from pyspark.sql import functions as f

        records, tasks = self.records, self.records.tasks
        kinds = ["long" if packs_as_integer(records.kind(name)) else "binary" for name in self.names]
        values = [f"v{j} {kind}" for j, kind in enumerate(kinds)]
        columns = ", ".join([long_columns("piece", "i", "m"), *values])
        fetch = Fetch(records.pieces, self.names, self._directed)
        moved = self._route_pairs().repartition(tasks, "part").mapInArrow(fetch, columns)
        nothing = [f.lit(None).cast(kind).alias(f"v{j}") for j, kind in enumerate(kinds)]
        absent = [f.lit(None).cast("long").alias(name) for name in ("i", "m")]
        every = records.list_pieces().select(f.col("id").alias("piece"), *absent, *nothing)
        step = Write(records.pieces, self.names, tuple(move.names for move in self._moves), target, work)
        every.unionAll(moved).repartition(tasks, "piece").mapInArrow(step, long_columns("n")).collect()

    def _route_pairs(self) -> Any:
        """Return every record of a pair, sent to its piece; every piece is sent something."""
        from pyspark.sql import functions as f

        pieces = self.records.pieces
        nothing = f.lit(None).cast("binary").alias("packet")
        frame = self.records.list_pieces().select(
            f.col("id").alias("part"), f.lit(0).cast("long").alias("kind"), nothing
        )
        for number, move in enumerate(self._moves):
            frame = frame.unionAll(move.pairs.frame.mapInArrow(Route(pieces, number), PACKETS))
        return frame

    def find_damaged(self, written: Path, names: Names) -> list[str]:
        """Return the columns that are not in the written files as in the source; all, if these cannot be compared."""
        step = CompareCopied(self.records.pieces, names, written)
        found = self.records.list_pieces().mapInArrow(step, long_columns("column"))
        places = {int(row[0]) for row in found.collect()}
        return list(names) if -1 in places else [names[place] for place in sorted(places)]

    def compare(self, written: Path, others: Names, margins: Sequence[Names]) -> Compared:
        """Compare both files and the pairs in one pass over the columns named."""
        step = Compare(
            pieces=self.records.pieces,
            written=written,
            names=self.names,
            others=others,
            directed=self._directed,
            mutual=self._mutual,
            margins=tuple(margins),
            parts=1 + sum(len(move.pairs) for move in self._moves) // _SLICE,
        )
        sent = self._route_pairs().repartition(self.records.tasks, "part").mapInArrow(step, PACKETS)
        count = CountPairs(len(self.names), len(others), self._directed, self._mutual)
        rows = sent.repartition(step.parts, "part").mapInArrow(count, COMPARED).collect()
        counted: dict[tuple[int, int], tuple[int, ...]] = {}
        for kind, x, _, *some in rows:
            counted[kind, x] = tuple(map(sum, zip(counted.get((kind, x), (0, 0, 0)), some, strict=True)))
        pairs = [(x, bits, total) for kind, x, bits, total, _, _ in rows if kind == _MEMBER]
        width = 1 + len(self.names) + len(others) + 3 * len(self.names)
        bits = [np.unpackbits(np.frombuffer(bytes(row[1]), dtype=np.uint8))[:width] for row in pairs]
        return Compared(
            names=self.names,
            others=others,
            margins=tuple(margins),
            counted=counted,
            stages=np.array([row[0] for row in pairs], dtype=np.int64),
            bits=np.array(bits, dtype=np.bool_).reshape(-1, width),
            numbers=np.array([row[2] for row in pairs], dtype=np.int64),
        )

    def compare_units(self, written: Path, unit: str, names: Names) -> ComparedUnits:
        """Compare the cells of both files by unit, such as household; a missing value names none."""
        step = CompareUnits(self.records.pieces, written, unit, names, self.names)
        frame = self.records.list_pieces().mapInArrow(step, long_columns("u", "b0", "b1", "a0", "a1"))
        return ComparedUnits(frame.where("u <> 0"))

    def iter_pairs(self, work: Path) -> Iterator[tuple[int, Int64s]]:
        """Yield the number of an exchange and pairs of row numbers, in the order of drawing, in batches."""
        from pyarrow import parquet
        from pyspark.sql import functions as f

        for number, move in enumerate(self._moves):
            pairs: SparkPairs = move.pairs
            folder = work / f"pairs-{number}"
            folder.mkdir(mode=0o700)
            place = f.floor((f.col("k") - 1) / _SLICE).cast("long").alias("s")
            slices = max(1, -(-len(pairs) // _SLICE))
            rows = pairs.frame.select(place, "k", "a", "b").repartition(slices, "s")
            rows.mapInArrow(WritePairs(folder), long_columns("n")).collect()
            for path in sorted(folder.glob("*.parquet")):
                table = parquet.read_table(path)
                yield number, np.column_stack([table.column(name).to_numpy() for name in "ab"])


@dataclass(frozen=True, eq=False, kw_only=True)
class Compared:
    """The counts of a comparison of both files."""

    names: Names
    others: Names
    margins: tuple[Names, ...]
    counted: Mapping[tuple[int, int], tuple[int, ...]]
    stages: Int64s
    bits: Flags
    numbers: Int64s

    def count_changed(self, name: str | None = None) -> int:
        """Count the records that have another value of an exchanged attribute, or of any."""
        place = len(self.names) if name is None else self.names.index(name)
        return self.counted[_COUNT, place][0]

    def count_repeated(self, stage: int) -> int:
        """Count the surplus places in the pairs of an exchange."""
        return self.counted[_COUNT, len(self.names) + 1 + stage][0]

    def count_net_change(self, names: Names) -> tuple[int, int]:
        """Return the sum of the absolute changes of all counts of a margin, and the number of cells that changed."""
        _, total, cells = self.counted.get((_NET, self.margins.index(names)), (0, 0, 0))
        return total, cells

    def count_pairs(self, stage: int, names: Names, *, agree: bool) -> int:
        """Count the pairs that agree, or differ, in all of these attributes."""
        places = [1 + (*self.names, *self.others).index(name) for name in names]
        return self._count(stage, np.all(self.bits[:, places] == agree, axis=1))

    def count_traded(self, stage: int, name: str) -> int:
        """Count the pairs in which each record has what the other had."""
        return self._count(stage, self.bits[:, self._place_after(name)])

    def count_moved(self, stage: int, names: Names) -> int:
        """Count the records of the pairs that have a different value of any of these attributes from before."""
        first = 1 + 2 * len(self.names) + len(self.others)
        sides = [np.any(self.bits[:, [first + 2 * self.names.index(n) + s for n in names]], axis=1) for s in (0, 1)]
        return sum(self._count(stage, side) for side in sides)

    def _place_after(self, name: str) -> int:
        return 1 + len(self.names) + len(self.others) + self.names.index(name)

    def _count(self, stage: int, flags: Flags) -> int:
        """Count the pairs of two records, of an exchange, that have these flags."""
        return int(self.numbers[flags & self.bits[:, 0] & (self.stages == stage)].sum())
