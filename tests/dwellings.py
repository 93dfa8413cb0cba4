"""Small files for the targeted edit: dwellings by rooms and age, areas that nest, skewed amounts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.methods.edit_targeted.method import EditTargeted, EditTargetedSpec
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = Key(bytes(range(32)))
KINDS = {
    "id": Kind.IDENTIFIER,
    "REGION": Kind.GEOGRAPHY,
    "PLACE": Kind.GEOGRAPHY,
    "INCOME": Kind.NUMERIC,
    "TAXES": Kind.NUMERIC,
}
KEYS = ("BATHS", "BEDS", "YR_BLT")


def microdata(columns: dict[str, Any], **kinds: Kind) -> Microdata:
    """Columns as a file; what is not said to be anything else is ordinal."""
    known = {**KINDS, **kinds}
    attributes = tuple(Attribute(name=name, kind=known.get(name, Kind.ORDINAL)) for name in columns)
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    return Microdata(table, Schema(name="dwellings", attributes=attributes))


def dwellings(records: int = 4000, seed: int = 1, *, places: int = 40) -> Microdata:
    """Dwellings in four regions of many places; income follows the rooms, and is skewed."""
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 4, records)
    beds, baths = (rng.random(records) ** 3 * 9).astype(int), (rng.random(records) ** 3 * 7).astype(int)
    scale = 1 + beds + 2 * baths
    return microdata(
        {
            "id": rng.permutation(records) + 10_000,
            "REGION": region,
            "PLACE": region * 1000 + rng.integers(0, places, records),
            "BEDS": beds,
            "BATHS": baths,
            "YR_BLT": 1900 + 10 * (rng.random(records) ** 0.5 * 10).astype(int),
            "INCOME": np.round(1000 * scale * rng.lognormal(0, 0.6, records)),
            "TAXES": np.round(10 * scale * rng.lognormal(0, 0.4, records), 2),
        }
    )


def edit(data: Microdata, *, key: Key = KEY, replicate: int = 0, **parameters: Any) -> Masked:
    """The targeted edit of a file; keys are those of :func:`dwellings` unless others are named."""
    spec = EditTargetedSpec(**{"keys": KEYS, **parameters})
    return EditTargeted().apply(data, spec, key=key, replicate=replicate)


def column(data: Microdata, name: str) -> list[Any]:
    return data.table.column(name).to_pylist()
