"""The engine for a Spark cluster: counts by group-by, pairs by numbering, exchange by joins; nothing is collected.

Each record's draw is computed in the worker that has the record, from the derived key and the identifier, so a retried
task gives the same result. The driver sees counts of classes and of slices of draws only. Columns are called c0, c1, …
from reading to writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts
from safeswap.engines.base import Classes, Constraint, PairRequest, Repair, repair
from safeswap.engines.duckdb.engine import order_classes
from safeswap.engines.spark.draws import drawing, make_racer
from safeswap.errors import InternalError
from safeswap.model.schema import Schema
from safeswap.model.spec import Targeting

_SLICE = 1_000_000
_MOST_COUNTS = 200_000  # most rows of counts the driver collects at once
_OWN = "i"
_EXPONENT = 12  # bits of sign and exponent, mostly equal among times


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkRecords:
    """The records of a file as a Spark dataframe with internal names, and what is known about them."""

    frame: Any
    schema: Schema
    arrow: pa.Schema
    records: int

    def __len__(self) -> int:
        return self.records

    def column(self, name: str) -> str:
        """Return the internal name of a column."""
        self.schema[name]
        return f"c{self.arrow.names.index(name)}"

    def labels(self, names: Names) -> list[Any]:
        """Return the labels g0, g1, … of columns v0, v1, … that hold these attributes."""
        kinds = [self.arrow.field(name).type for name in names]
        return [label(f"v{j}", kind).alias(f"g{j}") for j, kind in enumerate(kinds)]

    def through(self, function: Any, names: Names, added: Sequence[str]) -> Any:
        """Pass identifier i and values v0, v1, … of some attributes through a function on Arrow batches.

        It adds integer columns after the identifier, and may drop records.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StructField, StructType

        identifier = self.schema.identifier
        assert identifier is not None  # noqa: S101  (checked before the engine is called)
        columns = [self.column(identifier.name), *(self.column(name) for name in names)]
        internal = [_OWN, *(f"v{j}" for j in range(len(names)))]
        chosen = self.frame.select(*(f.col(c).alias(n) for c, n in zip(columns, internal, strict=True)))
        own, *values = chosen.schema.fields
        schema = StructType([own, *(StructField(name, LongType()) for name in added), *values])
        return chosen.mapInArrow(function, schema)

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        column = label(self.column(name), self.arrow.field(name).type)
        return int(self.frame.select(column).distinct().limit(2).count()) < 2


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkPairs:
    """Pairs as a dataframe: structs a and b (identifier i, draw h and l, labels g…, values v…), place k."""

    frame: Any
    number: int
    columns: Names

    def __len__(self) -> int:
        return self.number


def label(column: str, kind: pa.DataType) -> Any:
    """Return a column as a label that is equal exactly where the values are.

    Spark equates −0.0 and 0.0; the text of a floating-point number distinguishes them and is the same for every NaN.
    """
    from pyspark.sql import functions as f

    if pa.types.is_floating(kind):
        return f.col(column).cast("string")
    return f.col(column)


_MINUS_ZERO, _ZERO = "-0.0", "0.0"  # as Spark writes them


