"""The verbs: read → describe → plan → mask → assess → release, one function each.

The command line, and every other surface, calls these and nothing below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safeswap.errors import InputError, SpecError
from safeswap.model.audit import Audit
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.masked_file import MaskedFile
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.safe_result import SafeTables
from safeswap.model.score import Assessment, Comparison
from safeswap.model.spec import MaskSpec, SwapSpec
from safeswap.model.study import StudySpec

if TYPE_CHECKING:
    from safeswap.engines.base import Engine
    from safeswap.io.checkpoint import CheckpointDirectory
    from safeswap.io.publish import Published
    from safeswap.io.scan import Verification
    from safeswap.model.confidentiality import ConfidentialityPlot
    from safeswap.model.policy import Policy
    from safeswap.search.choice import Choice
    from safeswap.search.study import Study

DEFAULT_MEASURES = ("n_rule", "hellinger", "total_variation", "entropy_change", "adV", "adC", "share_changed")


def read(source: Any, **options: Any) -> Microdata:
    """Read a file or take a dataframe. See :func:`safeswap.io.read.read` for the options.

    >>> import pyarrow as pa
    >>> read(pa.table({"id": [1, 2], "Sex": ["m", "f"]}), identifier="id")
    <Microdata: 2 records × 2 attributes: id, Sex>
    """
    from safeswap.io.read import read as read_source

    return source if isinstance(source, Microdata) and not options else read_source(source, **options)


def describe(data: Any, *, tolerance: int = 3) -> Any:
    """Attributes, levels and small cells of a file; no record.

    >>> from safeswap import datasets
    >>> describe(datasets.cps8d()).records
    48842
    """
    from safeswap.io.describe import describe as describe_data

    return describe_data(read(data), tolerance=tolerance)


def plan(data: Any, spec: MaskSpec | Mapping[str, Any], *, engine: str = "memory") -> Plan:
    """What a specification would do to these data, and whether it can: from counts alone.

    >>> from safeswap import datasets
    >>> plan(datasets.cps8d(), SwapSpec(swap=["Race"], rate=0.5)).sentence
    '12,210 pairs asked for, at most 7,080 feasible; Race binds'
    """
    from safeswap import registry

    spec = as_spec(spec)
    return registry.method(spec.method).plan(read(data), spec, engine=find_engine(engine))


def mask(
    data: Any,
    spec: MaskSpec | Mapping[str, Any],
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
    engine: str = "memory",
) -> Masked:
    """Mask the data by any registered method.

    Randomness comes from ``key``. ``insecure_seed`` is for teaching and tests: its result cannot be released.

    >>> from safeswap import datasets
    >>> mask(datasets.cps8d(), {"method": "swap", "swap": ["Race"], "rate": 0.05}, insecure_seed=1)
    <Masked by swap: 48,842 records, 1,221 pairs exchanged, NOT FOR RELEASE (insecure seed)>
    """
    from safeswap import registry

    spec = as_spec(spec)
    secret = as_key(key, insecure_seed)
    method = registry.method(spec.method)
    return method.apply(read(data), spec, key=secret, engine=find_engine(engine), replicate=replicate)


def mask_file(
    source: str | PathLike[str],
    target: str | PathLike[str],
    spec: MaskSpec | Mapping[str, Any],
    *,
    audit: str | PathLike[str],
    key: Key | None = None,
    insecure_seed: int | None = None,
    engine: str = "memory",
    replicate: int = 0,
    memory_limit: str = "1GB",
    threads: int | None = None,
    spark: Any = None,
    force: bool = False,
    **reading: Any,
) -> MaskedFile:
    """Mask a Parquet file, or a directory of them, that need not fit in memory.

    ``target`` gets the masked file that stays inside, ``audit`` the directory for confidential records: both appear
    complete or not at all, after every promise of the method has been checked on what was read back from disk. Columns
    that are not swapped are copied without being decoded. ``reading`` says what the columns are: ``schema``,
    ``identifier``, ``kinds``, ``missing``, ``name``, as for :func:`read`.

    The result is the same on every engine: ``"memory"``, ``"duckdb"`` (on disk, within ``memory_limit``) or ``"spark"``
    (in the session ``spark``, or one of its own).

    >>> import tempfile, pathlib
    >>> from safeswap import datasets
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> datasets.write_synthetic_census(folder / "census.parquet", 2_000)
    >>> spec = SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.1)
    >>> places = dict(target=folder / "masked.parquet", audit=folder / "audit", identifier="HHID")
    >>> mask_file(folder / "census.parquet", spec=spec, insecure_seed=1, **places)
    <MaskedFile by swap: 2,000 records, 100 pairs exchanged, NOT FOR RELEASE (insecure seed)>
    """
    from safeswap.io.mask_files import Job, mask_files

    job = Job(
        source=Path(source),
        target=Path(target),
        audit=Path(audit),
        spec=as_spec(spec),
        key=as_key(key, insecure_seed),
        engine=engine,
        replicate=replicate,
        reading=reading,
        memory_limit=memory_limit,
        threads=threads,
        force=force,
    )
    if engine == "spark":
        from safeswap.io.spark_files import mask_with_spark

        return mask_with_spark(job, session=spark)
    return mask_files(job)


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
    """Swap: give a :class:`SwapSpec`, or its parameters.

    >>> from safeswap import datasets, Key
    >>> swap(datasets.cps8d(), swap=["Race"], rate=0.05, key=Key.generate())
    <Masked by swap: 48,842 records, 1,221 pairs exchanged>
    """
    if spec is not None and parameters:
        raise SpecError("give a specification or parameters, not both", code="bad-spec", hint="use spec.replace(...)")
    spec = SwapSpec(**parameters) if spec is None else spec
    return mask(data, spec, key=key, insecure_seed=insecure_seed, replicate=replicate, engine=engine)


def assess(
    before: Any,
    after: Any = None,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    attributes: Sequence[str] | None = None,
) -> Assessment:
    """Measure risk and distortion of a masked file: ``assess(masked)``, or ``assess(original, released)``.

    Cells are formed from ``attributes``, by default from all categorical ones. Two files are compared row by row; what
    changed between them counts as touched.

    >>> from safeswap import datasets
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [score.measure for score in assess(masked, measures=["n_rule", "hellinger"])]
    ['n_rule', 'hellinger']
    """
    from safeswap import registry

    comparison = compare(before, after, attributes=attributes)
    chosen = [registry.measure(name) for name in measures]
    return Assessment(scores=tuple(measure.score(comparison) for measure in chosen))


def assess_file(
    before: str | PathLike[str],
    after: str | PathLike[str],
    *,
    measures: Sequence[str] = ("n_rule", "hellinger", "total_variation", "entropy_change"),
    attributes: Sequence[str] | None = None,
    **reading: Any,
) -> Assessment:
    """Measure risk and distortion of a masked Parquet file, or directory, without reading all of it into memory.

    Only the columns from which cells are formed are held, those that did not change once; the figures are those of
    :func:`assess`. ``reading`` says what the columns are, as for :func:`mask_file`.

    >>> import tempfile, pathlib
    >>> from safeswap import datasets
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> datasets.write_synthetic_census(folder / "census.parquet", 2_000)
    >>> places = dict(target=folder / "masked.parquet", audit=folder / "audit", identifier="HHID")
    >>> spec = SwapSpec(swap=["TENURE"], rate=0.1)
    >>> masked = mask_file(folder / "census.parquet", spec=spec, insecure_seed=1, **places)
    >>> found = assess_file(folder / "census.parquet", masked.target, identifier="HHID", attributes=["TENURE", "STATE"])
    >>> [score.measure for score in found]
    ['n_rule', 'hellinger', 'total_variation', 'entropy_change']
    """
    from safeswap import registry
    from safeswap.io.compare_files import compare_files

    chosen = [registry.measure(name) for name in measures]
    comparison = compare_files(Path(before), Path(after), attributes=attributes, reading=reading)
    return Assessment(scores=tuple(measure.score(comparison) for measure in chosen))


def compare(before: Any, after: Any = None, *, attributes: Sequence[str] | None = None) -> Comparison:
    """Put a file and its masked version side by side, as measures look at them."""
    import numpy as np

    from safeswap.model.equality import aligned_columns, different

    if isinstance(before, Masked) and after is not None:
        raise SpecError(
            "a masking holds both files: there is nothing to compare it with",
            code="nothing-to-compare",
            hint="assess(masked), or assess(original, released)",
        )
    if isinstance(after, Masked):
        before = after
    if isinstance(before, Masked):
        original, data, touched = before.original, before.data, before.audit.touched()
    else:
        if after is None:
            raise SpecError(
                "there is nothing to compare with",
                code="nothing-to-compare",
                hint="assess(masked), or assess(original, released)",
            )
        original, data = read(before), read(after)
        _check_alike(original, data)
        touched = np.zeros(len(original), dtype=np.bool_)
        for name in original.attributes:
            if name in data.schema:
                touched |= different(*aligned_columns(original.table.column(name), data.table.column(name)))
    chosen = tuple(attributes) if attributes is not None else original.schema.categorical
    for name in chosen:
        original.schema[name]
    return Comparison(before=original, after=data, attributes=chosen, touched=touched)


def confidentiality(
    original: Any,
    released: Any = None,
    keys: Sequence[str] = (),
    *,
    linkage: Literal["auto", "distance", "fellegi_sunter", "frequency"] = "auto",
    archive: Any = None,
    population: Any = None,
    key: Key | None = None,
    only: Mapping[str, str] | None = None,
    **options: Any,
) -> ConfidentialityPlot:
    """Where each record of a release stands between perturbation and neighbours: which are unsafe, and which linked.

    ``confidentiality(masked, keys=[…])`` or ``confidentiality(original, released, keys)``; files in another order or of
    another length are matched by identifier. Numeric keys are compared by distance (``alpha``, ``scale``, ``distance``,
    ``archive``, ``policy``), categorical ones counted (``population``, ``weight``, ``sampling_fraction``,
    ``importance``, ``k``); ``linkage="fellegi_sunter"`` takes both. ``key`` draws the pairs from which δ of a large
    file is estimated.

    >>> from safeswap import datasets
    >>> data = datasets.synthetic_enterprises()
    >>> masked = mask(data, {"method": "rank_swap", "attributes": ["turnover", "employees"]}, insecure_seed=1)
    >>> plot = confidentiality(masked, keys=["turnover", "employees"], only={"division": "18"})
    >>> len(plot), int(plot.unsafe.sum()) > 0
    (157, True)
    """
    from safeswap.kernels import keyed
    from safeswap.measures.plots import make_plot

    before, after = _two_files(original, released)
    others = {"archive": archive, "population": population}
    stated: dict[str, Any] = {name: read(source) for name, source in others.items() if source is not None}
    if key is not None:
        stated["secret"] = keyed.derive(key.secret, "confidentiality")
    return make_plot(before, after, keys, linkage=linkage, only=only, **stated, **options)


def confidentiality_by_keys(
    original: Any, released: Any = None, key_sets: Sequence[Sequence[str]] = (), **options: Any
) -> Any:
    """The totals of :func:`confidentiality` for several sets of keys, a row each, as an Arrow table."""
    from safeswap.measures.plots import plots_by_keys

    before, after = _two_files(original, released)
    return plots_by_keys(before, after, key_sets, **options)


def write_confidentiality(
    plot: ConfidentialityPlot,
    path: str | PathLike[str],
    *,
    version: Literal["internal", "public"] = "internal",
    second: Policy | None = None,
    title: str = "",
    force: bool = False,
) -> None:
    """Write a plot in the format of the file's ending: html, svg or png; csv or parquet for one line per record."""
    from safeswap.io.plot_files import write_plot

    write_plot(plot, path, version=version, second=second, title=title, force=force)


