"""Mask a directory of Parquet files with a Spark cluster: complete and verified, or absent."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.engines.spark.checks import combine_fingerprints, count_compensating, count_moved_cells, fingerprints
from safeswap.engines.spark.engine import SparkEngine, SparkPairs, SparkRecords
from safeswap.engines.spark.session import NEEDED, own_session
from safeswap.errors import EngineError, InputError, UnsafeRelease
from safeswap.files.atomic import PRIVATE_DIRECTORY, atomic_directory
from safeswap.files.infer import described_files
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.methods.edit_1990.checks import check_counted
from safeswap.methods.edit_1990.method import sample_key, sample_outcome
from safeswap.methods.edit_1990.on_spark import SparkHouseholds
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.swap import Swap
from safeswap.model.invariant import Finding
from safeswap.model.masked import MaskedFile
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.score import Assessment
from safeswap.model.spec import SwapSpec
from safeswap.model.text import several
from safeswap.on_disk.audit_record import AUDIT, software_versions
from safeswap.on_disk.capabilities import check_supported
from safeswap.on_disk.masking import both_or_neither
from safeswap.on_disk.run import Job

PAIRS_BY_IDENTIFIER = "pairs"
FORMAT = "safeswap-audit-identifiers-1"


def mask_with_spark(job: Job, *, session: Any = None) -> MaskedFile:
    """Mask the files in the caller's session, or in one of our own that ends with the job."""
    check_supported("spark", job.spec)
    files = open_parquet(job.source)
    schema = described_files(files, **job.reading)
    check_supported("spark", job.spec, identified=schema.identifier is not None)
    with spark_session(session, job.threads, records=len(files)) as spark:
        engine = SparkEngine(spark)
        try:
            masked = _mask(job, files, schema, engine)
        finally:
            engine.close()
        return replace(masked, assessment=_assess(job, spark))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Stage:
    """Attributes exchanged together, the pairs, the new values of each record, and the counts that must stay."""

    names: Names
    pairs: SparkPairs
    changes: Any
    kept: tuple[Names, ...]


def _mask(job: Job, files: ParquetFiles, schema: Schema, engine: SparkEngine) -> MaskedFile:
    data = load_records(engine.session, files, schema)
    _check_identifier(data)
    with (
        both_or_neither(job.audit, job.target),
        atomic_directory(job.target, force=job.force, marker="_SUCCESS") as part,
        _work(part) as engine.work,
    ):
        plan, stages, facts = _draw_pairs(job, data, engine)
        after = _exchange(data, stages)
        after.toDF(*files.schema.names).write.mode("overwrite").parquet(str(part))
        written = engine.session.read.parquet(str(part)).toDF(*data.frame.columns)
        findings = _verify(data, stages, written)
        files.check_unchanged()
        totals: dict[str, Any] = {
            "records": len(data),
            "asked": plan.asked,
            "feasible": plan.feasible,
            "at_most": plan.at_most,
            "made": min(len(stage.pairs) for stage in stages),
            "compensating": _count_compensating(data, stages, written),
            "releasable": job.key.releasable,
            "facts": facts,
        }
        record = _note(job, schema, stages, totals)
    return MaskedFile(
        target=job.target,
        audit=record,
        engine="spark",
        method=job.spec.method,
        spec=job.spec.as_dict(),
        findings=findings,
        **totals,
    )


def _assess(job: Job, session: Any) -> Assessment | None:
    """Return the requested figures, counted in the same session; None if none were requested."""
    from safeswap import registry
    from safeswap.measures.base import most_small, scored
    from safeswap.on_disk.cells import count_in_spark

    chosen = [registry.measure(name) for name in job.measures]
    limit = most_small(chosen)
    if limit is None:
        return None
    asked: dict[str, Any] = {"attributes": job.attributes, "limit": limit, "reading": job.reading}
    return scored(chosen, count_in_spark(job.source, job.target, session=session, **asked), leave_out=True)


