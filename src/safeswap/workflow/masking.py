"""Read, describe, plan, mask, keep and undo: the verbs from a file to its masked form and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from safeswap.errors import EngineError, SpecError
from safeswap.files.formats import ReadingOptions
from safeswap.model.audit import Audit
from safeswap.model.checked import Default, check_types, select_stated
from safeswap.model.key import Key
from safeswap.model.masked import Masked, MaskedFile
from safeswap.model.microdata import Microdata
from safeswap.model.options import ColumnOptions, EngineOptions
from safeswap.model.scenario import Scenario, Scenarios, as_scenarios
from safeswap.model.schema import Schema
from safeswap.model.spec import MaskSpec, Plan, SwapSpec
from safeswap.model.study import StudySpec

if TYPE_CHECKING:
    from safeswap.methods.safe.spec import SafeTables
    from safeswap.model.score import Assessment
    from safeswap.on_disk.job import Job
    from safeswap.releases.ledger import LedgerFile


@check_types
def read(source: Any, **options: Unpack[ReadingOptions]) -> Microdata:
    """Read a file or dataframe. See :func:`safeswap.files.read.read` for the options.

    >>> import pyarrow as pa
    >>> read(pa.table({"id": [1, 2], "Sex": ["m", "f"]}), identifier="id")
    <Microdata: 2 records × 2 attributes: id, Sex>
    """
    from safeswap.files.read import read as read_source

    given = select_stated(options, ReadingOptions)
    return source if isinstance(source, Microdata) and not given else read_source(source, **given)


@contextmanager
def reading_alike() -> Iterator[None]:
    """Within the block, parse only what differs of a large file from one that was read before."""
    from safeswap.files.formats import reading_alike as comparing

    with comparing():
        yield


@check_types
def read_key(path: str | PathLike[str]) -> Key:
    """Read a key file; refuse one that others can read."""
    from safeswap.files.keyfile import read_key as read_key_file

    return read_key_file(path)


@check_types
def describe(data: Any, *, tolerance: int = 3) -> Any:
    """Describe the attributes, levels and small cells of a file, without showing a record.

    >>> from safeswap import datasets
    >>> describe(datasets.cps8d()).records
    48842
    """
    from safeswap.files.describe import describe as describe_data

    return describe_data(read(data), tolerance=tolerance)


@check_types
def to_frame(data: Masked | Microdata | SafeTables, *, like: Any = None) -> Any:
    """Convert to a dataframe of the caller's own type, or of the type of ``like`` (or "pandas", "polars", "arrow").

    >>> import pandas, safeswap
    >>> frame = pandas.DataFrame({"Sex": ["f", "m", "m", "f"], "Race": ["a", "b", "a", "b"]})
    >>> type(to_frame(safeswap.swap(frame, swap=["Race"], pairs=1, insecure_seed=1))).__module__.split(".")[0]
    'pandas'
    """
    if isinstance(data, Masked | Microdata):
        from safeswap.files.frames import to_frame as as_frame
        from safeswap.releases.ledger import configured_ledger
        from safeswap.releases.register import EXPORTED, FileRegister, enter

        enter(data, EXPORTED, known=FileRegister(configured_ledger()))
        return as_frame(data, like=like)
    from safeswap.projects.tables import to_long

    return to_long(data, like=like)


def find_frame_type(data: Microdata) -> str:
    """Return the library of the caller's dataframe, by its name in narwhals."""
    import narwhals as nw

    if data.origin is None:
        return "pyarrow"
    frame = nw.from_native(data.origin, pass_through=True)
    return frame.implementation.value if isinstance(frame, nw.DataFrame) else "pyarrow"


@check_types
def as_spec(spec: MaskSpec | Mapping[str, Any]) -> MaskSpec:
    """Make a specification from plain values; return a specification unchanged."""
    from safeswap import registry

    return spec if isinstance(spec, MaskSpec) else registry.make_spec(spec)


@check_types
def as_key(key: Key | None, insecure_seed: int | None) -> Key:
    """Return the only source of randomness that was given."""
    if key is not None and insecure_seed is not None:
        raise SpecError(
            "give a key or an insecure seed, not both",
            code="two-keys",
            hint="omit insecure_seed= for a release; it is for teaching and tests only",
        )
    if key is None and insecure_seed is None:
        raise SpecError(
            "give a key",
            code="no-key",
            hint="key=Key.generate(), or read_key(path) of a file made by `safeswap keygen`; "
            "insecure_seed= is for teaching and tests only",
        )
    return key if key is not None else Key.insecure(seed=insecure_seed or 0)


