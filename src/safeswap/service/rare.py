"""Levels that fewer records have than may be shown: they are not named, whatever is told about them.

Nor can somebody name them who puts the others into an order: their places are found here.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from safeswap.io.ranges import order_of_levels
from safeswap.kernels.hiding import hide_levels
from safeswap.kernels.types import Flags
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

RARE = "(rare levels)"
MISSING = "(missing)"


def shown_texts(data: Microdata, name: str, tolerance: int) -> list[str]:
    """The levels of an attribute by code, missing last; a common word in place of those that are rare.

    >>> import pyarrow as pa
    >>> from safeswap import read
    >>> towns = pa.table({"Town": ["A", "A", "B"]})
    >>> shown_texts(read(towns, kinds={"Town": "nominal"}), "Town", 2)
    ['A', '(rare levels)', '(missing)']
    """
    coded = data.coded(name)
    rare, _ = _hide(data, name, tolerance)
    named = zip(level_texts(coded.levels), rare, strict=True)
    return [*(RARE if is_rare else text for text, is_rare in named), MISSING]


def rare_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """The levels of an attribute that are not to be named."""
    named = zip(level_texts(data.coded(name).levels), shown_texts(data, name, tolerance), strict=False)
    return frozenset(text for text, told in named if told == RARE)


def hidden_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """The levels that are named but not counted: their counts would give those of the rare ones away."""
    _, hidden = _hide(data, name, tolerance)
    named = zip(level_texts(data.coded(name).levels), hidden, strict=True)
    return frozenset(text for text, is_hidden in named if is_hidden)


def _hide(data: Microdata, name: str, tolerance: int) -> tuple[Flags, Flags]:
    coded = data.coded(name)
    counts = np.bincount(coded.codes, minlength=coded.cardinality)[: len(coded.levels)]
    rare, hidden = hide_levels(counts, tolerance)
    return rare | (counts == 0), hidden


def with_rare_levels(schema: Schema, data: Microdata, tolerance: int) -> Schema:
    """A schema in which somebody has put levels into an order, with those that she was not shown.

    ``data`` have the schema of before. A level that was shown and is left out stays left out: an error tells of it.
    """
    changed = [a for a in schema.attributes if a.levels and a.levels != data.schema[a.name].levels]
    return schema.replace(*(a.model_copy(update={"levels": _all_levels(a, data, tolerance)}) for a in changed))


def _all_levels(attribute: Attribute, data: Microdata, tolerance: int) -> tuple[str, ...]:
    before = data.schema[attribute.name].levels
    occurring = [text for text in level_texts(data.coded(attribute.name).levels) if text not in attribute.missing]
    rare = rare_texts(data, attribute.name, tolerance)
    shown = set(occurring) - rare
    unshown = {*rare, *before} - shown - set(attribute.missing)  # a level of the schema that no record has is not shown
    return placed_among(attribute.levels, before or order_of_levels(occurring), unshown=unshown)


def placed_among(stated: Sequence[str], order: Sequence[str], *, unshown: Set[str]) -> tuple[str, ...]:
    """Levels in a new order with the others: each behind the level that it stood behind, or last if it had no place.

    >>> placed_among(["3", "1"], ["0", "1", "2", "3"], unshown={"0", "2", "other"})
    ('0', '3', '1', '2', 'other')
    """
    placed, behind = list(stated), 0
    for level in order:
        if level in unshown and level not in placed:
            placed.insert(behind, level)
        if level in placed:
            behind = placed.index(level) + 1
    return (*placed, *sorted(unshown - set(placed)))
