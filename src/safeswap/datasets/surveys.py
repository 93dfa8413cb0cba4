"""Synthetic surveys modelled on two of the literature, which are not public. All records are fictitious.

**Housing survey**, after the one on which Moore (1996) tested the targeted Confidentiality Edit. His file, the 1993
Annual Housing Survey, has 64,998 records; its income has a mean of 11,369 and a standard deviation of 16,572; 473 of
the combinations of its four keys occur once. This file has about the same of each.

**Enterprises** with skewed turnover and employees in NACE divisions, after a survey of innovation. Seri demonstrates
the confidentiality plot on 157 enterprises of division 18 of the Community Innovation Survey; division 18 of the
default file also has 157 units.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.model.checked import check_types

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

HOUSING_KEYS = ("REGION", "YR_BLT", "BEDROOMS", "BATHS")
"""The four keys of the housing survey."""

HOUSING_ITEMS = ("INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES")
"""The five continuous items of the housing survey."""

_DWELLINGS = 64_998
_HOUSING_SEED = 1993
_US_REGIONS = ("Northeast", "Midwest", "South", "West")
# Year of construction as the survey codes it: decades, then half decades, then years.
_YEARS = (1919, 1920, 1930, 1940, 1950, 1960, 1970, 1975, *range(1980, 1994))
_YEAR_SHARES = (0.105, 0.06, 0.07, 0.085, 0.13, 0.145, 0.115, 0.11, *(0.015,) * 10, *(0.0085,) * 3, 0.0045)
_BEDROOMS = (0.012, 0.128, 0.282, 0.402, 0.142, 0.027, 0.0068, 0.0022, 0.001, 0.0005, 0.0003)
_BATHS = (0.012, 0.60, 0.30, 0.072, 0.0125, 0.0026, 0.0009, 0.0004, 0.0002)


@cache
def synthetic_housing_survey() -> Microdata:
    """Generate 64,998 dwellings: region, year of construction, bedrooms, baths, and five continuous items in dollars.

    >>> survey = synthetic_housing_survey()
    >>> survey.attributes[:5], len(survey)
    (('IDNUM', 'REGION', 'BEDROOMS', 'BATHS', 'YR_BLT'), 64998)
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    region, year, beds, baths = _dwellings()
    columns: dict[str, Any] = {
        "IDNUM": 10**11 + np.arange(1, _DWELLINGS + 1, dtype=np.int64) * 61_803_398_877 % 10**11,
        "REGION": pa.DictionaryArray.from_arrays(pa.array(region.astype(np.int8)), pa.array(_US_REGIONS)),
        "BEDROOMS": beds.astype(np.int8),
        "BATHS": baths.astype(np.int8),
        "YR_BLT": np.array(_YEARS, dtype=np.int16)[year],
    }
    items = zip(HOUSING_ITEMS, _items(region, year, beds, baths), strict=True)
    table = pa.table(columns | {name: np.floor(values).astype(np.int32) for name, values in items})
    return Microdata(table, _housing_schema())


def _housing_draw(purpose: int) -> Floats:
    return _draw(_HOUSING_SEED, _DWELLINGS, purpose)


def _housing_odds(purpose: int) -> Floats:
    return _odds(_HOUSING_SEED, _DWELLINGS, purpose, least=0.0005)


def _dwellings() -> tuple[Int64s, ...]:
    """Draw region, year, bedrooms and baths; large homes have more of both, new ones more baths."""
    region = _level(_housing_draw(0), (0.20, 0.25, 0.34, 0.21))
    year = _level(_housing_draw(1), _YEAR_SHARES)
    beds = _level(_housing_draw(2), _BEDROOMS)
    # Baths depend on bedrooms: the draw is shifted up for large homes and down for small ones.
    lean = 0.65 * _housing_draw(3) + 0.35 * _rank(beds) + 0.03 * (year > 6)
    return region, year, beds, _level(_spread(lean), _BATHS)


def _rank(beds: Int64s) -> Floats:
    shares = np.array(_BEDROOMS)
    middle: Floats = (np.cumsum(shares) - shares / 2) / shares.sum()
    return middle[beds]


def _spread(lean: Floats) -> Floats:
    """Convert a weighted sum of draws to uniform numbers by rank."""
    place = np.empty(len(lean))
    place[np.argsort(lean, kind="stable")] = np.arange(len(lean))
    return (place + 0.5) / len(lean)


