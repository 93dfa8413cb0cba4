"""Exchange and verify on a cluster: values go to the worker that writes their piece, and both files are compared there.

Rows that workers pass to each other have the columns piece, i (a row), t (its partner), m (the exchange), k (the place
of the pair) and side.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s
from safeswap.engines.spark.draws import value_codes
from safeswap.engines.spark.engine import SparkPairs, SparkRecords
from safeswap.engines.spark.reading import (
    Batches,
    Piece,
    gather,
    long_columns,
    pack,
    packs_as_integer,
    pieces_of,
    plain,
    split_by_piece,
    unpack,
    whole,
)

_ROUTED = ("piece", "i", "t", "m", "k", "side")
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
            for side, (own, partner) in enumerate(((a, b), (b, a))):
                constant = [np.full(len(k), value) for value in (self.exchange, side)]
                columns = [pieces_of(own, self.pieces), own, partner, constant[0], k, constant[1]]
                yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(_ROUTED))


@dataclass(frozen=True, eq=False)
class Fetch:
    """Read the values of rows, and send them to the pieces of their partners."""

    pieces: tuple[Piece, ...]
    names: Names

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over routed rows."""
        for piece, rows in split_by_piece(batches, self.pieces):
            places = pa.array(rows.column("i").to_numpy() - piece.first)
            targets = rows.column("t").to_numpy()
            values = [pack(whole(column).take(places)) for column in piece.read(self.names).columns]
            columns = [pa.array(pieces_of(targets, self.pieces)), pa.array(targets), whole(rows.column("m")), *values]
            names = ["piece", "i", "m", *(f"v{j}" for j in range(len(values)))]
            yield pa.RecordBatch.from_arrays(columns, names=names)


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
        copy = written_piece(piece, self.written)
        # A column at a time: all of them together may not fit.
        changed = (_differ(piece.read([name]).column(0), copy.read([name]).column(0)) for name in self.names)
        return [place for place, flags in enumerate(changed) if flags.any()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Compare:
    """Compare the exchanged columns of each piece before and after: counts, net changes of cells, and pairs.

    Values are coded anew, with keys that drew nothing.
    """

    pieces: tuple[Piece, ...]
    written: Path
    names: Names
    others: Names
    exchanges: int
    margins: tuple[Names, ...]
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    @property
    def width(self) -> int:
        """The number of columns w0, w1, …: codes before, codes after."""
        return max(1, 2 * len(self.names) + len(self.others))

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over the records of the pairs."""
        for piece, rows in split_by_piece(batches, self.pieces):
            before = dict(zip(self._read, map(whole, piece.read(self._read).columns), strict=True))
            copy = written_piece(piece, self.written).read(self.names)
            after = {**before, **dict(zip(self.names, map(whole, copy.columns), strict=True))}
            flags = [_differ(*(pa.chunked_array([side[name]]) for side in (before, after))) for name in self.names]
            changed = np.any(flags, axis=0) if flags else np.zeros(piece.records, dtype=np.bool_)
            yield self._batch(_COUNT, [np.arange(len(flags) + 1 + self.exchanges)], [self._count(flags, changed, rows)])
            for number, names in enumerate(self.margins):
                yield self._net_changes(number, names, np.flatnonzero(changed), before, after)
            yield self._members(piece, rows, before, after)

    @property
    def _read(self) -> Names:
        return (*self.names, *self.others)

    def _count(self, flags: Sequence[Flags], changed: Flags, rows: pa.Table) -> Int64s:
        """Count the records that changed, by column and in any, and the surplus places of each exchange's pairs."""
        exchange, row = rows.column("m").to_numpy(), rows.column("i").to_numpy()
        mine = [row[exchange == number] for number in range(self.exchanges)]
        counts = [np.count_nonzero(each) for each in (*flags, changed)]
        return np.array([*counts, *(len(each) - len(np.unique(each)) for each in mine)], dtype=np.int64)

    def _net_changes(
        self, number: int, names: Names, rows: Int64s, before: Mapping[str, pa.Array], after: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Return how many records each cell of a margin gained; cells are known by two words."""
        from safeswap.engines.spilled_cells import column_keys, record_words

        keys, index = column_keys(self.key, len(names)), pa.array(rows)
        words = [record_words([side[name].take(index) for name in names], keys) for side in (before, after)]
        cells = np.concatenate(words)
        table = {f"{j}": np.ascontiguousarray(cells[:, j]).view(np.int64) for j in (0, 1)}
        signs = np.repeat(np.array([-1, 1], dtype=np.int64), len(rows))
        net = pa.table({**table, "s": signs}).group_by(["0", "1"], use_threads=False).aggregate([("s", "sum")])
        gained = net.column("s_sum").to_numpy()
        moved = gained != 0
        first, second = (net.column(name).to_numpy()[moved] for name in ("0", "1"))
        return self._batch(_NET, [np.full(len(first), number), first, second], [gained[moved]])

    def _members(
        self, piece: Piece, rows: pa.Table, before: Mapping[str, pa.Array], after: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        index = pa.array(rows.column("i").to_numpy() - piece.first)
        old = [value_codes(before[name].take(index), self.key) for name in self._read]
        new = [value_codes(after[name].take(index), self.key) for name in self.names]
        return self._batch(_MEMBER, [rows.column(name).to_numpy() for name in ("m", "k", "side")], [*old, *new])

    def _batch(self, kind: int, facts: Sequence[Int64s], words: Sequence[Int64s]) -> pa.RecordBatch:
        length = len(facts[0])
        empty = np.zeros(length, dtype=np.int64)
        columns = [np.full(length, kind), *facts, *[empty] * (3 - len(facts)), *words]
        columns += [empty] * (4 + self.width - len(columns))
        names = compared_columns(self.width)
        return pa.RecordBatch.from_arrays([pa.array(column.astype(np.int64)) for column in columns], names=names)


def compared_columns(width: int) -> list[str]:
    """Return the columns of what :class:`Compare` yields: its kind, three facts, and words."""
    return ["kind", "x", "y", "z", *(f"w{j}" for j in range(width))]


@dataclass(frozen=True, eq=False)
class CountPairs:
    """Count the pairs of each exchange by what is true of them, a bit each.

    First: the pair has two records. Then by attribute: both had the same value; each has the other's; the first one
    changed, the second one changed.
    """

    names: int
    others: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over members; all of a pair are in one partition."""
        rows = gather(batches)
        if rows is None:
            return
        stage, place, side = (rows.column(name).to_numpy() for name in "xyz")
        order = np.lexsort((side, place, stage))
        stage, place, side = stage[order], place[order], side[order]
        start = np.flatnonzero(np.append(True, (place[1:] != place[:-1]) | (stage[1:] != stage[:-1])))
        last = np.append(start[1:], len(order)) - 1
        whole_pair = (last - start == 1) & (side[start] == 0) & (side[last] == 1)
        bits = np.column_stack([whole_pair, *self._compare(rows, order, start, last)])
        packed = np.packbits(bits, axis=1)
        found, counts = np.unique(
            np.column_stack([stage[start].astype(">i8").view("u1").reshape(-1, 8), packed]), axis=0, return_counts=True
        )
        stages = np.ascontiguousarray(found[:, :8]).view(">i8").ravel().astype(np.int64)
        masks = pa.array([row[8:].tobytes() for row in found], pa.binary())
        yield pa.RecordBatch.from_arrays([pa.array(stages), masks, pa.array(counts)], names=["x", "bits", "n"])

    def _compare(self, rows: pa.Table, order: Int64s, start: Int64s, last: Int64s) -> list[Flags]:
        first, second = order[start], order[last]
        width = self.names + self.others
        words = [rows.column(f"w{j}").to_numpy() for j in range(width + self.names)]
        same = [words[j][first] == words[j][second] for j in range(width)]
        old, new = words[: self.names], words[width:]
        sides = list(zip(old, new, strict=True))
        traded = [(n[first] == o[second]) & (n[second] == o[first]) for o, n in sides]
        return [*same, *traded, *([o[r] != n[r] for o, n in sides for r in (first, second)])]


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
        rows = rows.sort_by("k")
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

    def __init__(self, records: SparkRecords, names: Names, moves: Sequence[tuple[Names, SparkPairs]]) -> None:
        self.records, self.names, self._moves = records, names, moves

    def write(self, target: Path, work: Path) -> None:
        """Let the workers write all pieces."""
        from pyspark.sql import functions as f

        records, number = self.records, len(self.records.pieces)
        kinds = ["long" if packs_as_integer(records.kind(name)) else "binary" for name in self.names]
        values = [f"v{j} {kind}" for j, kind in enumerate(kinds)]
        columns = ", ".join([long_columns("piece", "i", "m"), *values])
        moved = self._routed().repartition(number, "piece").mapInArrow(Fetch(records.pieces, self.names), columns)
        nothing = [f.lit(None).cast(kind).alias(f"v{j}") for j, kind in enumerate(kinds)]
        absent = [f.lit(None).cast("long").alias(name) for name in ("i", "m")]
        every = records.session.range(number).select(f.col("id").alias("piece"), *absent, *nothing)
        step = Write(records.pieces, self.names, tuple(names for names, _ in self._moves), target, work)
        written = every.unionAll(moved).repartition(number, "piece").mapInArrow(step, long_columns("n"))
        written.agg(f.sum("n")).head()

    def _routed(self) -> Any:
        """Return every record of a pair, with its piece and its partner."""
        from pyspark.sql import functions as f

        session, pieces = self.records.session, self.records.pieces
        frame = session.createDataFrame([], long_columns(*_ROUTED))
        for number, (_, pairs) in enumerate(self._moves):
            rows = pairs.frame.select("k", f.col("a.i").alias("a"), f.col("b.i").alias("b"))
            routed = rows.mapInArrow(Route(pieces, number), long_columns(*_ROUTED))
            frame = frame.unionAll(routed) if number else routed
        return frame

    def find_damaged(self, written: Path, names: Names) -> list[str]:
        """Return the columns that are not in the written files as in the source; all, if these cannot be compared."""
        number = len(self.records.pieces)
        step = CompareCopied(self.records.pieces, names, written)
        found = self.records.session.range(0, number, 1, number).mapInArrow(step, long_columns("column"))
        places = {int(row[0]) for row in found.distinct().collect()}
        return list(names) if -1 in places else [names[place] for place in sorted(places)]

    def compare(self, written: Path, others: Names, margins: Sequence[Names]) -> Compared:
        """Compare both files and the pairs in one pass over the columns named."""
        from pyspark.sql import functions as f

        records, number = self.records, len(self.records.pieces)
        step = Compare(
            pieces=records.pieces,
            written=written,
            names=self.names,
            others=others,
            exchanges=len(self._moves),
            margins=tuple(margins),
        )
        absent = [f.lit(None).cast("long").alias(name) for name in _ROUTED[1:]]
        every = records.session.range(number).select(f.col("id").alias("piece"), *absent).unionAll(self._routed())
        rows = every.repartition(number, "piece").mapInArrow(step, long_columns(*compared_columns(step.width)))
        rows = records.keep(rows)
        cells = rows.where(f"kind <> {_MEMBER}").groupBy("kind", "x", "y", "z").agg(f.sum("w0").alias("s"))
        sums = [f.sum("s"), f.sum(f.abs("s")), f.sum((f.col("s") != 0).cast("long"))]
        counted = {
            (kind, x): tuple(map(int, some)) for kind, x, *some in cells.groupBy("kind", "x").agg(*sums).collect()
        }
        members = rows.where(f"kind = {_MEMBER}").drop("kind").repartition("x", "y")
        flags = members.mapInArrow(CountPairs(len(self.names), len(others)), "x long, bits binary, n long")
        pairs = flags.groupBy("x", "bits").agg(f.sum("n")).collect()
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

    def iter_pairs(self, work: Path) -> Iterator[tuple[int, Int64s]]:
        """Yield the number of an exchange and pairs of row numbers, in the order of drawing, in batches."""
        from pyarrow import parquet
        from pyspark.sql import functions as f

        for number, (_, pairs) in enumerate(self._moves):
            folder = work / f"pairs-{number}"
            folder.mkdir(mode=0o700)
            place = f.floor((f.col("k") - 1) / _SLICE).cast("long").alias("s")
            rows = pairs.frame.select(place, "k", f.col("a.i").alias("a"), f.col("b.i").alias("b"))
            slices = max(1, -(-len(pairs) // _SLICE))
            rows.repartition(slices, "s").mapInArrow(WritePairs(folder), long_columns("n")).agg(f.sum("n")).head()
            for path in sorted(folder.glob("*.parquet")):
                table = parquet.read_table(path)
                yield number, np.column_stack([table.column(name).to_numpy() for name in "ab"])


@dataclass(frozen=True, eq=False, kw_only=True)
class Compared:
    """What was counted when both files were compared."""

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
        return self._count(stage, self.bits[:, self._after(name)])

    def count_moved(self, stage: int, names: Names) -> int:
        """Count the records of the pairs that have another value of any of these attributes than before."""
        first = 1 + 2 * len(self.names) + len(self.others)
        sides = [np.any(self.bits[:, [first + 2 * self.names.index(n) + s for n in names]], axis=1) for s in (0, 1)]
        return sum(self._count(stage, side) for side in sides)

    def _after(self, name: str) -> int:
        return 1 + len(self.names) + len(self.others) + self.names.index(name)

    def _count(self, stage: int, flags: Flags) -> int:
        """Count the pairs of two records, of an exchange, that have these flags."""
        return int(self.numbers[flags & self.bits[:, 0] & (self.stages == stage)].sum())
