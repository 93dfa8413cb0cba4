"""Mask Parquet files by a pipeline: step by step through files beside the target, with one record for all of them.

Each step runs on the job's engine, and is verified on disk, as if it were alone. A method that needs the whole file
runs in memory, whatever the engine: a pipeline needs as much memory as its most demanding step.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.errors import SafeswapError
from safeswap.files.infer import resolve_file_schema
from safeswap.files.parquet import open_parquet
from safeswap.methods.by_household import changed_by_household
from safeswap.model.audit import COARSENED, Audit
from safeswap.model.invariant import Finding
from safeswap.model.masked import MaskedFile
from safeswap.model.schema import Schema
from safeswap.on_disk.audit_record import STEP, read_audit, read_audit_json, write_audit_json, write_pairs
from safeswap.on_disk.job import Announcement, Job, check_supported, find_engine, iter_changed
from safeswap.on_disk.masking import digest_of, keep, name_types, steps_of, value_type, write_record
from safeswap.on_disk.run import REPORTED, blame_changed_source, mask_files, mask_whole, open_output
from safeswap.pipelines.method import check_step, explain_misfit, steps_in_memory
from safeswap.pipelines.spec import Pipeline, Step, at_step

_ROWS = "*.parquet"


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """A finished step: its file, its record, and the description of the file before and after it."""

    name: str
    target: Path
    record: Path
    findings: tuple[Finding, ...]

    @property
    def content(self) -> dict[str, Any]:
        """The readable part of the record."""
        return read_audit_json(self.record)

    @property
    def schema(self) -> Schema:
        """The description of the columns after the masking."""
        content = self.content
        return Schema.model_validate(content["notes"].get("masked_schema", content["schema"]))

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of the step in the record of the pipeline."""
        content = self.content
        described = {"schema": content["schema"]} if "masked_schema" in content["notes"] else {}
        return {"name": self.name, **described, **content["audit"]}


def mask_pipeline(job: Job) -> MaskedFile:
    """Mask the files by every step; target and record appear complete or not at all."""
    spec = _pipeline_of(job)
    engine = find_engine(job.engine)
    in_memory = steps_in_memory(spec)
    files = open_parquet(job.source)
    schema = resolve_file_schema(files, **job.reading)
    for number, step in enumerate(spec.steps, start=1):
        if step.name not in in_memory:
            try:
                check_supported(engine, registry.method(step.spec.method), schema=schema)
            except SafeswapError as error:
                raise at_step(error, number, step.name) from None
    with (
        open_output(job, files, whole=engine.writes_directories) as (part, work, records),
        blame_changed_source(files),
    ):
        stages = _run_stages(job, schema, work, is_directory=part.is_dir())
        _move(stages[-1].target if stages else job.source, part, copy=not stages)
        identity = digest_of(part)
        totals = _totals(job, schema, stages, len(files))
        fill = partial(_fill_record, job=job, part=part, stages=stages, schema=schema, totals=totals, identity=identity)
        record = write_record(fill, identity, job.audit, records=records)
        if job.announce is not None:
            steps = tuple(steps_of(totals))
            names = tuple(dict.fromkeys(name for past in steps for name in past.attributes))
            columns = iter_changed(files, open_parquet(part, is_own=True), names)
            digests = {"source_digest": digest_of(job.source), "masked_digest": identity}
            job.announce(Announcement(columns=columns, steps=steps, **digests))
        files.check_unchanged()
    return MaskedFile(
        target=job.target,
        audit=record,
        engine=job.engine,
        method=spec.method,
        spec=spec.as_dict(),
        findings=tuple(finding for stage in stages for finding in stage.findings),
        **{name: totals[name] for name in REPORTED},
    )


def _pipeline_of(job: Job) -> Pipeline:
    assert isinstance(job.spec, Pipeline)  # noqa: S101  (the caller has looked)
    return job.spec


