"""A table before and after masking, with small counts hidden, for people who look at a candidate closely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from safeswap.model.levels import level_texts
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.service.problems import Unprocessable
from safeswap.service.rare import MISSING, RARE, rare_texts
from safeswap.service.schemas.studies import BeforeAfterAnswer, Cell

MOST_CELLS = 20_000


def before_after(masked: Masked, attributes: tuple[str, ...], *, tolerance: int) -> BeforeAfterAnswer:
    """The table of some attributes before and after; of a count below ``tolerance`` only that it is one.

    Levels that fewer records have go together under one name.

    >>> import safeswap
    >>> masked = safeswap.swap(safeswap.datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [(cell.levels[0], cell.before) for cell in before_after(masked, ("Race",), tolerance=3).cells]
    [('Non-White', 7080), ('White', 41762)]
    """
    for name in attributes:
        if not masked.original.schema[name].kind.is_categorical:
            raise Unprocessable("a table needs categorical attributes", code="not-categorical", attribute=name)
    rare = [rare_texts(masked.original, name, tolerance) for name in attributes]
    before, after = (counted(data, attributes, rare) for data in (masked.original, masked.data))
    places = sorted({*before, *after})
    if len(places) > MOST_CELLS:
        raise Unprocessable(f"the table has more than {MOST_CELLS:,} cells", code="too-large", hint="fewer attributes")
    cells = tuple(_cell(place, before.get(place, 0), after.get(place, 0), tolerance) for place in places)
    return BeforeAfterAnswer(attributes=attributes, tolerance=tolerance, cells=cells)


def counted(data: Microdata, attributes: tuple[str, ...], rare: Sequence[frozenset[str]]) -> dict[tuple[str, ...], int]:
    """How many records each occupied cell has, by the texts of its levels; rare ones under one name."""
    coded = [data.coded(name) for name in attributes]
    texts = [
        [*(RARE if text in hidden else text for text in level_texts(column.levels)), MISSING]
        for column, hidden in zip(coded, rare, strict=True)
    ]
    sizes = tuple(len(names) for names in texts)
    flat = np.ravel_multi_index(tuple(column.codes.astype(np.int64) for column in coded), sizes)
    cells, counts = np.unique(flat, return_counts=True)
    places = zip(*np.unravel_index(cells, sizes), strict=True)
    found: Counter[tuple[str, ...]] = Counter()
    for place, count in zip(places, counts, strict=True):
        found[tuple(texts[i][code] for i, code in enumerate(place))] += int(count)
    return found


def _cell(place: tuple[str, ...], before: int, after: int, tolerance: int) -> Cell:
    return Cell(levels=place, before=_shown(before, tolerance), after=_shown(after, tolerance), changed=before != after)


def _shown(count: int, tolerance: int) -> int | None:
    return count if count == 0 or count >= tolerance else None
