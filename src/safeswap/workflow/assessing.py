"""Measure the risk and distortion of a masking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, get_args

from safeswap.errors import InputError, SpecError
from safeswap.model.checked import Default, check_types, select_stated
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.options import ColumnOptions, EngineOptions
from safeswap.model.scenario import Scenario, Scenarios, as_scenarios, resolve_files
from safeswap.model.score import Assessment, Axis, Comparison, CountedCells, LeftOut, Score
from safeswap.model.text import list_names, plural
from safeswap.workflow.masking import read, reading_alike

if TYPE_CHECKING:
    from safeswap.arrays.types import Flags
    from safeswap.measures.base import Measure
    from safeswap.on_disk.audit_record import AuditRecord

Match = Literal["auto", "position"]
"""The way the records of two files are matched: by identifier if both have one, or by position."""


class MatchOptions(TypedDict, total=False):
    """Options for comparing two files: the ``attributes`` that form cells, and how records are matched."""

    attributes: Annotated[Sequence[str] | None, Default(None)]
    match: Annotated[Match, Default("auto")]
    audit: Annotated[str | PathLike[str] | None, Default(None)]


@check_types
def assess(
    before: Any,
    after: Any = None,
    *,
    measures: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    ways: int | None = None,
    scenario: Scenarios | None = None,
    **matching: Unpack[MatchOptions],
) -> Assessment:
    """Measure risk and distortion of a masked file: ``assess(masked)``, or ``assess(original, released)``.

    By default the measures that apply to what was changed are used; default measures that do not apply are listed in
    ``left_out``. Cells are formed from ``attributes``, by default from all categorical ones. ``keys`` and ``ways`` are
    passed to the measures that have these parameters and do not set their own.

    Under a ``scenario`` the measures of risk take their keys from it, with its tolerance, weight, sensitive attributes
    and meaning of missing values, as far as they do not state their own. Each score then has the scenario's name, and
    in ``before`` the value of the original. Keys that the release lacks are told with the figure. Under several
    scenarios, each has scores of its own; measures of distortion are scored once.

    Two files are compared record by record, by identifier if both have one, else by position; records that changed
    between them count as touched. Files whose records cannot be matched are refused: give the ``audit`` record of the
    release, or ``match="position"`` if the order is known to be the same.

    >>> from safeswap import datasets, swap
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [score.measure for score in assess(masked, measures=["n_rule", "hellinger"])]
    ['n_rule', 'hellinger']
    """
    asked = as_scenarios(scenario)
    comparison = compare(before, after, **matching, some_gone=bool(asked))
    for name in keys:
        comparison.before.schema[name]
    for each in asked:
        resolve_files(each, comparison.before, comparison.after)  # refused as a whole, not measure by measure
    given = {"keys": tuple(keys) or None, "ways": ways}
    texts = default_measures(comparison) if measures is None else measures
    chosen = [_measure(text, given) for text in texts]
    if any("weight" in each.parameters for each in chosen):
        for each in asked:
            _require_weight(each, comparison, before)
    return _score_all(chosen, comparison, asked, leave_out=measures is None)


def _require_weight(scenario: Scenario, comparison: Comparison, masked: object) -> None:
    """Refuse a scenario whose weight a step has dropped, and name the step where it is known."""
    name = scenario.weight
    if name is None or not _is_emptied(comparison, name):
        return
    step = _find_dropping_step(masked, name)
    by = f": the step {step!r} drops it" if step else ""
    raise InputError(
        f"the weight {name!r} of the scenario {scenario.name!r} is not in the masked file{by}",
        code="bad-weight",
        hint="drop the weight when releasing, not before, or use a scenario without it",
        column=name,
        scenario=scenario.name,
    )


def _find_dropping_step(masked: object, name: str) -> str:
    """Return the name of the step of a masking that drops a column, or nothing if that is not known."""
    from safeswap.pipelines.spec import Pipeline

    if not isinstance(masked, Masked):
        return ""
    spec = masked.spec
    steps = {each.name: each.spec for each in spec.steps} if isinstance(spec, Pipeline) else {spec.method: spec}
    return next((own for own, each in steps.items() if name in getattr(each, "dropped", ())), "")


def _is_emptied(comparison: Comparison, name: str) -> bool:
    """Return whether a column of the original is gone, or has lost every value."""
    before, after = comparison.before, comparison.after
    if name not in before.schema or before.table.column(name).null_count == len(before):
        return False
    return name not in after.schema or after.table.column(name).null_count == len(after)


def default_measures(comparison: Comparison) -> tuple[str, ...]:
    """Return the measures to try by default: the usual ones, and those suited to what was changed."""
    from safeswap import registry
    from safeswap.measures.aligned import changed_names
    from safeswap.measures.base import Situation, numeric_names

    situations: list[Situation] = ["categories"]
    if changed_names(comparison) & numeric_names(comparison):
        situations.append("numbers")
    if _is_recoded(comparison):
        situations.append("recoding")
    return registry.default_measures(*situations)


def _score_all(
    measures: Sequence[Measure], comparison: Comparison, scenarios: Sequence[Scenario] = (), *, leave_out: bool
) -> Assessment:
    """Score measures of risk under each scenario, the others once; list those that do not apply if ``leave_out``.

    A measure that applies under one of several scenarios is listed where it does not: scenarios state different things.
    """
    found: list[Score | LeftOut] = []
    for measure in measures:
        under: Sequence[Scenario | None] = (scenarios if measure.axis is Axis.RISK else scenarios[:1]) or [None]
        score = _try if leave_out or len(under) > 1 else _scores
        tried = [(scenario, each) for scenario in under for each in score(measure, comparison, scenario)]
        if not leave_out and all(isinstance(each, LeftOut) for _, each in tried):
            tried = [(under[0], each) for each in _scores(measure, comparison, under[0])]  # refused in its own words
        found += [_name_scenario(each, scenario) if len(under) > 1 else each for scenario, each in tried]
    return Assessment(
        scores=tuple(each for each in found if isinstance(each, Score)),
        left_out=tuple(each for each in found if isinstance(each, LeftOut)),
    )


def _name_scenario(found: Score | LeftOut, scenario: Scenario | None) -> Score | LeftOut:
    """Say under which of several scenarios a measure was omitted; scores know theirs."""
    if scenario is None or isinstance(found, Score):
        return found
    return replace(found, reason=f"scenario {scenario.name}: {found.reason}")


def _scores(measure: Measure, comparison: Comparison, scenario: Scenario | None) -> tuple[Score, ...]:
    from safeswap.measures.base import score_under

    return (measure.score(comparison),) if scenario is None else score_under(measure, comparison, scenario)


def _try(measure: Measure, comparison: Comparison, scenario: Scenario | None) -> tuple[Score | LeftOut, ...]:
    """Score a default measure, or return why it does not apply."""
    from safeswap.measures.base import find_obstacle

    # Under a scenario, a measure of risk looks at other attributes, and says itself whether it applies to them.
    looks_elsewhere = scenario is not None and measure.axis is Axis.RISK
    if not looks_elsewhere and (obstacle := find_obstacle(measure, comparison)):
        return (LeftOut(measure=measure.text, reason=obstacle),)
    try:
        return _scores(measure, comparison, scenario)
    except SpecError as error:
        return (LeftOut(measure=measure.text, reason=error.message),)


def _measure(text: str, given: Mapping[str, Any]) -> Measure:
    """Load a measure; add the given parameters that it has and does not set itself."""
    from safeswap import registry

    measure = registry.measure(text)
    known = measure.parameters
    added = {name: value for name, value in given.items() if value is not None and name in known and not known[name]}
    return registry.measure(text, **added) if added else measure


def _is_recoded(comparison: Comparison) -> bool:
    """Return whether descriptions of attributes changed, so that tables have other categories than before."""
    before, after = comparison.before.schema, comparison.after.schema
    return any(name in after and before[name] != after[name] for name in before.names)


class FileOptions(EngineOptions, ColumnOptions, total=False):
    """Options for reading and counting Parquet files."""


@check_types
def assess_file(
    before: str | PathLike[str],
    after: str | PathLike[str],
    *,
    measures: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    scenario: Scenarios | None = None,
    **options: Unpack[FileOptions],
) -> Assessment:
    """Measure risk and distortion of a masked Parquet file, or directory, without reading all of it into memory.

    Only the columns that form cells are held in memory, unchanged ones once. The scores are those of :func:`assess`,
    by default for the measures that need only cell counts. From a million records on, the 2-way tables behind a score
    are not listed with it, unless a measure asks for tables. ``schema``, ``identifier``, ``kinds``, ``missing`` and
    ``name`` describe the columns, as for :func:`read`.

    Under a ``scenario`` the measures of risk take their keys from it, as in :func:`assess`; the columns that it names
    are then held in memory, and the engine must be ``"memory"``.

    The engines ``"duckdb"`` (within ``memory_limit``) and ``"spark"`` (in the session ``spark``, or a new one) count
    the cells themselves, for measures that need only counts. ``threads`` applies to a new Spark session.

    >>> import tempfile, pathlib
    >>> from safeswap import SwapSpec, datasets, workflow
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> datasets.write_synthetic_census(folder / "census.parquet", 2_000)
    >>> places = dict(target=folder / "masked.parquet", audit=folder / "audit", identifier="HHID")
    >>> spec = SwapSpec(swap=["TENURE"], rate=0.1)
    >>> masked = workflow.mask_file(folder / "census.parquet", spec=spec, insecure_seed=1, **places)
    >>> found = assess_file(folder / "census.parquet", masked.target, identifier="HHID", attributes=["TENURE", "STATE"])
    >>> [score.measure for score in found]
    ['n_rule', 'hellinger', 'total_variation', 'entropy_change']
    """
    from safeswap import registry

    names = registry.default_measures("categories", by_counts=True) if measures is None else measures
    return measure_files(
        (Path(before), Path(after)),
        names,
        attributes=attributes,
        reading=select_stated(options, ColumnOptions),
        leave_out=measures is None,
        scenarios=as_scenarios(scenario),
        means=options,
    )


def measure_files(
    files: tuple[Path, Path],
    names: Sequence[str],
    *,
    attributes: Sequence[str] | None,
    reading: Mapping[str, Any],
    leave_out: bool,
    means: EngineOptions,
    scenarios: Sequence[Scenario] = (),
) -> Assessment:
    """Score measures of two files; list those that do not apply if ``leave_out``, and refuse them otherwise."""
    from safeswap import registry
    from safeswap.measures.base import score_counts
    from safeswap.on_disk.cells import compare_files

    chosen, engine = [registry.measure(name) for name in names], means["engine"]
    if scenarios:
        if engine != "memory":
            raise SpecError(
                f"under a scenario, files are measured in memory, not on {engine!r}",
                code="not-supported",
                hint='omit engine, or set engine="memory"',
            )
        named = [(*each.names, each.weight, each.population, *each.sensitive) for each in scenarios]
        also = tuple(dict.fromkeys(name for names in named for name in names if isinstance(name, str)))
        comparison = compare_files(*files, attributes=attributes, also=also, reading=reading)
        for each in scenarios:
            resolve_files(each, comparison.before, comparison.after)  # refused as a whole, not measure by measure
        return _score_all(chosen, comparison, scenarios, leave_out=leave_out)
    if engine != "memory":
        counted = _count_on_engine(files, chosen, attributes=attributes, reading=reading, means=means)
        return score_counts(chosen, counted, leave_out=leave_out)
    if (large := _count_large(files, chosen, attributes=attributes, reading=reading)) is not None:
        return score_counts(chosen, large, leave_out=leave_out)
    comparison = compare_files(*files, attributes=attributes, reading=reading)
    return _score_all(chosen, comparison, leave_out=leave_out)


def _count_on_engine(
    files: tuple[Path, Path],
    measures: Sequence[Any],
    *,
    attributes: Sequence[str] | None,
    reading: Mapping[str, Any],
    means: EngineOptions,
) -> CountedCells:
    """Count cells on DuckDB or Spark."""
    from safeswap.engines.duckdb.store import limit_bytes
    from safeswap.measures.base import largest_small
    from safeswap.on_disk.cells import count_files, count_in_spark
    from safeswap.on_disk.job import check_countable

    limit = largest_small(measures)
    check_countable(means["engine"], by_counts=limit is not None)
    asked: dict[str, Any] = {"attributes": attributes, "limit": limit, "reading": reading}
    if means["engine"] == "spark":
        return count_in_spark(*files, session=means["spark"], threads=means["threads"], **asked)
    limit_bytes(means["memory_limit"])  # refused if invalid, although counting needs less than any practical one
    return count_files(*files, **asked)


def _count_large(
    files: tuple[Path, Path], measures: Sequence[Any], *, attributes: Sequence[str] | None, reading: Mapping[str, Any]
) -> CountedCells | None:
    """Count cells if the file is large and the measures need only counts; None otherwise."""
    from safeswap.files.parquet import open_parquet
    from safeswap.measures.base import largest_small
    from safeswap.on_disk.cells import WORTH_COUNTING, count_files

    limit = largest_small(measures)
    if limit is None or len(open_parquet(files[0])) < WORTH_COUNTING:
        return None
    return count_files(*files, attributes=attributes, limit=limit, reading=reading)


@check_types
def compare(
    before: Any,
    after: Any = None,
    *,
    attributes: Sequence[str] | None = None,
    match: Match = "auto",
    audit: str | PathLike[str] | None = None,
    some_gone: bool = False,
) -> Comparison:
    """Match a file and its masked version record by record, as measures need them.

    A released file may lack columns of the original only if ``some_gone``; cells are then formed from the others.
    """
    if match not in get_args(Match):
        raise SpecError(f"records are not matched by {match!r}", code="bad-match", hint="choose auto or position")
    if isinstance(before, Masked) and after is not None:
        raise SpecError(
            "a masking holds both files: there is nothing to compare it with",
            code="nothing-to-compare",
            hint="assess(masked), or assess(original, released)",
        )
    if isinstance(after, Masked):
        before = after
    recoded = None
    if isinstance(before, Masked):
        original, data, touched = before.original, before.data, before.audit.perturbed()
        recoded = before.account.reference if before.parts else None
    else:
        if after is None:
            raise SpecError(
                "there is nothing to compare with",
                code="nothing-to-compare",
                hint="assess(masked), or assess(original, released)",
            )
        with reading_alike():
            files = read(before), read(after)
        original, data, touched = _two_files(*files, match=match, audit=audit, some_gone=some_gone)
    # A number that a step made a category is one in the tables: later steps may have exchanged it.
    described = original.schema if recoded is None else recoded.schema
    released = tuple(name for name in described.categorical if name in data.schema)
    chosen = tuple(attributes) if attributes is not None else released
    for name in chosen:
        original.schema[name]
    return Comparison(before=original, after=data, attributes=chosen, touched=touched, recoded=recoded)


def _two_files(
    original: Microdata, data: Microdata, *, match: Match, audit: str | PathLike[str] | None, some_gone: bool = False
) -> tuple[Microdata, Microdata, Flags]:
    """Return both files with their records in the same order, and which records took part."""
    import numpy as np

    from safeswap.measures.plot.values import align_records, name_alike, take_records
    from safeswap.model.columns import share_columns

    _check_alike(original, data, some_gone=some_gone)
    if audit is not None:
        record = _record_of(data, audit)
        # Row i of the release was row order[i] of the file.
        data = name_alike(original, take_records(data, np.argsort(record.row_order)))
        return original, data, record.audit.perturbed()
    data = align_records(original, data) if match == "auto" else name_alike(original, data)
    data = share_columns(original, data)
    return original, data, _flag_touched(original, data)


def _flag_touched(original: Microdata, data: Microdata) -> Flags:
    """Flag the records in which a value differs."""
    import numpy as np

    from safeswap.model.columns import aligned_columns, coarsening, flag_changes, same_memory

    touched = np.zeros(len(original), dtype=np.bool_)
    for attribute in original.schema.attributes:
        name = attribute.name
        # A coarser value is still true of its record, and a new number of a record or household changes nothing.
        if name not in data.schema or attribute.kind.is_unit_number or coarsening(original, data, name) is not None:
            continue
        columns = original.table.column(name), data.table.column(name)
        if not same_memory(*columns):
            touched |= flag_changes(*aligned_columns(*columns))
    return touched


def _record_of(data: Microdata, audit: str | PathLike[str]) -> AuditRecord:
    from safeswap.on_disk.audit_record import read_audit_record

    record = read_audit_record(Path(audit))
    if len(record.row_order) != len(data):
        raise InputError(
            f"the audit record is of a file of {plural(len(record.row_order), 'record')}, but this one has "
            f"{len(data):,}",
            code="audit-mismatch",
            hint="give the released file that this audit record belongs to",
        )
    return record


def _check_alike(before: Microdata, after: Microdata, *, some_gone: bool) -> None:
    own = before.schema.identifier
    missing = [name for name in before.attributes if name not in after.schema and name != (own and own.name)]
    missing = [] if some_gone and len(missing) < len(before.attributes) else missing
    if len(before) != len(after) or missing:
        raise InputError(
            f"the two files do not match: {plural(len(before), 'record')} and {len(after):,}"
            + (f", the second lacks {list_names(missing[:5])}" if missing else ""),
            code="files-differ",
            hint="give the internal masked file, which has the rows and columns of the original",
        )