def _run_stages(job: Job, schema: Schema, work: Path, *, is_directory: bool) -> list[_Stage]:
    """Run the steps one after another; a file that the next step has read is removed."""
    stages: list[_Stage] = []
    spec = _pipeline_of(job)
    in_memory = steps_in_memory(spec)
    for number, step in enumerate(spec.steps, start=1):
        target = work / (f"stage-{number}" + ("" if is_directory else ".parquet"))
        own = replace(
            job,
            source=stages[-1].target if stages else job.source,
            target=target,
            audit=work / f"audit-{number}",
            spec=step.spec,
            key=step.key(job.key),
            # Draws depend on the name of the data: that of the original, not of the file between two steps.
            reading={"schema": stages[-1].schema, "name": schema.name} if stages else job.reading,
            measures=(),
            announce=None,
            force=False,
        )
        described = stages[-1].schema if stages else schema
        check_step(described, spec, number)
        try:
            shared = changed_by_household(registry.method(step.spec.method), described, step.spec)
            whole = step.name in in_memory or shared
            stages.append(_mask_in_memory(own, step) if whole else _mask_on_engine(own, step))
        except SafeswapError as error:
            raise explain_misfit(error, schema, spec, number) from None
        if number > 1:
            _remove(own.source)
    return stages


def _mask_on_engine(job: Job, step: Step) -> _Stage:
    masked = mask_files(job)
    return _Stage(name=step.name, target=job.target, record=masked.audit, findings=masked.findings)


def _mask_in_memory(job: Job, step: Step) -> _Stage:
    """Load the file, mask it, verify every promise, and write the result as one file."""
    files = open_parquet(job.source)
    schema = resolve_file_schema(files, **job.reading)
    masked, findings = mask_whole(job, registry.method(step.spec.method), files, schema)
    output = job.target
    if not output.suffix:
        output.mkdir()
        output = output / "part-00000.parquet"
    record = keep(masked, output, audit=job.audit, reading={}, source_digest=digest_of(job.source))
    return _Stage(name=step.name, target=job.target, record=record, findings=findings)


def _totals(job: Job, schema: Schema, stages: list[_Stage], records: int) -> dict[str, Any]:
    touched = np.zeros(records, dtype=np.bool_)
    for stage in stages:
        touched |= read_audit(stage.record).touched()
    steps = [stage.as_dict() for stage in stages]
    made = int(np.count_nonzero(touched))
    reasons = [step["facts"]["not_for_release"] for step in steps if "not_for_release" in step["facts"]]
    facts: dict[str, Any] = {"unit": "records", **({"not_for_release": reasons[0]} if reasons else {})}
    if steps and all(step["facts"].get("values") == COARSENED for step in steps):
        facts["values"] = COARSENED
    return {
        "method": job.spec.method,
        "spec": job.spec.as_dict(),
        "records": records,
        **dict.fromkeys(("asked", "feasible", "made"), made),
        "at_most": None,
        "compensating": 0,
        "key_id": job.key.id,
        "releasable": job.key.releasable and all(step["releasable"] for step in steps),
        "algorithm": keyed.ALGORITHM,
        "replicate": job.replicate,
        "data_name": schema.name,
        "facts": facts,
        "stages": [],
        "replaced": [],
        "steps": steps,
    }


def _fill_record(
    directory: Path,
    *,
    job: Job,
    part: Path,
    stages: list[_Stage],
    schema: Schema,
    totals: Mapping[str, Any],
    identity: str,
) -> None:
    """Put the rows of every step into a directory of its own, and the readable part beside them."""
    for number, stage in enumerate(stages, start=1):
        place = directory / STEP.format(number)
        place.mkdir()
        for path in sorted(stage.record.glob(_ROWS)):
            if path.name != "row_order.parquet":  # the order of the file, in every step
                shutil.copyfile(path, place / path.name)
    if not stages:
        write_pairs(directory, Audit(records=int(totals["records"])))
    reading = {name: value for name, value in job.reading.items() if name in ("missing", "name") and value}
    notes = {
        "masked_sha256": identity,
        "engine": job.engine,
        "reading": reading,
        "source_sha256": digest_of(job.source),
    }
    last = stages[-1].schema if stages else schema
    if last != schema:
        both = [open_parquet(path).schema for path in (job.source, part)]
        types = {name: [value_type(schema.field(name).type) for schema in both] for name in last.names}
        notes |= {"masked_schema": last.model_dump(mode="json"), "types": name_types(types)}
    write_audit_json(directory, totals, schema, notes=notes)


def _move(source: Path, part: Path, *, copy: bool) -> None:
    """Give the last stage the place of the result."""
    if not part.is_dir():
        shutil.copyfile(source, part) if copy else source.replace(part)
        return
    for path in sorted(source.iterdir()):
        if path.name != "_SUCCESS":
            shutil.copyfile(path, part / path.name) if copy else path.replace(part / path.name)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