@check_types
def check_in_memory(name: str) -> None:
    """Refuse an engine that does not work on data in memory."""
    if name == "memory":
        return
    from safeswap.on_disk.job import ENGINES

    if name not in ENGINES:
        raise SpecError(
            f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )
    raise EngineError(
        f"the engine {name!r} works on Parquet files, not on data in memory",
        code="not-supported",
        hint=f'omit engine=, or mask the file: safeswap.workflow.mask_file(…, engine="{name}")',
        engine=name,
        engines=["memory"],
    )


@check_types
def as_study_spec(
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None, **parameters: Any
) -> StudySpec:
    """Make the question of a study from plain values or a TOML file; return a StudySpec unchanged."""
    if spec is not None and parameters:
        raise SpecError("give a study specification or parameters, not both", code="bad-spec", hint="use one of them")
    if isinstance(spec, StudySpec):
        return spec
    if isinstance(spec, (str, PathLike)):
        from safeswap.projects.toml import read_study_spec

        return read_study_spec(spec)
    return StudySpec(**(parameters if spec is None else spec))


def as_replicate(replicate: Any) -> int:
    """Validate the number of a draw."""
    if isinstance(replicate, bool) or not isinstance(replicate, int) or replicate < 0:
        raise SpecError(
            "replicate must be a whole number, 0 or above",
            code="bad-replicate",
            hint="give replicate=0, 1, 2, …: each is another draw from the same key",
        )
    return replicate


@check_types
def plan(data: Any, spec: MaskSpec | Mapping[str, Any], *, engine: str = "memory") -> Plan:
    """Say what a specification would do to these data and whether it is feasible, from counts alone.

    >>> from safeswap import datasets
    >>> plan(datasets.cps8d(), SwapSpec(swap=["Race"], rate=0.5)).sentence
    '12,210 pairs requested, at most 7,080 feasible; Race binds'
    """
    from safeswap import registry

    spec = as_spec(spec)
    check_in_memory(engine)
    return registry.method(spec.method).plan(read(data), spec)


@check_types
def mask(
    data: Any,
    spec: MaskSpec | Mapping[str, Any],
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
    engine: str = "memory",
    known: Masked | None = None,
) -> Masked:
    """Mask the data by any registered method, or by a pipeline of them.

    Randomness comes from ``key``. ``insecure_seed`` is for teaching and tests: the result cannot be released. ``known``
    is an earlier result of a pipeline for the same data and key: the steps that both begin with are taken from it.

    >>> from safeswap import datasets
    >>> mask(datasets.cps8d(), {"method": "swap", "swap": ["Race"], "rate": 0.05}, insecure_seed=1)
    <Masked by swap: 48,842 records, 1,221 pairs exchanged, NOT FOR RELEASE (insecure seed)>
    """
    from safeswap import registry

    spec = as_spec(spec)
    secret = as_key(key, insecure_seed)
    method = registry.method(spec.method)
    number = as_replicate(replicate)
    check_in_memory(engine)
    if spec.method == "pipeline" and known is not None:
        from safeswap.pipelines.method import run

        return run(read(data), spec, key=secret, replicate=number, known=known)  # type: ignore[arg-type]
    return method.apply(read(data), spec, key=secret, replicate=number)


class FileMasking(EngineOptions, ColumnOptions, total=False):
    """Options for masking a file: the draw, the engine, and how the result is assessed."""

    replicate: Annotated[int, Default(0)]
    force: Annotated[bool, Default(value=False)]
    measures: Annotated[Sequence[str], Default(())]
    attributes: Annotated[Sequence[str] | None, Default(None)]
    scenario: Annotated[Scenarios | None, Default(None)]