def _items(region: Int64s, year: Int64s, beds: Int64s, baths: Int64s) -> tuple[Floats, ...]:
    """Draw income and home value from the dwelling; mortgage, maintenance and taxes also from its value."""
    dwelling = (0.62 + 0.10 * beds + 0.16 * baths) * np.array([1.06, 0.95, 0.92, 1.12])[region]
    dwelling *= 1 + 0.01 * (year - 8)
    fourth = np.sqrt(np.sqrt(_housing_odds(4)))
    eighth = np.sqrt(np.sqrt(np.sqrt(_housing_odds(6))))
    income = np.where(_housing_draw(5) < 0.385, 0, 13_090 * dwelling * fourth * np.sqrt(fourth) * eighth)
    owned = _housing_draw(7) < 0.64
    price = np.array([1.35, 0.80, 0.82, 1.45])[region]
    value = np.where(owned, 62_000 * dwelling * price * fourth * np.sqrt(np.sqrt(_housing_odds(8))), 0)
    value = 500 * np.floor(np.minimum(value, 2e6) / 500)
    mortgaged = owned & (_housing_draw(9) < 0.35 + 0.025 * year)
    mortgage = np.where(mortgaged, value * (0.2 + 0.7 * _housing_draw(10)) * 0.0075, 0)
    maintain = np.where(owned & (_housing_draw(11) < 0.7), 0.003 * value * np.sqrt(_housing_odds(12)), 0)
    taxes = value * (0.007 + 0.012 * _housing_draw(13)) * np.array([1.5, 1.1, 0.7, 0.7])[region] / 12
    return np.minimum(income, 400_000), value, mortgage, maintain, taxes


def _housing_schema() -> Schema:
    from safeswap.model.schema import Attribute, Kind, Schema

    described = (
        ("IDNUM", Kind.IDENTIFIER, "dwelling", ()),
        ("REGION", Kind.GEOGRAPHY, "region in which the dwelling lies", _US_REGIONS),
        ("BEDROOMS", Kind.ORDINAL, "number of bedrooms", tuple(str(n) for n in range(len(_BEDROOMS)))),
        ("BATHS", Kind.ORDINAL, "number of bathrooms", tuple(str(n) for n in range(len(_BATHS)))),
        ("YR_BLT", Kind.ORDINAL, "year of construction, of its period the first", tuple(map(str, _YEARS))),
        ("INCOME", Kind.NUMERIC, "household income, dollars a year", ()),
        ("HOME_VAL", Kind.NUMERIC, "market value of the dwelling, dollars, 0 if it is not owned", ()),
        ("MORTGAGE", Kind.NUMERIC, "mortgage payment, dollars a month, 0 if there is none", ()),
        ("MAINTAIN", Kind.NUMERIC, "maintenance, dollars a year", ()),
        ("TAXES", Kind.NUMERIC, "property tax, dollars a month, 0 if the dwelling is not owned", ()),
    )
    return Schema(
        name="synthetic_housing_survey",
        attributes=tuple(
            Attribute(
                name=name,
                kind=kind,
                label=label,
                levels=levels,
                geography_level=0 if kind is Kind.GEOGRAPHY else None,
            )
            for name, kind, label, levels in described
        ),
    )


ENTERPRISE_KEYS = ("turnover", "employees")
"""The attributes of an enterprise that an intruder is assumed to know."""

_ENTERPRISES = 3_140  # a twentieth of them, 157, are in division 18
_MOST = 20_000_000
_ENTERPRISE_SEED = 1969
# Division of NACE, its share of the units, and turnover per employee in thousands of euros.
_DIVISIONS = (
    ("15", 0.13, 190.0),
    ("17", 0.08, 110.0),
    ("18", 0.05, 65.0),
    ("19", 0.04, 85.0),
    ("20", 0.07, 95.0),
    ("22", 0.08, 120.0),
    ("24", 0.06, 310.0),
    ("25", 0.09, 140.0),
    ("26", 0.07, 135.0),
    ("28", 0.17, 115.0),
    ("29", 0.11, 150.0),
    ("36", 0.05, 105.0),
)
_REGIONS = tuple(f"R{number:02d}" for number in range(1, 21))
_SIZES = ("10-49", "50-249", "250+")


