"""Households and areas: sizes of households, and areas within areas, without counts that are too small."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from pydantic import Field

from safeswap.arrays.geography import count_straddling
from safeswap.arrays.hiding import hide_levels
from safeswap.arrays.types import Counts
from safeswap.model.geography import geography_levels, not_nested_error
from safeswap.model.households import find_households
from safeswap.model.microdata import Microdata
from safeswap.model.schema import household_attributes, require_household
from safeswap.service.http.problems import Unprocessable
from safeswap.service.http.wire import Wire, example
from safeswap.service.people.roles import ProjectAccess, Reader
from safeswap.service.routes.jobs import QuestionSlot, load_data_version
from safeswap.service.work.rare import MISSING, RARE, hidden_texts, shown_texts

router = APIRouter(tags=["households"])


class SizeClass(Wire):
    """The number of households with this many members."""

    least: int
    most: int | None = Field(description="None: this size and above.")
    households: int


class HouseholdsAnswer(Wire):
    """The households of a file, by size."""

    model_config = example(
        household="household", households=1560, outside=0, shared=["tenure"], geography=["region"], sizes=[]
    )

    household: str = Field(description="The attribute that numbers them.")
    households: int
    outside: int | None = Field(description="Persons without a household; None: fewer than the tolerance.")
    shared: tuple[str, ...] = Field(description="Attributes with one value for all members.")
    geography: tuple[str, ...] = Field(description="Levels of the geography, from coarse to fine.")
    sizes: tuple[SizeClass, ...] = Field(description="Sizes that few households have are merged with their neighbours.")


class Area(Wire):
    """An area and its number of records; None if it must not be shown."""

    name: str
    records: int | None


class OuterArea(Area):
    """An area with those that lie in it."""

    areas: tuple[Area, ...]
    rare: int = Field(description="Areas in it with too few records to be named.")


class GeographyAnswer(Wire):
    """Areas of two levels that nest."""

    coarse: str
    fine: str
    levels: tuple[str, ...]
    areas: tuple[OuterArea, ...]
    rare: int = Field(description="Areas with too few records to be named.")


@router.get("/projects/{project_id}/households")
def get_households(access: Reader, _: QuestionSlot) -> HouseholdsAnswer:
    """Get the number of households by size; sizes that few have are merged."""
    data, tolerance = _original(access), access.row.tolerance
    homes = find_households(data)
    outside = int(np.count_nonzero(homes.outside))
    sizes = homes.sizes[~homes.outside[homes.first]]
    return HouseholdsAnswer(
        household=require_household(data.schema),
        households=len(sizes),
        outside=outside if outside == 0 or outside >= tolerance else None,
        shared=household_attributes(data.schema),
        geography=geography_levels(data.schema),
        sizes=merge_sizes(np.bincount(sizes), tolerance),
    )


@router.get("/projects/{project_id}/geography")
def get_geography(
    access: Reader, _: QuestionSlot, level: Annotated[int, Query(ge=0, le=50, description="0: the coarsest.")] = 0
) -> GeographyAnswer:
    """Get the areas of a level of the geography and those of the next finer level that lie in them."""
    data = _original(access)
    levels = geography_levels(data.schema)
    pairs = list(pairwise(levels))
    if level >= len(pairs):
        raise Unprocessable(
            "the file has no two levels of geography here",
            code="no-geography",
            hint="state the kind geography, and the order of the levels, on the page Data",
        )
    coarse, fine = pairs[level]
    areas, rare = nest_areas(data, coarse, fine, access.row.tolerance)
    return GeographyAnswer(coarse=coarse, fine=fine, levels=levels, areas=areas, rare=rare)


def _original(access: ProjectAccess) -> Microdata:
    """Return the data before any recipe: exact counts of two versions of a file would reveal what differs."""
    access.require_data()
    return load_data_version(access, version=access.row.data_version, recipe=None)


def merge_sizes(counts: Counts, tolerance: int) -> tuple[SizeClass, ...]:
    """Return the number of households by size, ``counts[n]`` of size n, in classes of at least ``tolerance``.

    >>> [(c.least, c.most, c.households) for c in merge_sizes(np.array([0, 9, 1, 8, 1]), 3)]
    [(1, 1, 9), (2, None, 10)]
    """
    made: list[SizeClass] = []
    start, held = 1, 0
    for size in range(1, len(counts)):
        held += int(counts[size])
        if held >= tolerance:
            made.append(SizeClass(least=start, most=size, households=held))
            start, held = size + 1, 0
    if held and made:
        made[-1] = made[-1].model_copy(update={"households": made[-1].households + held})
    return (*made[:-1], made[-1].model_copy(update={"most": None})) if made else ()


def nest_areas(data: Microdata, coarse: str, fine: str, tolerance: int) -> tuple[tuple[OuterArea, ...], int]:
    """Return the areas of one level with those of the next in them, and the number of those too rare to be named.

    Nothing is counted that the description hides, nothing that a sum over the areas of a level would reveal (there may
    be several geographies), and no area inside one whose own count is hidden.
    """
    outer, inner = data.coded(coarse), data.coded(fine)
    if straddling := count_straddling(inner.codes, outer.codes, len(inner.levels)):
        raise not_nested_error(coarse, fine, straddling)
    table = np.zeros((len(outer.levels) + 1, len(inner.levels) + 1), dtype=np.int64)
    np.add.at(table, (outer.codes, inner.codes), 1)
    (names, hidden), inside = _level_texts(data, coarse, tolerance), _level_texts(data, fine, tolerance)
    found = tuple(
        _outer_area((name, None if name in hidden else int(table[i].sum())), table[i], inside, tolerance)
        for i, name in enumerate(names)
        if name not in (RARE, MISSING)
    )
    return found, sum(name == RARE for name in names)


def _level_texts(data: Microdata, name: str, tolerance: int) -> tuple[list[str], frozenset[str]]:
    return shown_texts(data, name, tolerance), hidden_texts(data, name, tolerance)


def _outer_area(
    area: tuple[str, int | None], counts: Counts, shown: tuple[list[str], frozenset[str]], tolerance: int
) -> OuterArea:
    (name, records), (names, hidden) = area, shown
    rare_here, hidden_here = hide_levels(counts, tolerance)  # the last count is that of missing codes
    inside = [i for i in np.flatnonzero(counts[:-1]) if names[i] != RARE and not rare_here[i]]
    areas = tuple(
        Area(name=names[i], records=None if records is None or names[i] in hidden or hidden_here[i] else int(counts[i]))
        for i in inside
    )
    return OuterArea(name=name, records=records, areas=areas, rare=int(np.count_nonzero(counts[:-1])) - len(inside))
