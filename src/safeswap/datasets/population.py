"""A synthetic population: any number of fictitious persons in households in nested areas, generated in chunks.

For methods that protect households. Areas have skewed sizes, minorities live together, one household in some hundreds
is a communal establishment, and everyone has the weight of the household. The figures are invented.

An area is made from its own draws (see :mod:`safeswap.arrays.counter_random`), so chunks play no part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.counter_random import item_state, level_of, uniform
from safeswap.arrays.types import Int64s
from safeswap.datasets.census import _check_size, _make_seed

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

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
    from pyarrow import parquet

    from safeswap.files.atomic import atomic_write

    chunks = _chunks(_check_size("persons", persons, _MOST_PERSONS), _make_seed(key))
    first = next(chunks)
    with atomic_write(path, force=force) as part, parquet.ParquetWriter(part, first.schema) as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(chunk)


@cache
def synthetic_population_schema() -> Schema:
    """Return the schema of the synthetic population.

    >>> synthetic_population_schema()["HID"].kind.value
    'household'
    """
    from safeswap.model.schema import Attribute, Kind, Schema

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
    return Schema(
        name="synthetic_population",
        attributes=tuple(
            Attribute(
                name=name,
                kind=kind,
                label=label,
                levels=levels,
                geography_level=POPULATION_GEOGRAPHY.index(name) if name in POPULATION_GEOGRAPHY else None,
            )
            for name, (kind, label, levels) in described.items()
        ),
    )


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
