"""What is checked, and counted, on files that are in Spark: sums over records, no join and no collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from safeswap.engines.spark import all_of, label

Print = tuple[int, int, int]


def fingerprints(frame: Any, *column_sets: Sequence[str]) -> tuple[Print, ...]:
    """Per set of columns the number of records and two sums of hashes in which the records' order plays no part.

    The sums are there to find faults of machines, not of people: they are public hashes.
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
    """Two hashes of the values of some columns; Spark skips what is missing, so that where it is is hashed too."""
    from pyspark.sql import functions as f

    absent = [column.isNull() for column in columns]
    return f.xxhash64(*columns, *absent), f.xxhash64(f.lit(1), *columns, *absent)


def combined(*parts: tuple[Print, int]) -> Print:
    """Fingerprints put together: each with +1 where its records are added and −1 where they are taken away.

    >>> combined(((3, 10, 6), 1), ((1, 4, 2), -1))
    (2, 6, 4)
    """
    records = total = mixed = 0
    for (number, added, xor), sign in parts:
        records, total, mixed = records + sign * number, total + sign * added, mixed ^ xor
    return records, total, mixed


def moved_cells(before: Any, after: Any, columns: Sequence[str], kinds: Sequence[pa.DataType]) -> int:
    """How many cells over these columns have another count in one frame than in the other."""
    from pyspark.sql import functions as f

    def counted(frame: Any, sign: int) -> Any:
        labels = [label(column, kind).alias(column) for column, kind in zip(columns, kinds, strict=True)]
        return frame.select(*labels, f.lit(sign).cast("long").alias("sign"))

    both = counted(before, -1).unionAll(counted(after, 1)).groupBy(*columns).agg(f.sum("sign").alias("s"))
    return int(both.where("s <> 0").count())


def compensating(
    touched: Any,
    had: Sequence[str],
    has: Sequence[str],
    others: Sequence[str],
    *,
    kinds: Sequence[pa.DataType],
    changed: int | None = None,
) -> int:
    """Records that changed less the net change of the cells; ``kinds`` are the types of ``had`` and then ``others``.

    How many records changed is counted unless it is known.
    """
    from pyspark.sql import functions as f

    wide = [*had, *has, *others]
    types = [*kinds[: len(had)], *kinds[: len(had)], *kinds[len(had) :]]
    labelled = touched.select(*(label(column, kind).alias(column) for column, kind in zip(wide, types, strict=True)))
    old = labelled.select(*had, *others, f.lit(-1).cast("long").alias("sign"))
    new = labelled.select(*has, *others, f.lit(1).cast("long").alias("sign"))
    net = old.unionAll(new).groupBy(*had, *others).agg(f.abs(f.sum("sign")).alias("s")).agg(f.sum("s")).head()[0] or 0
    if changed is None:
        same = all_of([f.col(one).eqNullSafe(f.col(other)) for one, other in zip(had, has, strict=True)])
        changed = int(labelled.where(~same).count())
    return changed - int(net) // 2