@check_types
@lru_cache(maxsize=4)
def synthetic_enterprises(n: int = _ENTERPRISES, seed: int = _ENTERPRISE_SEED) -> Microdata:
    """Generate ``n`` enterprises: division, region, size class, employees, turnover, expenditure on innovation.

    >>> enterprises = synthetic_enterprises()
    >>> enterprises.attributes
    ('id', 'division', 'region', 'size_class', 'employees', 'turnover', 'innovation')
    >>> enterprises.table["division"].to_pylist().count("18")
    157
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    if not 1 <= n <= _MOST:
        raise SpecError(f"n lies between 1 and {_MOST:,}", code="bad-size", hint="synthetic_enterprises(10_000)")
    if not -(2**63) <= seed < 2**63:
        raise SpecError("the seed is a whole number of at most 63 bits", code="bad-seed", hint="seed=1")
    division, region = _divisions(n, seed), _level(_draw(seed, n, 1), np.linspace(1.9, 0.1, len(_REGIONS)))
    employees = _employees(n, seed)
    turnover = _turnover(n, seed, division, employees)
    size = np.searchsorted([50, 250], employees, side="right")
    columns: dict[str, Any] = {
        "id": 10**8 + np.arange(1, n + 1, dtype=np.int64) * 61_803_399 % 10**8,
        "division": _category(division, [name for name, _, _ in _DIVISIONS]),
        "region": _category(region, _REGIONS),
        "size_class": _category(size, _SIZES),
        "employees": employees.astype(np.int32),
        "turnover": turnover,
        "innovation": _innovation(n, seed, turnover),
    }
    return Microdata(pa.table(columns), _enterprise_schema())


def _draw(seed: int, n: int, purpose: int) -> Floats:
    from safeswap.arrays.counter_random import uniforms

    drawn: Floats = uniforms(seed, n, purpose)
    return drawn


def _odds(seed: int, n: int, purpose: int, *, least: float = 1e-5) -> Floats:
    """Return u / (1 − u), with u at least this far from 0 and 1: enterprises are more unequal than incomes."""
    kept = least + (1 - 2 * least) * _draw(seed, n, purpose)
    return np.asarray(kept / (1 - kept))


def _level(u: Floats, shares: Floats | tuple[float, ...]) -> Int64s:
    upto = np.cumsum(shares)
    return np.searchsorted(upto[:-1] / upto[-1], u, side="right").astype(np.int64)


def _divisions(n: int, seed: int) -> Int64s:
    """Assign divisions in their exact shares, in random order."""
    upto = np.cumsum([share for _, share, _ in _DIVISIONS])
    ends = np.floor(upto / upto[-1] * n + 0.5).astype(np.int64)
    dealt = np.empty(n, dtype=np.int64)
    dealt[np.argsort(_draw(seed, n, 0), kind="stable")] = np.searchsorted(ends, np.arange(n), side="right")
    return dealt


def _employees(n: int, seed: int) -> Int64s:
    """Draw numbers of employees: at least ten; half have at most 30, a few have thousands."""
    odds = _odds(seed, n, 2)
    return np.asarray(np.floor(10 + 20 * np.sqrt(odds) * np.sqrt(np.sqrt(odds))), dtype=np.int64)


def _turnover(n: int, seed: int, division: Int64s, employees: Int64s) -> Floats:
    """Draw turnover in thousands of euros, one decimal: employees times turnover per employee, with noise."""
    each = np.array([per_head for _, _, per_head in _DIVISIONS])[division]
    return np.asarray(np.round(employees * each * np.sqrt(np.sqrt(_odds(seed, n, 3))) + 0.05, 1))


def _innovation(n: int, seed: int, turnover: Floats) -> Floats:
    """Draw expenditure on innovation: zero in three of five enterprises, else a few percent of turnover."""
    some = _draw(seed, n, 4) < 0.4
    return np.where(some, np.round(0.02 * turnover * np.sqrt(_odds(seed, n, 5)), 1), 0.0)


def _category(codes: Int64s, levels: Any) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(list(levels)))


def _enterprise_schema() -> Schema:
    from safeswap.model.schema import Attribute, Kind, Schema

    described = (
        ("id", Kind.IDENTIFIER, "enterprise", ()),
        ("division", Kind.NOMINAL, "division of economic activity, NACE revision 1", ()),
        ("region", Kind.GEOGRAPHY, "region of the head office", _REGIONS),
        ("size_class", Kind.ORDINAL, "class of employees", _SIZES),
        ("employees", Kind.NUMERIC, "number of employees", ()),
        ("turnover", Kind.NUMERIC, "turnover, thousands of euros", ()),
        ("innovation", Kind.NUMERIC, "expenditure on innovation, thousands of euros, 0 if none", ()),
    )
    return Schema(
        name="synthetic_enterprises",
        attributes=tuple(
            Attribute(
                name=name, kind=kind, label=label, levels=levels, geography_level=0 if kind is Kind.GEOGRAPHY else None
            )
            for name, kind, label, levels in described
        ),
    )