def _two_files(original: Any, released: Any) -> tuple[Microdata, Microdata]:
    if isinstance(original, Masked):
        return original.original, original.data
    if released is None:
        raise SpecError(
            "there is nothing to compare with",
            code="nothing-to-compare",
            hint="give a masked result, or the original and the released file",
        )
    return read(original), released.data if isinstance(released, Masked) else read(released)


def release(
    masked: Masked,
    public: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    key: Key,
    data_format: str = "csv",
    identifiers: Literal["new", "none"] = "new",
    drop: Sequence[str] = (),
    title: str = "",
    date: str = "",
    tolerance: int = 3,
    publish_rate: bool = False,
    second_release: bool = False,
    force: bool = False,
) -> Published:
    """Verify every promise on the result, then write what may leave and, apart, what must stay.

    ``public`` gets the bundle: data in a keyed random order with new identifiers or none, a dictionary rebuilt from the
    released values, a report, and a manifest that is written last. ``audit`` gets the confidential record. Both appear
    complete or not at all; if any check fails nothing is written. One file has one release: a second one of the same
    records is refused unless ``second_release`` says that it is wanted.

    >>> import tempfile, pathlib
    >>> from safeswap import datasets
    >>> key, folder = Key.generate(), pathlib.Path(tempfile.mkdtemp())
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, key=key)
    >>> published = release(masked, folder / "public", audit=folder / "confidential", key=key)
    >>> sorted(path.name for path in published.public.iterdir())
    ['data.csv', 'dictionary.csv', 'dictionary.json', 'manifest.json', 'report.html']
    """
    from safeswap import registry
    from safeswap.io.publish import Terms, check_and_write

    method = registry.method(masked.spec.method)
    terms = Terms(
        method=method.title,
        data_format=data_format,
        identifiers=identifiers,
        drop=tuple(drop),
        title=title,
        date=date,
        tolerance=tolerance,
        publish_rate=publish_rate,
        second_release=second_release,
        force=force,
    )
    invariants = method.invariants(masked.original, masked.spec)
    return check_and_write(masked, public=public, audit=audit, key=key, invariants=invariants, terms=terms)