@contextmanager
def _work(part: Path) -> Iterator[Path]:
    """Give a temporary directory beside the target, visible to driver and workers."""
    work = part.parent / f"{part.name}.work"
    work.mkdir(mode=PRIVATE_DIRECTORY)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _draw_pairs(job: Job, data: SparkRecords, engine: SparkEngine) -> tuple[Plan, tuple[_Stage, ...], dict[str, Any]]:
    """Return the plan, the stages of the exchange, and further facts to report."""
    if isinstance(job.spec, Edit1990Spec):
        return _draw_edit(job, job.spec, data, engine)
    spec = job.spec
    assert isinstance(spec, SwapSpec)  # noqa: S101  (what is supported has been checked)
    plan, drawn = Swap().drawn(data, spec, key=job.key, engine=engine, replicate=job.replicate)
    stages = (
        _Stage(names=names, pairs=pairs, changes=engine.changes(pairs, names), kept=((*names, *spec.fixed),))
        for names, pairs in zip(spec.stages, drawn, strict=True)
    )
    return plan, tuple(stages), {}


def _draw_edit(
    job: Job, spec: Edit1990Spec, data: SparkRecords, engine: SparkEngine
) -> tuple[Plan, tuple[_Stage, ...], dict[str, Any]]:
    households = SparkHouseholds(
        engine,
        data,
        spec,
        draw_key=sample_key(data, job.key, replicate=job.replicate),
        identity_key=keyed.derive(job.key.secret, "identity"),
    )
    check_counted(households, data.schema, spec)
    found = households.partners()
    plan = sample_outcome(found, spec, records=len(data))
    changes = engine.changes(found.pairs, spec.exchanged)
    return plan, (_Stage(names=spec.exchanged, pairs=found.pairs, changes=changes, kept=spec.kept),), found.facts()


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
    return SparkRecords(frame=internal, schema=schema, arrow=_value_types(files), records=len(files))


def _value_types(files: ParquetFiles) -> Any:
    """Return the types as workers see them: a dictionary is a way to store text, not a type."""
    import pyarrow as pa

    kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in files.schema]
    return pa.schema(list(zip(files.schema.names, kinds, strict=True)))


def _check_identifier(data: SparkRecords) -> None:
    from pyspark.sql import functions as f

    own = data.schema.identifier
    assert own is not None  # noqa: S101  (checked before)
    column = f.col(data.column(own.name))
    text = column.cast("string")
    bad = column.isNull() | (text == "") | text.isin([*own.missing, "NaN"])
    if absent := data.frame.where(bad).count():
        raise InputError(
            f"{several(absent, 'record has', 'records have')} no identifier {own.name!r}",
            code="missing-identifier",
            hint="give every record an identifier",
            column=own.name,
        )
    shared = data.frame.groupBy(data.column(own.name)).count().where("count > 1")
    if number := shared.agg(f.sum("count")).head()[0]:
        raise InputError(
            f"{several(number, 'record shares', 'records share')} an identifier {own.name!r} with another",
            code="duplicate-identifier",
            hint="an identifier must be unique; name another column",
            column=own.name,
        )


def _exchange(data: SparkRecords, stages: tuple[_Stage, ...]) -> Any:
    """Return all records, those of the pairs with their new values."""
    from pyspark.sql import functions as f

    assert data.schema.identifier is not None  # noqa: S101  (checked before)
    own = data.column(data.schema.identifier.name)
    frame = data.frame
    for stage in stages:
        gets = [f"n{j}" for j in range(len(stage.names))]
        given = stage.changes.select(f.col("i").alias(own), f.lit(1).alias("took_part"), *gets)
        frame = frame.join(given, own, "left")
        for name, new in zip(stage.names, gets, strict=True):
            column = data.column(name)
            frame = frame.withColumn(
                column, f.when(f.col("took_part").isNotNull(), f.col(new)).otherwise(f.col(column))
            )
        frame = frame.drop("took_part", *gets)
    return frame.select(*data.frame.columns)


