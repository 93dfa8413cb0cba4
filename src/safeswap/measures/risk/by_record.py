"""The risk of a file by its keys, in totals, and of its single records. Records are confidential.

Bars show how risk is spread over records: by group size, by risk, by key. A bar knows its records, which are
confidential; its count may be shown inside the building, with noise where the caller needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import numpy as np

from safeswap.arrays.types import Flags, Floats, Rows
from safeswap.measures.households import household_risks
from safeswap.measures.key_cells import check_keys, key_cells
from safeswap.measures.risk import suda2
from safeswap.measures.risk.individual_risk import IndividualRisk, record_risks
from safeswap.measures.risk.key_measures import CellValues, KAnonymity, LDiversity, diversities
from safeswap.measures.risk.population_risk import loglinear_risk
from safeswap.model.checked import Default, check_types
from safeswap.model.columns import missing_codes
from safeswap.model.combination import Missing
from safeswap.model.households import find_households
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved, Scenario, as_scenario, resolve_files
from safeswap.model.score import Assessment, Comparison
from safeswap.model.text import RiskModel, Scoring

if TYPE_CHECKING:
    from safeswap.measures.base import Measure
    from safeswap.measures.risk.suda2 import SpecialUniques


class RiskOptions(TypedDict, total=False):
    """Options of the measures of a file's risk, besides keys; by default each measure has its own value."""

    sensitive: Annotated[str | None, Default(None)]
    weight: Annotated[str | None, Default(None)]
    model: Annotated[RiskModel, Default("franconi-polettini")]
    k: Annotated[int | None, Default(None)]
    l: Annotated[float, Default(2)]  # noqa: E741  (the established name)
    max_size: Annotated[int | None, Default(None)]
    sampling_fraction: Annotated[float | None, Default(None)]
    missing: Annotated[Missing | None, Default(None)]


