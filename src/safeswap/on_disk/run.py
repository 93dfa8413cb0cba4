"""Mask a Parquet file or directory on disk: masked files and record apart, both complete or neither."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.types import Rows
from safeswap.errors import InputError, UnsafeRelease
from safeswap.files.atomic import atomic_directory, atomic_write
from safeswap.files.infer import described_files
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.files.rewrite import Written, rewrite, unchanged
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.model.invariant import Finding
from safeswap.model.key import Key
from safeswap.model.masked import MaskedFile
from safeswap.model.plan import Plan
from safeswap.model.schema import Schema
from safeswap.model.score import Assessment
from safeswap.model.spec import MaskSpec, SwapSpec
from safeswap.model.text import several
from safeswap.on_disk.audit_record import AUDIT, PAIRS, write_audit_json
from safeswap.on_disk.capabilities import check_supported
from safeswap.on_disk.masking import both_or_neither, digest_of

_REPORTED = ("records", "asked", "feasible", "at_most", "made", "compensating", "releasable", "facts")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to mask, how, and with which resources."""

    source: Path
    target: Path
    audit: Path
    spec: MaskSpec
    key: Key = field(repr=False)
    engine: str = "memory"
    replicate: int = 0
    reading: Mapping[str, Any] = field(default_factory=dict)
    memory_limit: str = "1GB"
    threads: int | None = None
    force: bool = False
    measures: tuple[str, ...] = ()
    attributes: tuple[str, ...] | None = None


class FileSwap(Protocol):
    """A swap, or an edit, whose pairs are drawn; how they are held is up to the engine."""

    plan: Plan

    @property
    def stages(self) -> tuple[tuple[tuple[str, ...], int], ...]:
        """The attributes of each stage, and its number of pairs."""
        ...

    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the changed columns of some records, requested in order."""
        ...

    def pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield stage and pairs of row numbers, in the order of drawing, in batches."""
        ...

    def count_compensating(self) -> int:
        """Count records that changed although the table did not."""
        ...

    def findings(self, written: ParquetFiles) -> tuple[Finding, ...]:
        """Check every promise of the method on the files read back from disk."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class FileEdit(FileSwap, Protocol):
    """An edit: it knows which columns it changed, and reports more than a swap."""

    facts: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The rewritten columns, in file order."""
        ...


def mask_files(job: Job) -> MaskedFile:
    """Mask the files; the result is read back from disk and verified before it gets its name."""
    check_supported(job.engine, job.spec)
    files = open_parquet(job.source)
    schema = described_files(files, **job.reading)
    with _output(job, files) as (part, work), _blame_changed_source(files):
        swap = _draw_pairs(job, files, schema, work)
        try:
            # Measuring does not depend on writing, and the digest only needs the written files: run them in parallel.
            with ThreadPoolExecutor(2) as threads:
                measuring = threads.submit(_assess, job, swap)
                names = _changed_columns(swap, schema, job.spec)
                written = rewrite(files, part, names=names, replacing=swap, work=work)
                summing = threads.submit(digest_of, part)
                findings = _verify(files, written, part, names, swap)
                assessment, digest = measuring.result(), summing.result()
            files.check_unchanged()
            totals = _totals(job, files, schema, swap)
            record = _note(job, digest, schema, swap, totals)
        finally:
            swap.close()
    return MaskedFile(
        target=job.target,
        audit=record,
        engine=job.engine,
        method=job.spec.method,
        spec=job.spec.as_dict(),
        findings=findings,
        assessment=assessment,
        **{name: totals[name] for name in _REPORTED},
    )


@contextmanager
def _blame_changed_source(files: ParquetFiles) -> Iterator[None]:
    """Report a changed source as the reason of every failure."""
    try:
        yield
    except (InputError, UnsafeRelease, ValueError):
        files.check_unchanged()
        raise


def _assess(job: Job, swap: FileSwap) -> Assessment | None:
    """Return the requested figures if they follow from held data; else None, and the files must be compared."""
    from safeswap import registry
    from safeswap.measures.base import most_small, scored
    from safeswap.on_disk.held_exchanges import HeldExchanges

    chosen = [registry.measure(name) for name in job.measures]
    limit = most_small(chosen)
    if limit is None or not isinstance(swap, HeldExchanges):
        return None
    return scored(chosen, swap.count_cells(job.attributes, limit), leave_out=True)


def _draw_pairs(job: Job, files: ParquetFiles, schema: Schema, work: Path) -> FileSwap:
    spec = job.spec
    if isinstance(spec, Edit1990Spec) and job.engine == "duckdb":
        from safeswap.on_disk.duckdb import DuckDBEdit1990

        return DuckDBEdit1990(files, schema, spec, job=job, work=work)
    if isinstance(spec, Edit1990Spec | EditTargetedSpec):
        from safeswap.on_disk.memory import MemoryEdit

        return MemoryEdit(files, schema, spec, key=job.key, replicate=job.replicate)
    assert isinstance(spec, SwapSpec)  # noqa: S101  (what is supported has been checked)
    if job.engine == "memory":
        from safeswap.on_disk.memory import MemorySwap

        return MemorySwap(files, schema, spec, key=job.key, replicate=job.replicate)
    from safeswap.on_disk.duckdb import DuckDBSwap

    return DuckDBSwap(files, schema, spec, job=job, work=work)


