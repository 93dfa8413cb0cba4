"""A synthetic census: households in a nested geography, made in chunks and as many as are wanted.

Nobody in it exists. The shape follows what Moore (1996) tells of the 1990 Census of the United States: the geography,
the key characteristics on which its Confidentiality Edit matched households, and items that a census or a housing
survey asks. The figures themselves are invented.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from safeswap.errors import SpecError

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

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
    """A census of so many households. The same ``households`` and ``key`` give the same file, on every machine.

    ``key`` is a public number and no secret: it names one of many such censuses. ``chunk_size`` says how many
    households are made at a time and does not change them. Codes of areas contain those of the areas in which they lie.

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
    """The census of :func:`synthetic_census` as Arrow tables of ``chunk_size`` households, one at a time.

    What is held throughout is the list of blocks, some 16 bytes for every dozen households.

    >>> [chunk.num_rows for chunk in synthetic_census_chunks(2_500, chunk_size=1_000)]
    [1000, 1000, 500]
    """
    households = _checked("households", households, _MOST_HOUSEHOLDS)
    chunk_size = _checked("chunk_size", chunk_size, _MOST_HOUSEHOLDS)
    seed = _mixed_seed(key)
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
    """Write the census to a Parquet file, chunk by chunk. The file appears complete or not at all.

    >>> import tempfile, pathlib, safeswap
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "census.parquet"
    >>> write_synthetic_census(path, 2_000)
    >>> len(safeswap.read(path, schema=synthetic_census_schema()))
    2000
    """
    from pyarrow import parquet

    from safeswap.io.atomic import atomic_write

    chunks = synthetic_census_chunks(households, key, chunk_size=chunk_size)
    first = next(chunks)
    with atomic_write(path, force=force) as part, parquet.ParquetWriter(part, first.schema) as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(chunk)


@cache
def synthetic_census_schema() -> Schema:
    """What the columns of the synthetic census are.

    >>> synthetic_census_schema()["BLOCK"].geography_level
    4
    """
    from safeswap.model.schema import Attribute, Kind, Schema

    kinds = {
        "HHID": Kind.IDENTIFIER,
        **dict(zip(CENSUS_GEOGRAPHY, repeat(Kind.GEOGRAPHY))),
        **dict(zip(CENSUS_KEYS[:-1], repeat(Kind.ORDINAL))),
        **dict(zip(_CATEGORIES, repeat(Kind.NOMINAL))),
        **dict(zip(_MONEY, repeat(Kind.NUMERIC))),
    }
    return Schema(
        name="synthetic_census",
        attributes=tuple(
            Attribute(
                name=name,
                kind=kind,
                label=_LABELS[name],
                levels=_CATEGORIES.get(name, ()),
                geography_level=CENSUS_GEOGRAPHY.index(name) if name in CENSUS_GEOGRAPHY else None,
            )
            for name, kind in kinds.items()
        ),
    )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The blocks in order of their codes: ``starts[i]`` is the first household of block i; one more ends the last."""

    codes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]


def _blocks(households: int, seed: int) -> _Blocks:
    """Cut the households into states, these into counties, and so on down to blocks."""
    from safeswap.kernels.geography import cut

    sizes = np.array([households], dtype=np.int64)
    codes = np.zeros(1, dtype=np.int64)
    # Roots: how alike areas of one level are in size. Digits: how many the code of a level adds to the one above.
    for level, (roots, digits) in enumerate(((2, 2), (1, 3), (1, 3), (3, 4), (2, 4))):
        parts = np.clip(_number_of_parts(level, sizes), 1, np.minimum(sizes, 10**digits - 1))
        sizes = cut(sizes, parts, roots, seed + 10 + level)
        within = np.arange(len(sizes)) - np.repeat(np.cumsum(parts) - parts, parts) + 1
        codes = np.repeat(codes, parts) * 10**digits + within
    return _Blocks(codes, np.concatenate([[0], np.cumsum(sizes)]))


def _number_of_parts(level: int, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many states, counties, places, tracts and blocks: in a census of the United States about as many as there."""
    root = np.sqrt(sizes)
    numbers = (sizes / 20_000, root / 25, np.sqrt(root), sizes / 1_600, sizes / 13)[level]
    if level == 0:
        return np.clip(np.rint(numbers), 2, _STATES).astype(np.int64)
    return np.rint(numbers).astype(np.int64)


def _chunk(blocks: _Blocks, seed: int, start: int, stop: int) -> pa.Table:
    import pyarrow as pa

    from safeswap.kernels.households import make_households
    from safeswap.kernels.threads import run_all, spans

    codes = _codes_of(blocks, start, stop)
    number = stop - start
    counts = np.empty((9, number), dtype=np.int8)
    categories = np.empty((3, number), dtype=np.int8)
    money = np.empty((5, number), dtype=np.int32)

    run_all(lambda run: make_households(seed, start, *run, codes["TRACT"], counts, categories, money), spans(number))
    columns: dict[str, Any] = {"HHID": np.arange(start + 1, stop + 1, dtype=np.int64), **codes}
    columns |= dict(zip(CENSUS_KEYS, counts, strict=False))
    for values, (name, levels) in zip(categories, _CATEGORIES.items(), strict=True):
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(levels))
    return pa.table({**columns, **dict(zip(_MONEY, money, strict=True))})


def _codes_of(blocks: _Blocks, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
    """The codes of the areas of each household; a code without its last digits is that of the area around it."""
    first, last = np.searchsorted(blocks.starts, [start, stop - 1], side="right") - 1
    edges = np.clip(blocks.starts[first : last + 2], start, stop)
    code = blocks.codes[first : last + 1]
    kept = ((10**14, np.int8), (10**11, np.int32), (10**8, np.int32), (10**4, np.int64), (1, np.int64))
    levels = [(code // cut_off).astype(kind) for cut_off, kind in kept]
    return {name: np.repeat(level, np.diff(edges)) for name, level in zip(CENSUS_GEOGRAPHY, levels, strict=True)}


def _mixed_seed(key: int) -> int:
    if type(key) is not int or not 0 <= key < 2**63:
        raise SpecError(
            "the key of a synthetic census is a whole number from 0 to 2**63 - 1",
            code="bad-seed",
            hint="it names a census and is no secret: any number will do",
        )
    # Far apart for neighbouring keys, with room above for the numbers that are added per purpose.
    return (key * 0x2545F4914F6CDD1D + 0x632BE59BD9B4E019) % 2**62


def _checked(name: str, number: object, most: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 1 <= number <= most:
        raise SpecError(
            f"{name} must be a whole number from 1 to {most:,}", code="bad-size", hint="give another number"
        )
    return int(number)
