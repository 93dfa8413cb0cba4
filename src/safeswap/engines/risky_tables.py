"""What was found unsafe, as tables: totals by number of keys, by key and by combination; values and records inside."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from safeswap.errors import SpecError
from safeswap.model.levels import level_texts
from safeswap.model.words import Part

if TYPE_CHECKING:
    from safeswap.engines.risky import Risky

INSIDE: tuple[Part, ...] = ("unsafe", "records")
"""The parts that show values or records, and so stay inside."""


def table_of(found: Risky, part: Part) -> pa.Table:
    """One part as an Arrow table."""
    parts: dict[str, Callable[[Risky], pa.Table]] = {
        "dimensions": dimension_table,
        "keys": key_table,
        "combinations": combination_table,
        "unsafe": unsafe_table,
        "records": record_table,
    }
    if part not in parts:
        raise SpecError(
            f"a list of unsafe combinations has no part {part!r}",
            code="unknown-part",
            hint="the parts are: " + ", ".join(parts),
        )
    return parts[part](found)


def dimension_table(found: Risky) -> pa.Table:
    """By number of keys: how many combinations of keys were looked at, and how many of values are unsafe."""
    sizes = list(found.by_dimension)
    lists = [sum(len(each.keys) == size for each in found.combinations) for size in sizes]
    occupied = [sum(each.occupied for each in found.combinations if len(each.keys) == size) for size in sizes]
    unsafe = list(found.by_dimension.values())
    return pa.table({"keys": sizes, "combinations": lists, "occupied": occupied, "unsafe": unsafe})


def key_table(found: Risky) -> pa.Table:
    """By key: the records that are unsafe with it, and those that would be safe without it."""
    return pa.table(
        {
            "key": [each.key for each in found.keys],
            "records": [each.records for each in found.keys],
            "safe_without": [each.alone for each in found.keys],
        }
    )


def combination_table(found: Risky) -> pa.Table:
    """By combination of keys: its tolerance, what occurs, what is unsafe, and in how many records."""
    return pa.table(
        {
            "combination": [" × ".join(each.keys) for each in found.combinations],
            "tolerance": [float(each.tolerance) for each in found.combinations],
            "occupied": [each.occupied for each in found.combinations],
            "unsafe": [each.unsafe for each in found.combinations],
            "records": [each.records for each in found.combinations],
        }
    )


def unsafe_table(found: Risky) -> pa.Table:
    """Every unsafe combination of values, the rarest first, with a column per key. Confidential: it shows values.

    A key that is not part of the combination is null, and so is a missing value of one that is.
    """
    names = [each.key for each in found.keys]
    texts = {name: pa.array([*level_texts(found.data.coded(name).levels), None], pa.string()) for name in names}
    parts = []
    for keys, tolerance, rows, sizes in found.cells():
        told = {
            "combination": pa.array([" × ".join(keys)] * len(rows), pa.string()),
            "count": pa.array(sizes),
            "tolerance": pa.array(np.full(len(rows), float(tolerance))),
        }
        values = {
            name: known.take(pa.array(found.data.coded(name).codes[rows])) if name in keys else _nothing(len(rows))
            for name, known in texts.items()
        }
        parts.append(pa.table({**{_unlike(name, texts): column for name, column in told.items()}, **values}))
    whole = pa.concat_tables(parts)
    order = np.lexsort((np.arange(whole.num_rows), whole.column(1).to_numpy()))
    return whole.take(pa.array(order))


def _nothing(number: int) -> pa.Array:
    return pa.nulls(number, pa.string())


def record_table(found: Risky) -> pa.Table:
    """Every record in an unsafe combination: its row, its identifier, in how many it is. Confidential."""
    number = np.zeros(found.records, np.int64)
    for each in found.combinations:
        if each.unsafe:
            number[found.rows(*each.keys)] += 1
    rows = np.flatnonzero(number)
    columns = {"row": pa.array(rows), "unsafe_combinations": pa.array(number[rows])}
    identifier = found.data.schema.identifier
    if identifier is None:
        return pa.table(columns)
    known = found.data.table.column(identifier.name).take(pa.array(rows))
    return pa.table({identifier.name: known, **{_unlike(n, (identifier.name,)): c for n, c in columns.items()}})


def _unlike(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name