def verify(bundle: str | PathLike[str]) -> Verification:
    """Check a public bundle from outside, with nothing confidential at hand."""
    from safeswap.io.scan import verify_bundle

    return verify_bundle(bundle)


def undo(masked: Any, audit: Audit | str | PathLike[str] | None = None) -> Microdata:
    """The original file from the masked one and its audit record, exactly.

    >>> from safeswap import datasets
    >>> data = datasets.cps8d()
    >>> undo(swap(data, swap=["Race"], rate=0.05, insecure_seed=1)).table.equals(data.table)
    True
    """
    from safeswap.io.audit import read_audit
    from safeswap.model.undo import undo as undone

    if isinstance(masked, Masked):
        return undone(masked.data, masked.audit)
    if audit is None:
        raise SpecError("the audit record is needed", code="no-audit", hint="undo(masked_file, audit_directory)")
    return undone(read(masked), audit if isinstance(audit, Audit) else read_audit(Path(audit)))


def to_frame(data: Masked | Microdata | SafeTables, *, like: Any = None) -> Any:
    """The data as a dataframe of the caller's own type, or of the type of ``like`` (or "pandas", "polars", "arrow").

    >>> import pandas
    >>> frame = pandas.DataFrame({"Sex": ["f", "m", "m", "f"], "Race": ["a", "b", "a", "b"]})
    >>> type(to_frame(swap(frame, swap=["Race"], pairs=1, insecure_seed=1))).__module__.split(".")[0]
    'pandas'
    """
    from safeswap.io.frames import to_frame as as_frame
    from safeswap.io.long_tables import to_long

    if isinstance(data, SafeTables):
        return to_long(data, like=like)
    return as_frame(data, like=like)