class SparkEngine:
    """Records in Spark."""

    name = "spark"

    def __init__(self, session: Any, *, work: Path | None = None) -> None:
        self.session = session
        self.work = work
        self._kept: list[Any] = []
        self._settled = 0

    def close(self) -> None:
        """Release frames cached in memory and on the workers' disks."""
        for frame in self._kept:
            frame.unpersist()

    def classes(self, data: SparkRecords, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates."""
        names = _names(constraint)
        labels = [label(data.column(name), data.arrow.field(name).type).alias(f"g{j}") for j, name in enumerate(names)]
        rows = data.frame.groupBy(*labels).count().collect()
        kinds = [data.arrow.field(name).type for name in names]
        numbers = {j for j in range(len(constraint.equal), len(names)) if pa.types.is_floating(kinds[j])}
        coded = _number_labels([row[: len(names)] for row in rows], numbers)
        counts = np.array([row[-1] for row in rows], dtype=np.int64)
        # Any order works as long as classes of a stratum are adjacent.
        return order_classes(coded, counts, [(i,) for i in range(len(rows))], constraint)[1]

    def pairs(self, data: SparkRecords, request: PairRequest) -> SparkPairs:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        if request.targeting is None:
            drawn, found = self._walk_prefixes(data, request)
        else:
            drawn = self._race_records(data, request, request.targeting)
            found = self._walk(drawn, request, len(data))
        if found.number < request.wanted and request.repair:
            found = self._repair(request, drawn, found)
        return found

    def exchange(self, data: Any, attributes: Names, pairs: Any) -> Any:
        """Refuse: :meth:`changes` gives the new values instead."""
        raise InternalError("Spark gives changes instead of exchanging in place", code="no-exchange")

    def changes(self, pairs: SparkPairs, attributes: Names) -> Any:
        """Return, per record of a pair, identifier i, its old values (o0, …) and its new ones (n0, …)."""
        from pyspark.sql import functions as f

        places = [pairs.columns.index(name) for name in attributes]

        def side(own: str, other: str) -> Any:
            had = [f.col(f"{own}.v{p}").alias(f"o{j}") for j, p in enumerate(places)]
            gets = [f.col(f"{other}.v{p}").alias(f"n{j}") for j, p in enumerate(places)]
            return pairs.frame.select(f.col(f"{own}.{_OWN}").alias(_OWN), *had, *gets)

        return side("a", "b").unionAll(side("b", "a"))

    def _walk_prefixes(self, data: SparkRecords, request: PairRequest) -> tuple[Any, SparkPairs]:
        records, expected, share = len(data), request.pairs_per_record, 0.0
        while True:
            needed = request.wanted / max(expected, 1 / records)
            likely = (needed + 3 * np.sqrt(needed) + 1000) * 1.01 / records
            share = float(min(1.0, max(1.5 * share, likely)))
            share = 1.0 if share > 0.5 else share
            drawn = self._draw_records(data, request, share)
            found = self._walk(drawn, request, records)
            if found.number >= request.wanted or share >= 1.0:
                return drawn, found
            expected = (found.number + 1) / (share * records + 1)

    def _draw_records(self, data: SparkRecords, request: PairRequest, share: float) -> Any:
        """Return the records with a low draw: identifier i, words h and l, labels g0…, values v0…."""
        names = _names(request.constraint)
        threshold = min(int(share * 2.0**64), 2**64 - 1)
        drawn = data.through(drawing(request.draw_key, request.identity_key, threshold), names, ("h", "l"))
        return self.keep(drawn.select("*", *data.labels(names)))

    def _race_records(self, data: SparkRecords, request: PairRequest, targeting: Targeting) -> Any:
        """Return all records, with h and l by arrival in the race: sooner where their cell has fewer than n records."""
        from pyspark.sql import functions as f

        names, keys = _names(request.constraint), targeting.keys or data.schema.categorical
        wide = tuple(dict.fromkeys((*names, *keys)))
        race = make_racer(request.draw_key, request.identity_key, targeting.weight)
        raced = data.through(race, wide, ("usual", "sooner", "l")).select("*", *data.labels(wide))
        places = [wide.index(key) for key in keys]
        small = (
            raced.groupBy(*(f.col(f"g{j}").alias(f"q{j}") for j in places)).count().where(f.col("count") < targeting.n)
        )
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"q{j}")) for j in places])
        sooner = f.when(f.col("count").isNotNull(), f.col("sooner")).otherwise(f.col("usual")).alias("h")
        width = range(len(names))
        columns = [_OWN, sooner, "l", *(f"v{j}" for j in width), *(f"g{j}" for j in width)]
        return self.keep(raced.join(small, same, "left").select(*columns))

    def _walk(self, drawn: Any, request: PairRequest, records: int) -> SparkPairs:
        from pyspark.sql import functions as f

        names = _names(request.constraint)
        strata = [f"g{j}" for j in range(len(request.constraint.equal))] if request.repair else []
        lead = _EXPONENT if request.targeting is not None else 0
        numbered = self.number_rows(drawn, strata, records, lead)
        record = f.struct("h", "l", _OWN, *(f"g{j}" for j in range(len(names))), *(f"v{j}" for j in range(len(names))))
        both = (
            numbered.withColumn("p", ((f.col("n") - 1) / 2).cast("long"))
            .groupBy(*strata, "p")
            .agg(f.min(record).alias("a"), f.max(record).alias("b"), f.count("*").alias("members"))
            .where("members = 2")
        )
        pairs = both.where(_pair_condition(request.constraint, _floating_columns(drawn, request.constraint))).select(
            "a", "b", f.col("b.h").alias("h"), f.col("b.l").alias("l")
        )
        placed = self.number_rows(self.keep(pairs), [], records // 2, lead).withColumnRenamed("n", "k")
        frame = self.keep(placed.where(f.col("k") <= request.wanted))
        return SparkPairs(frame=frame, number=frame.count(), columns=names)

    def number_rows(self, frame: Any, groups: Sequence[str], records: int, lead: int = 0) -> Any:
        """Number records from 1 within their group in the order of h and l, as column n.

        A large group is cut into slices of draws that are numbered in parallel, offset by the counts of the slices
        before. The first ``lead`` bits of h carry little information.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        bits = lead + max(1, (records // _SLICE).bit_length())
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
        same = [f.col(g).eqNullSafe(f.col(f"o_{g}")) for g in groups] + [f.col("s") == f.col("o_s")]
        within = f.row_number().over(Window.partitionBy(*groups, "s").orderBy("h", "l"))
        numbered = sliced.withColumn("m", within).join(offsets, all_of(same))
        return numbered.withColumn("n", f.col("m") + f.col("offset")).drop(
            "s", "m", "offset", "o_s", *(f"o_{g}" for g in groups)
        )

    def _repair(self, request: PairRequest, drawn: Any, found: SparkPairs) -> SparkPairs:
        """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes."""
        from pyspark.sql import functions as f

        labels = [f"g{j}" for j in range(len(found.columns))]
        rows = drawn.groupBy(*labels).agg(f.count("*"), f.min(f.struct("h", "l"))).collect()
        coded = _number_labels([row[: len(labels)] for row in rows], _floating_columns(drawn, request.constraint))
        counts = np.array([row[-2] for row in rows], dtype=np.int64)
        order, classes = order_classes(coded, counts, [tuple(row[-1]) for row in rows], request.constraint)
        named = [(number, *rows[place][: len(labels)]) for number, place in enumerate(order.tolist())]
        kinds = ", ".join(
            ["q long", *(f"q{j} {drawn.schema[label].dataType.simpleString()}" for j, label in enumerate(labels))]
        )
        numbers = f.broadcast(self.session.createDataFrame(named, kinds))
        members = self.keep(self._join_class(self._list_members(found), labels, numbers).select("k", _OWN, "q"))
        first = _FirstPairs(members, found.number, len(classes.counts))
        decided = repair(classes, wanted=request.wanted, found=found.number, first=first.counts)
        rest = drawn.join(members.where(f.col("k") <= decided.kept).select(_OWN), _OWN, "left_anti")
        return self._deal_pairs(decided, self._join_class(rest, labels, numbers), found)

    def _list_members(self, found: SparkPairs) -> Any:
        from pyspark.sql import functions as f

        def side(name: str) -> Any:
            labels = [f.col(f"{name}.g{j}").alias(f"g{j}") for j in range(len(found.columns))]
            return found.frame.select("k", f.col(f"{name}.{_OWN}").alias(_OWN), *labels)

        return side("a").unionAll(side("b"))

    def _join_class(self, frame: Any, labels: Sequence[str], numbers: Any) -> Any:
        from pyspark.sql import functions as f

        same = all_of([f.col(label).eqNullSafe(f.col(f"q{j}")) for j, label in enumerate(labels)])
        return frame.join(numbers, same).drop(*(f"q{j}" for j in range(len(labels))))

    def _deal_pairs(self, decided: Repair, rest: Any, found: SparkPairs) -> SparkPairs:
        from pyspark.sql import functions as f

        width = range(len(found.columns))
        columns = "z long, first long, last long, side long, pair long"
        intervals = f.broadcast(self.session.createDataFrame(decided.intervals.tolist(), columns))
        numbered = self.number_rows(rest, ["q"], 1)
        rank = f.col("n") - 1
        placed = numbered.join(
            intervals, (f.col("q") == f.col("z")) & (rank >= f.col("first")) & (rank < f.col("last"))
        ).withColumn("pair", f.col("pair") + rank - f.col("first"))
        record = f.struct("h", "l", _OWN, *(f"g{j}" for j in width), *(f"v{j}" for j in width))
        both = placed.groupBy("pair").agg(
            f.min_by(record, "side").alias("a"),
            f.max_by(record, "side").alias("b"),
            f.max(f.struct("h", "l")).alias("t"),
        )
        dealt = both.select("a", "b", f.col("t.h").alias("h"), f.col("t.l").alias("l"))
        placed = self.number_rows(self.keep(dealt), [], 1).withColumn("k", f.col("n") + decided.kept).drop("n")
        kept = found.frame.where(f.col("k") <= decided.kept)
        total = decided.kept + decided.wanted
        frame = self.keep(kept.unionByName(placed.where(f.col("k") <= total)))
        return SparkPairs(frame=frame, number=total, columns=found.columns)

    def checkpoint(self, frame: Any) -> Any:
        """Write a frame to the job's own directory and read it back, which truncates its lineage.

        For work of many steps: a plan that repeats all of them takes longer to build than to run. Data on disk also
        outlast a worker.
        """
        if self.work is None:
            return self.keep(frame)
        self._settled += 1
        path = str(self.work / f"step-{self._settled}")
        frame.write.parquet(path)
        return self.session.read.schema(frame.schema).parquet(path)

    def keep(self, frame: Any) -> Any:
        """Persist a frame in memory and on the workers' disks until the engine is closed."""
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept


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
            before = self._before(low, width)
            step = width // self._fan
            part = (pairs - low) // step
            total += before[part]
            low, width = low + part * step, step
        return total

    def _before(self, low: int, width: int) -> Counts:
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


def _names(constraint: Constraint) -> Names:
    return (*constraint.equal, *(name for group in constraint.unequal for name in group), *constraint.carried)


def _floating_columns(drawn: Any, constraint: Constraint) -> set[int]:
    """Return the positions of floating-point attributes among those that must differ."""
    places = range(len(constraint.equal), len(_names(constraint)))
    return {j for j in places if drawn.schema[f"v{j}"].dataType.simpleString() in ("double", "float")}


def _number_labels(rows: Sequence[Sequence[Any]], numbers: set[int]) -> Counts:
    """Number labels of any type, column by column; −0.0 is 0.0 in columns ``numbers``, which hold text of floats."""
    columns = []
    for place, column in enumerate(zip(*rows, strict=True)):
        values = [bytes(value) if isinstance(value, bytearray) else value for value in column]
        if place in numbers:
            values = [_ZERO if value == _MINUS_ZERO else value for value in values]
        codes = {value: number for number, value in enumerate(dict.fromkeys(values))}
        columns.append([codes[value] for value in values])
    return np.array(columns, dtype=np.int64).T


def _pair_condition(constraint: Constraint, numbers: set[int]) -> Any:
    """Build the condition that a pair agrees and differs as required; −0.0 does not differ from 0.0."""
    from pyspark.sql import functions as f

    def value(side: str, j: int) -> Any:
        column = f.col(f"{side}.g{j}")
        return f.when(column == _MINUS_ZERO, f.lit(_ZERO)).otherwise(column) if j in numbers else column

    place = len(constraint.equal)
    groups = [f.col(f"a.g{j}").eqNullSafe(f.col(f"b.g{j}")) for j in range(place)]
    for group in constraint.unequal:
        same = all_of([value("a", j).eqNullSafe(value("b", j)) for j in range(place, place + len(group))])
        groups.append(~same)
        place += len(group)
    return all_of(groups)


def all_of(conditions: Sequence[Any]) -> Any:
    """Combine conditions with AND."""
    result = conditions[0]
    for condition in conditions[1:]:
        result &= condition
    return result
