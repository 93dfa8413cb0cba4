"""A small person file with households: what the members of one have in common, and an area within a region."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

SIZES = (0.2, 0.25, 0.2, 0.2, 0.15)
TENURES = ("owned", "rented", "social", "free")
HOUSEHOLD_COLUMNS = ("ref", "region", "county", "tenure", "rent")
_KINDS = {
    "person": Kind.IDENTIFIER,
    "ref": Kind.HOUSEHOLD,
    "region": Kind.GEOGRAPHY,
    "county": Kind.GEOGRAPHY,
    "rent": Kind.NUMERIC,
    "income": Kind.NUMERIC,
    "expend": Kind.NUMERIC,
}


def persons_table(households: int = 900, seed: int = 7) -> pa.Table:
    """Persons in households of one to five; region, county, tenure and rent are the household's, the rest theirs."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice(np.arange(1, 6), households, p=SIZES)
    region = rng.choice(6, households, p=(0.3, 0.2, 0.2, 0.15, 0.1, 0.05))
    county = region * 10 + rng.integers(0, 7, households)
    tenure = rng.choice(TENURES, households, p=(0.5, 0.3, 0.15, 0.05))
    rent = np.round(rng.lognormal(6, 0.5, households), 2)
    home = np.repeat(np.arange(households), sizes)
    persons = len(home)
    return pa.table(
        {
            "person": rng.permutation(persons) + 50_001,
            "ref": home + 4_001,
            "region": np.array([f"R{r}" for r in region])[home],
            "county": np.array([f"C{c:02d}" for c in county])[home],
            "tenure": tenure[home],
            "rent": rent[home],
            "age": rng.integers(0, 95, persons),
            "sex": rng.choice(["f", "m"], persons),
            "edu": rng.choice(["low", "mid", "high"], persons, p=(0.3, 0.5, 0.2)),
            "income": np.round(rng.lognormal(9.5, 0.8, persons), -2),
            "expend": np.round(rng.lognormal(9, 0.7, persons), 2),
        }
    )


def persons(households: int = 900, seed: int = 7, *, described: bool = True) -> Microdata:
    """The file, with every kind stated; or as nobody has described it, without names that tell anything."""
    table = persons_table(households, seed)
    if described:
        attributes = (Attribute(name=name, kind=_KINDS.get(name, Kind.NOMINAL)) for name in table.column_names)
        return Microdata(table, Schema(name="persons", attributes=tuple(attributes)))
    from safeswap.files.read import read

    return read(table.rename_columns([f"v{number}" for number in range(1, table.num_columns + 1)]), name="persons")