def write(data: Masked | Microdata, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a file that stays inside, in the format of its ending. It appears complete or not at all."""
    from safeswap.io.write import write as write_file

    write_file(data, path, force=force)


def report(
    masked: Masked,
    path: str | PathLike[str],
    *,
    assessment: Assessment | None = None,
    distributions: Sequence[str] = (),
    date: str = "",
    force: bool = False,
) -> Path:
    """Write the internal report of one masking as a self-contained HTML page.

    ``distributions`` names the attributes whose distributions are followed through the levels of geography, by default
    all categorical ones.

    >>> import tempfile, pathlib
    >>> from safeswap import datasets
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> report(swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1), path).name
    'report.html'
    """
    from safeswap import registry
    from safeswap.io.masking_report import write_masking_report

    method = registry.method(masked.spec.method)
    promises = method.invariants(masked.original, masked.spec)
    return write_masking_report(
        masked,
        path,
        method=method.title,
        kept=tuple(dict.fromkeys(promise.sentence for promise in promises)),
        assessment=assess(masked) if assessment is None else assessment,
        distributions=distributions,
        date=date,
        force=force,
    )


def keep(
    masked: Masked,
    output: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    reading: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write the masked file that stays inside and its confidential record, both or neither; where the record is.

    ``reading`` holds the options with which the original was read, so that :func:`recall` reads it alike.
    """
    from safeswap.io.masking import keep as keep_masking

    return keep_masking(masked, Path(output), audit=Path(audit), reading=reading or {}, force=force)


