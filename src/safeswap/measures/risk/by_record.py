"""The risk of a file by its keys, in totals, and of its single records. Records are confidential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from safeswap.model.checked import check_types
from safeswap.model.combination import Missing
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.model.score import Assessment, Comparison
from safeswap.model.text import RiskModel, Scoring

if TYPE_CHECKING:
    from safeswap.measures.base import Measure
    from safeswap.measures.risk.suda2 import SpecialUniques


@check_types
def file_risk(
    data: Any,
    keys: Sequence[str] = (),
    *,
    sensitive: str | None = None,
    weight: str | None = None,
    model: RiskModel = "franconi-polettini",
    k: int | None = None,
    l: float = 2,  # noqa: E741  (the established name)
    max_size: int | None = None,
    sampling_fraction: float | None = None,
    missing: Missing | None = None,
    scenario: Scenario | Mapping[str, Any] | None = None,
) -> Assessment:
    """Measure how easily the records of a file can be singled out by their keys: totals, no record.

    Returns the shares of records below ``k`` and, for a ``sensitive`` attribute, below ``l`` (distinct and by entropy),
    the expected share of re-identifications, and the share of special uniques. ``missing`` applies to all of them; by
    default each measure has its own meaning of a missing value. A ``scenario`` states all this once; what is stated
    besides wins over it. By default ``k`` is 3, ``max_size`` 3 and ``sampling_fraction`` 0.01.

    >>> from safeswap import datasets
    >>> [score.measure for score in file_risk(datasets.cps8d(), ["Age", "Sex"], k=5)]
    ['k_anonymity:keys=Age+Sex,k=5', 'individual_risk:keys=Age+Sex', 'suda2:keys=Age+Sex']
    """
    from safeswap.measures.base import score_under
    from safeswap.measures.key_cells import check_keys
    from safeswap.measures.risk.individual_risk import IndividualRisk
    from safeswap.measures.risk.key_measures import KAnonymity, LDiversity
    from safeswap.measures.risk.suda2 import Suda2

    asked = None if scenario is None else as_scenario(scenario)
    common: dict[str, Any] = _stated(keys=tuple(keys) if keys or asked is None else None, missing=missing)
    weighting = _stated(weight=weight or None, model=model if weight or (asked and asked.weight) else None)
    measures: list[Measure] = [KAnonymity(**_stated(k=k), **common)]
    if sensitive or (asked and asked.sensitive):
        whose = _stated(sensitive=sensitive or None)
        measures += [LDiversity(**whose, l=l, kind=kind, **common) for kind in ("distinct", "entropy")]
    measures.append(IndividualRisk(**weighting, **common))
    measures.append(Suda2(**_stated(max_size=max_size, sampling_fraction=sampling_fraction), **common))
    source = _read(data)
    if asked is not None:
        original = data.original if isinstance(data, Masked) else source
        seen = Comparison(before=original, after=source, attributes=())
        return Assessment(scores=tuple(score for each in measures for score in score_under(each, seen, asked)))
    seen = Comparison(before=source, after=source, attributes=check_keys(source, keys))
    return Assessment(scores=tuple(measure.score(seen) for measure in measures))


def _stated(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@check_types
def record_risk(
    data: Any,
    keys: Sequence[str],
    *,
    weight: str | None = None,
    model: RiskModel = "franconi-polettini",
    missing: Missing = "any",
) -> Any:
    """Return the risk of every record in file order, as a dataframe of the caller's type. Confidential.

    ``sample_count`` is the number of records that share the keys, ``population_count`` the number of people who do (the
    sum of the weights; without a weight the file is the population), ``risk`` the probability that a match on the keys
    is the right person: 1/F, its expectation given the sample (``franconi-polettini``), or one over the sum of the
    weights (``inverse``). The identifier comes first if the file has one.

    >>> import pandas
    >>> people = pandas.DataFrame({"Sex": ["f", "m", "m"], "w": [215.0, 180.0, 180.0]})
    >>> record_risk(people, ["Sex"], weight="w")["risk"].round(4).tolist()
    [0.0251, 0.0054, 0.0054]
    """
    from safeswap.measures.risk.individual_risk import record_risks

    source = _read(data)
    found = record_risks(source, keys, weight=weight, model=model, missing=missing)
    return _by_record(found.table(), source)


@check_types
def suda(
    data: Any,
    keys: Sequence[str],
    *,
    max_size: int = 3,
    sampling_fraction: float = 0.01,
    scoring: Scoring = "elliot",
    missing: Missing = "none",
    contributions: bool = False,
) -> Any:
    """Return each record's minimal sample uniques, SUDA score and DIS score, as a dataframe of the caller's type.

    A row per record in file order: ``minimal_uniques`` of up to ``max_size`` keys, the size of the
    ``smallest``, ``score`` and ``dis``; with ``contributions`` the share of each key in the score. Confidential.

    >>> import pandas
    >>> people = pandas.DataFrame({"Sex": ["f", "m", "m", "m"], "Town": ["a", "a", "b", "b"], "Job": ["x"] * 4})
    >>> suda(people, ["Sex", "Town", "Job"])[["smallest", "score"]].values.tolist()
    [[1.0, 2.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    source = _read(data)
    found = special_uniques(
        source, keys, max_size=max_size, sampling_fraction=sampling_fraction, scoring=scoring, missing=missing
    )
    return _by_record(found.table(contributions=contributions), source)


@check_types
def special_uniques(
    data: Any,
    keys: Sequence[str],
    *,
    max_size: int = 3,
    sampling_fraction: float = 0.01,
    scoring: Scoring = "elliot",
    missing: Missing = "none",
) -> SpecialUniques:
    """Summarise the minimal uniques of :func:`suda` by number of keys, by key and by set of keys.

    >>> from safeswap import datasets
    >>> special_uniques(datasets.cps8d(), ["Age", "Edu", "Race", "MS"], max_size=4).by_size.to_pylist()[-1]["keys"]
    4
    """
    from safeswap.measures.risk.suda2 import special_uniques as find

    return find(_read(data), keys, most=max_size, sampling_fraction=sampling_fraction, scoring=scoring, missing=missing)


@check_types
def write_record_risks(
    data: Any,
    path: str | PathLike[str],
    keys: Sequence[str],
    *,
    weight: str | None = None,
    model: RiskModel = "franconi-polettini",
    max_size: int = 3,
    sampling_fraction: float = 0.01,
    missing: Missing | None = None,
    force: bool = False,
) -> None:
    """Write :func:`record_risk` and :func:`suda`, a row per record, to a file that only its owner can read."""
    import pyarrow as pa

    from safeswap.files.write import write
    from safeswap.measures.risk.individual_risk import record_risks

    source = _read(data)
    meaning: dict[str, Any] = {} if missing is None else {"missing": missing}
    risks = record_risks(source, keys, weight=weight, model=model, **meaning).table()
    found = special_uniques(source, keys, max_size=max_size, sampling_fraction=sampling_fraction, **meaning).table()
    columns = {**_identifier(source), **_columns(risks), **_columns(found)}
    write(pa.table(columns), path, force=force)


def _read(data: Any) -> Microdata:
    from safeswap.files.read import read

    known = data.data if isinstance(data, Masked) else data
    return known if isinstance(known, Microdata) else read(known)


def _by_record(figures: Any, data: Microdata) -> Any:
    import pyarrow as pa

    from safeswap.files.frames import to_frame_like

    return to_frame_like(pa.table({**_identifier(data), **_columns(figures)}), data)


def _identifier(data: Microdata) -> dict[str, Any]:
    identifier = data.schema.identifier
    return {} if identifier is None else {identifier.name: data.table.column(identifier.name)}


def _columns(table: Any) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))
