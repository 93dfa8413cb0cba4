"""Cells of two files counted by a Spark cluster; the driver only sees numbers of cells by counts.

Files whose records are in the same order, as those are that the cluster has masked, are compared piece by piece in the
workers. For others, Spark brings the records together by their identifier.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Int64s
from safeswap.engines.spark.engine import all_of
from safeswap.engines.spark.session import PACKETS, Batches, Piece, cut_pieces, long_columns, receive, send, whole
from safeswap.engines.spilled_cells import (
    TalliedCells,
    column_keys,
    count_entries,
    make_entries,
    merge_kinds,
    record_words,
    tally_kinds,
)
from safeswap.errors import InputError
from safeswap.files.parquet import ParquetFiles
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.schema import Schema
from safeswap.model.score import only_numbers_changed


class SparkFrame:
    """The records of files in Spark: in pieces, or as a dataframe with internal column names."""

    def __init__(self, session: Any, files: ParquetFiles, schema: Schema) -> None:
        self.session, self.files, self.schema = session, files, schema
        self.pieces = cut_pieces(files)
        kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in files.schema]
        self.arrow = pa.schema(list(zip(files.schema.names, kinds, strict=True)))

    @cached_property
    def frame(self) -> Any:
        """The records as a dataframe."""
        files = self.files
        paths = (str(part.path.absolute()) for part in files.parts if part.records)
        frame = self.session.read.parquet(*paths).select("*")
        if list(frame.columns) != files.schema.names:
            raise InputError(
                "Spark reads other columns from the files than they declare",
                code="files-differ",
                hint="rewrite the files without duplicated or nested columns",
                file=str(files.root),
            )
        return frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))

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
    return f.xxhash64(f.lit(0), *columns, *absent), f.xxhash64(f.lit(1), *columns, *absent)


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkCells:
    """The tallied cells; the numbers of records in both files, and of untouched ones."""

    cells: TalliedCells
    records: int
    untouched: int
    changed: frozenset[str]
    only_numbers: bool


def compare_cells(before: SparkFrame, after: SparkFrame, names: Names, *, limit: int) -> SparkCells:
    """Count the cells of ``names`` in two files whose records correspond by their identifier."""
    return _compare_pieces(before, after, names, limit=limit) or _join_records(before, after, names, limit=limit)


_CHANGED, _ENTRY = range(2)
_UNTOUCHED, _OTHER_ORDER = -1, -2


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparePieces:
    """Compare the same pieces of two files: send what changed to the first part, and cells to the part that has them.

    Nothing is counted of a piece with other identifiers, or in another order.
    """

    before: tuple[Piece, ...]
    after: tuple[Piece, ...]
    own: str
    columns: Names
    names: Names
    parts: int
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over numbers of pieces."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._compare(self.before[number], self.after[number])

    def _compare(self, before: Piece, after: Piece) -> Iterator[pa.RecordBatch]:
        keys = dict(zip(self.names, column_keys(self.key, len(self.names)), strict=True))
        touched = np.zeros(before.records, dtype=np.bool_)
        words, entered = np.zeros((2, before.records, 2), dtype=np.uint64)
        changed = {}
        for place, name in enumerate((self.own, *(name for name in self.columns if name != self.own))):
            sides = [piece.read((name,)).column(0) for piece in (before, after)]  # all of them may not fit
            flags = flag_changes(*aligned_columns(*sides))
            changed[self.columns.index(name)] = int(np.count_nonzero(flags))
            if not place and flags.any():
                yield send(np.array([[_OTHER_ORDER, 1]]), np.zeros(1, np.int64), _CHANGED)
                return
            touched |= flags
            if name in keys:
                old = record_words([whole(sides[0])], [keys[name]])
                words ^= old
                entered ^= record_words([whole(sides[1])], [keys[name]]) if flags.any() else old
        changed[_UNTOUCHED] = int(np.count_nonzero(~touched))
        yield send(np.array(list(changed.items())), np.zeros(len(changed), np.int64), _CHANGED)
        entries = make_entries(words, touched, entered[touched]).view(np.int64)
        yield send(entries, ((entries[:, 0] >> 48) & 0xFFFF) % self.parts, _ENTRY)


@dataclass(frozen=True, eq=False)
class CountPieces:
    """Add up what changed, and count the entries of each cell: all of them are in one part."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield what changed, and cells by their counts before, after and of untouched records."""
        for changed, entries in receive(batches, (2, 2)).values():
            rows = [_widen(_CHANGED, changed), _widen(_ENTRY, count_entries(entries.view(np.uint64)))]
            columns = [pa.array(np.ascontiguousarray(column)) for column in np.concatenate(rows).T]
            yield pa.RecordBatch.from_arrays(columns, names=["kind", *"wxyz"])


