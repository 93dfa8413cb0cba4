"""Cells of two files counted by a Spark cluster; the driver only sees numbers of cells by counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.engines.spark.engine import SparkRecords, all_of, label
from safeswap.engines.spilled_cells import TalliedCells, tally_kinds

# Checks are sums over records: no join and no collection.

Print = tuple[int, int, int]


def fingerprints(frame: Any, *column_sets: Sequence[str]) -> tuple[Print, ...]:
    """Return, per set of columns, the number of records and two order-independent sums of hashes.

    The sums detect faults of machines, not tampering: the hashes are public.
    """
    from pyspark.sql import functions as f

    sums = [f.count("*")]
    for columns in column_sets:
        added, mixed = words_of([f.col(column) for column in columns])
        sums.append(f.sum(added.cast("decimal(38,0)")))
        sums.append(f.bit_xor(mixed))
    records, *rest = (int(value or 0) for value in frame.agg(*sums).head())
    return tuple((records, added, mixed) for added, mixed in zip(rest[::2], rest[1::2], strict=True))


def words_of(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return two hashes of the values of some columns; Spark skips nulls, so their positions are hashed too."""
    from pyspark.sql import functions as f

    absent = [column.isNull() for column in columns]
    return f.xxhash64(*columns, *absent), f.xxhash64(f.lit(1), *columns, *absent)


def combine_fingerprints(*parts: tuple[Print, int]) -> Print:
    """Combine fingerprints: each with +1 if its records are added and −1 if they are removed.

    >>> combine_fingerprints(((3, 10, 6), 1), ((1, 4, 2), -1))
    (2, 6, 4)
    """
    records = total = mixed = 0
    for (number, added, xor), sign in parts:
        records, total, mixed = records + sign * number, total + sign * added, mixed ^ xor
    return records, total, mixed


def count_moved_cells(before: Any, after: Any, columns: Sequence[str], kinds: Sequence[pa.DataType]) -> int:
    """Count the cells over these columns whose count differs between the two frames."""
    from pyspark.sql import functions as f

    def counted(frame: Any, sign: int) -> Any:
        labels = [label(column, kind).alias(column) for column, kind in zip(columns, kinds, strict=True)]
        return frame.select(*labels, f.lit(sign).cast("long").alias("sign"))

    both = counted(before, -1).unionAll(counted(after, 1)).groupBy(*columns).agg(f.sum("sign").alias("s"))
    return int(both.where("s <> 0").count())


def count_pairs(pairs: Any, columns: Sequence[int], *, agree: bool) -> int:
    """Count the pairs that agree, or differ, in all of these columns."""
    from pyspark.sql import functions as f

    same = [f.col(f"a.g{j}").eqNullSafe(f.col(f"b.g{j}")) for j in columns]
    return int(pairs.where(all_of(same if agree else [~each for each in same])).count())


def count_compensating(
    touched: Any, had: Sequence[str], has: Sequence[str], others: Sequence[str], *, kinds: Sequence[pa.DataType]
) -> int:
    """Count changed records minus the net change of the cells; ``kinds`` are the types of ``had``, then ``others``."""
    from pyspark.sql import functions as f

    wide = [*had, *has, *others]
    types = [*kinds[: len(had)], *kinds[: len(had)], *kinds[len(had) :]]
    labelled = touched.select(*(label(column, kind).alias(column) for column, kind in zip(wide, types, strict=True)))
    old = labelled.select(*had, *others, f.lit(-1).cast("long").alias("sign"))
    new = labelled.select(*has, *others, f.lit(1).cast("long").alias("sign"))
    net = old.unionAll(new).groupBy(*had, *others).agg(f.abs(f.sum("sign")).alias("s")).agg(f.sum("s")).head()[0] or 0
    same = all_of([f.col(one).eqNullSafe(f.col(other)) for one, other in zip(had, has, strict=True)])
    return int(labelled.where(~same).count()) - int(net) // 2


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkCells:
    """The tallied cells; the numbers of records in both files, untouched, and in another cell than before."""

    cells: TalliedCells
    records: int
    untouched: int
    moved: int
    changed: frozenset[str]
    only_numbers: bool


def compare_cells(before: SparkRecords, after: SparkRecords, names: Names, *, limit: int) -> SparkCells:
    """Count the cells of ``names`` in two files whose records correspond by their identifier."""
    from pyspark.sql import functions as f

    width = range(len(names))
    both = _side(before, names, "b").join(_side(after, names, "a"), "i")
    same = [f.col(f"b{j}").eqNullSafe(f.col(f"a{j}")) for j in width]
    same_others, same_numbers = (
        all_of([f.col(f"b{word}") == f.col(f"a{word}") for word in words]) for words in (("w0", "w1"), ("n0", "n1"))
    )
    both = both.withColumn("stayed", all_of([*same, same_others, same_numbers]))
    counts = [f.sum((~each).cast("long")) for each in (all_of(same), same_others, same_numbers, *same)]
    sums = both.agg(f.count("*"), f.sum(f.col("stayed").cast("long")), *counts)
    records, untouched, moved, others, numbers, *differ = (int(value or 0) for value in sums.head())
    changed = frozenset(name for name, number in zip(names, differ, strict=True) if number)
    now = both.select(*(f.col(f"a{j}").alias(f"g{j}") for j in width), *_signs(f, was=0, now=1, stayed="stayed"))
    was = both.select(*(f.col(f"b{j}").alias(f"g{j}") for j in width), *_signs(f, was=1, now=0, stayed=None))
    summed = was.unionAll(now).groupBy(*(f"g{j}" for j in width)).agg(*(f.sum(c).alias(c) for c in "bau"))
    kinds = summed.groupBy("b", "a").agg(f.sum("u"), f.count("*")).collect()
    return SparkCells(
        cells=tally_kinds([tuple(map(int, kind)) for kind in kinds], limit=limit),  # type: ignore[misc]
        records=records,
        untouched=untouched,
        moved=moved,
        changed=changed,
        only_numbers=not others
        and bool(numbers or changed)
        and all(before.schema[name].kind.is_numeric for name in changed),
    )


def _side(data: SparkRecords, names: Names, prefix: str) -> Any:
    """Return identifier i, the labels of ``names``, and two words each for the other columns and the other numbers."""
    from pyspark.sql import functions as f

    own = data.schema.identifier
    assert own is not None  # noqa: S101  (checked before)
    labels = [
        label(data.column(name), data.arrow.field(name).type).alias(f"{prefix}{j}") for j, name in enumerate(names)
    ]
    rest = [name for name in data.arrow.names if name not in names]
    words = []
    for letter, is_number in (("w", False), ("n", True)):
        chosen = [name for name in rest if data.schema[name].kind.is_numeric is is_number]
        found = words_of([label(data.column(name), data.arrow.field(name).type) for name in chosen])
        words += [word.alias(f"{prefix}{letter}{j}") for j, word in enumerate(found)]
    return data.frame.select(f.col(data.column(own.name)).alias("i"), *labels, *words)


def _signs(f: Any, *, was: int, now: int, stayed: str | None) -> list[Any]:
    untouched = f.lit(0).cast("long") if stayed is None else f.col(stayed).cast("long")
    return [f.lit(was).cast("long").alias("b"), f.lit(now).cast("long").alias("a"), untouched.alias("u")]
