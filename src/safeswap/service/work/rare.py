"""Rare levels, which too few records have to be named: hide them in texts, tables and the order of levels."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import product
from math import prod

import numpy as np

from safeswap.arrays.hiding import hide_cells, hide_levels
from safeswap.arrays.types import Counts, Flags
from safeswap.files.infer import order_of_levels
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema, level_texts
from safeswap.service.http.problems import Unprocessable
from safeswap.service.schemas.studies import BeforeAfterAnswer, Cell

RARE = "(rare levels)"
MISSING = "(missing)"


def shown_texts(data: Microdata, name: str, tolerance: int) -> list[str]:
    """Return the levels of an attribute by code, missing last, with rare ones replaced by a common label.

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
    """Return the levels of an attribute that must not be named."""
    named = zip(level_texts(data.coded(name).levels), shown_texts(data, name, tolerance), strict=False)
    return frozenset(text for text, shown in named if shown == RARE)


def hidden_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """Return the levels that are named but not counted, since their counts would reveal those of rare ones."""
    _, hidden = _hide(data, name, tolerance)
    named = zip(level_texts(data.coded(name).levels), hidden, strict=True)
    return frozenset(text for text, is_hidden in named if is_hidden)


def _hide(data: Microdata, name: str, tolerance: int) -> tuple[Flags, Flags]:
    coded = data.coded(name)
    counts = np.bincount(coded.codes, minlength=coded.cardinality)[: len(coded.levels)]
    rare, hidden = hide_levels(counts, tolerance)
    return rare | (counts == 0), hidden


def with_rare_levels(schema: Schema, data: Microdata, tolerance: int) -> Schema:
    """Add the hidden levels to a schema whose levels were reordered by someone who was not shown them.

    ``data`` have the old schema. A visible level that was left out stays left out and is reported as an error later.
    """
    changed = [a for a in schema.attributes if a.levels and a.levels != data.schema[a.name].levels]
    return schema.replace(*(a.model_copy(update={"levels": _all_levels(a, data, tolerance)}) for a in changed))


def _all_levels(attribute: Attribute, data: Microdata, tolerance: int) -> tuple[str, ...]:
    before = data.schema[attribute.name].levels
    occurring = [text for text in level_texts(data.coded(attribute.name).levels) if text not in attribute.missing]
    rare = rare_texts(data, attribute.name, tolerance)
    shown = set(occurring) - rare
    unshown = {*rare, *before} - shown - set(attribute.missing)  # levels without records are not shown
    return insert_hidden(attribute.levels, before or order_of_levels(occurring), unshown=unshown)


def insert_hidden(stated: Sequence[str], order: Sequence[str], *, unshown: Set[str]) -> tuple[str, ...]:
    """Insert hidden levels into a new order: each after its old predecessor, or last if it had none.

    >>> insert_hidden(["3", "1"], ["0", "1", "2", "3"], unshown={"0", "2", "other"})
    ('0', '3', '1', '2', 'other')
    """
    placed, behind = list(stated), 0
    for level in order:
        if level in unshown and level not in placed:
            placed.insert(behind, level)
        if level in placed:
            behind = placed.index(level) + 1
    return (*placed, *sorted(unshown - set(placed)))


MOST_CELLS = 20_000
_MOST_PLACES = 10**6
_MOST_WORK = 10**9  # cells examined by complementary suppression