def _verify(data: SparkRecords, stages: tuple[_Stage, ...], written: Any) -> tuple[Finding, ...]:
    """Verify that only exchanged values changed, that the pairs explain them, and that kept counts are exact."""
    assert data.schema.identifier is not None  # noqa: S101  (checked before)
    own = data.column(data.schema.identifier.name)
    changed = [data.column(name) for stage in stages for name in stage.names]
    others = [column for column in data.frame.columns if column not in changed]
    problems = []
    staged = [[own, *(data.column(name) for name in stage.names)] for stage in stages]
    first, *before = fingerprints(data.frame, others, *staged)
    second, *after = fingerprints(written, others, *staged)
    if first != second:
        problems.append("columns in which nothing is exchanged are not as they were")
    for number, stage in enumerate(stages):
        old, new = (["i", *(f"{side}{j}" for j in range(len(stage.names)))] for side in "on")
        gone, come = fingerprints(stage.changes, old, new)
        records = 2 * len(stage.pairs)
        if gone[0] != records or stage.changes.select("i").distinct().count() != records:
            problems.append("a record is in two pairs")
        if after[number] != combine_fingerprints((before[number], 1), (gone, -1), (come, 1)):
            problems.append(f"the pairs do not explain {' and '.join(stage.names)}")
        for kept in stage.kept:
            kinds = [data.arrow.field(name).type for name in kept]
            if count_moved_cells(data.frame, written, [data.column(name) for name in kept], kinds):
                problems.append(f"counts by {' and '.join(kept)} have moved")
    if problems:
        raise UnsafeRelease(
            "the masked file does not keep what was promised; nothing was written: " + "; ".join(problems),
            code="promise-broken",
            hint="please report it: this is a fault of the program, or of the cluster",
            findings=problems,
        )
    sentences = (
        "Every column in which nothing was exchanged is in the new files as in the old ones.",
        "The pairs explain every change, and no record is in two pairs of a stage.",
        "The counts by what is exchanged together and what is the same within a pair are exactly as before.",
    )
    names_of = ("CopiedColumns", "ReplaysFromAudit", "KeptMargin")
    return tuple(Finding(invariant=n, sentence=s, ok=True) for n, s in zip(names_of, sentences, strict=True))


def _count_compensating(data: SparkRecords, stages: tuple[_Stage, ...], written: Any) -> int:
    """Count records that changed although the table did not. Records that took no part cancel out."""
    from pyspark.sql import functions as f

    assert data.schema.identifier is not None  # noqa: S101  (checked before)
    own = data.column(data.schema.identifier.name)
    changed = [name for stage in stages for name in stage.names]
    rest = [name for name in data.schema.categorical if name not in changed]
    others = [data.column(name) for name in rest]
    had, has = ([f"{side}{j}" for j in range(len(changed))] for side in "on")
    kinds = [data.arrow.field(name).type for name in (*changed, *rest)]
    if len(stages) == 1:
        changes = stages[0].changes.withColumnRenamed("i", own)
        both = data.frame.select(own, *others).join(changes, own)
        # The records of a pair always differ, so both change.
        return count_compensating(both, had, has, others, kinds=kinds, changed=2 * len(stages[0].pairs))
    columns = [data.column(name) for name in changed]
    before = data.frame.select(own, *others, *(f.col(c).alias(old) for c, old in zip(columns, had, strict=True)))
    after = written.select(own, *(f.col(c).alias(new) for c, new in zip(columns, has, strict=True)))
    return count_compensating(before.join(after, own), had, has, others, kinds=kinds)


def _note(job: Job, schema: Schema, stages: tuple[_Stage, ...], totals: dict[str, Any]) -> Path:
    """Write the record: totals, and the pairs by identifier, written by the cluster and never collected."""
    from pyspark.sql import functions as f

    name = hashlib.sha256(f"{job.target.absolute()} {job.key.id} {job.replicate} {totals}".encode()).hexdigest()[:16]
    record = job.audit / f"masking-{name}"
    with atomic_directory(record, force=True, marker=AUDIT, mode=PRIVATE_DIRECTORY) as directory:
        for number, stage in enumerate(stages):
            sides = [f.col("a.i").alias("id_a"), f.col("b.i").alias("id_b")]
            stage.pairs.frame.select("k", *sides).write.parquet(str(directory / f"{PAIRS_BY_IDENTIFIER}-{number}"))
        content = {
            "format": FORMAT,
            "confidential": "This record undoes the masking. Keep it where the original data are kept.",
            "audit": {
                "method": job.spec.method,
                "spec": job.spec.as_dict(),
                **totals,
                "key_id": job.key.id,
                "algorithm": keyed.ALGORITHM,
                "replicate": job.replicate,
                "data_name": schema.name,
            },
            "schema": schema.model_dump(mode="json", exclude_defaults=True),
            "software": software_versions(),
        }
        (directory / AUDIT).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return record


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
