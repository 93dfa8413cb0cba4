"""Cells of two files counted by a Spark cluster; what the driver sees is how many cells have which counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safeswap.engines.spark import SparkRecords, all_of, label
from safeswap.engines.spark_checks import words_of
from safeswap.engines.tallied_cells import TalliedCells, tallied
from safeswap.kernels.types import Names


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkCells:
    """The tallied cells; how many records both files have, took no part, and lie in another cell than before."""

    cells: TalliedCells
    records: int
    untouched: int
    moved: int
    changed: frozenset[str]


def compared(before: SparkRecords, after: SparkRecords, names: Names, *, limit: int) -> SparkCells:
    """Count the cells of ``names`` in two files whose records correspond by their identifier."""
    from pyspark.sql import functions as f

    width = range(len(names))
    both = _side(before, names, "b").join(_side(after, names, "a"), "i")
    same = [f.col(f"b{j}").eqNullSafe(f.col(f"a{j}")) for j in width]
    stayed = all_of([*same, f.col("bw0") == f.col("aw0"), f.col("bw1") == f.col("aw1")])
    both = both.withColumn("stayed", stayed)
    counts = [f.sum((~each).cast("long")) for each in same]
    told = both.agg(f.count("*"), f.sum(f.col("stayed").cast("long")), f.sum((~all_of(same)).cast("long")), *counts)
    records, untouched, moved, *differ = (int(value or 0) for value in told.head())
    now = both.select(*(f.col(f"a{j}").alias(f"g{j}") for j in width), *_signs(f, was=0, now=1, stayed="stayed"))
    was = both.select(*(f.col(f"b{j}").alias(f"g{j}") for j in width), *_signs(f, was=1, now=0, stayed=None))
    summed = was.unionAll(now).groupBy(*(f"g{j}" for j in width)).agg(*(f.sum(c).alias(c) for c in "bau"))
    kinds = summed.groupBy("b", "a").agg(f.sum("u"), f.count("*")).collect()
    return SparkCells(
        cells=tallied([tuple(map(int, kind)) for kind in kinds], limit=limit),  # type: ignore[misc]
        records=records,
        untouched=untouched,
        moved=moved,
        changed=frozenset(name for name, number in zip(names, differ, strict=True) if number),
    )


def _side(data: SparkRecords, names: Names, prefix: str) -> Any:
    """Identifier i, the labels of ``names``, and two words that stand for all other columns."""
    from pyspark.sql import functions as f

    own = data.schema.identifier
    assert own is not None  # noqa: S101  (checked before)
    labels = [
        label(data.column(name), data.arrow.field(name).type).alias(f"{prefix}{j}") for j, name in enumerate(names)
    ]
    others = [name for name in data.arrow.names if name not in names]
    words = words_of([label(data.column(name), data.arrow.field(name).type) for name in others])
    return data.frame.select(
        f.col(data.column(own.name)).alias("i"), *labels, *(w.alias(f"{prefix}w{j}") for j, w in enumerate(words))
    )


def _signs(f: Any, *, was: int, now: int, stayed: str | None) -> list[Any]:
    untouched = f.lit(0).cast("long") if stayed is None else f.col(stayed).cast("long")
    return [f.lit(was).cast("long").alias("b"), f.lit(now).cast("long").alias("a"), untouched.alias("u")]