@check_types
def mask_file(
    source: str | PathLike[str],
    target: str | PathLike[str],
    spec: MaskSpec | Mapping[str, Any],
    *,
    audit: str | PathLike[str],
    key: Key | None = None,
    insecure_seed: int | None = None,
    **options: Unpack[FileMasking],
) -> MaskedFile:
    """Mask a Parquet file or a directory of them, which need not fit in memory.

    ``target`` is the masked file, for internal use; ``audit`` is the directory for confidential records. Both are
    written atomically, after every promise of the method was verified on what was read back from disk. Columns in which
    nothing is exchanged are copied without decoding. ``schema``, ``identifier``, ``kinds``, ``missing`` and ``name``
    describe the columns, as for :func:`read`; ``replicate`` is the number of the draw, and ``force`` overwrites.
    With ``measures`` the result is assessed too, over ``attributes``, from data already read or by counting on the
    engine; those that do not apply are left out and named.

    A ``scenario``, or several, states the keys of the measures of risk, as in :func:`assess_file`.

    A method that changes values record by record (recode, PRAM, noise, top and bottom coding) has the columns it names
    loaded, on ``"duckdb"`` too, which refuses those that would not fit ``memory_limit``; ``"spark"`` does not take it.

    The result is the same on every engine: ``"memory"``, ``"duckdb"`` (on disk, within ``memory_limit``) or ``"spark"``
    (in the session ``spark``, or a new one).

    >>> import tempfile, pathlib
    >>> from safeswap import datasets
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> datasets.write_synthetic_census(folder / "census.parquet", 2_000)
    >>> spec = SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.1)
    >>> places = dict(target=folder / "masked.parquet", audit=folder / "audit", identifier="HHID")
    >>> mask_file(folder / "census.parquet", spec=spec, insecure_seed=1, **places)
    <MaskedFile by swap: 2,000 records, 100 pairs exchanged, NOT FOR RELEASE (insecure seed)>
    >>> places = dict(target=folder / "again.parquet", audit=folder / "audit", identifier="HHID")
    >>> done = mask_file(folder / "census.parquet", spec=spec, insecure_seed=1, measures=["total_variation"], **places)
    >>> round(done.assessment["total_variation"].value, 6)
    0.1
    """
    from safeswap.on_disk.job import Job
    from safeswap.on_disk.pipeline import mask_pipeline
    from safeswap.on_disk.run import mask_files
    from safeswap.releases.ledger import configured_ledger
    from safeswap.releases.register import FileRegister, enter_files

    register = FileRegister(configured_ledger())
    asked, measures = as_scenarios(options["scenario"]), options["measures"]
    engine, attributes = options["engine"], options["attributes"]
    job = Job(
        source=Path(source),
        target=Path(target),
        audit=Path(audit),
        spec=as_spec(spec),
        key=as_key(key, insecure_seed),
        engine=engine,
        replicate=as_replicate(options["replicate"]),
        reading=select_stated(options, ColumnOptions),
        memory_limit=options["memory_limit"],
        threads=options["threads"],
        session=options["spark"],
        force=options["force"],
        measures=() if asked else tuple(measures),
        attributes=None if attributes is None else tuple(attributes),
        announce=lambda masking: enter_files(masking, register),
    )
    counting = "memory" if asked or not measures else _counting_engine(engine, measures)
    masked = mask_pipeline(job) if job.spec.method == "pipeline" else mask_files(job)
    if measures and masked.assessment is None:
        return replace(masked, assessment=_measure_written(job, measures, counting, asked))
    return masked


def _measure_written(job: Job, measures: Sequence[str], engine: str, scenarios: Sequence[Scenario]) -> Assessment:
    """Assess the files of a finished job. A measure that does not apply is named, not refused: the file is masked."""
    from safeswap.workflow.assessing import measure_files

    return measure_files(
        (job.source, job.target),
        measures,
        attributes=job.attributes,
        reading=job.reading,
        leave_out=True,
        scenarios=scenarios,
        means={"engine": engine, "memory_limit": job.memory_limit, "threads": job.threads, "spark": job.session},
    )


def _counting_engine(engine: str, measures: Sequence[str]) -> str:
    """Return the engine that assesses the result: the masking one if counts suffice. Spark refuses other measures."""
    from safeswap import registry
    from safeswap.measures.base import largest_small
    from safeswap.on_disk.job import check_countable

    by_counts = largest_small([registry.measure(name) for name in measures]) is not None
    if engine == "spark":
        check_countable(engine, by_counts=by_counts)
    return engine if by_counts or engine == "spark" else "memory"


@check_types
def swap(
    data: Any,
    spec: SwapSpec | None = None,
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
    engine: str = "memory",
    **parameters: Any,
) -> Masked:
    """Swap records, given a :class:`SwapSpec` or its parameters.

    >>> from safeswap import datasets, Key
    >>> swap(datasets.cps8d(), swap=["Race"], rate=0.05, key=Key.generate())
    <Masked by swap: 48,842 records, 1,221 pairs exchanged>
    """
    if spec is not None and parameters:
        raise SpecError("give a specification or parameters, not both", code="bad-spec", hint="use spec.replace(...)")
    spec = SwapSpec(**parameters) if spec is None else spec
    return mask(data, spec, key=key, insecure_seed=insecure_seed, replicate=replicate, engine=engine)


