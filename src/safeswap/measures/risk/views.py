"""How a file's risk is spread over its records, for small charts: by group size, by risk, by key.

A bar knows its records, which are confidential; its count may be shown inside the building, with noise where the
caller needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from safeswap.arrays.types import Flags, Floats, Rows
from safeswap.measures.households import household_risks
from safeswap.measures.key_cells import key_cells
from safeswap.measures.risk.individual_risk import record_risks
from safeswap.measures.risk.key_measures import CellValues, diversities
from safeswap.measures.risk.population_risk import loglinear_risk
from safeswap.measures.risk.suda2 import special_uniques
from safeswap.model.columns import missing_codes
from safeswap.model.combination import Missing
from safeswap.model.households import find_households
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved, as_scenario, resolve_files

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
    cells = key_cells(data, resolved.keys, missing=_missing(resolved, "none"))
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
    found = special_uniques(data, resolved.keys, missing=_missing(resolved, "none"))
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
    found = record_risks(data, resolved.keys, weight=resolved.scenario.weight, missing=_missing(resolved, "any"))
    return np.asarray(found.risks[found.cells.of_record])


def _missing(resolved: Resolved, default: Missing) -> Missing:
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
