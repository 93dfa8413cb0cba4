"""Cells of two files counted by a Spark cluster; the driver only sees numbers of cells by counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.engines.spark.engine import all_of
from safeswap.engines.spilled_cells import TalliedCells, tally_kinds
from safeswap.errors import InputError
from safeswap.files.parquet import ParquetFiles
from safeswap.model.schema import Schema


class SparkFrame:
    """The records of files as a Spark dataframe with internal column names."""

    def __init__(self, session: Any, files: ParquetFiles, schema: Schema) -> None:
        self.schema = schema
        frame = session.read.parquet(*(str(part.path.absolute()) for part in files.parts if part.records)).select("*")
        if list(frame.columns) != files.schema.names:
            raise InputError(
                "Spark reads other columns from the files than they declare",
                code="files-differ",
                hint="rewrite the files without duplicated or nested columns",
                file=str(files.root),
            )
        self.frame = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in files.schema]
        self.arrow = pa.schema(list(zip(files.schema.names, kinds, strict=True)))

    def column(self, name: str) -> str:
        """Return the internal name of a column."""
        return f"c{self.arrow.names.index(name)}"


def label(column: str, kind: pa.DataType) -> Any:
    """Return a column as a label that is equal exactly where the values are.

    Spark equates −0.0 and 0.0; the text of a floating-point number distinguishes them and is the same for every NaN.
    """
    from pyspark.sql import functions as f

    if pa.types.is_floating(kind):
        return f.col(column).cast("string")
    return f.col(column)


def words_of(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return two hashes of the values of some columns; Spark skips nulls, so their positions are hashed too."""
    from pyspark.sql import functions as f

    absent = [column.isNull() for column in columns]
    return f.xxhash64(*columns, *absent), f.xxhash64(f.lit(1), *columns, *absent)


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkCells:
    """The tallied cells; the numbers of records in both files, untouched, and in a different cell from before."""

    cells: TalliedCells
    records: int
    untouched: int
    moved: int
    changed: frozenset[str]
    only_numbers: bool


def compare_cells(before: SparkFrame, after: SparkFrame, names: Names, *, limit: int) -> SparkCells:
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
        and all(before.schema[name].kind.is_measurable for name in changed),
    )


def _side(data: SparkFrame, names: Names, prefix: str) -> Any:
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
        chosen = [name for name in rest if data.schema[name].kind.is_measurable is is_number]
        found = words_of([label(data.column(name), data.arrow.field(name).type) for name in chosen])
        words += [word.alias(f"{prefix}{letter}{j}") for j, word in enumerate(found)]
    return data.frame.select(f.col(data.column(own.name)).alias("i"), *labels, *words)


def _signs(f: Any, *, was: int, now: int, stayed: str | None) -> list[Any]:
    untouched = f.lit(0).cast("long") if stayed is None else f.col(stayed).cast("long")
    return [f.lit(was).cast("long").alias("b"), f.lit(now).cast("long").alias("a"), untouched.alias("u")]
