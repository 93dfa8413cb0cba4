"""Levels of geography: find the attributes, and check that the levels nest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from safeswap.arrays.types import Codes, Rows
from safeswap.errors import SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.text import plural

_GLANCE = 4096  # records that tell of most pairs of attributes that they do not nest

_SHOWN = 5
"""The number of records that an error lists."""


def geography_levels(schema: Schema) -> tuple[str, ...]:
    """Return the attributes of kind geography, from coarse to fine as far as the schema states.

    >>> from safeswap.model.schema import Attribute
    >>> places = [("Tract", 1), ("State", 0)]
    >>> schema = Schema(
    ...     attributes=tuple(Attribute(name=n, kind=Kind.GEOGRAPHY, geography_level=level) for n, level in places)
    ... )
    >>> geography_levels(schema)
    ('State', 'Tract')
    """
    found = list(schema.iter_kind(Kind.GEOGRAPHY))
    found.sort(key=lambda a: len(found) if a.geography_level is None else a.geography_level)
    return tuple(attribute.name for attribute in found)


def check_nesting(data: Microdata, levels: tuple[str, ...]) -> None:
    """Refuse levels, given from coarse to fine, if an area lies in two areas of the level above."""
    for coarse, fine in pairwise(levels):
        if areas := _count_straddling(data, coarse, fine):
            inner, outer = data.coded(fine), data.coded(coarse)
            raise not_nested_error(coarse, fine, areas, find_straddling(inner.codes, outer.codes, len(inner.levels)))


def is_nested(data: Microdata, coarse: str, fine: str) -> bool:
    """Return True if every area of ``fine`` lies in one area of ``coarse``."""
    inner, outer = data.coded(fine), data.coded(coarse)
    if find_straddling(inner.codes[:_GLANCE], outer.codes[:_GLANCE], len(inner.levels)).size:
        return False
    return len(data) <= _GLANCE or not _count_straddling(data, coarse, fine)


def _count_straddling(data: Microdata, coarse: str, fine: str) -> int:
    from safeswap.arrays.geography import count_straddling

    inner, outer = data.coded(fine), data.coded(coarse)
    return count_straddling(inner.codes, outer.codes, len(inner.levels))


def find_straddling(fine: Codes, coarse: Codes, areas: int) -> Rows:
    """Return the records in a different coarser area from that of the first record of their finer area.

    >>> find_straddling(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 2).tolist()
    [1]
    """
    known = np.flatnonzero(fine < areas)
    first = np.zeros(areas, dtype=np.int64)
    first[fine[known[::-1]]] = known[::-1]  # the last to be written is the first record
    found: Rows = known[coarse[known] != coarse[first[fine[known]]]]
    return found


def not_nested_error(coarse: str, fine: str, areas: int, rows: Rows | None = None) -> SpecError:
    """Return the error for two levels that do not nest: ``areas`` of the finer one straddle, in these records."""
    where = {} if rows is None or not len(rows) else {"records": (rows[:_SHOWN] + 1).tolist()}
    at = f", the first in record {where['records'][0]:,}" if where else ""
    found = plural(areas, f"area of {fine!r} lies", f"areas of {fine!r} lie")
    return SpecError(
        f"{found} in more than one area of {coarse!r}: the levels do not nest{at}",
        code="geography-not-nested",
        hint="name the levels from coarse to fine; if codes restart in each coarser area, "
        'use geography_codes="local" or prefix the coarser code',
        coarse=coarse,
        fine=fine,
        areas=areas,
        **where,
    )
