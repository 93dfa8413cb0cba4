"""A table before and after masking for people who look at a candidate closely; small counts cannot be worked out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from safeswap.kernels.hiding import hide_cells
from safeswap.kernels.types import Counts, Flags
from safeswap.model.levels import level_texts
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.service.problems import Unprocessable
from safeswap.service.rare import MISSING, RARE, hidden_texts, rare_texts
from safeswap.service.schemas.studies import BeforeAfterAnswer, Cell

MOST_CELLS = 20_000
_MOST_PLACES = 10**6
_MOST_WORK = 10**9  # places looked at for boxes


def before_after(masked: Masked, attributes: tuple[str, ...], *, tolerance: int) -> BeforeAfterAnswer:
    """The table of some attributes before and after, without counts below ``tolerance`` and those that give them away.

    Levels that fewer records have go together under one name.

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
    hidden = _hide([before, after], axes, _unshown(masked.original, attributes, tolerance), tolerance)
    cells = tuple(_cells(axes, before, after, hidden))
    return BeforeAfterAnswer(attributes=attributes, tolerance=tolerance, cells=cells)


def _axis(masked: Masked, name: str, tolerance: int) -> list[str]:
    rare = rare_texts(masked.original, name, tolerance)
    found = {text for data in (masked.original, masked.data) for text in level_texts(data.coded(name).levels)}
    return sorted({*(found - rare), MISSING, *({RARE} if found & rare else ())})


def count_cells(
    data: Microdata, attributes: Sequence[str], axes: Sequence[Sequence[str]], rare: Sequence[frozenset[str]]
) -> Counts:
    """How many records each cell has; rare levels under one name."""
    places = []
    for name, axis, hidden in zip(attributes, axes, rare, strict=True):
        coded, position = data.coded(name), {text: at for at, text in enumerate(axis)}
        texts = [*(RARE if text in hidden else text for text in level_texts(coded.levels)), MISSING]
        places.append(np.array([position[text] for text in texts], dtype=np.int64)[coded.codes])
    sizes = tuple(map(len, axes))
    flat = np.ravel_multi_index(tuple(places), sizes)
    return np.bincount(flat, minlength=prod(sizes)).reshape(sizes).astype(np.int64)


def _unshown(data: Microdata, attributes: Sequence[str], tolerance: int) -> list[frozenset[str]]:
    """Per attribute, the levels of which no count is shown: the rare ones, and those hidden with them."""
    return [frozenset({RARE, *hidden_texts(data, name, tolerance)}) for name in attributes]


def _hide(
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
