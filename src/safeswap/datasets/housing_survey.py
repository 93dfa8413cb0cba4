"""A synthetic housing survey, modelled on the one on which Moore (1996) tested the targeted Confidentiality Edit.

His file, the 1993 Annual Housing Survey, has 64,998 records; its income has a mean of 11,369 and a standard deviation
of 16,572; 473 of the combinations of its four keys occur once. This file has about the same of each. All records are
fictitious.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.types import Floats, Int64s

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

HOUSING_KEYS = ("REGION", "YR_BLT", "BEDROOMS", "BATHS")
"""The four keys of the housing survey."""

HOUSING_ITEMS = ("INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES")
"""The five continuous items of the housing survey."""

_RECORDS = 64_998
_SEED = 1993
_REGIONS = ("Northeast", "Midwest", "South", "West")
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
        "IDNUM": 10**11 + np.arange(1, _RECORDS + 1, dtype=np.int64) * 61_803_398_877 % 10**11,
        "REGION": pa.DictionaryArray.from_arrays(pa.array(region.astype(np.int8)), pa.array(_REGIONS)),
        "BEDROOMS": beds.astype(np.int8),
        "BATHS": baths.astype(np.int8),
        "YR_BLT": np.array(_YEARS, dtype=np.int16)[year],
    }
    items = zip(HOUSING_ITEMS, _items(region, year, beds, baths), strict=True)
    table = pa.table(columns | {name: np.floor(values).astype(np.int32) for name, values in items})
    return Microdata(table, _schema())


def _draw(purpose: int) -> Floats:
    from safeswap.arrays.counter_random import uniforms

    drawn: Floats = uniforms(_SEED, _RECORDS, purpose)
    return drawn


def _odds(purpose: int) -> Floats:
    kept = 0.0005 + 0.999 * _draw(purpose)
    return kept / (1 - kept)


def _level(u: Floats, shares: tuple[float, ...]) -> Int64s:
    upto = np.cumsum(shares)
    return np.searchsorted(upto[:-1] / upto[-1], u, side="right")


def _dwellings() -> tuple[Int64s, ...]:
    """Draw region, year, bedrooms and baths; large homes have more of both, new ones more baths."""
    region = _level(_draw(0), (0.20, 0.25, 0.34, 0.21))
    year = _level(_draw(1), _YEAR_SHARES)
    beds = _level(_draw(2), _BEDROOMS)
    # Baths depend on bedrooms: the draw is shifted up for large homes and down for small ones.
    lean = 0.65 * _draw(3) + 0.35 * _rank(beds) + 0.03 * (year > 6)
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
    fourth = np.sqrt(np.sqrt(_odds(4)))
    eighth = np.sqrt(np.sqrt(np.sqrt(_odds(6))))
    income = np.where(_draw(5) < 0.385, 0, 13_090 * dwelling * fourth * np.sqrt(fourth) * eighth)
    owned = _draw(7) < 0.64
    price = np.array([1.35, 0.80, 0.82, 1.45])[region]
    value = np.where(owned, 62_000 * dwelling * price * fourth * np.sqrt(np.sqrt(_odds(8))), 0)
    value = 500 * np.floor(np.minimum(value, 2e6) / 500)
    mortgaged = owned & (_draw(9) < 0.35 + 0.025 * year)
    mortgage = np.where(mortgaged, value * (0.2 + 0.7 * _draw(10)) * 0.0075, 0)
    maintain = np.where(owned & (_draw(11) < 0.7), 0.003 * value * np.sqrt(_odds(12)), 0)
    taxes = value * (0.007 + 0.012 * _draw(13)) * np.array([1.5, 1.1, 0.7, 0.7])[region] / 12
    return np.minimum(income, 400_000), value, mortgage, maintain, taxes


def _schema() -> Schema:
    from safeswap.model.schema import Attribute, Kind, Schema

    described = (
        ("IDNUM", Kind.IDENTIFIER, "dwelling", ()),
        ("REGION", Kind.GEOGRAPHY, "region in which the dwelling lies", _REGIONS),
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