def recall(original: str | PathLike[str], masked: str | PathLike[str], *, audit: str | PathLike[str]) -> Masked:
    """A masking that was kept, read back from the original, the masked file and the record."""
    from safeswap.io.masking import recall as recall_masking

    return recall_masking(Path(original), Path(masked), audit=Path(audit))


def safe_table(
    counts: Any,
    tolerance: int = 3,
    *,
    keep: Any = None,
    objective: str = "total",
    weights: Any = None,
    bounds: Any = None,
    structural_zeros: Any = None,
    soft: bool = False,
    solver: str = "auto",
    time_limit: float = 30.0,
    attributes: Any = None,
    names: Sequence[str] | None = None,
    count: str = "count",
    **reading: Any,
) -> SafeTables:
    """Change a table of counts as little as possible so that every cell is 0 or at least ``tolerance``.

    ``counts`` is an array, a table in long form (dataframe or file, the counts in the column ``count``), a
    :class:`~safeswap.model.table.CountTable`, a :class:`~safeswap.model.table.Programme` or list of such tables, or
    microdata together with the ``attributes`` to tabulate (a list of lists makes several linked tables).

    The margins in ``keep`` are exact, by default all (n−1)-way ones; with their figures, as a mapping, they are checked
    first. What is made small is the ``objective``: the "total" change, the "largest" change, or the "weighted" one.
    ``bounds`` is a lower and an upper limit per cell; ``structural_zeros`` (a mask, a list, "all") stay 0. Where no
    such table exists an :class:`~safeswap.errors.InfeasibleError` says why; with ``soft`` the margins are off by the
    least possible instead, and the result lists where.

    >>> table = [[19, 10, 10, 15], [4, 10, 10, 1], [11, 14, 8, 2], [15, 1, 2, 2]]
    >>> result = safe_table(table, 5)
    >>> result.total, result.largest, result.status
    (14, 3, 'optimal')
    """
    from safeswap.io.long_tables import count_tables
    from safeswap.methods.safe_linked import safe_programme
    from safeswap.methods.safe_problem import table_problems
    from safeswap.methods.safe_table import Terms

    terms = Terms(objective=objective, solver=solver, soft=soft, time_limit=time_limit)  # type: ignore[arg-type]
    programme, origin = count_tables(counts, attributes=attributes, names=names, count=count, reading=reading)
    problems = table_problems(
        programme.tables,
        tolerance=tolerance,
        keep=keep,
        objective=objective,
        weights=weights,
        bounds=bounds,
        structural_zeros=structural_zeros,
    )
    return replace(safe_programme(programme, problems, terms), origin=origin)