def _changed_columns(swap: FileSwap, schema: Schema, spec: MaskSpec) -> tuple[str, ...]:
    if isinstance(swap, FileEdit):
        return swap.names
    assert isinstance(spec, SwapSpec)  # noqa: S101  (every other method states what it changed)
    return tuple(name for name in schema.names if name in spec.swap)


@contextmanager
def _output(job: Job, files: ParquetFiles) -> Iterator[tuple[Path, Path]]:
    """Give the path to write to, and a temporary directory on the same disk."""
    new = atomic_directory if files.is_directory else atomic_write
    options: dict[str, Any] = {"marker": "_SUCCESS"} if files.is_directory else {}
    with both_or_neither(job.audit, job.target), new(job.target, force=job.force, **options) as part:
        work = part.parent / f"{part.stem}.work"
        work.mkdir(mode=0o700)
        try:
            yield part, work
            if files.is_directory:
                (part / "_SUCCESS").touch()
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _verify(
    files: ParquetFiles, written: Sequence[Written], part: Path, names: Sequence[str], swap: FileSwap
) -> tuple[Finding, ...]:
    others = [name for name in files.schema.names if name not in names]
    result = open_parquet(part)
    same = [each.groups for each in result.parts] == [each.groups for each in files.parts]
    wrong = others if not (same and result.schema.equals(files.schema)) else unchanged(files, written, others)
    copied = Finding(
        invariant="CopiedColumns",
        sentence="Every column in which nothing was exchanged is in the new file as in the old one.",
        ok=not wrong,
        problem=f"{several(len(wrong), 'column is', 'columns are')} not as before: {', '.join(wrong[:5])}"
        if wrong
        else "",
    )
    findings = (copied, *swap.findings(result)) if copied.ok else (copied,)
    broken = [finding for finding in findings if not finding.ok]
    if broken:
        raise UnsafeRelease(
            "the masked file does not keep what was promised; nothing was written: "
            + "; ".join(finding.problem for finding in broken),
            code="promise-broken",
            hint="please report it: this is a fault of the program, or of the disk",
            findings=[finding.as_dict() for finding in broken],
        )
    return findings


def _totals(job: Job, files: ParquetFiles, schema: Schema, swap: FileSwap) -> dict[str, Any]:
    numbers = [number for _, number in swap.stages]
    # The stages of a swap exchange different columns; those of an edit, different records.
    made = min(numbers) if isinstance(job.spec, SwapSpec) else sum(numbers)
    by_the_letter = isinstance(job.spec, EditTargetedSpec) and job.spec.variant == "letter"
    return {
        "method": job.spec.method,
        "spec": job.spec.as_dict(),
        "records": len(files),
        "asked": swap.plan.asked,
        "feasible": swap.plan.feasible,
        "at_most": swap.plan.at_most,
        "made": made,
        "compensating": swap.count_compensating(),
        "key_id": job.key.id,
        "releasable": job.key.releasable and not by_the_letter,
        "algorithm": keyed.ALGORITHM,
        "replicate": job.replicate,
        "data_name": schema.name,
        "facts": dict(swap.facts) if isinstance(swap, FileEdit) else {},
        "stages": [{"attributes": list(names), "pairs": number} for names, number in swap.stages],
        "replaced": [],
    }


def _note(job: Job, digest: str, schema: Schema, swap: FileSwap, totals: Mapping[str, Any]) -> Path:
    record = job.audit / f"masking-{digest[:16]}"
    reading = {name: value for name, value in job.reading.items() if name in ("missing", "name") and value}
    notes = {"masked_sha256": digest, "engine": job.engine, "reading": reading}
    notes |= {"source_sha256": digest_of(job.source)}
    with atomic_directory(record, force=True, marker=AUDIT) as directory:
        _write_pairs(directory / PAIRS, swap, totals["records"])
        write_audit_json(directory, totals, schema, notes=notes)
    return record


def _write_pairs(path: Path, swap: FileSwap, records: int) -> None:
    from pyarrow import parquet

    row = pa.int32() if records < 2**31 else pa.int64()
    fields = pa.schema({"stage": pa.int32(), "row_a": row, "row_b": row})
    # Row numbers in random order: neither a dictionary nor compression would make them smaller.
    with parquet.ParquetWriter(path, fields, use_dictionary=False, compression="none", write_statistics=False) as out:
        for stage, pairs in swap.pairs():
            columns = [pa.array([stage], pa.int32()).take(pa.array([0] * len(pairs), pa.int32()))]
            columns += [pa.array(pairs[:, side]).cast(row) for side in (0, 1)]
            out.write_table(pa.table(columns, schema=fields))
