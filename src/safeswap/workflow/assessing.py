"""What a masking did to risk and to distortion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.score import Assessment, Comparison, CountedCells
from safeswap.workflow.reading import read

DEFAULT_MEASURES = ("n_rule", "hellinger", "total_variation", "entropy_change", "adV", "adC", "share_changed")


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

    >>> from safeswap import datasets, swap
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [score.measure for score in assess(masked, measures=["n_rule", "hellinger"])]
    ['n_rule', 'hellinger']
    """
    from safeswap import registry

    comparison = compare(before, after, attributes=attributes)
    if tuple(measures) == DEFAULT_MEASURES and _says_less(comparison):
        measures = (*DEFAULT_MEASURES, "information_loss")
    chosen = [registry.measure(name) for name in measures]
    return Assessment(scores=tuple(measure.score(comparison) for measure in chosen))


def _says_less(comparison: Comparison) -> bool:
    """Whether attributes are described anew, so that tables cannot be compared in the categories they had."""
    before, after = comparison.before.schema, comparison.after.schema
    return any(name in after and before[name] != after[name] for name in before.names)


def assess_file(
    before: str | PathLike[str],
    after: str | PathLike[str],
    *,
    measures: Sequence[str] = ("n_rule", "hellinger", "total_variation", "entropy_change"),
    attributes: Sequence[str] | None = None,
    engine: str = "memory",
    memory_limit: str = "1GB",
    threads: int | None = None,
    spark: Any = None,
    **reading: Any,
) -> Assessment:
    """Measure risk and distortion of a masked Parquet file, or directory, without reading all of it into memory.

    Only the columns from which cells are formed are held, those that did not change once; the figures are those of
    :func:`assess`. From a million records on the tables of two attributes behind a figure are no longer listed with it,
    unless a measure asks for tables. ``reading`` says what the columns are, as for :func:`mask_file`.

    On the engines ``"duckdb"`` (within ``memory_limit``) and ``"spark"`` (in the session ``spark``, or one of its own)
    cells are counted where the records are, for measures to which counts suffice. ``threads`` are those of a
    Spark session of our own.

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
    from safeswap.io.compare_files import compare_files
    from safeswap.measures.base import scored

    chosen = [registry.measure(name) for name in measures]
    files = Path(before), Path(after)
    if engine != "memory":
        elsewhere = {"engine": engine, "memory_limit": memory_limit, "threads": threads, "spark": spark}
        return scored(chosen, _counted_elsewhere(files, chosen, attributes, reading, **elsewhere))
    counted = _counted(files, chosen, attributes=attributes, reading=reading)
    if counted is not None:
        return scored(chosen, counted)
    comparison = compare_files(*files, attributes=attributes, reading=reading)
    return Assessment(scores=tuple(measure.score(comparison) for measure in chosen))


def _counted_elsewhere(
    files: tuple[Path, Path],
    measures: Sequence[Any],
    attributes: Sequence[str] | None,
    reading: Mapping[str, Any],
    *,
    engine: str,
    memory_limit: str,
    threads: int | None,
    spark: Any,
) -> CountedCells:
    """The cells as counts, made by another engine."""
    from safeswap.engines.capabilities import check_countable
    from safeswap.io.engine_cells import count_in_duckdb, count_in_spark
    from safeswap.measures.base import most_small

    limit = most_small(measures)
    check_countable(engine, by_counts=limit is not None)
    asked: dict[str, Any] = {"attributes": attributes, "limit": limit, "reading": reading}
    if engine == "spark":
        return count_in_spark(*files, session=spark, threads=threads, **asked)
    return count_in_duckdb(*files, memory_limit=memory_limit, **asked)


def _counted(
    files: tuple[Path, Path], measures: Sequence[Any], *, attributes: Sequence[str] | None, reading: Mapping[str, Any]
) -> CountedCells | None:
    """The cells as counts, where that is all the measures need and the file is large."""
    from safeswap.io.count_files import WORTH_COUNTING, count_files
    from safeswap.io.parquet_files import open_parquet
    from safeswap.measures.base import most_small

    limit = most_small(measures)
    if limit is None or len(open_parquet(files[0])) < WORTH_COUNTING:
        return None
    return count_files(*files, attributes=attributes, limit=limit, reading=reading)


def compare(before: Any, after: Any = None, *, attributes: Sequence[str] | None = None) -> Comparison:
    """Put a file and its masked version side by side, as measures look at them."""
    import numpy as np

    from safeswap.model.coarsening import coarsening
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
        original, data, touched = before.original, before.data, before.audit.perturbed()
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
            # A value that was made coarser is still true of its record.
            if name in data.schema and coarsening(original, data, name) is None:
                touched |= different(*aligned_columns(original.table.column(name), data.table.column(name)))
    chosen = tuple(attributes) if attributes is not None else original.schema.categorical
    for name in chosen:
        original.schema[name]
    return Comparison(before=original, after=data, attributes=chosen, touched=touched)


def _check_alike(before: Microdata, after: Microdata) -> None:
    missing = [name for name in before.attributes if name not in after.schema]
    if len(before) != len(after) or missing:
        raise InputError(
            f"the two files do not fit: {len(before):,} records and {len(after):,}"
            + (f", the second lacks {', '.join(missing[:5])}" if missing else ""),
            code="files-differ",
            hint="give the masked file that stays inside, which has the rows and columns of the original",
        )
