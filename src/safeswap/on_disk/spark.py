"""Files on Spark: every record stays in the cluster, which also writes the output."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.engines.base import Drawn, Move, Need
from safeswap.engines.spark.checks import (
    combine_fingerprints,
    count_compensating,
    count_moved_cells,
    count_pairs,
    fingerprints,
)
from safeswap.engines.spark.engine import SparkRecords
from safeswap.engines.spark.session import NEEDED, own_session
from safeswap.errors import EngineError, InputError
from safeswap.files.parquet import ParquetFiles
from safeswap.model.invariant import Finding, Invariant, SameRecords, SameRows
from safeswap.model.schema import Schema
from safeswap.model.text import several
from safeswap.on_disk.audit_record import AUDIT, software_versions
from safeswap.on_disk.job import OpenFile, check_promises, check_separate

PAIRS_BY_IDENTIFIER = "pairs"
FORMAT = "safeswap-audit-identifiers-1"


class SparkFile(OpenFile):
    """Files in the caller's session, or in one of our own that ends with the job."""

    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "records sorted and exchanged by a Spark cluster"
    lacks: ClassVar[Mapping[Need, str]] = SparkRecords.lacks
    writes_directories: ClassVar[bool] = True

    records: SparkRecords
    moves: tuple[Move, ...] = ()

    @cached_property
    def _open(self) -> ExitStack:
        return ExitStack()

    def open(self, read: Names) -> None:
        """Read the files, and check the identifier."""
        spark = self._open.enter_context(spark_session(self.job.session, self.job.threads, records=len(self.files)))
        self.records = load_records(spark, self.files, self.schema)
        self._open.callback(self.records.close)
        self.records.prepare(identity_key=keyed.derive(self.job.key.secret, "identity"), work=self.work)
        _check_identifier(self.records)

    def exchange(self, drawn: Drawn) -> None:
        """Find the old and new values of each record that takes part."""
        check_separate(drawn, self.name)
        self.moves = drawn.moves
        self.changes = [self.records.changes(move.pairs, move.names) for move in drawn.moves]

    def write(self, part: Path) -> None:
        """Let the cluster write all records, those of the pairs with their new values.

        Spark makes directories that others can read; within a private one they cannot be reached.
        """
        inner = part / "spark"
        self._exchanged().toDF(*self.files.schema.names).write.parquet(str(inner))
        for path in inner.iterdir():
            path.rename(part / path.name)
        inner.rmdir()

    def _exchanged(self) -> Any:
        from pyspark.sql import functions as f

        records, frame = self.records, self.records.frame
        for move, changes in zip(self.moves, self.changes, strict=True):
            gets = [f"n{j}" for j in range(len(move.names))]
            given = changes.select(f.col("i").alias(records.own), f.lit(1).alias("took_part"), *gets)
            frame = frame.join(given, records.own, "left")
            for name, new in zip(move.names, gets, strict=True):
                column, took_part = records.column(name), f.col("took_part").isNotNull()
                frame = frame.withColumn(column, f.when(took_part, f.col(new)).otherwise(f.col(column)))
            frame = frame.drop("took_part", *gets)
        return frame.select(*records.frame.columns)

    def _written(self, part: Path) -> Any:
        return self.records.session.read.parquet(str(part)).toDF(*self.records.frame.columns)

    def find_damaged(self, part: Path) -> list[str]:
        """Return the columns that were to be copied, if any of them is not as it was."""
        changed = {self.records.column(name) for name in self.names}
        others = [column for column in self.records.frame.columns if column not in changed]
        same = fingerprints(self.records.frame, others) == fingerprints(self._written(part), others)
        return [] if same else [name for name in self.files.schema.names if name not in self.names]

    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise where the records are."""
        unordered = [SameRecords() if isinstance(promise, SameRows) else promise for promise in promises]
        return check_promises(unordered, SparkEvidence(self, self._written(part)), self.name)

    def count_compensating(self) -> int:
        """Count records that changed although the table did not. Records that took no part cancel out."""
        records, names = self.records, self.names
        rest = [name for name in self.schema.categorical if name not in names]
        others = [records.column(name) for name in rest]
        had, has = ([f"{side}{j}" for j in range(len(names))] for side in "on")
        kinds = [records.kind(name) for name in (*names, *rest)]
        return count_compensating(self._touched(others), had, has, others, kinds=kinds)

    def _touched(self, others: list[str]) -> Any:
        """Return the records that took part, with the old and new values of all exchanged columns, and others."""
        from pyspark.sql import functions as f

        records = self.records
        frame = records.frame.select(
            records.own, *others, *(f.col(records.column(name)).alias(f"o{j}") for j, name in enumerate(self.names))
        )
        took_part = f.lit(0)
        for number, (move, changes) in enumerate(zip(self.moves, self.changes, strict=True)):
            gets = {name: f"m{number}_{j}" for j, name in enumerate(move.names)}
            news = [f.col(f"n{j}").alias(gets[name]) for j, name in enumerate(move.names)]
            frame = frame.join(
                changes.select(f.col("i").alias(records.own), f.lit(1).alias(f"t{number}"), *news), records.own, "left"
            )
            here = f.col(f"t{number}").isNotNull()
            took_part = took_part + f.coalesce(f.col(f"t{number}"), f.lit(0))
            for name in move.names:
                j = self.names.index(name)
                frame = frame.withColumn(f"n{j}", f.when(here, f.col(gets[name])).otherwise(f.col(f"o{j}")))
        return frame.where(took_part > 0)

    def identify(self, part: Path) -> str:
        """Return what names the record, and no other: no machine has to read what the cluster wrote."""
        return secrets.token_hex(16)

    def write_record(self, directory: Path, totals: Mapping[str, Any], identity: str) -> None:
        """Write the totals, and the pairs by identifier, written by the cluster and never collected."""
        from pyspark.sql import functions as f

        for number, move in enumerate(self.moves):
            sides = [f.col("a.i").alias("id_a"), f.col("b.i").alias("id_b")]
            move.pairs.frame.select("k", *sides).write.parquet(str(directory / f"{PAIRS_BY_IDENTIFIER}-{number}"))
        content = {
            "format": FORMAT,
            "confidential": "This record undoes the masking. Keep it where the original data are kept.",
            "audit": dict(totals),
            "schema": self.schema.model_dump(mode="json", exclude_defaults=True),
            "software": software_versions(),
        }
        (directory / AUDIT).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release what the job holds in the cluster, end a session of our own, and translate Spark's errors."""
        self._open.__exit__(kind, error, trace)


