"""Synthetic surveys, modelled on two of the literature that are not public, and a synthetic population.

All records are fictitious.

**Housing survey**, after the one on which Moore (1996) tested the targeted Confidentiality Edit. His file, the 1993
Annual Housing Survey, has 64,998 records; its income has a mean of 11,369 and a standard deviation of 16,572; 473 of
the combinations of its four keys occur once. This file has about the same of each.

**Enterprises** with skewed turnover and employees in NACE divisions, after a survey of innovation. Seri demonstrates
the confidentiality plot on 157 enterprises of division 18 of the Community Innovation Survey; division 18 of the
default file also has 157 units.

**Population**: any number of persons in households in nested areas, generated in chunks, for methods that protect
households. Areas have skewed sizes, minorities live together, one household in some hundreds is a communal
establishment, and everyone has the weight of the household. The figures are invented.

An area is made from its own draws (see :mod:`safeswap.arrays.counter_random`), so chunks play no part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.counter_random import item_state, level_of, uniform, uniforms
from safeswap.arrays.types import Floats, Int64s
from safeswap.datasets.census import _check_size, _make_seed, described_schema, write_chunks
from safeswap.errors import SpecError
from safeswap.model.checked import check_types

if TYPE_CHECKING:
    import pyarrow as pa

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
    from safeswap.model.schema import Kind

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
    return described_schema("synthetic_housing_survey", described)


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
        raise SpecError(f"n must be from 1 to {_MOST:,}", code="bad-size", hint="synthetic_enterprises(10_000)")
    if not -(2**63) <= seed < 2**63:
        raise SpecError("the seed must be a whole number of at most 63 bits", code="bad-seed", hint="seed=1")
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
    from safeswap.model.schema import Kind

    described = (
        ("id", Kind.IDENTIFIER, "enterprise", ()),
        ("division", Kind.NOMINAL, "division of economic activity, NACE revision 1", ()),
        ("region", Kind.GEOGRAPHY, "region of the head office", _REGIONS),
        ("size_class", Kind.ORDINAL, "class of employees", _SIZES),
        ("employees", Kind.NUMERIC, "number of employees", ()),
        ("turnover", Kind.NUMERIC, "turnover, thousands of euros", ()),
        ("innovation", Kind.NUMERIC, "expenditure on innovation, thousands of euros, 0 if none", ()),
    )
    return described_schema("synthetic_enterprises", described)


POPULATION_GEOGRAPHY = ("REGION", "DISTRICT", "MUNICIPALITY", "AREA")
"""The levels of the geography, from coarse to fine."""

POPULATION_RISK = ("AGE", "SEX", "ORIGIN")
"""Attributes of persons by which neighbours know each other."""

COMMUNAL = "communal"
"""The value of HTYPE of a communal establishment."""

_SEED = 2021
_CHUNK = 1 << 19
_MOST_PERSONS = 2_000_000_000
_AGES = ("0-14", "15-29", "30-44", "45-59", "60-74", "75+")
_SEXES = ("f", "m")
_ORIGINS = ("native", "north", "east", "south", "west", "overseas", "islands", "highlands", "other")
_TENURES = ("owned", "mortgaged", "rented", "social")
_TYPES = ("private", COMMUNAL)
_STATUS = ("employed", "unemployed", "student", "retired", "at home")

_SIZE = np.cumsum(np.array([0.36, 0.33, 0.14, 0.11, 0.04, 0.012, 0.005]))
_TENURE = np.cumsum(np.array([0.33, 0.29, 0.24]))
_ADULT = np.cumsum(np.array([0.24, 0.27, 0.25, 0.16]))
_ORIGIN = np.cumsum(np.array([0.38, 0.24, 0.15, 0.10, 0.06, 0.04, 0.02]))
_WORK = np.cumsum(np.array([0.62, 0.08, 0.12, 0.02]))
_HOUSEHOLDS_PER_AREA = 10**6  # room for the numbers of the households of an area
_COMMUNAL_SHARE = 0.0025


@njit(cache=True, nogil=True)
def _fill(seed, first, sizes, numbers, codes, weights):  # type: ignore[no-untyped-def]
    """Fill areas with households: household number, and size, type, tenure, age, sex, origin, status of each person."""
    row = 0
    for a in range(len(sizes)):
        state = item_state(seed, first + a)
        share = uniform(state, 0)
        minority = 0.015 + 0.6 * share * share * share * share * share * share  # few areas have many
        origin_here = 1 + level_of(uniform(state, 1), _ORIGIN)
        left, household = sizes[a], 0
        while left > 0:
            own = item_state(seed + 1, (first + a) * _HOUSEHOLDS_PER_AREA + household)
            size = 1 + level_of(uniform(own, 0), _SIZE)
            is_communal = left > 12 and uniform(own, 1) < _COMMUNAL_SHARE
            if is_communal:
                size = 12 + np.int64(60 * uniform(own, 0))
            size = min(size, left)
            tenure = 2 if is_communal else level_of(uniform(own, 2), _TENURE)
            origin = 0
            if uniform(own, 3) < minority:
                is_local = uniform(own, 4) < 0.7
                origin = origin_here if is_local else 1 + level_of(uniform(own, 5), _ORIGIN)
            weight = np.rint((0.6 + 0.8 * uniform(own, 6)) * 1000) / 1000
            for member in range(size):
                person = item_state(own, member)
                age = 1 + level_of(uniform(person, 0), _ADULT)
                if member > 1 and uniform(person, 1) < 0.8:
                    age = 0
                status = 3 if age >= 5 else 2 if age == 0 else level_of(uniform(person, 2), _WORK)
                numbers[row] = (first + a) * _HOUSEHOLDS_PER_AREA + household + 1
                codes[0, row] = min(size, 127)
                codes[1, row] = is_communal
                codes[2, row] = tenure
                codes[3, row] = age
                codes[4, row] = uniform(person, 3) < 0.49
                codes[5, row] = origin if uniform(person, 4) < 0.93 else level_of(uniform(person, 5), _ORIGIN)
                codes[6, row] = status
                weights[row] = weight
                row += 1
            left -= size
            household += 1


def synthetic_population(persons: int = 100_000, key: int = _SEED) -> Microdata:
    """Generate a population. The same ``persons`` and ``key`` give the same file on every machine.

    ``key`` is a public number, not a secret: it selects one of many such populations.

    >>> data = synthetic_population(3_000)
    >>> len(data), data.attributes[:6]
    (3000, ('PID', 'HID', 'REGION', 'DISTRICT', 'MUNICIPALITY', 'AREA'))
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    chunks = list(_chunks(_check_size("persons", persons, _MOST_PERSONS), _make_seed(key)))
    return Microdata(pa.concat_tables(chunks), synthetic_population_schema())


