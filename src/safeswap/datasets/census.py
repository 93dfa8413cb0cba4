"""A synthetic census: any number of fictitious households in a nested geography, generated in chunks.

Its structure follows the description of the 1990 Census of the United States by Moore (1996): the geography, the key
characteristics on which its Confidentiality Edit matched households, and typical items of a census or housing survey.
The figures are invented.

Each household is made from its own draws (see :mod:`safeswap.arrays.counter_random`) and from those of its place and
tract, so that neighbours are similar: places differ in who lives there, tracts in wealth.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.counter_random import item_state, level_of, odds, uniform
from safeswap.arrays.types import Int64s
from safeswap.errors import SpecError

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Kind, Schema


# Kinds of neighbourhood: countryside, suburb, mixed city, mostly Black, mostly Hispanic, reservation, mostly Asian.
_KINDS = np.cumsum(np.array([0.27, 0.38, 0.16, 0.08, 0.07, 0.01]))
# Race of the householder per kind of neighbourhood: White, Black, American Indian, Asian, Other (cumulative).
_RACE = np.array(
    [
        [0.950, 0.980, 0.988, 0.992],
        [0.900, 0.950, 0.953, 0.985],
        [0.640, 0.880, 0.887, 0.945],
        [0.180, 0.960, 0.963, 0.973],
        [0.530, 0.600, 0.607, 0.627],
        [0.250, 0.260, 0.980, 0.985],
        [0.480, 0.540, 0.543, 0.953],
    ]
)
# Share of Hispanic householders per race; more in mostly Hispanic neighbourhoods.
_HISPANIC = np.array([0.05, 0.02, 0.06, 0.02, 0.88])
_HISPANIC_THERE = np.array([0.74, 0.12, 0.25, 0.06, 0.97])
_OTHER_RACE = np.array([0.52, 0.68, 0.76, 0.88])  # of those in a household who are not of the householder's race
_TRAILER = np.array([0.16, 0.05, 0.015, 0.02, 0.04, 0.18, 0.01])
_BETTER_OFF = np.array([0.88, 1.22, 0.95, 0.68, 0.74, 0.60, 1.08])

_SIZE = np.cumsum(np.array([0.245, 0.325, 0.172, 0.152, 0.068, 0.0245, 0.0085, 0.003, 0.0012, 0.0005, 0.0002, 0.00007]))
_ADULTS_OF_TWO = np.array([0.09])
_ADULTS_OF_THREE = np.array([0.10, 0.68])
_ADULTS_OF_MORE = np.array([0.06, 0.72, 0.92])

# Occupations in the order of the data set, cumulative, of the well off and of the others; the last one is "none".
_OCCUPATION_HIGH = np.cumsum(np.array([0.20, 0.22, 0.05, 0.13, 0.11, 0.001, 0.02, 0.04, 0.01, 0.08, 0.03, 0.02, 0.019]))
_OCCUPATION_LOW = np.cumsum(np.array([0.05, 0.05, 0.02, 0.08, 0.12, 0.01, 0.02, 0.11, 0.04, 0.11, 0.09, 0.05, 0.06]))
_PAY = np.array([1.7, 1.55, 1.25, 1.15, 0.9, 0.5, 1.05, 0.65, 0.7, 1.05, 0.85, 0.95, 0.75, 0.55])

MORTGAGED, OUTRIGHT, RENTED, NO_RENT = range(4)


@njit(cache=True, nogil=True)
def make_households(
    seed: int,
    first: int,
    start: int,
    stop: int,
    tracts: Int64s,
    counts: npt.NDArray[np.int8],
    categories: npt.NDArray[np.int8],
    money: npt.NDArray[np.int32],
) -> None:
    """Make the households of the census from number ``first`` on, at positions ``start`` to ``stop``.

    ``tracts`` has the code of each household's tract, whose leading digits are those of its place and its state.
    ``counts`` has a row each for persons by race (5), Hispanic, other origin, adults and family units;
    ``categories`` for trailer, tenure and occupation; ``money`` for income, home value, mortgage, maintenance, taxes.
    """
    tract = np.int64(-1)
    kind = 0
    rich = 1.0
    prices = 1.0
    tax = 0.0
    for i in range(start, stop):
        if tracts[i] != tract:
            tract = tracts[i]
            kind, rich, prices, tax = _neighbourhood(seed, tract)
        state = item_state(seed, first + i)
        size = _persons(state, kind)
        _races(state, kind, size, counts[:, i])
        adults = _adults(state, size)
        counts[7, i] = adults
        counts[8, i] = _families(state, size, adults)
        categories[0, i] = uniform(state, 20) < _TRAILER[kind]
        _means(state, rich, prices, tax, adults, categories[:, i], money[:, i])


@njit(cache=True, nogil=True)
def _neighbourhood(seed: int, tract: int) -> tuple[int, float, float, float]:
    """Return what a tract's households share: kind, wealth, price of homes, and yearly tax per dollar of home value."""
    here = item_state(seed + 1, tract)
    place = item_state(seed + 2, tract // 10_000)
    county = item_state(seed + 3, tract // 10_000_000)
    kind = level_of(uniform(place if uniform(here, 0) < 0.6 else here, 1), _KINDS)
    rich = _BETTER_OFF[kind] * np.sqrt(np.sqrt(np.sqrt(odds(uniform(here, 2)))))
    prices = np.sqrt(np.sqrt(odds(uniform(county, 1))))
    return kind, rich, prices, 0.006 + 0.016 * uniform(county, 2)


@njit(cache=True, nogil=True)
def _persons(state, kind):  # type: ignore[no-untyped-def]
    larger = kind in (4, 5) and uniform(state, 1) < 0.25
    return 1 + level_of(uniform(state, 0), _SIZE) + larger


@njit(cache=True, nogil=True)
def _races(state: Any, kind: int, size: int, counts: npt.NDArray[np.int8]) -> None:
    """Count persons by race and by origin; each adds up to the size of the household."""
    counts[:7] = 0
    race = level_of(uniform(state, 2), _RACE[kind])
    hispanic = uniform(state, 3) < (_HISPANIC_THERE[race] if kind == 4 else _HISPANIC[race])
    several_races = uniform(state, 4) < 0.03
    second = level_of(uniform(state, 5), _OTHER_RACE)
    several_origins = uniform(state, 6) < (0.10 if hispanic else 0.012)
    for person in range(size):
        other = several_races and person > 0 and uniform(state, 30 + person) < 0.5
        counts[second if other else race] += 1
        changed = several_origins and person > 0 and uniform(state, 60 + person) < 0.5
        counts[5 if hispanic != changed else 6] += 1


@njit(cache=True, nogil=True)
def _adults(state, size):  # type: ignore[no-untyped-def]
    u = uniform(state, 7)
    if size == 1:
        return 1
    if size == 2:
        return 1 + level_of(u, _ADULTS_OF_TWO)
    if size == 3:
        return 1 + level_of(u, _ADULTS_OF_THREE)
    more = min(size // 3, 2) if uniform(state, 8) < 0.25 * (size - 4) else 0
    return min(size, 1 + level_of(u, _ADULTS_OF_MORE) + more)


@njit(cache=True, nogil=True)
def _families(state, size, adults):  # type: ignore[no-untyped-def]
    if adults < 2 or size < 3:
        return 1
    u = uniform(state, 9)
    return 1 + (u < 0.015 * (size - 1)) + (adults > 3 and u < 0.003 * (size - 3))


@njit(cache=True, nogil=True)
def _means(
    state: Any,
    rich: float,
    prices: float,
    tax: float,
    adults: int,
    categories: npt.NDArray[np.int8],
    money: npt.NDArray[np.int32],
) -> None:
    """Return tenure, occupation, income and expenses in dollars."""
    trailer = categories[0] == 1
    skilled = uniform(state, 21) < 0.5 * rich
    occupation = level_of(uniform(state, 22), _OCCUPATION_HIGH if skilled else _OCCUPATION_LOW)
    # The odds to the power 3/8: a log-logistic distribution of shape 8/3, about as skewed as incomes.
    root = np.sqrt(np.sqrt(odds(uniform(state, 23))))
    earned = 21_000.0 * rich * _PAY[occupation] * (0.62 + 0.30 * min(adults, 4)) * root * np.sqrt(root)
    income = 0.0 if uniform(state, 24) < 0.015 else earned
    worth = 2.1 * prices * (0.45 * 34_000.0 * rich + 0.55 * earned) * np.sqrt(np.sqrt(odds(uniform(state, 25))))
    if trailer:
        worth *= 0.25
    tenure = _tenure(uniform(state, 26), income, trailer)
    owned = tenure in (MORTGAGED, OUTRIGHT)
    value = 500.0 * np.floor(min(max(worth, 5_000.0), 5e6) / 500.0) if owned else 0.0
    loan = value * (0.25 + 0.7 * uniform(state, 27)) * 0.0088 if tenure == MORTGAGED else 0.0
    kept = 0.0035 * value * np.sqrt(odds(uniform(state, 28))) if owned else 90.0
    categories[1] = tenure
    categories[2] = occupation
    money[0] = np.int32(10.0 * np.floor(min(income, 4e6) / 10.0))
    money[1] = np.int32(value)
    money[2] = np.int32(loan)
    money[3] = np.int32(kept) if uniform(state, 29) < (0.75 if owned else 0.06) else 0
    money[4] = np.int32(value * tax / 12.0)


@njit(cache=True, nogil=True)
def _tenure(u: float, income: float, trailer: bool) -> int:
    share = min(0.85, 0.42 + income / 150_000.0) + (0.08 if trailer else 0.0)
    if u < share:
        return OUTRIGHT if u < (0.62 if trailer else 0.36) * share else MORTGAGED
    return NO_RENT if u > 0.985 else RENTED


CENSUS_GEOGRAPHY = ("STATE", "COUNTY", "PLACE", "TRACT", "BLOCK")
"""The geography of the synthetic census, from coarse to fine."""

CENSUS_KEYS = (
    "WHITE",
    "BLACK",
    "INDIAN",
    "ASIAN",
    "OTHER",
    "HISPANIC",
    "NONHISPANIC",
    "ADULTS",
    "FAMILIES",
    "TRAILER",
)
"""The key characteristics of the 1990 edit; the eleventh is the state."""

DEFAULT_SEED = 1990
CHUNK = 1_000_000

_STATES = 51
_MOST_HOUSEHOLDS = 10**9
_TENURES = ("mortgaged", "owned", "rented", "no cash rent")
_OCCUPATIONS = (
    *("executive", "professional", "technical", "sales", "clerical", "private household", "protective service"),
    *("other service", "farming", "craft", "operators", "transport", "labourers", "none"),
)
_CATEGORIES = {"TRAILER": ("no", "yes"), "TENURE": _TENURES, "OCCUPATION": _OCCUPATIONS}
_MONEY = ("INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES")
_LABELS = {
    "HHID": "household",
    "STATE": "state",
    "COUNTY": "county, with the code of its state",
    "PLACE": "place, with the codes of the areas in which it lies",
    "TRACT": "tract, with the codes of the areas in which it lies",
    "BLOCK": "block, with the codes of the areas in which it lies",
    "WHITE": "persons who are White",
    "BLACK": "persons who are Black",
    "INDIAN": "persons who are American Indian, Eskimo or Aleut",
    "ASIAN": "persons who are Asian or Pacific Islander",
    "OTHER": "persons of other races",
    "HISPANIC": "persons of Hispanic origin",
    "NONHISPANIC": "persons not of Hispanic origin",
    "ADULTS": "persons over 18 years of age",
    "FAMILIES": "family units at the address",
    "TRAILER": "trailer or mobile home",
    "TENURE": "tenure of the home",
    "OCCUPATION": "occupation of the householder",
    "INCOME": "household income, dollars a year",
    "HOME_VAL": "market value of the home, dollars, 0 if it is not owned",
    "MORTGAGE": "mortgage payment, dollars a month, 0 if there is none",
    "MAINTAIN": "maintenance, dollars a year",
    "TAXES": "property tax, dollars a month, 0 if the home is not owned",
}


def synthetic_census(households: int = 100_000, key: int = DEFAULT_SEED, *, chunk_size: int = CHUNK) -> Microdata:
    """Generate a census. The same ``households`` and ``key`` give the same file on every machine.

    ``key`` is a public number, not a secret: it selects one of many such censuses. ``chunk_size`` is the number of
    households made at a time and does not change them. The code of an area begins with that of the area around it.

    >>> census = synthetic_census(2_000)
    >>> census.attributes[:6], len(census)
    (('HHID', 'STATE', 'COUNTY', 'PLACE', 'TRACT', 'BLOCK'), 2000)
    >>> persons = sum(census.table[name].to_numpy() for name in ("WHITE", "BLACK", "INDIAN", "ASIAN", "OTHER"))
    >>> bool((persons == census.table["HISPANIC"].to_numpy() + census.table["NONHISPANIC"].to_numpy()).all())
    True
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    chunks = list(synthetic_census_chunks(households, key, chunk_size=chunk_size))
    return Microdata(pa.concat_tables(chunks), synthetic_census_schema())


def synthetic_census_chunks(households: int, key: int = DEFAULT_SEED, *, chunk_size: int = CHUNK) -> Iterator[pa.Table]:
    """Generate the census of :func:`synthetic_census` as Arrow tables of ``chunk_size`` households, one at a time.

    Only the list of blocks is held in memory throughout, about 16 bytes per dozen households.

    >>> [chunk.num_rows for chunk in synthetic_census_chunks(2_500, chunk_size=1_000)]
    [1000, 1000, 500]
    """
    households = _check_size("households", households, _MOST_HOUSEHOLDS)
    chunk_size = _check_size("chunk_size", chunk_size, _MOST_HOUSEHOLDS)
    seed = _make_seed(key)
    blocks = _blocks(households, seed)
    return (_chunk(blocks, seed, at, min(at + chunk_size, households)) for at in range(0, households, chunk_size))


def write_synthetic_census(
    path: str | os.PathLike[str],
    households: int,
    key: int = DEFAULT_SEED,
    *,
    chunk_size: int = CHUNK,
    force: bool = False,
) -> None:
    """Write the census to a Parquet file, chunk by chunk and atomically.

    >>> import tempfile, pathlib, safeswap
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "census.parquet"
    >>> write_synthetic_census(path, 2_000)
    >>> len(safeswap.read(path, schema=synthetic_census_schema()))
    2000
    """
    write_chunks(path, synthetic_census_chunks(households, key, chunk_size=chunk_size), force=force)


def described_schema(name: str, described: Iterable[tuple[str, Kind, str, tuple[str, ...]]]) -> Schema:
    """Return a schema of attributes with name, kind, label and levels; areas are in the order from coarse to fine."""
    from safeswap.model.schema import Attribute, Kind, Schema

    rows = tuple(described)
    areas = [own for own, kind, _, _ in rows if kind is Kind.GEOGRAPHY]
    found = (
        Attribute(
            name=own, kind=kind, label=label, levels=levels, geography_level=areas.index(own) if own in areas else None
        )
        for own, kind, label, levels in rows
    )
    return Schema(name=name, attributes=tuple(found))


def write_chunks(path: str | os.PathLike[str], chunks: Iterator[pa.Table], *, force: bool) -> None:
    """Write tables to one Parquet file, chunk by chunk and atomically."""
    from pyarrow import parquet

    from safeswap.files.atomic import atomic_write

    first = next(chunks)
    with atomic_write(path, force=force) as part, parquet.ParquetWriter(part, first.schema) as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(chunk)


@cache
def synthetic_census_schema() -> Schema:
    """Return the schema of the synthetic census.

    >>> synthetic_census_schema()["BLOCK"].geography_level
    4
    """
    from safeswap.model.schema import Kind

    kinds = {
        "HHID": Kind.IDENTIFIER,
        **dict(zip(CENSUS_GEOGRAPHY, repeat(Kind.GEOGRAPHY))),
        **dict(zip(CENSUS_KEYS[:-1], repeat(Kind.ORDINAL))),
        **dict(zip(_CATEGORIES, repeat(Kind.NOMINAL))),
        **dict(zip(_MONEY, repeat(Kind.NUMERIC))),
    }
    rows = ((name, kind, _LABELS[name], _CATEGORIES.get(name, ())) for name, kind in kinds.items())
    return described_schema("synthetic_census", rows)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The blocks in order of their codes: ``starts[i]`` is the first household of block i, with one more at the end."""

    codes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]


def _blocks(households: int, seed: int) -> _Blocks:
    """Divide the households into states, these into counties, and so on down to blocks."""
    from safeswap.arrays.geography import divide_areas

    sizes = np.array([households], dtype=np.int64)
    codes = np.zeros(1, dtype=np.int64)
    # Roots: how similar areas of one level are in size. Digits: the number that a level adds to the code.
    for level, (roots, digits) in enumerate(((2, 2), (1, 3), (1, 3), (3, 4), (2, 4))):
        parts = np.clip(_number_of_parts(level, sizes), 1, np.minimum(sizes, 10**digits - 1))
        sizes = divide_areas(sizes, parts, roots, seed + 10 + level)
        within = np.arange(len(sizes)) - np.repeat(np.cumsum(parts) - parts, parts) + 1
        codes = np.repeat(codes, parts) * 10**digits + within
    return _Blocks(codes, np.concatenate([[0], np.cumsum(sizes)]))


def _number_of_parts(level: int, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of parts at a level: for a census of the United States about the true number."""
    root = np.sqrt(sizes)
    numbers = (sizes / 20_000, root / 25, np.sqrt(root), sizes / 1_600, sizes / 13)[level]
    if level == 0:
        return np.clip(np.rint(numbers), 2, _STATES).astype(np.int64)
    return np.rint(numbers).astype(np.int64)


def _chunk(blocks: _Blocks, seed: int, start: int, stop: int) -> pa.Table:
    import pyarrow as pa

    codes = _codes_of(blocks, start, stop)
    number = stop - start
    counts = np.empty((9, number), dtype=np.int8)
    categories = np.empty((3, number), dtype=np.int8)
    money = np.empty((5, number), dtype=np.int32)

    run_all(
        lambda run: make_households(seed, start, *run, codes["TRACT"], counts, categories, money), split_runs(number)
    )
    columns: dict[str, Any] = {"HHID": np.arange(start + 1, stop + 1, dtype=np.int64), **codes}
    columns |= dict(zip(CENSUS_KEYS, counts, strict=False))
    for values, (name, levels) in zip(categories, _CATEGORIES.items(), strict=True):
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(levels))
    return pa.table({**columns, **dict(zip(_MONEY, money, strict=True))})


def _codes_of(blocks: _Blocks, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
    """Return the area codes of each household; a code without its last digits is that of the area around it."""
    first, last = np.searchsorted(blocks.starts, [start, stop - 1], side="right") - 1
    edges = np.clip(blocks.starts[first : last + 2], start, stop)
    code = blocks.codes[first : last + 1]
    kept = ((10**14, np.int8), (10**11, np.int32), (10**8, np.int32), (10**4, np.int64), (1, np.int64))
    levels = [(code // cut_off).astype(kind) for cut_off, kind in kept]
    return {name: np.repeat(level, np.diff(edges)) for name, level in zip(CENSUS_GEOGRAPHY, levels, strict=True)}


def _make_seed(key: int) -> int:
    if type(key) is not int or not 0 <= key < 2**63:
        raise SpecError(
            "the key of a synthetic census is a whole number from 0 to 2**63 - 1",
            code="bad-seed",
            hint="it selects a census and is not a secret: use any number",
        )
    # Neighbouring keys give distant seeds, with room for the numbers added per purpose.
    return (key * 0x2545F4914F6CDD1D + 0x632BE59BD9B4E019) % 2**62


def _check_size(name: str, number: object, most: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 1 <= number <= most:
        raise SpecError(
            f"{name} must be a whole number from 1 to {most:,}", code="bad-size", hint="give another number"
        )
    return int(number)