class SparkEvidence:
    """Both files, and the values that the pairs were made with, compared by sums over records.

    The sums of what each record of a pair had and got must turn those of the files before into those of the files
    after, so the values in the pairs are those in the files.
    """

    def __init__(self, opened: SparkFile, written: Any) -> None:
        self._records, self._written, self._names = opened.records, written, opened.names
        self._moves, self._changes = opened.moves, opened.changes
        self.identifier = None if opened.schema.identifier is None else opened.schema.identifier.name
        self.attributes = opened.records.attributes
        self.exchanged = tuple(move.names for move in opened.moves)
        self._told: dict[int, bool] = {}

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        return len(self._moves[stage].pairs)

    def count_changed(self, name: str) -> int:
        """Count the records that have another value; columns that were copied have been compared already."""
        if name not in self._names:
            return 0
        from pyspark.sql import functions as f

        own, column = self._records.own, self._records.column(name)
        both = self._records.frame.select(own, f.col(column).alias("o")).join(
            self._written.select(own, f.col(column).alias("n")), own
        )
        return int(both.where("NOT (o <=> n)").count())

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells that have another count than before."""
        if not set(names) & set(self._names):
            return 0
        kinds = [self._records.kind(name) for name in names]
        columns = [self._records.column(name) for name in names]
        return count_moved_cells(self._records.frame, self._written, columns, kinds)

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs that go to a record that has one already."""
        return 2 * self.number_of_pairs(stage) - int(self._changes[stage].select("i").distinct().count())

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes."""
        return self._count_pairs(stage, names, agree=True)

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes."""
        return self._count_pairs(stage, names, agree=False)

    def _count_pairs(self, stage: int, names: Names, *, agree: bool) -> int:
        pairs = self._records.with_values(self._moves[stage].pairs, names)
        return count_pairs(pairs.frame, [pairs.columns.index(name) for name in names], agree=agree)

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed."""
        same = " AND ".join(f"o{j} <=> n{j}" for j in range(len(self.exchanged[stage])))
        return int(self._changes[stage].where(f"NOT ({same})").count())

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        stage = next((i for i, names in enumerate(self.exchanged) if name in names), None)
        if stage is None:
            return self.count_changed(name) == 0
        if stage not in self._told:
            self._told[stage] = self._explain(stage)
        return self._told[stage]

    def _explain(self, stage: int) -> bool:
        columns = [self._records.own, *(self._records.column(name) for name in self.exchanged[stage])]
        (before,), (after,) = fingerprints(self._records.frame, columns), fingerprints(self._written, columns)
        old, new = (["i", *(f"{side}{j}" for j in range(len(self.exchanged[stage])))] for side in "on")
        gone, come = fingerprints(self._changes[stage], old, new)
        return after == combine_fingerprints((before, 1), (gone, -1), (come, 1))

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back: what exchanges a pair restores it too."""
        return self.explains(name)


