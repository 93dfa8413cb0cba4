"""Mask Parquet files on any engine, by exchanging or changing values: output and record, both complete or neither."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.engines.base import Drawn
from safeswap.errors import UnsafeRelease
from safeswap.files.atomic import PRIVATE_DIRECTORY, atomic_directory, atomic_write
from safeswap.files.infer import resolve_file_schema
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.files.read import read
from safeswap.files.write import write
from safeswap.measures.base import largest_small, score_counts
from safeswap.methods.base import Method
from safeswap.methods.by_household import changed_by_household
from safeswap.methods.exchange import ExchangingMethod
from safeswap.methods.value_change import ValueChangingMethod
from safeswap.model.invariant import Finding, Invariant, verify
from safeswap.model.masked import Masked, MaskedFile
from safeswap.model.schema import Schema
from safeswap.model.score import Assessment
from safeswap.model.text import list_names, plural
from safeswap.on_disk.audit_record import note_exchange, read_audit_json
from safeswap.on_disk.job import (
    Announcement,
    Job,
    OpenFile,
    Output,
    RewrittenFile,
    check_supported,
    find_engine,
    iter_changed,
)
from safeswap.on_disk.masking import digest_of, note, steps_of, write_both, write_record
from safeswap.on_disk.value_changes import ChangedFile

REPORTED = ("records", "asked", "feasible", "at_most", "made", "compensating", "releasable", "facts")


def mask_files(job: Job) -> MaskedFile:
    """Mask the files; the result is read back from disk and verified before it gets its name."""
    method = registry.method(job.spec.method)
    engine = find_engine(job.engine)
    check_supported(engine, method)
    files = open_parquet(job.source)
    schema = resolve_file_schema(files, **job.reading)
    check_supported(engine, method, schema=schema, spec=job.spec)
    if changed_by_household(method, schema, job.spec):  # values reach members that give none
        return _mask_in_memory(job, method, files, schema)
    with (
        open_output(job, files, whole=engine.writes_directories) as (part, work, records),
        blame_changed_source(files),
        engine(job, files, schema, work) as opened,
    ):
        output, drawn, promises = _decide(opened, method)
        if job.measures:
            output.limit = largest_small([registry.measure(name) for name in job.measures])
        # Measuring does not depend on writing, and the digest only needs the written files: run them in parallel.
        with ThreadPoolExecutor(2) as threads:
            measuring = threads.submit(_assess, job, output) if output.counts_aside else None
            output.write(part)
            identifying = threads.submit(output.identify, part)
            findings = _verify(output, part, promises)
            assessment = _assess(job, output) if measuring is None else measuring.result()
            identity = identifying.result()
        files.check_unchanged()
        totals = _totals(job, schema, drawn, output)
        fill = partial(output.write_record, totals=totals, identity=identity)
        record = write_record(fill, identity, job.audit, records=records)
        _announce(job, output, part, identity, totals)
        files.check_unchanged()
    return _summarise(job, record, findings, totals, assessment)


def _mask_in_memory(job: Job, method: Method, files: ParquetFiles, schema: Schema) -> MaskedFile:
    """Mask the file as a whole: output and record, both complete or neither."""
    with open_output(job, files, whole=False) as (part, _, records), blame_changed_source(files):
        masked, findings = mask_whole(job, method, files, schema)
        written = part / "part-00000.parquet" if part.is_dir() else part
        write(masked, written, force=True)
        digests: dict[str, Any] = {"digest": digest_of(part), "source_digest": digest_of(job.source)}
        record = note(masked, part, audit=job.audit, reading=job.noted_reading, records=records, **digests)
        if job.announce is not None:
            steps = tuple(steps_of(read_audit_json(record)["audit"]))
            names = masked.audit.changed_attributes
            columns = iter_changed(files, open_parquet(part, is_own=True), names)
            kept = {"source_digest": digests["source_digest"], "masked_digest": digests["digest"]}
            job.announce(Announcement(columns=columns, steps=steps, **kept))
        files.check_unchanged()
    totals = {name: getattr(masked.audit, name) for name in REPORTED}
    return _summarise(job, record, findings, {**totals, "facts": dict(masked.audit.facts)})


def _summarise(
    job: Job,
    record: Path,
    findings: tuple[Finding, ...],
    totals: Mapping[str, Any],
    assessment: Assessment | None = None,
) -> MaskedFile:
    """Return the result of a job."""
    return MaskedFile(
        target=job.target,
        audit=record,
        engine=job.engine,
        method=job.spec.method,
        spec=job.spec.as_dict(),
        findings=findings,
        assessment=assessment,
        **{name: totals[name] for name in REPORTED},
    )


def mask_whole(job: Job, method: Method, files: ParquetFiles, schema: Schema) -> tuple[Masked, tuple[Finding, ...]]:
    """Load the file, mask it, and verify every promise."""
    data = read(files.table(schema.names), schema=schema)
    masked = method.apply(data, job.spec, key=job.key, replicate=job.replicate)
    findings = verify(method.invariants(data, job.spec), before=data, after=masked.data, audit=masked.audit)
    _refuse_broken(findings, "a promise does not hold", "the program")
    return masked, findings


def _refuse_broken(findings: tuple[Finding, ...], what: str, cause: str) -> None:
    if broken := [finding for finding in findings if not finding.ok]:
        raise UnsafeRelease(
            f"{what}; nothing was written: " + "; ".join(dict.fromkeys(finding.problem for finding in broken)),
            code="promise-broken",
            hint=f"please report it: this is a fault of {cause}",
            findings=[finding.as_dict() for finding in broken],
        )


def _announce(job: Job, output: Output, part: Path, identity: str, totals: Mapping[str, Any]) -> None:
    if job.announce is not None:
        digests = {"source_digest": output.source_digest, "masked_digest": identity}
        job.announce(Announcement(columns=output.iter_changed(part), steps=tuple(steps_of(totals)), **digests))


def _decide(opened: OpenFile, method: Method) -> tuple[Output, Drawn, tuple[Invariant, ...]]:
    """Decide what changes, in memory or on counts; return what writes it, the decision, and the promises."""
    job, schema = opened.job, opened.schema
    if isinstance(method, ValueChangingMethod):
        assert isinstance(opened, RewrittenFile)  # noqa: S101  (what is supported has been checked)
        changed = ChangedFile(opened, method)
        return changed, changed.drawn, changed.promises
    assert isinstance(method, ExchangingMethod)  # noqa: S101  (as above)
    opened.open(_read_columns(method, schema, job))
    drawn = method.draw(opened.records, job.spec, job.key, replicate=job.replicate)
    dict(drawn.facts)  # computed now, so that their inputs can be freed
    opened.names = _changed_columns(method, drawn, schema, job)
    opened.exchange(drawn)
    return opened, drawn, method.invariants(opened.records, job.spec)


def _read_columns(method: ExchangingMethod, schema: Schema, job: Job) -> Names:
    """Return the columns that the engine must read, in file order."""
    named = set(method.columns(schema, job.spec).read)
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    own = schema.identifier
    return tuple(name for name in schema.names if name in named or (own is not None and name == own.name))


def _changed_columns(method: ExchangingMethod, drawn: Drawn, schema: Schema, job: Job) -> Names:
    """Return the columns in which something is exchanged, in file order; at least one that could have been."""
    moved = {name for move in drawn.moves for name in move.names}
    found = tuple(name for name in schema.names if name in moved)
    return found or method.columns(schema, job.spec).changed[:1]


@contextmanager
def blame_changed_source(files: ParquetFiles) -> Iterator[None]:
    """Report a changed source as the reason of every failure."""
    try:
        yield
    except Exception:
        files.check_unchanged()
        raise


@contextmanager
def open_output(job: Job, files: ParquetFiles, *, whole: bool) -> Iterator[tuple[Path, Path, list[Path]]]:
    """Yield the path to write to, a temporary directory on the same disk, and the list for the record."""
    is_directory = files.is_directory or whole
    new = atomic_directory if is_directory else atomic_write
    options: dict[str, Any] = {"marker": "_SUCCESS"} if is_directory else {}
    with write_both(job.audit, job.target) as records, new(job.target, force=job.force, **options) as part:
        work = part.parent / f"{part.stem}.work"
        work.mkdir(mode=PRIVATE_DIRECTORY)
        try:
            yield part, work, records
            if is_directory:
                (part / "_SUCCESS").touch()
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _assess(job: Job, output: Output) -> Assessment | None:
    """Return the requested figures if they follow from what the engine holds; else None: the files must be compared."""
    counted = None if output.limit is None else output.count_cells(output.limit)
    chosen = [registry.measure(name) for name in job.measures]
    return None if counted is None else score_counts(chosen, counted, leave_out=True)


def _verify(output: Output, part: Path, promises: tuple[Invariant, ...]) -> tuple[Finding, ...]:
    wrong = output.find_damaged(part)
    copied = Finding(
        invariant="CopiedColumns",
        sentence="Every column in which nothing was to change is the same in both files.",
        ok=not wrong,
        problem=f"{plural(len(wrong), 'column is', 'columns are')} not as before: {list_names(wrong[:5])}"
        if wrong
        else "",
    )
    findings = (copied, *output.findings(part, promises)) if copied.ok else (copied,)
    _refuse_broken(findings, "the masked file breaks a promise", "the program, of the disk, or of the cluster")
    return findings


def _totals(job: Job, schema: Schema, drawn: Drawn, output: Output) -> dict[str, Any]:
    return {
        "method": job.spec.method,
        "spec": job.spec.as_dict(),
        "records": len(output.files),
        "asked": drawn.plan.asked,
        "feasible": drawn.plan.feasible,
        "at_most": drawn.plan.at_most,
        "made": drawn.made,
        "compensating": output.count_compensating(),
        "key_id": job.key.id,
        "releasable": job.key.releasable and drawn.releasable,
        "algorithm": keyed.ALGORITHM,
        "replicate": job.replicate,
        "data_name": schema.name,
        "facts": dict(drawn.facts),
        "stages": [note_exchange(move.names, move) for move in drawn.moves],
        "replaced": list(output.replaced),
    }