@check_types
def undo(masked: Any, audit: Audit | str | PathLike[str] | None = None) -> Microdata:
    """Restore the original file exactly from the masked one and its audit record.

    >>> from safeswap import datasets
    >>> data = datasets.cps8d()
    >>> undo(swap(data, swap=["Race"], rate=0.05, insecure_seed=1)).table.equals(data.table)
    True
    """
    from safeswap.model.audit import undo as undone
    from safeswap.on_disk.audit_record import read_audit, read_audit_json

    if isinstance(masked, Masked):
        return masked.undo()
    if audit is None:
        raise SpecError("missing audit record", code="no-audit", hint="undo(masked_file, audit_directory)")
    if isinstance(audit, Audit):
        return undone(read(masked), audit)
    found = undone(read(masked), read_audit(Path(audit)))
    described = Schema.model_validate(read_audit_json(Path(audit))["schema"])
    return replace(found, schema=described) if described.names == found.attributes else found


@check_types
def keep(
    masked: Masked,
    output: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    reading: Mapping[str, Any] | None = None,
    source: str | PathLike[str] | None = None,
    ledger: LedgerFile | None = None,
    force: bool = False,
) -> Path:
    """Write the internal masked file and its confidential record, both or neither; return the path of the record.

    ``reading`` has the options with which the original was read, so that :func:`recall` reads it the same way.
    ``source`` is the file that was masked. What was done to it before is found in the register of the agency's ledger
    (or ``ledger``), which in turn learns of this masking: a release tells every step, wherever its record is.
    """
    from safeswap.on_disk.masking import digest_of
    from safeswap.on_disk.masking import keep as keep_masking
    from safeswap.releases.ledger import configured_ledger
    from safeswap.releases.register import FileRegister, enter_masked, note_names, with_known_past

    register = FileRegister(configured_ledger() if ledger is None else ledger)
    source_digest = "" if source is None else digest_of(Path(source))
    known = with_known_past(masked, register, digest=source_digest)
    return keep_masking(
        known,
        Path(output),
        audit=Path(audit),
        reading=reading or {},
        source_digest=source_digest,
        announce=lambda digest: enter_masked(known, register, digest=digest),
        notes=note_names(known.original, register) if known.data.past else None,
        force=force,
    )


@check_types
def register(made: Masked | Microdata) -> None:
    """Enter data written without :func:`keep` into the register of the agency's ledger.

    A later masking or release of a copy then states what was done to them here.
    """
    from safeswap.releases.ledger import configured_ledger
    from safeswap.releases.register import FileRegister, enter

    enter(made, FileRegister(configured_ledger()))


class _Pool:
    """The memory pool that Arrow had before the first of the blocks that are open, in any thread."""

    lock = Lock()
    blocks = 0
    before: Any = None


@contextmanager
def returning_memory() -> Iterator[None]:
    """Let Arrow return memory to the system as soon as it is free, within the block, unless a pool was configured.

    Its own pool keeps what a step has freed, so that the peak of a release is above the memory of its largest step.
    """
    import pyarrow as pa

    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        yield
        return
    with _Pool.lock:
        if not _Pool.blocks:
            _Pool.before = pa.default_memory_pool()
            pa.set_memory_pool(pa.system_memory_pool())
        _Pool.blocks += 1
    try:
        yield
    finally:
        with _Pool.lock:
            _Pool.blocks -= 1
            if not _Pool.blocks:
                pa.set_memory_pool(_Pool.before)


@returning_memory()
@check_types
def recall(
    original: str | PathLike[str],
    masked: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    recipe: Any = None,
    households: Sequence[str | PathLike[str]] = (),
) -> Masked:
    """Read back a kept masking from the original, the masked file and the record.

    Earlier maskings of the original are found by their records in the same audit directory, and in the register of the
    agency's ledger. ``recipe`` is what was done to the file before any of them without leaving a record. ``households``
    are the original and the masked file of households, if two files were masked in one job.
    """
    from safeswap.files.formats import existing_file
    from safeswap.model.microdata import join_pasts
    from safeswap.on_disk.masking import digest_of_both
    from safeswap.on_disk.masking import recall as recall_masking
    from safeswap.releases.ledger import configured_ledger
    from safeswap.releases.register import FileRegister, find_past_of_file

    if len(households) not in (0, 2):
        raise SpecError(
            "households takes two files: the original one and the masked one",
            code="bad-argument",
            hint="households=(original, masked)",
        )
    both = [existing_file(Path(each)) for each in households]
    digest = digest_of_both(existing_file(Path(original)), both[0] if both else None)
    known: dict[str, Any] = {"source_digest": digest, "households": (both[0], both[1]) if both else None}
    found = recall_masking(Path(original), Path(masked), audit=Path(audit), **known)
    registered = find_past_of_file(digest, FileRegister(configured_ledger()))
    past = join_pasts([registered, found.original.past])
    found = replace(found, original=replace(found.original, past=past))
    if recipe is None:
        return found
    from safeswap.workflow.session import as_recipe

    return found.with_past(as_recipe(recipe).past)