def load_records(session: Any, files: ParquetFiles, schema: Schema) -> SparkRecords:
    """Return the records of the files as Spark holds them, with internal column names."""
    paths = [str(part.path.absolute()) for part in files.parts if part.records]
    frame = session.read.parquet(*paths).select("*")
    if list(frame.columns) != files.schema.names:
        raise InputError(
            "Spark reads other columns from the files than they declare",
            code="files-differ",
            hint="rewrite the files without duplicated or nested columns",
            file=str(files.root),
        )
    internal = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    return SparkRecords(internal, schema, _value_types(files), number=len(files))


def _value_types(files: ParquetFiles) -> Any:
    """Return the types as workers see them: a dictionary is a way to store text, not a type."""
    kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in files.schema]
    return pa.schema(list(zip(files.schema.names, kinds, strict=True)))


def _check_identifier(records: SparkRecords) -> None:
    from pyspark.sql import functions as f

    own = records.schema.identifier
    assert own is not None  # noqa: S101  (checked before)
    column = f.col(records.own)
    bad = column.isNull()
    if pa.types.is_floating(records.kind(own.name)):
        bad |= f.isnan(column)
    elif pa.types.is_string(records.kind(own.name)) or pa.types.is_large_string(records.kind(own.name)):
        bad |= column.isin(["", *own.missing])
    if absent := records.frame.where(bad).count():
        raise InputError(
            f"{several(absent, 'record has', 'records have')} no identifier {own.name!r}",
            code="missing-identifier",
            hint="give every record an identifier",
            column=own.name,
        )
    shared = records.frame.groupBy(records.own).count().where("count > 1")
    if number := shared.agg(f.sum("count")).head()[0]:
        raise InputError(
            f"{several(number, 'record shares', 'records share')} an identifier {own.name!r} with another",
            code="duplicate-identifier",
            hint="an identifier must be unique; name another column",
            column=own.name,
        )


@contextmanager
def spark_session(session: Any, threads: int | None, *, records: int) -> Iterator[Any]:
    """Give the caller's session, or one of our own that ends with the block; translate Spark's errors."""
    spark = own_session(master=f"local[{threads or '*'}]", records=records) if session is None else session
    before = {name: spark.conf.get(name, None) for name in NEEDED}
    try:
        for name, value in NEEDED.items():
            spark.conf.set(name, value)
        yield spark
    except Exception as error:
        said = _translate_error(error)
        if said is error:
            raise
        raise said from None
    finally:
        _reset_session(spark, before, own=session is None)


def _reset_session(spark: Any, before: dict[str, str | None], *, own: bool) -> None:
    from py4j.protocol import Py4JError

    # A dead session cannot be reset, and its error is already being reported.
    with suppress(Py4JError, ConnectionError):
        if own:
            spark.stop()
        else:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def _translate_error(error: Exception) -> Exception:
    """Replace Spark's messages, which quote plans and may quote data."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException | ConnectionError):
        return error
    return EngineError(
        "Spark could not do its part; nothing was written",
        code="engine-failed",
        hint="look at the logs of the cluster: a disk may be full, or workers may lack memory or safeswap itself",
        reason=type(error).__name__,
    )
