"""The engine for a Spark cluster: workers read and draw, Spark brings records together, the driver decides on counts.

Each record's draw is computed in the worker that reads the record, from the derived key and the identifier, so a
retried task gives the same result. Spark moves row numbers, draws and codes, all of them integers. The driver sees
counts of classes and of slices of draws only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays.cells import CellSet
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Int64s, Rows, Words
from safeswap.engines.base import (
    DRAW,
    KEEP,
    Cells,
    Classes,
    Constraint,
    Derivation,
    Ends,
    Kernel,
    Need,
    PairRequest,
    Repair,
    Table,
    lacks_error,
    order_classes,
    prefix_share,
    repair,
)
from safeswap.engines.spark.draws import (
    PARTNER,
    CellCount,
    Draw,
    GroupRun,
    IdentifierCheck,
    IdentityBlocks,
    LowDraws,
    NumberPairs,
    PieceRun,
    Race,
    Step,
    TableDraw,
    Walk,
    Zeros,
    value_codes,
)
from safeswap.engines.spark.session import (
    MOST_RECORDS,
    PACKETS,
    cut_pieces,
    long_columns,
    packs_as_integer,
    unpack,
)
from safeswap.engines.stream import RecordStream
from safeswap.files.coded_columns import load_coded
from safeswap.files.parquet import ParquetFiles
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import Targeting

_SLICE = 1_000_000
_MOST_COUNTS = 200_000  # most rows of counts the driver collects at once
_OWN = "i"
_EXPONENT = 12  # bits of sign and exponent, mostly equal among times


class SparkRecords:
    """The records of files, read by the workers of a Spark cluster; a record is known by its row number."""

    name: ClassVar[str] = "spark"
    lacks: ClassVar[Mapping[Need, str]] = {
        Need.POSITIONS: "it draws by an identifier, which stays with its record if the files are cut otherwise",
        Need.WHOLE_FILE: "no machine of a cluster holds the whole file",
        Need.VALUE_CHANGES: "it checks what pairs of records promise, not what new values do",
        Need.HOUSEHOLDS: "it moves records one by one; mask the file of households, and merge",
        Need.RECORDS: "it counts cells where the records are",
        Need.PARTNERS: "a whole stratum is searched in keyed order, and without strata that is the whole file",
        Need.SIZES: "arrivals depend on the counts of all cells, which its race does not carry",
    }

    def __init__(self, session: Any, files: ParquetFiles, schema: Schema) -> None:
        self.session, self.files, self.schema = session, files, schema
        self.pieces = cut_pieces(files)
        self._kept: list[Any] = []
        self._settled = 0
        self._code_key = secrets.token_bytes(32)

    def prepare(self, *, identity_key: bytes, work: Path) -> None:
        """Set what drawing needs: the key of the identities, and a directory that driver and workers share."""
        self._identity_key, self._work = identity_key, work

    def close(self) -> None:
        """Release frames cached in memory and on the workers' disks."""
        for frame in self._kept:
            frame.unpersist()

    def __len__(self) -> int:
        return len(self.files)

    @property
    def attributes(self) -> Names:
        """The attributes, in file order."""
        return self.schema.names

    @property
    def held(self) -> None:
        """Nothing: the records are in the cluster."""
        return

    @property
    def own(self) -> str:
        """The name of the identifier."""
        assert self.schema.identifier is not None  # noqa: S101  (checked before the engine is called)
        return self.schema.identifier.name

    def kind(self, name: str) -> pa.DataType:
        """Return the type of the values of a column: a dictionary is a way to store them."""
        self.schema[name]
        kind = self.files.schema.field(name).type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    def read(self, step: Step, names: Names, columns: str) -> Any:
        """Read some columns piece by piece, one task each, and return what the step makes of them."""
        return self.list_pieces().mapInArrow(PieceRun(self.pieces, names, step), columns)

    def list_pieces(self) -> Any:
        """Return the numbers of all pieces, dealt to the tasks."""
        return self.session.range(0, len(self.pieces), 1, self.tasks)

    @property
    def tasks(self) -> int:
        """The number of tasks in which all pieces are read: starting one takes longer than reading a small piece."""
        wanted = max(int(self.session.conf.get("spark.sql.shuffle.partitions")), len(self) // MOST_RECORDS)
        return max(1, min(len(self.pieces), wanted))

    def count_absent(self, missing: Names) -> tuple[int, bool]:
        """Count the records without an identifier, and return whether the others ascend from record to record."""
        step = IdentifierCheck(self.pieces, self.own, missing)
        found = self.read(step, (self.own,), long_columns("absent", "ascends")).collect()
        return sum(absent for absent, _ in found), all(ascends for _, ascends in found)

    def count_repeated(self) -> int:
        """Count the records that share their identifier with another."""
        from pyspark.sql import functions as f

        blocks = self.read(IdentityBlocks(self._identity_key), (self.own,), long_columns("x", "y"))
        shared = blocks.groupBy("x", "y").count().where("count > 1")
        return int(shared.agg(f.sum("count")).head()[0] or 0)

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        return len({row[0] for row in self._cells((name,), most=2).select("g0").collect()}) < 2

    def is_unique(self, name: str) -> bool:
        """Return True if every record has a value of an attribute, and no two have the same."""
        from pyspark.sql import functions as f

        counted = self._cells((name,)).groupBy("g0").agg(f.sum("n").alias("n"))
        return not counted.where("g0 = 0 OR n > 1").limit(1).count()

    def count(self, *keys: Names) -> tuple[Cells, ...]:
        """Count the records by each set of attributes; the driver gets one row per cell."""
        return tuple(self._count(names) for names in keys)

    def _count(self, names: Names) -> Cells:
        from pyspark.sql import functions as f

        width = range(len(names))
        values = [f.first(f"v{j}").alias(f"v{j}") for j in width]
        rows = self._cells(names).groupBy(*(f"g{j}" for j in width)).agg(f.sum("n"), *values).collect()
        packed = [pa.array([row[len(names) + 1 + j] for row in rows], self._pack_type(n)) for j, n in enumerate(names)]
        columns = [unpack(column, self.kind(name)) for column, name in zip(packed, names, strict=True)]
        return Cells(
            names=names,
            codes=np.array([row[: len(names)] for row in rows], dtype=np.int64).reshape(-1, len(names)),
            counts=np.array([row[len(names)] for row in rows], dtype=np.int64),
            values=pa.table(columns, names=list(names)),
        )

    def _cells(self, names: Names, most: int | None = None) -> Any:
        """Return the cells of each piece: codes g0, g1, …, values v0, v1, … and the number n of records."""
        kept = [f"v{j} {'long' if packs_as_integer(self.kind(name)) else 'binary'}" for j, name in enumerate(names)]
        columns = ", ".join([long_columns("n", *(f"g{j}" for j in range(len(names)))), *kept])
        return self.read(CellCount(self._code_key, most), names, columns)

    def _pack_type(self, name: str) -> pa.DataType:
        return pa.int64() if packs_as_integer(self.kind(name)) else pa.binary()

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates."""
        from pyspark.sql import functions as f

        names = constraint.names
        labels = [f"g{j}" for j in range(len(names))]
        rows = self._cells(names).groupBy(*labels).agg(f.sum("n")).collect()
        coded = _number_labels([row[: len(names)] for row in rows], self._zeros(constraint))
        counts = np.array([row[-1] for row in rows], dtype=np.int64)
        # Any order works as long as classes of a stratum are adjacent.
        return order_classes(coded, counts, [(i,) for i in range(len(rows))], constraint)[1]

    def _zeros(self, constraint: Constraint) -> Zeros:
        """Return the codes of −0.0 and 0.0 of the attributes that must differ: these two do not differ."""
        names = constraint.names
        found = {}
        for place in range(len(constraint.equal), len(names)):
            if pa.types.is_floating(kind := self.kind(names[place])):
                minus, zero = value_codes(pa.array([-0.0, 0.0]).cast(kind), self._code_key).tolist()
                found[place] = (minus, zero)
        return found

    def pair(self, request: PairRequest) -> SparkPairs:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        if request.targeting is not None and request.targeting.rule == "pps":
            raise lacks_error(self.name, Need.SIZES, self.lacks[Need.SIZES])
        if request.partners is not None:
            raise lacks_error(self.name, Need.PARTNERS, self.lacks[Need.PARTNERS])
        if request.targeting is None:
            drawn, found = self._walk_prefixes(request)
        else:
            drawn = self._race_records(request, request.targeting)
            found = self._walk(drawn, request)
        if found.number < request.wanted and request.repair:
            found = self._repair(request, drawn, found)
        return found

    def draw(
        self,
        names: Names,
        key: bytes,
        *,
        keep: Ends | None = None,
        among: CellSet | None = None,
        derive: Derivation | None = None,
    ) -> SparkTable:
        """Compute draws and codes in the workers that have the records."""
        added = () if derive is None else tuple(name for name in derive.adds if name != KEEP)
        columns = (*names, *added)
        step = TableDraw(names, self._draw(key), keep, among, derive)
        listed = long_columns("i", "h", "l", *(f"c{j}" for j in range(len(columns))))
        return SparkTable(self, self.read(step, (self.own, *names), listed), columns)

    def load(self, names: Names) -> Microdata:
        """Let the driver read some attributes into memory, as codes where that loses nothing."""
        return load_coded(self.files, self.schema, names)

    def words(self, rows: Rows, key: bytes) -> Words:
        """Return the whole draws of some records; the driver reads their identifiers."""
        stream = RecordStream(self.files, self.schema)
        return stream.words(rows, draw_key=key, identity_key=self._identity_key)

    def pair_rows(self, rows: Rows) -> SparkPairs:
        """Hand the pairs to the workers, in a file of the job."""
        from pyarrow import parquet

        self._settled += 1
        path = self._work / f"step-{self._settled}.parquet"
        columns = [np.arange(1, len(rows) + 1), *(np.ascontiguousarray(side) for side in rows.T)]
        parquet.write_table(pa.table([pa.array(column, pa.int64()) for column in columns], names=["k", "a", "b"]), path)
        frame = self.session.read.schema(long_columns("k", "a", "b")).parquet(str(path.absolute()))
        return SparkPairs(frame=frame, number=len(rows))

    def _draw(self, key: bytes) -> Draw:
        return Draw(key, self._identity_key, self._code_key)

    def _walk_prefixes(self, request: PairRequest) -> tuple[Any, SparkPairs]:
        records, expected, share = len(self), request.pairs_per_record, 0.0
        while True:
            share = prefix_share(request, records, expected, share)
            share = 1.0 if share > 0.5 else share
            drawn = self._draw_records(request, share)
            found = self._walk(drawn, request, share)
            if found.number >= request.wanted or share >= 1.0:
                return drawn, found
            expected = (found.number + 1) / (share * records + 1)

    def _walk_of(self, request: PairRequest, share: float = 1.0) -> Walk:
        """Return how the records of a request are walked, if this share of them is."""
        constraint, records, place = request.constraint, len(self), len(request.constraint.equal)
        lead, words = (0, 2) if request.targeting is None else (_EXPONENT, 3)
        bits = (records // _SLICE).bit_length()
        groups = []
        for group in constraint.unequal:
            groups.append(tuple(range(place, place + len(group))))
            place += len(group)
        return Walk(
            words=words,
            strata=len(constraint.equal) if request.repair else 0,
            equal=len(constraint.equal),
            unequal=tuple(groups),
            width=1 + words + len(constraint.names),
            zeros=self._zeros(constraint),
            bits=lead + bits if share * 2**bits > 1 else 0,
            parts=max(1, int(share * 2**bits)),
        )

    def _draw_records(self, request: PairRequest, share: float) -> Any:
        """Return the records with a low draw, as packets."""
        most, bits = min(int(share * 2.0**64), 2**64 - 1), self._walk_of(request, share).bits
        step = LowDraws(self._draw(request.draw_key), most, bits)
        return self.keep(self.read(step, (self.own, *request.constraint.names), PACKETS))

    def _race_records(self, request: PairRequest, targeting: Targeting) -> Any:
        """Return all records, by arrival in the race: sooner where their cell has fewer than n records; as packets."""
        from pyspark.sql import functions as f

        names, keys = request.constraint.names, targeting.keys or self.schema.categorical
        wide = tuple(dict.fromkeys((*names, *keys)))
        step = Race(self._draw(request.draw_key), targeting.weight)
        columns = long_columns("i", "usual", "sooner", "l", "m", *(f"g{j}" for j in range(len(wide))))
        raced = self.read(step, (self.own, *wide), columns)
        places = [wide.index(key) for key in keys]
        small = (
            raced.groupBy(*(f.col(f"g{j}").alias(f"q{j}") for j in places)).count().where(f.col("count") < targeting.n)
        )
        same = all_of([f.col(f"g{j}") == f.col(f"q{j}") for j in places])
        sooner = f.when(f.col("count").isNotNull(), f.col("sooner")).otherwise(f.col("usual")).alias("h")
        # Two first words may be equal: the second one, which makes the draw unique, then decides.
        chosen = raced.join(small, same, "left").select(_OWN, sooner, "l", "m", *(f"g{j}" for j in range(len(names))))
        return self.keep(chosen.mapInArrow(self._walk_of(request).pack, PACKETS))

    def _walk(self, drawn: Any, request: PairRequest, share: float = 1.0) -> SparkPairs:
        """Pair along the keyed order, slice by slice, and number the first pairs by their later record."""
        from pyspark.sql import functions as f

        walk = self._walk_of(request, share)
        here, several = drawn, walk.bits > 0
        if several:  # each slice has to know which strata begin with the second record of a pair
            counted = drawn.mapInArrow(walk.count_strata, PACKETS).repartition(walk.parts, "part")
            here = drawn.unionAll(counted.mapInArrow(walk.find_odd, PACKETS))
        walked = here.repartition(walk.parts, "part").mapInArrow(walk.pair, PACKETS)
        if several:
            walked = self.keep(walked)
            singles = walked.where("kind = 1").repartition(walk.parts, "part").mapInArrow(walk.pair_singles, PACKETS)
            walked = walked.where("kind = 0").unionAll(singles)
        pairs = self.keep(walked)
        counts: dict[int, int] = {}
        for part, size in pairs.select("part", f.length("packet")).collect():
            counts[part] = counts.get(part, 0) + size // (8 * (walk.words + 2))
        before, total = {}, 0
        for part in sorted(counts):
            before[part], total = total, total + counts[part]
        step = NumberPairs(walk.words, before, request.wanted)
        frame = pairs.repartition(walk.parts, "part").mapInArrow(step, long_columns("k", "a", "b"))
        return SparkPairs(frame=self.keep(frame), number=min(total, request.wanted))

    def number_rows(self, frame: Any, groups: Sequence[str], records: int) -> Any:
        """Number records from 1 within their group in the order of h and l, as column n.

        A large group is cut into slices of draws that are numbered in parallel, offset by the counts of the slices
        before.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        bits = max(1, (records // _SLICE).bit_length())
        if records <= _SLICE and groups:
            return frame.withColumn("n", f.row_number().over(Window.partitionBy(*groups).orderBy("h", "l")))
        sliced = frame.withColumn("s", f.shiftright("h", 64 - bits))  # leading bits, including the sign
        counts = sliced.groupBy(*groups, "s").count()
        before = Window.partitionBy(*groups).orderBy("s").rowsBetween(Window.unboundedPreceding, -1)
        offsets = counts.select(
            *(f.col(g).alias(f"o_{g}") for g in groups),
            f.col("s").alias("o_s"),
            f.coalesce(f.sum("count").over(before), f.lit(0)).alias("offset"),
        )
        same = [f.col(g) == f.col(f"o_{g}") for g in groups] + [f.col("s") == f.col("o_s")]
        within = f.row_number().over(Window.partitionBy(*groups, "s").orderBy("h", "l"))
        numbered = sliced.withColumn("m", within).join(offsets, all_of(same))
        return numbered.withColumn("n", f.col("m") + f.col("offset")).drop(
            "s", "m", "offset", "o_s", *(f"o_{g}" for g in groups)
        )

    def _repair(self, request: PairRequest, drawn: Any, found: SparkPairs) -> SparkPairs:
        """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes."""
        from pyspark.sql import functions as f

        labels = [f"g{j}" for j in range(len(request.constraint.names))]
        drawn = self._list_drawn(request, drawn)
        rows = drawn.groupBy(*labels).agg(f.count("*"), f.min(f.struct("h", "l"))).collect()
        coded = _number_labels([row[: len(labels)] for row in rows], self._zeros(request.constraint))
        counts = np.array([row[-2] for row in rows], dtype=np.int64)
        order, classes = order_classes(coded, counts, [tuple(row[-1]) for row in rows], request.constraint)
        named = [(number, *rows[place][: len(labels)]) for number, place in enumerate(order.tolist())]
        numbers = f.broadcast(
            self.session.createDataFrame(named, long_columns("q", *(f"q{j}" for j in range(len(labels)))))
        )
        same = all_of([f.col(label) == f.col(f"q{j}") for j, label in enumerate(labels)])
        classed = self.keep(drawn.join(numbers, same).select(_OWN, "h", "l", "q"))
        sides = [found.frame.select("k", f.col(side).alias(_OWN)) for side in "ab"]
        members = self.keep(sides[0].unionAll(sides[1]).join(classed.select(_OWN, "q"), _OWN))
        first = _FirstPairs(members, found.number, len(classes.counts))
        decided = repair(classes, wanted=request.wanted, found=found.number, first=first.counts)
        rest = classed.join(members.where(f.col("k") <= decided.kept).select(_OWN), _OWN, "left_anti")
        return self._deal_pairs(decided, rest, found)

    def _list_drawn(self, request: PairRequest, drawn: Any) -> Any:
        """Return the rows of packets; l is what decides among equal h."""
        from pyspark.sql import functions as f

        walk = self._walk_of(request)
        labels = [f"g{j}" for j in range(walk.width - 1 - walk.words)]
        rows = drawn.mapInArrow(walk.unpack, long_columns(*"ihlm"[: 1 + walk.words], *labels))
        return rows if walk.words == 2 else rows.withColumn("l", f.struct("l", "m")).drop("m")

    def _deal_pairs(self, decided: Repair, rest: Any, found: SparkPairs) -> SparkPairs:
        from pyspark.sql import functions as f

        columns = "z long, first long, last long, side long, pair long"
        intervals = f.broadcast(self.session.createDataFrame(decided.intervals.tolist(), columns))
        numbered = self.number_rows(rest, ["q"], 1)
        rank = f.col("n") - 1
        placed = numbered.join(
            intervals, (f.col("q") == f.col("z")) & (rank >= f.col("first")) & (rank < f.col("last"))
        ).withColumn("pair", f.col("pair") + rank - f.col("first"))
        both = placed.groupBy("pair").agg(
            f.min_by(_OWN, "side").alias("a"),
            f.max_by(_OWN, "side").alias("b"),
            f.max(f.struct("h", "l")).alias("t"),
        )
        dealt = both.select("a", "b", f.col("t.h").alias("h"), f.col("t.l").alias("l"))
        place = (f.col("n") + decided.kept).cast("long").alias("k")
        numbered = self.number_rows(self.keep(dealt), [], 1).select(place, "a", "b")
        total = decided.kept + decided.wanted
        frame = found.frame.where(f.col("k") <= decided.kept).unionAll(numbered.where(f.col("k") <= total))
        return SparkPairs(frame=self.keep(frame), number=total)

    def checkpoint(self, frame: Any) -> Any:
        """Write a frame to the job's own directory and read it back, which truncates its lineage.

        For work of many steps: a plan that repeats all of them takes longer to build than to run. Data on disk also
        outlast a worker.
        """
        self._settled += 1
        path = str(self._work / f"step-{self._settled}")
        frame.write.parquet(path)
        return self.session.read.schema(frame.schema).parquet(path)

    def keep(self, frame: Any) -> Any:
        """Persist a frame in memory and on the workers' disks until the engine is closed."""
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept


class SparkTable:
    """Rows of integers in Spark: row number i, both words of the draw (h, l), and columns c0, c1, …."""

    def __init__(self, records: SparkRecords, frame: Any, columns: Names) -> None:
        self._records, self.frame, self._columns = records, frame, columns

    def map_groups(self, by: Names, order: Names, kernel: Kernel) -> SparkTable:
        """Bring each group to one worker, sorted, and run the kernel there; partners are held by their row number."""
        from pyspark.sql.types import LongType, StructField, StructType

        read = tuple(dict.fromkeys((*by, *kernel.needs)))
        listed = [f"c{self._columns.index(name)}" for name in read]
        chosen = self.frame.select(_OWN, "h", "l", *listed)
        groups = listed[: len(by)]
        ordered = chosen.repartition(*groups).sortWithinPartitions(*groups, *self._order(order))
        columns = (*by, *kernel.adds)
        own = ordered.schema[_OWN]
        fields = [own, StructField(PARTNER, own.dataType), *(StructField(name, LongType()) for name in ("h", "l"))]
        fields += [StructField(f"c{j}", LongType()) for j in range(len(columns))]
        mapped = ordered.mapInArrow(GroupRun(read, len(by), kernel), StructType(fields))
        return SparkTable(self._records, self._records.checkpoint(mapped), columns)

    def where(self, name: str, value: int) -> SparkTable:
        """Return the rows with this value in a column."""
        from pyspark.sql import functions as f

        return SparkTable(self._records, self.frame.where(f.col(self._column(name)) == value), self._columns)

    def union(self, other: Table) -> SparkTable:
        """Return the rows of both tables."""
        assert isinstance(other, SparkTable)  # noqa: S101  (tables of one engine)
        return SparkTable(self._records, self.frame.unionByName(other.frame), self._columns)

    def totals(self, *names: str) -> tuple[int, ...]:
        """Return the sums of some columns."""
        from pyspark.sql import functions as f

        return tuple(int(total or 0) for total in self.frame.agg(*(f.sum(self._column(name)) for name in names)).head())

    def distinct(self, names: Names) -> Int64s:
        """Return the distinct combinations of some columns."""
        rows = self.frame.select(*(self._column(name) for name in names)).distinct().collect()
        return np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, len(names))

    def pairs(self, first: str, partner: str, order: Names) -> SparkPairs:
        """Pair each row in which ``first`` is 1 with its partner."""
        from pyspark.sql import functions as f

        ranked = [self._column(name) for name in order if name != DRAW]
        chosen = self._records.keep(self.where(first, 1).frame.select(_OWN, PARTNER, "h", "l", *ranked))
        number = chosen.count()
        numbered = self._records.number_rows(chosen, ranked, number)
        # Numbered within each combination of the other columns: those of the combinations before come first.
        before, offset = f.lit(0), 0
        for *labels, count in sorted(tuple(row) for row in chosen.groupBy(*ranked).count().collect()):
            here = [f.col(column) == value for column, value in zip(ranked, labels, strict=True)]
            before = f.when(all_of(here), f.lit(offset)).otherwise(before) if here else before
            offset += count
        frame = numbered.select(
            (f.col("n") + before).cast("long").alias("k"),
            f.col(_OWN).alias("a"),
            f.col(PARTNER).alias("b"),
        )
        return SparkPairs(frame=self._records.keep(frame), number=number)

    def _column(self, name: str) -> str:
        return f"c{self._columns.index(name)}"

    def _order(self, names: Names) -> list[str]:
        return [part for name in names for part in (("h", "l") if name == DRAW else (self._column(name),))]


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkPairs:
    """Pairs as a dataframe: their place k, and the row numbers a and b."""

    frame: Any
    number: int

    def __len__(self) -> int:
        return self.number


class _FirstPairs:
    """Counts the records of each class in the first q pairs, by ever finer slices of the places."""

    def __init__(self, members: Any, pairs: int, classes: int) -> None:
        self._list_members = members
        self._classes = classes
        self._fan = max(64, min(4096, _MOST_COUNTS // max(classes, 1)))
        self._width = self._fan
        while self._width < pairs:
            self._width *= self._fan
        self._known: dict[tuple[int, int], Counts] = {}

    def counts(self, pairs: int) -> Counts:
        total = np.zeros(self._classes, dtype=np.int64)
        low, width = 0, self._width
        while low < pairs:
            before = self._count_before(low, width)
            step = width // self._fan
            part = (pairs - low) // step
            total += before[part]
            low, width = low + part * step, step
        return total

    def _count_before(self, low: int, width: int) -> Counts:
        """Return, for each slice of a range of places and for its end, the records per class in the slices before."""
        from pyspark.sql import functions as f

        if (low, width) not in self._known:
            step = width // self._fan
            part = f.floor((f.col("k") - 1 - low) / step).alias("part")
            within = self._list_members.where((f.col("k") > low) & (f.col("k") <= low + width))
            table = np.zeros((self._fan + 1, self._classes), dtype=np.int64)
            for row in within.groupBy(part, "q").count().collect():
                table[row[0] + 1, row[1]] = row[2]
            self._known[low, width] = np.cumsum(table, axis=0)
        return self._known[low, width]


def _number_labels(rows: Sequence[Sequence[int]], zeros: Zeros) -> Counts:
    """Return codes as an array, −0.0 as 0.0 where these do not differ."""
    labels = np.array(rows, dtype=np.int64).reshape(len(rows), -1)
    for place, (minus, zero) in zeros.items():
        labels[labels[:, place] == minus, place] = zero
    return labels


def all_of(conditions: Sequence[Any]) -> Any:
    """Combine conditions with AND."""
    result = conditions[0]
    for condition in conditions[1:]:
        result &= condition
    return result