def before_after(masked: Masked, attributes: tuple[str, ...], *, tolerance: int) -> BeforeAfterAnswer:
    """Return a table before and after masking, without counts below ``tolerance`` and those that would reveal them.

    Rare levels are combined under one label.

    >>> import safeswap
    >>> masked = safeswap.swap(safeswap.datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [(cell.levels[0], cell.before) for cell in before_after(masked, ("Race",), tolerance=3).cells]
    [('Non-White', 7080), ('White', 41762)]
    """
    for name in attributes:
        if not masked.original.schema[name].kind.is_categorical:
            raise Unprocessable("a table needs categorical attributes", code="not-categorical", attribute=name)
    axes = [_axis(masked, name, tolerance) for name in attributes]
    if prod(map(len, axes)) > _MOST_PLACES:
        raise _too_large()
    rare = [rare_texts(masked.original, name, tolerance) for name in attributes]
    before, after = (count_cells(data, attributes, axes, rare) for data in (masked.original, masked.data))
    if int(((before > 0) | (after > 0)).sum()) > MOST_CELLS:
        raise _too_large()
    hidden = _hide_cells([before, after], axes, _hidden_levels(masked.original, attributes, tolerance), tolerance)
    cells = tuple(_cells(axes, before, after, hidden))
    return BeforeAfterAnswer(attributes=attributes, tolerance=tolerance, cells=cells)


def _axis(masked: Masked, name: str, tolerance: int) -> list[str]:
    rare = rare_texts(masked.original, name, tolerance)
    found = {text for data in (masked.original, masked.data) for text in level_texts(data.coded(name).levels)}
    return sorted({*(found - rare), MISSING, *({RARE} if found & rare else ())})


def count_cells(
    data: Microdata, attributes: Sequence[str], axes: Sequence[Sequence[str]], rare: Sequence[frozenset[str]]
) -> Counts:
    """Count the records in each cell, with rare levels combined."""
    places = []
    for name, axis, hidden in zip(attributes, axes, rare, strict=True):
        coded, position = data.coded(name), {text: at for at, text in enumerate(axis)}
        texts = [*(RARE if text in hidden else text for text in level_texts(coded.levels)), MISSING]
        places.append(np.array([position[text] for text in texts], dtype=np.int64)[coded.codes])
    sizes = tuple(map(len, axes))
    flat = np.ravel_multi_index(tuple(places), sizes)
    return np.bincount(flat, minlength=prod(sizes)).reshape(sizes).astype(np.int64)


def _hidden_levels(data: Microdata, attributes: Sequence[str], tolerance: int) -> list[frozenset[str]]:
    """Return, per attribute, the levels without counts: the rare ones and those hidden with them."""
    return [frozenset({RARE, *hidden_texts(data, name, tolerance)}) for name in attributes]


def _hide_cells(
    tables: list[Counts], axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]], tolerance: int
) -> Flags:
    occupied = np.logical_or.reduce([table > 0 for table in tables])
    hidden = np.zeros(occupied.shape, dtype=np.bool_)
    for number, (axis, names) in enumerate(zip(axes, unshown, strict=True)):
        if RARE in axis:
            mine = np.array([text in names for text in axis]).reshape(
                [-1 if i == number else 1 for i in range(len(axes))]
            )
            hidden |= mine & occupied
    small = sum(int(((table > 0) & (table < tolerance)).sum()) for table in tables)
    if small * hidden.size * 2 ** len(axes) > _MOST_WORK:
        raise _too_large()
    found = hide_cells(tables, tolerance, hidden=hidden)
    if found is None:
        raise Unprocessable(
            "the table is too sparse: its small counts could be worked out from the others",
            code="too-sparse",
            hint="name fewer attributes, or recode them",
        )
    return found


def _cells(axes: Sequence[Sequence[str]], before: Counts, after: Counts, hidden: Flags) -> list[Cell]:
    cells = []
    for levels, first, then, is_hidden in zip(product(*axes), before.flat, after.flat, hidden.flat, strict=True):
        if is_hidden:
            cells.append(Cell(levels=levels, before=None, after=None, changed=None))
        elif first or then:
            cells.append(Cell(levels=levels, before=int(first), after=int(then), changed=bool(first != then)))
    return cells


def _too_large() -> Unprocessable:
    return Unprocessable(f"the table has more than {MOST_CELLS:,} cells", code="too-large", hint="fewer attributes")