def keygen(path: str | PathLike[str], *, force: bool = False) -> Key:
    """Make a secret key and keep it in a file that only its owner can read.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "survey.key"
    >>> keygen(path) == read_key(path)
    True
    """
    from safeswap.io.keyfile import write_key

    key = Key.generate()
    write_key(key, path, force=force)
    return key


def read_key(path: str | PathLike[str]) -> Key:
    """The key in a key file; refused if others can read the file."""
    from safeswap.io.keyfile import read_key as read_key_file

    return read_key_file(path)


def _check_alike(before: Microdata, after: Microdata) -> None:
    missing = [name for name in before.attributes if name not in after.schema]
    if len(before) != len(after) or missing:
        raise InputError(
            f"the two files do not fit: {len(before):,} records and {len(after):,}"
            + (f", the second lacks {', '.join(missing[:5])}" if missing else ""),
            code="files-differ",
            hint="give the masked file that stays inside, which has the rows and columns of the original",
        )


def as_spec(spec: MaskSpec | Mapping[str, Any]) -> MaskSpec:
    """A specification from plain values, or itself."""
    from safeswap import registry

    return spec if isinstance(spec, MaskSpec) else registry.make_spec(spec)


def as_key(key: Key | None, insecure_seed: int | None) -> Key:
    """The one source of randomness that was stated."""
    if (key is None) == (insecure_seed is None):
        raise SpecError(
            "give a key",
            code="no-key",
            hint="key=Key.generate(), or read_key(path) of a file made by `safeswap keygen`; "
            "insecure_seed= is for teaching and tests only",
        )
    return key if key is not None else Key.insecure(seed=insecure_seed or 0)


def find_engine(name: str) -> Engine:
    """The engine of that name."""
    from safeswap.engines.capabilities import CAPABILITIES, ENGINES, not_supported
    from safeswap.engines.memory import MemoryEngine

    if name not in ENGINES:
        raise SpecError(
            f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )
    if name != "memory":
        raise not_supported(name, CAPABILITIES["dataframes"])

    return MemoryEngine()