def write_synthetic_population(
    path: str | os.PathLike[str], persons: int, key: int = _SEED, *, force: bool = False
) -> None:
    """Write the population to a Parquet file, chunk by chunk and atomically.

    >>> import tempfile, pathlib, safeswap
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "population.parquet"
    >>> write_synthetic_population(path, 2_000)
    >>> len(safeswap.read(path, schema=synthetic_population_schema()))
    2000
    """
    chunks = _chunks(_check_size("persons", persons, _MOST_PERSONS), _make_seed(key))
    write_chunks(path, chunks, force=force)


@cache
def synthetic_population_schema() -> Schema:
    """Return the schema of the synthetic population.

    >>> synthetic_population_schema()["HID"].kind.value
    'household'
    """
    from safeswap.model.schema import Kind

    described: dict[str, Any] = {
        "PID": (Kind.IDENTIFIER, "person", ()),
        "HID": (Kind.HOUSEHOLD, "household or establishment", ()),
        **{name: (Kind.GEOGRAPHY, name.lower(), ()) for name in POPULATION_GEOGRAPHY},
        "HSIZE": (Kind.ORDINAL, "persons in the household, 127 for more", ()),
        "HTYPE": (Kind.NOMINAL, "private household or communal establishment", _TYPES),
        "TENURE": (Kind.NOMINAL, "tenure of the dwelling", _TENURES),
        "AGE": (Kind.ORDINAL, "age in years", _AGES),
        "SEX": (Kind.NOMINAL, "sex", _SEXES),
        "ORIGIN": (Kind.NOMINAL, "region of origin", _ORIGINS),
        "STATUS": (Kind.NOMINAL, "economic status", _STATUS),
        "WEIGHT": (Kind.WEIGHT, "weight of the household", ()),
    }
    return described_schema("synthetic_population", ((name, *row) for name, row in described.items()))


def _chunks(persons: int, seed: int) -> Iterator[pa.Table]:
    """Yield tables of whole areas, of about the same number of persons each."""
    codes, sizes = _divide(persons, seed)
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _CHUNK, side="right")))
        yield _table(seed, codes, sizes, first, last, done)
        first = last


def _divide(persons: int, seed: int) -> tuple[Int64s, Int64s]:
    """Divide the persons into regions, these into districts, and so on; return codes and sizes of the finest areas."""
    from safeswap.arrays.geography import divide_areas

    sizes, codes = np.array([persons], dtype=np.int64), np.zeros(1, dtype=np.int64)
    for level, (wanted, roots, digits) in enumerate(((100_000, 2, 2), (20_000, 2, 2), (3_000, 1, 3), (250, 2, 3))):
        most = np.minimum(sizes, 10**digits - 1)
        parts = np.clip(np.rint(sizes / wanted), 2 if level < 2 else 1, None).astype(np.int64)
        parts = np.minimum(parts, np.maximum(most, 1))
        sizes = divide_areas(sizes, parts, roots, seed + 10 + level)
        within = np.arange(len(sizes)) - np.repeat(np.cumsum(parts) - parts, parts) + 1
        codes = np.repeat(codes, parts) * 10**digits + within
    return codes, sizes


def _table(seed: int, area_codes: Int64s, sizes: Int64s, first: int, last: int, done: int) -> pa.Table:
    import pyarrow as pa

    own = sizes[first:last]
    number = int(own.sum())
    households, weights = np.empty(number, dtype=np.int64), np.empty(number)
    codes = np.empty((7, number), dtype=np.int8)
    _fill(seed, first, own, households, codes, weights)
    area = np.repeat(area_codes[first:last], own)
    columns: dict[str, Any] = {"PID": np.arange(done + 1, done + number + 1, dtype=np.int64), "HID": households}
    for name, cut_off in zip(POPULATION_GEOGRAPHY, (10**8, 10**6, 10**3, 1), strict=True):
        columns[name] = (area // cut_off).astype(np.int64 if cut_off == 1 else np.int32)
    columns["HSIZE"] = codes[0]
    levels = {"HTYPE": _TYPES, "TENURE": _TENURES, "AGE": _AGES, "SEX": _SEXES, "ORIGIN": _ORIGINS, "STATUS": _STATUS}
    for place, (name, names) in enumerate(levels.items(), start=1):
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes[place]), pa.array(names))
    columns["WEIGHT"] = weights
    return pa.table(columns)