@check_types
def file_risk(
    data: Any,
    keys: Sequence[str] = (),
    *,
    scenario: Scenario | Mapping[str, Any] | None = None,
    **options: Unpack[RiskOptions],
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
    from safeswap.measures.risk.suda2 import Suda2

    asked = None if scenario is None else as_scenario(scenario)
    sensitive, weight = options["sensitive"], options["weight"]
    common: dict[str, Any] = _drop_none(keys=tuple(keys) if keys or asked is None else None, missing=options["missing"])
    model = options["model"] if weight or (asked and asked.weight) else None
    weighting = _drop_none(weight=weight or None, model=model)
    measures: list[Measure] = [KAnonymity(**_drop_none(k=options["k"]), **common)]
    if sensitive or (asked and asked.sensitive):
        whose = _drop_none(sensitive=sensitive or None)
        measures += [LDiversity(**whose, l=options["l"], kind=kind, **common) for kind in ("distinct", "entropy")]
    measures.append(IndividualRisk(**weighting, **common))
    special = _drop_none(max_size=options["max_size"], sampling_fraction=options["sampling_fraction"])
    measures.append(Suda2(**special, **common))
    source = _read(data)
    if asked is not None:
        original = data.original if isinstance(data, Masked) else source
        seen = Comparison(before=original, after=source, attributes=())
        return Assessment(scores=tuple(score for each in measures for score in score_under(each, seen, asked)))
    seen = Comparison(before=source, after=source, attributes=check_keys(source, keys))
    return Assessment(scores=tuple(measure.score(seen) for measure in measures))


def _drop_none(**values: Any) -> dict[str, Any]:
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


class RecordRiskOptions(TypedDict, total=False):
    """Options for estimating the risk of single records."""

    weight: Annotated[str | None, Default(None)]
    model: Annotated[RiskModel, Default("franconi-polettini")]
    max_size: Annotated[int, Default(3)]
    sampling_fraction: Annotated[float, Default(0.01)]
    missing: Annotated[Missing | None, Default(None)]


@check_types
def write_record_risks(
    data: Any,
    path: str | PathLike[str],
    keys: Sequence[str],
    *,
    force: bool = False,
    **options: Unpack[RecordRiskOptions],
) -> None:
    """Write :func:`record_risk` and :func:`suda`, a row per record, to a file that only its owner can read."""
    import pyarrow as pa

    from safeswap.files.write import write

    source = _read(data)
    meaning: dict[str, Any] = _drop_none(missing=options["missing"])
    special = {"max_size": options["max_size"], "sampling_fraction": options["sampling_fraction"], **meaning}
    risks = record_risks(source, keys, weight=options["weight"], model=options["model"], **meaning).table()
    found = special_uniques(source, keys, **special).table()
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


SIZES = (5, 10, 50)
RISKS = (0.001, 0.01, 0.05, 0.1, 0.5)
HIGH = 0.1
"""From this risk on a record is at risk."""
_BELOW = 1 - 1e-12  # rounding may put a risk of exactly an edge slightly below it


@dataclass(frozen=True, eq=False, repr=False)
class Bar:
    """A count with the records behind it."""

    label: str
    count: int
    rows: Flags

    def __repr__(self) -> str:
        return f"<Bar {self.label}: {self.count:,}>"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RiskView:
    """One view: its bars, the records at risk, and the expected number found where a model gives one."""

    unit: str
    total: int
    keys: tuple[str, ...]
    bars: tuple[Bar, ...]
    at_risk: Bar
    sensitive: tuple[Bar, ...] = ()
    expected: float | None = None
    expected_unique: float | None = None

    def __repr__(self) -> str:
        return f"<RiskView: {self.at_risk.count:,} of {self.total:,} {self.unit} at risk>"


def by_group_size(data: Microdata, resolved: Resolved) -> RiskView:
    """Count the records by how many share their keys; at risk are those below the scenario's tolerance.

    Sizes below the tolerance are one bar. With sensitive attributes, ``sensitive`` has the records of which the value
    can be inferred: all of their group with a known value have the same.
    """
    scenario = resolved.scenario
    least = max(2, int(np.ceil(scenario.default_tolerance)))
    cells = key_cells(data, resolved.keys, missing=_read_missing(resolved, "none"))
    like = cells.like[cells.of_record]
    edges = (least, *(size for size in SIZES if size > least))
    labels = [f"fewer than {least}", *(f"{a:,}–{b - 1:,}" for a, b in pairwise(edges))]
    bars = _cut(like.astype(np.float64), edges, [*labels, f"{edges[-1]:,} or more"])
    inferred = []
    for name in resolved.sensitive:
        diversity, known = diversities(cells, CellValues.of(cells, data, name, None), entropy=False)
        alike = ((known > 0) & (diversity < 2))[cells.of_record] & ~missing_codes(data, name)[data.coded(name).codes]
        inferred.append(_bar(name, alike))
    return RiskView(
        unit="records",
        total=len(data),
        keys=resolved.keys,
        bars=bars,
        at_risk=bars[0],
        sensitive=tuple(inferred),
    )


def by_risk(data: Microdata, resolved: Resolved) -> RiskView:
    """Count the records by the probability that an intruder who looks for one finds it."""
    risks = _record_risks(data, resolved)
    return RiskView(
        unit="records",
        total=len(data),
        keys=resolved.keys,
        bars=_cut(risks, RISKS, _risk_labels()),
        at_risk=_bar("at risk", risks >= HIGH * _BELOW),
        expected=float(risks.sum()),
    )


def by_household_risk(data: Microdata, resolved: Resolved) -> RiskView:
    """Count the households by the probability that any of their members is found."""
    homes = find_households(data)
    risks = household_risks(_record_risks(data, resolved), homes)
    bars = _cut(risks, RISKS, _risk_labels(), spread=homes.of_record)
    high = risks >= HIGH * _BELOW
    return RiskView(
        unit="households",
        total=len(homes),
        keys=resolved.keys,
        bars=bars,
        at_risk=Bar("at risk", int(high.sum()), high[homes.of_record]),
        expected=float(risks.sum()),
    )


def by_special_key(data: Microdata, resolved: Resolved) -> RiskView:
    """Count the records that a few keys make unique (SUDA), by key: those with a minimal unique that contains it."""
    found = suda2.special_uniques(data, resolved.keys, missing=_read_missing(resolved, "none"))
    of_record = found.cells.of_record

    def holding(held: Flags) -> Flags:
        flags = np.zeros(len(found.cells.classes), np.bool_)
        flags[found.unique.classes[held]] = True
        return np.asarray(flags[of_record])

    every = np.ones(len(found.unique), np.bool_)
    bars = [_bar(name, holding((found.unique.masks >> place) & 1 == 1)) for place, name in enumerate(found.cells.names)]
    return RiskView(
        unit="records",
        total=len(data),
        keys=resolved.keys,
        bars=tuple(sorted(bars, key=lambda bar: -bar.count)),
        at_risk=_bar("special uniques", holding(every)),
    )


def by_population(data: Microdata, resolved: Resolved) -> RiskView:
    """Estimate how many of the records that are unique in the file are unique in the population (log-linear)."""
    scenario = resolved.scenario
    weight = None if scenario.population is not None else scenario.weight
    found = loglinear_risk(data, resolved.keys, population=scenario.population, weight=weight)
    cells = key_cells(data, resolved.keys, missing="own")
    alone = _bar("unique in the file", (cells.like == 1)[cells.of_record])
    return RiskView(
        unit="records",
        total=len(data),
        keys=resolved.keys,
        bars=(alone,),
        at_risk=alone,
        expected=found.chosen.tau2,
        expected_unique=found.chosen.tau1,
    )


VIEWS: dict[str, Callable[[Microdata, Resolved], RiskView]] = {
    "groups": by_group_size,
    "individual": by_risk,
    "households": by_household_risk,
    "suda": by_special_key,
    "population": by_population,
}
"""The views by name."""


def make_view(name: str, original: Microdata, data: Microdata, scenario: object) -> RiskView | str:
    """Return a view of a file under a scenario, by the keys that the file still has; a sentence if it has none."""
    resolved = resolve_files(as_scenario(scenario), original, data)
    return VIEWS[name](data, resolved) if resolved.keys else resolved.note


def _record_risks(data: Microdata, resolved: Resolved) -> Floats:
    found = record_risks(data, resolved.keys, weight=resolved.scenario.weight, missing=_read_missing(resolved, "any"))
    return np.asarray(found.risks[found.cells.of_record])


def _read_missing(resolved: Resolved, default: Missing) -> Missing:
    return resolved.scenario.missing if "missing" in resolved.scenario.model_fields_set else default


def _risk_labels() -> list[str]:
    texts = [f"{100 * edge:g}%" for edge in RISKS]
    between = [f"{low[:-1]}–{high}" for low, high in pairwise(texts)]
    return [f"below {texts[0]}", *between, f"{texts[-1]} or more"]


def _cut(values: Floats, edges: Sequence[float], labels: Sequence[str], spread: Rows | None = None) -> tuple[Bar, ...]:
    """Return a bar for each interval between the edges; an edge begins an interval. ``spread`` maps rows to values."""
    place = np.searchsorted(np.asarray(edges, np.float64) * _BELOW, values, side="right")
    of_row = place if spread is None else place[spread]
    counts = np.bincount(place, minlength=len(labels))
    return tuple(Bar(label, int(counts[number]), of_row == number) for number, label in enumerate(labels))


def _bar(label: str, rows: Flags) -> Bar:
    return Bar(label, int(np.count_nonzero(rows)), rows)