def study(
    data: Any,
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | PathLike[str] | CheckpointDirectory | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Study:
    """Try many candidate releases and measure their risk and distortion: figures only, no masked file.

    Give a :class:`StudySpec`, a TOML file that holds one, or its parameters. ``progress`` is called with the number
    of candidates done and of all; what is finished is kept in the directory ``checkpoint``, from which the same call
    goes on.

    >>> from safeswap import datasets
    >>> found = study(datasets.cps8d(), attributes=["Race", "Sex"], rates=[0.01, 0.1], insecure_seed=1)
    >>> found.choose("cap_risk:0.0145").objective
    'least distortion with risk at most 0.0145'
    """
    from safeswap.search.run import run_study

    question, secret, data = as_study_spec(spec, **parameters), as_key(key, insecure_seed), read(data)
    kept = _checkpoint(checkpoint)
    found = run_study(data, question, key=secret, progress=progress, checkpoint=kept, threads=threads)
    return replace(found, frame_type=_frame_type(data))


def number_of_candidates(
    data: Any, spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None, **parameters: Any
) -> int:
    """How many candidates a study has, known before it runs. What cannot be run is refused here already.

    >>> from safeswap import datasets
    >>> number_of_candidates(datasets.cps8d(), replicates=10)
    1080
    """
    from safeswap.search.prepare import check, swap_attributes

    question, data = as_study_spec(spec, **parameters), read(data)
    check(data, question)
    return question.number_of_candidates(swap_attributes(data, question))


def search(
    data: Any,
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    budget: int,
    key: Key | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | PathLike[str] | CheckpointDirectory | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Study:
    """A study too large to try everything: look at ``budget`` specifications, chosen by a multi-objective search.

    >>> from safeswap import datasets
    >>> found = search(datasets.cps8d(), up_to=4, budget=40, insecure_seed=1)
    >>> len(found), found.facts["search"]["possible"]
    (40, 486)
    """
    from safeswap.search.multi import search_study

    question, secret, data = as_study_spec(spec, **parameters), as_key(key, insecure_seed), read(data)
    kept = _checkpoint(checkpoint)
    found = search_study(data, question, key=secret, budget=budget, progress=progress, checkpoint=kept, threads=threads)
    return replace(found, frame_type=_frame_type(data))


def save_study(
    study: Study,
    path: str | PathLike[str],
    *,
    choice: Choice | None = None,
    data: Any = None,
    pages: bool = True,
    force: bool = False,
) -> None:
    """Save a study to a directory that stays inside: ``study.parquet``, ``study.json``, ``two_way.parquet``.

    With ``pages`` also the map and, where one was chosen, the reports to look at; given the ``data``, these say what
    the chosen swap keeps exactly. :func:`load_study` gives the study back.
    """
    from safeswap.io import study_files
    from safeswap.io.atomic import atomic_directory
    from safeswap.kernels.two_way import MEASURES

    told = {"choice": choice.as_dict()} if choice is not None else {}
    with atomic_directory(path, force=force, marker=study_files.FACTS) as folder:
        study_files.write_study(study, folder, table_measures=MEASURES, further=told)
        if pages:
            _write_pages(study, choice, None if data is None else read(data), folder)


def load_study(path: str | PathLike[str]) -> Study:
    """A study that was saved.

    >>> from safeswap import datasets
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "study"
    >>> found = study(datasets.cps8d(), attributes=["Race"], rates=[0.01], insecure_seed=1)
    >>> save_study(found, path, pages=False)
    >>> load_study(path).table.equals(found.table)
    True
    """
    from safeswap.io.study_files import read_study
    from safeswap.search.study import Study
    from safeswap.search.table import specs_of

    stored = read_study(path)
    return Study(
        spec=stored.spec,
        table=stored.table,
        specs=specs_of(stored.table),
        facts=stored.facts,
        two_way=stored.two_way,
        table_pairs=stored.table_pairs,
    )


def as_study_spec(
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None, **parameters: Any
) -> StudySpec:
    """The question of a study from plain values or a TOML file, or itself."""
    if spec is not None and parameters:
        raise SpecError("give a study specification or parameters, not both", code="bad-spec", hint="use one of them")
    if isinstance(spec, StudySpec):
        return spec
    if isinstance(spec, (str, PathLike)):
        from safeswap.io.study_toml import read_study_spec

        return read_study_spec(spec)
    return StudySpec(**(parameters if spec is None else spec))


def _write_pages(study: Study, choice: Choice | None, data: Microdata | None, folder: Path) -> None:
    """The map and the two reports, internal and public."""
    from safeswap import registry
    from safeswap.charts.map import map_html
    from safeswap.io.atomic import atomic_write
    from safeswap.io.report import write_study_report

    with atomic_write(folder / "map.html") as part:
        part.write_text(map_html(study, choice=choice), encoding="utf-8")
    if choice is None:
        return
    promises = () if data is None else registry.method(choice.spec.method).invariants(data, choice.spec)
    names = () if data is None else data.schema.categorical
    public = [seen for promise in promises if (seen := promise.for_users_of(names)) is not None]
    inside, outside = (tuple(dict.fromkeys(promise.sentence for promise in kept)) for kept in (promises, public))
    write_study_report(study, choice, folder / "report.html", version="internal", kept=inside)
    write_study_report(study, choice, folder / "report-public.html", version="public", kept=outside)


def _checkpoint(path: str | PathLike[str] | CheckpointDirectory | None) -> CheckpointDirectory | None:
    from safeswap.io.checkpoint import CheckpointDirectory

    return CheckpointDirectory(path) if isinstance(path, (str, PathLike)) else path


def _frame_type(data: Microdata) -> str:
    """The library of the caller's dataframe, as narwhals calls it."""
    import narwhals as nw

    if data.origin is None:
        return "pyarrow"
    frame = nw.from_native(data.origin, pass_through=True)
    return frame.implementation.value if isinstance(frame, nw.DataFrame) else "pyarrow"
