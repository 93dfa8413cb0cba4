"""The Confidentiality Edit of 1990 on a Spark cluster: households of the same key, matched by the rank of their draws.

The sample is walked where its records are, those of a key in one task. Those left over lie in one area per key and
take, by rank, the households of the key with the highest draws elsewhere. The driver sees counts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.sampling import RESERVED_FROM, draw_limit
from safeswap.arrays.types import Int64s
from safeswap.engines.spark.draws import Batches, drawing
from safeswap.engines.spark.engine import SparkEngine, SparkPairs, SparkRecords, all_of
from safeswap.methods.edit_1990.areas import FoundPartners
from safeswap.methods.edit_1990.same_key import pair_groups
from safeswap.methods.edit_1990.spec import Edit1990Spec

_TOP = 2**64 - 1
_SIGN = 2**63


class SparkHouseholds:
    """The households of a file in Spark."""

    def __init__(
        self, engine: SparkEngine, data: SparkRecords, spec: Edit1990Spec, *, draw_key: bytes, identity_key: bytes
    ) -> None:
        self._engine, self._data, self._spec = engine, data, spec
        self._keys = draw_key, identity_key
        self.names: Names = tuple(dict.fromkeys((*spec.geography, *spec.keys)))
        self._shared = [self.names.index(name) for name in spec.matched]
        self._across = [self.names.index(name) for name in spec.area(spec.across_level)]

    def missing(self, name: str) -> int:
        """Count the records with no value of an attribute, or a missing code."""
        from pyspark.sql import functions as f

        column = f.col(self._data.column(name))
        absent = column.isNull()
        if stated := self._data.schema[name].missing:
            absent |= column.cast("string").isin(list(stated))
        return int(self._data.frame.where(absent).count())

    def repeats(self, name: str) -> bool:
        """Return True if a household number is missing or occurs twice."""
        from pyspark.sql import functions as f

        return int(self._data.frame.agg(f.countDistinct(self._data.column(name))).head()[0]) < len(self._data)

    def straddling(self, coarse: str, fine: str) -> int:
        """Count the areas of a finer level that lie in more than one of a coarser one."""
        from pyspark.sql import functions as f

        outer = f.countDistinct(self._data.column(coarse)).alias("s")
        return int(self._data.frame.groupBy(self._data.column(fine)).agg(outer).where("s > 1").count())

    def single_areas(self) -> tuple[int, int]:
        """Count the areas with several households but no other area to exchange with, and their households."""
        from pyspark.sql import functions as f

        within, across = (
            [self._data.column(name) for name in self._spec.area(level)]
            for level in (self._spec.within_level, self._spec.across_level)
        )
        cells = self._data.frame.groupBy(*within, *(c for c in across if c not in within)).count()
        areas = cells.groupBy(*within).agg(f.count("*").alias("areas"), f.sum("count").alias("households"))
        single = areas.where("areas = 1 AND households > 1")
        number, households = single.agg(f.count("*"), f.sum("households")).head()
        return int(number), int(households or 0)

    def partners(self) -> FoundPartners:
        """Draw the sample and find partners for it."""
        from pyspark.sql import functions as f

        sampled, small_blocks = self._draw_sample()
        walked = self._walk_sample(sampled)
        left = self._rank_left(walked)
        groups = self._engine.checkpoint(
            left.groupBy(*self._g(self._shared)).agg(
                f.count("*").alias("w"), *(f.min(f"g{j}").alias(f"o{j}") for j in self._across)
            )
        )
        offered = self._offer_outside(groups, sampled)
        inside = self._pair_inside(walked)
        opened = self._find_openings(groups, offered, inside)
        within = self._close_pairs(inside, opened, left)
        outside = self._pair_outside(opened, left, offered)
        first, second = int(within.count()), int(outside.count())
        total, in_small = (int(value or 0) for value in sampled.agg(f.count("*"), f.sum("small")).head())
        pairs = self._place_pairs(within, outside, first)
        return FoundPartners(
            pairs=SparkPairs(frame=pairs, number=first + second, columns=self.names),
            sampled=total,
            in_small_blocks=in_small,
            small_blocks=small_blocks,
            inside=first,
            outside=second,
            alone=total - 2 * first - second,
            single_areas=self.single_areas()[0],
            within=self._count_agreeing(pairs),
        )

    def _g(self, places: Sequence[int], prefix: str = "g") -> list[str]:
        return [f"{prefix}{j}" for j in places]

    def _draw(self, *, least: int = 0, most: int = _TOP) -> Any:
        draw = drawing(*self._keys, most, least=least)
        return self._data.through(draw, self.names, ("h", "l")).select("*", *self._data.labels(self.names))

    def _draw_sample(self) -> tuple[Any, int]:
        """Return the sample, with households of small blocks marked, and the number of such blocks."""
        from pyspark.sql import functions as f

        spec = self._spec
        usual, most = (int(draw_limit(rate)) for rate in (spec.rate, max(spec.rate, spec.small_block_rate or 0.0)))
        drawn = self._draw(most=most - 1) if most else self._draw().limit(0)
        if spec.small_block_rate is None:
            return self._engine.checkpoint(drawn.withColumn("small", f.lit(0))), 0
        area = [self.names.index(name) for name in spec.area(spec.geography[-1])]
        labels = self._data.frame.select(
            *(f.col(self._data.column(self.names[j])).alias(f"v{j}") for j in range(len(self.names)))
        ).select(*self._data.labels(self.names))
        counts = labels.groupBy(*(f.col(f"g{j}").alias(f"b{j}") for j in area)).count()
        small = self._engine.checkpoint(counts.where(f.col("count") < spec.small_block_units))
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"b{j}")) for j in area])
        marked = drawn.join(small, same, "left").withColumn("small", f.col("count").isNotNull().cast("int"))
        chosen = marked.where((f.col("h") < f.lit(usual - _SIGN)) | (f.col("small") == 1))
        return self._engine.checkpoint(chosen.drop("count", *self._g(area, "b"))), int(small.count())

    def _walk_sample(self, sampled: Any) -> Any:
        """Return the sample with each record's place n in its group and the identifier p of its partner."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StructField, StructType

        first = [f.col("i"), *(f.col(f"g{j}").alias(f"s{j}") for j in self._shared)]
        first += [f.col(f"g{j}").alias(f"x{j}") for j in self._across]
        rest = [column for column in sampled.columns if column != "i"]
        groups = [f"s{j}" for j in self._shared]
        arranged = sampled.select(*first, *rest).repartition(*groups).sortWithinPartitions(*groups, "h", "l")
        fields = [*arranged.schema.fields, StructField("n", LongType())]
        fields.append(StructField("p", arranged.schema["i"].dataType))
        walked = arranged.mapInArrow(make_walker(len(self._shared), len(self._across)), StructType(fields))
        return self._engine.checkpoint(walked.select("i", *rest, "n", "p"))

    def _rank_left(self, walked: Any) -> Any:
        """Return the records that the walk left over, ranked within their group."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        by_draw = Window.partitionBy(*self._g(self._shared)).orderBy("n")
        return self._engine.checkpoint(walked.where(f.col("p").isNull()).withColumn("k", f.row_number().over(by_draw)))

    def _offer_outside(self, groups: Any, sampled: Any) -> Any:
        """Return households from outside by rank: as many elsewhere as needed, and one in the same area.

        First from the reserve of the highest draws; from all others only if that is not enough.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        reserved = int(RESERVED_FROM)
        found = self._engine.checkpoint(self._offers(self._draw(least=reserved), groups, sampled))
        keys = self._g(self._shared, "q")
        enough = found.where("elsewhere").groupBy(*keys).agg(f.count("*").alias("s"))
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"q{j}")) for j in self._shared])
        short = groups.join(enough, same, "left").where(f.coalesce("s", f.lit(0)) < f.col("w")).drop("s", *keys)
        short = self._engine.checkpoint(short)
        if short.count():
            found = found.unionByName(self._offers(self._draw(most=reserved - 1), short, sampled))
        by_rank = Window.partitionBy(*keys, "elsewhere").orderBy(f.desc("h"), f.desc("l"))
        wanted = f.when(f.col("elsewhere"), f.col("w")).otherwise(1)
        return self._engine.checkpoint(found.withColumn("k", f.row_number().over(by_rank)).where(f.col("k") <= wanted))

    def _offers(self, drawn: Any, groups: Any, sampled: Any) -> Any:
        from pyspark.sql import functions as f

        named = groups.select(
            *(f.col(f"g{j}").alias(f"q{j}") for j in self._shared), "w", *(f"o{j}" for j in self._across)
        )
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"q{j}")) for j in self._shared])
        here = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"o{j}")) for j in self._across])
        return drawn.join(named, same).join(sampled.select("i"), "i", "left_anti").withColumn("elsewhere", ~here)

    def _record(self, prefix: str = "") -> Any:
        from pyspark.sql import functions as f

        width = range(len(self.names))
        columns = ["h", "l", "i", *(f"g{j}" for j in width), *(f"v{j}" for j in width)]
        return f.struct(*(f.col(f"{prefix}{column}").alias(column) for column in columns))

    def _pair_inside(self, walked: Any) -> Any:
        """Return the pairs of the walk: the records a and b, the first of them at place n of its group."""
        from pyspark.sql import functions as f

        paired = walked.where(f.col("p").isNotNull())
        one = paired.select(self._record().alias("a"), f.col("n"), f.col("p").alias("partner"))
        other = paired.select(self._record().alias("b"), f.col("n").alias("m"), f.col("i").alias("partner"))
        return self._engine.checkpoint(one.join(other, "partner").where(f.col("n") < f.col("m")).select("a", "b", "n"))

    def _find_openings(self, groups: Any, offered: Any, inside: Any) -> Any:
        """Return pairs to open for a record left over whose possible partners outside all lie in its own area.

        Of each such group, the first pair with neither record in that area.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        keys = self._g(self._shared, "q")
        reach = offered.groupBy(*keys, *self._g(self._across, "o"), "w").agg(f.max("elsewhere").alias("anywhere"))
        stuck = reach.where((f.col("w") == 1) & ~f.col("anywhere"))
        same = all_of([f.col(f"a.g{j}").eqNullSafe(f.col(f"q{j}")) for j in self._shared])
        away = [
            ~all_of([f.col(f"{side}.g{j}").eqNullSafe(f.col(f"o{j}")) for j in self._across]) for side in ("a", "b")
        ]
        by_draw = Window.partitionBy(*keys).orderBy("n")
        found = inside.join(stuck, same).where(all_of(away)).withColumn("turn", f.row_number().over(by_draw))
        return self._engine.checkpoint(found.where("turn = 1").select("a", "b", *keys))

    def _close_pairs(self, inside: Any, opened: Any, left: Any) -> Any:
        """Return pairs inside the sample: those kept, and the first of each opened one with a record left over."""
        from pyspark.sql import functions as f

        kept = inside.join(opened.select(f.col("a.i").alias("gone")), f.col("a.i") == f.col("gone"), "left_anti")
        alone = left.select(*self._g(self._shared), self._record().alias("z"))
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"q{j}")) for j in self._shared])
        both = opened.join(alone, same)
        # A record begins with its draw, so the lesser one was drawn first.
        anew = both.select(f.least("a.h", "z.h").alias("t"), "a", "z")
        first = f.col("t") == f.col("a.h")
        fresh = anew.select(
            f.when(first, f.col("a")).otherwise(f.col("z")).alias("a"),
            f.when(first, f.col("z")).otherwise(f.col("a")).alias("b"),
        )
        return self._engine.checkpoint(kept.select("a", "b").unionAll(fresh))

    def _pair_outside(self, opened: Any, left: Any, offered: Any) -> Any:
        """Pair records left over, and the second of each opened pair, with outside households of the same rank."""
        from pyspark.sql import functions as f

        alone = left.select(*self._g(self._shared), f.col("k").alias("z"), self._record().alias("a"))
        others = offered.select(*self._g(self._shared, "q"), "k", "elsewhere", self._record().alias("f"))
        same = all_of([f.col(f"g{j}").eqNullSafe(f.col(f"q{j}")) for j in self._shared])
        matched = alone.join(others.where("elsewhere"), same & (f.col("z") == f.col("k")))
        renamed = opened.select(f.col("b").alias("a"), *(f.col(f"q{j}").alias(f"g{j}") for j in self._shared))
        freed = renamed.join(others, same)
        pairs = [frame.select("a", f.col("f").alias("b")) for frame in (matched, freed)]
        return self._engine.checkpoint(pairs[0].unionAll(pairs[1]))

    def _place_pairs(self, within: Any, outside: Any, first: int) -> Any:
        """Number all pairs as k: inside ones before the others, each part in the order of the draws."""
        from pyspark.sql import functions as f

        def number(frame: Any, after: int) -> Any:
            drawn = frame.select("a", "b", f.col("a.h").alias("h"), f.col("a.l").alias("l"))
            placed = self._engine.number_rows(drawn, [], len(self._data))
            return placed.select("a", "b", "h", "l", (f.col("n") + after).alias("k"))

        return self._engine.checkpoint(number(within, 0).unionAll(number(outside, first)))

    def _count_agreeing(self, pairs: Any) -> dict[str, int]:
        from pyspark.sql import functions as f

        sums = []
        for level in self._spec.geography:
            places = [self.names.index(name) for name in self._spec.area(level)]
            same = all_of([f.col(f"a.g{j}").eqNullSafe(f.col(f"b.g{j}")) for j in places])
            sums.append(f.sum(same.cast("long")))
        found = [int(value or 0) for value in pairs.agg(*sums).head()]
        return dict(zip(self._spec.geography, found, strict=True))


def make_walker(shared: int, areas: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function on batches sorted by group and draw that pairs the records of each group.

    Columns are the identifier, ``shared`` labels of the group, ``areas`` labels of the area, and others. The function
    adds the place n of a record in its group and the identifier p of its partner, null if it has none.

    >>> batch = pa.record_batch({"i": [7, 8, 9], "g": ["x", "x", "x"], "a": [1, 1, 2]})
    >>> (walked,) = make_walker(1, 1)([batch])
    >>> walked["n"].to_pylist(), walked["p"].to_pylist()
    ([0, 1, 2], [None, 9, 8])
    """

    def walk(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: pa.Table | None = None
        for batch in batches:
            fresh = pa.Table.from_batches([batch])
            held = fresh if held is None else pa.concat_tables([held, fresh])
            codes = _codes(held, range(1, 1 + shared))
            others = np.flatnonzero(codes != codes[-1]) if len(codes) else codes
            cut = int(others[-1]) + 1 if len(others) else 0
            yield from _walk_table(held.slice(0, cut), shared, areas)
            held = held.slice(cut)
        if held is not None:
            yield from _walk_table(held, shared, areas)

    return walk


def _walk_table(table: pa.Table, shared: int, areas: int) -> Iterator[pa.RecordBatch]:
    if not table.num_rows:
        return
    codes = _codes(table, range(1, 1 + shared))
    begins = np.r_[True, codes[1:] != codes[:-1]]
    bounds = np.append(np.flatnonzero(begins), len(codes))
    where = _codes(table, range(1 + shared, 1 + shared + areas)).astype(np.uint32)
    partner = pair_groups(bounds, where)
    place = np.arange(len(codes)) - bounds[np.cumsum(begins) - 1]
    taken = table.column(0).take(pa.array(partner, mask=partner < 0))
    full = table.append_column("n", pa.array(place)).append_column("p", taken)
    yield from full.combine_chunks().to_batches()


def _codes(table: pa.Table, places: Iterable[int]) -> Int64s:
    """Number the combinations of labels within this table."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for place in places:
        column = table.column(place).combine_chunks().dictionary_encode(null_encoding="encode")
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        combined = codes * (len(column.dictionary) + 1) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes
