"""Levels of geography: find the attributes, and check that the levels nest."""

from __future__ import annotations

from itertools import pairwise

from safeswap.errors import SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.text import plural


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
            raise not_nested_error(coarse, fine, areas)


def is_nested(data: Microdata, coarse: str, fine: str) -> bool:
    """Return True if every area of ``fine`` lies in one area of ``coarse``."""
    return not _count_straddling(data, coarse, fine)


def _count_straddling(data: Microdata, coarse: str, fine: str) -> int:
    from safeswap.arrays.geography import count_straddling

    inner, outer = data.coded(fine), data.coded(coarse)
    return count_straddling(inner.codes, outer.codes, len(inner.levels))


def not_nested_error(coarse: str, fine: str, areas: int) -> SpecError:
    """Return the error for two levels that do not nest: ``areas`` of the finer one straddle."""
    found = plural(areas, f"area of {fine!r} lies", f"areas of {fine!r} lie")
    return SpecError(
        f"{found} in more than one area of {coarse!r}: the levels do not nest",
        code="geography-not-nested",
        hint="name the levels from coarse to fine; if codes restart in each coarser area, "
        'use geography_codes="local" or prefix the coarser code',
        coarse=coarse,
        fine=fine,
        areas=areas,
    )