def _widen(kind: int, rows: Int64s) -> Int64s:
    """Return rows of four numbers and their kind."""
    wide = np.zeros((len(rows), 5), dtype=np.int64)
    wide[:, 0], wide[:, 1 : 1 + rows.shape[1]] = kind, rows
    return wide


def _compare_pieces(before: SparkFrame, after: SparkFrame, names: Names, *, limit: int) -> SparkCells | None:
    """Compare files of the same types and pieces; None if they are not, or their records are in another order."""
    own, sizes = before.schema.identifier, [[piece.records for piece in each.pieces] for each in (before, after)]
    assert own is not None  # noqa: S101  (checked before)
    if sizes[0] != sizes[1] or not before.arrow.equals(after.arrow):
        return None
    parts = max(1, min(len(before.pieces), int(before.session.conf.get("spark.sql.shuffle.partitions"))))
    columns = tuple(before.arrow.names)
    step = ComparePieces(
        before=before.pieces, after=after.pieces, own=own.name, columns=columns, names=names, parts=parts
    )
    numbers = before.session.range(0, len(before.pieces), 1, parts)
    sent = numbers.mapInArrow(step, PACKETS).repartition(parts, "part")
    rows = sent.mapInArrow(CountPieces(), long_columns("kind", *"wxyz")).collect()
    changed: dict[int, int] = {}
    for kind, place, number, *_ in rows:
        if kind == _CHANGED:
            changed[place] = changed.get(place, 0) + number
    if _OTHER_ORDER in changed:
        return None
    kinds = np.array([row[1:] for row in rows if row[0] == _ENTRY], dtype=np.int64).reshape(-1, 4)
    differing = {columns[place] for place, number in changed.items() if place >= 0 and number}
    return SparkCells(
        cells=tally_kinds([tuple(kind) for kind in merge_kinds(kinds).tolist()], limit=limit),
        records=sum(sizes[0]),
        untouched=changed.get(_UNTOUCHED, 0),
        changed=frozenset(names).intersection(differing),
        only_numbers=only_numbers_changed(before.schema, differing),
    )


def _join_records(before: SparkFrame, after: SparkFrame, names: Names, *, limit: int) -> SparkCells:
    """Bring records together by their identifier, and count their cells."""
    from pyspark.sql import functions as f

    width = range(len(names))
    both = _side(before, names, "b").join(_side(after, names, "a"), "i")
    same = [f.col(f"b{j}").eqNullSafe(f.col(f"a{j}")) for j in width]
    same_others, same_numbers = (
        all_of([f.col(f"b{word}") == f.col(f"a{word}") for word in words]) for words in (("w0", "w1"), ("n0", "n1"))
    )
    both = both.withColumn("stayed", all_of([*same, same_others, same_numbers]))
    counts = [f.sum((~each).cast("long")) for each in (same_others, same_numbers, *same)]
    sums = both.agg(f.count("*"), f.sum(f.col("stayed").cast("long")), *counts)
    records, untouched, others, numbers, *differ = (int(value or 0) for value in sums.head())
    changed = frozenset(name for name, number in zip(names, differ, strict=True) if number)
    now = both.select(*(f.col(f"a{j}").alias(f"g{j}") for j in width), *_signs(f, was=0, now=1, stayed="stayed"))
    was = both.select(*(f.col(f"b{j}").alias(f"g{j}") for j in width), *_signs(f, was=1, now=0, stayed=None))
    summed = was.unionAll(now).groupBy(*(f"g{j}" for j in width)).agg(*(f.sum(c).alias(c) for c in "bau"))
    kinds = summed.groupBy("b", "a").agg(f.sum("u"), f.count("*")).collect()
    return SparkCells(
        cells=tally_kinds([tuple(map(int, kind)) for kind in kinds], limit=limit),  # type: ignore[misc]
        records=records,
        untouched=untouched,
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
